//! The outlet to a topic: records are produced like a client's, here or to the leader over the inter-broker
//! listener.
//!
//! The broker's own requests need no permission, and therefore make no events.

use crate::api::{OWN_PRODUCE_VERSION, create_own_topic, produce_own};
use crate::broker::Broker;
use std::sync::{Arc, Weak};
use std::time::Duration;
use thalweg_audit::{Batch, Inbox};
use thalweg_dial::Connection;
use thalweg_membership::PeerError;
use thalweg_metadata::{BrokerId, PartitionIndex};
use thalweg_record::{BatchBuilder, BatchOptions};
use thalweg_wire::request::produce_request::{PartitionProduceData, TopicProduceData};
use thalweg_wire::request::{ProduceRequest, ProduceResponse};
use thalweg_wire::{ErrorCode, Records};
use tokio::time::{Instant, sleep, timeout};

/// Time after which an unwritten batch is dropped.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);
/// The pause before another attempt.
const AGAIN: Duration = Duration::from_millis(250);
/// Timeout of a leader's answer.
const TIMEOUT_MS: i32 = 5000;
/// Bytes of records in one batch: less than topics allow by default.
const BATCH_BYTES: usize = 512 * 1024;
/// Interval of log lines about failures.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// A failure to write events to the topic.
#[derive(Debug, thiserror::Error)]
enum TopicError {
    #[error("the topic does not exist, and could not be created")]
    Missing,
    #[error("no partition has a leader")]
    NoLeader,
    #[error("the leader answers {0}")]
    Refused(ErrorCode),
    #[error("the records could not be produced: {0}")]
    Unanswered(String),
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("it takes more than {WRITTEN_WITHIN:?}")]
    TooSlow,
}

/// Writes events to a topic.
pub(super) struct TopicWriter {
    broker: Weak<Broker>,
    name: String,
    /// The connection to a leader on another broker.
    leader: Option<(BrokerId, Connection)>,
}

impl TopicWriter {
    pub fn new(broker: Weak<Broker>, name: &str) -> TopicWriter {
        TopicWriter { broker, name: name.to_owned(), leader: None }
    }

    /// Writes the events of the inbox until the trail is closed or the broker is dropped. A failure drops
    /// only a batch.
    pub async fn run(mut self, mut inbox: Inbox) {
        let mut failed_at: Option<Instant> = None;
        while let Some(batch) = inbox.next().await {
            let Some(broker) = self.broker.upgrade() else { return };
            let mut last = TopicError::TooSlow;
            match timeout(WRITTEN_WITHIN, self.write(&broker, &batch, &mut last)).await {
                Ok(()) => {
                    batch.written();
                    if failed_at.take().is_some() {
                        tracing::info!(topic = self.name, "The audit topic can be written again");
                    }
                }
                Err(_) => {
                    batch.unwritten();
                    if failed_at.is_none_or(|at| at.elapsed() >= LOGGED_EVERY) {
                        failed_at = Some(Instant::now());
                        let topic = &self.name;
                        tracing::error!(topic, error = %last, "Failed to write the audit topic; events are dropped");
                    }
                }
            }
        }
    }

    /// Retries until all records are written or the time is over.
    async fn write(&mut self, broker: &Arc<Broker>, batch: &Batch, last: &mut TopicError) {
        for records in records(batch, broker.clock.now_ms()) {
            while let Err(error) = self.produce(broker, &records).await {
                self.leader = None;
                *last = error;
                sleep(AGAIN).await;
            }
        }
    }

    async fn produce(&mut self, broker: &Arc<Broker>, records: &Records) -> Result<(), TopicError> {
        let (index, leader) = self.partition(broker).await?;
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: TIMEOUT_MS,
            topic_data: vec![TopicProduceData {
                name: self.name.clone(),
                partition_data: vec![PartitionProduceData { index: index.0, records: Some(records.clone()) }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = match leader == broker.node_id {
            true => produce_own(broker, request).await.map_err(TopicError::Unanswered)?,
            false => self.produce_to(broker, leader, &request).await?,
        };
        let mut entries = answer.responses.iter().flat_map(|topic| &topic.partition_responses);
        match entries.next().map(|entry| entry.error_code) {
            Some(0) => Ok(()),
            code => {
                let code = code.and_then(ErrorCode::from_i16).unwrap_or(ErrorCode::UnknownServerError);
                Err(TopicError::Refused(code))
            }
        }
    }

    async fn produce_to(
        &mut self,
        broker: &Broker,
        leader: BrokerId,
        request: &ProduceRequest,
    ) -> Result<ProduceResponse, TopicError> {
        let connection = match self.leader.take() {
            Some((known, connection)) if known == leader => connection,
            _ => broker.peers.connect(leader, "audit", WRITTEN_WITHIN).await?,
        };
        let answer = connection.send_at(request, OWN_PRODUCE_VERSION).await;
        let answer = answer.map_err(|error| TopicError::Unanswered(error.to_string()))?;
        self.leader = Some((leader, connection));
        Ok(answer)
    }

    /// A partition with its leader, preferably led by this broker.
    async fn partition(&self, broker: &Arc<Broker>) -> Result<(PartitionIndex, BrokerId), TopicError> {
        if broker.image().topic(&self.name).is_none() {
            create_own_topic(broker, &self.name).await;
        }
        let image = broker.image();
        let topic = image.topic(&self.name).ok_or(TopicError::Missing)?;
        let led = topic.partitions.iter().filter(|(_, partition)| partition.has_leader());
        let led = led.map(|(index, partition)| (*index, partition.leader));
        led.min_by_key(|(_, leader)| *leader != broker.node_id).ok_or(TopicError::NoLeader)
    }
}

/// The lines as batches of records.
fn records(batch: &Batch, now_ms: i64) -> Vec<Records> {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    let mut built = Vec::new();
    for line in batch.lines() {
        if !builder.is_empty() && builder.size_estimate() + line.len() > BATCH_BYTES {
            built.push(Records::Inline(builder.build()));
        }
        builder.append(now_ms, None, Some(&line), &[]).expect("a batch has room for a line");
    }
    if !builder.is_empty() {
        built.push(Records::Inline(builder.build()));
    }
    built
}
