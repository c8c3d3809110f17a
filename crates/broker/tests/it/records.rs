//! Topics, batches, and the requests that carry them, at any version.

use crate::running::RunningBroker;
use bytes::Bytes;
use std::time::Duration;
use thalweg_record::{BatchBuilder, BatchOptions, DecompressBuffer, batches};
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::create_topics_response::CreatableTopicResult;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic};
use thalweg_wire::request::fetch_response::PartitionData;
use thalweg_wire::request::metadata_request::MetadataRequestTopic;
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::produce_response::PartitionProduceResponse;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Records, Uuid};
use tokio::time::Instant;

/// A topic by both of its names: which of them a request carries depends on its version.
#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub id: Uuid,
}

impl Topic {
    /// Creates a topic on this broker, and waits until the broker knows it: on a busy machine, this may be
    /// after the answer.
    pub async fn create(
        broker: &RunningBroker,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> Topic {
        let created = Topic::ask(broker, name, partitions, configs).await;
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        Topic::known(broker, name).await
    }

    /// As [`Topic::create`], while controllers die. A controller may die between the record of the topic and
    /// its answer; the broker then asks the next one, which says that the topic exists, in Apache Kafka too.
    pub async fn create_through_failover(broker: &RunningBroker, name: &str, partitions: i32) -> Topic {
        let created = Topic::ask(broker, name, partitions, &[]).await;
        let accepted = [ErrorCode::None, ErrorCode::TopicAlreadyExists].map(ErrorCode::code);
        assert!(accepted.contains(&created.error_code), "{:?}", created.error_message);
        Topic::known(broker, name).await
    }

    async fn ask(
        broker: &RunningBroker,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> CreatableTopicResult {
        let configs = configs.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let topic = CreatableTopic {
            name: name.to_owned(),
            num_partitions: partitions,
            replication_factor: 1,
            configs: configs.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, ..Default::default() };
        broker.ask(&request).await.topics.remove(0)
    }

    /// A topic that was created, as soon as this broker knows it.
    async fn known(broker: &RunningBroker, name: &str) -> Topic {
        let asked = MetadataRequestTopic { name: Some(name.to_owned()), ..Default::default() };
        let metadata = MetadataRequest { topics: Some(vec![asked]), ..Default::default() };
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let known = broker.ask(&metadata).await.topics.remove(0);
            if known.error_code == 0 && known.partitions.iter().all(|partition| partition.error_code == 0) {
                return Topic { name: name.to_owned(), id: known.topic_id };
            }
            assert!(Instant::now() < deadline, "{name} was created, and is not known after 30 s");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// A topic that no broker has.
    pub fn unknown() -> Topic {
        Topic { name: "unknown".to_owned(), id: Uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef) }
    }

    /// The name in versions that identify topics by name, up to `last_by_name`; otherwise empty.
    pub fn name_until(&self, last_by_name: i16, version: i16) -> String {
        if version <= last_by_name { self.name.clone() } else { String::new() }
    }

    /// As [`Topic::name_until`], the id.
    pub fn id_after(&self, last_by_name: i16, version: i16) -> Uuid {
        if version <= last_by_name { Uuid::ZERO } else { self.id }
    }
}

/// A batch with these values, in the options' codec and of their producer, with one timestamp and no keys.
pub fn batch_at(timestamp: i64, values: &[&[u8]], options: BatchOptions) -> Bytes {
    let mut builder = BatchBuilder::new(options);
    for value in values {
        builder.append(timestamp, None, Some(value), &[]).expect("it fits");
    }
    builder.build()
}

/// A plain batch with these values.
pub fn batch(values: &[&[u8]]) -> Bytes {
    batch_at(1_700_000_000_000, values, BatchOptions::default())
}

/// A request to produce one batch to one partition.
pub fn produce(version: i16, topic: &Topic, partition: i32, acks: i16, records: Bytes) -> ProduceRequest {
    let data = PartitionProduceData { index: partition, records: Some(Records::Inline(records)) };
    let topic = TopicProduceData {
        name: topic.name_until(12, version),
        topic_id: topic.id_after(12, version),
        partition_data: vec![data],
    };
    ProduceRequest { acks, timeout_ms: 5000, topic_data: vec![topic], ..Default::default() }
}

/// One partition of a fetch, from this offset on.
pub fn fetch_partition(partition: i32, fetch_offset: i64) -> FetchPartition {
    FetchPartition { partition, fetch_offset, partition_max_bytes: 1 << 20, ..Default::default() }
}

/// A fetch that does not wait, of these partitions of a topic, without a session.
pub fn fetch(version: i16, topic: &Topic, partitions: Vec<FetchPartition>) -> FetchRequest {
    let topic = FetchTopic {
        topic: topic.name_until(12, version),
        topic_id: topic.id_after(12, version),
        partitions,
    };
    FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

/// Produces one batch at the newest version, and gives the answer for its partition.
pub async fn put(
    broker: &RunningBroker,
    topic: &Topic,
    acks: i16,
    records: Bytes,
) -> PartitionProduceResponse {
    let mut response = broker.ask(&produce(13, topic, 0, acks, records)).await;
    response.responses.remove(0).partition_responses.remove(0)
}

/// Fetches from partition 0 at the newest version, and gives the answer for it.
pub async fn get(broker: &RunningBroker, topic: &Topic, offset: i64) -> PartitionData {
    ask_for(broker, fetch(18, topic, vec![fetch_partition(0, offset)])).await
}

/// The answer for the only partition of a fetch.
pub async fn ask_for(broker: &RunningBroker, request: FetchRequest) -> PartitionData {
    let mut response = broker.ask(&request).await;
    assert_eq!(response.error_code, 0, "the fetch as a whole");
    response.responses.remove(0).partitions.remove(0)
}

/// The bytes of the batches of an answer.
pub fn fetched_bytes(data: &PartitionData) -> Bytes {
    match &data.records {
        Some(Records::Inline(bytes)) => bytes.clone(),
        other => panic!("records are never null or elsewhere: {other:?}"),
    }
}

/// Offsets and values of all records of an answer.
pub fn values(data: &PartitionData) -> Vec<(i64, Vec<u8>)> {
    values_of(&fetched_bytes(data))
}

/// Offsets and values of all records in these batches.
pub fn values_of(bytes: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let mut buffer = DecompressBuffer::default();
    let mut found = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.expect("whole batches");
        for record in batch.records(&mut buffer).expect("readable records") {
            let record = record.expect("a readable record");
            found.push((record.offset.0, record.value.unwrap_or_default().to_vec()));
        }
    }
    found
}
