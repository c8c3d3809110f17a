//! Content of the metadata log: batches of a Fetch, and whole snapshots.

use std::sync::Arc;

use thalweg_metadata::batches::{self, ControlRecord, MetadataBatch, MetadataBatchError};
use thalweg_metadata::{Image, Loader, Provenance, ReplayError};
use thalweg_record::{BatchError, DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer};
use thalweg_wire::data::voters_record::Voter;

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFault {
    /// The bytes are not batches.
    #[error(transparent)]
    Bytes(#[from] BatchError),
    /// A batch is damaged, or contains unknown records.
    #[error(transparent)]
    Batch(#[from] MetadataBatchError),
    /// The records contradict one another.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The header or the footer is missing.
    #[error("it does not start with a header and end with a footer")]
    Incomplete,
}

/// The batches of a fetch. A torn batch at the end is skipped; the next fetch returns it whole.
pub(super) fn batches_of(bytes: &[u8]) -> Result<Vec<MetadataBatch>, MetadataBatchError> {
    let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
    let mut read = Vec::new();
    let mut position = 0;
    for batch in thalweg_record::batches(bytes) {
        match batch {
            Ok(batch) => {
                read.push(batches::decode(&batch, &mut buffer)?);
                position = read.last().map_or(0, |batch: &MetadataBatch| batch.last.offset + 1);
            }
            Err(BatchError::Truncated(_)) => break,
            Err(error) => return Err(MetadataBatchError::Batch { base_offset: position, error }),
        }
    }
    Ok(read)
}

/// State of the quorum, from control records in its log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QuorumNews {
    /// The level of `kraft.version`.
    pub kraft_version: Option<i16>,
    /// The current voters.
    pub voters: Option<Vec<Voter>>,
}

impl QuorumNews {
    /// Applies a batch, which overrides earlier ones.
    pub fn take(&mut self, batch: &MetadataBatch) {
        for control in &batch.control {
            match control {
                ControlRecord::KRaftVersion(version) => self.kraft_version = Some(version.k_raft_version),
                ControlRecord::Voters(record) => self.voters = Some(record.voters.clone()),
                _ => {}
            }
        }
    }
}

/// The image in a snapshot, and the quorum's state: `kraft.version` 0 if the snapshot has none.
pub(super) fn snapshot_of(
    bytes: &[u8],
    end_offset: i64,
    epoch: i32,
) -> Result<(Arc<Image>, QuorumNews), SnapshotFault> {
    let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
    let mut loader = Loader::new(Arc::new(Image::empty()));
    let (mut timestamp_ms, mut complete) = (None, false);
    let mut news = QuorumNews { kraft_version: Some(0), voters: None };
    for batch in thalweg_record::batches(bytes) {
        let batch = batches::decode(&batch?, &mut buffer)?;
        for control in &batch.control {
            match control {
                ControlRecord::SnapshotHeader(header) => {
                    timestamp_ms = Some(header.last_contained_log_timestamp);
                }
                ControlRecord::SnapshotFooter => complete = true,
                _ => {}
            }
        }
        news.take(&batch);
        loader.load(batch.last, &batch.records)?;
    }
    let (Some(timestamp_ms), true) = (timestamp_ms, complete) else { return Err(SnapshotFault::Incomplete) };
    loader.load(Provenance { offset: end_offset - 1, epoch, timestamp_ms }, [])?;
    loader.publish();
    Ok((loader.image().clone(), news))
}
