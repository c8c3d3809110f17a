//! A producer for one topic, which takes messages as long as it has room.

use thalweg_client::{
    ClientError, Cluster, Delivery, Producer, ProducerConfig, ProducerRecord, SendError, Taken, TopicRef,
};
use thalweg_record::Header;
use tokio::time::Instant;

use crate::message::Batch;

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
