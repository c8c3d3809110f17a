//! Disks without room: others lead what they can, partition by partition, and nothing is answered that a
//! crash takes back.

use super::*;
use std::sync::Arc;
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_log::disk::{CallError, Disk, Faults, FaultyCall};
use thalweg_record::Offset;
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::delete_topics_request::DeleteTopicState;

/// The default of `replica.lag.time.max.ms`.
const REPLICA_LAG_MAX: Duration = Duration::from_secs(30);

/// A cluster whose broker 1 has a disk with these faults.
async fn with_faulty_disk(more: &[(&str, &str)]) -> (Cluster, Arc<Faults>) {
    let mut cluster = Cluster::start(&[]).await;
    cluster.stop(1).await;
    let faults = Arc::new(Faults::default());
    let machine = Machine { disk: Disk::with_faults(Arc::clone(&faults)), ..Machine::real() };
    cluster.begin_on(&machine, 1, more).await;
    (cluster, faults)
}

/// Runs `work` while broker 1 watches its directories, as it does in a process of its own.
async fn watched(cluster: &Cluster, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        reason = cluster.broker(1).server().failed() => panic!("{reason}"),
        () = work => {}
    }
}

/// Deletes the records of the first partition below `offset`: the error and the low watermark.
async fn delete_records(leader: &Connection, topic: &Topic, offset: i64, timeout_ms: i32) -> (i16, i64) {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
    let topics = vec![DeleteRecordsTopic { name: topic.name.clone(), partitions }];
    let answer = leader.send(&DeleteRecordsRequest { topics, timeout_ms }).await.expect("an answer");
    let partition = &answer.topics[0].partitions[0];
    (partition.error_code, partition.low_watermark)
}

/// Waits for this leader of a partition.
async fn wait_for_leader(cluster: &Cluster, topic: &Topic, partition: i32, leader: i32) {
    wait_for("the leader", || cluster.registration(topic, partition).leader == BrokerId(leader)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn full_disk_keeps_only_the_partitions_that_no_other_broker_can_lead() {
    let (cluster, faults) = with_faulty_disk(&[]).await;
    let alone = cluster.create("alone", &[&[1]], &[]).await;
    let pair = cluster.create("pair", &[&[1, 2]], &[]).await;
    let three = cluster.create("three", &[&[1, 2, 3]], &[]).await;
    for topic in [&alone, &pair, &three] {
        cluster.put(topic, 0, -1, b"before").await;
    }
    watched(&cluster, async {
        faults.set_free_bytes(Some(0));
        assert_eq!(cluster.put(&pair, 0, -1, b"while it is full").await, 1);
        assert_eq!(cluster.put(&three, 0, -1, b"while it is full").await, 1);
        wait_for_leader(&cluster, &alone, 0, 1).await;
        let refused = cluster.try_put(&alone, 0, -1, b"while it is full").await;
        assert_eq!(refused.0, ErrorCode::KafkaStorageError.code());
        let read = crate::records::get(cluster.broker(1), &alone, 0).await;
        assert_eq!((read.error_code, read.high_watermark), (0, 1), "what is there is read");
        faults.set_free_bytes(None);
        assert_eq!(cluster.put(&alone, 0, -1, b"after").await, 1);
        cluster.wait_for_isr(&pair, 0, &[1, 2]).await;
        cluster.wait_for_isr(&three, 0, &[1, 2, 3]).await;
    })
    .await;
    cluster.assert_same(&pair, 0, &[1, 2]).await;
    cluster.assert_same(&three, 0, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

/// Recovery sets damaged records aside before it cuts them. The log waits, and the others of its directory
/// come up.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn damaged_log_waits_for_room_while_others_are_served() {
    let mut cluster = Cluster::start(&[]).await;
    let damaged = cluster.create("damaged", &[&[1, 2, 3]], &[]).await;
    let other = cluster.create("other", &[&[1, 2, 3]], &[]).await;
    for topic in [&damaged, &other] {
        for _ in 0..5 {
            cluster.put(topic, 0, -1, &[7; 1000]).await;
        }
        cluster.assert_same(topic, 0, &[1, 2, 3]).await;
    }
    cluster.kill(1).await;
    let segment = cluster.dirs[0].path().join("damaged-0/00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).expect("the segment is there");
    bytes[1500] ^= 1;
    std::fs::write(&segment, &bytes).expect("writes");
    let faults = Arc::new(Faults::default());
    faults.fail(FaultyCall::Create, "-stray", CallError::NoSpace);
    let machine = Machine { disk: Disk::with_faults(Arc::clone(&faults)), ..Machine::real() };
    cluster.begin_on(&machine, 1, &[]).await;
    watched(&cluster, async {
        cluster.wait_for_isr(&other, 0, &[1, 2, 3]).await;
        assert_eq!(cluster.put(&damaged, 0, -1, b"meanwhile").await, 5);
        assert!(!cluster.registration(&damaged, 0).isr.contains(&BrokerId(1)));
        assert!(std::fs::read(&segment).expect("the segment is there") == bytes, "it is kept as it is");
        faults.heal();
        cluster.wait_for_isr(&damaged, 0, &[1, 2, 3]).await;
    })
    .await;
    cluster.assert_same(&damaged, 0, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

/// A cluster whose broker 1 has a log of this topic with a gap, and no descriptors to end the log there.
async fn with_log_at_a_gap() -> (Cluster, Topic, Arc<Faults>) {
    let mut cluster = Cluster::start(&[]).await;
    let topic = cluster.create("gapped", &[&[1]], &[("segment.bytes", "1048576")]).await;
    for _ in 0..4 {
        cluster.put(&topic, 0, -1, &[7; 700_000]).await;
    }
    cluster.kill(1).await;
    let segment = cluster.dirs[0].path().join("gapped-0/00000000000000000002.log");
    std::fs::write(&segment, []).expect("it is there");
    let faults = Arc::new(Faults::default());
    faults.fail(FaultyCall::Create, "-stray", CallError::TooManyOpen);
    let machine = Machine { disk: Disk::with_faults(Arc::clone(&faults)), ..Machine::real() };
    cluster.begin_on(&machine, 1, &[]).await;
    wait_for_leader(&cluster, &topic, 0, 1).await;
    (cluster, topic, faults)
}

/// Records behind a gap are set aside. The log waits for descriptors, and is served once there are some.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn log_that_cannot_be_ended_at_a_gap_is_opened_later() {
    let (cluster, topic, faults) = with_log_at_a_gap().await;
    assert_ne!(cluster.try_put(&topic, 0, -1, b"meanwhile").await.0, 0);
    faults.heal();
    let deadline = Instant::now() + Duration::from_secs(20);
    let outcome = loop {
        let outcome = cluster.try_put(&topic, 0, -1, b"after").await;
        if outcome.0 == 0 || Instant::now() > deadline {
            break outcome;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(outcome, (0, 2));
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn topic_whose_log_waits_at_a_gap_can_be_deleted() {
    let (cluster, topic, _faults) = with_log_at_a_gap().await;
    let topics = vec![DeleteTopicState { name: Some(topic.name.clone()), ..Default::default() }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    assert_eq!(cluster.broker(1).ask(&request).await.responses[0].error_code, 0);
    let log = cluster.dirs[0].path().join("gapped-0");
    let deadline = Instant::now() + Duration::from_secs(20);
    while log.exists() {
        assert!(Instant::now() < deadline, "it stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn full_directory_hands_over_though_another_has_room() {
    let other = tempfile::tempdir().expect("a temporary directory");
    let mut cluster = Cluster::start(&[]).await;
    cluster.stop(1).await;
    let faults = Arc::new(Faults::default());
    // The segment of one partition stands for all of its directory.
    faults.only("topic-0/00000000000000000000.log");
    let machine = Machine { disk: Disk::with_faults(Arc::clone(&faults)), ..Machine::real() };
    let dirs = format!("{},{}", cluster.dirs[0].path().display(), other.path().display());
    cluster.begin_on(&machine, 1, &[("log.dirs", &dirs), ("thalweg.log.dirs.add", "true")]).await;
    let topic = cluster.create("topic", &[&[1, 2], &[1, 2]], &[]).await;
    for partition in 0..2 {
        cluster.put(&topic, partition, -1, b"before").await;
    }
    let directory = |partition| cluster.replica(1, &topic, partition).with_log(|log| log.directory_id());
    assert_ne!(directory(0), directory(1), "each has one");
    watched(&cluster, async {
        faults.set_free_bytes(Some(0));
        assert_eq!(cluster.put(&topic, 0, -1, b"while it is full").await, 1);
        wait_for_leader(&cluster, &topic, 0, 2).await;
        assert_eq!(cluster.put(&topic, 1, -1, b"meanwhile").await, 1);
        assert_eq!(cluster.registration(&topic, 1).leader, BrokerId(1), "its directory has room");
    })
    .await;
    cluster.stop_all().await;
}

/// Where broker 1 must stay for another partition: there it is not fenced as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn follower_without_room_holds_no_acknowledgement_up() {
    let (cluster, faults) = with_faulty_disk(&[]).await;
    let alone = cluster.create("alone", &[&[1]], &[]).await;
    let pair = cluster.create("pair", &[&[2, 1], &[3, 1]], &[]).await;
    let three = cluster.create("three", &[&[2, 3, 1]], &[]).await;
    for (topic, partition) in [(&alone, 0), (&pair, 0), (&pair, 1), (&three, 0)] {
        cluster.put(topic, partition, -1, b"before").await;
    }
    watched(&cluster, async {
        faults.set_free_bytes(Some(0));
        for (topic, partition, in_sync) in [(&pair, 0, &[2][..]), (&three, 0, &[2, 3]), (&pair, 1, &[3])] {
            let began = Instant::now();
            cluster.put(topic, partition, -1, b"while it is full").await;
            let held = began.elapsed();
            assert!(held < REPLICA_LAG_MAX / 2, "acks=all was held for {held:?}");
            cluster.wait_for_isr(topic, partition, in_sync).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(cluster.registration(&three, 0).isr.len(), 2, "there is no room yet");
        faults.set_free_bytes(None);
        for (topic, partition, in_sync) in
            [(&pair, 0, &[1, 2][..]), (&three, 0, &[1, 2, 3]), (&pair, 1, &[1, 3])]
        {
            cluster.wait_for_isr(topic, partition, in_sync).await;
        }
    })
    .await;
    cluster.assert_same(&three, 0, &[1, 2, 3]).await;
    cluster.stop_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn records_count_as_deleted_once_the_medium_has_their_end() {
    let (cluster, faults) = with_faulty_disk(&[]).await;
    let topic = cluster.create("topic", &[&[1]], &[]).await;
    for _ in 0..10 {
        cluster.put(&topic, 0, -1, b"value").await;
    }
    faults.set_free_bytes(Some(0));
    let refused = delete_records(cluster.broker(1).connection(), &topic, 5, 5_000).await;
    assert_eq!(refused, (ErrorCode::KafkaStorageError.code(), -1));
    faults.set_free_bytes(None);
    assert_eq!(delete_records(cluster.broker(1).connection(), &topic, 5, 5_000).await, (0, 5));
    cluster.stop_all().await;
}

/// The checkpoint of log starts takes long on a busy disk. No other partition waits for it, and no client
/// gets its answer before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn follower_fetches_on_while_a_log_start_is_on_its_way_to_the_medium() {
    let (cluster, faults) = with_faulty_disk(&[]).await;
    let topic = cluster.create("topic", &[&[2, 1], &[2, 1]], &[]).await;
    for _ in 0..10 {
        cluster.put(&topic, 0, -1, b"value").await;
    }
    cluster.wait_for_isr(&topic, 1, &[1, 2]).await;
    faults.only("log-start-offset-checkpoint.tmp");
    faults.set_hanging(true);
    // A connection is answered in order.
    let admin = Connection::connect(cluster.broker(2).address(), &ConnectionOptions::default()).await;
    let admin = admin.expect("the broker answers");
    let delete = delete_records(&admin, &topic, 5, 60_000);
    let meanwhile = async {
        let hung = Arc::clone(&faults);
        tokio::task::spawn_blocking(move || hung.wait_until_hung()).await.expect("a sync hangs");
        let put = async {
            for partition in [0, 1, 0, 1] {
                cluster.put(&topic, partition, -1, b"while it hangs").await;
            }
        };
        let put = tokio::time::timeout(REPLICA_LAG_MAX / 2, put).await;
        let position = cluster.replica(1, &topic, 0).published_offsets();
        faults.set_hanging(false);
        put.expect("acks=all does not wait for the checkpoint");
        assert_eq!(position.log_start_offset(), Offset(5), "it is deleted already");
        Instant::now()
    };
    let deleted = async { (delete.await, Instant::now()) };
    let ((answer, answered), released) = tokio::join!(deleted, meanwhile);
    assert_eq!(answer, (0, 5));
    assert!(answered > released, "the follower has told its leader what a crash could take back");
    cluster.stop_all().await;
}
