//! The in-flight records of a share partition, as ordered runs of offsets with one state each.
//!
//! A run is an in-flight batch, or a part of one that was split because its records differ in state. Equal
//! runs are merged again, so that a partition whose records are acknowledged one by one stays small.
//!
//! A run costs 40 bytes with its key, and at most 112 with the nodes of the tree. In the worst case, a
//! million runs of one record each, the map takes at most 112 MB.

use std::collections::BTreeMap;
use std::collections::btree_map::RangeMut;

/// The phase of a record in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Ready for acquisition.
    Available,
    /// Acquired by a member.
    Acquired,
    /// Accepted by a member.
    Acknowledged,
    /// Never delivered again, by a rejection or the delivery limit.
    Archived,
}

/// Stands for no member.
pub const NO_ONE: u32 = u32::MAX;

/// A run of offsets, from its key in [`Runs`] to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The last offset, inclusive.
    pub last: i64,
    /// The end of the acquisition lock.
    pub deadline_ms: i64,
    /// The member that holds the records, or held the records until the pending change; else [`NO_ONE`].
    pub owner: u32,
    /// The number of offsets in the in-flight batch of this run.
    pub batch_len: u32,
    /// The delivery count of the records.
    pub deliveries: i16,
    /// The phase of the records, which may be pending.
    pub phase: Phase,
    /// True while the write of the phase is pending.
    pub is_pending: bool,
    /// True if an in-flight batch begins here. Runs of different batches are not merged.
    pub starts_batch: bool,
}

impl Run {
    /// True if the records are never delivered again.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Acknowledged | Phase::Archived)
    }

    /// True if a member may acquire the records.
    pub fn is_available(&self) -> bool {
        self.phase == Phase::Available && !self.is_pending
    }

    /// True if a member holds the records, without a pending change.
    pub fn is_acquired(&self) -> bool {
        self.phase == Phase::Acquired && !self.is_pending
    }

    /// True if `next`, which begins where this run ends, differs only in its offsets.
    fn continues_in(&self, next: &Run) -> bool {
        if self.is_terminal() && !self.is_pending {
            return next.phase == self.phase && !next.is_pending;
        }
        let same = Run { last: next.last, starts_batch: next.starts_batch, ..*self };
        !next.starts_batch && same == *next
    }
}

/// Runs by first offset, in offset order and without overlaps.
#[derive(Clone, Debug, Default)]
pub struct Runs(BTreeMap<i64, Run>);

impl Runs {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn first(&self) -> Option<(i64, Run)> {
        self.0.first_key_value().map(|(at, run)| (*at, *run))
    }

    pub fn last(&self) -> Option<(i64, Run)> {
        self.0.last_key_value().map(|(at, run)| (*at, *run))
    }

    pub fn insert(&mut self, at: i64, run: Run) {
        debug_assert!(self.within(at, run.last).next().is_none(), "runs do not overlap");
        self.0.insert(at, run);
    }

    pub fn pop_first(&mut self) -> Option<(i64, Run)> {
        self.0.pop_first()
    }

    pub fn iter(&self) -> impl Iterator<Item = (i64, Run)> {
        self.0.iter().map(|(at, run)| (*at, *run))
    }

    /// The last run that begins at or before `offset`.
    fn floor(&self, offset: i64) -> Option<(i64, Run)> {
        self.0.range(..=offset).next_back().map(|(at, run)| (*at, *run))
    }

    /// The runs that overlap the offsets from `first` to `last`.
    pub fn within(&self, first: i64, last: i64) -> impl Iterator<Item = (i64, Run)> {
        let from = self.floor(first).filter(|(_, run)| run.last >= first).map_or(first, |(at, _)| at);
        // `BTreeMap::range` panics if the start is after the end.
        let range = (from <= last).then(|| self.0.range(from..=last));
        range.into_iter().flatten().map(|(at, run)| (*at, *run))
    }

    /// Splits a run that spans `offset`, so that a run begins there.
    fn split_at(&mut self, offset: i64) {
        let Some((at, run)) = self.floor(offset) else { return };
        if at < offset && run.last >= offset {
            self.0.insert(at, Run { last: offset - 1, ..run });
            self.0.insert(offset, Run { starts_batch: false, ..run });
        }
    }

    /// The runs from `first` to `last`, split at both ends.
    pub fn cut(&mut self, first: i64, last: i64) -> RangeMut<'_, i64, Run> {
        self.split_at(first);
        self.split_at(last + 1);
        self.0.range_mut(first..=last)
    }

    /// Merges equal neighbours, from the run before `first` to the run after `last`.
    pub fn join(&mut self, first: i64, last: i64) {
        let from = self.floor(first - 1).map_or(first, |(at, _)| at);
        let mut here = self.0.range(from..).next().map(|(at, run)| (*at, *run));
        while let Some((at, run)) = here {
            if at > last {
                return;
            }
            let next = self.0.range(run.last + 1..).next().map(|(at, run)| (*at, *run));
            here = match next {
                Some((next_at, next)) if next_at == run.last + 1 && run.continues_in(&next) => {
                    self.0.remove(&next_at);
                    let joined = Run { last: next.last, ..run };
                    self.0.insert(at, joined);
                    Some((at, joined))
                }
                next => next,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Run = Run {
        last: 0,
        deadline_ms: 0,
        owner: NO_ONE,
        batch_len: 10,
        deliveries: 1,
        phase: Phase::Available,
        is_pending: false,
        starts_batch: true,
    };

    fn ends(runs: &Runs) -> Vec<(i64, i64)> {
        runs.iter().map(|(at, run)| (at, run.last)).collect()
    }

    #[test]
    fn the_bound_of_memory_holds() {
        assert_eq!(size_of::<Run>(), 32);
    }

    #[test]
    fn a_run_is_split_where_its_records_differ_and_joined_where_they_do_not() {
        let mut runs = Runs::default();
        runs.insert(0, Run { last: 9, ..RUN });
        runs.insert(10, Run { last: 19, ..RUN });
        for (_, run) in runs.cut(4, 6) {
            run.phase = Phase::Acknowledged;
        }
        runs.join(4, 6);
        assert_eq!(ends(&runs), [(0, 3), (4, 6), (7, 9), (10, 19)]);
        for (_, run) in runs.cut(4, 6) {
            run.phase = Phase::Available;
        }
        runs.join(4, 6);
        // The second run is another batch.
        assert_eq!(ends(&runs), [(0, 9), (10, 19)]);
        for (_, run) in runs.cut(0, 19) {
            run.phase = Phase::Archived;
        }
        runs.join(0, 19);
        assert_eq!(ends(&runs), [(0, 19)]);
    }

    #[test]
    fn runs_with_a_hole_between_them_are_not_joined() {
        let mut runs = Runs::default();
        runs.insert(0, Run { last: 3, phase: Phase::Archived, ..RUN });
        runs.insert(5, Run { last: 9, phase: Phase::Archived, ..RUN });
        runs.join(0, 9);
        assert_eq!(ends(&runs), [(0, 3), (5, 9)]);
        assert_eq!(runs.within(4, 4).count(), 0);
        assert_eq!(runs.within(3, 5).count(), 2);
        assert_eq!(runs.within(9, 3).count(), 0);
    }
}
