//! The membership of a source in its group, as the thread that polls and the stream see it: which partitions it is
//! about to lose, and what of the records that were read before is void, because they come again, here or elsewhere.
//!
//! Before partitions are given to others, the callback of librdkafka waits until the stream has handed them back: all that it
//! has of them has arrived and is committed. So an orderly change of members repeats nothing. A stream that takes longer than
//! [`HAND_BACK_MAX`] is not waited for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, ConsumerGroupMetadata, Rebalance};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::runs::{Place, Run};

/// How long a stream may take to let what it has of partitions arrive, before others have them.
const HAND_BACK_MAX: Duration = Duration::from_secs(30);

/// What both sides know.
#[derive(Default)]
pub struct Membership {
    state: Mutex<State>,
    /// The one in which records are read now: changed only by the thread that polls, between two records, or with the
    /// partitions that it is about to lose.
    generation: AtomicU64,
    /// How often the callback was called.
    changes: AtomicU64,
    /// For the stream: partitions are to be handed back, or are no more.
    changed: Notify,
    /// For the callback: they were handed back.
    handed_back: Condvar,
}

#[derive(Default)]
struct State {
    /// Records of these partitions that were read in a generation before are void.
    void_before: BTreeMap<Place, u64>,
    /// Records of any partition that were read in a generation before are void.
    all_void_before: u64,
    losing: Option<Losing>,
    /// The stream has no more to hand back.
    is_over: bool,
    /// The group's, of the partitions that were given last.
    group: Option<Arc<ConsumerGroupMetadata>>,
    /// How often partitions were given.
    assignments: u64,
    wants_rewind: bool,
}

/// Partitions that others are to have.
struct Losing {
    places: Vec<Place>,
    /// How long the group waits for them.
    until: Instant,
}

impl State {
    fn void(&mut self, places: Vec<Place>, generation: u64) {
        self.void_before.extend(places.into_iter().map(|place| (place, generation)));
    }

    fn is_void(&self, run: &Run) -> bool {
        run.generation < self.all_void_before
            || self.void_before.get(&run.place).is_some_and(|before| run.generation < *before)
    }
}

impl Membership {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation in which records are read now.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// How often partitions were given, taken or lost.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// How often partitions were given.
    pub fn assignments(&self) -> u64 {
        self.state().assignments
    }

    /// Waits until something has changed for the stream. May be dropped at any time, and loses nothing then.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Until when partitions are to be handed back, if any are.
    pub fn losing(&self) -> Option<Instant> {
        self.state().losing.as_ref().map(|losing| losing.until)
    }

    /// All that the stream had of them is committed, or comes again.
    pub fn hand_back(&self) {
        let mut state = self.state();
        if let Some(losing) = state.losing.take() {
            self.begin(&mut state, losing.places);
            self.handed_back.notify_all();
        }
    }

    /// The stream takes no more, and has handed over all that it will: nobody waits for it.
    pub fn end(&self) {
        self.state().is_over = true;
        self.handed_back.notify_all();
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

    /// All records that were read are void, and those that are read before the thread that polls has gone back.
    pub fn rewind(&self) {
        let mut state = self.state();
        state.all_void_before = self.generation() + 1;
        state.wants_rewind = true;
    }

    /// Whether the thread that polls is to go back.
    pub fn wants_rewind(&self) -> bool {
        self.state().wants_rewind
    }

    /// It has gone back.
    pub fn has_rewound(&self) {
        let mut state = self.state();
        state.wants_rewind = false;
        self.next_generation();
    }

    fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What was read of these partitions is void.
    fn begin(&self, state: &mut State, places: Vec<Place>) {
        let generation = self.next_generation();
        state.void(places, generation);
    }

    /// Others are to have these partitions: the stream may let arrive what it has of them, unless it is too late for that.
    fn lose(&self, places: Vec<Place>, is_late: bool) {
        let mut state = self.state();
        if is_late || state.is_over {
            self.begin(&mut state, places);
            return;
        }
        let until = Instant::now() + HAND_BACK_MAX;
        state.losing = Some(Losing { places, until });
        self.changed.notify_one();
        while state.losing.is_some() && !state.is_over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!(
                    "Others take partitions of which messages are still on their way; these may come again"
                );
                break;
            }
            let waited = self.handed_back.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(losing) = state.losing.take() {
            self.begin(&mut state, losing.places);
            self.changed.notify_one();
        }
    }
}

/// Whether messages can count.
pub enum Judged {
    /// They do, with the group's metadata of the partitions that they are of.
    Sound(Arc<ConsumerGroupMetadata>),
    /// Some come again.
    Void,
}

/// Hears of changes of the partitions, on the thread that polls.
pub struct Context(pub Arc<Membership>);

impl ClientContext for Context {}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, change: &Rebalance<'_>) {
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        match change {
            Rebalance::Revoke(list) => self.0.lose(places(list), consumer.assignment_lost()),
            Rebalance::Error(_) => {
                let assigned = consumer.assignment().map(|list| places(&list)).unwrap_or_default();
                self.0.lose(assigned, true);
            }
            Rebalance::Assign(_) => {}
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, change: &Rebalance<'_>) {
        if let Rebalance::Assign(_) = change {
            // Of the generation in which they are given: the next cannot begin before this returns.
            let group = consumer.group_metadata().map(Arc::new);
            let mut state = self.0.state();
            state.group = group;
            state.assignments += 1;
            // They begin where the group has committed.
            state.wants_rewind = false;
        }
    }
}

fn places(list: &TopicPartitionList) -> Vec<Place> {
    list.elements().iter().map(|element| (element.topic().into(), element.partition())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::runs::Runs;
    use super::*;

    fn run(partition: i32, generation: u64) -> Run {
        let mut runs = Runs::default();
        runs.add("t", partition, 0, generation, 0);
        runs.iter().next().cloned().expect("one was added")
    }

    #[test]
    fn what_was_read_of_partitions_that_others_have_is_void() {
        let membership = Membership::default();
        let before = membership.generation();
        membership.lose(vec![("t".into(), 1)], true);
        let after = membership.generation();
        assert!(membership.is_void(&run(1, before)) && !membership.is_void(&run(1, after)));
        assert!(!membership.is_void(&run(0, before)), "this one was kept");
        membership.rewind();
        assert!(membership.is_void(&run(0, membership.generation())), "the consumer has not gone back yet");
        membership.has_rewound();
        assert!(!membership.wants_rewind());
        assert!(membership.is_void(&run(0, after)) && !membership.is_void(&run(0, membership.generation())));
    }

    #[test]
    fn partitions_are_waited_for_until_they_are_handed_back() {
        let membership = Arc::new(Membership::default());
        let before = membership.generation();
        let of_callback = membership.clone();
        let callback = std::thread::spawn(move || of_callback.lose(vec![("t".into(), 0)], false));
        while membership.losing().is_none() {
            std::thread::yield_now();
        }
        assert!(!callback.is_finished() && !membership.is_void(&run(0, before)));
        membership.hand_back();
        assert!(membership.is_void(&run(0, before)), "at once, before the callback goes on");
        callback.join().expect("it ends");
        membership.end();
        membership.lose(vec![("t".into(), 0)], false);
        assert!(membership.losing().is_none(), "nobody is waited for who has ended");
    }
}
