//! Coordinators whose partition cannot be read when they are elected: another replica takes over from a
//! damaged one, and a shortage passes.

use super::*;
use crate::transactions::{Protocol, Transactional, committed_offset, describe};
use std::path::PathBuf;
use std::sync::Arc;
use thalweg_log::disk::{CallError, Disk, Faults, FaultyCall};
use thalweg_metadata::topic_name::{OFFSETS, TRANSACTIONS};
use thalweg_record::batches;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};

/// One partition of each internal topic, on every broker.
const INTERNAL: [(&str, &str); 5] = [
    ("offsets.topic.num.partitions", "1"),
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.num.partitions", "1"),
    ("transaction.state.log.replication.factor", "3"),
    ("broker.session.timeout.ms", "2000"),
];

const COMMITS: i64 = 20;

impl Cluster {
    /// An internal topic, which exists.
    async fn internal(&self, name: &str) -> Topic {
        let image = || self.somebody().server().broker.image();
        wait_for(name, || image().topic(name).is_some()).await;
        let topic = Topic { name: name.to_owned(), id: image().topic(name).expect("it is there").id };
        self.wait_for_isr(&topic, 0, &[1, 2, 3]).await;
        topic
    }

    /// Commits offsets of a group, one after another, up to [`COMMITS`]. Returns the topic of the groups.
    async fn commit_offsets(&self) -> Topic {
        let topic = self.create("topic", &[&[1, 2, 3]], &[]).await;
        let find = FindCoordinatorRequest { coordinator_keys: vec!["g".to_owned()], ..Default::default() };
        self.somebody().ask(&find).await;
        let offsets = self.internal(OFFSETS).await;
        for offset in 1..=COMMITS {
            let deadline = Instant::now() + PATIENCE;
            while self.try_commit(&offsets, &topic, offset).await != ErrorCode::None.code() {
                assert!(Instant::now() < deadline, "offset {offset} is not committed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        offsets
    }

    async fn try_commit(&self, offsets: &Topic, topic: &Topic, offset: i64) -> i16 {
        let partition = OffsetCommitRequestPartition { committed_offset: offset, ..Default::default() };
        let commit = OffsetCommitRequestTopic {
            name: topic.name.clone(),
            topic_id: topic.id,
            partitions: vec![partition],
        };
        let request = OffsetCommitRequest {
            group_id: "g".to_owned(),
            generation_id_or_member_epoch: -1,
            topics: vec![commit],
            ..Default::default()
        };
        let leader = usize::try_from(self.registration(offsets, 0).leader.0).expect("there is a leader");
        self.broker(leader).ask(&request).await.topics[0].partitions[0].error_code
    }

    /// Whether the first batch of a replica of partition 0 is as it was written.
    fn is_whole(&self, id: usize, topic: &Topic) -> bool {
        let bytes = std::fs::read(self.first_segment(id, topic)).unwrap_or_default();
        batches(&bytes).next().is_some_and(|first| first.is_ok_and(|first| first.check_crc().is_ok()))
    }

    fn first_segment(&self, id: usize, topic: &Topic) -> PathBuf {
        self.dirs[id - 1].path().join(format!("{}-0/{:020}.log", topic.name, 0))
    }

    /// Flips a bit in the records of the first batch of a replica of partition 0.
    fn flip_in_first(&self, id: usize, topic: &Topic) {
        let path = self.first_segment(id, topic);
        let mut bytes = std::fs::read(&path).expect("the segment is there");
        let first = batches(&bytes).next().expect("there is one").expect("whole").bytes.len();
        bytes[first - 1] ^= 1;
        std::fs::write(path, bytes).expect("the segment can be written");
    }
}

/// The broker that an election prefers.
fn preferred(cluster: &Cluster, topic: &Topic) -> usize {
    usize::try_from(cluster.registration(topic, 0).replicas[0].0).expect("a small id")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn damaged_coordinator_partition_is_led_by_another_replica_and_repaired() {
    let mut cluster = Cluster::start(&INTERNAL).await;
    let offsets = cluster.commit_offsets().await;
    let one = Transactional::begin(&cluster, "one", Protocol::Newer).await;
    let states = cluster.internal(TRANSACTIONS).await;
    for topic in [&offsets, &states] {
        let id = preferred(&cluster, topic);
        cluster.stop(id).await;
        cluster.flip_in_first(id, topic);
        cluster.begin(id).await;
        cluster.wait_for_isr(topic, 0, &[1, 2, 3]).await;
        cluster.elect(topic, i32::try_from(id).expect("small")).await;
        // Another replica leads, and this one fetches the records again. Then it leads as if nothing had
        // been.
        wait_for("a whole replica", || cluster.is_whole(id, topic)).await;
        cluster.wait_for_isr(topic, 0, &[1, 2, 3]).await;
        cluster.assert_same(topic, 0, &[1, 2, 3]).await;
        cluster.elect(topic, i32::try_from(id).expect("small")).await;
        let broker = &cluster.broker(id).server().broker;
        wait_for("a loaded coordinator", || match topic.name.as_str() {
            OFFSETS => broker.groups.is_loaded(PartitionIndex(0)),
            _ => broker.transactions.is_loaded(PartitionIndex(0)),
        })
        .await;
        if topic.name == OFFSETS {
            assert_eq!(committed_offset(cluster.broker(id).connection(), "g").await, Ok(COMMITS));
        } else {
            let described = describe(&cluster, &one.id).await;
            assert_eq!((described.error_code, described.transaction_state.as_str()), (0, "Empty"));
        }
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn coordinator_elected_without_free_descriptors_loads_once_there_are_some() {
    let mut cluster = Cluster::start(&INTERNAL).await;
    let offsets = cluster.commit_offsets().await;
    let id = preferred(&cluster, &offsets);
    cluster.stop(id).await;
    let faults = Arc::new(Faults::default());
    let machine = Machine { disk: Disk::with_faults(Arc::clone(&faults)), ..Machine::real() };
    cluster.begin_on(&machine, id, &[]).await;
    cluster.wait_for_isr(&offsets, 0, &[1, 2, 3]).await;
    faults.fail(FaultyCall::Read, &format!("{OFFSETS}-0/{:020}.log", 0), CallError::TooManyOpen);
    cluster.elect(&offsets, i32::try_from(id).expect("small")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let connection = cluster.broker(id).connection();
    assert_eq!(committed_offset(connection, "g").await, Err(ErrorCode::CoordinatorLoadInProgress));
    faults.heal();
    let broker = &cluster.broker(id).server().broker;
    wait_for("a loaded coordinator", || broker.groups.is_loaded(PartitionIndex(0))).await;
    assert_eq!(committed_offset(connection, "g").await, Ok(COMMITS));
    assert_eq!(usize::try_from(cluster.registration(&offsets, 0).leader.0), Ok(id));
    cluster.stop_all().await;
}
