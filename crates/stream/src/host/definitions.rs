//! The topic of definitions: one partition, compacted, keyed by stream name. This topic is the source of
//! truth for hosted streams: every host reads the topic from the beginning, follows it, and acts on its
//! records.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use thalweg_client::{
    Chunk, ClientError, Cluster, Consumer, ConsumerConfig, Delivery, OffsetSpec, PollEvent, Producer,
    ProducerConfig, ProducerRecord, RefusedRequest, StartAt, TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::CreateTopicsRequest;
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use tokio::time::Instant;

use crate::{clock, kafka};

/// Name of the topic.
pub const TOPIC: &str = "__stream_definitions";
/// Replication factor of the topic, if the cluster has enough brokers.
const REPLICAS: usize = 3;
/// Timeout for creating the topic.
const CREATE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for writing a record, and for finding the end of the topic.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The rights that brokers require of a writer of definitions.
const NEEDED: &str = "the login of the host needs ALTER on the cluster, and READ and WRITE on this topic";

/// The topic cannot be read or written.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{TOPIC}: {reason}")]
pub struct DefinitionsUnavailable {
    pub reason: String,
}

fn unavailable(error: impl ToString) -> DefinitionsUnavailable {
    DefinitionsUnavailable { reason: error.to_string() }
}

/// A record of the topic.
pub struct DefinitionRecord {
    /// The name of the stream.
    pub name: String,
    /// The stream's definition; `None` if destroyed.
    pub value: Option<Vec<u8>>,
    /// The offset of the record.
    pub offset: Offset,
}

/// Connects, and creates the topic if it is missing.
pub async fn connect(to: &crate::Cluster) -> Result<Cluster, DefinitionsUnavailable> {
    let (bootstrap, options) = to.connection("thalweg-streams").map_err(unavailable)?;
    let cluster = Cluster::connect(&bootstrap, &options).await.map_err(unavailable)?;
    create(&cluster).await.map_err(unavailable)?;
    Ok(cluster)
}

async fn create(cluster: &Cluster) -> Result<(), ClientError> {
    let metadata = cluster.refresh(&[TOPIC.to_owned()], false).await?;
    let is_there = metadata.topics.get(TOPIC).is_some_and(|topic| topic.error.is_none());
    if !is_there {
        let replicas = metadata.brokers.len().clamp(1, REPLICAS) as i16;
        let config = |name: &str, value: &str| CreatableTopicConfig {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        };
        let topic = CreatableTopic {
            name: TOPIC.to_owned(),
            num_partitions: 1,
            replication_factor: replicas,
            configs: vec![config("cleanup.policy", "compact")],
            ..CreatableTopic::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: CREATE_TIMEOUT.as_millis() as i32,
            validate_only: false,
        };
        for created in cluster.send_controller(&request).await?.topics {
            // Another host created it first.
            if created.error_code != ErrorCode::TopicAlreadyExists.code() {
                let what = || format!("Creating the topic {TOPIC}");
                RefusedRequest::check(created.error_code, created.error_message.as_deref(), what)?;
            }
        }
    }
    cluster.wait_for_topic(TOPIC, false, CREATE_TIMEOUT).await?;
    Ok(())
}

fn partition() -> TopicPartition {
    TopicPartition::new(TOPIC, 0)
}

/// The offset after the last committed record.
pub async fn end(cluster: &Cluster) -> Result<Offset, DefinitionsUnavailable> {
    let requested = async {
        cluster.refresh(&[TOPIC.to_owned()], false).await.map_err(unavailable)?;
        let found = cluster.list_offsets(&[(partition(), OffsetSpec::Latest)], false).await;
        match found.into_values().next() {
            Some(found) => found.map(|listed| listed.offset).map_err(unavailable),
            None => Err(unavailable("the broker did not return its end offset")),
        }
    };
    match tokio::time::timeout(ANSWER_TIMEOUT, requested).await {
        Ok(found) => found,
        Err(_elapsed) => Err(unavailable(format!("no answer within {ANSWER_TIMEOUT:?}"))),
    }
}

/// Reads the topic from the beginning.
pub struct DefinitionReader {
    consumer: Consumer,
    buffer: DecompressBuffer,
}

impl DefinitionReader {
    /// Starts at the beginning of the topic.
    pub async fn begin(cluster: Cluster) -> Result<DefinitionReader, DefinitionsUnavailable> {
        let config = ConsumerConfig { create_topics: false, ..ConsumerConfig::default() };
        let mut consumer = Consumer::new(cluster, config);
        let from = StartAt::Spec(OffsetSpec::Earliest);
        consumer.assign(vec![(partition(), from)]).await.map_err(unavailable)?;
        Ok(DefinitionReader { consumer, buffer: DecompressBuffer::default() })
    }

    /// The next records and the offset after them; nothing if none arrive within `within`.
    pub async fn next(
        &mut self,
        within: Duration,
    ) -> Result<Option<(Vec<DefinitionRecord>, Offset)>, DefinitionsUnavailable> {
        match self.consumer.poll(within).await.map_err(unavailable)? {
            PollEvent::Chunk(chunk) => Ok(Some((self.read(&chunk)?, chunk.next))),
            _ => Ok(None),
        }
    }

    /// The start position.
    pub fn position(&self) -> Option<Offset> {
        self.consumer.position(&partition())
    }

    fn read(&mut self, chunk: &Chunk) -> Result<Vec<DefinitionRecord>, DefinitionsUnavailable> {
        let mut records = Vec::new();
        let read = chunk.for_each(&mut self.buffer, |record| {
            let name = String::from_utf8_lossy(record.key.unwrap_or_default()).into_owned();
            records.push(DefinitionRecord {
                name,
                value: record.value.map(<[u8]>::to_vec),
                offset: record.offset,
            });
            ControlFlow::Continue(())
        });
        read.map_err(unavailable)?;
        Ok(records)
    }
}

/// Writes records to the topic, one at a time.
pub struct DefinitionWriter {
    producer: Producer,
    topic: thalweg_client::TopicRef,
    /// The delivery result of the record.
    ended: Arc<Mutex<Option<Result<Offset, String>>>>,
}

impl DefinitionWriter {
    /// Connects the producer.
    pub async fn new(cluster: Cluster) -> Result<DefinitionWriter, DefinitionsUnavailable> {
        let config = ProducerConfig {
            connection: cluster.options().clone(),
            linger: Duration::ZERO,
            delivery_timeout: ANSWER_TIMEOUT,
            max_block: ANSWER_TIMEOUT,
            ..ProducerConfig::default()
        };
        let ended: Arc<Mutex<Option<Result<Offset, String>>>> = Arc::default();
        let report = Arc::clone(&ended);
        let mut producer = Producer::new(cluster, config, move |delivery: &Delivery<'_>| {
            let result = delivery.result.map_err(ToString::to_string);
            *report.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(result);
        });
        let topic = producer.topic(TOPIC).await.map_err(unavailable)?;
        Ok(DefinitionWriter { producer, topic, ended })
    }

    /// Writes a record, waits until all in-sync replicas have it, and returns its offset.
    pub async fn write(
        &mut self,
        name: &str,
        value: Option<&[u8]>,
    ) -> Result<Offset, DefinitionsUnavailable> {
        self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        let record = ProducerRecord {
            topic: self.topic,
            partition: Some(0),
            timestamp: clock::time_ms(),
            key: Some(name.as_bytes()),
            value,
            headers: &[],
            sent_at: Instant::now(),
            number: 0,
        };
        self.producer.send(&record).await.map_err(unavailable)?;
        self.producer.flush().await;
        let ended = self.ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        ended.unwrap_or_else(|| Err("the record was not sent".to_owned())).map_err(|error| {
            let is_denied = error.contains(kafka::DENIED);
            unavailable(if is_denied { format!("{error}: {NEEDED}") } else { error })
        })
    }
}
