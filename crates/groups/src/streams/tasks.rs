//! Tasks of a streams group by subtopology and partition, in memory, in messages and in records.

use crate::assignor::Tasks;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::request::StreamsGroupHeartbeatRequest;
use thalweg_wire::request::streams_group_heartbeat_request::TaskIds;

/// Active tasks, each with the member epoch of its assignment.
pub(super) type ActiveTasks = BTreeMap<Arc<str>, BTreeMap<i32, i32>>;

/// The target tasks of a member.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct TargetTasks {
    pub(super) active: Tasks,
    pub(super) standby: Tasks,
    /// Always empty in Kafka 4.3.
    pub(super) warmup: Tasks,
}

/// The tasks that a member has or has to revoke.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct OwnedTasks {
    pub(super) active: ActiveTasks,
    pub(super) standby: Tasks,
    pub(super) warmup: Tasks,
}

impl OwnedTasks {
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.standby.is_empty() && self.warmup.is_empty()
    }
}

/// The tasks that a member reports.
#[derive(Clone, Copy)]
pub(super) struct ReportedTasks<'a> {
    active: &'a [TaskIds],
    standby: &'a [TaskIds],
    warmup: &'a [TaskIds],
}

impl<'a> ReportedTasks<'a> {
    /// The tasks in a request, if it has them.
    pub(super) fn of(request: &'a StreamsGroupHeartbeatRequest) -> Option<ReportedTasks<'a>> {
        Some(ReportedTasks {
            active: request.active_tasks.as_deref()?,
            standby: request.standby_tasks.as_deref()?,
            warmup: request.warmup_tasks.as_deref()?,
        })
    }

    pub(super) fn is_empty(self) -> bool {
        self.active.is_empty() && self.standby.is_empty() && self.warmup.is_empty()
    }

    /// All reported tasks, of any role.
    pub(super) fn all(self) -> impl Iterator<Item = &'a TaskIds> {
        self.active.iter().chain(self.standby).chain(self.warmup)
    }

    /// True if any of these tasks is reported in the same role.
    pub(super) fn has_any(self, tasks: &OwnedTasks) -> bool {
        self.active.iter().any(|ids| any(ids, tasks.active.get(&*ids.subtopology_id), has_active))
            || self.standby.iter().any(|ids| any(ids, tasks.standby.get(&*ids.subtopology_id), has))
            || self.warmup.iter().any(|ids| any(ids, tasks.warmup.get(&*ids.subtopology_id), has))
    }

    /// True if all reported tasks are among these, in the same role.
    pub(super) fn are_all_in(self, tasks: &OwnedTasks) -> bool {
        self.active.iter().all(|ids| all(ids, tasks.active.get(&*ids.subtopology_id), has_active))
            && self.standby.iter().all(|ids| all(ids, tasks.standby.get(&*ids.subtopology_id), has))
            && self.warmup.iter().all(|ids| all(ids, tasks.warmup.get(&*ids.subtopology_id), has))
    }

    /// True if the reported tasks are exactly these, in the same roles.
    pub(super) fn are_those_of(self, owned: &OwnedTasks) -> bool {
        let all = |sent: &[TaskIds]| {
            tasks(sent.iter().map(|ids| (ids.subtopology_id.clone(), ids.partitions.clone())))
        };
        let active = all(self.active);
        active.len() == owned.active.len()
            && active
                .iter()
                .zip(&owned.active)
                .all(|((id, partitions), (own_id, own))| id == own_id && partitions.iter().eq(own.keys()))
            && all(self.standby) == owned.standby
            && all(self.warmup) == owned.warmup
    }
}

fn has_active(partitions: &BTreeMap<i32, i32>, partition: i32) -> bool {
    partitions.contains_key(&partition)
}

fn has(partitions: &std::collections::BTreeSet<i32>, partition: i32) -> bool {
    partitions.contains(&partition)
}

fn any<P>(ids: &TaskIds, of_subtopology: Option<&P>, has: fn(&P, i32) -> bool) -> bool {
    of_subtopology.is_some_and(|partitions| ids.partitions.iter().any(|id| has(partitions, *id)))
}

fn all<P>(ids: &TaskIds, of_subtopology: Option<&P>, has: fn(&P, i32) -> bool) -> bool {
    of_subtopology.is_some_and(|partitions| ids.partitions.iter().all(|id| has(partitions, *id)))
}

/// Tasks in the form of a message. `make` builds an element from a subtopology id and its partitions.
pub(super) fn ids<T>(tasks: &Tasks, make: impl Fn(String, Vec<i32>) -> T) -> Vec<T> {
    tasks.iter().map(|(id, partitions)| make(id.to_string(), partitions.iter().copied().collect())).collect()
}

/// Active tasks in the form of a message, without their epochs.
pub(super) fn active_ids<T>(tasks: &ActiveTasks, make: impl Fn(String, Vec<i32>) -> T) -> Vec<T> {
    tasks.iter().map(|(id, partitions)| make(id.to_string(), partitions.keys().copied().collect())).collect()
}

/// The tasks in a message.
pub(super) fn tasks(ids: impl Iterator<Item = (String, Vec<i32>)>) -> Tasks {
    ids.map(|(id, partitions)| (id.into(), partitions.into_iter().collect())).collect()
}
