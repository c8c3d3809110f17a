//! Broker membership against the embedded controller.

mod failover;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thalweg_config::BrokerConfig;
use thalweg_controller::{
    ConfigRefusal, ConfigRules, Controller, ControllerOptions, EffectiveConfig, Requester,
    default_supported_features, serves,
};
use thalweg_metadata::{
    ConfigMap, ConfigResource, ConfigResourceKind, Delta, Endpoint, Image, PartitionIndex,
};
use thalweg_wire::request::create_partitions_request::CreatePartitionsTopic;
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest,
};
use thalweg_wire::{Request, Uuid};

use super::*;

const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";
const DIRECTORY: Uuid = Uuid(0xabcd_0000_0000_0000_0000_0000_0000_0001);

impl LocalController for Controller {
    fn node_id(&self) -> i32 {
        Controller::node_id(self)
    }

    fn cluster_id(&self) -> &str {
        Controller::cluster_id(self)
    }

    fn serves(&self, api: thalweg_wire::ApiKey) -> bool {
        serves(api)
    }

    fn handle(&self, frame: bytes::Bytes) -> LocalAnswer<'_> {
        Box::pin(async move {
            let answered = Controller::handle(self, frame, &Requester::ThisProcess).await;
            answered.map_err(|error| LocalControllerError { error: error.into(), is_absence: true })
        })
    }
}

struct AnyConfig;

impl ConfigRules for AnyConfig {
    fn validate(&self, _: &ConfigResource, _: &ConfigMap, _: &ConfigMap) -> Result<(), ConfigRefusal> {
        Ok(())
    }

    fn is_list(&self, _: ConfigResourceKind, _: &str) -> bool {
        false
    }

    fn default_value(&self, _: ConfigResourceKind, _: &str) -> Option<String> {
        None
    }

    fn effective_topic_configs(&self, _: &ConfigMap, _: &ConfigMap, _: &ConfigMap) -> Vec<EffectiveConfig> {
        Vec::new()
    }
}

/// Checks that each delta turns the previous image into the next, and keeps all images.
#[derive(Default)]
struct Follower {
    seen: Mutex<Vec<Arc<Image>>>,
}

impl ImageListener for Follower {
    fn publish(&self, delta: &Delta, image: Arc<Image>) {
        let mut seen = self.seen.lock();
        let before = seen.last().cloned().unwrap_or_else(|| Arc::new(Image::empty()));
        assert_eq!(**delta.base(), *before);
        assert_eq!(*delta.image(), *image);
        assert!(image.offset() > before.offset());
        let found = Delta::between(before, &image);
        for id in &found.changes().changed_topics.keys().copied().collect::<Vec<_>>() {
            assert!(delta.changes().changed_topics.contains_key(id));
        }
        assert_eq!(found.changes().deleted_topics, delta.changes().deleted_topics);
        assert!(found.changes().configs.is_subset(&delta.changes().configs));
        seen.push(image);
    }
}

struct Node {
    controller: Arc<Controller>,
    link: ControllerLink,
    membership: Membership,
    follower: Arc<Follower>,
}

fn controller_options(dir: &Path) -> ControllerOptions {
    let options = ControllerOptions::of(&BrokerConfig::default(), CLUSTER, DIRECTORY, dir.to_owned());
    ControllerOptions { node_id: 1, ..options }
}

fn options() -> MembershipOptions {
    MembershipOptions {
        node_id: BrokerId(1),
        cluster_id: CLUSTER.to_owned(),
        endpoints: vec![Endpoint {
            listener: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
            security_protocol: 0,
        }],
        features: default_supported_features(),
        directories: vec![DIRECTORY],
        ..MembershipOptions::default()
    }
}

impl Node {
    async fn start(options: ControllerOptions) -> Node {
        let controller = Arc::new(Controller::start(options, Arc::new(AnyConfig)).await.unwrap());
        let link = ControllerLink::in_process(controller.clone());
        let follower = Arc::new(Follower::default());
        let membership = Membership::start(link.clone(), self::options(), follower.clone()).await.unwrap();
        membership.unfence().await.unwrap();
        Node { controller, link, membership, follower }
    }

    async fn send<R: Request>(&self, request: R) -> R::Response {
        self.link.send(request, R::MAX_VERSION).await.unwrap()
    }

    async fn create(&self, name: &str, partitions: i32) {
        let configs =
            vec![CreatableTopicConfig { name: "retention.ms".to_owned(), value: Some("1".to_owned()) }];
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            configs,
            ..Default::default()
        };
        let response = self.send(CreateTopicsRequest { topics: vec![topic], ..Default::default() }).await;
        assert_eq!(response.topics[0].error_code, 0, "{response:?}");
    }

    /// Waits for an image that satisfies `holds`.
    async fn until(&self, holds: impl Fn(&Image) -> bool) -> Arc<Image> {
        let mut changes = self.link.image_changes();
        let wait = async {
            loop {
                let image = self.membership.image();
                if holds(&image) {
                    return image;
                }
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the image comes to hold")
    }

    async fn stop(self) -> Arc<Image> {
        self.membership.controlled_shutdown().await;
        let image = self.membership.image();
        self.membership.stop().await;
        self.controller.shutdown().await;
        image
    }
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test]
async fn a_broker_joins_and_is_unfenced() {
    let dir = temporary();
    let node = Node::start(controller_options(dir.path())).await;
    let image = node.membership.image();
    assert!(image.is_alive(BrokerId(1)));
    assert_eq!(image.broker(BrokerId(1)).unwrap().epoch.0, node.membership.broker_epoch());
    assert_eq!(image.alive_endpoints("PLAINTEXT").count(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_broker_that_withdraws_is_fenced_until_it_wants_to_lead_again() {
    let dir = temporary();
    let node = Node::start(controller_options(dir.path())).await;
    node.create("a", 1).await;
    assert!(node.membership.withdraw(true));
    assert!(!node.membership.withdraw(true), "no news");
    let image = node.until(|image| !image.is_alive(BrokerId(1))).await;
    assert_eq!(image.partition("a", PartitionIndex(0)).unwrap().leader, BrokerId::NONE);
    assert!(node.membership.withdraw(false));
    node.until(|image| {
        image.is_alive(BrokerId(1))
            && image.partition("a", PartitionIndex(0)).is_some_and(|p| p.leader == BrokerId(1))
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn the_first_image_after_a_crash_has_no_leaderships_of_the_previous_process() {
    let dir = temporary();
    let node = Node::start(controller_options(dir.path())).await;
    node.create("a", 1).await;
    node.until(|image| image.partition("a", PartitionIndex(0)).is_some_and(|p| p.leader == BrokerId(1)))
        .await;
    // A stop without a controlled shutdown.
    node.membership.stop().await;
    node.controller.shutdown().await;

    let controller =
        Arc::new(Controller::start(controller_options(dir.path()), Arc::new(AnyConfig)).await.unwrap());
    let link = ControllerLink::in_process(controller.clone());
    let (options, follower) = (options(), Arc::new(Follower::default()));
    let progress = progress();
    let mut observer = Observer::new(link.clone(), &options, follower.clone(), progress.clone());
    observer.catch_up().await;
    assert!(follower.seen.lock().is_empty(), "the log does not hold the registration yet");
    let incarnation_id = options.incarnation_id;
    let mut member = Member::new(link, options, progress);
    member.register(Instant::now() + Duration::from_secs(20)).await.unwrap();
    observer.catch_up().await;
    let first = follower.seen.lock()[0].clone();
    assert_eq!(first.broker(BrokerId(1)).unwrap().incarnation_id, incarnation_id);
    assert_eq!(first.partition("a", PartitionIndex(0)).unwrap().leader, BrokerId::NONE);
    controller.shutdown().await;
}

#[tokio::test]
async fn the_observer_follows_topics_partitions_and_configurations() {
    let dir = temporary();
    let node = Node::start(controller_options(dir.path())).await;
    node.create("a", 3).await;
    node.create("b", 1).await;
    node.until(|image| image.partition("b", PartitionIndex(0)).is_some_and(|p| p.leader == BrokerId(1)))
        .await;
    let more = CreatePartitionsTopic { name: "b".to_owned(), count: 4, assignments: None };
    node.send(CreatePartitionsRequest { topics: vec![more], ..Default::default() }).await;
    let set = AlterConfigsResource {
        resource_type: 2,
        resource_name: "b".to_owned(),
        configs: vec![AlterableConfig {
            name: "retention.ms".to_owned(),
            config_operation: 0,
            value: Some("2".to_owned()),
        }],
    };
    node.send(IncrementalAlterConfigsRequest { resources: vec![set], validate_only: false }).await;
    let gone = DeleteTopicState { name: Some("a".to_owned()), topic_id: Uuid::ZERO };
    node.send(DeleteTopicsRequest { topics: vec![gone], ..Default::default() }).await;
    let image = node.until(|image| image.topic("a").is_none()).await;
    assert_eq!(image.topic("b").unwrap().partitions.len(), 4);
    assert_eq!(image.configs().value(&ConfigResource::topic("b"), "retention.ms"), Some("2"));
    assert!(image.configs().get(&ConfigResource::topic("a")).is_none());
    let seen = node.follower.seen.lock().len();
    assert!(seen >= 5, "{seen} images");
    assert_eq!(node.link.kraft_version(), 1, "from the control records at the beginning of the log");
    let before = node.stop().await;

    // After a restart the cluster is the same, except for the broker's registration and the leader.
    let node = Node::start(controller_options(dir.path())).await;
    let image = node
        .until(|image| image.partition("b", PartitionIndex(3)).is_some_and(|p| p.leader == BrokerId(1)))
        .await;
    assert_eq!(image.topic("b").unwrap().id, before.topic("b").unwrap().id);
    assert_eq!(image.configs(), before.configs());
    assert!(image.broker(BrokerId(1)).unwrap().epoch > before.broker(BrokerId(1)).unwrap().epoch);
    node.stop().await;
}

#[tokio::test]
async fn the_observer_begins_with_a_snapshot_where_there_is_one() {
    let dir = temporary();
    let small = |dir: &Path| {
        let mut options = controller_options(dir);
        options.snapshot_bytes = 1_000;
        options
    };
    let node = Node::start(small(dir.path())).await;
    for index in 0..30 {
        node.create(&format!("t{index}"), 2).await;
    }
    node.until(|image| image.topics().len() == 30).await;
    node.stop().await;
    let node = Node::start(small(dir.path())).await;
    let first = node.follower.seen.lock()[0].clone();
    assert_eq!(first.topics().len(), 30, "the first image is a whole one");
    assert_eq!(node.link.kraft_version(), 1, "from the snapshot");
    node.create("more", 1).await;
    node.until(|image| image.topics().len() == 31).await;
    node.stop().await;
}

#[tokio::test]
async fn a_thousand_partitions_are_known_soon_after_a_restart() {
    let dir = temporary();
    let node = Node::start(controller_options(dir.path())).await;
    for index in 0..10 {
        node.create(&format!("t{index}"), 100).await;
    }
    node.until(|image| image.topics().partition_count() == 1000).await;
    node.stop().await;
    let node = Node::start(controller_options(dir.path())).await;
    let image = node.membership.image();
    assert_eq!(image.topics().partition_count(), 1000);
    assert!(image.topics().iter().all(|topic| topic.partitions.values().all(|p| p.leader == BrokerId(1))));
    node.stop().await;
}

#[tokio::test]
async fn a_broker_of_another_cluster_is_refused() {
    let dir = temporary();
    let controller = Controller::start(controller_options(dir.path()), Arc::new(AnyConfig)).await.unwrap();
    let link = ControllerLink::in_process(Arc::new(controller));
    let wrong = MembershipOptions { cluster_id: "another".to_owned(), ..options() };
    let refused = Membership::start(link.clone(), wrong, Arc::new(Follower::default())).await;
    // The answer to the registration or to the observer's Fetch may come first.
    assert!(refused.is_err_and(|error| error.is_of_other_cluster()));
    let mut old = options();
    old.features = BTreeMap::from([("metadata.version".to_owned(), VersionRange { min: 7, max: 29 })]);
    let refused = Membership::start(link, old, Arc::new(Follower::default())).await;
    // The error has the level if the image arrived before the answer.
    let unsupported = |error: JoinError| {
        matches!(
            error,
            JoinError::Features { .. } | JoinError::Refused { code: ErrorCode::UnsupportedVersion }
        )
    };
    assert!(refused.is_err_and(unsupported));
}

#[tokio::test]
async fn two_brokers_leave_one_after_the_other() {
    let dir = temporary();
    let node = Node::start(controller_options(dir.path())).await;
    let other = MembershipOptions { node_id: BrokerId(2), directories: vec![Uuid(0xabcd_2222)], ..options() };
    let follower = Arc::new(Follower::default());
    let second = Membership::start(node.link.clone(), other, follower).await.unwrap();
    second.unfence().await.unwrap();
    let topic = CreatableTopic {
        name: "t".to_owned(),
        num_partitions: 8,
        replication_factor: 2,
        ..Default::default()
    };
    node.send(CreateTopicsRequest { topics: vec![topic], ..Default::default() }).await;
    node.until(|image| image.topic("t").is_some()).await;
    second.controlled_shutdown().await;
    second.stop().await;
    let image = node.until(|image| !image.is_alive(BrokerId(2))).await;
    assert!(image.topic("t").unwrap().partitions.values().all(|p| p.leader == BrokerId(1)));
    node.stop().await;
}
