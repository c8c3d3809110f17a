//! Every deadline of a shard, in one queue.
//!
//! A heartbeat moves its member's deadline forward and touches nothing else: the queue keeps the earlier moment, and
//! then the entry is put back at its real deadline. So a heartbeat costs a store, and the queue is accessed about
//! once per member and session timeout. Entries are removed with their owner, so the queue has at most as many as
//! there are members and rebalances.

use std::collections::BTreeMap;
use std::sync::Arc;

/// What a member is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// Its next heartbeat.
    Session,
    /// That it revokes what it has to.
    Revocation,
    /// That a classic member joins again.
    Join,
    /// That a classic member asks for its assignment.
    Sync,
}

/// Whose deadline it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The end of a group's join phase.
    Join(Arc<str>),
    /// The end of a group's sync phase.
    Sync(Arc<str>),
    /// A member's session, or the time for a pending member to rejoin with its id.
    Session(Arc<str>, Arc<str>),
    /// A member of a group that has several deadlines.
    Member(Arc<str>, Arc<str>, Watch),
    /// The session of a share group's member.
    Share(Arc<str>, Arc<str>),
    /// The time in which a new streams group waits for more members.
    Delay(Arc<str>),
}

/// A deadline, and its entry in the queue while it has one.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    at_ms: i64,
    entry: Option<Entry>,
}

/// Milliseconds, and a number that makes the entry unique.
type Entry = (i64, u64);

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeMap<Entry, Timer>,
    last_id: u64,
}

impl Deadline {
    /// Whether it is ahead.
    pub(super) fn is_set(&self) -> bool {
        self.entry.is_some()
    }
}

impl Timers {
    /// Sets a deadline. `timer` is called for the owner only if it has no entry yet.
    pub(super) fn set(&mut self, deadline: &mut Deadline, at_ms: i64, timer: impl FnOnce() -> Timer) {
        deadline.at_ms = at_ms;
        let timer = match deadline.entry {
            Some((queued_ms, _)) if queued_ms <= at_ms => return,
            Some(entry) => self.queue.remove(&entry).expect("a deadline's entry is in the queue"),
            None => timer(),
        };
        deadline.entry = Some(self.insert(at_ms, timer));
    }

    /// Forgets a deadline.
    pub(super) fn cancel(&mut self, deadline: &mut Deadline) {
        if let Some(entry) = deadline.entry.take() {
            self.queue.remove(&entry);
        }
    }

    /// When to look again.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.queue.keys().next().map(|&(at_ms, _)| at_ms)
    }

    /// Takes a timer whose queued moment has passed. Its owner passes its deadline to [`Timers::is_due`].
    pub(super) fn pop(&mut self, now_ms: i64) -> Option<Timer> {
        let entry = self.queue.first_entry()?;
        if entry.key().0 > now_ms { None } else { Some(entry.remove()) }
    }

    /// Whether the deadline of a popped timer has passed. If it was moved meanwhile, the timer is put back.
    pub(super) fn is_due(&mut self, deadline: &mut Deadline, timer: Timer, now_ms: i64) -> bool {
        deadline.entry = None;
        if deadline.at_ms <= now_ms {
            return true;
        }
        deadline.entry = Some(self.insert(deadline.at_ms, timer));
        false
    }

    /// How many deadlines are in the queue.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    fn insert(&mut self, at_ms: i64, timer: Timer) -> Entry {
        self.last_id += 1;
        let entry = (at_ms, self.last_id);
        self.queue.insert(entry, timer);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::{Deadline, Timer, Timers};

    fn session() -> Timer {
        Timer::Session("g".into(), "m".into())
    }

    #[test]
    fn a_deadline_that_moved_on_goes_back_into_the_queue() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        timers.set(&mut deadline, 10, session);
        timers.set(&mut deadline, 25, || unreachable!("it has an entry"));
        assert_eq!(timers.next_ms(), Some(10));
        assert_eq!(timers.pop(9), None);
        let timer = timers.pop(10).expect("its moment in the queue has come");
        assert!(!timers.is_due(&mut deadline, timer, 10));
        assert_eq!(timers.next_ms(), Some(25));
        let timer = timers.pop(30).expect("its deadline has passed");
        assert!(timers.is_due(&mut deadline, timer, 30));
        assert_eq!(timers.len(), 0);
    }

    #[test]
    fn a_deadline_can_move_to_an_earlier_moment() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        timers.set(&mut deadline, 100, session);
        timers.set(&mut deadline, 50, || unreachable!("it has an entry"));
        assert_eq!((timers.next_ms(), timers.len()), (Some(50), 1));
    }

    #[test]
    fn a_cancelled_deadline_leaves_nothing_behind() {
        let (mut timers, mut deadline) = (Timers::default(), Deadline::default());
        timers.set(&mut deadline, 10, session);
        timers.set(&mut deadline, 20, session);
        timers.cancel(&mut deadline);
        timers.cancel(&mut deadline);
        assert_eq!(timers.len(), 0);
    }
}
