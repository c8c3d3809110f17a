//! The membership of a source in its group, as the task that reads and the stream see it: which partitions it is about to lose,
//! and what of the records that were read before is void, because they come again, here or elsewhere.
//!
//! Before partitions are given to others, the reader waits until the stream has handed them back: all that it has of them has
//! arrived and is committed. So an orderly change of members repeats nothing. A stream that takes longer than
//! [`HAND_BACK_MAX`] is not waited for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_client::{GroupMetadata, TopicPartition};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::runs::Run;

/// How long a stream may take to let what it has of partitions arrive, before others have them.
const HAND_BACK_MAX: Duration = Duration::from_secs(30);

/// What both sides know.
#[derive(Default)]
pub struct Membership {
    state: Mutex<State>,
    /// For the stream: partitions are to be handed back, or are no more.
    changed: Notify,
    /// For the reader: the stream wants something else.
    wanted: Notify,
}

#[derive(Default)]
struct State {
    /// The one in which records are read now.
    generation: u64,
    /// Records of these partitions that were read in a generation before are void.
    void_before: BTreeMap<TopicPartition, u64>,
    /// Records of any partition that were read in a generation before are void.
    all_void_before: u64,
    losing: Option<Losing>,
    /// The stream takes no more records.
    is_closed: bool,
    /// The stream has no more to hand back.
    is_over: bool,
    /// The group's, of the partitions that were given last.
    group: Option<GroupMetadata>,
    wants_rewind: bool,
}

/// Partitions that others are to have.
struct Losing {
    partitions: Vec<TopicPartition>,
    /// How long the group waits for them.
    until: Instant,
}

impl State {
    /// What was read of these partitions is void.
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

    /// The generation in which records are read now.
    pub fn generation(&self) -> u64 {
        self.state().generation
    }

    /// Waits until something has changed for the stream. May be dropped at any time, and loses nothing then.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until something has changed for the reader, likewise.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Until when partitions are to be handed back, if any are.
    pub fn losing(&self) -> Option<Instant> {
        self.state().losing.as_ref().map(|losing| losing.until)
    }

    /// Others are to have these partitions: until when the stream may let arrive what it has of them, unless it has come to its
    /// end.
    pub fn lose(&self, partitions: Vec<TopicPartition>) -> Option<Instant> {
        let mut state = self.state();
        if state.is_over {
            state.void(partitions);
            return None;
        }
        let until = Instant::now() + HAND_BACK_MAX;
        state.losing = Some(Losing { partitions, until });
        self.changed.notify_one();
        Some(until)
    }

    /// Others have these partitions already.
    pub fn lost(&self, partitions: Vec<TopicPartition>) {
        self.state().void(partitions);
        self.changed.notify_one();
    }

    /// All that the stream had of the partitions that are to be handed back is committed, or comes again.
    pub fn hand_back(&self) {
        let mut state = self.state();
        if let Some(losing) = state.losing.take() {
            state.void(losing.partitions);
            self.changed.notify_one();
        }
    }

    /// Partitions were given: they begin where the group has committed.
    pub fn assigned(&self, group: Option<GroupMetadata>) {
        let mut state = self.state();
        state.group = group;
        state.wants_rewind = false;
        state.generation += 1;
    }

    /// The stream takes no more records.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.wanted.notify_one();
    }

    /// Whether the stream takes no more records.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// The stream takes no more, and has handed over all that it will: nobody waits for it.
    pub fn end(&self) {
        let mut state = self.state();
        (state.is_closed, state.is_over) = (true, true);
        self.wanted.notify_one();
    }

    /// Whether nobody waits for the stream.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// What of these is not void, and the group's metadata that goes with it.
    pub fn judge<'a>(&self, runs: impl IntoIterator<Item = &'a Run>) -> Judged {
        let state = self.state();
        match (runs.into_iter().any(|run| state.is_void(run)), &state.group) {
            (false, Some(group)) => Judged::Sound(group.clone()),
            _ => Judged::Void,
        }
    }

    /// Whether the records of a run come again.
    pub fn is_void(&self, run: &Run) -> bool {
        self.state().is_void(run)
    }

    /// All records that were read are void, and those that are read before the reader has gone back.
    pub fn rewind(&self) {
        let mut state = self.state();
        state.all_void_before = state.generation + 1;
        state.wants_rewind = true;
        self.wanted.notify_one();
    }

    /// Whether the reader is to go back.
    pub fn wants_rewind(&self) -> bool {
        self.state().wants_rewind
    }

    /// It has gone back.
    pub fn has_rewound(&self) {
        let mut state = self.state();
        state.wants_rewind = false;
        state.generation += 1;
    }
}

/// Whether messages can count.
pub enum Judged {
    /// They do, with the group's metadata of the partitions that they are of.
    Sound(GroupMetadata),
    /// Some come again.
    Void,
}

#[cfg(test)]
mod tests {
    use super::super::runs::Runs;
    use super::*;

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
        assert!(!membership.is_void(&run(0, before)), "this one was kept");
        membership.rewind();
        assert!(membership.is_void(&run(0, membership.generation())), "the reader has not gone back yet");
        membership.has_rewound();
        assert!(!membership.wants_rewind());
        assert!(membership.is_void(&run(0, after)) && !membership.is_void(&run(0, membership.generation())));
    }

    #[test]
    fn what_is_given_anew_begins_where_the_group_has_committed() {
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
