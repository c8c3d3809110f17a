//! Three controllers of Apache Kafka, of which some die, and once most.

use super::controllers::{Controllers, Quorum};
use super::{jars, join, until};
use crate::records::{Topic, ask_for, batch, fetch, fetch_partition, produce, values};
use crate::running::RunningBroker;
use thalweg_metadata::BrokerId;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::*;

/// Frequent snapshots, so that late observers start with one.
const SMALL_SNAPSHOTS: &str = "metadata.log.max.record.bytes.between.snapshots=2000";

async fn create(brokers: &[RunningBroker], name: &str) -> Topic {
    let topic = Topic::create_through_failover(&brokers[0], name, 4).await;
    for broker in brokers {
        until("every broker knows the topic with its leaders", async || {
            let image = broker.server().broker.image();
            image.topic(name).is_some_and(|topic| topic.partitions.values().all(|p| p.has_leader()))
        })
        .await;
    }
    topic
}

/// Produces to each partition of a topic where it is led, and reads it back.
async fn use_all(brokers: &[RunningBroker], topic: &Topic, value: &[u8]) {
    let image = brokers[0].server().broker.image();
    let partitions = image.topic(&topic.name).expect("it is known").partitions.clone();
    for (index, partition) in partitions {
        let leader = brokers.iter().find(|broker| broker.server().broker.node_id == partition.leader);
        let leader = leader.expect("one of the brokers leads");
        let put = leader.ask(&produce(13, topic, index.0, -1, batch(&[value]))).await;
        let put = &put.responses[0].partition_responses[0];
        assert_eq!(put.error_code, 0, "{:?}", ErrorCode::from_i16(put.error_code));
        let got = ask_for(leader, fetch(18, topic, vec![fetch_partition(index.0, put.base_offset)])).await;
        assert_eq!(values(&got), [(put.base_offset, value.to_vec())]);
    }
}

/// A producer id from the controllers' blocks.
async fn producer_id(broker: &RunningBroker) -> i64 {
    let request = InitProducerIdRequest {
        transactional_id: None,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    let answer = broker.ask(&request).await;
    assert_eq!(answer.error_code, 0, "{answer:?}");
    answer.producer_id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "many starts of Apache Kafka: in the nightly form of scripts/test"]
async fn brokers_follow_a_static_quorum_of_3_9_through_the_death_of_its_leaders() {
    let Some(jars) = jars() else { return };
    let mut controllers = Controllers::start(jars, Quorum::StaticOf3_9, SMALL_SNAPSHOTS).await;
    let servers = controllers.servers();
    let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let listeners = [
        ("listeners", "CLIENTS://127.0.0.1:0,INSIDE://127.0.0.1:0"),
        ("listener.security.protocol.map", "CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"),
        ("inter.broker.listener.name", "INSIDE"),
    ];
    let mut brokers = Vec::new();
    for (dir, id) in dirs.iter().zip(["1", "2"]) {
        brokers.push(join(dir.path(), id, &servers, &listeners).await);
    }
    let before = create(&brokers, "before").await;
    use_all(&brokers, &before, b"one").await;
    let [first, second] = [producer_id(&brokers[0]).await, producer_id(&brokers[1]).await];
    assert_ne!(first / 1000, second / 1000, "each broker has a block of its own");

    for round in 0..2 {
        let active = controllers.active().await;
        controllers.kill(active);
        let topic = create(&brokers, &format!("after-{round}")).await;
        use_all(&brokers, &topic, b"two").await;
        use_all(&brokers, &before, b"more").await;
        controllers.revive(active);
    }

    // Without a majority nothing can be decided, and partitions with a leader are served.
    let active = controllers.active().await;
    let another = (active + 1) % 3;
    controllers.kill(active);
    controllers.kill(another);
    use_all(&brokers, &before, b"meanwhile").await;
    controllers.revive(active);
    controllers.revive(another);
    let topic = create(&brokers, "decided-again").await;
    use_all(&brokers, &topic, b"three").await;

    // A broker that starts with a snapshot sees the same as the others.
    until("the active controller has a snapshot", async || {
        controllers.has_snapshot(controllers.active().await)
    })
    .await;
    // It finds the quorum by its voters.
    let voters = controllers.voters();
    let mut by_voters =
        vec![("process.roles", "broker"), ("node.id", "3"), ("controller.quorum.voters", voters.as_str())];
    by_voters.extend(listeners);
    brokers.push(RunningBroker::start(dirs[2].path(), &by_voters).await);
    until("all three are alive everywhere", async || {
        brokers.iter().all(|broker| broker.server().broker.image().alive_brokers().count() == 3)
    })
    .await;
    let topics = |broker: &RunningBroker| {
        let image = broker.server().broker.image();
        let sorted = image.topics().sorted();
        sorted
            .iter()
            .map(|topic| (topic.name.to_string(), topic.id, topic.partitions.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(topics(&brokers[2]), topics(&brokers[0]));
    each_listener_is_reported_by_its_name(&brokers);

    internal_topics_have_kafkas_replicas(&brokers).await;

    // Leadership cannot move with one replica, but the broker may stop.
    let third = brokers.pop().expect("three");
    third.stop().await;
    until("the broker that left is seen no more", async || {
        !brokers[0].server().broker.image().is_alive(BrokerId(3))
    })
    .await;
    for broker in brokers {
        broker.stop().await;
    }
}

async fn internal_topics_have_kafkas_replicas(brokers: &[RunningBroker]) {
    let request = FindCoordinatorRequest { coordinator_keys: vec!["group".to_owned()], ..Default::default() };
    until("the topic of the groups is there", async || {
        brokers[1].ask(&request).await;
        brokers[1].server().broker.image().topic("__consumer_offsets").is_some()
    })
    .await;
    let image = brokers[1].server().broker.image();
    let offsets = image.topic("__consumer_offsets").expect("it is there").clone();
    assert!(offsets.partitions.values().all(|partition| partition.replicas.len() == 3), "{offsets:?}");
}

fn each_listener_is_reported_by_its_name(brokers: &[RunningBroker]) {
    let image = brokers[0].server().broker.image();
    for broker in brokers {
        let server = broker.server();
        for (name, addresses) in &server.addresses {
            let told = image.broker(server.broker.node_id).and_then(|broker| broker.endpoint(name).cloned());
            let told = told.expect("it is registered");
            assert_eq!(format!("{}:{}", told.host, told.port), addresses[0].to_string(), "{name}");
        }
    }
}
