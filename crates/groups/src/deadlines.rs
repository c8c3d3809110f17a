//! Deadlines of the members of a group whose coordinator assigns: for heartbeats, revocation, join and sync.

use super::timers::{Deadline, Timer, Timers, Watch};
use std::sync::Arc;
use thalweg_hash::HashMap;

/// A change of a member's deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The member sent a heartbeat: its session lasts this long.
    Session(i32),
    /// The member has this long to revoke partitions, while it stays at this epoch.
    Revocation { epoch: i32, timeout_ms: i32 },
    /// The member has revoked its partitions.
    Revoked,
    /// The member has this long to join again, counted from the first request to do so.
    Join(i32),
    /// The member has joined, and has this long to request its assignment.
    Joined(i32),
    /// The member has requested its assignment.
    Synced,
}

/// Interval between attempts to remove a member.
const RETRY_MS: i64 = 500;

#[derive(Debug, Default)]
struct MemberDeadlines {
    session: Deadline,
    revocation: Deadline,
    /// The epoch that the member has to leave by the revocation deadline.
    revocation_epoch: i32,
    join: Deadline,
    joins: bool,
    sync: Deadline,
}

impl MemberDeadlines {
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
    members: HashMap<Arc<str>, MemberDeadlines>,
}

impl Deadlines {
    /// The deadlines of a group without members.
    pub(super) fn new(group: Arc<str>) -> Deadlines {
        Deadlines { group, members: HashMap::default() }
    }

    /// Adds a member, without deadlines yet.
    pub(super) fn add(&mut self, member: &Arc<str>) {
        if !self.members.contains_key(member) {
            self.members.insert(member.clone(), MemberDeadlines::default());
        }
    }

    /// Changes the deadlines of a member; ignored for an unknown id.
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

    /// True if a deadline of a member has passed. `epoch` is the member's current epoch.
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

    /// Sets a deadline again before a member is removed, so that a failed write of the removal is retried.
    pub(super) fn retry(&mut self, timers: &mut Timers, now_ms: i64, id: &Arc<str>, watch: Watch) {
        let Some(member) = self.members.get_mut(id) else { return };
        let timer = Timer::Member(self.group.clone(), id.clone(), watch);
        timers.set(member.deadline(watch), now_ms.saturating_add(RETRY_MS), || timer);
    }

    /// Members whose session never ends.
    #[cfg(test)]
    pub(super) fn without_session(&self) -> Vec<Arc<str>> {
        let members = self.members.iter().filter(|(_, member)| !member.session.is_set());
        members.map(|(id, _)| id.clone()).collect()
    }

    /// Removes a member and cancels its deadlines.
    pub(super) fn remove(&mut self, timers: &mut Timers, id: &str) {
        if let Some(mut member) = self.members.remove(id) {
            for deadline in [&mut member.session, &mut member.revocation, &mut member.join, &mut member.sync]
            {
                timers.cancel(deadline);
            }
        }
    }

    /// Removes all members and cancels their deadlines.
    pub(super) fn clear(&mut self, timers: &mut Timers) {
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            self.remove(timers, &id);
        }
    }
}
