//! Compaction, as far as it needs the partition's lock: planning a job, and putting new segments in the place of
//! old ones.
//!
//! Owns: when there is enough to compact, and the order of renames that makes the replacement whole or not there
//! (see `compaction`). Refuses: taking over an outcome when the segments have changed meanwhile.

use std::io;

use thalweg_record::Offset;

use super::error::LogError;
use super::{PartitionLog, ReadHints};
use crate::compaction::{
    CLEANED_SUFFIX, Cleaned, CompactionJob, CompactionOutcome, CompactionStats, LastRecord, SWAP_SUFFIX,
    Source,
};
use crate::segment::{FoundFiles, Segment};

/// Kafka's `log.cleaner.dedupe.buffer.size`.
const DEDUPE_BUFFER_BYTES_DEFAULT: usize = 128 * 1024 * 1024;

impl PartitionLog {
    /// The log is compacted below this offset.
    pub fn cleaned_to(&self) -> Offset {
        self.cleaned_to
    }

    /// Plans a compaction, when the topic is compacted and enough of it is dirty: more than
    /// `min.cleanable.dirty.ratio`, or something older than `max.compaction.lag.ms`.
    pub fn plan_compaction(&mut self, now_ms: i64) -> Result<Option<CompactionJob>, LogError> {
        if !self.config.cleanup_policy.compact || self.poison.is_some() {
            return Ok(None);
        }
        let active_base = self.active().base_offset;
        let in_range = self.cleaned_to >= self.log_start && self.cleaned_to <= active_base;
        let first_dirty = if in_range { self.cleaned_to } else { self.log_start };
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
        let oldest_dirty = dirty().next().map(|source| source.base_offset);
        if ratio <= self.config.min_cleanable_dirty_ratio && !self.is_overdue(oldest_dirty, now_ms)? {
            return Ok(None);
        }
        let mut aborted = Vec::new();
        for segment in &self.segments {
            aborted.push((segment.base_offset, segment.aborted_transactions(&self.home)?));
        }
        let producers = self.producers.iter().map(|(id, entry)| {
            let last = entry.last_data_offset();
            (id, LastRecord { offset: (last >= 0).then_some(Offset(last)), epoch: entry.epoch })
        });
        Ok(Some(CompactionJob {
            home: self.home.clone(),
            config: self.config.clone(),
            aborted,
            producers: producers.collect(),
            sources,
            first_dirty,
            upper_bound,
            truncations: self.truncations,
            now_ms,
            dedupe_buffer_bytes: DEDUPE_BUFFER_BYTES_DEFAULT,
        }))
    }

    /// The offset from which on nothing may be compacted: the active segment, transactions that are open or not
    /// replicated, and records that are too young.
    fn first_uncleanable(&mut self, first_dirty: Offset, now_ms: i64) -> Result<Offset, LogError> {
        let mut bound = self.last_stable_offset().min(self.active().base_offset);
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

    fn sources_below(&self, upper_bound: Offset) -> Vec<Source> {
        let with_next = self.segments.iter().zip(self.segments.iter().skip(1));
        with_next
            .take_while(|(segment, _)| segment.base_offset < upper_bound)
            .map(|(segment, next)| Source {
                base_offset: segment.base_offset,
                next_base: next.base_offset,
                size_bytes: segment.size_bytes(),
            })
            .collect()
    }

    fn is_overdue(&mut self, oldest_dirty: Option<Offset>, now_ms: i64) -> Result<bool, LogError> {
        let lag_ms = self.config.max_compaction_lag_ms;
        let Some(base) = oldest_dirty.filter(|_| lag_ms < i64::MAX) else { return Ok(false) };
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.base_offset == base) else {
            return Ok(false);
        };
        let first = segment.first_timestamp(&self.home).map_err(LogError::in_segment(base))?;
        Ok(first.is_some_and(|first| first >= 0 && now_ms.saturating_sub(first) > lag_ms))
    }

    /// Puts the new segments in the place of the old ones. When segments were deleted or cut meanwhile, the
    /// outcome is dropped, and the log stays as it is; `None` then.
    pub fn finish_compaction(
        &mut self,
        job: &CompactionJob,
        outcome: CompactionOutcome,
    ) -> Result<Option<CompactionStats>, LogError> {
        let is_current = self.poison.is_none()
            && job.truncations == self.truncations
            && job.home.dir == self.home.dir
            && outcome.cleaned.iter().all(|cleaned| self.range_of(cleaned).is_some());
        if !is_current {
            tracing::info!(partition = %self.name, "Log has changed while it was compacted, and stays as it is");
            job.discard();
            return Ok(None);
        }
        for cleaned in &outcome.cleaned {
            if let Err(error) = self.swap_in(cleaned) {
                self.set_poison(format!("segments cannot be replaced: {error}"));
                return Err(error.into());
            }
        }
        self.hints = ReadHints::default();
        self.note_txn_indexes();
        self.cleaned_to = outcome.cleaned_to;
        self.publish();
        if let Some(state) = &self.state
            && let Err(error) = state.write_cleaner_checkpoint()
        {
            tracing::warn!(partition = %self.name, %error, "Cleaner checkpoint cannot be written yet");
        }
        let CompactionStats { keys, bytes_before, bytes_after, .. } = outcome.stats;
        tracing::info!(
            partition = %self.name, keys, bytes_before, bytes_after, cleaned_to = self.cleaned_to.0,
            "Log is compacted"
        );
        if let Some(first) = outcome.stats.first_unreadable {
            tracing::warn!(
                partition = %self.name, batches = outcome.stats.unreadable_batches, first_offset = first.0,
                "Compaction keeps batches whose records cannot be read: their producer sent them so"
            );
        }
        Ok(Some(outcome.stats))
    }

    /// Where the segments are that a new one replaces, if all of them are still there, one after another.
    fn range_of(&self, cleaned: &Cleaned) -> Option<std::ops::Range<usize>> {
        let start = self.segments.iter().position(|segment| segment.base_offset == cleaned.base_offset)?;
        let range = start..start + cleaned.replaces.len();
        let there = self.segments.get(range.clone())?.iter().map(|segment| segment.base_offset);
        // The active segment is never replaced.
        (there.eq(cleaned.replaces.iter().copied()) && range.end < self.segments.len()).then_some(range)
    }

    fn swap_in(&mut self, cleaned: &Cleaned) -> io::Result<()> {
        let range = self.range_of(cleaned).expect("checked before the first replacement");
        let base = cleaned.base_offset;
        let (disk, home) = (&self.home.disk, &self.home);
        let [from, swap] =
            [CLEANED_SUFFIX, SWAP_SUFFIX].map(|suffix| Segment::paths(&home.with_suffix(suffix), base));
        let to = Segment::paths(home, base);
        for (from, swap) in from.iter().zip(&swap) {
            rename_if_exists(disk, from, swap)?;
        }
        // From here on a restart finishes the replacement.
        disk.sync_dir(&home.dir)?;
        let mut renamed = Vec::new();
        for segment in &mut self.segments[range.clone()] {
            let with_snapshot = segment.base_offset != base;
            renamed.extend(segment.mark_deleted(&self.home, with_snapshot)?);
        }
        for (swap, to) in swap.iter().zip(&to) {
            rename_if_exists(disk, swap, to)?;
        }
        let found = FoundFiles { log: true, index: true, time_index: true, txn_index: cleaned.has_txn_index };
        let segment = Segment::found(&self.home, base, found, self.clock.now_ms())?;
        let gone: Vec<_> = cleaned.replaces.iter().copied().filter(|&old| old != base).collect();
        self.snapshots.retain(|offset| !gone.contains(offset));
        self.segments.splice(range, [segment]);
        self.names.note_change();
        self.doom(renamed);
        Ok(())
    }
}

fn rename_if_exists(
    disk: &crate::disk::Disk,
    from: &std::path::Path,
    to: &std::path::Path,
) -> io::Result<()> {
    match disk.rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
