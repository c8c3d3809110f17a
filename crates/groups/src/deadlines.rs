//! Deadlines of the members of consumer and streams groups: for heartbeats, for revocation, and for joins and
//! syncs of classic members.

use super::timers::{Deadline, DeadlineKind, Timer, Timers};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_hash::HashMap;

/// A change of a member's deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeadlineChange {
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

impl DeadlineChange {
    /// The change of the revocation deadline after a member's step.
    pub(super) fn of_revocation(member: &impl DeadlineMember) -> DeadlineChange {
        match member.revocation_timeout_ms() {
            Some(timeout_ms) => DeadlineChange::Revocation { epoch: member.epoch(), timeout_ms },
            None => DeadlineChange::Revoked,
        }
    }

    /// The deadlines of the members of a newly loaded group, as if all had just sent a heartbeat. Members
    /// with partitions or tasks to revoke have the whole timeout.
    pub(super) fn at_start<M: DeadlineMember>(
        members: &BTreeMap<Arc<str>, M>,
        session_timeout_ms: i32,
    ) -> Vec<(Arc<str>, DeadlineChange)> {
        let mut changes = Vec::new();
        for (id, member) in members {
            changes.push((id.clone(), DeadlineChange::Session(session_timeout_ms)));
            if member.revocation_timeout_ms().is_some() {
                changes.push((id.clone(), DeadlineChange::of_revocation(member)));
            }
        }
        changes
    }
}

/// A member of a group with [`Deadlines`].
pub(super) trait DeadlineMember {
    /// The member epoch.
    fn epoch(&self) -> i32;

    /// The time for the revocation of partitions or tasks; `None` without any to revoke.
    fn revocation_timeout_ms(&self) -> Option<i32>;
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
    fn deadline(&mut self, kind: DeadlineKind) -> &mut Deadline {
        match kind {
            DeadlineKind::Session => &mut self.session,
            DeadlineKind::Revocation => &mut self.revocation,
            DeadlineKind::Join => &mut self.join,
            DeadlineKind::Sync => &mut self.sync,
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
    pub(super) fn change(&mut self, timers: &mut Timers, now_ms: i64, id: &Arc<str>, change: DeadlineChange) {
        let Some(member) = self.members.get_mut(id) else { return };
        let group = &self.group;
        let after = |ms: i32| now_ms.saturating_add(i64::from(ms.max(0)));
        let timer = |kind: DeadlineKind| Timer::MemberDeadline(group.clone(), id.clone(), kind);
        match change {
            DeadlineChange::Session(ms) => {
                timers.set(&mut member.session, after(ms), || timer(DeadlineKind::Session))
            }
            DeadlineChange::Revocation { epoch, timeout_ms } => {
                member.revocation_epoch = epoch;
                timers.set(&mut member.revocation, after(timeout_ms), || timer(DeadlineKind::Revocation));
            }
            DeadlineChange::Revoked => timers.cancel(&mut member.revocation),
            DeadlineChange::Join(ms) => {
                if !member.joins {
                    member.joins = true;
                    timers.set(&mut member.join, after(ms), || timer(DeadlineKind::Join));
                }
            }
            DeadlineChange::Joined(ms) => {
                member.joins = false;
                timers.cancel(&mut member.join);
                timers.set(&mut member.sync, after(ms), || timer(DeadlineKind::Sync));
            }
            DeadlineChange::Synced => timers.cancel(&mut member.sync),
        }
    }

    /// The member that has missed its deadline, and the event that did not come; `None` if the deadline has
    /// moved. The deadline is set again, so that a failed write of the member's removal is retried.
    pub(super) fn missed<'m, M: DeadlineMember>(
        &mut self,
        timers: &mut Timers,
        timer: Timer,
        now_ms: i64,
        members: &'m BTreeMap<Arc<str>, M>,
    ) -> Option<(&'m M, DeadlineKind)> {
        let Timer::MemberDeadline(_, id, kind) = &timer else { return None };
        let (id, kind) = (id.clone(), *kind);
        let deadlines = self.members.get_mut(&id)?;
        let is_due = timers.is_due(deadlines.deadline(kind), timer, now_ms);
        if is_due && kind == DeadlineKind::Join {
            deadlines.joins = false;
        }
        let member = members.get(&id)?;
        if !is_due || (kind == DeadlineKind::Revocation && deadlines.revocation_epoch != member.epoch()) {
            return None;
        }
        let timer = Timer::MemberDeadline(self.group.clone(), id, kind);
        timers.set(deadlines.deadline(kind), now_ms.saturating_add(RETRY_MS), || timer);
        Some((member, kind))
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
