//! The health of a log: its state for appends and reads, the known faults of its records, and the failures
//! that were already logged.
//!
//! Owns: the reason why a log is closed for appends, its known damage, and the last failures, so that each is
//! logged once. Refuses: judging a failure, because only the failed operation knows if the log can continue;
//! and the next step of a damaged replica, which its broker decides.

use std::collections::BTreeSet;
use std::io;
use std::ops::{Bound, Range};
use std::sync::Arc;

use thalweg_record::{BatchError, Offset};

use super::append::AppendInfo;
use super::error::{AppendError, LogError};
use super::examine::Oddities;
use super::suspects::Suspects;
use super::{PartitionLog, ReadHints};
use crate::scan::{BatchFault, CorruptBatch};

/// Known faults of the records of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Synced records are missing from the end: the log ends before this recovery point.
    Missing(Offset),
    /// A batch is unreadable, or missing between two segments. All records below this offset, the base offset
    /// of its segment or the first missing offset, are intact as far as known.
    Unreadable(Offset),
}

/// Signs of missing records, from the files found at a start.
#[derive(Debug, Default)]
pub(super) struct Signs {
    /// Base offsets of segments with only an index. Indexes before the first segment still exist: see
    /// `continuity`.
    pub(super) lost: Vec<Offset>,
    /// Offsets from which on a leader lacked records, too.
    pub(super) marks: Vec<Offset>,
    /// Places where records between segments may be missing (see `suspects`).
    pub(super) suspects: Vec<Offset>,
    /// Base offsets of segments after the first whose logs have `.deleted` names (see `found`).
    pub(super) renamed: Vec<Offset>,
}

impl Signs {
    /// True if there is a sign of a segment between others with this base offset.
    pub(super) fn has(&self, base: Offset) -> bool {
        self.suspects.contains(&base) || self.renamed.contains(&base)
    }
}

/// Missing records before the first segment of a log (see `continuity`).
#[derive(Debug, Default)]
pub(super) struct LostBeginning {
    /// The first missing offset.
    pub(super) from: Offset,
    /// The base offsets of segments with only an index.
    pub(super) indexes: Vec<Offset>,
    /// The offsets of marks that a leader lacked these records, too.
    pub(super) marks: Vec<Offset>,
    /// True if the present leader has the records.
    pub(super) leader_has_them: bool,
}

impl LostBeginning {
    /// True if another replica may have the records, as far as known.
    pub(super) fn is_damage(&self) -> bool {
        !self.indexes.is_empty() || self.leader_has_them
    }
}

/// The health of one log.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Why the log is closed for appends, if it is.
    pub(super) poison: Option<Arc<str>>,
    /// True if the cause is only a lack of room or descriptors for truncating the log at a gap.
    pub(super) waits_at_gap: bool,
    /// Gaps and damage found by recovery.
    pub(super) oddities: Oddities,
    /// The segment and position of the damaged batch that was logged last.
    noted_damage: Option<(Offset, u64)>,
    /// The error of the last append, if it failed.
    failed_append: Option<Box<str>>,
    /// The recovery point beyond the log end, if synced records are missing.
    missing: Option<Offset>,
    /// True if records are missing and none was left: then the log start comes only from a checkpoint, and
    /// may be wrong, too.
    pub(super) may_start_too_late: bool,
    /// The base offsets of segments with unreadable batches, and the first missing offsets between segments.
    unreadable: BTreeSet<Offset>,
    /// The missing records before the first segment.
    pub(super) lost_beginning: Option<LostBeginning>,
    /// Places where a start saw that records between segments may be missing.
    pub(super) suspects: Suspects,
    /// Ends of segments followed by a gap without missing records (see `continuity`).
    pub(super) gaps: BTreeSet<Offset>,
    /// The base offsets of segments whose records the previous segment has, too (see `continuity`).
    pub(super) overlapped: BTreeSet<Offset>,
    /// The base offsets of segments found on disk and not checked yet (see `continuity`).
    pub(super) unchecked: Range<Offset>,
}

impl Health {
    /// The health of a log with these records, in which recovery found these anomalies.
    pub(super) fn new(oddities: Oddities, missing: Option<Offset>, records: Range<Offset>) -> Health {
        let may_start_too_late = missing.is_some() && records.is_empty() && records.start > Offset::ZERO;
        Health { oddities, missing, may_start_too_late, ..Health::default() }
    }

    /// True if a segment with a base offset in this range was deleted by the previous process, or may have
    /// been.
    pub(super) fn was_deleted(&self, between: Range<Offset>) -> bool {
        self.oddities.deleted.iter().chain(self.suspects.renamed()).any(|deleted| between.contains(deleted))
    }

    /// True if noted damage begins at this offset.
    pub(super) fn is_unreadable(&self, from: Offset) -> bool {
        self.unreadable.contains(&from)
    }

    /// The first offset known to be missing between the last batch of a segment and the next.
    pub(super) fn missing_behind(&self, segment: Range<Offset>, is_empty: bool) -> Option<Offset> {
        let all = Some(segment.start).filter(|base| is_empty && self.is_unreadable(*base));
        let behind_first = (Bound::Excluded(segment.start), Bound::Excluded(segment.end));
        all.or_else(|| self.unreadable.range(behind_first).next().copied())
    }

    /// Takes the marks of damage between segments that no longer exists.
    pub(super) fn take_mended_suspects(&mut self) -> Vec<Offset> {
        self.suspects.take_mended(|from| !self.unreadable.contains(&from))
    }

    /// The first offset of unreadable records, or of records missing between segments or before them.
    pub(super) fn unreadable_from(&self) -> Option<Offset> {
        let lost = self.lost_beginning.as_ref().filter(|lost| lost.is_damage()).map(|lost| lost.from);
        lost.into_iter().chain(self.unreadable.first().copied()).min()
    }

    /// The offset of the first sign of missing records before the first segment; the largest offset without a
    /// sign.
    pub(super) fn first_sign(&self) -> Offset {
        let signs = self.lost_beginning.iter().flat_map(|lost| lost.indexes.iter().chain(&lost.marks));
        signs.copied().min().unwrap_or(Offset(i64::MAX))
    }

    /// Applies a truncation to `end`, with the first segment beginning at `first`. Missing records stay
    /// missing.
    pub(super) fn on_truncation(&mut self, first: Offset, end: Offset) {
        self.oddities.forget_from(end);
        self.noted_damage = None;
        self.gaps.retain(|gap| *gap < end);
        self.overlapped.retain(|base| *base > first && *base < end);
        self.unreadable.retain(|base| (first..end).contains(base));
    }

    /// Applies the deletion of the segments below `first`, with their damage.
    pub(super) fn on_deletion(&mut self, first: Offset) {
        self.noted_damage = self.noted_damage.filter(|(segment, _)| *segment >= first);
        self.unreadable.retain(|base| *base >= first);
        self.overlapped.retain(|base| *base > first);
    }
}

impl PartitionLog {
    /// The reason why the log is closed for appends, if it is.
    pub fn poison(&self) -> Option<&str> {
        self.health.poison.as_deref()
    }

    /// The reason why appends fail: the log is closed, or its directory is offline.
    pub fn failure(&self) -> Option<Arc<str>> {
        let offline = || self.state.as_ref().and_then(|state| state.offline());
        self.health.poison.clone().or_else(offline)
    }

    /// True if the log is closed only for lack of room or descriptors: [`PartitionLog::end_at_gap`] can be
    /// called again.
    pub fn waits_at_gap(&self) -> bool {
        self.health.waits_at_gap
    }

    /// Refuses all further appends; the log stays readable.
    pub(super) fn set_poison(&mut self, reason: String) {
        if self.health.poison.is_none() {
            if let Some(state) = &self.state {
                state.fail(&reason);
            }
            self.refuse_appends(reason);
        }
    }

    /// Refuses appends like [`PartitionLog::set_poison`], for causes other than the disk: other logs of the
    /// directory continue.
    pub(super) fn refuse_appends(&mut self, reason: String) {
        if self.health.poison.is_none() {
            tracing::error!(partition = %self.name, dir = %self.home.dir.display(), reason, "Log is closed for appends after a failure");
            self.health.poison = Some(reason.into());
        }
    }

    /// Logs the reason why a healthy log refuses appends, once per series of failures, because clients only
    /// get an error code.
    pub(super) fn note_outcome(&mut self, appended: &Result<AppendInfo, AppendError>) {
        match appended {
            Ok(_) => self.health.failed_append = None,
            Err(AppendError::Log(error)) if self.health.poison.is_none() => {
                let reason = error.to_string();
                if self.health.failed_append.as_deref() != Some(&reason) {
                    tracing::error!(partition = %self.name, reason, "Failed to append batches");
                    self.health.failed_append = Some(reason.into());
                }
            }
            Err(_) => {}
        }
    }

    /// The known faults of the records, if any.
    pub fn damage(&self) -> Option<Damage> {
        let unreadable = self.health.unreadable_from().map(Damage::Unreadable);
        unreadable.or(self.health.missing.map(Damage::Missing))
    }

    /// The recovery point beyond the log end, if synced records are missing from the end.
    pub fn missing_below(&self) -> Option<Offset> {
        let beyond = if self.health.may_start_too_late { self.log_end.0.saturating_add(1) } else { 0 };
        self.health.missing.map(|missing| missing.max(Offset(beyond)))
    }

    /// True if records may be missing at the beginning, too: none was left at the start.
    pub fn may_start_too_late(&self) -> bool {
        self.health.may_start_too_late
    }

    /// Notes an error that a reader of the log has met without its lock: the error may be damage.
    pub fn note_error(&mut self, error: &LogError) {
        if let LogError::Corrupt { segment, fault } = error {
            self.note_damage(*segment, fault);
        }
    }

    /// Drops the known damage, because the leader has the records: unreadable records with all later ones,
    /// and the memory of missing records. A log that may start too late restarts at offset 0: the leader
    /// supplies the start.
    pub fn drop_damage(&mut self) -> Result<(), LogError> {
        if let Some(from) = self.health.unreadable_from() {
            self.drop_segments_from(from)?;
        }
        if self.health.may_start_too_late {
            self.truncate_fully_and_start_at(Offset::ZERO, None)?;
        }
        self.forget_missing()
    }

    /// Forgets the records missing at both ends, because no other replica has them; the next start forgets
    /// records missing between segments.
    pub fn accept_loss(&mut self) -> Result<(), LogError> {
        self.forget_missing()?;
        self.give_up_suspects()?;
        Ok(self.forget_lost_beginning()?)
    }

    /// Forgets missing records like [`PartitionLog::accept_loss`], for a log in which records missing between
    /// segments matter at each start.
    pub fn accept_loss_at_ends(&mut self) -> Result<(), LogError> {
        self.forget_missing()?;
        Ok(self.forget_lost_beginning()?)
    }

    /// The offsets known to be missing, in order: before the first segment, between two segments, and at the
    /// end. In a compacted log, some of these offsets had no record.
    pub fn missing_ranges(&self) -> Vec<Range<Offset>> {
        let health = &self.health;
        let lost = health.lost_beginning.as_ref().filter(|lost| lost.is_damage());
        let beginning = lost.map(|lost| lost.from..self.segments[0].base_offset);
        let between = self.segments.windows(2).filter_map(|pair| {
            let next = pair[1].base_offset;
            let from = health.missing_behind(pair[0].base_offset..next, pair[0].is_empty())?;
            (next > self.log_start).then_some(from..next)
        });
        let end = health.missing.map(|recovery_point| self.log_end..recovery_point);
        beginning.into_iter().chain(between).chain(end).filter(|lost| lost.start < lost.end).collect()
    }

    /// The log start for followers. Followers keep records that are missing only here, because those were not
    /// deleted.
    pub fn log_start_for_followers(&self) -> Offset {
        let lost = self.health.lost_beginning.as_ref().map(|lost| lost.from);
        lost.map_or(self.log_start, |from| from.min(self.log_start))
    }

    /// True if the records before the first segment are missing here because a leader lacked them.
    pub fn lacks_what_a_leader_lacked(&self) -> bool {
        self.health.lost_beginning.as_ref().is_some_and(|lost| !lost.is_damage())
    }

    /// The first missing offset before the log start, if records there were lost rather than deleted.
    pub fn lost_from(&self) -> Option<Offset> {
        let from = self.log_start_for_followers();
        (from < self.log_start).then_some(from)
    }

    /// Compares the beginning with the leader's log, which begins at `start`. If the leader has records
    /// missing here, their lack is damage from now on.
    pub fn compare_beginning(&mut self, start: Offset) {
        let first = self.segments[0].base_offset;
        if let Some(lost) = &mut self.health.lost_beginning
            && start < first
        {
            lost.leader_has_them = true;
            self.publish();
        }
    }

    /// Forgets missing records below `leader_start`, the leader's log start for its followers: they were
    /// deleted.
    pub fn forget_lost_beginning_below(&mut self, leader_start: Offset) -> Result<(), LogError> {
        if leader_start >= self.segments[0].base_offset {
            return Ok(self.forget_lost_beginning()?);
        }
        if let Some(lost) = &mut self.health.lost_beginning
            && leader_start > lost.from
        {
            lost.from = leader_start;
            self.publish();
        }
        Ok(())
    }

    /// Forgets that records are missing. Until then the checkpoint keeps the recovery point, from which the
    /// next start learns of the loss again.
    pub fn forget_missing(&mut self) -> Result<(), LogError> {
        if self.health.missing.take().is_some() {
            self.health.may_start_too_late = false;
            self.publish();
            self.flushing.offsets_sank = true;
            self.lower_checkpoints()?;
        }
        Ok(())
    }

    /// Forgets that records are missing from the end once the leader's records extend the log to its recovery
    /// point again.
    pub fn forget_missing_if_there(&mut self) -> Result<(), LogError> {
        if self.health.may_start_too_late {
            // The recovery point stays beyond the end: the records here do not restore earlier ones.
            self.publish();
        }
        if self.missing_below().is_some_and(|recovery_point| recovery_point <= self.log_end) {
            self.forget_missing()?;
        }
        Ok(())
    }

    /// Compares the length of an open segment with that of its file.
    pub(super) fn check_length(&mut self, index: usize) -> io::Result<()> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        if let Some(fault) = segment.check_length()? {
            self.note_shortened(base, &fault);
        }
        Ok(())
    }

    /// Notes that another program has cut the file of a segment. Positions in the file are not trusted any
    /// more.
    pub(super) fn note_shortened(&mut self, segment: Offset, fault: &CorruptBatch) {
        self.hints = ReadHints::default();
        self.note_damage(segment, fault);
    }

    /// Notes damage in a batch, and logs it once.
    pub(super) fn note_damage(&mut self, segment: Offset, fault: &CorruptBatch) {
        if self.log_damage(segment, fault) && is_damage(&fault.reason) {
            self.health.unreadable.insert(first_of(segment, fault));
            self.publish();
        }
    }

    /// Logs damage in a batch, unless it was logged last. Returns true if logged.
    pub(super) fn log_damage(&mut self, segment: Offset, fault: &CorruptBatch) -> bool {
        let place = Some((segment, fault.position));
        if self.health.noted_damage == place {
            return false;
        }
        self.health.noted_damage = place;
        tracing::error!(
            partition = %self.name, segment = segment.0, position = fault.position, %fault,
            "Batch is damaged and cannot be served"
        );
        true
    }
}

/// The offset that identifies damage.
pub(super) fn first_of(segment: Offset, fault: &CorruptBatch) -> Offset {
    match fault.reason {
        BatchFault::Missing { from, .. } => Offset(from),
        _ => segment,
    }
}

/// True if another replica may have better bytes. Batches of old formats are stored as written.
fn is_damage(fault: &BatchFault) -> bool {
    !matches!(fault, BatchFault::Batch(BatchError::LegacyMagic(_)))
}
