//! The state of share partitions in a cluster: every broker reaches every state, here or elsewhere, and no
//! acknowledged change is lost when its coordinator fails.

use super::*;
use std::sync::Arc;
use thalweg_share::{DeliveryState, SharePartitionKey, StateBatch, StateUpdate};
use thalweg_share_groups::{PersistError, Persister};

/// As Kafka creates its internal topics, with a few partitions for each broker.
const INTERNAL: [(&str, &str); 5] = [
    ("share.coordinator.state.topic.num.partitions", "6"),
    ("share.coordinator.state.topic.replication.factor", "3"),
    ("share.coordinator.state.topic.min.isr", "2"),
    ("broker.session.timeout.ms", "2000"),
    ("replica.lag.time.max.ms", "3000"),
];

fn update(leader_epoch: i32, start_offset: i64) -> StateUpdate {
    let batch = StateBatch {
        first_offset: start_offset,
        last_offset: start_offset + 4,
        state: DeliveryState::Acknowledged,
        delivery_count: 1,
    };
    StateUpdate {
        state_epoch: 3,
        leader_epoch,
        start_offset,
        delivery_complete_count: 5,
        batches: vec![batch],
    }
}

impl Cluster {
    fn persister(&self, id: usize) -> Arc<Persister> {
        Arc::clone(&self.broker(id).server().broker.share_persister)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_broker_reaches_every_state_and_none_is_lost_with_its_coordinator() {
    let mut cluster = Cluster::start(&INTERNAL).await;
    let replicas: [&[i32]; 2] = [&[1, 2, 3], &[2, 3, 1]];
    let topic = cluster.create("shared", &replicas, &[]).await;
    let groups: Vec<Arc<str>> = (0..10).map(|n| format!("group-{n}").into()).collect();
    let key = |group: &Arc<str>, partition| SharePartitionKey {
        group: Arc::clone(group),
        topic: topic.id,
        partition: PartitionIndex(partition),
    };
    let keys: Vec<SharePartitionKey> =
        groups.iter().flat_map(|group| [key(group, 0), key(group, 1)]).collect();
    // The first creates the topic.
    for (at, key) in keys.iter().enumerate() {
        let persister = cluster.persister(1 + at % 3);
        assert_eq!(persister.read(key, 0).await, Err(PersistError::Invalid), "it is not initialized");
        assert_eq!(persister.initialize(key, 3, -1).await, Ok(()));
    }
    for (at, key) in keys.iter().enumerate() {
        let (writer, reader) = (cluster.persister(1 + at % 3), cluster.persister(1 + (at + 1) % 3));
        let before = writer.read(key, 2).await.expect("it is initialized");
        assert_eq!((before.state_epoch, before.start_offset, before.batches), (3, -1, Vec::new()));
        assert_eq!(writer.write(key, &update(2, 10)).await, Ok(()));
        let after = reader.read(key, 2).await.expect("it is there");
        assert_eq!((after.start_offset, after.batches), (10, update(2, 10).batches));
        let summary = reader.read_summary(key, 0).await.expect("it is there");
        assert_eq!((summary.leader_epoch, summary.start_offset, summary.delivery_complete_count), (2, 10, 5));
        assert_eq!(writer.write(key, &update(1, 20)).await, Err(PersistError::FencedLeaderEpoch));
        let earlier = StateUpdate { state_epoch: 2, ..update(2, 20) };
        assert_eq!(writer.write(key, &earlier).await, Err(PersistError::FencedStateEpoch));
    }
    // Many at once, for coordinators elsewhere in few requests.
    let persister = cluster.persister(1);
    let mut writes = tokio::task::JoinSet::new();
    for key in keys.clone() {
        let persister = Arc::clone(&persister);
        writes.spawn(async move { persister.write(&key, &update(2, 30)).await });
    }
    assert!(writes.join_all().await.into_iter().all(|written| written == Ok(())));

    cluster.kill(3).await;
    for (at, key) in keys.iter().enumerate() {
        let persister = cluster.persister(1 + at % 2);
        let state = persister.read(key, 2).await.expect("another coordinator has it");
        assert_eq!(state.start_offset, 30);
        assert_eq!(persister.write(key, &update(2, 40)).await, Ok(()));
    }
    for key in &keys {
        assert_eq!(cluster.persister(2).delete(key).await, Ok(()));
        assert_eq!(cluster.persister(1).read(key, 2).await, Err(PersistError::Invalid));
    }
    cluster.stop_all().await;
}
