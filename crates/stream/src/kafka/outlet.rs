//! A producer for one topic, which accepts messages as long as its buffer has room.

use thalweg_client::{
    AppendOutcome, ClientError, Cluster, Delivery, Producer, ProducerConfig, ProducerRecord, SendError,
    TopicRef,
};
use thalweg_record::Header;
use tokio::time::Instant;

use crate::clock;
use crate::message::Batch;
use crate::state::StateRecord;

/// Maximum number of messages handed over while the senders pause.
const MESSAGES_AT_ONCE: usize = 256;

/// Messages of a batch that the producer's buffer had no room for.
pub struct PendingMessages {
    batch: Batch,
    from: usize,
    /// The number of the first message of the batch.
    number: u64,
}

impl PendingMessages {
    /// All messages of a batch, with consecutive numbers from `number`.
    pub fn new(batch: Batch, number: u64) -> PendingMessages {
        PendingMessages { batch, from: 0, number }
    }

    /// Removes the first message. Returns it with its number.
    pub fn pop(&mut self) -> (u64, Batch) {
        let (number, message) = (self.number + self.from as u64, self.batch.single(self.from));
        self.from += 1;
        (number, message)
    }
}

/// A record of a stage's state was not taken.
#[derive(Debug, thiserror::Error)]
#[error("the state was not taken by {topic}: {reason}")]
pub struct StateNotSent {
    topic: String,
    reason: String,
}

/// A producer for a topic, and for the state of stages.
pub struct TopicProducer {
    producer: Producer,
    topic: TopicRef,
    with_headers: bool,
}

impl TopicProducer {
    /// Opens a producer for a topic that the cluster knows.
    pub async fn open(
        cluster: Cluster,
        config: ProducerConfig,
        topic: &str,
        with_headers: bool,
        report: impl FnMut(&Delivery<'_>) + Send + 'static,
    ) -> Result<TopicProducer, ClientError> {
        let mut producer = Producer::new(cluster, config, report);
        let topic = producer.topic(topic).await?;
        Ok(TopicProducer { producer, topic, with_headers })
    }

    /// The underlying producer.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Sends records of state, waiting for room. Call it in a transaction, whose commit has the outcome.
    pub async fn send_state(&mut self, records: &[StateRecord]) -> Result<(), StateNotSent> {
        for StateRecord { topic, partition, key, value } in records {
            let failed =
                |error: &dyn ToString| StateNotSent { topic: topic.to_string(), reason: error.to_string() };
            let topic = self.producer.topic(topic).await.map_err(|error| failed(&error))?;
            let record = ProducerRecord {
                topic,
                partition: Some(*partition),
                timestamp: clock::time_ms(),
                key: Some(key),
                value: value.as_deref(),
                headers: &[],
                sent_at: Instant::now(),
                number: 0,
            };
            self.producer.send(&record).await.map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// Hands messages over until the buffer is full. Returns true if all were handed over.
    pub fn hand_over(&mut self, waiting: &mut PendingMessages) -> Result<bool, SendError> {
        let sent_at = Instant::now();
        let mut headers = Vec::new();
        while waiting.from < waiting.batch.len() {
            let mut sending = self.producer.sending();
            for message in waiting.batch.messages().skip(waiting.from).take(MESSAGES_AT_ONCE) {
                headers.clear();
                if self.with_headers {
                    let of_message = message.headers.iter();
                    headers.extend(
                        of_message.map(|header| Header { key: header.name.as_bytes(), value: header.value }),
                    );
                }
                let record = ProducerRecord {
                    topic: self.topic,
                    partition: None,
                    timestamp: message.time_ms,
                    key: message.key,
                    value: (!message.is_null).then_some(message.value),
                    headers: &headers,
                    sent_at,
                    number: waiting.number + waiting.from as u64,
                };
                if sending.try_send(&record)? == AppendOutcome::Full {
                    return Ok(false);
                }
                waiting.from += 1;
            }
        }
        Ok(true)
    }
}
