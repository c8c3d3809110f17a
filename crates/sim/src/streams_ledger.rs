//! The history of a streams group: owned tasks and commits. Invariants: a task is active with one member at
//! any moment; a new owner starts at the last acknowledged commit or later; no commit of a replaced member is
//! acknowledged; epochs never decrease.
//!
//! A member owns a task as a member of a consumer group owns a partition (`consumer_members`): from its first
//! acknowledged commit on, until it is about to report that it has given the task up, or its session may be
//! over. Standby tasks have no commits, so they are checked in the group's descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Name of the only state without pending work.
const STABLE: &str = "Stable";

/// The owner of a task: a member and its life.
pub(crate) type TaskOwner = (u32, u32);

/// A task of the streams group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    /// Index of the subtopology in the topology.
    pub(crate) subtopology: usize,
    /// Partition of the task.
    pub(crate) partition: i32,
}

impl fmt::Display for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "task {}_{}", self.subtopology, self.partition)
    }
}

/// A member of a described group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DescribedMember {
    pub(crate) id: String,
    pub(crate) epoch: i32,
    /// Process id. Members of a process share its disk.
    pub(crate) process: String,
    pub(crate) active: BTreeSet<Task>,
    pub(crate) standby: BTreeSet<Task>,
}

/// A group as described by its coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) state: String,
    pub(crate) epoch: i32,
    pub(crate) target_epoch: i32,
    pub(crate) members: Vec<DescribedMember>,
}

impl Description {
    /// Violations that no coordinator may describe, not even a former one.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let (mut active, mut of_processes) = (BTreeSet::new(), BTreeSet::new());
        if self.target_epoch > self.epoch {
            wrong.push(format!("the target of epoch {} precedes epoch {}", self.target_epoch, self.epoch));
        }
        for member in &self.members {
            let DescribedMember { id, epoch, process, .. } = member;
            if *epoch > self.target_epoch {
                wrong.push(format!("{id} is at epoch {epoch}, and the target at {}", self.target_epoch));
            }
            let twice = member.active.iter().filter(|task| !active.insert(**task));
            wrong.extend(twice.map(|task| format!("{task} is active twice, the second time with {id}")));
            for task in member.active.iter().chain(&member.standby) {
                if !of_processes.insert((process.as_str(), *task)) {
                    wrong.push(format!("{process} has {task} twice, the second time with {id}"));
                }
            }
        }
        wrong
    }

    /// Number of processes with a copy of a task's state.
    fn standbys(&self, task: Task) -> usize {
        self.members.iter().filter(|member| member.standby.contains(&task)).count()
    }

    fn processes(&self) -> usize {
        self.members.iter().map(|member| member.process.as_str()).collect::<BTreeSet<_>>().len()
    }
}

/// The history of one streams group.
#[derive(Debug, Default)]
pub(crate) struct StreamsLedger {
    committed: BTreeMap<Task, i64>,
    /// The members that own tasks.
    owners: BTreeMap<Task, TaskOwner>,
    /// The member of the last acknowledged commit of each task.
    last: BTreeMap<Task, TaskOwner>,
    /// The highest epoch of any member.
    epoch: i32,
    commits: u64,
    described: Description,
}

/// The id of a member.
pub(crate) fn member_id((id, life): TaskOwner) -> String {
    format!("streams-{id}-{life}")
}

impl StreamsLedger {
    /// The highest epoch of any member: members that join from now on get this epoch or a later one.
    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    /// Number of acknowledged commits.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    /// The acknowledged commit of each task.
    pub(crate) fn committed(&self) -> BTreeMap<Task, i64> {
        self.committed.clone()
    }

    /// The member with the last commit of each task.
    pub(crate) fn last(&self) -> BTreeMap<Task, TaskOwner> {
        self.last.clone()
    }

    /// Records a heartbeat answered with `epoch`. `least` is the lowest possible epoch: that of the request,
    /// or, for a joining member, the highest epoch known when the request was sent.
    pub(crate) fn note_heartbeat(&mut self, owner: TaskOwner, least: i32, epoch: i32) -> Option<String> {
        self.epoch = epoch.max(self.epoch);
        (epoch < least).then(|| format!("member {owner:?} got epoch {epoch} after epoch {least}"))
    }

    /// Records an acknowledged commit of a position: the member owns the task. `before` are the acknowledged
    /// commits from before the member requested its position.
    pub(crate) fn owns(
        &mut self,
        owner: TaskOwner,
        task: Task,
        position: i64,
        before: &BTreeMap<Task, i64>,
    ) -> Vec<String> {
        self.commits += 1;
        let mut wrong = Vec::new();
        let least = before.get(&task).copied().unwrap_or(0);
        if position < least {
            wrong.push(format!(
                "{task}: member {owner:?} has {position}, although the commit of {least} was acknowledged"
            ));
        }
        let committed = self.committed.entry(task).or_default();
        *committed = position.max(*committed);
        self.last.insert(task, owner);
        if let Some(other) = self.owners.insert(task, owner).filter(|other| *other != owner) {
            wrong.push(format!("{task}: member {owner:?} owns it, while member {other:?} does"));
        }
        wrong
    }

    /// Records that a member has given up a task.
    pub(crate) fn gives_up(&mut self, owner: TaskOwner, task: Task) {
        if self.owners.get(&task) == Some(&owner) {
            self.owners.remove(&task);
        }
    }

    /// Checks an acknowledged commit of a member that was paused for longer than its session. `last` are the
    /// members with the last commits when it was sent. The member may still be in the group, unless another
    /// member has had the task since.
    pub(crate) fn late_commit(
        owner: TaskOwner,
        task: Task,
        last: &BTreeMap<Task, TaskOwner>,
    ) -> Option<String> {
        let other = last.get(&task).filter(|other| **other != owner)?;
        Some(format!("{task}: a late commit of member {owner:?} was taken, although {other:?} has it"))
    }

    /// Records the coordinator's description of the group.
    pub(crate) fn describes(&mut self, described: Description) -> Vec<String> {
        let wrong = described.wrong();
        self.described = described;
        wrong
    }

    /// Why a group with these tasks is not at rest. `standbys` is the number of copies of a task's state, if
    /// there are enough processes.
    pub(crate) fn unrest(
        &self,
        mut tasks: impl Iterator<Item = (Task, bool)>,
        standbys: usize,
    ) -> Option<String> {
        let Description { state, epoch, target_epoch, members } = &self.described;
        if state != STABLE || epoch != target_epoch || *epoch < self.epoch {
            let known = self.epoch;
            return Some(format!(
                "the streams group is {state} at epoch {epoch}, its target at {target_epoch}, its members at {known}"
            ));
        }
        tasks.find_map(|(task, is_stateful)| {
            let Some(owner) = self.owners.get(&task) else { return Some(format!("{task} has no owner")) };
            let id = member_id(*owner);
            let is_described = |member: &DescribedMember| member.id == id && member.active.contains(&task);
            if !members.iter().any(is_described) {
                return Some(format!("{task} is owned by {id}, and the coordinator does not know"));
            }
            let expected =
                if is_stateful { standbys.min(self.described.processes().saturating_sub(1)) } else { 0 };
            let found = self.described.standbys(task);
            (found != expected).then(|| format!("{task} has {found} standbys, not {expected}"))
        })
    }
}

impl std::hash::Hash for StreamsLedger {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.committed, &self.owners, &self.last, self.epoch, self.commits).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskOwner = (0, 0);
    const B: TaskOwner = (1, 0);
    const TASK: Task = Task { subtopology: 1, partition: 0 };

    fn own(ledger: &mut StreamsLedger, owner: TaskOwner, position: i64) -> Vec<String> {
        let before = ledger.committed();
        ledger.owns(owner, TASK, position, &before)
    }

    #[test]
    fn a_task_has_one_owner_at_a_time() {
        let mut ledger = StreamsLedger::default();
        assert_eq!(own(&mut ledger, A, 5), [""; 0]);
        assert_eq!(own(&mut ledger, A, 6), [""; 0]);
        assert_eq!(own(&mut ledger, B, 6).len(), 1, "the other has not given it up");
        ledger.gives_up(A, TASK);
        assert_eq!(own(&mut ledger, A, 6).len(), 1, "it is no longer A's to give up");
        ledger.gives_up(A, TASK);
        assert_eq!(own(&mut ledger, B, 7), [""; 0]);
        assert_eq!(ledger.commits(), 5);
    }

    #[test]
    fn an_owner_that_starts_before_the_last_commit_is_found() {
        let mut ledger = StreamsLedger::default();
        assert_eq!(own(&mut ledger, A, 5), [""; 0]);
        ledger.gives_up(A, TASK);
        assert_eq!(own(&mut ledger, B, 4).len(), 1);
    }

    #[test]
    fn a_late_commit_is_wrong_once_another_had_the_task() {
        let mut ledger = StreamsLedger::default();
        own(&mut ledger, A, 5);
        ledger.gives_up(A, TASK);
        assert_eq!(StreamsLedger::late_commit(A, TASK, &ledger.last()), None);
        own(&mut ledger, B, 5);
        ledger.gives_up(B, TASK);
        assert!(StreamsLedger::late_commit(A, TASK, &ledger.last()).is_some());
    }

    #[test]
    fn epochs_that_go_back_are_found() {
        let mut ledger = StreamsLedger::default();
        assert_eq!(ledger.note_heartbeat(A, 0, 4), None);
        assert_eq!(ledger.note_heartbeat(A, 4, 4), None);
        assert_eq!(ledger.epoch(), 4);
        assert!(ledger.note_heartbeat(B, ledger.epoch(), 3).is_some());
    }

    fn member(id: TaskOwner, process: &str, active: &[i32], standby: &[i32]) -> DescribedMember {
        let tasks = |partitions: &[i32]| {
            partitions.iter().map(|&partition| Task { partition, ..TASK }).collect::<BTreeSet<_>>()
        };
        DescribedMember {
            id: member_id(id),
            epoch: 4,
            process: process.to_owned(),
            active: tasks(active),
            standby: tasks(standby),
        }
    }

    fn described(members: Vec<DescribedMember>) -> Description {
        Description { state: STABLE.to_owned(), epoch: 4, target_epoch: 4, members }
    }

    #[test]
    fn descriptions_that_contradict_themselves_are_found() {
        let right = described(vec![member(A, "p", &[0], &[1]), member(B, "q", &[1], &[0])]);
        assert_eq!(StreamsLedger::default().describes(right.clone()), [""; 0]);
        for wrong in [
            described(vec![member(A, "p", &[0], &[]), member(B, "q", &[0], &[])]),
            described(vec![member(A, "p", &[0], &[]), member(B, "p", &[1], &[0])]),
            described(vec![member(A, "p", &[0], &[1]), member(B, "p", &[], &[1])]),
            Description { target_epoch: 3, ..right.clone() },
            Description { epoch: 3, ..right.clone() },
        ] {
            assert!(!StreamsLedger::default().describes(wrong.clone()).is_empty(), "{wrong:?}");
        }
    }

    #[test]
    fn a_group_is_at_rest_when_members_and_coordinator_agree() {
        let mut ledger = StreamsLedger::default();
        let all = || [(TASK, true)].into_iter();
        ledger.note_heartbeat(A, 0, 4);
        assert!(ledger.unrest(all(), 1).is_some(), "nothing is described");
        ledger.describes(described(vec![member(A, "p", &[0], &[]), member(B, "q", &[], &[0])]));
        assert!(ledger.unrest(all(), 1).is_some(), "there is no owner");
        own(&mut ledger, B, 5);
        assert!(ledger.unrest(all(), 1).is_some(), "another owns it");
        ledger.gives_up(B, TASK);
        own(&mut ledger, A, 5);
        assert_eq!(ledger.unrest(all(), 1), None);
        assert_eq!(ledger.unrest(all(), 2), None, "there are two processes");
        assert!(ledger.unrest(all(), 0).is_some(), "there is a standby too many");
        ledger.note_heartbeat(A, 4, 5);
        assert!(ledger.unrest(all(), 1).is_some(), "the description is old");
    }
}
