//! A producer for one topic, which takes messages as long as it has room.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use thalweg_client::{
    ClientError, Cluster, Delivery, Producer, ProducerConfig, ProducerRecord, SendError, Taken, TopicRef,
};
use thalweg_record::Header;
use thalweg_wire::ErrorCode;
use tokio::time::{Instant, sleep};

use super::failed;
use crate::message::Batch;
use crate::retry::Retry;
use crate::stage::StageError;

/// How long a cluster may not know a topic, which it may be about to create.
const UNKNOWN_TOPIC_MAX: Duration = Duration::from_secs(30);
/// How many messages are handed over while the senders stand still.
const MESSAGES_AT_ONCE: usize = 256;

/// Messages that there was no room for, from a place on.
pub struct Waiting {
    batch: Batch,
    from: usize,
    /// The number of the first message of the batch.
    number: u64,
}

impl Waiting {
    /// All messages of a batch, with numbers from this one on.
    pub fn new(batch: Batch, number: u64) -> Waiting {
        Waiting { batch, from: 0, number }
    }
}

/// A producer for a topic.
pub struct Outlet {
    producer: Producer,
    topic: TopicRef,
    with_headers: bool,
}

impl Outlet {
    /// Makes one for a topic that the cluster knows.
    pub async fn open(
        cluster: Cluster,
        config: ProducerConfig,
        topic: &str,
        with_headers: bool,
        report: impl FnMut(&Delivery<'_>) + Send + 'static,
    ) -> Result<Outlet, ClientError> {
        let mut producer = Producer::new(cluster, config, report);
        let topic = producer.topic(topic).await?;
        Ok(Outlet { producer, topic, with_headers })
    }

    /// The producer.
    pub fn producer(&mut self) -> &mut Producer {
        &mut self.producer
    }

    /// Hands messages over until there is no room. Whether there was room for all.
    pub fn hand_over(&mut self, waiting: &mut Waiting) -> Result<bool, SendError> {
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
                if sending.try_send(&record)? == Taken::Full {
                    return Ok(false);
                }
                waiting.from += 1;
            }
        }
        Ok(true)
    }
}

/// Waits until the cluster knows a topic, which it may create. A cluster that cannot be reached is tried again, for as long as
/// somebody waits, and the last reason is left in `trouble`.
pub async fn find_topic(
    cluster: &Cluster,
    topic: &str,
    trouble: &Mutex<Option<String>>,
) -> Result<(), StageError> {
    let mut retry = Retry::within(Duration::MAX);
    let mut unknown_since = None;
    loop {
        let error = match cluster.refresh(&[topic.to_owned()], true).await {
            Ok(metadata) => {
                let known = metadata.topics.get(topic);
                match known.map_or(Some(ErrorCode::UnknownTopicOrPartition), |known| known.error) {
                    None => return Ok(()),
                    Some(code) => {
                        let since = *unknown_since.get_or_insert_with(Instant::now);
                        if !code.is_retriable() || since.elapsed() > UNKNOWN_TOPIC_MAX {
                            return Err(failed(format!("Topic {topic}"), code));
                        }
                        code.to_string()
                    }
                }
            }
            Err(error) if error.is_retriable() => error.to_string(),
            Err(error) => return Err(failed(format!("Topic {topic}"), error)),
        };
        if trouble.lock().unwrap_or_else(PoisonError::into_inner).replace(error.clone()).is_none() {
            tracing::warn!(topic, error, "The cluster cannot be written to yet; it is tried again");
        }
        sleep(retry.failed(Instant::now()).unwrap_or_default()).await;
    }
}
