//! Every deadline of a shard, in one queue.
//!
//! A heartbeat moves its member's deadline forward and touches nothing else: the queue keeps the earlier
//! time, at which the entry is put back with its real deadline. A heartbeat therefore costs one store, and
//! the queue is accessed about once per member and session timeout. Entries are removed with their group or
//! member, so the queue has at most one entry per member and rebalance.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The kind of a member's deadline: the event expected before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlineKind {
    /// The next heartbeat.
    Session,
    /// The revocation of partitions or tasks.
    Revocation,
    /// The next join of a classic member.
    Join,
    /// The SyncGroup request of a classic member.
    Sync,
}

/// The name of a deadline in the queue: its kind, its group, and its member if it has one. The deadline
/// itself is in the state of the group or member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// The end of a classic group's join phase.
    ClassicJoin(Arc<str>),
    /// The end of a classic group's sync phase.
    ClassicSync(Arc<str>),
    /// The session of a classic group's member, or the time for a pending member to rejoin with its id.
    ClassicSession(Arc<str>, Arc<str>),
    /// A deadline of a member of a consumer or streams group, which have several per member.
    MemberDeadline(Arc<str>, Arc<str>, DeadlineKind),
    /// The session of a share group's member.
    ShareSession(Arc<str>, Arc<str>),
    /// The initial delay of a new streams group.
    StreamsDelay(Arc<str>),
}

/// A deadline, and its queue entry if it has one.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    at_ms: i64,
    entry: Option<Entry>,
}

/// Milliseconds, the rank among entries of the same time, and a number that makes the entry unique.
type Entry = (i64, Rank, u64);

/// The order of deadlines at the same time. A member without a heartbeat since its join leaves the group at
/// the moment at which the sync phase ends, if both timeouts are equal. Kafka sets the sessions' timers
/// first, and so the other members rebalance; in the other order, all would be removed. Only the initial
/// delay of a streams group is set before the session of its first member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Delay,
    Member,
    Phase,
}

#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeMap<Entry, Timer>,
    last_id: u64,
}

impl Timer {
    fn rank(&self) -> Rank {
        match self {
            Timer::ClassicSession(..) | Timer::MemberDeadline(..) | Timer::ShareSession(..) => Rank::Member,
            Timer::ClassicJoin(_) | Timer::ClassicSync(_) => Rank::Phase,
            Timer::StreamsDelay(_) => Rank::Delay,
        }
    }
}

impl Deadline {
    /// True if the deadline is pending.
    pub(super) fn is_set(&self) -> bool {
        self.entry.is_some()
    }
}

impl Timers {
    /// Sets a deadline. `timer` names the deadline, and is called only if the deadline has no entry yet.
    pub(super) fn set(&mut self, deadline: &mut Deadline, at_ms: i64, timer: impl FnOnce() -> Timer) {
        deadline.at_ms = at_ms;
        let timer = match deadline.entry {
            Some((queued_ms, ..)) if queued_ms <= at_ms => return,
            Some(entry) => self.queue.remove(&entry).expect("a deadline's entry is in the queue"),
            None => timer(),
        };
        deadline.entry = Some(self.insert(at_ms, timer));
    }

    /// Cancels a deadline.
    pub(super) fn cancel(&mut self, deadline: &mut Deadline) {
        if let Some(entry) = deadline.entry.take() {
            self.queue.remove(&entry);
        }
    }

    /// The time of the next queue entry.
    pub(super) fn next_ms(&self) -> Option<i64> {
        self.queue.keys().next().map(|&(at_ms, ..)| at_ms)
    }

    /// Removes a timer whose queued time has passed. The caller passes the timer's deadline to
    /// [`Timers::is_due`].
    pub(super) fn pop(&mut self, now_ms: i64) -> Option<Timer> {
        let entry = self.queue.first_entry()?;
        if entry.key().0 > now_ms { None } else { Some(entry.remove()) }
    }

    /// True if the deadline of a popped timer has passed. A deadline that was moved meanwhile is put back
    /// into the queue.
    pub(super) fn is_due(&mut self, deadline: &mut Deadline, timer: Timer, now_ms: i64) -> bool {
        deadline.entry = None;
        if deadline.at_ms <= now_ms {
            return true;
        }
        deadline.entry = Some(self.insert(deadline.at_ms, timer));
        false
    }

    /// Number of queued deadlines.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    fn insert(&mut self, at_ms: i64, timer: Timer) -> Entry {
        self.last_id += 1;
        let entry = (at_ms, timer.rank(), self.last_id);
        self.queue.insert(entry, timer);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::{Deadline, Timer, Timers};

    fn session() -> Timer {
        Timer::ClassicSession("g".into(), "m".into())
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
    fn a_session_ends_before_the_sync_phase_that_ends_at_the_same_time() {
        let (mut timers, mut member, mut group) =
            (Timers::default(), Deadline::default(), Deadline::default());
        let sync = || Timer::ClassicSync("g".into());
        timers.set(&mut member, 10, session);
        timers.set(&mut group, 20, sync);
        // The session's entry is put back after that of the sync phase.
        timers.set(&mut member, 20, session);
        let moved = timers.pop(10).expect("the entry of the session");
        assert!(!timers.is_due(&mut member, moved, 10));
        assert_eq!((timers.pop(20), timers.pop(20)), (Some(session()), Some(sync())));
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
