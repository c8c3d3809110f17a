//! Several nodes in one process: one with the embedded controller and its listener, others that join it.

use crate::records::{Topic, ask_for, batch, fetch, fetch_partition, produce, values};
use crate::running::{RunningBroker, configuration};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use thalweg_broker::{Server, StartError, start, start_controller};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::create_topics_request::CreatableTopic;
use thalweg_wire::request::incremental_alter_configs_request::AlterConfigsResource;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::*;

/// Longer than anything here takes, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

const COMBINED: [(&str, &str); 3] = [
    ("process.roles", "broker,controller"),
    ("node.id", "1"),
    ("listeners", "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"),
];

fn data() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Where a server's controller listens.
fn controller_of(server: &Server) -> String {
    let listener = server.addresses.iter().find(|(name, _)| name == "CONTROLLER");
    listener.expect("a controller listener").1[0].to_string()
}

/// A broker that joins the controller at `controller`.
async fn join(dir: &Path, node_id: &str, controller: &str) -> RunningBroker {
    let properties = [
        ("process.roles", "broker"),
        ("node.id", node_id),
        ("controller.quorum.bootstrap.servers", controller),
    ];
    RunningBroker::start(dir, &properties).await
}

/// The ids of the brokers in a broker's metadata.
async fn brokers(broker: &RunningBroker) -> BTreeSet<i32> {
    let nobody = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
    broker.ask(&nobody).await.brokers.iter().map(|broker| broker.node_id).collect()
}

async fn wait_for_brokers(broker: &RunningBroker, expected: &[i32]) {
    let expected: BTreeSet<i32> = expected.iter().copied().collect();
    let shown = async {
        while brokers(broker).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, shown).await.unwrap_or_else(|_| panic!("{expected:?} in Metadata"));
}

/// The leader of each partition of a topic, once this broker's image has all of them.
async fn leaders(broker: &RunningBroker, topic: &Topic, partitions: usize) -> BTreeMap<i32, i32> {
    let asked = MetadataRequestTopic { name: Some(topic.name.clone()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![asked]), ..Default::default() };
    let known = async {
        loop {
            let answer = broker.ask(&request).await.topics.remove(0);
            let leaders = answer.partitions.iter().map(|p| (p.partition_index, p.leader_id));
            let leaders: BTreeMap<i32, i32> = leaders.filter(|(_, leader)| *leader >= 0).collect();
            if leaders.len() == partitions {
                return leaders;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.expect("every partition has a leader")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_join_the_embedded_controller_of_another_and_each_serves_its_partitions() {
    let dirs = [data(), data(), data()];
    let first = RunningBroker::start(dirs[0].path(), &COMBINED).await;
    let controller = controller_of(first.server());
    let second = join(dirs[1].path(), "2", &controller).await;
    let third = join(dirs[2].path(), "3", &controller).await;
    let nodes = [first, second, third];
    for node in &nodes {
        wait_for_brokers(node, &[1, 2, 3]).await;
        assert_eq!(node.server().broker.cluster_id, nodes[0].server().broker.cluster_id);
    }
    // Created through a broker that must forward it.
    let topic = Topic::create(&nodes[2], "spread", 6, &[]).await;
    let mut led = BTreeSet::new();
    for (partition, leader) in leaders(&nodes[1], &topic, 6).await {
        let node = &nodes[usize::try_from(leader - 1).expect("ids from 1 on")];
        leaders(node, &topic, 6).await;
        let put = node.ask(&produce(13, &topic, partition, -1, batch(&[b"here"]))).await;
        assert_eq!(put.responses[0].partition_responses[0].error_code, 0, "partition {partition}");
        let got = ask_for(node, fetch(18, &topic, vec![fetch_partition(partition, 0)])).await;
        assert_eq!(values(&got), [(0, b"here".to_vec())]);
        let elsewhere = &nodes[usize::try_from(leader % 3).expect("below 3")];
        let refused = elsewhere.ask(&produce(13, &topic, partition, -1, batch(&[b"there"]))).await;
        let code = refused.responses[0].partition_responses[0].error_code;
        assert_eq!(code, ErrorCode::NotLeaderOrFollower.code());
        led.insert(leader);
    }
    assert_eq!(led, BTreeSet::from([1, 2, 3]), "the partitions are spread");

    let [first, second, third] = nodes;
    third.stop().await;
    wait_for_brokers(&first, &[1, 2]).await;
    let third = join(dirs[2].path(), "3", &controller).await;
    wait_for_brokers(&first, &[1, 2, 3]).await;
    for node in [third, second, first] {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_without_a_broker_serves_brokers_elsewhere() {
    let dirs = [data(), data()];
    let alone =
        [("process.roles", "controller"), ("node.id", "100"), ("listeners", "CONTROLLER://127.0.0.1:0")];
    let controller = start_controller(configuration(dirs[0].path(), &alone)).await.expect("it starts");
    let address = controller.addresses[0].1[0].to_string();
    let broker = join(dirs[1].path(), "1", &address).await;
    wait_for_brokers(&broker, &[1]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    leaders(&broker, &topic, 1).await;
    let put = broker.ask(&produce(13, &topic, 0, -1, batch(&[b"x"]))).await;
    assert_eq!(put.responses[0].partition_responses[0].error_code, 0);
    broker.stop().await;
    controller.stop().await;

    // Both return with their data.
    let port = ("listeners", &*format!("CONTROLLER://{address}"));
    let controller = start_controller(configuration(dirs[0].path(), &[alone[0], alone[1], port])).await;
    let controller = controller.expect("it starts again");
    let broker = join(dirs[1].path(), "1", &address).await;
    let got = ask_for(&broker, fetch(18, &topic, vec![fetch_partition(0, 0)])).await;
    assert_eq!(values(&got), [(0, b"x".to_vec())]);
    broker.stop().await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_forwarded_is_answered_though_there_is_no_controller() {
    let dirs = [data(), data()];
    let alone = [("process.roles", "controller"), ("node.id", "100")];
    let start_at = async |listeners: &str| {
        let properties = [alone[0], alone[1], ("listeners", listeners)];
        start_controller(configuration(dirs[0].path(), &properties)).await.expect("it starts")
    };
    let controller = start_at("CONTROLLER://127.0.0.1:0").await;
    let address = controller.addresses[0].1[0].to_string();
    let properties = [
        ("process.roles", "broker"),
        ("node.id", "1"),
        ("controller.quorum.bootstrap.servers", address.as_str()),
        ("request.timeout.ms", "1000"),
    ];
    let broker = RunningBroker::start(dirs[1].path(), &properties).await;
    let topic = Topic::create(&broker, "there", 1, &[]).await;
    controller.stop().await;

    let timed_out = ErrorCode::RequestTimedOut.code();
    let another = CreatableTopic {
        name: "another".to_owned(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let create = CreateTopicsRequest { topics: vec![another], ..Default::default() };
    let answer = broker.ask(&create).await;
    let told: Vec<_> = answer.topics.iter().map(|topic| (topic.name.as_str(), topic.error_code)).collect();
    assert_eq!(told, [("another", timed_out)]);
    let quorum = broker.ask(&DescribeQuorumRequest::default()).await;
    assert_eq!(quorum.error_code, timed_out, "{quorum:?}");
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: topic.name.clone(), ..Default::default() };
    let alter = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let altered = broker.ask(&alter).await;
    assert_eq!(altered.responses[0].error_code, timed_out, "{altered:?}");

    // By the same connection, which was not closed.
    let controller = start_at(&format!("CONTROLLER://{address}")).await;
    let created = async { while broker.ask(&create).await.topics[0].error_code == timed_out {} };
    tokio::time::timeout(PATIENCE, created).await.expect("the controller is back");
    leaders(&broker, &Topic { name: "another".to_owned(), ..topic }, 1).await;
    broker.stop().await;
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_keep_the_cluster_that_they_joined() {
    let dirs = [data(), data(), data()];
    let first = RunningBroker::start(dirs[0].path(), &COMBINED).await;
    let joined = join(dirs[2].path(), "2", &controller_of(first.server())).await;
    let meta = std::fs::read_to_string(dirs[2].path().join("meta.properties")).expect("it is written");
    let cluster_id = first.server().broker.cluster_id.clone();
    assert!(meta.contains(&format!("cluster.id={cluster_id}\n")), "{meta}");
    joined.stop().await;
    first.stop().await;

    let other = RunningBroker::start(dirs[1].path(), &COMBINED).await;
    let other_id = other.server().broker.cluster_id.clone();
    let controller = controller_of(other.server());
    let properties = [
        ("process.roles", "broker"),
        ("node.id", "2"),
        ("controller.quorum.bootstrap.servers", controller.as_str()),
    ];
    let refused = start(configuration(dirs[2].path(), &properties)).await;
    let refused = refused.err().expect("another cluster's directory");
    assert!(matches!(refused, StartError::OtherCluster { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains(&cluster_id) && text.contains(&other_id) && text.contains(&controller), "{text}");
    assert!(is_left_in_order(dirs[2].path()), "as it was found");
    other.stop().await;
}

/// Whether the next start need not read the logs again.
fn is_left_in_order(dir: &Path) -> bool {
    dir.join(".kafka_cleanshutdown").exists()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_without_controllers_gives_up_and_names_their_addresses() {
    let dirs = [data(), data()];
    let first = RunningBroker::start(dirs[0].path(), &COMBINED).await;
    let controller = controller_of(first.server());
    let joined = join(dirs[1].path(), "2", &controller).await;
    joined.stop().await;
    first.stop().await;

    let properties = [
        ("process.roles", "broker"),
        ("node.id", "2"),
        ("controller.quorum.bootstrap.servers", controller.as_str()),
        ("initial.broker.registration.timeout.ms", "300"),
    ];
    let alone = start(configuration(dirs[1].path(), &properties)).await.err().expect("nobody is there");
    assert!(matches!(alone, StartError::Membership(_)), "{alone}");
    assert!(is_left_in_order(dirs[1].path()), "as it was found");
    let empty = data();
    let alone = start(configuration(empty.path(), &properties)).await.err().expect("nobody is there");
    assert!(matches!(alone, StartError::NoClusterId { .. }), "{alone}");
    assert!(
        alone.to_string().contains(&format!("the controllers at {controller} did not return")),
        "{alone}"
    );
    assert!(!empty.path().join("meta.properties").exists(), "no id was made up");
}
