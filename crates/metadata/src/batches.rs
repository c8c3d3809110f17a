//! Batches of the metadata log and of its snapshots, from bytes to records.
//!
//! An unknown record must stop the reader: skipping it would diverge.

use bytes::Bytes;
use thalweg_record::{Batch, BatchError, ControlRecordType, DecompressBuffer, RecordError};
use thalweg_wire::data::{KRaftVersionRecord, LeaderChangeMessage, SnapshotHeaderRecord, VotersRecord};
use thalweg_wire::{DecodeError, Message, MetadataRecord, MetadataValueError, decode_metadata_value};

use crate::Provenance;

/// Maximum size of a snapshot, for writers and readers: a larger snapshot would stop every starting broker. A
/// larger image stays in the log.
pub const SNAPSHOT_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// A failure to read a batch.
#[derive(Debug, thiserror::Error)]
pub enum MetadataBatchError {
    #[error("batch at offset {base_offset}: {error}")]
    Batch { base_offset: i64, error: BatchError },
    #[error("batch at offset {base_offset}: {error}")]
    Records { base_offset: i64, error: RecordError },
    #[error("record at offset {offset}: {error}")]
    Value { offset: i64, error: MetadataValueError },
    #[error("control record at offset {offset}: {error}")]
    Control { offset: i64, error: DecodeError },
    #[error("record at offset {offset} has no value")]
    NoValue { offset: i64 },
    #[error("control record at offset {offset} has an unknown type")]
    UnknownControl { offset: i64 },
}

/// A control record of the quorum.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRecord {
    /// The start of a leader's epoch.
    LeaderChange(LeaderChangeMessage),
    /// The start of a snapshot.
    SnapshotHeader(SnapshotHeaderRecord),
    /// The end of a complete snapshot.
    SnapshotFooter,
    /// The level of `kraft.version`.
    KRaftVersion(KRaftVersionRecord),
    Voters(VotersRecord),
}

impl ControlRecord {
    /// The ids of the voters, for records with voters.
    pub fn voters(&self) -> Option<Vec<i32>> {
        match self {
            ControlRecord::Voters(record) => Some(record.voters.iter().map(|voter| voter.voter_id).collect()),
            ControlRecord::LeaderChange(message) => {
                Some(message.voters.iter().map(|voter| voter.voter_id).collect())
            }
            ControlRecord::SnapshotHeader(_)
            | ControlRecord::SnapshotFooter
            | ControlRecord::KRaftVersion(_) => None,
        }
    }
}

/// A decoded batch.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataBatch {
    /// The offset of its first record.
    pub base_offset: i64,
    /// Last offset, epoch and time of the batch.
    pub last: Provenance,
    /// The data records; empty for a control batch.
    pub records: Vec<MetadataRecord>,
    /// The control records; empty for a data batch.
    pub control: Vec<ControlRecord>,
}

/// Checks a batch's CRC and reads its records.
pub fn decode(batch: &Batch<'_>, buffer: &mut DecompressBuffer) -> Result<MetadataBatch, MetadataBatchError> {
    let header = &batch.header;
    let base_offset = header.base_offset.0;
    thalweg_record::verify(batch.bytes).map_err(|error| MetadataBatchError::Batch { base_offset, error })?;
    let last = Provenance {
        offset: header.last_offset().0,
        epoch: header.leader_epoch.0,
        timestamp_ms: header.max_timestamp,
    };
    let mut read = MetadataBatch { base_offset, last, records: Vec::new(), control: Vec::new() };
    let records_error = |error| MetadataBatchError::Records { base_offset, error };
    for record in batch.records(buffer).map_err(records_error)? {
        let record = record.map_err(records_error)?;
        let offset = record.offset.0;
        let value = record.value.ok_or(MetadataBatchError::NoValue { offset })?;
        let value = Bytes::copy_from_slice(value);
        if header.attributes.is_control() {
            read.control.push(control(offset, record.key.unwrap_or_default(), value)?);
        } else {
            let decoded = decode_metadata_value(value);
            read.records.push(decoded.map_err(|error| MetadataBatchError::Value { offset, error })?);
        }
    }
    Ok(read)
}

fn control(offset: i64, key: &[u8], value: Bytes) -> Result<ControlRecord, MetadataBatchError> {
    let kind = ControlRecordType::parse_key(key).ok().flatten();
    let decoded = match kind {
        Some(ControlRecordType::LeaderChange) => versioned(value).map(ControlRecord::LeaderChange),
        Some(ControlRecordType::SnapshotHeader) => versioned(value).map(ControlRecord::SnapshotHeader),
        Some(ControlRecordType::SnapshotFooter) => Ok(ControlRecord::SnapshotFooter),
        Some(ControlRecordType::KRaftVersion) => versioned(value).map(ControlRecord::KRaftVersion),
        Some(ControlRecordType::KRaftVoters) => versioned(value).map(ControlRecord::Voters),
        Some(ControlRecordType::Abort | ControlRecordType::Commit) | None => {
            return Err(MetadataBatchError::UnknownControl { offset });
        }
    };
    decoded.map_err(|error| MetadataBatchError::Control { offset, error })
}

/// A message whose first two bytes are its version.
fn versioned<M: Message>(value: Bytes) -> Result<M, DecodeError> {
    let version = match value.get(..2) {
        Some(&[high, low]) => i16::from_be_bytes([high, low]).clamp(M::MIN_VERSION, M::MAX_VERSION),
        _ => M::MIN_VERSION,
    };
    M::from_bytes(value, version)
}
