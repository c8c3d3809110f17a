//! The header of a batch: the 61 bytes before its records. Parsing checks only the bounds of the length field
//! and the magic; `check` validates the rest.

use crate::attributes::Attributes;
use crate::error::{BatchError, BatchLengthTooSmall, LegacyMagic, TruncatedBatch, UnknownMagic};
use thalweg_ids::{LeaderEpoch, Offset};
use thalweg_ids::{NO_SEQUENCE, ProducerEpoch, ProducerId, increment_sequence};

/// Size of the fields that the length field does not count: base offset and length.
pub const LOG_OVERHEAD: usize = 12;
/// The timestamp of a record without one.
pub const NO_TIMESTAMP: i64 = -1;
/// The leader epoch in a producer's batch.
pub const NO_PARTITION_LEADER_EPOCH: LeaderEpoch = LeaderEpoch::NONE;

pub(crate) const LENGTH_AT: usize = 8;
pub(crate) const LEADER_EPOCH_AT: usize = 12;
pub(crate) const MAGIC_AT: usize = 16;
pub(crate) const CRC_AT: usize = 17;
pub(crate) const ATTRIBUTES_AT: usize = 21;
pub(crate) const LAST_OFFSET_DELTA_AT: usize = 23;
pub(crate) const BASE_TIMESTAMP_AT: usize = 27;
pub(crate) const MAX_TIMESTAMP_AT: usize = 35;
pub(crate) const PRODUCER_ID_AT: usize = 43;
pub(crate) const PRODUCER_EPOCH_AT: usize = 51;
pub(crate) const BASE_SEQUENCE_AT: usize = 53;
pub(crate) const RECORD_COUNT_AT: usize = 57;

/// The header of a v2 batch (Kafka's `DefaultRecordBatch`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Offset of the first record of the original batch. 0 from a producer.
    pub base_offset: Offset,
    /// Bytes after this field. `parse` guarantees at least 49.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch; -1 from a producer.
    pub leader_epoch: LeaderEpoch,
    /// The format's magic, 2.
    pub magic: i8,
    /// CRC-32C of everything after this field.
    pub crc: u32,
    /// Codec, timestamp type and flags.
    pub attributes: Attributes,
    /// Offset of the last record minus the base offset. Unchanged when the cleaner drops records.
    pub last_offset_delta: i32,
    /// Base of the records' timestamp deltas: the first record's timestamp. Milliseconds.
    pub base_timestamp: i64,
    /// The largest timestamp of the records, or the append time. Milliseconds.
    pub max_timestamp: i64,
    /// The idempotent producer, or -1.
    pub producer_id: ProducerId,
    /// The epoch of that producer, or -1.
    pub producer_epoch: ProducerEpoch,
    /// The sequence of the first record, or -1.
    pub base_sequence: i32,
    /// Number of records.
    pub record_count: i32,
}

impl BatchHeader {
    /// Size of a header in bytes.
    pub const LEN: usize = 61;
    /// The magic of this format.
    pub const MAGIC: i8 = 2;

    /// Reads the header at the beginning of `bytes`. Neither the CRC nor the presence of the records is
    /// checked.
    pub fn parse(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
        let Some(head) = bytes.first_chunk::<{ BatchHeader::LEN }>() else {
            return Err(Self::short(bytes));
        };
        let magic = i8::from_be_bytes([head[MAGIC_AT]]);
        let batch_length = i32_at(head, LENGTH_AT);
        check_length_and_magic(batch_length, magic)?;
        Ok(BatchHeader {
            base_offset: Offset(i64_at(head, 0)),
            batch_length,
            leader_epoch: LeaderEpoch(i32_at(head, LEADER_EPOCH_AT)),
            magic,
            crc: u32::from_be_bytes(field(head, CRC_AT)),
            attributes: Attributes(i16::from_be_bytes(field(head, ATTRIBUTES_AT))),
            last_offset_delta: i32_at(head, LAST_OFFSET_DELTA_AT),
            base_timestamp: i64_at(head, BASE_TIMESTAMP_AT),
            max_timestamp: i64_at(head, MAX_TIMESTAMP_AT),
            producer_id: ProducerId(i64_at(head, PRODUCER_ID_AT)),
            producer_epoch: ProducerEpoch(i16::from_be_bytes(field(head, PRODUCER_EPOCH_AT))),
            base_sequence: i32_at(head, BASE_SEQUENCE_AT),
            record_count: i32_at(head, RECORD_COUNT_AT),
        })
    }

    /// The error for less than a header's bytes: a fault visible in them, otherwise that they are too short.
    fn short(bytes: &[u8]) -> BatchError {
        if let (Some(length), Some(&magic)) = (bytes.get(LENGTH_AT..LOG_OVERHEAD), bytes.get(MAGIC_AT)) {
            let length = i32::from_be_bytes(length.try_into().expect("the range is four bytes long"));
            if let Err(error) = check_length_and_magic(length, i8::from_be_bytes([magic])) {
                return error;
            }
        }
        TruncatedBatch { needed: Self::LEN, available: bytes.len() }.into()
    }

    /// The header's 61 bytes.
    pub fn to_bytes(&self) -> [u8; BatchHeader::LEN] {
        let mut head = [0; Self::LEN];
        self.write(&mut head);
        head
    }

    pub(crate) fn write(&self, head: &mut [u8; BatchHeader::LEN]) {
        head[..8].copy_from_slice(&self.base_offset.0.to_be_bytes());
        head[LENGTH_AT..12].copy_from_slice(&self.batch_length.to_be_bytes());
        head[LEADER_EPOCH_AT..16].copy_from_slice(&self.leader_epoch.0.to_be_bytes());
        head[MAGIC_AT..17].copy_from_slice(&self.magic.to_be_bytes());
        head[CRC_AT..21].copy_from_slice(&self.crc.to_be_bytes());
        head[ATTRIBUTES_AT..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        head[LAST_OFFSET_DELTA_AT..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        head[BASE_TIMESTAMP_AT..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        head[MAX_TIMESTAMP_AT..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        head[PRODUCER_ID_AT..51].copy_from_slice(&self.producer_id.0.to_be_bytes());
        head[PRODUCER_EPOCH_AT..53].copy_from_slice(&self.producer_epoch.0.to_be_bytes());
        head[BASE_SEQUENCE_AT..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        head[RECORD_COUNT_AT..61].copy_from_slice(&self.record_count.to_be_bytes());
    }

    /// Bytes of the whole batch, from its base offset on.
    pub fn size_bytes(&self) -> usize {
        LOG_OVERHEAD
            + usize::try_from(self.batch_length).expect("a parsed or built batch has a length of at least 49")
    }

    /// Offset of the last record of the original batch. Saturates on hostile headers.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0.saturating_add(i64::from(self.last_offset_delta)))
    }

    /// The offset after the batch. Saturates on hostile headers.
    pub fn next_offset(&self) -> Offset {
        Offset(self.last_offset().0.saturating_add(1))
    }

    /// The sequence of the last record, with 0 after 2^31 - 1; -1 without sequences.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 || self.last_offset_delta < 0 {
            return NO_SEQUENCE;
        }
        increment_sequence(self.base_sequence, self.last_offset_delta)
    }

    /// The time after which the cleaner may drop the batch's tombstones and markers.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.attributes.has_delete_horizon().then_some(self.base_timestamp)
    }
}

fn check_length_and_magic(batch_length: i32, magic: i8) -> Result<(), BatchError> {
    // The magic has the same position in every format, but needs a length that could hold a message: the
    // smallest message of magic 0 counts 14 bytes. Zeroes, as in a preallocated segment, are no legacy batch.
    if batch_length < 14 {
        return Err(BatchLengthTooSmall { batch_length }.into());
    }
    match magic {
        BatchHeader::MAGIC => {}
        0 | 1 => return Err(LegacyMagic { magic }.into()),
        _ => return Err(UnknownMagic { magic }.into()),
    }
    let length = usize::try_from(batch_length).expect("checked against 14 above");
    if LOG_OVERHEAD + length < BatchHeader::LEN {
        return Err(BatchLengthTooSmall { batch_length }.into());
    }
    Ok(())
}

fn field<const N: usize>(head: &[u8; BatchHeader::LEN], at: usize) -> [u8; N] {
    *head[at..].first_chunk().expect("every field ends within the header")
}

fn i32_at(head: &[u8; BatchHeader::LEN], at: usize) -> i32 {
    i32::from_be_bytes(field(head, at))
}

fn i64_at(head: &[u8; BatchHeader::LEN], at: usize) -> i64 {
    i64::from_be_bytes(field(head, at))
}
