//! The controllers' requirements for a broker, and brokers that they have forgotten.

use super::controllers::{Controllers, Quorum};
use super::{jars, until};
use crate::running::configuration;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_broker::{StartError, start};
use thalweg_dial::{Connector, Properties};
use thalweg_membership::{
    ControllerLink, ImageListener, JoinError, Membership, MembershipOptions, OutgoingSecurity, QuorumOptions,
};
use thalweg_metadata::{BrokerId, Delta, Endpoint, Image, VersionRange};
use thalweg_wire::request::UnregisterBrokerRequest;
use thalweg_wire::{Message, Uuid};

struct IdleListener;

impl ImageListener for IdleListener {
    fn publish(&self, _: &Delta, _: Arc<Image>) {}
}

fn data() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn link(controllers: &Controllers) -> ControllerLink {
    ControllerLink::to_quorum(QuorumOptions {
        listener: "CONTROLLER".to_owned(),
        servers: controllers.servers().split(',').map(str::to_owned).collect(),
        voters: BTreeMap::new(),
        quorum_timeout: Duration::from_secs(2),
        session_timeout: Duration::from_secs(9),
        request_timeout: Duration::from_secs(30),
        client_id: "test".to_owned(),
        connector: Connector::tcp(),
        security: OutgoingSecurity::new(Properties::new()).expect("plain text"),
    })
}

fn options(controllers: &Controllers, node_id: i32) -> MembershipOptions {
    MembershipOptions {
        node_id: BrokerId(node_id),
        cluster_id: controllers.cluster_id.clone(),
        endpoints: vec![Endpoint {
            listener: "PLAINTEXT".to_owned(),
            host: "localhost".to_owned(),
            port: 9092,
            security_protocol: 0,
        }],
        features: features(30),
        directories: vec![Uuid(
            0xabcd_0000_0000_0000_0000_0000_0000_0000 + u128::from(node_id.unsigned_abs()),
        )],
        heartbeat_interval: Duration::from_millis(500),
        registration_timeout: Duration::from_secs(60),
        ..MembershipOptions::default()
    }
}

fn features(metadata_version_max: i16) -> BTreeMap<String, VersionRange> {
    BTreeMap::from([
        ("metadata.version".to_owned(), VersionRange { min: 7, max: metadata_version_max }),
        ("kraft.version".to_owned(), VersionRange { min: 0, max: 1 }),
        ("eligible.leader.replicas.version".to_owned(), VersionRange { min: 0, max: 1 }),
        ("transaction.version".to_owned(), VersionRange { min: 0, max: 2 }),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apache_controllers_take_in_whom_they_should_and_others_learn_why_not() {
    let Some(jars) = jars() else { return };
    let controllers =
        Controllers::start(jars, Quorum::OfKafkasDefaults, "broker.session.timeout.ms=6000").await;
    a_broker_of_another_cluster_gets_an_error_with_both_ids(&controllers).await;
    a_level_that_is_not_supported_is_named(&controllers).await;
    a_second_broker_of_the_same_id_waits_for_the_first(&controllers).await;
    a_broker_that_was_forgotten_comes_back(&controllers).await;
    a_broker_whose_place_is_taken_ends(&controllers).await;
}

async fn a_broker_of_another_cluster_gets_an_error_with_both_ids(controllers: &Controllers) {
    let dir = data();
    let meta = "cluster.id=another\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZA\nnode.id=7\nversion=1\n";
    std::fs::write(dir.path().join("meta.properties"), meta).expect("it can be written");
    let servers = controllers.servers();
    let properties = [
        ("process.roles", "broker"),
        ("node.id", "7"),
        ("controller.quorum.bootstrap.servers", servers.as_str()),
    ];
    let refused = start(configuration(dir.path(), &properties)).await.err().expect("another cluster");
    assert!(matches!(refused, StartError::OtherCluster { .. }), "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("another") && text.contains(&controllers.cluster_id) && text.contains(&servers),
        "{text}"
    );
}

async fn a_level_that_is_not_supported_is_named(controllers: &Controllers) {
    let options = MembershipOptions { features: features(29), ..options(controllers, 8) };
    let refused = Membership::start(link(controllers), options, Arc::new(IdleListener)).await.err();
    let refused = refused.expect("metadata.version is 30");
    assert!(matches!(refused, JoinError::Features { .. }), "{refused}");
    assert!(refused.to_string().contains("metadata.version=30 (supported: 7 to 29)"), "{refused}");
}

async fn a_second_broker_of_the_same_id_waits_for_the_first(controllers: &Controllers) {
    let first = Membership::start(link(controllers), options(controllers, 9), Arc::new(IdleListener)).await;
    let first = first.expect("it is taken in");
    first.unfence().await.expect("it is ready");
    let hasty = MembershipOptions { registration_timeout: Duration::from_secs(1), ..options(controllers, 9) };
    let refused =
        Membership::start(link(controllers), hasty, Arc::new(IdleListener)).await.err().expect("one lives");
    assert!(refused.to_string().contains("another broker with this node.id is alive"), "{refused}");
    // It ends without leaving; the second is taken in when the session has ended.
    first.stop().await;
    let second = Membership::start(link(controllers), options(controllers, 9), Arc::new(IdleListener)).await;
    let second = second.expect("the session of the first has ended");
    second.unfence().await.expect("it is ready");
    second.controlled_shutdown().await;
    second.stop().await;
}

async fn a_broker_that_was_forgotten_comes_back(controllers: &Controllers) {
    // A heartbeat interval that is longer than the session: it is fenced in between, and unfenced by the next
    // beat.
    let slow = MembershipOptions { heartbeat_interval: Duration::from_secs(9), ..options(controllers, 10) };
    let fenced = Arc::new(FenceHistory { node_id: BrokerId(10), seen: Mutex::default() });
    let link = link(controllers);
    let membership = Membership::start(link.clone(), slow, fenced.clone()).await.expect("it is taken in");
    membership.unfence().await.expect("it is ready");
    until("it is fenced and comes back", async || fenced.seen.lock().ends_with(&[false, true, false])).await;
    let epoch = membership.broker_epoch();
    let unregister = UnregisterBrokerRequest { broker_id: 10 };
    link.send(unregister, UnregisterBrokerRequest::MAX_VERSION).await.expect("an answer");
    let mut epochs = membership.epochs();
    until("it registers again", async || {
        *epochs.borrow_and_update() > epoch && membership.image().is_alive(BrokerId(10))
    })
    .await;
    membership.controlled_shutdown().await;
    membership.stop().await;
}

/// Each change of whether a broker is fenced.
struct FenceHistory {
    node_id: BrokerId,
    seen: Mutex<Vec<bool>>,
}

impl ImageListener for FenceHistory {
    fn publish(&self, _: &Delta, image: Arc<Image>) {
        let mut seen = self.seen.lock();
        if let Some(broker) = image.broker(self.node_id)
            && seen.last() != Some(&broker.fenced)
        {
            seen.push(broker.fenced);
        }
    }
}

async fn a_broker_whose_place_is_taken_ends(controllers: &Controllers) {
    let slow = MembershipOptions { heartbeat_interval: Duration::from_secs(60), ..options(controllers, 11) };
    let first =
        Membership::start(link(controllers), slow, Arc::new(IdleListener)).await.expect("it is taken in");
    first.unfence().await.expect("it is ready");
    let second = Membership::start(link(controllers), options(controllers, 11), Arc::new(IdleListener)).await;
    let second = second.expect("the session of the first has ended");
    let why = tokio::time::timeout(super::PATIENCE, first.failed()).await.expect("it must not go on");
    assert!(why.to_string().contains("another process has registered as broker 11"), "{why}");
    first.stop().await;
    second.controlled_shutdown().await;
    second.stop().await;
}
