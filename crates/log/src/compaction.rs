//! Log compaction: only the last record of each key is kept (Kafka's `Cleaner`).
//!
//! A job is planned under the partition's lock ([`crate::PartitionLog::plan_compaction`]), runs without the
//! lock on segments that no longer change ([`CompactionJob::run`], or step by step by [`CompactionPass`]),
//! and its outcome is installed under the lock ([`crate::PartitionLog::finish_compaction`]). Two walks: the
//! first reads the dirty part and records the last offset of each key; the second copies all segments up to
//! there, without superseded records. While the job exists, retention skips the log; otherwise passes would
//! fail under load.
//!
//! ```text
//! <base>.log.cleaned   the new segment while it is written, indexes likewise; dropped at the next start
//! <base>.log.swap      the new segment is whole; from here on it is finished, also after a crash
//! <base>.log           the new segment in its place; the old ones have become .deleted
//! ```
//! Under the lock, files are only renamed, segment by segment in order. File systems persist renames in
//! order, so a crash leaves old segments, or new segments up to some point and old segments after it. The
//! directory is synced without the lock ([`CompactionSwap::sync`]). Only then are the old files removed, and
//! only then does the cleaner checkpoint rise ([`crate::PartitionLog::complete_compaction`]): if old segments
//! reappeared below it, the next pass would not see that a tombstone in them still has a value to delete.
//!
//! Owns: the choice of kept records, and replacing segments so that a stop at any moment leaves the old or
//! the new. Refuses: the active segment, records above the last stable offset, and damaged batches: a segment
//! with a wrong CRC is not changed. A batch with a valid CRC and unreadable records, sent by its producer, is
//! kept unchanged and its keys are ignored. Such a batch may contain any key, so later tombstones and markers
//! are kept too.
//!
//! Kept: the last record of each key; a record without a value (a tombstone) until `delete.retention.ms`
//! after the first compaction that saw it as the last; the last batch of each producer, possibly without
//! records, so that its sequence is kept; control batches until their transaction has no record left.

use std::io;
use std::ops::Range;

use thalweg_record::Offset;

use crate::checkpoint::{self, TXN_INDEX_FILE};
use crate::disk::DirEntry;
use crate::segment::{Home, LOG_SUFFIX, TXN_INDEX_SUFFIX, split_name};

mod filter;
mod job;
mod offset_map;
mod pass;
mod run;
mod transactions;

pub(crate) use filter::LastRecord;
pub(crate) use job::{CleanedSegment, NewlyUnread, SourceSegment};
pub use job::{CompactionError, CompactionJob, CompactionOutcome, CompactionStats};
pub use pass::{CompactionPass, CompactionStep};

/// The suffix of a segment that is being written.
pub(crate) const CLEANED_SUFFIX: &str = ".cleaned";
/// The suffix of a segment that replaces old ones.
pub(crate) const SWAP_SUFFIX: &str = ".swap";

/// Finishes or undoes a segment replacement that an earlier process began. Returns the remaining names.
pub(crate) fn resolve_swaps(home: &Home, listed: Vec<DirEntry>) -> io::Result<Vec<DirEntry>> {
    let has = |suffix: &str| listed.iter().any(|listed| listed.name.ends_with(suffix));
    if !has(CLEANED_SUFFIX) && !has(SWAP_SUFFIX) {
        return Ok(listed);
    }
    // A replacement has not begun while any file of a new segment is still `.cleaned`.
    let mut cleaned_from = None;
    for DirEntry { name, .. } in listed.iter().filter(|listed| listed.name.ends_with(CLEANED_SUFFIX)) {
        if let Some((offset, _)) = split_name(name) {
            cleaned_from = Some(cleaned_from.map_or(offset, |known: Offset| known.min(offset)));
        }
        home.disk.remove(&home.dir.join(name))?;
    }
    let mut swapped = Vec::new();
    for DirEntry { name, .. } in listed.iter().filter(|listed| listed.name.ends_with(SWAP_SUFFIX)) {
        let Some((offset, suffix)) = split_name(name) else { continue };
        if cleaned_from.is_some_and(|from| offset >= from) {
            home.disk.remove(&home.dir.join(name))?;
        } else {
            swapped.push((offset, suffix.trim_end_matches(SWAP_SUFFIX).to_owned(), name.clone()));
        }
    }
    let mut replaced = Vec::new();
    for (base, _, name) in swapped.iter().filter(|(_, suffix, _)| suffix == LOG_SUFFIX) {
        replaced.push(*base..job::next_offset_of(home, *base, name)?);
    }
    forget_txn_indexes(home, &replaced)?;
    for range in &replaced {
        for DirEntry { name, is_dir, .. } in &listed {
            let is_replaced = split_name(name).is_some_and(|(offset, suffix)| {
                range.contains(&offset) && !suffix.ends_with(SWAP_SUFFIX) && !suffix.ends_with(CLEANED_SUFFIX)
            });
            if is_replaced && !is_dir {
                home.disk.remove(&home.dir.join(name))?;
            }
        }
    }
    if !swapped.is_empty() {
        // A power failure must not leave the index of an old segment, without its log, beside the new
        // segment.
        home.disk.sync_dir(&home.dir)?;
    }
    let has_log =
        |base: &Offset| swapped.iter().any(|(offset, suffix, _)| offset == base && suffix == LOG_SUFFIX);
    for (offset, suffix, name) in &swapped {
        if !has_log(offset) && suffix != TXN_INDEX_SUFFIX {
            // The log at this offset is the new one, or the old one after an undo: its indexes are rebuilt.
            home.disk.remove(&home.file(*offset, suffix))?;
            home.disk.remove(&home.dir.join(name))?;
            continue;
        }
        tracing::info!(dir = %home.dir.display(), name, "Finished replacing a segment");
        home.disk.rename(&home.dir.join(name), &home.file(*offset, suffix))?;
    }
    home.disk.list(&home.dir)
}

/// Removes segments from the checkpoint of transaction indexes before the segments are replaced: an index in
/// the checkpoint without a file counts as missing.
fn forget_txn_indexes(home: &Home, replaced: &[Range<Offset>]) -> io::Result<()> {
    let path = home.dir.join(TXN_INDEX_FILE);
    // An unreadable checkpoint is rebuilt at the start.
    let Ok(mut indexes) = checkpoint::read_txn_indexes(&home.disk, &path) else { return Ok(()) };
    let is_replaced = |base: &Offset| replaced.iter().any(|range| range.start < *base && *base < range.end);
    let before = indexes.sums.len();
    indexes.sums.retain(|base, _| !is_replaced(base));
    if indexes.sums.len() < before {
        checkpoint::write_txn_indexes(&home.disk, &path, &indexes)?;
        home.disk.open(&path)?.sync_data()?;
    }
    Ok(())
}
