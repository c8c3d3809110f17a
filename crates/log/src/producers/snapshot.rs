//! The producer snapshot: `<offset>.snapshot`, the producers of a partition as they were when the log ended
//! at that offset (Kafka's `ProducerSnapshot`, version 1).
//!
//! ```text
//! 0   version                i16   1
//! 2   CRC-32C of all below   u32
//! 6   number of entries      i32
//! then, 46 bytes each:
//!     producer id            i64
//!     epoch                  i16
//!     last sequence          i32   -1 when no batch is remembered
//!     last offset            i64   -1 when no batch is remembered
//!     offset delta           i32
//!     timestamp              i64
//!     coordinator epoch      i32   -1 before the first marker
//!     transaction start      i64   first offset of the open transaction, -1 when there is none
//! ```
//! Only the last of the remembered batches of each producer is kept, as in Kafka; `partition::in_flight`
//! finds earlier ones again.
//!
//! Owns: the format. Refuses: incomplete snapshots; the state is then rebuilt from batches.

use std::io;
use std::path::Path;

use crc_fast::CrcAlgorithm;
use thalweg_record::{Offset, ProducerEpoch, ProducerId};

use super::{BatchMetadata, ProducerEntry, Producers};
use crate::disk::{Disk, Durability};
use crate::segment::{Home, SNAPSHOT_SUFFIX};

const VERSION: i16 = 1;
const ENTRIES_AT: usize = 6;
const HEAD_BYTES: usize = 10;
const ENTRY_BYTES: usize = 46;

/// Why a snapshot file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum BadSnapshot {
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The version is unknown.
    #[error("version {version} is unknown")]
    UnknownVersion {
        /// The version in the file.
        version: i16,
    },
    /// The length does not match the number of entries.
    #[error("it has {len} bytes, which does not match its entries")]
    WrongLength {
        /// Length of the file in bytes.
        len: usize,
    },
    /// The CRC does not match the content.
    #[error("its CRC is {stored:#010x} and that of its content {computed:#010x}")]
    WrongCrc {
        /// The CRC in the file.
        stored: u32,
        /// The CRC of the content.
        computed: u32,
    },
}

/// Writes a snapshot of `producers`.
pub fn write(disk: &Disk, path: &Path, producers: &Producers, durability: Durability) -> io::Result<()> {
    disk.replace(path, &encode(producers), durability)
}

/// Reads a snapshot and adds its producers, except those silent for `expiration_ms`.
pub fn load(
    disk: &Disk,
    path: &Path,
    producers: &mut Producers,
    now_ms: i64,
    expiration_ms: i64,
) -> Result<(), BadSnapshot> {
    for (producer_id, entry) in decode(&disk.read(path)?)? {
        if !super::is_expired(&entry, now_ms, expiration_ms) {
            producers.load(producer_id, entry);
        }
    }
    Ok(())
}

/// The producers of the newest complete snapshot that is not above `end`; `None` without one. Snapshots above
/// `end` describe truncated batches, and are deleted like invalid ones. An unreadable snapshot is an error:
/// it may be complete, and the batches that it represents may be deleted.
pub fn load_newest(
    home: &Home,
    snapshots: &mut Vec<Offset>,
    end: Offset,
    now_ms: i64,
    expiration_ms: i64,
) -> io::Result<Option<Producers>> {
    while let Some(&offset) = snapshots.last() {
        let path = home.file(offset, SNAPSHOT_SUFFIX);
        if offset <= end {
            let mut producers = Producers::starting_at(offset.0);
            match load(&home.disk, &path, &mut producers, now_ms, expiration_ms) {
                Ok(()) => return Ok(Some(producers)),
                Err(BadSnapshot::Io(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "Ignored an invalid producer snapshot");
                }
            }
        }
        home.disk.remove(&path)?;
        snapshots.pop();
    }
    Ok(None)
}

fn crc_of(content: &[u8]) -> u32 {
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, content);
    u32::try_from(crc).expect("a CRC-32C has 32 bits")
}

fn encode(producers: &Producers) -> Vec<u8> {
    let count = i32::try_from(producers.len()).expect("two billion producers do not fit into memory");
    let mut out = Vec::with_capacity(HEAD_BYTES + ENTRY_BYTES * producers.len());
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&count.to_be_bytes());
    let mut entries: Vec<_> = producers.iter().collect();
    entries.sort_unstable_by_key(|&(id, _)| id);
    for (producer_id, entry) in entries {
        out.extend_from_slice(&producer_id.0.to_be_bytes());
        out.extend_from_slice(&entry.epoch.0.to_be_bytes());
        out.extend_from_slice(&entry.last_sequence().to_be_bytes());
        out.extend_from_slice(&entry.last_data_offset().to_be_bytes());
        let offset_delta = entry.batches.last().map_or(0, |batch| batch.offset_delta);
        out.extend_from_slice(&offset_delta.to_be_bytes());
        out.extend_from_slice(&entry.last_timestamp.to_be_bytes());
        out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        out.extend_from_slice(&entry.transaction_start.unwrap_or(-1).to_be_bytes());
    }
    let crc = crc_of(&out[ENTRIES_AT..]);
    out[2..ENTRIES_AT].copy_from_slice(&crc.to_be_bytes());
    out
}

fn decode(bytes: &[u8]) -> Result<Vec<(ProducerId, ProducerEntry)>, BadSnapshot> {
    let wrong_length = BadSnapshot::WrongLength { len: bytes.len() };
    let mut input = Input { bytes };
    let (Some(version), Some(stored)) =
        (input.take().map(i16::from_be_bytes), input.take().map(u32::from_be_bytes))
    else {
        return Err(wrong_length);
    };
    if version != VERSION {
        return Err(BadSnapshot::UnknownVersion { version });
    }
    let computed = crc_of(&bytes[ENTRIES_AT..]);
    if stored != computed {
        return Err(BadSnapshot::WrongCrc { stored, computed });
    }
    let count = input.take().map(i32::from_be_bytes).and_then(|count| usize::try_from(count).ok());
    let fits = count.and_then(|count| count.checked_mul(ENTRY_BYTES)) == Some(input.bytes.len());
    if !fits {
        return Err(wrong_length);
    }
    let mut entries = Vec::with_capacity(input.bytes.len() / ENTRY_BYTES);
    while let Some(entry) = decode_entry(&mut input) {
        entries.push(entry);
    }
    Ok(entries)
}

fn decode_entry(input: &mut Input<'_>) -> Option<(ProducerId, ProducerEntry)> {
    let producer_id = ProducerId(i64::from_be_bytes(input.take()?));
    let mut entry = ProducerEntry::new();
    let epoch = ProducerEpoch(i16::from_be_bytes(input.take()?));
    let last_sequence = i32::from_be_bytes(input.take()?);
    let last_offset = i64::from_be_bytes(input.take()?);
    let offset_delta = i32::from_be_bytes(input.take()?);
    let timestamp = i64::from_be_bytes(input.take()?);
    entry.coordinator_epoch = i32::from_be_bytes(input.take()?);
    let transaction_start = i64::from_be_bytes(input.take()?);
    entry.epoch = epoch;
    entry.last_timestamp = timestamp;
    entry.transaction_start = (transaction_start >= 0).then_some(transaction_start);
    if last_offset >= 0 {
        entry.add_batch(epoch, BatchMetadata { last_sequence, last_offset, offset_delta, timestamp });
    }
    Some((producer_id, entry))
}

struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*field)
    }
}
