//! Classifies the files that a start finds in a partition's directory.
//!
//! A `.log.deleted` below the first segment was deleted by the previous process. Retention deletes the oldest
//! segments first, so after the first segment such files come only from compaction, or from empty segments
//! replaced by a roll. Otherwise another program renamed the log, and its records are missing: the file stays
//! until the policy of the topic, still unknown at a start, decides (see `suspects`). Such a file does not
//! explain an index without its log if a second file of that index has a `.deleted` name.
//!
//! Owns: finishing or undoing interrupted operations, and finding signs of missing records. Refuses: judging
//! those signs; see `continuity`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use thalweg_record::Offset;

use super::health::Signs;
use super::suspects;
use crate::checkpoint::TXN_INDEX_FILE;
use crate::compaction::{CLEANED_SUFFIX, SWAP_SUFFIX};
use crate::disk::{DirEntry, TEMPORARY_SUFFIX};
use crate::obstacles;
use crate::segment::{
    DELETED_SUFFIX, FoundFiles, Home, INDEX_SUFFIX, LOG_SUFFIX, LOST_SUFFIX, MISSING_SUFFIX, SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, deleted_name, split_name,
};

/// The files of a partition's directory, by their use.
#[derive(Debug, Default)]
pub(super) struct PartitionFiles {
    pub(super) segments: BTreeMap<Offset, FoundFiles>,
    pub(super) snapshots: Vec<Offset>,
    /// Base offsets of deleted segments whose files still exist.
    pub(super) deleted: Vec<Offset>,
    pub(super) signs: Signs,
    /// True if there is a checkpoint of the transaction indexes.
    pub(super) txn_checkpoint: bool,
    /// The base offsets of missing segments after the first whose transaction indexes exist.
    pub(super) left_txn_indexes: Vec<Offset>,
    /// The indexes with `.deleted` names.
    deleted_indexes: BTreeSet<(Offset, String)>,
}

/// Scans the files of a partition's directory, finishing or undoing interrupted operations.
pub(super) fn sort_out(home: &Home) -> io::Result<PartitionFiles> {
    let (mut found, mut doomed, mut deleted) = (PartitionFiles::default(), Vec::new(), Vec::new());
    let listed = obstacles::rename(&home.disk, &home.dir, home.disk.list(&home.dir)?, is_of_file)?;
    let listed = crate::compaction::resolve_swaps(home, listed)?;
    for DirEntry { name, is_file, .. } in listed {
        if !is_file {
            continue;
        }
        // Files being written when the process ended, or the disk was full.
        if name.ends_with(TEMPORARY_SUFFIX) {
            home.disk.remove(&home.dir.join(&name))?;
            continue;
        }
        if let Some(name_before) = name.strip_suffix(DELETED_SUFFIX) {
            match split_name(name_before) {
                Some((offset, LOG_SUFFIX)) => deleted.push(offset),
                found_name => {
                    found
                        .deleted_indexes
                        .extend(found_name.map(|(offset, suffix)| (offset, suffix.to_owned())));
                    doomed.push(home.dir.join(&name));
                }
            }
            continue;
        }
        found.txn_checkpoint |= name == TXN_INDEX_FILE;
        let Some((offset, suffix)) = split_name(&name) else { continue };
        match suffix {
            LOG_SUFFIX => found.segments.entry(offset).or_default().log = true,
            INDEX_SUFFIX => found.segments.entry(offset).or_default().index = true,
            TIME_INDEX_SUFFIX => found.segments.entry(offset).or_default().time_index = true,
            TXN_INDEX_SUFFIX => found.segments.entry(offset).or_default().txn_index = true,
            SNAPSHOT_SUFFIX => found.snapshots.push(offset),
            LOST_SUFFIX => found.signs.marks.push(offset),
            MISSING_SUFFIX => found.signs.suspects.push(offset),
            _ => {}
        }
    }
    for base in deleted {
        let path = deleted_name(&home.file(base, LOG_SUFFIX));
        let is_behind_first = found.is_behind_first(base);
        if is_behind_first && home.disk.facts(&path)?.len > 0 {
            // A file that compaction replaced by a segment that is now missing stays while that segment is
            // missing.
            if !found.has_second_index(base) && !found.signs.suspects.contains(&base) {
                found.signs.renamed.push(base);
            }
            continue;
        }
        // A roll leaves the file of a segment that never had a batch.
        if !is_behind_first || !had_batches(home, base)? {
            found.deleted.push(base);
        }
        doomed.push(path);
    }
    found.remove_lone_indexes(home)?;
    found.segments.retain(|_, files| files.log);
    doomed.iter().try_for_each(|path| home.disk.remove(path))?;
    Ok(found)
}

/// True if a name is that of a file that a log creates, renames or removes.
fn is_of_file(name: &str) -> bool {
    let ends = [TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX];
    name == TXN_INDEX_FILE || ends.iter().any(|end| name.ends_with(end)) || split_name(name).is_some()
}

impl PartitionFiles {
    /// True if an absent segment would be after the first one.
    fn is_behind_first(&self, base: Offset) -> bool {
        let mut with_log = self.segments.iter().filter(|(_, files)| files.log).map(|(offset, _)| *offset);
        let is_there = self.segments.get(&base).is_some_and(|files| files.log);
        !is_there && with_log.next().is_some_and(|first| first < base)
    }

    /// True if a segment has an index twice, once with a `.deleted` name: a compaction of an earlier version,
    /// or of Apache Kafka, has replaced the segment by one with the same base offset. For a segment deleted
    /// since, each index has only one of the two names.
    fn has_second_index(&self, base: Offset) -> bool {
        let files = self.segments.get(&base).copied().unwrap_or_default();
        let is_there = |suffix: &str| self.deleted_indexes.contains(&(base, suffix.to_owned()));
        (files.index && is_there(INDEX_SUFFIX)) || (files.time_index && is_there(TIME_INDEX_SUFFIX))
    }

    /// Notes and removes the indexes without a log, except those before the first segment, which stay while
    /// the records are missing.
    fn remove_lone_indexes(&mut self, home: &Home) -> io::Result<()> {
        let mut with_log = self.segments.iter().filter(|(_, files)| files.log).map(|(offset, _)| *offset);
        let first = with_log.next().unwrap_or(Offset::ZERO);
        let last = with_log.next_back().unwrap_or(first);
        let alone: Vec<Offset> =
            self.segments.iter().filter(|(_, files)| !files.log).map(|(offset, _)| *offset).collect();
        let has_other_name = |base: &Offset| {
            (self.deleted.contains(base) || self.signs.renamed.contains(base))
                && !self.has_second_index(*base)
        };
        let is_between = |base: &&Offset| (first..last).contains(*base) && !has_other_name(base);
        let mut between: Vec<Offset> = alone.iter().filter(is_between).copied().collect();
        suspects::mark(home, &between)?;
        let lost: Vec<Offset> = alone.iter().filter(|base| !has_other_name(base)).copied().collect();
        for base in &alone {
            if *base < first && lost.contains(base) {
                continue;
            }
            tracing::warn!(dir = %home.dir.display(), offset = base.0, "Deleted an index without a log");
            for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
                home.disk.remove(&home.file(*base, suffix))?;
            }
            if between.contains(base) || self.signs.renamed.contains(base) {
                // Removed once another index has its entries.
                self.left_txn_indexes.extend(self.segments[base].txn_index.then_some(*base));
            } else {
                home.disk.remove(&home.file(*base, TXN_INDEX_SUFFIX))?;
            }
        }
        // Until the indexes are removed, the files of deleted segments explain them. These deleted segments
        // are removed next.
        if alone.iter().any(|base| *base > first && self.deleted.contains(base)) {
            home.disk.sync_dir(&home.dir)?;
        }
        self.signs.suspects.append(&mut between);
        self.signs.lost = lost;
        Ok(())
    }
}

/// True if an index of a segment has an entry. Compaction also leaves empty segments, without entries in
/// their indexes.
pub(super) fn had_batches(home: &Home, base_offset: Offset) -> io::Result<bool> {
    for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
        match home.disk.facts(&home.file(base_offset, suffix)) {
            Ok(facts) if facts.len > 0 => return Ok(true),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(false)
}
