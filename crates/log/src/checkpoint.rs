//! The line-based checkpoint files of Kafka.
//!
//! ```text
//! <version>            0; 1 in a partition's transaction-index-checkpoint
//! <number of entries>
//! <entry>              one a line: "topic partition offset" in a log directory's offset checkpoints,
//! ...                  "epoch startOffset" in a partition's leader-epoch-checkpoint
//! ```
//!
//! Owns: the format, and the detection of invalid files. Refuses: trust. A checkpoint is a hint: a missing,
//! short or garbled checkpoint is reported as such, and the caller rebuilds its content from the log.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use thalweg_record::{LeaderEpoch, Offset};

use crate::disk::{Disk, Durability};
use crate::topic_partition::TopicPartition;

/// The recovery point of each partition of a log directory: all below is synced.
pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
/// The high watermark of each partition of a log directory.
pub const HIGH_WATERMARK_FILE: &str = "replication-offset-checkpoint";
/// Log start offsets that differ from the base offset of the first segment.
pub const LOG_START_FILE: &str = "log-start-offset-checkpoint";
/// The end of the compacted part of each compacted partition of a log directory.
pub const CLEANER_FILE: &str = "cleaner-offset-checkpoint";
/// The first offset of each leader epoch of a partition, inside the partition's directory.
pub const LEADER_EPOCH_FILE: &str = "leader-epoch-checkpoint";

/// Length and checksum of each transaction index of a partition, inside the partition's directory.
pub const TXN_INDEX_FILE: &str = "transaction-index-checkpoint";

const VERSION: &str = "0";
/// The lines before the first entry: the version and the number of entries.
const LINES_BEFORE: usize = 2;
/// The version of the checkpoint of transaction indexes, which is Thalweg's own.
const TXN_INDEX_VERSION: &str = "1";

/// Why a checkpoint file is unusable.
#[derive(Debug, thiserror::Error)]
pub enum BadCheckpoint {
    /// The file could not be read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line does not have the expected format.
    #[error("line {line} is malformed")]
    Malformed {
        /// The line, counted from 1.
        line: usize,
    },
    /// The number of entries differs from the announced number.
    #[error("it announces {announced} entries and has {found}")]
    WrongCount {
        /// The number in the second line.
        announced: usize,
        /// The number of entries found.
        found: usize,
    },
}

/// Reads the entries of a checkpoint file; an empty or missing file has none.
fn read_entries<T>(
    disk: &Disk,
    path: &Path,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, BadCheckpoint> {
    match read_text(disk, path)? {
        Some(text) => parse_entries(&text, VERSION, parse),
        None => Ok(Vec::new()),
    }
}

/// The content of a checkpoint file; `None` if it is empty or missing.
fn read_text(disk: &Disk, path: &Path) -> Result<Option<String>, BadCheckpoint> {
    let bytes = disk.read_if_exists(path)?.filter(|bytes| !bytes.is_empty());
    bytes.map(|bytes| String::from_utf8(bytes).map_err(|_| BadCheckpoint::Malformed { line: 1 })).transpose()
}

fn parse_entries<T>(
    text: &str,
    version: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, BadCheckpoint> {
    let is_whole = text.ends_with('\n');
    let mut lines = text.lines();
    if lines.next() != Some(version) {
        return Err(BadCheckpoint::Malformed { line: 1 });
    }
    let announced: usize =
        lines.next().and_then(|line| line.parse().ok()).ok_or(BadCheckpoint::Malformed { line: 2 })?;
    let mut entries = Vec::new();
    for (index, line) in lines.enumerate() {
        entries.push(parse(line).ok_or(BadCheckpoint::Malformed { line: index + LINES_BEFORE + 1 })?);
    }
    if !is_whole {
        // A truncated number is still a number.
        return Err(BadCheckpoint::Malformed { line: entries.len() + 2 });
    }
    if entries.len() != announced {
        return Err(BadCheckpoint::WrongCount { announced, found: entries.len() });
    }
    Ok(entries)
}

fn head(entries: usize) -> String {
    format!("{VERSION}\n{entries}\n")
}

/// Reads an offset checkpoint of a log directory.
///
/// No writer lists a partition twice. Apache Kafka takes the last offset of a repeated partition; this
/// function takes the smallest, with a warning. A smaller offset only repeats checks, fetches or compaction,
/// while a larger offset could mark records as deleted or replicated.
pub fn read_offsets(disk: &Disk, path: &Path) -> Result<BTreeMap<TopicPartition, Offset>, BadCheckpoint> {
    let parse = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let topic = words.next()?;
        let partition: i32 = words.next()?.parse().ok()?;
        let offset: i64 = words.next()?.parse().ok()?;
        let whole = words.next().is_none() && partition >= 0 && offset >= 0;
        whole.then(|| (TopicPartition::new(topic, partition), Offset(offset)))
    };
    let mut offsets = BTreeMap::new();
    for (index, (partition, offset)) in read_entries(disk, path, parse)?.into_iter().enumerate() {
        match offsets.entry(partition) {
            Entry::Vacant(entry) => _ = entry.insert(offset),
            Entry::Occupied(mut entry) => {
                let (line, other) = (index + LINES_BEFORE + 1, *entry.get());
                tracing::warn!(
                    path = %path.display(), line, partition = %entry.key(), offset = offset.0, other = other.0,
                    "Checkpoint names a partition twice: took the smaller offset"
                );
                entry.insert(offset.min(other));
            }
        }
    }
    Ok(offsets)
}

/// Replaces an offset checkpoint of a log directory, durably.
pub fn write_offsets(disk: &Disk, path: &Path, offsets: &BTreeMap<TopicPartition, Offset>) -> io::Result<()> {
    let mut text = head(offsets.len());
    for (partition, offset) in offsets {
        writeln!(text, "{} {} {offset}", partition.topic, partition.partition)
            .expect("writing to a string does not fail");
    }
    disk.replace(path, text.as_bytes(), Durability::Synced)
}

/// Reads a partition's leader epochs, each with its first offset; both increase. The file is overwritten in
/// place, so a power failure may leave it partly old and partly new.
pub fn read_epochs(disk: &Disk, path: &Path) -> Result<Vec<(LeaderEpoch, Offset)>, BadCheckpoint> {
    let entries = read_entries(disk, path, |line| {
        let mut words = line.split_ascii_whitespace();
        let epoch: i32 = words.next()?.parse().ok()?;
        let start: i64 = words.next()?.parse().ok()?;
        let whole = words.next().is_none() && epoch >= 0 && start >= 0;
        whole.then_some((LeaderEpoch(epoch), Offset(start)))
    })?;
    let rises = |pair: &[(LeaderEpoch, Offset)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
    match entries.windows(2).position(|pair| !rises(pair)) {
        Some(index) => Err(BadCheckpoint::Malformed { line: index + 4 }),
        None => Ok(entries),
    }
}

/// Replaces a partition's leader epochs.
pub fn write_epochs(
    disk: &Disk,
    path: &Path,
    epochs: &[(LeaderEpoch, Offset)],
    durability: Durability,
) -> io::Result<()> {
    let mut text = head(epochs.len());
    for (epoch, start) in epochs {
        writeln!(text, "{epoch} {start}").expect("writing to a string does not fail");
    }
    match durability {
        Durability::PageCache => disk.overwrite(path, text.as_bytes()),
        Durability::Synced => disk.replace(path, text.as_bytes(), durability),
    }
}

/// Identity of a transaction index at the last write of the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnIndexSum {
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32C of the whole index.
    pub crc: u32,
}

/// The checkpoint of a partition's transaction indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnIndexes {
    /// True if the last stable offsets in the indexes are correct, as in this version of the checkpoint.
    pub is_current: bool,
    /// The indexes by the base offsets of their segments.
    pub sums: BTreeMap<Offset, TxnIndexSum>,
}

/// Reads the checkpoint of a partition's transaction indexes, in this version or the previous one.
pub fn read_txn_indexes(disk: &Disk, path: &Path) -> Result<TxnIndexes, BadCheckpoint> {
    let Some(text) = read_text(disk, path)? else { return Ok(TxnIndexes::default()) };
    let is_current = text.lines().next() != Some(VERSION);
    let version = if is_current { TXN_INDEX_VERSION } else { VERSION };
    let entries = parse_entries(&text, version, |line| {
        let mut words = line.split_ascii_whitespace();
        let base: i64 = words.next()?.parse().ok()?;
        let sum = TxnIndexSum { bytes: words.next()?.parse().ok()?, crc: words.next()?.parse().ok()? };
        words.next().is_none().then_some((Offset(base), sum))
    })?;
    Ok(TxnIndexes { is_current, sums: entries.into_iter().collect() })
}

/// Replaces the checkpoint of a partition's transaction indexes.
pub fn write_txn_indexes(disk: &Disk, path: &Path, indexes: &TxnIndexes) -> io::Result<()> {
    let version = if indexes.is_current { TXN_INDEX_VERSION } else { VERSION };
    let mut text = format!("{version}\n{}\n", indexes.sums.len());
    for (base, TxnIndexSum { bytes, crc }) in &indexes.sums {
        writeln!(text, "{base} {bytes} {crc}").expect("writing to a string does not fail");
    }
    disk.overwrite(path, text.as_bytes())
}
