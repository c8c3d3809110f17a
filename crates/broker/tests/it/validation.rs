//! Batches that no consumer could read: refused before they take an offset, with the codes of Kafka 4.3.1,
//! unless the topic trusts its producers.

use crate::raw::Raw;
use crate::records::{Topic, batch_at, fetched_bytes, get, produce, put, values};
use crate::running::RunningBroker;
use bytes::{Bytes, BytesMut};
use thalweg_record::{BatchHeader, BatchOptions, Compression, NO_TIMESTAMP, batches, crc};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::describe_configs_request::DescribeConfigsResource;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::produce_response::PartitionProduceResponse;
use thalweg_wire::request::*;

const T: i64 = 1_700_000_000_000;
const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
const VALIDATION: &str = "thalweg.produce.validation";

async fn start(dir: &tempfile::TempDir) -> RunningBroker {
    RunningBroker::start(dir.path(), &[("log.retention.ms", "-1")]).await
}

fn data() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn of(compression: Compression) -> BatchOptions {
    BatchOptions { compression, ..BatchOptions::default() }
}

/// A batch with another header or payload, and the length and CRC that fit it.
fn forged(batch: &[u8], payload: Option<&[u8]>, fields: &[(usize, &[u8])]) -> Bytes {
    let (head, own) = batch.split_at(BatchHeader::LEN);
    let mut forged = BytesMut::from(head);
    forged.extend_from_slice(payload.unwrap_or(own));
    let length = i32::try_from(forged.len() - 12).expect("small");
    forged[8..12].copy_from_slice(&length.to_be_bytes());
    for (at, bytes) in fields {
        forged[*at..*at + bytes.len()].copy_from_slice(bytes);
    }
    let sum = crc(&forged);
    forged[17..21].copy_from_slice(&sum.to_be_bytes());
    forged.freeze()
}

/// The same batch that claims `count` records.
fn recounted(batch: &[u8], payload: Option<&[u8]>, count: i32) -> Bytes {
    forged(batch, payload, &[(23, &(count - 1).to_be_bytes()), (57, &count.to_be_bytes())])
}

fn code(response: &PartitionProduceResponse) -> ErrorCode {
    ErrorCode::from_i16(response.error_code).expect("a known code")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_nobody_could_read_take_no_offset() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let noise: Vec<u8> = (0..32u8).map(|i| i.wrapping_mul(37).wrapping_add(11)).collect();
    let mut appended = 0;
    for codec in CODECS {
        let good = batch_at(T, &[b"a", b"b", b"c"], of(codec));
        let payload = &good[BatchHeader::LEN..];
        let hostile = [
            recounted(&good, Some(&noise), i32::MAX),
            recounted(&good, Some(&noise), 3),
            recounted(&good, None, i32::MAX),
            recounted(&good, None, 4),
            recounted(&good, None, 2),
            recounted(&good, Some(&payload[..payload.len() - 1]), 3),
            recounted(&good, Some(&[]), 3),
        ];
        for (index, batch) in hostile.into_iter().enumerate() {
            let answer = put(&broker, &topic, -1, batch).await;
            let got = (code(&answer), answer.base_offset);
            assert_eq!(got, (ErrorCode::InvalidRecord, -1), "{codec}, {index}: {:?}", answer.error_message);
        }
        let answer = put(&broker, &topic, -1, good).await;
        assert_eq!((code(&answer), answer.base_offset), (ErrorCode::None, appended), "{codec}");
        appended += 3;
    }
    assert_eq!(values(&get(&broker, &topic, 0).await).len(), 15);
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn max_timestamp_is_that_of_the_records() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    for codec in CODECS {
        let good = batch_at(T, &[b"a"], of(codec));
        for claimed in [NO_TIMESTAMP, T - 1, T + 1, i64::MAX] {
            let batch = forged(&good, None, &[(35, &claimed.to_be_bytes())]);
            let answer = put(&broker, &topic, -1, batch).await;
            assert_eq!(code(&answer), ErrorCode::None, "{codec}, {claimed}");
            let stored = fetched_bytes(&get(&broker, &topic, answer.base_offset).await);
            let header = batches(&stored).next().expect("a batch").expect("a whole one").header;
            assert_eq!(header.max_timestamp, T, "{codec}, {claimed}");
        }
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_too_old_for_64_bits_are_refused() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    for codec in CODECS {
        let answer = put(&broker, &topic, -1, batch_at(i64::MIN, &[b"a"], of(codec))).await;
        assert_eq!(code(&answer), ErrorCode::InvalidTimestamp, "{codec}");
        assert_eq!(answer.record_errors.iter().map(|error| error.batch_index).collect::<Vec<_>>(), [0]);
    }
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactional_batches_need_a_transactional_id() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let options = BatchOptions { transactional: true, ..BatchOptions::default() };
    let batch = batch_at(T, &[b"a"], options);
    for version in [3, 8, 13] {
        let request = produce(version, &topic, 0, -1, batch.clone());
        let response = broker.ask_at(&request, version).await;
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!(code(answer), ErrorCode::TransactionalIdAuthorizationFailed, "version {version}");
    }
    assert!(values(&get(&broker, &topic, 0).await).is_empty());
    broker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zstd_is_refused_from_clients_that_do_not_know_it() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    for (version, expected) in [
        (3, ErrorCode::UnsupportedCompressionType),
        (6, ErrorCode::UnsupportedCompressionType),
        (7, ErrorCode::None),
    ] {
        let request = produce(version, &topic, 0, -1, batch_at(T, &[b"a"], of(Compression::Zstd)));
        let response = broker.ask_at(&request, version).await;
        assert_eq!(code(&response.responses[0].partition_responses[0]), expected, "version {version}");
    }
    broker.stop().await;
}

async fn set_validation(broker: &RunningBroker, resource_type: i8, name: &str, value: &str) -> i16 {
    let config =
        AlterableConfig { name: VALIDATION.to_owned(), config_operation: 0, value: Some(value.to_owned()) };
    let resource =
        AlterConfigsResource { resource_type, resource_name: name.to_owned(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    broker.ask(&request).await.responses[0].error_code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_and_brokers_can_trust_their_producers_at_run_time() {
    const TOPIC: i8 = 2;
    const BROKER: i8 = 4;
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let opaque = recounted(&batch_at(T, &[b"a"], of(Compression::Gzip)), Some(b"nonsense"), 1);
    let put = async || code(&put(&broker, &topic, 1, opaque.clone()).await);
    assert_eq!(put().await, ErrorCode::InvalidRecord);
    assert_eq!(set_validation(&broker, TOPIC, "topic", "header").await, 0);
    assert_eq!(put().await, ErrorCode::None);
    assert_eq!(set_validation(&broker, TOPIC, "topic", "records").await, 0);
    assert_eq!(put().await, ErrorCode::InvalidRecord);
    assert_ne!(set_validation(&broker, TOPIC, "topic", "some").await, 0);
    // For all brokers; a topic with its own setting keeps it.
    assert_eq!(set_validation(&broker, BROKER, "", "header").await, 0);
    let other = Topic::create(&broker, "other", 1, &[]).await;
    assert_eq!(code(&crate::records::put(&broker, &other, 1, opaque.clone()).await), ErrorCode::None);
    assert_eq!(put().await, ErrorCode::InvalidRecord);

    let resource = DescribeConfigsResource {
        resource_type: TOPIC,
        resource_name: "topic".to_owned(),
        configuration_keys: Some(vec![VALIDATION.to_owned()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let described = broker.ask(&request).await.results.remove(0);
    assert_eq!(described.configs[0].value.as_deref(), Some("records"));
    assert!(!described.configs[0].read_only);
    broker.stop().await;
}

/// What takes long to look into is done aside, and in its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_batches_keep_the_order_of_their_connection() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let mut raw = Raw::connect(&broker).await;
    let large = batch_at(T, &[&vec![0; 6 << 20], b"large"], of(Compression::Lz4));
    let small = batch_at(T, &[b"small"], of(Compression::None));
    let mut sent = Vec::new();
    for records in [&small, &large, &small, &large, &small] {
        sent.push(raw.send(&produce(8, &topic, 0, -1, records.clone()), 8).await);
    }
    let mut offsets = Vec::new();
    for id in sent {
        let answer = raw.answer::<ProduceRequest>(id, 8).await.expect("an answer");
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(code(partition), ErrorCode::None, "{:?}", partition.error_message);
        offsets.push(partition.base_offset);
    }
    assert_eq!(offsets, [0, 1, 3, 4, 6]);
    broker.stop().await;
}

/// Kafka takes the last batch of such a request and answers once; here each is stored and answered, in its
/// turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_is_named_twice_gets_its_batches_in_order() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let large = batch_at(T, &[&vec![0; 6 << 20], b"large"], of(Compression::Lz4));
    let small = batch_at(T, &[b"small"], of(Compression::None));
    let mut request = produce(8, &topic, 0, -1, large.clone());
    for (position, records) in [small.clone(), large, small].into_iter().enumerate() {
        // Behind the first in its topic, and in topics of the same name.
        let mut more = produce(8, &topic, 0, -1, records).topic_data;
        match position {
            0 => request.topic_data[0].partition_data.append(&mut more[0].partition_data),
            _ => request.topic_data.append(&mut more),
        }
    }
    let answer = broker.ask_at(&request, 8).await;
    let parts = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
    let offsets: Vec<_> = parts.map(|part| (code(part), part.base_offset)).collect();
    assert_eq!(offsets, [0, 2, 3, 5].map(|offset| (ErrorCode::None, offset)));
    broker.stop().await;
}

/// A batch of some kilobytes whose only record is larger than any batch may become.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_becomes_too_large_is_refused_while_others_are_served() {
    let dir = data();
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let bomb = batch_at(T, &[&vec![0; 160 << 20]], of(Compression::Zstd));
    assert!(bomb.len() < 1 << 20);
    let mut raw = Raw::connect(&broker).await;
    let id = raw.send(&produce(8, &topic, 0, -1, bomb), 8).await;
    assert_eq!(
        code(&put(&broker, &topic, 1, batch_at(T, &[b"a"], of(Compression::None))).await),
        ErrorCode::None
    );
    let answer = raw.answer::<ProduceRequest>(id, 8).await.expect("an answer");
    assert_eq!(code(&answer.responses[0].partition_responses[0]), ErrorCode::RecordListTooLarge);
    assert_eq!(values(&get(&broker, &topic, 0).await), [(0, b"a".to_vec())]);
    broker.stop().await;
}
