//! A broker of Apache Kafka beside one of ours, under our controller.

use super::mixed::Jvm;
use super::{jars, join, until};
use crate::records::{batch, produce};
use crate::running::configuration;
use thalweg_broker::start_controller;
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_metadata::PartitionIndex;
use thalweg_wire::request::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use thalweg_wire::request::*;

const CONTROLLER: &[(&str, &str)] = &[
    ("process.roles", "controller"),
    ("node.id", "100"),
    ("listeners", "CONTROLLER://127.0.0.1:0"),
    ("broker.session.timeout.ms", "6000"),
];

/// As often as Apache Kafka's broker here: sessions of brokers that are killed together then end within the
/// time in which they are fenced together, so that no leadership moves in between.
const HEARTBEATS: (&str, &str) = ("broker.heartbeat.interval.ms", "500");

/// Apache Kafka's broker does not say which epoch its log ends with, so the logs cannot be compared: the last
/// leader leads, as under Apache Kafka's controllers, and at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn last_leaders_lead_after_a_kill_of_brokers_of_both_makes() {
    let Some(classpath) = jars() else { return };
    let data = || tempfile::tempdir().expect("a temporary directory");
    let (controller_dir, dir) = (data(), data());
    let controller = start_controller(configuration(controller_dir.path(), CONTROLLER)).await;
    let controller = controller.expect("the controller starts");
    let servers = controller.addresses[0].1[0].to_string();
    let ours = join(dir.path(), "2", &servers, &[HEARTBEATS]).await;
    let cluster_id = ours.server().broker.cluster_id.clone();
    let mut jvm = Jvm::of(classpath, &servers, &cluster_id, 1, "");
    jvm.begin();
    until("both brokers", async || ours.server().broker.image().alive_brokers().count() == 2).await;
    let assignments = [(0, vec![1, 2]), (1, vec![2, 1])]
        .map(|(partition_index, broker_ids)| CreatableReplicaAssignment { partition_index, broker_ids });
    let topic = CreatableTopic {
        name: "topic".to_owned(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: assignments.to_vec(),
        configs: Vec::new(),
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
    let created = ours.ask(&request).await.topics.remove(0);
    assert_eq!(created.error_code, 0, "{:?}", created.error_message);
    let topic = crate::records::Topic { name: "topic".to_owned(), id: created.topic_id };
    for (partition, address) in [(0, jvm.address.clone()), (1, ours.address().to_owned())] {
        until("an acknowledgement", async || {
            let Ok(connection) = Connection::connect(&address, &ConnectionOptions::default()).await else {
                return false;
            };
            let request = produce(12, &topic, partition, -1, batch(&[b"value"]));
            let answer = connection.send_at(&request, 12).await;
            answer.is_ok_and(|answer| answer.responses[0].partition_responses[0].error_code == 0)
        })
        .await;
    }
    jvm.kill();
    ours.kill().await;
    jvm.begin();
    let ours = join(dir.path(), "2", &servers, &[HEARTBEATS]).await;
    until("the last leaders", async || {
        let image = ours.server().broker.image();
        let leader = |index| image.partition("topic", PartitionIndex(index)).map(|found| found.leader.0);
        (leader(0), leader(1)) == (Some(1), Some(2))
    })
    .await;
    drop(jvm);
    ours.stop().await;
    controller.stop().await;
}
