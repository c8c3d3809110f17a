//! Partitions without a leader over several images, and the log lines about them.

use super::*;
use crate::log_ends::testing::undecided;
use thalweg_metadata::{Delta, Provenance};
use thalweg_wire::MetadataRecord;
use thalweg_wire::metadata::{
    BrokerRegistrationChangeRecord, FeatureLevelRecord, PartitionChangeRecord, PartitionRecord,
    RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
};

const TOPIC: Uuid = Uuid(100);
const OTHER: Uuid = Uuid(101);

/// A sequence of a controller's images, and the partitions without a leader among them.
struct Bench {
    image: Arc<Image>,
    kept: Leaderless,
    now: Instant,
}

impl Bench {
    /// Brokers 1 and 2, a topic of two partitions with two replicas, and one with one replica.
    fn new() -> Bench {
        let mut bench =
            Bench { image: Arc::new(Image::empty()), kept: Leaderless::default(), now: Instant::now() };
        let version = FeatureLevelRecord { name: "metadata.version".to_owned(), feature_level: 30 };
        let mut records = vec![MetadataRecord::FeatureLevel(version)];
        for broker_id in [1, 2] {
            let broker =
                RegisterBrokerRecord { broker_id, broker_epoch: 7, fenced: false, ..Default::default() };
            records.push(MetadataRecord::RegisterBroker(broker));
        }
        for (name, topic_id) in [("t", TOPIC), ("u", OTHER)] {
            records.push(MetadataRecord::Topic(TopicRecord { name: name.to_owned(), topic_id }));
        }
        for (topic_id, partition_id, replicas) in
            [(TOPIC, 0, vec![1, 2]), (TOPIC, 1, vec![2, 1]), (OTHER, 0, vec![1])]
        {
            records.push(MetadataRecord::Partition(PartitionRecord {
                topic_id,
                partition_id,
                leader: replicas[0],
                isr: replicas.clone(),
                replicas,
                ..Default::default()
            }));
        }
        bench.accept(&records);
        bench
    }

    fn accept(&mut self, records: &[MetadataRecord]) {
        let mut delta = Delta::new(Arc::clone(&self.image));
        for record in records {
            delta.replay(record).expect("the record fits");
        }
        let offset = self.image.offset() + 1;
        let image = delta.apply(Provenance { offset, epoch: 1, timestamp_ms: offset });
        self.kept.follow(&self.image, &image, self.now);
        self.image = image;
    }

    /// A partition's leader, ISR and eligible replicas.
    fn change(&mut self, topic_id: Uuid, partition_id: i32, leader: i32, isr: &[i32], eligible: &[i32]) {
        self.accept(&[MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id,
            partition_id,
            leader,
            isr: Some(isr.to_vec()),
            eligible_leader_replicas: Some(eligible.to_vec()),
            ..Default::default()
        })]);
    }

    fn fence(&mut self, broker_id: i32, fenced: bool) {
        let fenced = if fenced { 1 } else { -1 };
        let change =
            BrokerRegistrationChangeRecord { broker_id, broker_epoch: 7, fenced, ..Default::default() };
        self.accept(&[MetadataRecord::BrokerRegistrationChange(change)]);
    }

    fn wait(&mut self) {
        self.now += QUIET;
    }

    /// The lines that would be logged now.
    fn logged(&mut self, undecided: &[UndecidedPartition]) -> Vec<(Fate, Vec<String>)> {
        self.kept.unlogged(&self.image, undecided, self.now).into_iter().collect()
    }
}

fn fate(reason: Reason, last_leader: Option<i32>, complete: &[i32]) -> Fate {
    Fate { reason, last_leader: last_leader.map(BrokerId), complete: BrokerId::list(complete) }
}

#[test]
fn partitions_without_a_leader_are_kept_until_they_have_one() {
    let mut bench = Bench::new();
    assert!(bench.kept.is_empty());
    bench.change(OTHER, 0, -1, &[1], &[]);
    assert!(bench.kept.is_empty(), "there is nothing to compare where there is one replica");
    bench.change(TOPIC, 0, -1, &[1, 2], &[]);
    bench.change(TOPIC, 1, -1, &[1, 2], &[]);
    assert_eq!(bench.kept.partitions(), [(TOPIC, PartitionIndex(0)), (TOPIC, PartitionIndex(1))]);
    bench.change(TOPIC, 0, 2, &[2], &[]);
    assert_eq!(bench.kept.partitions(), [(TOPIC, PartitionIndex(1))]);
    bench.accept(&[MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id: TOPIC })]);
    assert!(bench.kept.is_empty());
}

/// The follower stops, then the leader; then the leader's folder is deleted, and both start.
#[test]
fn loss_of_the_only_complete_log_is_logged_once() {
    let mut bench = Bench::new();
    for index in [0, 1] {
        bench.change(TOPIC, index, 1, &[1], &[]);
        bench.change(TOPIC, index, -1, &[], &[1]);
    }
    bench.fence(1, true);
    bench.fence(2, true);
    bench.change(TOPIC, 0, -1, &[], &[]);
    bench.change(TOPIC, 1, -1, &[], &[]);
    bench.wait();
    assert_eq!(bench.logged(&[]), [], "the cluster is down");
    bench.fence(2, false);
    assert_eq!(bench.logged(&[]), [], "it may be unclean elections' turn");
    bench.wait();
    let lost = fate(Reason::Lost, Some(1), &[1]);
    assert_eq!(bench.logged(&[]), [(lost, vec!["t-0".to_owned(), "t-1".to_owned()])]);
    bench.fence(1, false);
    bench.wait();
    assert_eq!(bench.logged(&[]), [], "it was logged");
    assert_eq!(bench.kept.partitions().len(), 2);
}

#[test]
fn replica_that_a_partition_cannot_do_without_is_named_once() {
    let mut bench = Bench::new();
    bench.fence(2, true);
    bench.change(TOPIC, 0, -1, &[1, 2], &[]);
    bench.wait();
    let one = UndecidedPartition { topic_id: TOPIC, ..undecided(&[1], &[2], Some(1)) };
    assert_eq!(bench.logged(&[one]), [], "its logs are compared");
    let awaits = fate(Reason::Awaits(BrokerId::list(&[2])), Some(1), &[1, 2]);
    assert_eq!(bench.logged(&[]), [(awaits, vec!["t-0".to_owned()])]);
    bench.wait();
    assert_eq!(bench.logged(&[]), []);
    bench.fence(2, false);
    bench.wait();
    assert_eq!(bench.logged(&[]), [], "one of them is about to lead");
}

#[test]
fn line_names_some_partitions() {
    let names = |count: usize| (0..count).map(|index| format!("t-{index}")).collect::<Vec<_>>();
    assert_eq!(named(&names(2)), "t-0, t-1");
    assert!(named(&names(12)).ends_with("t-9 and 2 more"));
}
