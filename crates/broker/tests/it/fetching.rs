//! What consumers get: whole batches around an offset, within limits but never nothing, now or when enough is
//! there.

use crate::raw::Raw;
use crate::records::{
    Topic, ask_for, batch, fetch, fetch_partition, fetched_bytes, get, produce, put, values,
};
use crate::running::RunningBroker;
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::fetch_request::FetchTopic;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};
use tokio::time::Instant;

async fn start(dir: &tempfile::TempDir) -> RunningBroker {
    RunningBroker::start(dir.path(), &[("log.retention.ms", "-1")]).await
}

fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Puts batches of `sizes` records of `bytes` each.
async fn fill(broker: &RunningBroker, topic: &Topic, sizes: &[usize], bytes: usize) {
    let value = vec![b'v'; bytes];
    for size in sizes {
        let records: Vec<&[u8]> = (0..*size).map(|_| &value[..]).collect();
        assert_eq!(put(broker, topic, -1, batch(&records)).await.error_code, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_inside_a_batch_brings_the_whole_batch() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    fill(&broker, &topic, &[3, 4, 2], 10).await;
    for (offset, first) in [(0, 0), (1, 0), (2, 0), (3, 3), (5, 3), (6, 3), (7, 7), (8, 7)] {
        let found = values(&get(&broker, &topic, offset).await);
        assert_eq!(found.first().map(|(offset, _)| *offset), Some(first), "from {offset}");
        assert_eq!(found.last().map(|(offset, _)| *offset), Some(8), "up to the end");
    }
    let end = get(&broker, &topic, 9).await;
    assert_eq!((end.error_code, end.high_watermark, values(&end).len()), (0, 9, 0));
    for offset in [10, i64::MAX, -1, i64::MIN] {
        let beyond = get(&broker, &topic, offset).await;
        assert_eq!(beyond.error_code, ErrorCode::OffsetOutOfRange.code(), "{offset}");
        assert_eq!(beyond.high_watermark, -1, "as Kafka tells it");
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_are_kept_but_the_first_batch_always_comes() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 3, &[]).await;
    fill(&broker, &topic, &[1, 1, 1, 1], 10_000).await;
    for partition in 1..3 {
        let answer = broker.ask(&produce(13, &topic, partition, -1, batch(&[&[b'v'; 10_000]]))).await;
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    }
    let count = async |partition_max, max| {
        let mut partition = fetch_partition(0, 0);
        partition.partition_max_bytes = partition_max;
        let request = fetch(18, &topic, vec![partition]);
        values(&ask_for(&broker, FetchRequest { max_bytes: max, ..request }).await).len()
    };
    assert_eq!(count(1 << 20, 1 << 20).await, 4);
    assert_eq!(count(25_000, 1 << 20).await, 2, "whole batches only");
    assert_eq!(count(1 << 20, 25_000).await, 2);
    assert_eq!(count(100, 1 << 20).await, 1, "larger than the partition's limit");
    assert_eq!(count(1 << 20, 100).await, 1, "larger than the fetch's limit");
    assert_eq!(count(0, 0).await, 1);

    // Only the first partition with records may break the limit; the others have to wait.
    let lens = async |max_bytes, order: [i32; 3]| -> Vec<usize> {
        let partitions = order.iter().map(|index| fetch_partition(*index, 0)).collect();
        let answer = broker.ask(&FetchRequest { max_bytes, ..fetch(18, &topic, partitions) }).await;
        answer.responses[0].partitions.iter().map(|partition| values(partition).len()).collect()
    };
    assert_eq!(lens(100, [1, 0, 2]).await, [1, 0, 0]);
    assert_eq!(lens(25_000, [1, 2, 0]).await, [1, 1, 0]);
    assert_eq!(lens(1 << 20, [0, 1, 2]).await, [4, 1, 1]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetch_waits_for_enough_bytes_and_no_longer() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 2, &[]).await;
    let size = i32::try_from(batch(&[b"x"]).len()).expect("small");
    let mut raw = Raw::connect(&broker).await;
    let both = || vec![fetch_partition(0, 0), fetch_partition(1, 0)];
    let waiting =
        |min_bytes, max_wait_ms| FetchRequest { min_bytes, max_wait_ms, ..fetch(18, &topic, both()) };
    // Nothing arrives: the time is over.
    let started = Instant::now();
    assert!(raw.ask(&waiting(1, 150), 18).await.is_some());
    assert!(started.elapsed() >= Duration::from_millis(150));
    // Two batches are enough, on whichever partitions.
    let id = raw.send(&waiting(2 * size, 60_000), 18).await;
    let started = Instant::now();
    put(&broker, &topic, 1, batch(&[b"x"])).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    broker.ask(&produce(13, &topic, 1, 1, batch(&[b"y"]))).await;
    let answer = raw.answer::<FetchRequest>(id, 18).await.expect("an answer");
    let elapsed = started.elapsed();
    assert!(elapsed >= Duration::from_millis(100) && elapsed < Duration::from_secs(30), "{elapsed:?}");
    assert!(answer.responses[0].partitions.iter().all(|partition| values(partition).len() == 1));
    // Existing bytes count.
    let id = raw.send(&waiting(3 * size, 60_000), 18).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    put(&broker, &topic, 1, batch(&[b"x"])).await;
    assert!(raw.answer::<FetchRequest>(id, 18).await.is_some());
    assert!(started.elapsed() < Duration::from_secs(30));
    // With enough bytes there is no wait; nor with an error.
    let started = Instant::now();
    assert!(raw.ask(&waiting(size, 60_000), 18).await.is_some());
    let beyond = FetchRequest { max_wait_ms: 60_000, ..fetch(18, &topic, vec![fetch_partition(0, 99)]) };
    assert!(raw.ask(&beyond, 18).await.is_some());
    let unknown = FetchRequest { max_wait_ms: 60_000, ..fetch(18, &Topic::unknown(), both()) };
    assert!(raw.ask(&unknown, 18).await.is_some());
    // A minimum beyond the limits is not waited for.
    let mut small = waiting(i32::MAX, 60_000);
    small.max_bytes = size;
    assert!(raw.ask(&small, 18).await.is_some());
    let nothing = FetchRequest { max_wait_ms: 60_000, topics: Vec::new(), ..fetch(18, &topic, Vec::new()) };
    assert!(raw.ask(&nothing, 18).await.is_some());
    assert!(started.elapsed() < Duration::from_secs(30));
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_topic_and_a_new_one_of_its_name_are_distinct() {
    let dir = data();
    let broker = start(&dir).await;
    let old = Topic::create(&broker, "topic", 1, &[]).await;
    fill(&broker, &old, &[2], 10).await;
    // A fetch waiting for a topic that is deleted is answered at once.
    let mut raw = Raw::connect(&broker).await;
    let waits = FetchRequest { max_wait_ms: 60_000, ..fetch(18, &old, vec![fetch_partition(0, 2)]) };
    let id = raw.send(&waits, 18).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    let deletes =
        delete_topics_request::DeleteTopicState { name: Some("topic".to_owned()), topic_id: Uuid::ZERO };
    let deleted = broker.ask(&DeleteTopicsRequest { topics: vec![deletes], ..Default::default() }).await;
    assert_eq!(deleted.responses[0].error_code, 0);
    let answer = raw.answer::<FetchRequest>(id, 18).await.expect("an answer");
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::UnknownTopicOrPartition.code());
    assert!(started.elapsed() < Duration::from_secs(30));

    let new = Topic::create(&broker, "topic", 1, &[]).await;
    assert_ne!(new.id, old.id);
    fill(&broker, &new, &[1], 10).await;
    assert_eq!(get(&broker, &old, 0).await.error_code, ErrorCode::UnknownTopicId.code());
    assert_eq!(values(&get(&broker, &new, 0).await).len(), 1, "nothing of the old one");
    let both = broker.ask(&produce(13, &old, 0, 1, batch(&[b"x"]))).await;
    assert_eq!(both.responses[0].partition_responses[0].error_code, ErrorCode::UnknownTopicId.code());
    // Neither name nor id.
    let nameless = FetchTopic { partitions: vec![fetch_partition(0, 0)], ..Default::default() };
    let answer = broker.ask(&FetchRequest { topics: vec![nameless], ..fetch(18, &new, Vec::new()) }).await;
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::UnknownTopicId.code());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_for_a_topic_that_is_being_deleted_find_it_or_do_not_know_it() {
    let dir = data();
    let broker = start(&dir).await;
    let mut codes = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let topic = Topic::create(&broker, "topic", 3, &[]).await;
        let mut raw = Raw::connect(&broker).await;
        let deletes =
            delete_topics_request::DeleteTopicState { name: Some("topic".to_owned()), topic_id: Uuid::ZERO };
        let request = DeleteTopicsRequest { topics: vec![deletes], ..Default::default() };
        let asks = async {
            let mut refused = 0;
            while refused < 10 {
                let waits = FetchRequest { max_wait_ms: 1, ..fetch(12, &topic, vec![fetch_partition(2, 0)]) };
                let fetched = raw.ask(&waits, 12).await.expect("an answer");
                let appends = produce(12, &topic, 2, -1, batch(&[b"x"]));
                let produced = raw.ask(&appends, 12).await.expect("an answer");
                let both = [
                    fetched.responses[0].partitions[0].error_code,
                    produced.responses[0].partition_responses[0].error_code,
                ];
                refused += both.iter().filter(|code| **code != 0).count();
                codes.extend(both);
            }
        };
        let (deleted, ()) = tokio::join!(broker.ask(&request), asks);
        assert_eq!(deleted.responses[0].error_code, 0);
    }
    codes.remove(&0);
    assert!(codes.is_subset(&[ErrorCode::UnknownTopicOrPartition.code()].into()), "{codes:?}");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_is_out_of_range() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    fill(&broker, &topic, &[2, 2, 2, 2], 10).await;
    let delete = async |offset| {
        let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
        let topics = vec![DeleteRecordsTopic { name: "topic".to_owned(), partitions }];
        let answer = broker.ask(&DeleteRecordsRequest { topics, timeout_ms: 1000 }).await;
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.low_watermark)
    };
    assert_eq!(delete(3).await, (0, 3));
    assert_eq!(delete(1).await, (0, 3), "it does not move back");
    let gone = get(&broker, &topic, 2).await;
    assert_eq!(gone.error_code, ErrorCode::OffsetOutOfRange.code());
    let rest = get(&broker, &topic, 3).await;
    assert_eq!((rest.error_code, rest.log_start_offset), (0, 3));
    assert_eq!(values(&rest)[0].0, 2, "the batch comes whole, the client passes over what is before");
    assert_eq!(list(&broker, -2, 0).await.0, 3);
    assert_eq!(put(&broker, &topic, -1, batch(&[b"x"])).await.log_start_offset, 3);
    assert_eq!(delete(10).await, (ErrorCode::OffsetOutOfRange.code(), -1));
    assert_eq!(delete(-1).await, (0, 9), "all of it");
    assert_eq!(fetched_bytes(&get(&broker, &topic, 9).await).len(), 0);
    assert_eq!(get(&broker, &topic, 8).await.error_code, ErrorCode::OffsetOutOfRange.code());
    broker.stop().await;
}

/// Offset, timestamp and leader epoch for a timestamp in partition 0 of "topic".
async fn list(broker: &RunningBroker, timestamp: i64, isolation_level: i8) -> (i64, i64, i32) {
    let partition = ListOffsetsPartition { partition_index: 0, timestamp, ..Default::default() };
    let topic = ListOffsetsTopic { name: "topic".to_owned(), partitions: vec![partition] };
    let request = ListOffsetsRequest { topics: vec![topic], isolation_level, ..Default::default() };
    let answer = broker.ask(&request).await;
    let found = &answer.topics[0].partitions[0];
    assert_eq!(found.error_code, 0);
    (found.offset, found.timestamp, found.leader_epoch)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_found_by_every_kind_of_time() {
    use thalweg_record::{BatchBuilder, BatchOptions, Compression};
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    for timestamp in [-1, -2, -4] {
        assert_eq!(list(&broker, timestamp, 0).await.0, 0, "of an empty log");
    }
    for timestamp in [-3, -5, -6, 0, 100] {
        assert_eq!(list(&broker, timestamp, 0).await, (-1, -1, -1), "of an empty log");
    }
    // Times go up and down, inside a compressed batch as well.
    for (compression, times) in
        [(Compression::None, [100, 200]), (Compression::Zstd, [900, 300]), (Compression::Lz4, [400, 900])]
    {
        let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
        for time in times {
            builder.append(time, None, Some(b"v"), &[]).expect("it fits");
        }
        assert_eq!(put(&broker, &topic, -1, builder.build()).await.error_code, 0);
    }
    for isolation in [0, 1] {
        assert_eq!(list(&broker, -1, isolation).await, (6, -1, 0));
        assert_eq!(list(&broker, -2, isolation).await, (0, -1, 0));
        assert_eq!(list(&broker, -3, isolation).await, (2, 900, 0), "the first with the largest time");
        assert_eq!(list(&broker, -4, isolation).await, (0, -1, 0));
        assert_eq!(list(&broker, -5, isolation).await, (-1, -1, -1));
        assert_eq!(list(&broker, -6, isolation).await, (-1, -1, -1));
        for (time, found) in [
            (0, (0, 100, 0)),
            (100, (0, 100, 0)),
            (101, (1, 200, 0)),
            (201, (2, 900, 0)),
            (901, (-1, -1, -1)),
        ] {
            assert_eq!(list(&broker, time, isolation).await, found, "time {time}");
        }
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_another_epoch_are_fenced() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    fill(&broker, &topic, &[2], 10).await;
    broker.stop().await;
    // Each start begins a new epoch of the leader.
    let broker = start(&dir).await;
    fill(&broker, &topic, &[2], 10).await;
    let image = broker.server().broker.image();
    let epoch = image.partition("topic", PartitionIndex(0)).expect("it is there").leader_epoch;
    assert!(epoch > 0);
    for (current, expected) in [
        (-1, ErrorCode::None),
        (epoch, ErrorCode::None),
        (epoch - 1, ErrorCode::FencedLeaderEpoch),
        (epoch + 1, ErrorCode::UnknownLeaderEpoch),
    ] {
        let mut partition = fetch_partition(0, 0);
        partition.current_leader_epoch = current;
        let data = ask_for(&broker, fetch(18, &topic, vec![partition])).await;
        assert_eq!(ErrorCode::from_i16(data.error_code), Some(expected), "epoch {current}");
        let partition =
            ListOffsetsPartition { partition_index: 0, timestamp: -1, current_leader_epoch: current };
        let asked = ListOffsetsTopic { name: "topic".to_owned(), partitions: vec![partition] };
        let answer = broker.ask(&ListOffsetsRequest { topics: vec![asked], ..Default::default() }).await;
        assert_eq!(ErrorCode::from_i16(answer.topics[0].partitions[0].error_code), Some(expected));
    }
    // Records 2 and 3 are not of epoch 0: a reader that has them from there gets the end of that epoch.
    let mut partition = fetch_partition(0, 3);
    partition.last_fetched_epoch = 0;
    let data = ask_for(&broker, fetch(18, &topic, vec![partition])).await;
    assert_eq!((data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset), (0, 0, 2));
    assert_eq!(values(&data).len(), 0);
    assert_eq!(list(&broker, -1, 0).await, (4, -1, epoch));
    assert_eq!(list(&broker, -2, 0).await, (0, -1, 0));
    broker.stop().await;
}
