//! Received messages, and entries taken apart into them.

use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use prost::Message as _;

use super::error::EntryFault;
use crate::compression;
use crate::frame;
use crate::message_id::MessageId;
use crate::protocol::{EntryCommand, KeyValue, MessageMetadata, SingleMessageMetadata};

/// A received message. Clones share the payload.
#[derive(Clone)]
pub struct Message {
    entry: Arc<Entry>,
    /// Place in the batch; `-1` for a message that was sent alone.
    batch_index: i32,
    payload: Bytes,
    single: Option<Box<SingleMessageMetadata>>,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.payload.len();
        f.debug_struct("Message").field("id", &self.id()).field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl Message {
    pub fn id(&self) -> MessageId {
        match self.batch_index {
            -1 => self.entry.id,
            index => self.entry.id.in_batch(index, self.entry.batch_size),
        }
    }

    /// The payload: a slice of the received bytes, or of the decompressed batch.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Milliseconds since 1970 by the producer's clock. Messages of a batch have the time of the first one.
    pub fn publish_time_ms(&self) -> u64 {
        self.entry.metadata.publish_time
    }

    /// Milliseconds since 1970, as set by the application.
    pub fn event_time_ms(&self) -> Option<u64> {
        let own = self.single.as_ref().and_then(|single| single.event_time);
        own.or(self.entry.metadata.event_time).filter(|time| *time > 0)
    }

    /// The key by which Key_Shared subscriptions choose the consumer. A binary key is in base 64.
    pub fn key(&self) -> Option<&str> {
        let key = match &self.single {
            Some(single) => &single.partition_key,
            None if self.batch_index < 0 => &self.entry.metadata.partition_key,
            None => &None,
        };
        key.as_deref()
    }

    /// Names and values.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        let properties: &[KeyValue] = match &self.single {
            Some(single) => &single.properties,
            None if self.batch_index < 0 => &self.entry.metadata.properties,
            None => &[],
        };
        properties.iter().map(|property| (property.key.as_str(), property.value.as_str()))
    }

    pub fn sequence_id(&self) -> u64 {
        let first = self.entry.metadata.sequence_id;
        let own = self.single.as_ref().and_then(|single| single.sequence_id);
        own.unwrap_or_else(|| first + u64::try_from(self.batch_index).unwrap_or_default())
    }

    pub fn producer_name(&self) -> &str {
        &self.entry.metadata.producer_name
    }

    /// Number of earlier deliveries, as far as the broker knows (Shared and Key_Shared).
    pub fn redelivery_count(&self) -> u32 {
        self.entry.redelivery_count
    }

    pub(super) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// True for the last message of its batch.
    pub(super) fn is_last_of_entry(&self) -> bool {
        self.batch_index + 1 >= self.entry.batch_size
    }
}

/// An entry of the topic: a batch, or a message that was sent alone.
#[derive(Debug)]
pub(super) struct Entry {
    /// Without a place in the batch.
    pub id: MessageId,
    /// Number of messages in a batch; 0 for a message that was sent alone.
    batch_size: i32,
    metadata: MessageMetadata,
    redelivery_count: u32,
    open: Mutex<OpenMessages>,
}

/// The messages of a batch that are not acknowledged: Pulsar's broker learns of an entry once all are.
#[derive(Debug)]
struct OpenMessages {
    /// A bit for each message of a batch.
    bits: Box<[u64]>,
    count: usize,
}

impl Entry {
    /// Notes the acknowledgement of a message. True if all messages of the entry are acknowledged now; false
    /// also for one that was acknowledged before.
    pub(super) fn acknowledge(&self, message: &Message) -> bool {
        let Ok(index) = usize::try_from(message.batch_index) else { return true };
        let mut open = self.open.lock();
        let (word, bit) = (index / 64, 1 << (index % 64));
        if open.bits.get(word).is_none_or(|word| word & bit == 0) {
            return false;
        }
        open.bits[word] &= !bit;
        open.count -= 1;
        open.count == 0
    }
}

/// The messages of an entry, one after the other.
#[derive(Debug)]
pub(super) struct EntryCursor {
    entry: Arc<Entry>,
    rest: Bytes,
    next_index: i32,
    /// A bit for each message that the broker holds to be not acknowledged; empty for all.
    ack_set: Vec<i64>,
    /// The index of the first message to return.
    from_index: i32,
}

/// A message of an entry, or its absence.
pub(super) enum CursorStep {
    Message(Message),
    /// A message that was compacted away, was acknowledged before, or lies before the seek position.
    Skipped {
        /// True if the broker has counted the message against the permits: it does not count acknowledged
        /// ones.
        is_permitted: bool,
    },
    /// All messages were returned.
    End,
}

impl EntryCursor {
    /// Verifies and decompresses an entry. `partition` is that of the topic; messages before `from_index` are
    /// skipped.
    pub(super) fn open(
        command: EntryCommand,
        bytes: Bytes,
        partition: i32,
        from_index: i32,
        uncompressed_bytes_max: usize,
    ) -> Result<EntryCursor, EntryFault> {
        let (metadata, payload) = frame::decode_entry(bytes)?;
        if let Some(chunks) = metadata.num_chunks_from_msg.filter(|chunks| *chunks > 1) {
            return Err(EntryFault::Chunked(chunks));
        }
        if let Some(algorithm) = metadata.encryption_algo {
            return Err(EntryFault::Encrypted(algorithm));
        }
        let (code, size) = (metadata.compression.unwrap_or_default(), metadata.uncompressed_size);
        let rest = compression::decompress(code, payload, size.unwrap_or_default(), uncompressed_bytes_max)?;
        let batch_size = metadata.num_messages_in_batch.unwrap_or_default();
        // A message takes four bytes at least.
        let needed = i64::from(batch_size) * 4;
        if i64::try_from(rest.len()).is_ok_and(|available| available < needed) {
            return Err(EntryFault::Batch { index: 0, length: needed, available: rest.len() });
        }
        let entry = Entry {
            id: MessageId {
                batch_index: -1,
                batch_size: 0,
                ..MessageId::of_entry(&command.message_id, partition)
            },
            batch_size,
            metadata,
            redelivery_count: command.redelivery_count.unwrap_or_default(),
            open: Mutex::new(OpenMessages::of(batch_size, &command.ack_set)),
        };
        let ack_set = command.ack_set;
        Ok(EntryCursor { entry: Arc::new(entry), rest, next_index: 0, ack_set, from_index })
    }

    /// Number of messages that were not returned yet.
    pub(super) fn remaining(&self) -> u32 {
        u32::try_from(self.entry.batch_size.max(1) - self.next_index).unwrap_or_default()
    }

    pub(super) fn id(&self) -> MessageId {
        self.entry.id
    }

    pub(super) fn next(&mut self) -> Result<CursorStep, EntryFault> {
        let index = self.next_index;
        if index >= self.entry.batch_size.max(1) {
            return Ok(CursorStep::End);
        }
        self.next_index += 1;
        if self.entry.metadata.num_messages_in_batch.is_none() {
            let payload = std::mem::take(&mut self.rest);
            return Ok(CursorStep::Message(Message {
                entry: Arc::clone(&self.entry),
                batch_index: -1,
                payload,
                single: None,
            }));
        }
        let single = frame::take_part(&mut self.rest, "metadata of a message")?;
        let single = SingleMessageMetadata::decode(single)
            .map_err(|source| frame::FrameFault::Undecodable { part: "metadata of a message", source })?;
        let available = self.rest.len();
        let payload_size = usize::try_from(single.payload_size).ok().filter(|size| *size <= available);
        let Some(size) = payload_size else {
            let length = i64::from(single.payload_size);
            // The following messages cannot be found.
            self.next_index = self.entry.batch_size.max(1);
            return Err(EntryFault::Batch { index, length, available });
        };
        let payload =
            if size == available { std::mem::take(&mut self.rest) } else { self.rest.split_to(size) };
        let is_acknowledged = self.is_acknowledged(index);
        if single.compacted_out.unwrap_or_default() || index < self.from_index || is_acknowledged {
            return Ok(CursorStep::Skipped { is_permitted: !is_acknowledged });
        }
        // Most messages have nothing but a size and a sequence id.
        let is_plain = single.partition_key.is_none()
            && single.properties.is_empty()
            && single.event_time.is_none()
            && single.sequence_id.is_none_or(|id| Some(id) == self.sequence_id(index));
        Ok(CursorStep::Message(Message {
            entry: Arc::clone(&self.entry),
            batch_index: index,
            payload,
            single: (!is_plain).then(|| Box::new(single)),
        }))
    }

    fn sequence_id(&self, index: i32) -> Option<u64> {
        self.entry.metadata.sequence_id.checked_add(u64::try_from(index).ok()?)
    }

    fn is_acknowledged(&self, index: i32) -> bool {
        let Ok(index) = usize::try_from(index) else { return false };
        !self.ack_set.is_empty()
            && self.ack_set.get(index / 64).is_none_or(|word| word >> (index % 64) & 1 == 0)
    }
}

impl OpenMessages {
    fn of(batch_size: i32, ack_set: &[i64]) -> OpenMessages {
        let size = usize::try_from(batch_size).unwrap_or_default();
        let mut bits: Box<[u64]> = vec![u64::MAX; size.div_ceil(64)].into();
        if let Some(last) = bits.last_mut()
            && size % 64 > 0
        {
            *last = (1 << (size % 64)) - 1;
        }
        if !ack_set.is_empty() {
            for (index, word) in bits.iter_mut().enumerate() {
                *word &= ack_set.get(index).map_or(0, |word| word.cast_unsigned());
            }
        }
        let count = bits.iter().map(|word| word.count_ones() as usize).sum();
        OpenMessages { bits, count }
    }
}

/// Number of messages in an entry that is not read; 1 if that cannot be found out.
pub(super) fn message_count(bytes: &Bytes) -> u32 {
    let mut bytes = bytes.clone();
    // Magic number and checksum.
    bytes.advance(bytes.len().min(6));
    let metadata =
        frame::take_part(&mut bytes, "metadata").ok().and_then(|part| MessageMetadata::decode(part).ok());
    let count = metadata.and_then(|metadata| metadata.num_messages_in_batch);
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests;
