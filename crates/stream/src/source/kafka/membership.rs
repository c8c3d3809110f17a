//! The group membership of a source, shared by the reading task and the stream: partitions about to be
//! revoked, and records that are void because this or another member reads them again.
//!
//! Before partitions are revoked, the reader waits until the stream has handed these partitions back: their
//! messages are delivered and committed. So an orderly rebalance repeats nothing. The wait is limited to
//! [`HAND_BACK_MAX`].

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_client::{GroupMetadata, TopicPartition};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::runs::Run;

/// Maximum time that the stream may take to deliver messages of revoked partitions.
const HAND_BACK_MAX: Duration = Duration::from_secs(30);

/// The shared state.
#[derive(Default)]
pub struct Membership {
    state: Mutex<State>,
    /// For the stream: partitions must be handed back, or were lost.
    changed: Notify,
    /// For the reader: the stream's state has changed.
    wanted: Notify,
}

#[derive(Default)]
struct State {
    /// The generation of newly read records.
    generation: u64,
    /// Records of these partitions from earlier generations are void.
    void_before: BTreeMap<TopicPartition, u64>,
    /// Records of all partitions from earlier generations are void.
    all_void_before: u64,
    losing: Option<Revocation>,
    /// The stream accepts no more records.
    is_closed: bool,
    /// The stream has nothing left to hand back.
    is_over: bool,
    /// The group's metadata for the current assignment.
    group: Option<GroupMetadata>,
    wants_rewind: bool,
}

/// Partitions being revoked.
struct Revocation {
    partitions: Vec<TopicPartition>,
    /// The deadline of the group for these partitions.
    until: Instant,
}

impl State {
    /// Voids the records read from these partitions.
    fn void(&mut self, partitions: Vec<TopicPartition>) {
        self.generation += 1;
        let generation = self.generation;
        self.void_before.extend(partitions.into_iter().map(|at| (at, generation)));
    }

    fn is_void(&self, run: &Run) -> bool {
        run.generation < self.all_void_before
            || self.void_before.get(&run.at).is_some_and(|before| run.generation < *before)
    }
}

impl Membership {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation of newly read records.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Waits for a change that concerns the stream. Cancel safe.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits for a change that concerns the reader. Cancel safe.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// The deadline for handing partitions back, if any.
    pub fn losing(&self) -> Option<Instant> {
        self.state().losing.as_ref().map(|losing| losing.until)
    }

    /// Starts revoking partitions. Returns the deadline for the stream to deliver their messages, unless the
    /// stream has ended.
    pub fn lose(&self, partitions: Vec<TopicPartition>) -> Option<Instant> {
        let mut state = self.state();
        if state.is_over {
            state.void(partitions);
            return None;
        }
        let until = Instant::now() + HAND_BACK_MAX;
        state.losing = Some(Revocation { partitions, until });
        self.changed.notify_one();
        Some(until)
    }

    /// Notes that the position has passed records that are no messages.
    pub fn passed(&self) {
        self.changed.notify_one();
    }

    /// Notes that partitions were lost without notice.
    pub fn lost(&self, partitions: Vec<TopicPartition>) {
        self.state().void(partitions);
        self.changed.notify_one();
    }

    /// Notes that the stream has committed everything from the revoked partitions, or that the rest will be
    /// read again.
    pub fn hand_back(&self) {
        let mut state = self.state();
        if let Some(losing) = state.losing.take() {
            state.void(losing.partitions);
            self.changed.notify_one();
        }
    }

    /// Notes newly assigned partitions: reading starts at the committed offsets.
    pub fn assigned(&self, group: Option<GroupMetadata>) {
        let mut state = self.state();
        state.group = group;
        state.wants_rewind = false;
        state.generation += 1;
    }

    /// Notes that the stream accepts no more records.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.wanted.notify_one();
    }

    /// True if the stream accepts no more records.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Notes that the stream has ended, and its last commit is done.
    pub fn end(&self) {
        let mut state = self.state();
        (state.is_closed, state.is_over) = (true, true);
        self.wanted.notify_one();
    }

    /// True if the stream has ended.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Filters out void records, and returns the group's metadata for the rest.
    pub fn judge<'a>(&self, runs: impl IntoIterator<Item = &'a Run>) -> CommitVerdict {
        let state = self.state();
        match (runs.into_iter().any(|run| state.is_void(run)), &state.group) {
            (false, Some(group)) => CommitVerdict::Sound(group.clone()),
            _ => CommitVerdict::Void,
        }
    }

    /// True if the records of a run will be read again.
    pub fn is_void(&self, run: &Run) -> bool {
        self.state().is_void(run)
    }

    /// Voids all records, until the reader has rewound.
    pub fn rewind(&self) {
        let mut state = self.state();
        state.all_void_before = state.generation + 1;
        state.wants_rewind = true;
        self.wanted.notify_one();
    }

    /// True if the reader must rewind.
    pub fn wants_rewind(&self) -> bool {
        self.state().wants_rewind
    }

    /// Notes that the reader has rewound.
    pub fn has_rewound(&self) {
        let mut state = self.state();
        state.wants_rewind = false;
        state.generation += 1;
    }
}

/// The decision on a commit of messages.
pub enum CommitVerdict {
    /// All messages may be committed, with this group metadata.
    Sound(GroupMetadata),
    /// Some messages will be read again.
    Void,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::kafka::runs::Runs;

    fn run(partition: i32, generation: u64) -> Run {
        let mut runs = Runs::default();
        runs.add(&TopicPartition::new("t", partition), 0, generation, 0);
        runs.iter().next().cloned().expect("one was added")
    }

    #[test]
    fn what_was_read_of_partitions_that_others_have_is_void() {
        let membership = Membership::default();
        let before = membership.generation();
        membership.lost(vec![TopicPartition::new("t", 1)]);
        let after = membership.generation();
        assert!(membership.is_void(&run(1, before)) && !membership.is_void(&run(1, after)));
        assert!(!membership.is_void(&run(0, before)), "this partition was kept");
        membership.rewind();
        assert!(membership.is_void(&run(0, membership.generation())), "the reader has not rewound yet");
        membership.has_rewound();
        assert!(!membership.wants_rewind());
        assert!(membership.is_void(&run(0, after)) && !membership.is_void(&run(0, membership.generation())));
    }

    #[test]
    fn reassigned_partitions_start_at_the_committed_offset() {
        let membership = Membership::default();
        membership.rewind();
        membership.assigned(Some(GroupMetadata::without_member("g")));
        assert!(!membership.wants_rewind() && !membership.is_void(&run(0, membership.generation())));
    }

    #[tokio::test]
    async fn partitions_are_waited_for_until_they_are_handed_back() {
        let membership = Membership::default();
        let before = membership.generation();
        assert!(membership.lose(vec![TopicPartition::new("t", 0)]).is_some());
        membership.changed().await;
        assert!(membership.losing().is_some() && !membership.is_void(&run(0, before)));
        membership.hand_back();
        assert!(membership.losing().is_none() && membership.is_void(&run(0, before)));
        membership.end();
        let last = membership.generation();
        assert!(membership.lose(vec![TopicPartition::new("t", 0)]).is_none(), "nobody waits for the end");
        assert!(membership.losing().is_none() && membership.is_void(&run(0, last)));
    }
}
