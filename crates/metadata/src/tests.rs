//! Random histories: the image does not depend on the batches of the records, deltas contain all changes, and
//! a snapshot restores the image.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use thalweg_wire::metadata::client_quota_record::EntityData;
use thalweg_wire::metadata::register_broker_record::{BrokerEndpoint, BrokerFeature};
use thalweg_wire::metadata::register_controller_record::ControllerFeature;
use thalweg_wire::metadata::*;
use thalweg_wire::{MetadataRecord, Uuid, decode_metadata_value};

use crate::*;

struct History {
    rng: SmallRng,
    image: Arc<Image>,
    next_id: u128,
    next_epoch: i64,
}

impl History {
    fn new(seed: u64) -> History {
        let mut history = History {
            rng: SmallRng::seed_from_u64(seed),
            image: Arc::new(Image::empty()),
            next_id: 1000,
            next_epoch: 0,
        };
        history.accept(&MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: "metadata.version".to_owned(),
            feature_level: 30,
        }));
        history
    }

    fn accept(&mut self, record: &MetadataRecord) {
        let mut delta = Delta::new(self.image.clone());
        delta.replay(record).unwrap();
        let offset = self.image.offset() + 1;
        self.image = delta.apply(Provenance { offset, epoch: 1, timestamp_ms: offset });
    }

    fn id(&mut self) -> Uuid {
        self.next_id += 1;
        Uuid(self.next_id)
    }

    fn topic(&mut self) -> Option<Arc<Topic>> {
        self.image.topics().sorted().choose(&mut self.rng).map(|topic| (**topic).clone())
    }

    /// Generates a record that fits the image.
    fn next(&mut self) -> MetadataRecord {
        let record = loop {
            if let Some(record) = self.try_next() {
                break record;
            }
        };
        self.accept(&record);
        record
    }

    fn try_next(&mut self) -> Option<MetadataRecord> {
        let text = |rng: &mut SmallRng, prefix: &str| format!("{prefix}{}", rng.random_range(0..6));
        Some(match self.rng.random_range(0..19) {
            0 | 1 => {
                let name = text(&mut self.rng, "topic");
                if self.image.topic(&name).is_some() {
                    return None;
                }
                MetadataRecord::Topic(TopicRecord { name, topic_id: self.id() })
            }
            2..=4 => {
                let topic = self.topic()?;
                let count = self.rng.random_range(1..4);
                MetadataRecord::Partition(PartitionRecord {
                    partition_id: i32::try_from(topic.partitions.len()).unwrap(),
                    topic_id: topic.id,
                    replicas: (1..=count).collect(),
                    isr: vec![1],
                    leader: 1,
                    leader_epoch: 0,
                    partition_epoch: 0,
                    directories: (0..count).map(|_| self.id()).collect(),
                    ..Default::default()
                })
            }
            5 | 6 => {
                let topic = self.topic()?;
                let (index, partition) = topic.partitions.iter().next_back()?;
                MetadataRecord::PartitionChange(PartitionChangeRecord {
                    partition_id: index.0,
                    topic_id: topic.id,
                    isr: self.rng.random_bool(0.5).then(|| BrokerId::numbers(&partition.replicas)),
                    leader: self.rng.random_range(-2..3),
                    eligible_leader_replicas: self.rng.random_bool(0.3).then(|| vec![2]),
                    ..Default::default()
                })
            }
            7 => MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id: self.topic()?.id }),
            8 => MetadataRecord::ClearElr(ClearElrRecord {
                topic_name: if self.rng.random() { String::new() } else { self.topic()?.name.to_string() },
            }),
            9 => {
                self.next_epoch += 1;
                MetadataRecord::RegisterBroker(RegisterBrokerRecord {
                    broker_id: self.rng.random_range(1..5),
                    broker_epoch: self.next_epoch,
                    incarnation_id: self.id(),
                    end_points: vec![BrokerEndpoint {
                        name: "L".to_owned(),
                        host: "h".to_owned(),
                        ..Default::default()
                    }],
                    features: vec![BrokerFeature { name: "f".to_owned(), ..Default::default() }],
                    rack: self.rng.random_bool(0.5).then(|| "r".to_owned()),
                    fenced: true,
                    log_dirs: vec![self.id(), self.id()],
                    ..Default::default()
                })
            }
            10 => {
                let broker = self.image.cluster().brokers.values().next()?.clone();
                MetadataRecord::BrokerRegistrationChange(BrokerRegistrationChangeRecord {
                    broker_id: broker.id.0,
                    broker_epoch: broker.epoch.0,
                    fenced: self.rng.random_range(-1..2),
                    in_controlled_shutdown: self.rng.random_range(0..2),
                    cordoned_log_dirs: self.rng.random_bool(0.3).then(|| broker.directories.clone()),
                    ..Default::default()
                })
            }
            11 => {
                let broker = self.image.cluster().brokers.values().next_back()?;
                let broker_epoch = broker.epoch.0;
                MetadataRecord::UnregisterBroker(UnregisterBrokerRecord {
                    broker_id: broker.id.0,
                    broker_epoch,
                })
            }
            12 => MetadataRecord::RegisterController(RegisterControllerRecord {
                controller_id: self.rng.random_range(1..3),
                incarnation_id: self.id(),
                features: vec![ControllerFeature { name: "f".to_owned(), ..Default::default() }],
                ..Default::default()
            }),
            13 | 14 => {
                let name = text(&mut self.rng, "topic");
                // Topic settings are generated for existing topics only, as the controller writes them.
                let resource_type = if self.image.topic(&name).is_some() { 2 } else { 4 };
                MetadataRecord::Config(ConfigRecord {
                    resource_type,
                    resource_name: if resource_type == 2 { name } else { String::new() },
                    name: text(&mut self.rng, "key"),
                    value: self.rng.random_bool(0.7).then(|| text(&mut self.rng, "value")),
                })
            }
            15 => MetadataRecord::FeatureLevel(FeatureLevelRecord {
                name: text(&mut self.rng, "feature"),
                feature_level: self.rng.random_range(0..3),
            }),
            16 => MetadataRecord::ClientQuota(ClientQuotaRecord {
                entity: vec![EntityData {
                    entity_type: "user".to_owned(),
                    entity_name: self.rng.random_bool(0.5).then(|| text(&mut self.rng, "user")),
                }],
                key: text(&mut self.rng, "quota"),
                value: 1.5,
                remove: self.rng.random_bool(0.4),
            }),
            17 => MetadataRecord::ProducerIds(ProducerIdsRecord {
                next_producer_id: self.image.next_producer_id() + 1000,
                ..Default::default()
            }),
            _ => MetadataRecord::UserScramCredential(UserScramCredentialRecord {
                name: text(&mut self.rng, "user"),
                mechanism: 1,
                iterations: 4096,
                ..Default::default()
            }),
        })
    }
}

#[test]
fn an_image_does_not_depend_on_how_its_records_were_batched() {
    for seed in 0..60 {
        let mut history = History::new(seed);
        let before = history.image.clone();
        let mut loader = Loader::new(before.clone());
        let mut batch = Vec::new();
        for _ in 0..200 {
            batch.push(history.next());
            if history.rng.random_bool(0.2) {
                loader.load(history.image.provenance(), &batch).unwrap();
                batch.clear();
                if history.rng.random_bool(0.5) {
                    let base = loader.image().clone();
                    let published = loader.publish().unwrap();
                    assert_eq!(*published.image, *history.image, "seed {seed}");
                    check_changes(&base, &published, seed);
                }
            }
        }
    }
}

/// Checks that a delta contains every difference.
fn check_changes(base: &Arc<Image>, published: &PublishedImage, seed: u64) {
    let reported = published.delta.changes();
    let found = Delta::between(base.clone(), &published.image);
    let found = found.changes();
    assert_eq!(reported.deleted_topics, found.deleted_topics, "seed {seed}");
    assert_eq!(reported.created_topics, found.created_topics, "seed {seed}");
    for (id, partitions) in &found.changed_topics {
        assert!(
            reported.changed_topics.get(id).is_some_and(|t| partitions.is_subset(t)),
            "seed {seed}: {id}"
        );
    }
    assert!(
        found.brokers.is_subset(&reported.brokers) && found.configs.is_subset(&reported.configs),
        "seed {seed}"
    );
    assert!(found.controllers.is_subset(&reported.controllers));
    for (found, reported) in [
        (found.features, reported.features),
        (found.quotas, reported.quotas),
        (found.scram, reported.scram),
        (found.producer_ids, reported.producer_ids),
    ] {
        assert!(reported || !found, "seed {seed}");
    }
}

#[test]
fn a_snapshot_gives_the_image_back() {
    for seed in 0..60 {
        let mut history = History::new(seed);
        for _ in 0..150 {
            history.next();
        }
        let mut delta = Delta::new(Arc::new(Image::empty()));
        for record in history.image.to_records() {
            let value = record.to_value().unwrap();
            delta.replay(&decode_metadata_value(value).unwrap()).unwrap();
        }
        assert!(delta.image().has_content_of(&history.image), "seed {seed}");
    }
}

#[test]
fn a_delta_copies_only_what_it_touches() {
    let mut history = History::new(1);
    for index in 0..50u128 {
        let topic = TopicRecord { name: format!("t{index}"), topic_id: Uuid(10_000 + index) };
        history.accept(&MetadataRecord::Topic(topic));
    }
    let before = history.image.clone();
    let mut delta = Delta::new(before.clone());
    delta
        .replay(&MetadataRecord::Partition(PartitionRecord {
            partition_id: 0,
            topic_id: Uuid(10_007),
            ..Default::default()
        }))
        .unwrap();
    let after = delta.apply(Provenance::EMPTY);
    for topic in before.topics().iter() {
        let shared = Arc::ptr_eq(topic, after.topic_by_id(topic.id).unwrap());
        assert_eq!(shared, topic.id != Uuid(10_007));
    }
    assert!(Arc::ptr_eq(&before.configs, &after.configs) && Arc::ptr_eq(&before.cluster, &after.cluster));
    let changed: Vec<Uuid> = after.topics().changed_since(before.topics()).map(|topic| topic.id).collect();
    assert_eq!(changed, [Uuid(10_007)]);
    assert_eq!(after.topics().changed_since(Image::empty().topics()).count(), 50);
}

#[test]
fn a_broker_gets_the_changes_that_concern_it() {
    let mut history = History::new(2);
    let topic_id = Uuid(7777);
    history.accept(&MetadataRecord::Topic(TopicRecord { name: "t".to_owned(), topic_id }));
    let partition = |partition_id, replicas: &[i32], leader| {
        MetadataRecord::Partition(PartitionRecord {
            partition_id,
            topic_id,
            replicas: replicas.to_vec(),
            isr: replicas.to_vec(),
            leader,
            ..Default::default()
        })
    };
    let mut delta = Delta::new(history.image.clone());
    for record in [partition(0, &[1], 1), partition(1, &[1, 2], 2), partition(2, &[2], 2)] {
        delta.replay(&record).unwrap();
    }
    let local = delta.local_changes(BrokerId(1));
    let indexes =
        |list: &[LocalPartition]| list.iter().map(|p| (p.partition.0, p.is_new)).collect::<Vec<_>>();
    assert_eq!((indexes(&local.leaders), indexes(&local.followers)), (vec![(0, true)], vec![(1, true)]));
    assert!(local.deletes.is_empty());

    let mut delta = Delta::new(delta.apply(Provenance::EMPTY));
    let moved = PartitionChangeRecord {
        partition_id: 0,
        topic_id,
        replicas: Some(vec![3]),
        directories: Some(vec![Uuid(300)]),
        isr: Some(vec![3]),
        leader: 3,
        ..Default::default()
    };
    delta.replay(&MetadataRecord::PartitionChange(moved)).unwrap();
    let local = delta.local_changes(BrokerId(1));
    assert_eq!((indexes(&local.deletes), local.leaders.len()), (vec![(0, false)], 0));
    let mut delta = Delta::new(delta.apply(Provenance::EMPTY));
    delta.replay(&MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id })).unwrap();
    assert_eq!(indexes(&delta.local_changes(BrokerId(1)).deletes), [(1, false)]);
    assert_eq!(indexes(&delta.local_changes(BrokerId(2)).deletes), [(1, false), (2, false)]);
}

#[test]
fn records_that_do_not_fit_are_errors() {
    let history = History::new(3);
    let mut delta = Delta::new(history.image);
    let missing = Uuid(4242);
    for record in [
        MetadataRecord::Partition(PartitionRecord { topic_id: missing, ..Default::default() }),
        MetadataRecord::PartitionChange(PartitionChangeRecord { topic_id: missing, ..Default::default() }),
        MetadataRecord::RemoveTopic(RemoveTopicRecord { topic_id: missing }),
        MetadataRecord::FenceBroker(FenceBrokerRecord { id: 1, epoch: 1 }),
        MetadataRecord::RemoveAccessControlEntry(RemoveAccessControlEntryRecord { id: missing }),
        MetadataRecord::ClearElr(ClearElrRecord { topic_name: "none".to_owned() }),
        MetadataRecord::FeatureLevel(FeatureLevelRecord {
            name: "metadata.version".to_owned(),
            feature_level: 31,
        }),
        MetadataRecord::BeginTransaction(BeginTransactionRecord::default()),
    ] {
        assert!(delta.replay(&record).is_err(), "{record:?}");
    }
}
