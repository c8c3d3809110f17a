//! Transactions in a cluster of both makes: the coordinator is of one make and leads nothing that the
//! transaction writes to, or is of the other, or moves between them in the midst of it. Questions of leaders
//! (AddPartitionsToTxn) and markers (WriteTxnMarkers) go both ways.

use super::*;
use crate::apache::PATIENCE;
use crate::transactions::{
    Protocol, Servers, Transactional, committed, committed_offset, committed_values, settled,
};
use thalweg_metadata::topic_name::{OFFSETS, TRANSACTIONS};
use thalweg_shard::partition_for;
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::update_features_request::FeatureUpdateKey;

/// The leaders of the first and the second partition of every topic here, including internal ones: the JVM
/// and one of ours.
const LEADERS: [i32; 2] = [1, 2];

/// A cluster with both internal topics, and two topics whose first partitions are led by the JVM and by ours.
async fn start(jars: String) -> (MixedCluster, [Topic; 2]) {
    let mixed = MixedCluster::start(jars).await;
    for internal in [TRANSACTIONS, OFFSETS] {
        mixed.create(internal, [[1, 2, 3], [2, 3, 1]]).await;
    }
    // Its offsets are committed; nothing is written to it.
    mixed.create("topic", [[1, 2, 3], [2, 3, 1]]).await;
    let of_jvm = mixed.create("of-jvm", [[1, 2, 3], [2, 3, 1]]).await;
    let of_ours = mixed.create("of-ours", [[2, 3, 1], [1, 2, 3]]).await;
    (mixed, [of_jvm, of_ours])
}

/// A name that begins so, and belongs to this partition of an internal topic.
pub(super) fn name_in(partition: i32, begins: &str) -> String {
    let names = (0..).map(|number| format!("{begins}-{number}"));
    names.into_iter().find(|name| partition_for(name, 2).0 == partition).expect("there is no end of names")
}

impl MixedCluster {
    pub(super) fn connection(&self, id: i32) -> &Connection {
        match id {
            2 | 3 => {
                let ours = self.ours[usize::try_from(id - 2).expect("a small id")].as_ref();
                ours.expect("it runs").connection()
            }
            _ => &self.to_jvm,
        }
    }

    pub(super) fn leader_of(&self, topic: &str, partition: i32) -> i32 {
        let image = self.somebody().server().broker.image();
        image.partition(topic, PartitionIndex(partition)).expect("it exists").leader.0
    }

    async fn set_transaction_version(&self, level: i16) {
        let image = || self.somebody().server().broker.image();
        let now = image().features().level("transaction.version");
        if now == level {
            return;
        }
        let update = FeatureUpdateKey {
            feature: "transaction.version".to_owned(),
            max_version_level: level,
            upgrade_type: if level > now { 1 } else { 2 },
            ..Default::default()
        };
        let request =
            UpdateFeaturesRequest { feature_updates: vec![update], timeout_ms: 30_000, ..Default::default() };
        let answer = self.somebody().ask(&request).await;
        assert_eq!(answer.error_code, 0, "{answer:?}");
        until("the level in the image", async || image().features().level("transaction.version") == level)
            .await;
    }

    /// Has another broker lead a partition that all of them have.
    pub(super) async fn move_leader(&self, topic: &str, partition: i32, to: i32) {
        let mut replicas = vec![1, 2, 3];
        replicas.sort_by_key(|id| (*id != to, *id));
        let partitions = vec![ReassignablePartition { partition_index: partition, replicas: Some(replicas) }];
        let topics = vec![ReassignableTopic { name: topic.to_owned(), partitions }];
        let request = AlterPartitionReassignmentsRequest { topics, timeout_ms: 30_000, ..Default::default() };
        let answer = self.somebody().ask(&request).await;
        assert_eq!((answer.error_code, answer.responses[0].partitions[0].error_code), (0, 0), "{answer:?}");
        let partitions = vec![TopicPartitions { topic: topic.to_owned(), partitions: vec![partition] }];
        let request = ElectLeadersRequest {
            topic_partitions: Some(partitions),
            timeout_ms: 30_000,
            ..Default::default()
        };
        let mut told = None;
        let asked = async {
            while self.leader_of(topic, partition) != to {
                // One that is not in sync yet is not eligible, and is asked for again.
                told = Some(self.somebody().ask(&request).await);
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, asked).await.is_err() {
            let image = self.somebody().server().broker.image();
            let is = image.partition(topic, PartitionIndex(partition));
            panic!("{topic}-{partition} should be led by {to}, and is {is:?}; the last election: {told:?}");
        }
    }

    async fn send_all(&self, one: &mut Transactional, topics: &[Topic], value: &str) {
        for topic in topics {
            let sent = one.send(self, topic, &[value.as_bytes()]).await;
            assert_eq!(sent, ErrorCode::None, "{} {value} to {}", one.id, topic.name);
        }
    }
}

impl Servers for MixedCluster {
    async fn coordinator(&self, id: &str) -> &Connection {
        self.connection(self.leader_of(TRANSACTIONS, partition_for(id, 2).0))
    }

    fn leader(&self, topic: &Topic) -> &Connection {
        self.connection(self.leader_of(&topic.name, 0))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn transactions_span_both_makes_at_every_level_wherever_their_coordinator_is() {
    let Some(jars) = jars() else { return };
    let (mixed, topics) = start(jars).await;
    let mut expected = Vec::new();
    for (level, protocol) in
        [(2, Protocol::Newer), (2, Protocol::Older), (1, Protocol::Older), (0, Protocol::Older)]
    {
        mixed.set_transaction_version(level).await;
        for partition in [0, 1] {
            let round = format!("{level}-{protocol:?}-{partition}");
            let groups = [0, 1].map(|of| (of, name_in(of, &format!("group-{round}"))));
            let id = name_in(partition, &format!("id-{round}"));
            let mut one = Transactional::begin(&mixed, &id, protocol).await;
            for (value, commits) in [("gone", false), ("kept", true)] {
                let value = format!("{value}-{round}");
                if protocol == Protocol::Older {
                    for topic in &topics {
                        // The leader asks the coordinator, which knows of no such partition.
                        let stray = one.send_at(&mixed, topic, &[b"stray"], 11).await;
                        assert_eq!(stray, ErrorCode::TransactionAbortable, "{round} to {}", topic.name);
                    }
                }
                mixed.send_all(&mut one, &topics, &value).await;
                for (of, group) in &groups {
                    if protocol == Protocol::Older {
                        assert_eq!(one.add_group(&mixed, group).await, ErrorCode::None);
                    }
                    let at = mixed.connection(LEADERS[*of as usize]);
                    assert_eq!(one.commit_offset(at, group, 7).await, ErrorCode::None, "{round} {group}");
                    let held = committed_offset(at, group).await;
                    assert_eq!(held, Err(ErrorCode::UnstableOffsetCommit), "{round} {group}");
                }
                for topic in &topics {
                    let seen = committed_values(&committed(mixed.leader(topic), topic).await);
                    assert_eq!(seen, expected, "{round}: what is open is not seen in {}", topic.name);
                }
                assert_eq!(one.end(&mixed, commits).await, ErrorCode::None, "{round}");
                if commits {
                    expected.push(value);
                }
                for topic in &topics {
                    assert_eq!(settled(&mixed, topic).await, expected, "{round} in {}", topic.name);
                }
                for (of, group) in &groups {
                    let found = committed_offset(mixed.connection(LEADERS[*of as usize]), group).await;
                    assert_eq!(found, Ok(if commits { 7 } else { -1 }), "{round} {group}");
                }
            }
            // The next producer with the id aborts the open transaction, on both makes, and fences the
            // previous one.
            mixed.send_all(&mut one, &topics, "fenced").await;
            let _other = Transactional::begin(&mixed, &id, protocol).await;
            for topic in &topics {
                assert_eq!(settled(&mixed, topic).await, expected, "{round} in {}", topic.name);
                let refused = one.send(&mixed, topic, &[b"late"]).await;
                let is_fenced =
                    matches!(refused, ErrorCode::InvalidProducerEpoch | ErrorCode::ProducerFenced);
                assert!(is_fenced, "{round}: {refused:?}");
            }
        }
    }
    for topic in &topics {
        mixed.assert_same(topic, 0).await;
    }
    mixed.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_coordinator_moves_between_the_makes_in_the_midst_of_transactions() {
    let Some(jars) = jars() else { return };
    let (mixed, topics) = start(jars).await;
    let mut expected = Vec::new();
    let mut from = LEADERS[0];
    for (round, to) in [2, 1, 3, 2, 1].into_iter().enumerate() {
        for (protocol, commits) in
            [(Protocol::Newer, true), (Protocol::Older, true), (Protocol::Newer, false)]
        {
            let id = name_in(0, &format!("id-{round}-{protocol:?}-{commits}"));
            let mut one = Transactional::begin(&mixed, &id, protocol).await;
            mixed.send_all(&mut one, &topics, &format!("{id} before")).await;
            mixed.move_leader(TRANSACTIONS, 0, to).await;
            mixed.send_all(&mut one, &topics, &format!("{id} after")).await;
            assert_eq!(one.decide(&mixed, commits).await, ErrorCode::None, "{id}");
            // The markers may be in flight; the coordinator with the decision completes them.
            mixed.move_leader(TRANSACTIONS, 0, from).await;
            if commits {
                expected.extend(["before", "after"].map(|when| format!("{id} {when}")));
            }
            for topic in &topics {
                assert_eq!(settled(&mixed, topic).await, expected, "{from} to {to}, {id}, {}", topic.name);
            }
            // It is over for the coordinator too: the next transaction begins.
            mixed.send_all(&mut one, &topics, &format!("{id} next")).await;
            assert_eq!(one.end(&mixed, true).await, ErrorCode::None, "{id}");
            expected.push(format!("{id} next"));
        }
        mixed.move_leader(TRANSACTIONS, 0, to).await;
        from = to;
    }
    let listed = mixed.tool("TransactionsCommand", &["--bootstrap-server", &mixed.jvm.address, "list"]).await;
    let lines: Vec<_> = listed.lines().filter(|line| line.starts_with("id-")).collect();
    assert_eq!(lines.len(), 15, "{listed}");
    assert!(lines.iter().all(|line| line.contains("CompleteCommit")), "{listed}");
    for broker in ["1", "2", "3"] {
        let arguments = ["--bootstrap-server", &mixed.jvm.address, "find-hanging", "--broker-id", broker];
        let arguments = [&arguments[..], &["--max-transaction-timeout", "0"]].concat();
        let found = mixed.tool("TransactionsCommand", &arguments).await;
        assert_eq!(found.lines().count(), 1, "the head of a table without lines: {found}");
    }
    for topic in &topics {
        mixed.assert_same(topic, 0).await;
    }
    mixed.finish().await;
}

/// As Kafka's own producer and consumer make and read them.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "many starts of Apache Kafka: in the nightly form of scripts/test"]
async fn kafkas_own_clients_make_transactions_that_span_both_makes() {
    const RECORDS: i64 = 600;
    let Some(jars) = jars() else { return };
    let (mixed, topics) = start(jars).await;
    let common = ["--bootstrap-server", mixed.jvm.address.as_str()];
    let ids = [name_in(0, "a"), name_in(1, "b"), name_in(0, "c"), name_in(1, "d")];
    for id in &ids {
        for topic in &topics {
            let records = (RECORDS / 4).to_string();
            let what = ["--topic", &topic.name, "--num-records", &records, "--record-size", "20"];
            let how = ["--throughput", "-1", "--transactional-id", id, "--transaction-duration-ms", "5"];
            let told = mixed.tool("ProducerPerformance", &[&common[..], &what, &how].concat()).await;
            assert!(told.contains("records sent"), "{told}");
        }
    }
    for topic in &topics {
        for partition in [0, 1] {
            mixed.assert_same(topic, partition).await;
        }
        let count = RECORDS.to_string();
        let what = ["--topic", &topic.name, "--num-records", &count, "--hide-header"];
        let how = ["--command-property", "isolation.level=read_committed"];
        let consumed = mixed.tool("ConsumerPerformance", &[&common[..], &what, &how].concat()).await;
        assert_eq!(consumed.split(", ").nth(4), Some(count.as_str()), "{consumed}");
    }
    let listed = mixed.tool("TransactionsCommand", &[&common[..], &["list"]].concat()).await;
    for id in &ids {
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(id));
        assert!(line.is_some_and(|line| line.contains("CompleteCommit")), "{listed}");
    }
    mixed.finish().await;
}
