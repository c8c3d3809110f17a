//! The parts of compaction under the partition's lock: planning a job, and replacing segments.
//!
//! Owns: the threshold for a compaction, and the order of renames that makes the replacement atomic (see
//! `compaction`). Refuses: installing an outcome if the log was truncated meanwhile, and syncing under the
//! lock.

use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use thalweg_record::Offset;

use super::error::LogError;
use super::health::LostBeginning;
use super::{PartitionLog, ReadHints, txn_index};
use crate::compaction::{
    CLEANED_SUFFIX, CleanedSegment, CompactionJob, CompactionOutcome, CompactionStats, LastRecord,
    NewlyUnread, SWAP_SUFFIX, SourceSegment,
};
use crate::dir_state::DirState;
use crate::disk::{self, Disk};
use crate::segment::{FoundFiles, Home, Segment, cut_name};

/// Kafka's `log.cleaner.dedupe.buffer.size`.
const DEDUPE_BUFFER_BYTES_DEFAULT: usize = 128 * 1024 * 1024;

/// The need of a log for compaction, in ascending order: logs with records older than `max.compaction.lag.ms`
/// are greatest, then the largest dirty share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dirtiness {
    /// True if a dirty record is older than `max.compaction.lag.ms`.
    pub is_overdue: bool,
    /// The dirty share of the compactable bytes.
    pub ratio: f64,
}

impl Eq for Dirtiness {}

impl Ord for Dirtiness {
    fn cmp(&self, other: &Dirtiness) -> Ordering {
        self.is_overdue.cmp(&other.is_overdue).then(self.ratio.total_cmp(&other.ratio))
    }
}

impl PartialOrd for Dirtiness {
    fn partial_cmp(&self, other: &Dirtiness) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a log's compaction.
#[derive(Debug, Default)]
pub(super) struct CompactionState {
    /// The log is compacted below this offset.
    pub(super) cleaned_to: Offset,
    /// Alive while a compaction is planned or runs.
    running: Weak<()>,
    /// Unreadable batches below this offset were logged.
    pub(super) unread_named_to: Offset,
}

/// The part that a job may compact, and its urgency.
struct CleanablePart {
    dirtiness: Dirtiness,
    sources: Vec<SourceSegment>,
    first_dirty: Offset,
    upper_bound: Offset,
}

/// Installed new segments, not yet synced.
#[derive(Debug)]
pub struct CompactionSwap {
    disk: Disk,
    /// The directory of the log.
    log_dir: PathBuf,
    /// Files of the old segments, under their `.deleted` names.
    renamed: Vec<PathBuf>,
    /// Files of new segments that had no room.
    unused: Vec<PathBuf>,
    /// Changes of names that the sync covers.
    names: u64,
    truncations: u64,
    cleaned_to: Offset,
    newly_unread: NewlyUnread,
    stats: CompactionStats,
    state: Option<Arc<DirState>>,
}

impl CompactionSwap {
    /// Syncs the new names, and removes the files of segments that were not installed. Blocks; call it
    /// without the partition's lock.
    pub fn sync(&self) -> io::Result<()> {
        for path in &self.unused {
            if let Err(error) = self.disk.remove(path) {
                tracing::warn!(path = %path.display(), %error, "Failed to remove an unused segment");
            }
        }
        txn_index::sync(&self.disk, &self.log_dir)?;
        self.disk.sync_dir(&self.log_dir)
    }

    /// Writes the cleaner checkpoint of the directory. Blocks; call it without the partition's lock, after
    /// [`PartitionLog::complete_compaction`].
    pub fn write_checkpoint(&self) {
        if let Some(state) = &self.state
            && let Err(error) = state.write_cleaner_checkpoint()
        {
            tracing::warn!(dir = %self.log_dir.display(), %error, "Failed to write the cleaner checkpoint, retrying later");
        }
    }
}

impl PartitionLog {
    /// The log is compacted below this offset.
    pub fn cleaned_to(&self) -> Offset {
        self.cleaning.cleaned_to
    }

    /// True if a job of this log exists.
    pub(super) fn is_being_compacted(&self) -> bool {
        self.cleaning.running.strong_count() > 0
    }

    /// True if the outcome of the job still applies: the log was not truncated, closed, moved or deleted.
    pub fn is_current(&self, job: &CompactionJob) -> bool {
        self.health.poison.is_none()
            && job.truncations == self.flushing.truncations
            && job.home.dir == self.home.dir
    }

    /// The log's need for compaction: `None` if its topic is not compacted, not enough of it is dirty, or a
    /// compaction is running. Enough means more than `min.cleanable.dirty.ratio`, or a record older than
    /// `max.compaction.lag.ms`.
    pub fn dirtiness(&mut self, now_ms: i64) -> Result<Option<Dirtiness>, LogError> {
        Ok(self.cleanable(now_ms)?.map(|cleanable| cleanable.dirtiness))
    }

    fn cleanable(&mut self, now_ms: i64) -> Result<Option<CleanablePart>, LogError> {
        if !self.config.cleanup_policy.compact || self.health.poison.is_some() || self.is_being_compacted() {
            return Ok(None);
        }
        let active_base = self.active().base_offset;
        let in_range = self.cleaning.cleaned_to >= self.log_start && self.cleaning.cleaned_to <= active_base;
        let first_dirty = if in_range { self.cleaning.cleaned_to } else { self.log_start };
        let upper_bound = self.first_uncleanable(first_dirty, now_ms)?;
        if upper_bound <= first_dirty {
            return Ok(None);
        }
        let sources = self.sources_below(upper_bound);
        let dirty = || sources.iter().filter(|source| source.next_base > first_dirty);
        let dirty_bytes: u64 = dirty().map(|source| source.size_bytes).sum();
        let total_bytes: u64 = sources.iter().map(|source| source.size_bytes).sum();
        if dirty_bytes == 0 {
            return Ok(None);
        }
        let ratio = dirty_bytes as f64 / total_bytes as f64;
        let oldest_dirty = dirty().next().map_or(upper_bound, |source| source.base_offset);
        let is_overdue = self.is_overdue(oldest_dirty..upper_bound, now_ms)?;
        if ratio <= self.config.min_cleanable_dirty_ratio && !is_overdue {
            return Ok(None);
        }
        let dirtiness = Dirtiness { is_overdue, ratio };
        Ok(Some(CleanablePart { dirtiness, sources, first_dirty, upper_bound }))
    }

    /// Plans a compaction, if the log needs one (see [`PartitionLog::dirtiness`]).
    pub fn plan_compaction(&mut self, now_ms: i64) -> Result<Option<CompactionJob>, LogError> {
        let Some(cleanable) = self.cleanable(now_ms)? else { return Ok(None) };
        let mut aborted = Vec::new();
        for segment in &self.segments {
            aborted.push((segment.base_offset, segment.aborted_transactions(&self.home)?));
        }
        let producers = self.producers.iter().map(|(id, entry)| {
            let last = entry.last_data_offset();
            (id, LastRecord { offset: (last >= 0).then_some(Offset(last)), epoch: entry.epoch })
        });
        let exclusion = Arc::new(());
        self.cleaning.running = Arc::downgrade(&exclusion);
        Ok(Some(CompactionJob {
            home: self.home.beside_lock(),
            config: self.config.clone(),
            aborted,
            producers: producers.collect(),
            sources: cleanable.sources,
            first_dirty: cleanable.first_dirty,
            upper_bound: cleanable.upper_bound,
            named_to: self.cleaning.unread_named_to,
            truncations: self.flushing.truncations,
            now_ms,
            exclusion,
            dedupe_buffer_bytes: DEDUPE_BUFFER_BYTES_DEFAULT,
        }))
    }

    /// The end of the compactable range: the active segment, open or unreplicated transactions, records that
    /// are too young, and gaps known to be missing records, which a compacted log would not show.
    fn first_uncleanable(&mut self, first_dirty: Offset, now_ms: i64) -> Result<Offset, LogError> {
        if self.has_unjudged_suspects() {
            // The check failed before, as it does without descriptors.
            self.check_suspects_of_compacted()?;
        }
        let mut bound = self.last_stable_offset().min(self.active().base_offset);
        bound = self.health.suspects.first_damage().map_or(bound, |missing| bound.min(missing));
        let lacks_beginning = self.health.lost_beginning.as_ref().is_some_and(LostBeginning::is_damage);
        if lacks_beginning || !self.health.overlapped.is_empty() {
            bound = self.health.unreadable_from().map_or(bound, |damaged| bound.min(damaged));
        }
        if self.config.min_compaction_lag_ms > 0 {
            for index in 0..self.segments.len() - 1 {
                let next_base = self.segments[index + 1].base_offset;
                let youngest_ms = now_ms.saturating_sub(self.config.min_compaction_lag_ms);
                if next_base > first_dirty && self.newest_record_ms(index)? > youngest_ms {
                    bound = bound.min(self.segments[index].base_offset);
                    break;
                }
            }
        }
        Ok(bound)
    }

    fn sources_below(&self, upper_bound: Offset) -> Vec<SourceSegment> {
        let with_next = self.segments.iter().zip(self.segments.iter().skip(1));
        with_next
            .take_while(|(segment, _)| segment.base_offset < upper_bound)
            .map(|(segment, next)| SourceSegment {
                base_offset: segment.base_offset,
                next_base: next.base_offset,
                size_bytes: segment.size_bytes(),
            })
            .collect()
    }

    /// True if a dirty segment begins with a record older than `max.compaction.lag.ms`. That segment need not
    /// be the first, because producers' timestamps need not increase with the offsets.
    fn is_overdue(&mut self, dirty: Range<Offset>, now_ms: i64) -> Result<bool, LogError> {
        let lag_ms = self.config.max_compaction_lag_ms;
        if lag_ms == i64::MAX {
            return Ok(false);
        }
        for segment in self.segments.iter_mut().filter(|segment| dirty.contains(&segment.base_offset)) {
            let (base, was_open) = (segment.base_offset, segment.is_open());
            let first = segment.first_timestamp(&self.home).map_err(LogError::in_segment(base))?;
            if !was_open {
                segment.release(&self.home)?;
            }
            if first.is_some_and(|first| first >= 0 && now_ms.saturating_sub(first) > lag_ms) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Replaces the old segments by the new ones. Returns `None` and changes nothing if the log was truncated
    /// meanwhile, or if there is no room for the names; then [discard](CompactionJob::discard) the job.
    /// Otherwise sync the swap without the lock, and then [complete](PartitionLog::complete_compaction) it.
    /// If there is room for the first segments only, those are replaced, and the log does not count as
    /// compacted.
    pub fn finish_compaction(
        &mut self,
        job: &CompactionJob,
        outcome: CompactionOutcome,
    ) -> Result<Option<CompactionSwap>, LogError> {
        let is_current =
            self.is_current(job) && outcome.cleaned.iter().all(|cleaned| self.range_of(cleaned).is_some());
        if !is_current {
            tracing::info!(partition = %self.name, "Discarded a compaction because the log changed meanwhile");
            return Ok(None);
        }
        let (mut renamed, mut replaced) = (Vec::new(), 0);
        for cleaned in &outcome.cleaned {
            match self.swap_in(cleaned) {
                Ok(old) => renamed.extend(old),
                Err(NotSwapped { error, is_whole: true }) if disk::is_disk_full(&error) => {
                    tracing::warn!(partition = %self.name, %error, replaced, "Failed to replace compacted segments, retrying later");
                    break;
                }
                Err(NotSwapped { error, .. }) => {
                    self.set_poison(format!("segments cannot be replaced: {error}"));
                    return Err(error.into());
                }
            }
            replaced += 1;
        }
        let (is_complete, left) = (replaced == outcome.cleaned.len(), outcome.cleaned.get(replaced + 1..));
        if replaced == 0 && !is_complete {
            return Ok(None);
        }
        let unused = left.into_iter().flatten();
        let unused =
            unused.flat_map(|cleaned| paths(&self.home, cleaned.base_offset, CLEANED_SUFFIX)).collect();
        self.flushing.names.note_change();
        self.rewrites += 1;
        self.hints = ReadHints::default();
        self.note_txn_indexes();
        self.publish();
        Ok(Some(CompactionSwap {
            disk: self.home.disk.beside_lock(),
            log_dir: self.home.dir.clone(),
            renamed,
            unused,
            names: self.flushing.names.changes(),
            truncations: self.flushing.truncations,
            cleaned_to: if is_complete { outcome.cleaned_to } else { self.cleaning.cleaned_to },
            newly_unread: outcome.newly_unread,
            stats: outcome.stats,
            state: self.state.clone(),
        }))
    }

    /// Records the outcome of [`CompactionSwap::sync`]: the log now counts as compacted, and the old files
    /// may be removed. A failed sync closes the log for appends, as in a flush.
    pub fn complete_compaction(
        &mut self,
        swap: &mut CompactionSwap,
        synced: io::Result<()>,
    ) -> Result<CompactionStats, LogError> {
        let stats = swap.stats;
        if swap.log_dir != self.home.dir || self.health.poison.is_some() {
            // The directory was moved, deleted or closed, together with the files.
            return Ok(stats);
        }
        if let Err(error) = synced {
            self.set_poison(format!("a sync of {} has failed: {error}", self.home.dir.display()));
            return Err(error.into());
        }
        self.flushing.names.set_synced(swap.names);
        self.doom(std::mem::take(&mut swap.renamed));
        if swap.truncations == self.flushing.truncations {
            self.cleaning.cleaned_to = swap.cleaned_to;
            self.cleaning.unread_named_to = self.cleaning.unread_named_to.max(swap.newly_unread.end);
        }
        self.publish();
        let CompactionStats { keys, bytes_before, bytes_after, .. } = stats;
        tracing::info!(
            partition = %self.name, keys, bytes_before, bytes_after, cleaned_to = self.cleaning.cleaned_to.0,
            "Compacted a log"
        );
        self.name_unread(&swap.newly_unread);
        Ok(stats)
    }

    /// Logs unreadable batches, each once.
    fn name_unread(&self, newly: &NewlyUnread) {
        for batch in &newly.named {
            tracing::warn!(
                partition = %self.name, base_offset = batch.base_offset.0, last_offset = batch.last_offset.0,
                reason = batch.reason,
                "Compaction kept an unreadable batch, and all tombstones and transaction markers after it"
            );
        }
        let others = newly.count - newly.named.len() as u64;
        if others > 0 {
            tracing::warn!(
                partition = %self.name, batches = others, end_offset = newly.end.0,
                "Compaction kept more unreadable batches"
            );
        }
    }

    /// The indexes of the segments that a new one replaces, if all of them still exist, consecutively.
    fn range_of(&self, cleaned: &CleanedSegment) -> Option<Range<usize>> {
        let start = self.segments.iter().position(|segment| segment.base_offset == cleaned.base_offset)?;
        let range = start..start + cleaned.replaces.len();
        let there = self.segments.get(range.clone())?.iter().map(|segment| segment.base_offset);
        // The active segment is never replaced.
        (there.eq(cleaned.replaces.iter().copied()) && range.end < self.segments.len()).then_some(range)
    }

    /// Renames the files of a new segment to the names of the old ones, and returns the paths that wait for
    /// removal.
    fn swap_in(&mut self, cleaned: &CleanedSegment) -> Result<Vec<PathBuf>, NotSwapped> {
        let range = self.range_of(cleaned).expect("checked before the first replacement");
        let base = cleaned.base_offset;
        if let Err(error) = begin_swap(&self.home, base) {
            let is_whole = undo_swap(&self.home, base).is_ok();
            return Err(NotSwapped { error, is_whole });
        }
        // From here on a restart finishes the replacement.
        let mut waiting = Vec::new();
        for segment in &mut self.segments[range.clone()] {
            if segment.base_offset == base {
                waiting.extend(make_way(&self.home, base)?);
            } else {
                waiting.extend(segment.mark_deleted(&self.home)?);
            }
        }
        end_swap(&self.home, base)?;
        let found = FoundFiles { log: true, index: true, time_index: true, txn_index: cleaned.has_txn_index };
        let segment = Segment::found(&self.home, base, found, self.clock.now_ms())?;
        self.segments.splice(range, [segment]);
        for &old in cleaned.replaces.iter().filter(|&&old| old != base) {
            waiting.extend(self.take_out_snapshot(old));
        }
        Ok(waiting)
    }
}

/// Why old segments were not replaced.
struct NotSwapped {
    error: io::Error,
    /// True if the old segments are unchanged.
    is_whole: bool,
}

impl From<io::Error> for NotSwapped {
    fn from(error: io::Error) -> NotSwapped {
        NotSwapped { error, is_whole: false }
    }
}

fn paths(home: &Home, base: Offset, suffix: &'static str) -> [PathBuf; 4] {
    Segment::paths(&home.with_suffix(suffix), base)
}

/// Declares a new segment complete. With the last rename, the replacement has begun.
fn begin_swap(home: &Home, base: Offset) -> io::Result<()> {
    let [cleaned, swaps] = [CLEANED_SUFFIX, SWAP_SUFFIX].map(|suffix| paths(home, base, suffix));
    let mut pairs = cleaned.iter().zip(&swaps);
    // The batches must be renamed first: the old ones are removed.
    pairs.next().map_or(Ok(()), |(cleaned, swap)| home.disk.rename(cleaned, swap))?;
    pairs.try_for_each(|(cleaned, swap)| rename_if_exists(&home.disk, cleaned, swap).map(drop))
}

/// Removes a new segment that could not be declared complete. A restart in between finds an incomplete
/// segment: its batches are removed first, and the file that marks it last.
fn undo_swap(home: &Home, base: Offset) -> io::Result<()> {
    let _allowed = disk::allow_waits("nothing can be appended until there is room");
    let [swaps, cleaned] = [SWAP_SUFFIX, CLEANED_SUFFIX].map(|suffix| paths(home, base, suffix));
    swaps.iter().chain(&cleaned).try_for_each(|path| home.disk.remove(path))
}

/// Renames the files of the old segment whose names the new segment gets. Otherwise, if the new segment were
/// deleted too before their removal, two deleted files would have the same name. Without room for other names
/// the files stay, and are replaced.
fn make_way(home: &Home, base: Offset) -> io::Result<Vec<PathBuf>> {
    let mut renamed = Vec::new();
    for path in Segment::paths(home, base) {
        let replaced = cut_name(&path);
        match rename_if_exists(&home.disk, &path, &replaced) {
            Ok(true) => renamed.push(replaced),
            Ok(false) => {}
            Err(error) if disk::is_disk_full(&error) => {
                tracing::warn!(path = %path.display(), %error, "Failed to rename a file of a compacted segment, replacing it in place");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(renamed)
}

/// Gives the files of the new segment their final names. Old files without a successor are removed before:
/// once the new batches have their name, no file marks the replacement any more, and an old index beside an
/// empty log would be a sign of lost records.
fn end_swap(home: &Home, base: Offset) -> io::Result<()> {
    let _allowed = disk::allow_waits("files of the old segment are only there without room for other names");
    let [swaps, names] = [paths(home, base, SWAP_SUFFIX), Segment::paths(home, base)];
    let mut without_successor = swaps.iter().zip(&names).filter(|(swap, _)| !home.disk.exists(swap));
    without_successor.try_for_each(|(_, to)| home.disk.remove(to))?;
    for (swap, to) in swaps.iter().zip(&names) {
        match rename_if_exists(&home.disk, swap, to) {
            Err(error) if disk::is_disk_full(&error) => {
                tracing::warn!(path = %swap.display(), %error, "Failed to rename a file of a new segment, removing the old one first");
                home.disk.remove(to)?;
                rename_if_exists(&home.disk, swap, to)
            }
            renamed => renamed,
        }?;
    }
    Ok(())
}

/// Renames a file; returns false if it does not exist.
fn rename_if_exists(disk: &Disk, from: &Path, to: &Path) -> io::Result<bool> {
    match disk.rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        renamed => renamed.map(|()| true),
    }
}
