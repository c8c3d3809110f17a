//! Messages on their way into the payload of an entry.
//!
//! The payload of a batch has, for each message, the size of its metadata (four bytes), its metadata and its
//! payload. A batch of one message is sent as that message alone, as by Pulsar's Java client.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::time::Instant;

use super::error::MessageTooLarge;
use super::receipt::{BatchOutcome, SendReceipt};
use crate::clock;
use crate::compression::{Compression, Compressor};
use crate::frame::{self, LENGTH_LEN, PayloadFrame};
use crate::protocol::{Command, KeyValue, MessageMetadata, SendCommand, SingleMessageMetadata};

/// A message to send. A byte slice is one without key and properties.
#[derive(Clone, Copy, Default, Debug)]
pub struct OutgoingMessage<'a> {
    pub payload: &'a [u8],
    /// By which Key_Shared subscriptions choose the consumer.
    pub key: Option<&'a str>,
    /// Milliseconds since 1970, by the application's meaning.
    pub event_time_ms: Option<u64>,
    /// Milliseconds since 1970 in place of the wall clock's, for the publish time of a batch that begins with
    /// this message: an application may have another clock.
    pub publish_time_ms: Option<u64>,
    /// Names and values.
    pub properties: &'a [(&'a str, &'a str)],
}

impl<'a> From<&'a [u8]> for OutgoingMessage<'a> {
    fn from(payload: &'a [u8]) -> OutgoingMessage<'a> {
        OutgoingMessage { payload, ..OutgoingMessage::default() }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for OutgoingMessage<'a> {
    fn from(payload: &'a [u8; N]) -> OutgoingMessage<'a> {
        OutgoingMessage::from(&payload[..])
    }
}

impl OutgoingMessage<'_> {
    /// Fails for a message that is too large whatever its codec.
    pub(super) fn check(
        &self,
        compression: Compression,
        message_bytes_max: usize,
    ) -> Result<(), MessageTooLarge> {
        if compression == Compression::None {
            check_size(self.payload.len(), message_bytes_max)?;
        }
        let properties: usize = self.properties.iter().map(|(key, value)| key.len() + value.len()).sum();
        check_size(self.payload.len() + self.key.map_or(0, str::len) + properties, MESSAGE_BYTES_MAX)
    }

    fn metadata(&self, sequence_id: u64) -> SingleMessageMetadata {
        let property =
            |&(key, value): &(&str, &str)| KeyValue { key: key.to_owned(), value: value.to_owned() };
        SingleMessageMetadata {
            properties: self.properties.iter().map(property).collect(),
            partition_key: self.key.map(str::to_owned),
            payload_size: i32::try_from(self.payload.len()).unwrap_or(i32::MAX),
            event_time: self.event_time_ms,
            sequence_id: Some(sequence_id),
            ..SingleMessageMetadata::default()
        }
    }
}

/// Limits of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchLimits {
    pub messages: usize,
    pub bytes: usize,
    /// True if a batch takes messages of one key only.
    pub is_per_key: bool,
}

/// A batch that takes messages.
#[derive(Debug)]
pub(super) struct OpenBatch {
    buffer: BytesMut,
    /// Bytes before the payload of the first message.
    first_payload_at: usize,
    first: SingleMessageMetadata,
    first_sequence_id: u64,
    count: u32,
    /// Bytes of payloads, for the producer's limit.
    payload_bytes: usize,
    pub opened_at: Instant,
    /// Milliseconds since 1970 of the first message.
    publish_time_ms: u64,
    outcome: Arc<BatchOutcome>,
}

/// The names in the frame of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchOrigin<'a> {
    pub producer_id: u64,
    pub producer_name: &'a str,
}

impl OpenBatch {
    /// A batch that begins with `message`, in an empty `buffer`.
    pub(super) fn open(mut buffer: BytesMut, message: &OutgoingMessage<'_>, sequence_id: u64) -> OpenBatch {
        let first = message.metadata(sequence_id);
        put(&mut buffer, &first, message.payload);
        OpenBatch {
            first_payload_at: buffer.len() - message.payload.len(),
            buffer,
            first,
            first_sequence_id: sequence_id,
            count: 1,
            payload_bytes: message.payload.len(),
            opened_at: Instant::now(),
            publish_time_ms: message.publish_time_ms.unwrap_or_else(clock::now_ms),
            outcome: BatchOutcome::open(),
        }
    }

    /// True if the batch takes `message` within `limits`.
    pub(super) fn takes(&self, message: &OutgoingMessage<'_>, limits: &BatchLimits) -> bool {
        // The size of a message's metadata is small beside the limit, and known only once it is encoded.
        let bytes = self.buffer.len() + LENGTH_LEN + METADATA_BYTES + message.payload.len();
        let is_same_key = || self.first.partition_key.as_deref() == message.key;
        bytes <= limits.bytes && !self.is_full(limits) && (!limits.is_per_key || is_same_key())
    }

    pub(super) fn is_full(&self, limits: &BatchLimits) -> bool {
        self.buffer.len() >= limits.bytes
            || usize::try_from(self.count).is_ok_and(|count| count >= limits.messages)
    }

    pub(super) fn append(&mut self, message: &OutgoingMessage<'_>, sequence_id: u64) {
        put(&mut self.buffer, &message.metadata(sequence_id), message.payload);
        self.count += 1;
        self.payload_bytes += message.payload.len();
    }

    /// The receipt of the newest message.
    pub(super) fn receipt(&self) -> SendReceipt {
        SendReceipt::new(&self.outcome, self.count - 1)
    }

    /// Finishes the batch. The buffer is returned if the frame does not need it.
    pub(super) fn seal(
        self,
        origin: BatchOrigin<'_>,
        compression: Compression,
        compressor: &mut Compressor,
        message_bytes_max: usize,
    ) -> (PendingBatch, Result<(), MessageTooLarge>, Option<BytesMut>) {
        let OpenBatch { buffer, first, first_sequence_id, count, payload_bytes, outcome, .. } = self;
        let last_sequence_id = first_sequence_id + u64::from(count) - 1;
        let is_batch = count > 1;
        let plain = if is_batch { &buffer[..] } else { &buffer[self.first_payload_at..] };
        let uncompressed_size = u32::try_from(plain.len()).ok();
        let compressed = compressor.compress(plain);
        let is_compressed = compressed.is_some();
        let mut metadata = MessageMetadata {
            producer_name: origin.producer_name.to_owned(),
            sequence_id: first_sequence_id,
            publish_time: self.publish_time_ms,
            compression: is_compressed.then(|| compression.code().into()),
            uncompressed_size: uncompressed_size.filter(|_| is_compressed),
            partition_key: first.partition_key,
            ..MessageMetadata::default()
        };
        let num_messages = i32::try_from(count).unwrap_or(i32::MAX);
        if is_batch {
            metadata.num_messages_in_batch = Some(num_messages);
            metadata.highest_sequence_id = Some(last_sequence_id);
        } else {
            metadata.properties = first.properties;
            metadata.event_time = first.event_time;
        }
        let (payload, spare) = match compressed {
            Some(compressed) => (compressed, Some(buffer)),
            None if is_batch => (buffer.freeze(), None),
            None => (buffer.freeze().slice(self.first_payload_at..), None),
        };
        let command = Command::Send(SendCommand {
            producer_id: origin.producer_id,
            sequence_id: first_sequence_id,
            num_messages: is_batch.then_some(num_messages),
            highest_sequence_id: is_batch.then_some(last_sequence_id),
        });
        let size =
            check_size(payload.len() + metadata.encoded_len(), message_bytes_max + METADATA_ROOM_BYTES)
                .and_then(|()| check_size(payload.len(), message_bytes_max));
        let payload = if size.is_ok() { payload } else { Bytes::new() };
        let frame = frame::encode_entry(command, &metadata, payload);
        let opened_at = self.opened_at;
        (PendingBatch { frame, first_sequence_id, count, payload_bytes, opened_at, outcome }, size, spare)
    }

    /// Ends the batch without sending it.
    pub(super) fn into_outcome(self) -> Arc<BatchOutcome> {
        self.outcome
    }
}

/// An upper bound for the encoded metadata of a message without key and properties.
const METADATA_BYTES: usize = 32;
/// Room for the metadata in a frame, beside the largest message. Pulsar leaves 10 KiB for it and the command.
const METADATA_ROOM_BYTES: usize = 9 << 10;
/// Limit of a message, which broker's limits are far below.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

fn check_size(message_bytes: usize, limit_bytes: usize) -> Result<(), MessageTooLarge> {
    if message_bytes > limit_bytes { Err(MessageTooLarge { message_bytes, limit_bytes }) } else { Ok(()) }
}

fn put(buffer: &mut BytesMut, metadata: &SingleMessageMetadata, payload: &[u8]) {
    let metadata_len = metadata.encoded_len();
    buffer.reserve(LENGTH_LEN + metadata_len + payload.len());
    buffer.put_u32(u32::try_from(metadata_len).expect("metadata is limited by the memory of its message"));
    metadata.encode(buffer).expect("a BytesMut grows as needed");
    buffer.put_slice(payload);
}

/// A finished batch without a receipt.
#[derive(Debug)]
pub(super) struct PendingBatch {
    pub frame: PayloadFrame,
    pub first_sequence_id: u64,
    /// Number of messages.
    pub count: u32,
    /// Bytes of payloads before compression.
    pub payload_bytes: usize,
    pub opened_at: Instant,
    pub outcome: Arc<BatchOutcome>,
}
