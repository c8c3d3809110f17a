use super::*;
use thalweg_metadata::{Delta, Provenance};
use thalweg_wire::metadata::{
    BrokerRegistrationChangeRecord, FeatureLevelRecord, PartitionChangeRecord, PartitionRecord,
    RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
};
use thalweg_wire::{MetadataRecord, Uuid};

const TOPIC: Uuid = Uuid(100);

/// A sequence of images, and what is found by comparing them.
struct Bench {
    image: Arc<Image>,
    changes: Changes,
}

impl Bench {
    fn accept(&mut self, records: &[MetadataRecord]) -> Vec<EventKind> {
        let mut delta = Delta::new(Arc::clone(&self.image));
        for record in records {
            delta.replay(record).expect("the record fits");
        }
        let offset = self.image.offset() + 1;
        self.image = delta.apply(Provenance { offset, epoch: 1, timestamp_ms: offset });
        self.compare()
    }

    fn compare(&mut self) -> Vec<EventKind> {
        let mut events = Vec::new();
        self.changes.compare(&self.image, BrokerId(1), &mut events);
        events
    }

    fn leader_changes(&self) -> Vec<(&str, u64)> {
        self.changes.leader_changes.iter().map(|(topic, count)| (&**topic, *count)).collect()
    }
}

fn broker(broker_id: i32, incarnation: u128) -> MetadataRecord {
    let incarnation_id = Uuid(incarnation);
    let registered =
        RegisterBrokerRecord { broker_id, incarnation_id, broker_epoch: 7, ..Default::default() };
    MetadataRecord::RegisterBroker(RegisterBrokerRecord { fenced: false, ..registered })
}

fn fence(broker_id: i32, fenced: i8) -> MetadataRecord {
    MetadataRecord::BrokerRegistrationChange(BrokerRegistrationChangeRecord {
        broker_id,
        broker_epoch: 7,
        fenced,
        ..Default::default()
    })
}

fn topic(name: &str, topic_id: Uuid, partitions: i32) -> Vec<MetadataRecord> {
    let topic = MetadataRecord::Topic(TopicRecord { name: name.to_owned(), topic_id });
    let partition = |partition_id| {
        MetadataRecord::Partition(PartitionRecord {
            topic_id,
            partition_id,
            leader: 1,
            isr: vec![1, 2],
            replicas: vec![1, 2],
            ..Default::default()
        })
    };
    [topic].into_iter().chain((0..partitions).map(partition)).collect()
}

fn lead(partition_id: i32, leader: i32, isr: &[i32]) -> MetadataRecord {
    MetadataRecord::PartitionChange(PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id,
        leader,
        isr: Some(isr.to_vec()),
        ..Default::default()
    })
}

/// Brokers 1 and 2, and a topic of three partitions.
fn bench() -> Bench {
    let mut bench = Bench { image: Arc::new(Image::empty()), changes: Changes::default() };
    let version = FeatureLevelRecord { name: "metadata.version".to_owned(), feature_level: 30 };
    let mut records = vec![MetadataRecord::FeatureLevel(version), broker(1, 1), broker(2, 2)];
    records.extend(topic("orders", TOPIC, 3));
    assert_eq!(bench.accept(&records), [], "the first image is compared with none");
    bench
}

#[test]
fn changes_of_leaders_are_counted_by_topic() {
    let mut bench = bench();
    assert_eq!((bench.compare(), bench.leader_changes()), (vec![], vec![]));
    let events = bench.accept(&[fence(2, 1), lead(0, 2, &[2]), lead(1, -1, &[]), lead(2, 1, &[1])]);
    assert_eq!(events, [EventKind::BrokerDown(2), EventKind::LeadersChanged(2)]);
    assert_eq!(bench.leader_changes(), [("orders", 2)]);
    assert_eq!(bench.changes.partitions, (3, 1), "under-replicated, and without a leader");
    assert_eq!(bench.compare(), [], "the image is the same");
    assert_eq!((bench.leader_changes(), bench.changes.partitions), (vec![], (3, 1)));
}

#[test]
fn other_brokers_that_start_again_are_events() {
    let mut bench = bench();
    assert_eq!(bench.accept(&[broker(2, 22)]), [EventKind::BrokerRestarted(2)]);
    assert_eq!(bench.accept(&[broker(1, 11)]), [], "this broker knows of its own starts");
    assert_eq!(bench.accept(&[fence(2, 1)]), [EventKind::BrokerDown(2)]);
    assert_eq!(bench.accept(&[fence(2, -1)]), [EventKind::BrokerUp(2)]);
    assert_eq!(bench.accept(&[broker(3, 3)]), [EventKind::BrokerUp(3)]);
}

#[test]
fn topics_and_features_are_events() {
    let mut bench = bench();
    let created: Vec<MetadataRecord> =
        topic("a", Uuid(1), 2).into_iter().chain(topic("b", Uuid(2), 2)).collect();
    assert_eq!(bench.accept(&created), [EventKind::TopicsCreated(2)]);
    let removed = MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id: TOPIC });
    assert_eq!(bench.accept(&[removed]), [EventKind::TopicsDeleted(1)]);
    let level = FeatureLevelRecord { name: "group.version".to_owned(), feature_level: 1 };
    let events = bench.accept(&[MetadataRecord::FeatureLevel(level)]);
    assert_eq!(events, [EventKind::FeatureLevel("group.version".into(), 1)]);
}
