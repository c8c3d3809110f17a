//! A producer's batches: acknowledged, refused with a reason, stamped, recompressed, detected as duplicates.

use crate::raw::Raw;
use crate::records::{Topic, batch, batch_at, fetched_bytes, get, produce, put, values};
use crate::running::RunningBroker;
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{
    BatchBuilder, BatchHeader, BatchOptions, Compression, Offset, ProducerEpoch, ProducerId, TimestampType,
    batches, check, crc,
};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::*;

async fn start(dir: &tempfile::TempDir) -> RunningBroker {
    RunningBroker::start(dir.path(), &[("log.retention.ms", "-1")]).await
}

fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Changes bytes of a batch and makes its CRC right again.
fn forged(records: &Bytes, at: usize, bytes: &[u8]) -> Bytes {
    let mut forged = BytesMut::from(&records[..]);
    forged[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = crc(&forged);
    forged[17..21].copy_from_slice(&sum.to_be_bytes());
    forged.freeze()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_nobody_can_read_are_no_failed_disk() {
    let dir = data();
    let broker = start(&dir).await;
    let trusted = [("thalweg.produce.validation", "header")];
    let topic = Topic::create(&broker, "topic", 1, &trusted).await;
    let options = BatchOptions { compression: Compression::Gzip, ..BatchOptions::default() };
    let packed = batch_at(1_700_000_000_000, &[b"x"], options);
    let opaque = forged(&packed, BatchHeader::LEN, &vec![0x77; packed.len() - BatchHeader::LEN]);
    assert_eq!(put(&broker, &topic, 1, opaque.clone()).await.error_code, 0, "its producer is trusted");
    assert_eq!(put(&broker, &topic, 1, batch_at(1_700_000_000_001, &[b"y"], options)).await.error_code, 0);
    let at = async |timestamp| {
        let partition = ListOffsetsPartition { partition_index: 0, timestamp, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: topic.name.clone(), partitions: vec![partition] }];
        let found = broker.ask(&ListOffsetsRequest { replica_id: -1, topics, ..Default::default() }).await;
        (found.topics[0].partitions[0].error_code, found.topics[0].partitions[0].offset)
    };
    assert_eq!(at(1_700_000_000_000).await, (ErrorCode::CorruptMessage.code(), -1));
    assert_eq!(at(1_700_000_000_001).await, (0, 1), "what comes behind is found");
    assert_eq!((at(-2).await, at(-1).await), ((0, 0), (0, 2)));
    assert!(
        fetched_bytes(&get(&broker, &topic, 0).await)[BatchHeader::LEN..]
            .starts_with(&opaque[BatchHeader::LEN..])
    );
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_acks_has_its_effect() {
    let dir = data();
    let broker = start(&dir).await;
    // More than there are replicas: no more than these can be asked for.
    let topic = Topic::create(&broker, "topic", 1, &[("min.insync.replicas", "2")]).await;
    for (acks, offset) in [(1, 0), (-1, 1)] {
        let put = put(&broker, &topic, acks, batch(&[b"x"])).await;
        assert_eq!(
            (put.error_code, put.base_offset, put.log_append_time_ms, put.log_start_offset),
            (0, offset, -1, 0)
        );
    }
    for acks in [2, -2, i16::MAX] {
        let put = put(&broker, &topic, acks, batch(&[b"x"])).await;
        assert_eq!((put.error_code, put.base_offset), (ErrorCode::InvalidRequiredAcks.code(), -1));
    }
    let mut raw = Raw::connect(&broker).await;
    raw.send(&produce(12, &topic, 0, 0, batch(&[b"unanswered"])), 12).await;
    assert!(raw.ask(&ApiVersionsRequest::default(), 0).await.is_some());
    assert_eq!(values(&get(&broker, &topic, 2).await), [(2, b"unanswered".to_vec())]);
    // The only way to report that it failed.
    raw.send(&produce(12, &Topic::unknown(), 0, 0, batch(&[b"x"])), 12).await;
    assert!(raw.is_closed_within(Duration::from_secs(30)).await);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refused_partition_does_not_fail_the_others() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 3, &[]).await;
    let mut request = produce(12, &topic, 0, -1, batch(&[b"first"]));
    let more = [
        produce(12, &topic, 1, -1, Bytes::from_static(b"no batch")),
        produce(12, &topic, 2, -1, batch(&[b"third"])),
    ];
    for other in more {
        request.topic_data[0]
            .partition_data
            .extend(other.topic_data.into_iter().flat_map(|t| t.partition_data));
    }
    request.topic_data.push(produce(12, &Topic::unknown(), 0, -1, batch(&[b"x"])).topic_data.remove(0));
    let answer = broker.ask_at(&request, 12).await;
    let codes: Vec<(i16, i64)> = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses)
        .map(|partition| (partition.error_code, partition.base_offset))
        .collect();
    let (invalid, unknown) = (ErrorCode::InvalidRecord.code(), ErrorCode::UnknownTopicOrPartition.code());
    assert_eq!(codes, [(0, 0), (invalid, -1), (0, 0), (unknown, -1)]);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_good_batch_is_refused_and_leaves_nothing() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[("max.message.bytes", "2000")]).await;
    let good = batch(&[b"one", b"two"]);
    let mut flipped = BytesMut::from(&good[..]);
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    let control = BatchOptions { control: true, ..BatchOptions::default() };
    let cases: &[(&str, Bytes, ErrorCode)] = &[
        ("a flipped bit", flipped.freeze(), ErrorCode::CorruptMessage),
        ("cut short", good.slice(..good.len() - 1), ErrorCode::InvalidRecord),
        ("two batches", [&good[..], &good[..]].concat().into(), ErrorCode::InvalidRecord),
        ("nothing", Bytes::new(), ErrorCode::InvalidRecord),
        ("an old magic", forged(&good, 16, &[1]), ErrorCode::InvalidRecord),
        ("an unknown magic", forged(&good, 16, &[3]), ErrorCode::CorruptMessage),
        ("an offset of its own", forged(&good, 0, &7i64.to_be_bytes()), ErrorCode::InvalidRecord),
        ("a wrong count", forged(&good, 57, &3i32.to_be_bytes()), ErrorCode::InvalidRecord),
        ("no records", forged(&good, 57, &0i32.to_be_bytes()), ErrorCode::InvalidRecord),
        ("a wrong last offset", forged(&good, 23, &5i32.to_be_bytes()), ErrorCode::InvalidRecord),
        ("an unknown codec", forged(&good, 21, &6i16.to_be_bytes()), ErrorCode::UnsupportedCompressionType),
        ("a control batch", batch_at(0, &[b"x"], control), ErrorCode::InvalidRecord),
        ("too large", batch(&[&[b'x'; 2000]]), ErrorCode::MessageTooLarge),
    ];
    for (what, records, expected) in cases {
        let put = put(&broker, &topic, -1, records.clone()).await;
        assert_eq!(ErrorCode::from_i16(put.error_code), Some(*expected), "{what}");
        assert_eq!((put.base_offset, put.log_append_time_ms), (-1, -1), "{what}");
        assert!(put.error_message.is_some(), "{what}: the client is told why");
    }
    let mut no_records = produce(12, &topic, 0, -1, good.clone());
    no_records.topic_data[0].partition_data[0].records = None;
    let answer = broker.ask_at(&no_records, 12).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::InvalidRecord.code());
    assert_eq!(put(&broker, &topic, -1, good).await.base_offset, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_topic_reports_records_without_a_key() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[("cleanup.policy", "compact")]).await;
    for compression in
        [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Gzip, Compression::Snappy]
    {
        let mut builder = BatchBuilder::new(BatchOptions { compression, ..BatchOptions::default() });
        for key in [Some(&b"k"[..]), None, Some(b"k"), None] {
            builder.append(5, key, Some(b"value"), &[]).expect("it fits");
        }
        let put = put(&broker, &topic, -1, builder.build()).await;
        assert_eq!(put.error_code, ErrorCode::InvalidRecord.code(), "{compression}");
        let bad: Vec<i32> = put.record_errors.iter().map(|error| error.batch_index).collect();
        assert_eq!(bad, [1, 3], "{compression}");
        assert!(put.record_errors.iter().all(|error| error.batch_index_error_message.is_some()));
    }
    let mut builder = BatchBuilder::new(BatchOptions::default());
    builder.append(5, Some(b"k"), None, &[]).expect("it fits");
    assert_eq!(put(&broker, &topic, -1, builder.build()).await.error_code, 0);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_topic_decides_whose_time_counts() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "appended", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let before = broker.server().broker.clock.now_ms();
    for compression in [Compression::None, Compression::Zstd] {
        let records = batch_at(5, &[b"a", b"b"], BatchOptions { compression, ..BatchOptions::default() });
        let put = put(&broker, &topic, -1, records).await;
        assert_eq!(put.error_code, 0);
        assert!(put.log_append_time_ms >= before, "the broker's time is told");
        let stored = fetched_bytes(&get(&broker, &topic, put.base_offset).await);
        let header = BatchHeader::parse(&stored).expect("a batch");
        assert_eq!(header.attributes.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!(header.max_timestamp, put.log_append_time_ms);
        assert_eq!(header.crc, crc(&stored), "and the sum is right again");
    }

    let bounds = [("message.timestamp.before.max.ms", "10000"), ("message.timestamp.after.max.ms", "10000")];
    let topic = Topic::create(&broker, "bounded", 1, &bounds).await;
    let now = broker.server().broker.clock.now_ms();
    for (timestamp, good) in [(now, true), (now - 60_000, false), (now + 60_000, false), (now - 2000, true)] {
        for compression in [Compression::None, Compression::Gzip] {
            let records =
                batch_at(timestamp, &[b"a"], BatchOptions { compression, ..BatchOptions::default() });
            let put = put(&broker, &topic, -1, records).await;
            let expected = if good { 0 } else { ErrorCode::InvalidTimestamp.code() };
            assert_eq!(put.error_code, expected, "{} ms from now", timestamp - now);
            assert_eq!(put.record_errors.len(), usize::from(!good));
        }
    }
    // An hour ahead is the default.
    let topic = Topic::create(&broker, "default", 1, &[]).await;
    for (ahead, expected) in [(50 * 60_000, ErrorCode::None), (70 * 60_000, ErrorCode::InvalidTimestamp)] {
        let records = batch_at(now + ahead, &[b"a"], BatchOptions::default());
        assert_eq!(put(&broker, &topic, -1, records).await.error_code, expected.code());
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_kept_as_they_come_unless_the_topic_wants_another_codec() {
    let dir = data();
    let broker = start(&dir).await;
    let all =
        [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    let value = vec![b'v'; 3000];
    for wanted in ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] {
        let topic = Topic::create(&broker, wanted, 1, &[("compression.type", wanted)]).await;
        for compression in all {
            let options = BatchOptions {
                compression,
                producer_id: ProducerId(i64::from(compression.id())),
                producer_epoch: ProducerEpoch(3),
                base_sequence: 7,
                ..BatchOptions::default()
            };
            let sent = batch_at(1_700_000_000_123, &[b"a", &value, b"c"], options);
            let put = put(&broker, &topic, -1, sent.clone()).await;
            assert_eq!(put.error_code, 0, "{compression} to {wanted}");
            let data = get(&broker, &topic, put.base_offset).await;
            let stored = fetched_bytes(&data);
            let header = check_stored(&stored);
            let expected = match wanted {
                "producer" => compression,
                "uncompressed" => Compression::None,
                name => Compression::from_name(name).expect("a codec"),
            };
            assert_eq!(header.attributes.compression().ok(), Some(expected), "{compression} to {wanted}");
            assert_eq!((header.producer_epoch, header.base_sequence), (ProducerEpoch(3), 7));
            assert_eq!((header.max_timestamp, header.record_count), (1_700_000_000_123, 3));
            if expected == compression {
                assert_eq!(stored[21..], sent[21..], "not a byte is changed");
            }
            let offset = put.base_offset;
            assert_eq!(
                values(&data),
                [(offset, b"a".to_vec()), (offset + 1, value.clone()), (offset + 2, b"c".to_vec())]
            );
        }
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_grows_without_its_codec_is_measured_as_it_would_be_stored() {
    let dir = data();
    let broker = start(&dir).await;
    let configs = [("compression.type", "uncompressed"), ("max.message.bytes", "5000")];
    let topic = Topic::create(&broker, "topic", 1, &configs).await;
    for (bytes, expected) in [(4000, ErrorCode::None), (100_000, ErrorCode::MessageTooLarge)] {
        let options = BatchOptions { compression: Compression::Zstd, ..BatchOptions::default() };
        let records = batch_at(1_700_000_000_000, &[&vec![b'v'; bytes]], options);
        assert!(records.len() < 1000);
        let put = put(&broker, &topic, -1, records).await;
        assert_eq!(ErrorCode::from_i16(put.error_code), Some(expected), "{bytes}");
    }
    broker.stop().await;
}

/// The header of the first batch, which must be whole and sound.
fn check_stored(stored: &Bytes) -> BatchHeader {
    let header = batches(stored).next().expect("a batch").expect("a whole one").header;
    let mut first = BytesMut::from(&stored[..header.size_bytes()]);
    // The fields that the broker writes are not the producer's to set.
    first[..8].copy_from_slice(&0i64.to_be_bytes());
    check(&first).expect("a sound batch")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_sent_again_is_not_stored_again() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let request = InitProducerIdRequest { transactional_id: None, ..Default::default() };
    let id = ProducerId(broker.ask(&request).await.producer_id);
    let of = |epoch: i16, sequence: i32| {
        let producer_epoch = ProducerEpoch(epoch);
        let options = BatchOptions {
            producer_id: id,
            producer_epoch,
            base_sequence: sequence,
            ..BatchOptions::default()
        };
        batch_at(1, &[b"a", b"b"], options)
    };
    for number in 0..6 {
        let put = put(&broker, &topic, -1, of(0, 2 * number)).await;
        assert_eq!((put.error_code, put.base_offset), (0, 2 * i64::from(number)));
    }
    for number in 1..6 {
        let put = put(&broker, &topic, -1, of(0, 2 * number)).await;
        assert_eq!((put.error_code, put.base_offset), (0, 2 * i64::from(number)), "one of the last five");
    }
    let out_of_order = ErrorCode::OutOfOrderSequenceNumber;
    for (epoch, sequence, expected) in [
        (0, 0, out_of_order),
        (0, 14, out_of_order),
        (0, 11, out_of_order),
        (1, 5, out_of_order),
        (1, 0, ErrorCode::None),
        (0, 12, ErrorCode::InvalidProducerEpoch),
        (1, 2, ErrorCode::None),
    ] {
        let put = put(&broker, &topic, -1, of(epoch, sequence)).await;
        assert_eq!(ErrorCode::from_i16(put.error_code), Some(expected), "epoch {epoch}, sequence {sequence}");
    }
    let partition = broker.server().broker.partitions.get("topic", PartitionIndex(0)).expect("it is there");
    assert_eq!(partition.published_offsets().log_end_offset(), Offset(16), "nothing is there twice");
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_of_the_broker_itself_are_not_for_producers() {
    let dir = data();
    let broker = start(&dir).await;
    broker
        .ask(&FindCoordinatorRequest { coordinator_keys: vec!["g".to_owned()], ..Default::default() })
        .await;
    let mut request = produce(12, &Topic::unknown(), 0, -1, batch(&[b"x"]));
    request.topic_data[0].name = "__consumer_offsets".to_owned();
    let answer = broker.ask_at(&request, 12).await;
    assert_eq!(
        answer.responses[0].partition_responses[0].error_code,
        ErrorCode::InvalidTopicException.code()
    );
    broker.stop().await;
}
