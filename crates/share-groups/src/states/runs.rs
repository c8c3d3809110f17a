//! The runs of records in a share partition's state, and their combination with new runs (Kafka's
//! `PersisterStateBatch` and `PersisterStateBatchCombiner`).
//!
//! Of two states of an offset, the higher delivery count wins, then the higher state. The resulting runs are
//! cut as in Kafka, because snapshots show the cuts: neighbours with one state may stay apart until the next
//! combination.

use std::collections::BTreeSet;
use thalweg_share::{DeliveryState, StateBatch};

/// Maximum number of runs in a write with overlaps: each run may have to be compared with each other run.
pub(super) const OVERLAPPING_MAX: usize = 1_000;

/// A run of records with one state, both ends included. The state code is kept as received, even if it is
/// unknown to [`DeliveryState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateRun {
    /// The offset of the first record.
    pub first_offset: i64,
    /// The offset of the last record, not before the first.
    pub last_offset: i64,
    /// Delivery count of the records.
    pub delivery_count: i16,
    /// The code of the state.
    pub delivery_state: i8,
}

impl From<&StateBatch> for StateRun {
    fn from(batch: &StateBatch) -> StateRun {
        StateRun {
            first_offset: batch.first_offset,
            last_offset: batch.last_offset,
            delivery_count: batch.delivery_count,
            delivery_state: batch.state.code(),
        }
    }
}

impl StateRun {
    /// The run as a batch for partition leaders; `None` if its state is never persisted.
    pub(super) fn batch(self) -> Option<StateBatch> {
        Some(StateBatch {
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            state: DeliveryState::from_code(self.delivery_state)?,
            delivery_count: self.delivery_count,
        })
    }

    /// True if the run has a record.
    pub(super) fn is_filled(&self) -> bool {
        self.first_offset <= self.last_offset
    }

    /// The rank of overlapping runs; the higher rank wins.
    fn rank(self) -> (i16, i8) {
        (self.delivery_count, self.delivery_state)
    }

    fn between(self, first_offset: i64, last_offset: i64) -> StateRun {
        StateRun { first_offset, last_offset, ..self }
    }

    /// True if this run and a later one have to be combined: they overlap, or are adjacent with equal ranks.
    fn combines_with(self, next: StateRun) -> bool {
        next.first_offset <= self.last_offset
            || (self.last_offset.checked_add(1) == Some(next.first_offset) && self.rank() == next.rank())
    }

    /// The part of the run from `start_offset` on.
    fn cut_before(self, start_offset: i64) -> Option<StateRun> {
        (self.last_offset >= start_offset)
            .then(|| self.between(self.first_offset.max(start_offset), self.last_offset))
    }
}

/// The runs of a share partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    list: Vec<StateRun>,
    /// True if the runs are in order and none combines with the next.
    are_apart: bool,
}

impl Runs {
    /// These runs, without empty ones.
    pub(super) fn of(mut list: Vec<StateRun>) -> Runs {
        list.retain(StateRun::is_filled);
        let are_apart = are_apart(&list);
        Runs { list, are_apart }
    }

    /// New runs combined with one another, from `start_offset` on; -1 for no limit.
    pub(super) fn combined(new: &[StateRun], start_offset: i64) -> Runs {
        let mut runs = Runs { list: Vec::new(), are_apart: true };
        runs.combine(new, start_offset);
        runs
    }

    /// The runs in order, unless a snapshot had another order.
    pub(super) fn as_slice(&self) -> &[StateRun] {
        &self.list
    }

    /// Adds runs, and drops offsets before `start_offset`; -1 for no limit.
    pub(super) fn combine(&mut self, new: &[StateRun], start_offset: i64) {
        let start_offset = if start_offset == -1 { i64::MIN } else { start_offset };
        let new: Vec<StateRun> =
            new.iter().filter(|run| run.is_filled()).filter_map(|run| run.cut_before(start_offset)).collect();
        if !self.are_apart {
            let kept = self.list.drain(..).filter_map(|run| run.cut_before(start_offset));
            let all: Vec<StateRun> = kept.chain(new).collect();
            *self = Runs::of(combine_all(all));
            return;
        }
        self.drop_before(start_offset);
        let low = new.iter().map(|run| run.first_offset).min();
        let high = new.iter().map(|run| run.last_offset).max();
        let Some((low, high)) = low.zip(high) else { return };
        // All other runs neither overlap with the new ones nor touch them.
        let from = self.list.partition_point(|run| run.last_offset.saturating_add(1) < low);
        let to = self.list.partition_point(|run| run.first_offset <= high.saturating_add(1));
        let touched = self.list[from..to].iter().copied().chain(new).collect();
        let combined = combine_all(touched);
        let end = from + combined.len();
        self.list.splice(from..to, combined);
        self.are_apart = are_apart(&self.list[from.saturating_sub(1)..(end + 1).min(self.list.len())]);
    }

    /// Drops offsets before `start_offset` from ordered runs.
    fn drop_before(&mut self, start_offset: i64) {
        let gone = self.list.partition_point(|run| run.last_offset < start_offset);
        self.list.drain(..gone);
        if let Some(first) = self.list.first_mut() {
            first.first_offset = first.first_offset.max(start_offset);
        }
    }
}

fn are_apart(runs: &[StateRun]) -> bool {
    runs.windows(2).all(|pair| pair[0].first_offset < pair[1].first_offset && !pair[0].combines_with(pair[1]))
}

/// True if so many of the runs overlap that combining them would take long.
pub(super) fn overlap_too_much(runs: &[StateRun]) -> bool {
    if runs.len() <= OVERLAPPING_MAX {
        return false;
    }
    let mut sorted = runs.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair[1].first_offset <= pair[0].last_offset)
}

/// Replaces the first two runs that combine by their combination, until no two runs combine.
fn combine_all(runs: Vec<StateRun>) -> Vec<StateRun> {
    if runs.len() < 2 {
        return runs;
    }
    let mut done = Vec::with_capacity(runs.len());
    let mut sorted: BTreeSet<StateRun> = runs.into_iter().collect();
    while let Some(run) = sorted.pop_first() {
        match sorted.first() {
            Some(next) if run.combines_with(*next) => {
                let next = sorted.pop_first().expect("the condition has found it");
                combine_two(run, next, &mut sorted);
            }
            _ => done.push(run),
        }
    }
    done
}

/// Combines two runs. `next` does not start before `run`; with an equal start and a lower rank, it ends
/// later.
fn combine_two(run: StateRun, next: StateRun, sorted: &mut BTreeSet<StateRun>) {
    if run.rank() == next.rank() {
        sorted.insert(run.between(run.first_offset, run.last_offset.max(next.last_offset)));
    } else if next.rank() < run.rank() {
        sorted.insert(run);
        if next.last_offset > run.last_offset {
            sorted.insert(next.between(run.last_offset + 1, next.last_offset));
        }
    } else {
        if run.first_offset < next.first_offset {
            sorted.insert(run.between(run.first_offset, next.first_offset - 1));
        }
        sorted.insert(next);
        if run.last_offset > next.last_offset {
            sorted.insert(run.between(next.last_offset + 1, run.last_offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn run(first_offset: i64, last_offset: i64, delivery_count: i16, delivery_state: i8) -> StateRun {
        StateRun { first_offset, last_offset, delivery_count, delivery_state }
    }

    /// The state of each offset, by the rule at the head of the file.
    fn of_each(runs: &[StateRun], offsets: i64) -> Vec<Option<(i16, i8)>> {
        (0..offsets)
            .map(|offset| {
                let covers = |run: &&StateRun| (run.first_offset..=run.last_offset).contains(&offset);
                runs.iter().filter(covers).map(|run| run.rank()).max()
            })
            .collect()
    }

    #[test]
    fn a_later_delivery_replaces_the_part_that_it_covers() {
        let mut runs = Runs::of(vec![run(0, 99, 1, 0)]);
        runs.combine(&[run(10, 19, 1, 2)], -1);
        assert_eq!(runs.as_slice(), [run(0, 9, 1, 0), run(10, 19, 1, 2), run(20, 99, 1, 0)]);
        runs.combine(&[run(5, 30, 0, 0)], 3);
        assert_eq!(runs.as_slice(), [run(3, 9, 1, 0), run(10, 19, 1, 2), run(20, 99, 1, 0)]);
    }

    #[test]
    fn neighbours_that_become_alike_are_one_after_the_next_combination() {
        let mut runs = Runs::of(vec![run(0, 4, 1, 2), run(5, 9, 1, 0)]);
        runs.combine(&[run(5, 9, 1, 2)], -1);
        assert_eq!(runs.as_slice(), [run(0, 4, 1, 2), run(5, 9, 1, 2)], "as Kafka leaves them");
        runs.combine(&[run(20, 20, 1, 2)], -1);
        assert_eq!(runs.as_slice(), [run(0, 9, 1, 2), run(20, 20, 1, 2)]);
    }

    #[test]
    fn runs_without_records_are_dropped_and_the_ends_of_the_offsets_are_safe() {
        let mut runs = Runs::of(vec![run(5, 4, 1, 0), run(7, i64::MAX, 1, 0)]);
        runs.combine(&[run(i64::MAX, i64::MAX, 2, 2), run(3, 2, 9, 0)], -1);
        assert_eq!(runs.as_slice(), [run(7, i64::MAX - 1, 1, 0), run(i64::MAX, i64::MAX, 2, 2)]);
        runs.combine(&[], i64::MAX);
        assert_eq!(runs.as_slice(), [run(i64::MAX, i64::MAX, 2, 2)]);
    }

    #[test]
    fn combining_a_window_is_combining_all() {
        for seed in 0..300 {
            let mut random = StdRng::seed_from_u64(seed);
            let mut some = |count: usize| -> Vec<StateRun> {
                let one = |_| {
                    let first = random.random_range(0..60);
                    let last = first + random.random_range(0..12);
                    run(first, last, random.random_range(1..4), [0, 2, 4][random.random_range(0..3)])
                };
                (0..count).map(one).collect()
            };
            let mut runs = Runs::default();
            let mut expected: Vec<StateRun> = Vec::new();
            let mut start = 0;
            for round in 0..30 {
                let new = some(1 + round % 4);
                if round % 7 == 6 {
                    start += 3;
                }
                let all: Vec<StateRun> = expected.iter().chain(&new).copied().collect();
                let all: Vec<StateRun> = all.into_iter().filter_map(|run| run.cut_before(start)).collect();
                let each = of_each(&all, 80);
                expected = combine_all(all);
                runs.combine(&new, start);
                assert_eq!(runs.as_slice(), expected, "seed {seed}, round {round}");
                assert_eq!(of_each(runs.as_slice(), 80), each, "seed {seed}, round {round}");
            }
        }
    }

    #[test]
    fn many_runs_may_not_overlap() {
        let apart: Vec<StateRun> = (0..2_000).map(|n| run(n, n, 1, 0)).collect();
        assert!(!overlap_too_much(&apart));
        let nested: Vec<StateRun> = (0..2_000).map(|n| run(n, 5_000, 1, 0)).collect();
        assert!(overlap_too_much(&nested) && !overlap_too_much(&nested[..OVERLAPPING_MAX]));
    }
}
