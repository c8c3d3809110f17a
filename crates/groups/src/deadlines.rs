//! When members of a group whose coordinator assigns have to be heard of, and what they have to be done with by then.

use super::timers::{Deadline, Timer, Timers, Watch};
use std::sync::Arc;
use thalweg_hash::HashMap;

/// A change of a member's deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It was heard of: its session lasts this long.
    Session(i32),
    /// It has this long to revoke partitions, while it stays at this epoch.
    Revocation { epoch: i32, timeout_ms: i32 },
    /// It has revoked them.
    Revoked,
    /// It has this long to join again, from the first time that it was asked to.
    Join(i32),
    /// It has joined, and has this long to ask for its assignment.
    Joined(i32),
    /// It has asked.
    Synced,
}

/// From one attempt to remove a member to the next.
const RETRY_MS: i64 = 500;

#[derive(Debug, Default)]
struct OfMember {
    session: Deadline,
    revocation: Deadline,
    /// The epoch that the member is to leave.
    revocation_epoch: i32,
    join: Deadline,
    joins: bool,
    sync: Deadline,
}

impl OfMember {
    fn deadline(&mut self, watch: Watch) -> &mut Deadline {
        match watch {
            Watch::Session => &mut self.session,
            Watch::Revocation => &mut self.revocation,
            Watch::Join => &mut self.join,
            Watch::Sync => &mut self.sync,
        }
    }
}

/// The deadlines of a group's members.
#[derive(Debug)]
pub(super) struct Deadlines {
    group: Arc<str>,
    members: HashMap<Arc<str>, OfMember>,
}

impl Deadlines {
    /// Of a group without members.
    pub(super) fn new(group: Arc<str>) -> Deadlines {
        Deadlines { group, members: HashMap::default() }
    }

    /// A member joins: it has deadlines from now on.
    pub(super) fn add(&mut self, member: &Arc<str>) {
        if !self.members.contains_key(member) {
            self.members.insert(member.clone(), OfMember::default());
        }
    }

    /// Changes a member's deadlines, if it is a member.
    pub(super) fn change(&mut self, timers: &mut Timers, now_ms: i64, id: &Arc<str>, change: Change) {
        let Some(member) = self.members.get_mut(id) else { return };
        let group = &self.group;
        let after = |ms: i32| now_ms.saturating_add(i64::from(ms.max(0)));
        let timer = |watch: Watch| Timer::Member(group.clone(), id.clone(), watch);
        match change {
            Change::Session(ms) => timers.set(&mut member.session, after(ms), || timer(Watch::Session)),
            Change::Revocation { epoch, timeout_ms } => {
                member.revocation_epoch = epoch;
                timers.set(&mut member.revocation, after(timeout_ms), || timer(Watch::Revocation));
            }
            Change::Revoked => timers.cancel(&mut member.revocation),
            Change::Join(ms) => {
                if !member.joins {
                    member.joins = true;
                    timers.set(&mut member.join, after(ms), || timer(Watch::Join));
                }
            }
            Change::Joined(ms) => {
                member.joins = false;
                timers.cancel(&mut member.join);
                timers.set(&mut member.sync, after(ms), || timer(Watch::Sync));
            }
            Change::Synced => timers.cancel(&mut member.sync),
        }
    }

    /// Whether a deadline of a member has passed. `epoch` is the member's.
    pub(super) fn is_over(&mut self, timers: &mut Timers, timer: Timer, now_ms: i64, epoch: i32) -> bool {
        let Timer::Member(_, id, watch) = &timer else { return false };
        let (id, watch) = (id.clone(), *watch);
        let Some(member) = self.members.get_mut(&id) else { return false };
        let is_over = timers.is_due(member.deadline(watch), timer, now_ms);
        if is_over && watch == Watch::Join {
            member.joins = false;
        }
        is_over && (watch != Watch::Revocation || member.revocation_epoch == epoch)
    }

    /// A member is about to be removed because a deadline is over. If that cannot be written, it is tried again.
    pub(super) fn retry(&mut self, timers: &mut Timers, now_ms: i64, id: &Arc<str>, watch: Watch) {
        let Some(member) = self.members.get_mut(id) else { return };
        let timer = Timer::Member(self.group.clone(), id.clone(), watch);
        timers.set(member.deadline(watch), now_ms.saturating_add(RETRY_MS), || timer);
    }

    /// The members whose session never ends.
    #[cfg(test)]
    pub(super) fn without_session(&self) -> Vec<Arc<str>> {
        let members = self.members.iter().filter(|(_, member)| !member.session.is_set());
        members.map(|(id, _)| id.clone()).collect()
    }

    /// A member is gone.
    pub(super) fn remove(&mut self, timers: &mut Timers, id: &str) {
        if let Some(mut member) = self.members.remove(id) {
            for deadline in [&mut member.session, &mut member.revocation, &mut member.join, &mut member.sync]
            {
                timers.cancel(deadline);
            }
        }
    }

    /// The group is gone.
    pub(super) fn clear(&mut self, timers: &mut Timers) {
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            self.remove(timers, &id);
        }
    }
}
