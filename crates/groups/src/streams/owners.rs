//! The processes that have a task or have yet to revoke it.

use super::member::StreamsGroupMember;
use super::tasks::ActiveTasks;
use crate::assignor::Tasks;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Copies = BTreeMap<Arc<str>, BTreeMap<i32, BTreeSet<Arc<str>>>>;

/// The processes by task, in each role.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TaskOwners {
    active: BTreeMap<Arc<str>, BTreeMap<i32, Arc<str>>>,
    standby: Copies,
    warmup: Copies,
}

impl TaskOwners {
    /// True if a task is active in any process.
    pub(super) fn is_active(&self, subtopology: &str, partition: i32) -> bool {
        self.process(subtopology, partition).is_some()
    }

    /// True if a process has a copy of a task's state.
    pub(super) fn has_copy(&self, subtopology: &str, partition: i32, process: &str) -> bool {
        let has = |copies: &Copies| {
            let processes = copies.get(subtopology).and_then(|partitions| partitions.get(&partition));
            processes.is_some_and(|processes| processes.contains(process))
        };
        has(&self.standby) || has(&self.warmup)
    }

    /// True if a process has a task in any role.
    pub(super) fn has(&self, subtopology: &str, partition: i32, process: &str) -> bool {
        self.process(subtopology, partition) == Some(process)
            || self.has_copy(subtopology, partition, process)
    }

    fn process(&self, subtopology: &str, partition: i32) -> Option<&str> {
        self.active.get(subtopology)?.get(&partition).map(|process| &**process)
    }

    /// Adds a member's tasks, including the tasks to revoke.
    pub(super) fn add(&mut self, member: &StreamsGroupMember) {
        for tasks in [&member.assigned, &member.revoking] {
            for (id, partitions) in &tasks.active {
                let own = self.active.entry(id.clone()).or_default();
                own.extend(partitions.keys().map(|partition| (*partition, member.process_id.clone())));
            }
            add_copies(&mut self.standby, &tasks.standby, &member.process_id);
            add_copies(&mut self.warmup, &tasks.warmup, &member.process_id);
        }
    }

    /// Removes a member's tasks. Tasks of another process are kept: in a compacted log, the record of the new
    /// owner may come before the record by which this member gave up the task.
    pub(super) fn remove(&mut self, member: &StreamsGroupMember) {
        for tasks in [&member.assigned, &member.revoking] {
            self.remove_active(&tasks.active, &member.process_id);
            remove_copies(&mut self.standby, &tasks.standby, &member.process_id);
            remove_copies(&mut self.warmup, &tasks.warmup, &member.process_id);
        }
    }

    fn remove_active(&mut self, tasks: &ActiveTasks, process: &Arc<str>) {
        for (id, partitions) in tasks {
            let Some(own) = self.active.get_mut(id) else { continue };
            for partition in partitions.keys() {
                if own.get(partition) == Some(process) {
                    own.remove(partition);
                }
            }
            if own.is_empty() {
                self.active.remove(id);
            }
        }
    }
}

fn add_copies(copies: &mut Copies, tasks: &Tasks, process: &Arc<str>) {
    for (id, partitions) in tasks {
        let own = copies.entry(id.clone()).or_default();
        for partition in partitions {
            own.entry(*partition).or_default().insert(process.clone());
        }
    }
}

fn remove_copies(copies: &mut Copies, tasks: &Tasks, process: &Arc<str>) {
    for (id, partitions) in tasks {
        let Some(own) = copies.get_mut(id) else { continue };
        for partition in partitions {
            if let Some(processes) = own.get_mut(partition) {
                processes.remove(process);
                if processes.is_empty() {
                    own.remove(partition);
                }
            }
        }
        if own.is_empty() {
            copies.remove(id);
        }
    }
}
