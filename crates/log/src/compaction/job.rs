//! A planned compaction and its outcome.
//!
//! Owns: the range that a pass may read, the grouping of segments, and the statistics. Refuses: reading
//! batches (see `pass`), and touching the old segments; the partition replaces them when it installs the
//! outcome.

use std::io;
use std::sync::Arc;

use thalweg_hash::HashMap;
use thalweg_record::{Offset, ProducerId};

use super::CLEANED_SUFFIX;
use super::filter::LastRecord;
use crate::config::LogConfig;
use crate::scan::{CorruptBatch, HeaderScan, ScanError};
use crate::segment::transactions::AbortedTransaction;
use crate::segment::{Home, Segment};

/// Maximum number of batches logged with a line each; others are counted.
pub(super) const NAMED_MAX: usize = 8;

/// Why a compaction failed; the log is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A batch is damaged, and its segment is left alone.
    #[error("the segment {segment} is damaged: {fault}")]
    Corrupt {
        /// Base offset of the segment.
        segment: Offset,
        /// Position and cause.
        fault: CorruptBatch,
    },
    /// The key map is too small for one batch, so no pass gets beyond that batch.
    #[error(
        "the batch at offset {base_offset} has more keys than the {keys_max} that log.cleaner.dedupe.buffer.size \
         has room for in each of log.cleaner.threads"
    )]
    TooManyKeys {
        /// Base offset of the batch.
        base_offset: Offset,
        /// Capacity of the map, in keys.
        keys_max: usize,
    },
}

/// Statistics of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Keys in the dirty part.
    pub keys: usize,
    /// Bytes of the segments before.
    pub bytes_before: u64,
    /// Bytes of the segments after.
    pub bytes_after: u64,
    pub batches_before: u64,
    pub batches_after: u64,
    /// Batches with unreadable records and valid CRCs, which are kept unchanged.
    pub unreadable_batches: u64,
    /// Base offset of the first unreadable batch.
    pub first_unreadable: Option<Offset>,
}

/// A segment as it was when the compaction was planned.
#[derive(Clone, Debug)]
pub(crate) struct SourceSegment {
    pub(crate) base_offset: Offset,
    pub(crate) next_base: Offset,
    pub(crate) size_bytes: u64,
}

/// A batch that is kept because its records are unreadable.
#[derive(Clone, Debug)]
pub(crate) struct UnreadBatch {
    pub(crate) base_offset: Offset,
    pub(crate) last_offset: Offset,
    pub(crate) reason: String,
}

/// Unread batches that were not logged before.
#[derive(Debug, Default)]
pub(crate) struct NewlyUnread {
    /// The first of these batches.
    pub(crate) named: Vec<UnreadBatch>,
    pub(crate) count: u64,
    /// The offset after the last of these batches.
    pub(crate) end: Offset,
}

/// A planned compaction, which can be run on any thread. While the job exists, no segment of the log is
/// deleted by age or size (Kafka's cleaning state of a partition).
#[derive(Debug)]
pub struct CompactionJob {
    pub(crate) home: Home,
    pub(crate) config: Arc<LogConfig>,
    /// The segments below the active one, oldest first.
    pub(crate) sources: Vec<SourceSegment>,
    /// The transaction indexes of all segments, by their base offsets.
    pub(crate) aborted: Vec<(Offset, Vec<AbortedTransaction>)>,
    pub(crate) producers: HashMap<ProducerId, LastRecord>,
    pub(crate) first_dirty: Offset,
    pub(crate) upper_bound: Offset,
    /// Unread batches below this offset were logged by an earlier pass.
    pub(crate) named_to: Offset,
    pub(crate) truncations: u64,
    pub(crate) now_ms: i64,
    /// Held while segments must be kept.
    #[expect(dead_code, reason = "the log counts who holds it")]
    pub(crate) exclusion: Arc<()>,
    /// Bytes for the map of keys (`log.cleaner.dedupe.buffer.size`).
    pub dedupe_buffer_bytes: usize,
}

/// A new segment and the segments that it replaces.
#[derive(Debug)]
pub(crate) struct CleanedSegment {
    pub(crate) base_offset: Offset,
    pub(crate) replaces: Vec<Offset>,
    pub(crate) has_txn_index: bool,
}

/// New segments, written and synced under `.cleaned` names.
#[derive(Debug)]
pub struct CompactionOutcome {
    pub(crate) cleaned: Vec<CleanedSegment>,
    /// The end of the compacted part.
    pub(crate) cleaned_to: Offset,
    pub(crate) newly_unread: NewlyUnread,
    pub stats: CompactionStats,
}

impl CompactionJob {
    /// Removes the files that the job has written. Call it without the partition's lock.
    pub fn discard(&self) {
        for source in &self.sources {
            let home = self.home.with_suffix(CLEANED_SUFFIX);
            for path in Segment::paths(&home, source.base_offset) {
                if let Err(error) = home.disk.remove(&path) {
                    tracing::warn!(path = %path.display(), %error, "Failed to remove an incomplete compaction");
                }
            }
        }
    }

    /// The aborted transactions with records below `upper` whose marker is in the segment at `base` or later.
    pub(super) fn aborted_from(&self, base: Offset, upper: Offset) -> Vec<AbortedTransaction> {
        let mut found = Vec::new();
        for (_, entries) in self.aborted.iter().filter(|(segment, _)| *segment >= base) {
            for aborted in entries {
                if aborted.first_offset < upper {
                    found.push(*aborted);
                }
                if aborted.last_stable_offset >= upper {
                    return found;
                }
            }
        }
        found
    }

    /// The sources below `end`, by index, grouped with neighbours that fit into one segment.
    pub(super) fn groups(&self, end: Offset) -> Vec<std::ops::Range<usize>> {
        let count = self.sources.partition_point(|source| source.base_offset < end);
        let mut groups = Vec::new();
        let mut first = 0;
        while first < count {
            let (mut next, mut size_bytes) = (first + 1, self.sources[first].size_bytes);
            while next < count
                && size_bytes + self.sources[next].size_bytes <= u64::from(self.config.segment_bytes)
                && self.sources[next].next_base - self.sources[first].base_offset <= i64::from(i32::MAX)
            {
                size_bytes += self.sources[next].size_bytes;
                next += 1;
            }
            groups.push(first..next);
            first = next;
        }
        groups
    }
}

/// The offset after the last batch of a segment file, which replaces all segments up to that offset.
pub(super) fn next_offset_of(home: &Home, base: Offset, name: &str) -> io::Result<Offset> {
    let file = home.disk.open(&home.dir.join(name))?;
    let mut scan = HeaderScan::new(&file, 0, file.len()?);
    // An empty file replaces at least its own base offset.
    let mut next = Offset(base.0.saturating_add(1));
    loop {
        match scan.next() {
            Ok(Some(batch)) => next = next.max(batch.header.next_offset()),
            Ok(None) | Err(ScanError::Corrupt(_)) => return Ok(next),
            Err(ScanError::Io(error)) => return Err(error),
        }
    }
}
