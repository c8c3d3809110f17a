//! Transactions in a cluster: the coordinator is on another broker than the partitions, and either may end.

use super::*;
use crate::transactions::{
    ONE_SEGMENT, Protocol, Servers, Transactional, committed, committed_values, describe, patiently, settled,
};
use thalweg_dial::Connection;

/// As Kafka creates its internal topics, with as many partitions as there are brokers.
const INTERNAL: [(&str, &str); 5] = [
    ("transaction.state.log.num.partitions", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("transaction.state.log.min.isr", "2"),
    ("broker.session.timeout.ms", "2000"),
    ("replica.lag.time.max.ms", "3000"),
];

impl Cluster {
    /// The broker of this id, if it runs.
    fn running(&self, id: i32) -> Option<&RunningBroker> {
        let at = usize::try_from(id).ok()?.checked_sub(1)?;
        self.brokers.get(at)?.as_ref()
    }

    async fn coordinator_id(&self, id: &str) -> i32 {
        let request = FindCoordinatorRequest {
            key_type: 1,
            coordinator_keys: vec![id.to_owned()],
            ..Default::default()
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.somebody().ask(&request).await.coordinators.remove(0);
            if self.running(found.node_id).is_some() {
                return found.node_id;
            }
            assert!(Instant::now() < deadline, "no coordinator: {found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Servers for Cluster {
    async fn coordinator(&self, id: &str) -> &Connection {
        let coordinator = self.coordinator_id(id).await;
        self.running(coordinator).expect("it was just found").connection()
    }

    fn leader(&self, topic: &Topic) -> &Connection {
        let leader = self.registration(topic, 0).leader.0;
        self.running(leader).unwrap_or_else(|| self.somebody()).connection()
    }
}

/// Three topics, each led by another broker.
async fn topics(cluster: &Cluster) -> Vec<Topic> {
    let mut topics = Vec::new();
    for (name, replicas) in [("one", [1, 2, 3]), ("two", [2, 3, 1]), ("three", [3, 1, 2])] {
        topics.push(cluster.create(name, &[&replicas], &[("min.insync.replicas", "2"), ONE_SEGMENT]).await);
    }
    topics
}

async fn send_all(cluster: &Cluster, one: &mut Transactional, topics: &[Topic], value: &str) {
    for topic in topics {
        assert_eq!(one.send(cluster, topic, &[value.as_bytes()]).await, ErrorCode::None, "{value}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_transaction_spans_brokers_wherever_its_coordinator_is() {
    let cluster = Cluster::start(&INTERNAL).await;
    let topics = topics(&cluster).await;
    let mut coordinators = std::collections::BTreeSet::new();
    let mut expected = Vec::new();
    for (round, protocol) in (0..12).zip([Protocol::Newer, Protocol::Older].into_iter().cycle()) {
        let id = format!("id-{round}");
        let mut one = Transactional::begin(&cluster, &id, protocol).await;
        coordinators.insert(cluster.coordinator_id(&id).await);
        let (kept, gone) = (format!("kept-{round}"), format!("gone-{round}"));
        send_all(&cluster, &mut one, &topics, &gone).await;
        assert_eq!(one.end(&cluster, false).await, ErrorCode::None);
        send_all(&cluster, &mut one, &topics, &kept).await;
        assert_eq!(one.end(&cluster, true).await, ErrorCode::None);
        expected.push(kept);
    }
    assert!(coordinators.len() > 1, "{coordinators:?}: coordinators are spread");
    for topic in &topics {
        assert_eq!(settled(&cluster, topic).await, expected);
        cluster.assert_same(topic, 0, &[1, 2, 3]).await;
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_decided_happens_though_the_coordinator_ends() {
    let mut cluster = Cluster::start(&INTERNAL).await;
    let topics = topics(&cluster).await;
    let mut expected = Vec::new();
    for (round, commits) in [true, false, true].into_iter().enumerate() {
        let id = format!("id-{round}");
        let mut one = Transactional::begin(&cluster, &id, Protocol::Newer).await;
        let value = format!("value-{round}");
        send_all(&cluster, &mut one, &topics, &value).await;
        let coordinator = cluster.coordinator_id(&id).await;
        assert_eq!(one.decide(&cluster, commits).await, ErrorCode::None);
        let dead = usize::try_from(coordinator).expect("a small id");
        cluster.kill(dead).await;
        let finished = async || {
            patiently(async || {
                let told = describe(&cluster, &id).await;
                (ErrorCode::from_i16(told.error_code).expect("a code of Kafka's"), told.transaction_state)
            })
            .await
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (error, state) = finished().await;
            if error == ErrorCode::None && state.starts_with("Complete") {
                break;
            }
            assert!(Instant::now() < deadline, "{id}: {error} {state}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if commits {
            expected.push(value);
        }
        for topic in &topics {
            assert_eq!(settled(&cluster, topic).await, expected, "round {round}, {}", topic.name);
        }
        cluster.begin(dead).await;
        for topic in &topics {
            cluster.wait_for_isr(topic, 0, &[1, 2, 3]).await;
        }
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_open_transaction_stays_open_under_another_leader() {
    let mut cluster = Cluster::start(&INTERNAL).await;
    let topic = cluster.create("moves", &[&[1, 2, 3]], &[("min.insync.replicas", "2"), ONE_SEGMENT]).await;
    let mut gone = Transactional::begin(&cluster, "gone", Protocol::Newer).await;
    assert_eq!(gone.send(&cluster, &topic, &[b"gone"]).await, ErrorCode::None);
    assert_eq!(gone.end(&cluster, false).await, ErrorCode::None);
    let mut one = Transactional::begin(&cluster, "kept", Protocol::Newer).await;
    assert_eq!(one.send(&cluster, &topic, &[b"a"]).await, ErrorCode::None);
    cluster.kill(1).await;
    wait_for("another leader", || {
        let leader = cluster.registration(&topic, 0).leader.0;
        leader == 2 || leader == 3
    })
    .await;
    assert_eq!(one.send(&cluster, &topic, &[b"b"]).await, ErrorCode::None);
    let data = committed(cluster.leader(&topic), &topic).await;
    assert_eq!(
        committed_values(&data),
        Vec::<String>::new(),
        "the transaction is open, and what was aborted is known"
    );
    assert_eq!(one.end(&cluster, true).await, ErrorCode::None);
    assert_eq!(settled(&cluster, &topic).await, ["a", "b"]);
    cluster.begin(1).await;
    cluster.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
    cluster.assert_same(&topic, 0, &[1, 2, 3]).await;
    cluster.stop_all().await;
}
