//! A matched message: bounded copies of its parts, and the facts of its batch.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_record::{
    BatchHeader, Compression, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch, ProducerId, Record,
    TimestampType,
};

/// Maximum number of headers kept.
pub const HEADERS_MAX: usize = 100;
/// Maximum bytes kept of a header name or value.
const HEADER_BYTES_MAX: usize = 4 << 10;

/// A matched message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The topic name.
    pub topic: Arc<str>,
    /// The partition index.
    pub partition: i32,
    /// The offset of the record.
    pub offset: Offset,
    /// The timestamp in milliseconds since 1970; -1 if missing.
    pub timestamp: i64,
    /// The key; none for a null key.
    pub key: Option<Content>,
    /// The value; none for a tombstone.
    pub value: Option<Content>,
    /// The headers, in order.
    pub headers: Vec<MessageHeader>,
    /// Number of headers that were dropped.
    pub headers_omitted: usize,
    /// True if masking rules apply to this topic.
    pub is_masked: bool,
    /// The facts of the batch.
    pub batch: BatchFacts,
}

/// A key or value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The first bytes, or all. Decoded if `schema` has no problem.
    pub bytes: Bytes,
    /// The full size in bytes.
    pub whole_bytes: usize,
    /// The schema of the bytes, or the reason why decoding failed.
    pub schema: Option<SchemaNote>,
}

/// The schema of a key or value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaNote {
    /// The schema id.
    pub id: u32,
    /// The schema type: AVRO, PROTOBUF, JSON. Empty if the schema is unknown.
    pub kind: String,
    /// The reason why the bytes are not decoded.
    pub problem: Option<String>,
}

/// A header of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// The header name, possibly truncated, with invalid UTF-8 replaced.
    pub name: String,
    /// The bytes of a name that is not UTF-8.
    pub raw_name: Option<Bytes>,
    /// Bytes of the name that were dropped.
    pub omitted_name_bytes: usize,
    /// The header value.
    pub value: Option<Content>,
}

/// The type of a control record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlKind {
    /// A known type.
    Known(ControlRecordType),
    /// An unknown type.
    Unknown,
}

impl ControlKind {
    /// The type in words.
    pub fn name(self) -> &'static str {
        match self {
            ControlKind::Known(ControlRecordType::Abort) => "abort",
            ControlKind::Known(ControlRecordType::Commit) => "commit",
            ControlKind::Known(ControlRecordType::LeaderChange) => "leader change",
            ControlKind::Known(ControlRecordType::SnapshotHeader) => "snapshot header",
            ControlKind::Known(ControlRecordType::SnapshotFooter) => "snapshot footer",
            ControlKind::Known(ControlRecordType::KRaftVersion) => "KRaft version",
            ControlKind::Known(ControlRecordType::KRaftVoters) => "KRaft voters",
            ControlKind::Unknown => "unknown",
        }
    }
}

/// The facts of a record's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFacts {
    /// The offset of the first record.
    pub base_offset: Offset,
    /// The number of records.
    pub records: i32,
    /// The compressed size in bytes.
    pub size_bytes: usize,
    /// The compression codec; none if unknown.
    pub compression: Option<Compression>,
    /// The origin of the timestamp: producer or broker.
    pub timestamp_type: TimestampType,
    /// The epoch of the leader that appended the batch.
    pub leader_epoch: LeaderEpoch,
    /// The idempotent producer, if any.
    pub producer: Option<(ProducerId, ProducerEpoch)>,
    /// The sequence number of the record, for an idempotent producer.
    pub sequence: Option<i32>,
    /// True for a batch of a transaction.
    pub is_transactional: bool,
    /// The type of a control record.
    pub control: Option<ControlKind>,
}

impl BatchFacts {
    pub(crate) fn of(header: &BatchHeader, record: &Record<'_>) -> BatchFacts {
        let control = header.attributes.is_control().then(|| {
            let kind = record.key.and_then(|key| ControlRecordType::parse_key(key).ok().flatten());
            kind.map_or(ControlKind::Unknown, ControlKind::Known)
        });
        let producer = (header.producer_id.0 >= 0).then_some((header.producer_id, header.producer_epoch));
        BatchFacts {
            base_offset: header.base_offset,
            records: header.record_count,
            size_bytes: header.size_bytes(),
            compression: header.attributes.compression().ok(),
            timestamp_type: header.attributes.timestamp_type(),
            leader_epoch: header.leader_epoch,
            producer,
            sequence: (record.sequence >= 0).then_some(record.sequence),
            is_transactional: header.attributes.is_transactional(),
            control,
        }
    }

    /// The timestamp type, as printed by Kafka's tools.
    pub fn timestamp_name(&self) -> &'static str {
        match self.timestamp_type {
            TimestampType::CreateTime => "CreateTime",
            TimestampType::LogAppendTime => "LogAppendTime",
        }
    }
}

impl SchemaNote {
    /// Removes details of a failed decoding, which could reveal content. Messages of the registry stay.
    pub(crate) fn hide(&mut self) {
        if let Some(problem) = self.problem.as_mut().filter(|_| !self.kind.is_empty()) {
            "it is not decoded, and so hidden as a whole".clone_into(problem);
        }
    }
}

impl Content {
    /// Copies at most `bytes_max` bytes.
    pub(crate) fn copy(bytes: &[u8], bytes_max: usize) -> Content {
        let kept = Bytes::copy_from_slice(&bytes[..bytes.len().min(bytes_max)]);
        Content { bytes: kept, whole_bytes: bytes.len(), schema: None }
    }

    /// The number of dropped bytes.
    pub fn omitted_bytes(&self) -> usize {
        self.whole_bytes - self.bytes.len()
    }
}

impl Message {
    /// Copies the masked headers.
    pub(crate) fn copy_headers<'a>(
        &mut self,
        headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
        bytes_max: usize,
    ) {
        let bytes_max = bytes_max.min(HEADER_BYTES_MAX);
        for (name, value) in headers {
            if self.headers.len() == HEADERS_MAX {
                self.headers_omitted += 1;
                continue;
            }
            let mut kept = &name[..name.len().min(HEADER_BYTES_MAX)];
            let mut raw_name = None;
            if let Err(error) = std::str::from_utf8(kept) {
                match error.error_len() {
                    // The limit has cut a character.
                    None if kept.len() < name.len() => kept = &kept[..error.valid_up_to()],
                    _ => raw_name = Some(Bytes::copy_from_slice(kept)),
                }
            }
            let omitted_name_bytes = name.len() - kept.len();
            let name = String::from_utf8_lossy(kept).into_owned();
            let value = value.map(|value| Content::copy(value, bytes_max));
            self.headers.push(MessageHeader { name, raw_name, omitted_name_bytes, value });
        }
    }

    /// The number of bytes in memory, approximately.
    pub fn size_bytes(&self) -> u64 {
        let size =
            |content: &Option<Content>| content.as_ref().map_or(0, |content| content.bytes.len() as u64);
        let headers = self.headers.iter().map(|header| header.name.len() as u64 + size(&header.value));
        size(&self.key) + size(&self.value) + headers.sum::<u64>()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A message without content.
    pub(crate) fn message(offset: i64) -> Message {
        let batch = BatchFacts {
            base_offset: Offset(offset),
            records: 1,
            size_bytes: 0,
            compression: None,
            timestamp_type: TimestampType::CreateTime,
            leader_epoch: LeaderEpoch(0),
            producer: None,
            sequence: None,
            is_transactional: false,
            control: None,
        };
        Message {
            topic: Arc::from("t"),
            partition: 0,
            offset: Offset(offset),
            timestamp: 0,
            key: None,
            value: None,
            headers: Vec::new(),
            headers_omitted: 0,
            is_masked: false,
            batch,
        }
    }
}
