//! Settings of a producer.

use std::time::Duration;

use crate::compression::Compression;

/// Settings of a [`Producer`](crate::Producer). The defaults are those of Pulsar's Java client.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// `producerName`; the broker chooses a name if it is `None`.
    pub name: Option<String>,
    /// `batchingMaxMessages`: messages after which a batch is full. With 1, messages are sent alone.
    pub batch_messages_max: usize,
    /// `batchingMaxBytes`: bytes of messages after which a batch is full. A single message may be larger.
    pub batch_bytes_max: usize,
    /// `batchingMaxPublishDelay`: time that a batch waits for more messages.
    pub batch_delay: Duration,
    /// True if a batch takes messages of one key only, as for Key_Shared subscriptions (Java:
    /// `BatcherBuilder.KEY_BASED`, which fills a batch for each key at once; here the next key ends a batch).
    pub is_batch_per_key: bool,
    /// `compressionType`.
    pub compression: Compression,
    /// `sendTimeout`: time that a batch waits for its receipt, also across reconnections; `None` for as long
    /// as the producer lives.
    pub send_timeout: Option<Duration>,
    /// `memoryLimit`: bytes of messages that wait or are in flight. The caller waits if they are used up.
    pub pending_bytes_max: usize,
    /// `maxPendingMessages`: messages that wait or are in flight; `None` for no limit beside the bytes. Once
    /// one of the limits is reached, the open batch is sent at once; in Pulsar's Java client it waits for its
    /// delay.
    pub pending_messages_max: Option<usize>,
    /// `initialSequenceId`: sequence id before that of the first message. `None`: the last one that the
    /// broker knows of this name (it knows one with deduplication only).
    pub initial_sequence_id: Option<u64>,
}

impl Default for ProducerOptions {
    fn default() -> ProducerOptions {
        ProducerOptions {
            name: None,
            batch_messages_max: 1000,
            batch_bytes_max: 128 << 10,
            batch_delay: Duration::from_millis(1),
            is_batch_per_key: false,
            compression: Compression::None,
            send_timeout: Some(Duration::from_secs(30)),
            pending_bytes_max: 64 << 20,
            pending_messages_max: None,
            initial_sequence_id: None,
        }
    }
}
