//! Moves a member towards its target assignment, one step with each heartbeat (`CurrentAssignmentBuilder`).
//!
//! ```text
//!             to be given up                  given up, all others free
//!   STABLE ─────────────────► UNREVOKED ─────────────────────────────────► STABLE at the target's epoch
//!     │                           │ given up, some still with others          ▲
//!     │ some with others          ▼                                           │ released
//!     └───────────────────► UNRELEASED ───────────────────────────────────────┘
//! ```
//!
//! A task is active in one process at a time, and a process has a task in one role at a time: a new role
//! waits until the process gives up the old one.

use super::error::StreamsGroupError;
use super::member::{MemberState, StreamsGroupMember};
use super::owners::TaskOwners;
use super::tasks::{ActiveTasks, OwnedTasks, ReportedTasks, TargetTasks};
use crate::assignor::Tasks;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Inputs of a member's step.
pub(super) struct Reconciliation<'a> {
    pub(super) target_epoch: i32,
    pub(super) target: &'a TargetTasks,
    pub(super) owners: &'a TaskOwners,
    /// The tasks that the member reports, if the request has them.
    pub(super) reported: Option<ReportedTasks<'a>>,
}

impl Reconciliation<'_> {
    /// The member after its step; `None` if nothing changes.
    pub(super) fn step(
        &self,
        member: &StreamsGroupMember,
    ) -> Result<Option<StreamsGroupMember>, StreamsGroupError> {
        let next = match member.state {
            MemberState::Stable if member.epoch == self.target_epoch => return Ok(None),
            MemberState::Stable | MemberState::UnreleasedTasks => self.next(member, member.epoch),
            MemberState::UnrevokedTasks if self.still_has(&member.revoking) => return Ok(None),
            MemberState::UnrevokedTasks => self.next(member, member.epoch.saturating_add(1)),
            MemberState::Unknown if self.reported.is_none_or(|reported| !reported.is_empty()) => {
                return Err(StreamsGroupError::UnknownState);
            }
            MemberState::Unknown => self.next(member, self.target_epoch),
        };
        // Without a change there is nothing to write: a waiting member repeats the same step.
        Ok((next != *member).then_some(next))
    }

    /// True if the member reports one of these tasks. Without a report, the member may have all of them.
    fn still_has(&self, revoking: &OwnedTasks) -> bool {
        self.reported.is_none_or(|reported| reported.has_any(revoking))
    }

    /// The next step towards the target. A member that has to revoke tasks first stays at `epoch`.
    fn next(&self, member: &StreamsGroupMember, epoch: i32) -> StreamsGroupMember {
        let process = &*member.process_id;
        let active = self.active(&member.assigned.active, process);
        let is_free = |id: &str, partition| !self.owners.has(id, partition, process);
        let standby = difference(&member.assigned.standby, &self.target.standby, is_free);
        let warmup = difference(&member.assigned.warmup, &self.target.warmup, is_free);
        let revoking =
            OwnedTasks { active: active.dropped, standby: standby.dropped, warmup: warmup.dropped };
        let mut next = member.clone();
        next.previous_epoch = member.epoch;
        let (mut assigned_active, mut assigned_standby, mut assigned_warmup) =
            (active.kept, standby.kept, warmup.kept);
        if !revoking.is_empty() && self.still_has(&revoking) {
            next.state = MemberState::UnrevokedTasks;
            next.epoch = epoch;
            next.revoking = Arc::new(revoking);
        } else {
            for (id, added) in active.added {
                assigned_active.entry(id).or_default().extend(added);
            }
            for (id, added) in standby.added {
                assigned_standby.entry(id).or_default().extend(added);
            }
            for (id, added) in warmup.added {
                assigned_warmup.entry(id).or_default().extend(added);
            }
            let waits = active.waits || standby.waits || warmup.waits;
            next.state = if waits { MemberState::UnreleasedTasks } else { MemberState::Stable };
            next.epoch = self.target_epoch;
            next.revoking = Arc::default();
        }
        next.assigned = Arc::new(OwnedTasks {
            active: assigned_active,
            standby: assigned_standby,
            warmup: assigned_warmup,
        });
        next
    }

    /// The difference in active tasks. A task is free if it is active in no process and the process has it in
    /// no other role.
    fn active(&self, current: &ActiveTasks, process: &str) -> Difference<ActiveTasks> {
        let mut difference = Difference::<ActiveTasks>::default();
        for (id, partitions) in current {
            let target = self.target.active.get(id);
            for (partition, at) in partitions {
                let stays = target.is_some_and(|target| target.contains(partition));
                let to = if stays { &mut difference.kept } else { &mut difference.dropped };
                to.entry(id.clone()).or_default().insert(*partition, *at);
            }
        }
        for (id, partitions) in &self.target.active {
            let has = current.get(id);
            for partition in partitions {
                if has.is_some_and(|has| has.contains_key(partition)) {
                    continue;
                }
                if self.owners.is_active(id, *partition) || self.owners.has_copy(id, *partition, process) {
                    difference.waits = true;
                } else {
                    difference.added.entry(id.clone()).or_default().insert(*partition, self.target_epoch);
                }
            }
        }
        difference
    }
}

/// The difference between a member's tasks and its target.
#[derive(Default)]
struct Difference<T> {
    kept: T,
    dropped: T,
    added: T,
    /// True if some added tasks are not free yet.
    waits: bool,
}

fn difference(current: &Tasks, target: &Tasks, is_free: impl Fn(&str, i32) -> bool) -> Difference<Tasks> {
    let mut difference = Difference::<Tasks>::default();
    let nothing = BTreeSet::new();
    for (id, partitions) in current {
        let target = target.get(id).unwrap_or(&nothing);
        let (kept, dropped): (BTreeSet<i32>, BTreeSet<i32>) =
            partitions.iter().copied().partition(|partition| target.contains(partition));
        put(&mut difference.kept, id, kept);
        put(&mut difference.dropped, id, dropped);
    }
    for (id, partitions) in target {
        let has = current.get(id).unwrap_or(&nothing);
        let (added, waiting): (BTreeSet<i32>, BTreeSet<i32>) =
            partitions.difference(has).copied().partition(|partition| is_free(id, *partition));
        difference.waits |= !waiting.is_empty();
        put(&mut difference.added, id, added);
    }
    difference
}

fn put(tasks: &mut Tasks, id: &Arc<str>, partitions: BTreeSet<i32>) {
    if !partitions.is_empty() {
        tasks.insert(id.clone(), partitions);
    }
}
