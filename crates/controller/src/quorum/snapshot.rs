//! Snapshots of the metadata log: the records of the image at one offset.
//!
//! ```text
//! <end offset, 20 digits>-<epoch, 10 digits>.checkpoint      the end offset is exclusive
//!   control batch   SnapshotHeader, KRaftVersion, KRaftVoters
//!   data batches    the image's records
//!   control batch   SnapshotFooter
//! ```
//! Offsets in the file count from 0 and are not the log's. A file without a footer is incomplete and ignored.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thalweg_log::disk::{Disk, Durability};
use thalweg_metadata::batches::{
    self as metadata_batches, ControlRecord, MetadataBatch, MetadataBatchError, SNAPSHOT_BYTES_MAX,
};
use thalweg_metadata::{Image, Loader, Provenance, ReplayError, VersionedRecord};
use thalweg_record::{ControlRecordType, DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer, batches};
use thalweg_wire::data::{SnapshotFooterRecord, SnapshotHeaderRecord};
use thalweg_wire::{EncodeError, Message, MetadataRecord};

use super::batch::{encode_batch, encode_control_batch};

const SUFFIX: &str = ".checkpoint";
/// Maximum number of bytes of values in one batch.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// The reason why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{} cannot be read or written: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is damaged: {error}", path.display())]
    Batch { path: PathBuf, error: MetadataBatchError },
    #[error("{} is damaged: {error}", path.display())]
    Bytes { path: PathBuf, error: thalweg_record::BatchError },
    #[error("{} does not fit together: {error}", path.display())]
    Replay { path: PathBuf, error: ReplayError },
    #[error("{} does not begin with a header and end with a footer", path.display())]
    Incomplete { path: PathBuf },
    #[error("{} has {size} bytes, more than any snapshot", path.display())]
    TooLarge { path: PathBuf, size: u64 },
    #[error(
        "the metadata of the cluster needs more than the {SNAPSHOT_BYTES_MAX} bytes of a snapshot: it stays in the log, which \
         grows, until topics, configurations, ACLs or credentials are removed"
    )]
    ImageTooLarge,
    #[error("an image cannot be written as records: {0}")]
    Encode(#[from] EncodeError),
}

/// The id of a snapshot: the part of the log that it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SnapshotId {
    /// The first offset after the snapshot.
    pub end_offset: i64,
    /// The epoch of the last record in the snapshot.
    pub epoch: i32,
}

impl SnapshotId {
    /// The bootstrap snapshot of a formatted cluster, which is never served.
    pub const BOOTSTRAP: SnapshotId = SnapshotId { end_offset: 0, epoch: 0 };

    /// The file name of the snapshot.
    pub fn file_name(self) -> String {
        format!("{:020}-{:010}{SUFFIX}", self.end_offset, self.epoch)
    }

    /// Parses a file name.
    pub fn from_file_name(name: &str) -> Option<SnapshotId> {
        let (end_offset, epoch) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        if end_offset.len() != 20 || epoch.len() != 10 {
            return None;
        }
        Some(SnapshotId { end_offset: end_offset.parse().ok()?, epoch: epoch.parse().ok()? })
    }
}

/// The content of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotContent {
    pub id: SnapshotId,
    /// Time of the last record in the snapshot.
    pub last_timestamp_ms: i64,
    /// The time of writing.
    pub now_ms: i64,
    /// The quorum's encoded control records: version and voters.
    pub quorum: Vec<(ControlRecordType, Bytes)>,
    pub records: Vec<VersionedRecord>,
}

impl SnapshotContent {
    /// The bytes of the file.
    pub fn encode(&self) -> Result<Vec<u8>, SnapshotError> {
        self.encode_within(SNAPSHOT_BYTES_MAX)
    }

    fn encode_within(&self, bytes_max: u64) -> Result<Vec<u8>, SnapshotError> {
        let header =
            SnapshotHeaderRecord { version: 0, last_contained_log_timestamp: self.last_timestamp_ms };
        let mut head = vec![(ControlRecordType::SnapshotHeader, header.to_bytes(0)?)];
        head.extend(self.quorum.iter().cloned());
        let mut bytes = Vec::new();
        let mut offset = 0i64;
        let mut push = |batch: &[u8], records: usize| {
            bytes.extend_from_slice(batch);
            offset += i64::try_from(records).expect("a snapshot has a bounded number of records");
            offset
        };
        let mut at = push(&encode_control_batch(0, self.id.epoch, self.now_ms, &head), head.len());
        let mut values: Vec<Bytes> = Vec::new();
        let (mut size, mut written) = (0, 0);
        for record in &self.records {
            let value = record.to_value()?;
            if size + value.len() > BATCH_BYTES_MAX && !values.is_empty() {
                written += size as u64;
                if written > bytes_max {
                    return Err(SnapshotError::ImageTooLarge);
                }
                at = push(&encode_batch(at, self.id.epoch, self.now_ms, &values), values.len());
                values.clear();
                size = 0;
            }
            size += value.len();
            values.push(value);
        }
        if !values.is_empty() {
            at = push(&encode_batch(at, self.id.epoch, self.now_ms, &values), values.len());
        }
        let footer = SnapshotFooterRecord { version: 0 }.to_bytes(0)?;
        let tail = [(ControlRecordType::SnapshotFooter, footer)];
        push(&encode_control_batch(at, self.id.epoch, self.now_ms, &tail), 1);
        if bytes.len() as u64 > bytes_max {
            return Err(SnapshotError::ImageTooLarge);
        }
        Ok(bytes)
    }

    /// Writes the file atomically under its name.
    pub fn write(&self, disk: &Disk, dir: &Path) -> Result<u64, SnapshotError> {
        let path = dir.join(self.id.file_name());
        write_file(disk, path, &self.encode()?)
    }
}

/// Writes a snapshot's bytes. Returns their number.
pub(super) fn write_file(disk: &Disk, path: PathBuf, bytes: &[u8]) -> Result<u64, SnapshotError> {
    match disk.replace(&path, bytes, Durability::Synced) {
        Ok(()) => Ok(bytes.len() as u64),
        Err(error) => Err(SnapshotError::Io { path, error }),
    }
}

/// The content read from a snapshot.
#[derive(Debug)]
pub(crate) struct LoadedSnapshot {
    pub image: Arc<Image>,
    pub kraft_version: i16,
    /// The voters, if the quorum records them in its log.
    pub voters: Option<Vec<i32>>,
}

/// Reads a snapshot from disk into an image.
pub(crate) fn load(disk: &Disk, dir: &Path, id: SnapshotId) -> Result<LoadedSnapshot, SnapshotError> {
    let path = dir.join(id.file_name());
    parse(&read_file(disk, &path)?, id, &path)
}

/// The records of a bootstrap file; `None` if it does not exist.
pub(crate) fn read_bootstrap(disk: &Disk, path: &Path) -> Result<Option<Vec<MetadataRecord>>, SnapshotError> {
    let bytes = match read_file(disk, path) {
        Err(SnapshotError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let mut records = Vec::new();
    walk(&bytes, path, |batch| {
        records.extend(batch.records);
        Ok(())
    })?;
    Ok(Some(records))
}

fn read_file(disk: &Disk, path: &Path) -> Result<Vec<u8>, SnapshotError> {
    let io = |error| SnapshotError::Io { path: path.to_owned(), error };
    let size = disk.facts(path).map_err(io)?.len;
    if size > SNAPSHOT_BYTES_MAX {
        return Err(SnapshotError::TooLarge { path: path.to_owned(), size });
    }
    disk.read(path).map_err(io)
}

/// Reads batch after batch.
fn walk(
    bytes: &[u8],
    path: &Path,
    mut each: impl FnMut(MetadataBatch) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
    for batch in batches(bytes) {
        let batch = batch.map_err(|error| SnapshotError::Bytes { path: path.to_owned(), error })?;
        let decoded = metadata_batches::decode(&batch, &mut buffer);
        each(decoded.map_err(|error| SnapshotError::Batch { path: path.to_owned(), error })?)?;
    }
    Ok(())
}

fn parse(bytes: &[u8], id: SnapshotId, path: &Path) -> Result<LoadedSnapshot, SnapshotError> {
    let owned = || path.to_owned();
    let mut loader = Loader::new(Arc::new(Image::empty()));
    let (mut last_timestamp_ms, mut kraft_version, mut voters) = (None, 0, None);
    let mut complete = false;
    walk(bytes, path, |decoded| {
        if complete || (last_timestamp_ms.is_none() && decoded.control.is_empty()) {
            return Err(SnapshotError::Incomplete { path: owned() });
        }
        for control in &decoded.control {
            match control {
                ControlRecord::SnapshotHeader(header) => {
                    last_timestamp_ms = Some(header.last_contained_log_timestamp);
                }
                ControlRecord::KRaftVersion(version) => kraft_version = version.k_raft_version,
                ControlRecord::SnapshotFooter => complete = true,
                ControlRecord::Voters(_) | ControlRecord::LeaderChange(_) => voters = control.voters(),
            }
        }
        let replay = |error| SnapshotError::Replay { path: owned(), error };
        loader.load(decoded.last, &decoded.records).map_err(replay)
    })?;
    let (Some(timestamp_ms), true) = (last_timestamp_ms, complete) else {
        return Err(SnapshotError::Incomplete { path: owned() });
    };
    let last = Provenance { offset: id.end_offset - 1, epoch: id.epoch, timestamp_ms };
    loader.load(last, []).expect("no record cannot fail to fit");
    loader.publish();
    Ok(LoadedSnapshot { image: loader.image().clone(), kraft_version, voters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas() {
        let id = SnapshotId { end_offset: 100, epoch: 2 };
        assert_eq!(id.file_name(), "00000000000000000100-0000000002.checkpoint");
        assert_eq!(SnapshotId::from_file_name(&id.file_name()), Some(id));
        for name in
            ["bootstrap.checkpoint", "100-2.checkpoint", "00000000000000000100-0000000002.checkpoint.tmp"]
        {
            assert_eq!(SnapshotId::from_file_name(name), None);
        }
    }

    #[test]
    fn an_image_beyond_the_limit_makes_no_snapshot() {
        let name = "x".repeat(1000);
        let record = thalweg_wire::metadata::TopicRecord { name, topic_id: thalweg_wire::Uuid(7) };
        let record = VersionedRecord::new(MetadataRecord::Topic(record), 0);
        let content = SnapshotContent {
            id: SnapshotId { end_offset: 9, epoch: 1 },
            last_timestamp_ms: 5,
            now_ms: 6,
            quorum: Vec::new(),
            records: vec![record; 5_000],
        };
        let bytes = content.encode().expect("it is far below the limit").len() as u64;
        assert_eq!(content.encode_within(bytes).expect("it fits").len() as u64, bytes);
        for bytes_max in [bytes - 1, bytes / 2, 0] {
            let refused = content.encode_within(bytes_max);
            assert!(matches!(refused, Err(SnapshotError::ImageTooLarge)), "{bytes_max}");
        }
    }

    #[test]
    fn a_snapshot_that_lacks_an_end_is_of_no_use() {
        let id = SnapshotId { end_offset: 9, epoch: 1 };
        let image = Image::empty();
        let content = SnapshotContent {
            id,
            last_timestamp_ms: 5,
            now_ms: 6,
            quorum: Vec::new(),
            records: image.to_records(),
        };
        let bytes = content.encode().unwrap();
        let path = Path::new("x");
        assert_eq!(parse(&bytes, id, path).unwrap().image.offset(), 8);
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut], id, path).is_err(), "cut at {cut}");
        }
    }
}
