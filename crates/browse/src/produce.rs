//! Sends one message on behalf of a person.

use std::sync::Arc;

use parking_lot::Mutex;
use thalweg_client::{
    ClientError, Cluster, Delivery, DeliveryError, Producer, ProducerConfig, ProducerRecord, SendError,
};
use thalweg_record::{Header, Offset};
use tokio::time::Instant;

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewMessage {
    /// The name of an existing topic.
    pub topic: String,
    /// The partition. By default, the key or the producer selects one.
    pub partition: Option<i32>,
    /// The key; none for a null key.
    pub key: Option<Vec<u8>>,
    /// The value; none for a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// The timestamp in milliseconds since 1970.
    pub timestamp: i64,
}

/// The position of a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePosition {
    /// The partition index.
    pub partition: i32,
    /// The offset of the record.
    pub offset: Offset,
}

/// The reason why a message was not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProduceError {
    /// The topic's metadata is not available.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The producer rejected the message.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The delivery failed.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
}

/// Sends a message and waits for the acknowledgement. `config` sets the acknowledgements and timeouts.
pub async fn produce(
    cluster: Cluster,
    config: ProducerConfig,
    message: &NewMessage,
) -> Result<MessagePosition, ProduceError> {
    cluster.wait_for_topic(&message.topic, false, std::time::Duration::ZERO).await?;
    let outcome = Arc::<Mutex<Option<Result<MessagePosition, DeliveryError>>>>::default();
    let reported = Arc::clone(&outcome);
    let mut producer = Producer::new(cluster, config, move |delivery: &Delivery<'_>| {
        let produced =
            delivery.result.map(|offset| MessagePosition { partition: delivery.partition, offset });
        *reported.lock() = Some(produced.map_err(Clone::clone));
    });
    let topic = producer.topic(&message.topic).await?;
    let headers: Vec<Header<'_>> =
        message.headers.iter().map(|(name, value)| Header::new(name, value.as_deref())).collect();
    let record = ProducerRecord {
        topic,
        partition: message.partition,
        timestamp: message.timestamp,
        key: message.key.as_deref(),
        value: message.value.as_deref(),
        headers: &headers,
        sent_at: Instant::now(),
        number: 0,
    };
    producer.send(&record).await?;
    producer.close().await;
    let outcome = outcome.lock().take();
    Ok(outcome.expect("a closed producer has reported every record")?)
}
