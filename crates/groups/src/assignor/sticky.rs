//! The assignor of streams groups (Kafka's `StickyTaskAssignor`, named `sticky`): it chooses the member that
//! processes a task and the members that keep copies of its state.
//!
//! Active tasks stay with their member up to its share, then go to a member that has a standby of them, then
//! to the member with the fewest tasks of the process with the lowest load. Standbys never share a process
//! with the active task or with one another, and prefer the members that have the state already.
//!
//! Like Kafka 4.3.1's, this assignor reads no racks and no client tags, and has no warm-up tasks.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_hash::{HashMap, HashSet};

/// The name of the only assignor of streams groups.
pub const NAME: &str = "sticky";

/// Tasks by the id of their subtopology: the partitions.
pub type Tasks = BTreeMap<Arc<str>, BTreeSet<i32>>;

/// The assignor's view of a member.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TaskMemberSpec {
    /// The member's process. Members of a process share its disk.
    pub process_id: Arc<str>,
    /// Active tasks of the member's current target.
    pub active: Tasks,
    /// Standby tasks of the member's current target.
    pub standby: Tasks,
}

/// The assignor's view of a subtopology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubtopologySpec {
    /// Number of tasks: the largest partition count of an input topic.
    pub tasks: i32,
    /// True if the subtopology has state, so that standbys make sense.
    pub is_stateful: bool,
}

/// The group and topology of one assignment.
#[derive(Clone, Copy, Debug)]
pub struct TaskGroupSpec<'a> {
    /// The group's members by id.
    pub members: &'a BTreeMap<Arc<str>, TaskMemberSpec>,
    /// The group's subtopologies by id.
    pub subtopologies: &'a BTreeMap<Arc<str>, SubtopologySpec>,
    /// Number of standbys for each task with state.
    pub standby_replicas: usize,
}

/// The tasks of a member.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TaskAssignment {
    /// Tasks that the member processes.
    pub active: Tasks,
    /// Tasks whose state the member copies.
    pub standby: Tasks,
}

/// The new assignment of each member.
pub fn assign_tasks(spec: &TaskGroupSpec<'_>) -> BTreeMap<Arc<str>, TaskAssignment> {
    let mut builder = Builder::new(spec);
    if !builder.counts.is_empty() {
        builder.assign_active();
        builder.assign_standby(spec);
    }
    builder.assignments(spec)
}

/// A member or process by its load: tasks for each of `members`.
#[derive(Clone, Copy)]
struct Load {
    tasks: u64,
    members: u64,
}

impl Ord for Load {
    fn cmp(&self, other: &Load) -> Ordering {
        (self.tasks * other.members).cmp(&(other.tasks * self.members))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Load) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Load {
    fn eq(&self, other: &Load) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Load {}

/// The maximum number of tasks per member, so that the remaining tasks suffice for the other members.
struct Quota {
    tasks: usize,
    members: usize,
}

impl Quota {
    fn per_member(&self) -> usize {
        if self.members == 0 { 0 } else { self.tasks.div_ceil(self.members) }
    }

    /// Records a member's new task count. A member with a full quota no longer counts.
    fn filled(&mut self, count: usize) {
        if count == self.per_member() {
            self.members -= 1;
            self.tasks = self.tasks.saturating_sub(count);
        }
    }
}

struct Process {
    members: u64,
    /// Number of tasks of the process's members.
    count: u64,
    /// The process's members by their number of tasks.
    by_count: BTreeSet<(usize, usize)>,
    tasks: HashSet<usize>,
}

impl Process {
    fn load(&self) -> Load {
        Load { tasks: self.count, members: self.members }
    }
}

/// Members, processes and tasks are numbered: tasks by subtopology and partition.
struct Builder {
    tasks: Vec<(Arc<str>, i32)>,
    stateful: Vec<bool>,
    /// The process of each member.
    process_of: Vec<usize>,
    /// Number of tasks of each member.
    counts: Vec<usize>,
    processes: Vec<Process>,
    by_load: BTreeSet<(Load, usize)>,
    was_active: HashMap<usize, usize>,
    was_standby: HashMap<usize, Vec<usize>>,
    active: Vec<Option<usize>>,
    standby: Vec<Vec<usize>>,
    active_quota: Quota,
    quota: Quota,
}

impl Builder {
    fn new(spec: &TaskGroupSpec<'_>) -> Builder {
        let (mut tasks, mut stateful) = (Vec::new(), Vec::new());
        for (id, subtopology) in spec.subtopologies {
            tasks.extend((0..subtopology.tasks).map(|partition| (id.clone(), partition)));
            stateful.resize(tasks.len(), subtopology.is_stateful);
        }
        let standbys = stateful.iter().filter(|stateful| **stateful).count() * spec.standby_replicas;
        let members = spec.members.len();
        let mut builder = Builder {
            active: vec![None; tasks.len()],
            standby: vec![Vec::new(); tasks.len()],
            active_quota: Quota { tasks: tasks.len(), members },
            quota: Quota { tasks: tasks.len() + standbys, members },
            tasks,
            stateful,
            process_of: Vec::with_capacity(members),
            counts: vec![0; members],
            processes: Vec::new(),
            by_load: BTreeSet::new(),
            was_active: HashMap::default(),
            was_standby: HashMap::default(),
        };
        let mut processes: HashMap<&str, usize> = HashMap::default();
        for (index, member) in spec.members.values().enumerate() {
            let process = *processes.entry(&member.process_id).or_insert(builder.processes.len());
            if process == builder.processes.len() {
                let (by_count, tasks) = (BTreeSet::new(), HashSet::default());
                builder.processes.push(Process { members: 0, count: 0, by_count, tasks });
            }
            builder.processes[process].members += 1;
            builder.processes[process].by_count.insert((0, index));
            builder.process_of.push(process);
            for task in builder.numbers(&member.active) {
                builder.was_active.entry(task).or_insert(index);
            }
            for task in builder.numbers(&member.standby) {
                builder.was_standby.entry(task).or_default().push(index);
            }
        }
        builder.by_load =
            builder.processes.iter().enumerate().map(|(index, process)| (process.load(), index)).collect();
        builder
    }

    /// Numbers of the tasks that exist.
    fn numbers(&self, tasks: &Tasks) -> Vec<usize> {
        let tasks =
            tasks.iter().flat_map(|(id, partitions)| partitions.iter().map(move |index| (id, *index)));
        let number = |(id, index): (&Arc<str>, i32)| {
            self.tasks.binary_search_by(|(other, partition)| (other, *partition).cmp(&(id, index))).ok()
        };
        tasks.filter_map(number).collect()
    }

    /// Assigns a task to a member.
    fn give(&mut self, member: usize, task: usize) {
        let process = &mut self.processes[self.process_of[member]];
        self.by_load.remove(&(process.load(), self.process_of[member]));
        process.by_count.remove(&(self.counts[member], member));
        self.counts[member] += 1;
        process.by_count.insert((self.counts[member], member));
        process.count += 1;
        process.tasks.insert(task);
        self.by_load.insert((process.load(), self.process_of[member]));
        self.quota.filled(self.counts[member]);
    }

    fn give_active(&mut self, member: usize, task: usize) {
        self.give(member, task);
        self.active_quota.filled(self.counts[member]);
        self.active[task] = Some(member);
    }

    fn has_task(&self, member: usize, task: usize) -> bool {
        self.processes[self.process_of[member]].tasks.contains(&task)
    }

    /// The least loaded member among those that had a standby of the task and whose process lacks it.
    fn best_standby(&self, task: usize) -> Option<usize> {
        let had = self.was_standby.get(&task)?.iter().copied();
        let load = |member: &usize| (self.processes[self.process_of[*member]].load(), self.counts[*member]);
        had.filter(|member| !self.has_task(*member, task)).min_by_key(load)
    }

    /// The member with the fewest tasks in the least loaded process without the task.
    fn least_loaded(&self, task: usize) -> Option<usize> {
        let processes = self.by_load.iter().map(|(_, process)| &self.processes[*process]);
        let process = processes.into_iter().find(|process| !process.tasks.contains(&task))?;
        process.by_count.first().map(|(_, member)| *member)
    }

    fn assign_active(&mut self) {
        // Partition by partition: equal partitions of several subtopologies often belong to the same member.
        let mut by_partition: Vec<usize> = (0..self.tasks.len()).collect();
        by_partition.sort_by_key(|task| self.tasks[*task].1);
        for task in &by_partition {
            self.give_active_if_room(self.was_active.get(task).copied(), *task);
        }
        for task in by_partition {
            if self.active[task].is_none() {
                self.give_active_if_room(self.best_standby(task), task);
            }
        }
        for task in 0..self.tasks.len() {
            if self.active[task].is_none() {
                let member = self.least_loaded(task).expect("a task without a member is on no process");
                self.give_active(member, task);
            }
        }
    }

    /// Gives an active task to this member, if the member's share is not complete.
    fn give_active_if_room(&mut self, member: Option<usize>, task: usize) {
        if let Some(member) = member.filter(|member| self.counts[*member] < self.active_quota.per_member()) {
            self.give_active(member, task);
        }
    }

    fn assign_standby(&mut self, spec: &TaskGroupSpec<'_>) {
        let mut missing = Vec::new();
        let mut by_partition: Vec<usize> =
            (0..self.tasks.len()).filter(|task| self.stateful[*task]).collect();
        by_partition.sort_by_key(|task| self.tasks[*task].1);
        // In reverse: active tasks were assigned in the other direction, so the members that lack active
        // tasks come first here.
        for task in by_partition.into_iter().rev() {
            for replica in 0..spec.standby_replicas {
                let was_active = self.was_active.get(&task).copied();
                let was_active = was_active.filter(|member| !self.has_task(*member, task));
                let has_room = |member: &usize| self.counts[*member] < self.quota.per_member();
                let was_active = was_active.filter(has_room);
                match was_active.or_else(|| self.best_standby(task).filter(has_room)) {
                    Some(member) => self.give_standby(member, task),
                    None => {
                        missing.push((task, spec.standby_replicas - replica));
                        break;
                    }
                }
            }
        }
        missing.sort_unstable_by(|one, other| other.cmp(one));
        for (task, replicas) in missing {
            for _ in 0..replicas {
                let Some(member) = self.least_loaded(task) else { break };
                self.give_standby(member, task);
            }
        }
    }

    fn give_standby(&mut self, member: usize, task: usize) {
        self.give(member, task);
        self.standby[task].push(member);
    }

    fn assignments(self, spec: &TaskGroupSpec<'_>) -> BTreeMap<Arc<str>, TaskAssignment> {
        let mut assigned = vec![TaskAssignment::default(); spec.members.len()];
        for (task, (id, partition)) in self.tasks.iter().enumerate() {
            let mut insert = |member: usize, tasks: fn(&mut TaskAssignment) -> &mut Tasks| {
                tasks(&mut assigned[member]).entry(id.clone()).or_default().insert(*partition);
            };
            self.active[task].into_iter().for_each(|member| insert(member, |assigned| &mut assigned.active));
            self.standby[task].iter().for_each(|member| insert(*member, |assigned| &mut assigned.standby));
        }
        spec.members.keys().cloned().zip(assigned).collect()
    }
}
