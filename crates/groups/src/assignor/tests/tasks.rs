//! Assignments of tasks: properties on random groups, and a comparison with Kafka's.

use crate::assignor::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write as _;
use std::path::Path;
use thalweg_shard::testing::run_kafka_program;

const SEEDS: u64 = 120;
const STEPS: usize = 8;

#[derive(Clone, Debug, Default)]
struct Group {
    members: BTreeMap<Arc<str>, TaskMemberSpec>,
    subtopologies: BTreeMap<Arc<str>, SubtopologySpec>,
    standby_replicas: usize,
}

type Assignments = BTreeMap<Arc<str>, TaskAssignment>;

impl Group {
    fn assign(&self) -> Assignments {
        let Group { members, subtopologies, standby_replicas } = self;
        assign_tasks(&TaskGroupSpec { members, subtopologies, standby_replicas: *standby_replicas })
    }

    fn take(&mut self, assigned: Assignments) {
        for (id, TaskAssignment { active, standby }) in assigned {
            let member = self.members.get_mut(&id).expect("an assignor adds no members");
            (member.active, member.standby) = (active, standby);
        }
    }

    /// Number of active tasks that stay, or go to a member with a standby.
    fn kept(&self, assigned: &Assignments) -> usize {
        let of = |(id, member): (&Arc<str>, &TaskMemberSpec)| {
            let active = assigned.get(id).map_or(Vec::new(), |assigned| list(&assigned.active));
            let (before, standby) = (list(&member.active), list(&member.standby));
            active.iter().filter(|task| before.contains(task) || standby.contains(task)).count()
        };
        self.members.iter().map(of).sum()
    }
}

fn list(tasks: &Tasks) -> Vec<(Arc<str>, i32)> {
    tasks.iter().flat_map(|(id, partitions)| partitions.iter().map(|index| (id.clone(), *index))).collect()
}

/// Groups over time, each with its assignment.
fn lives() -> Vec<(Group, Assignments)> {
    let mut all = Vec::new();
    for seed in 0..SEEDS {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut group = Group { standby_replicas: rng.random_range(0..3), ..Group::default() };
        for index in 0..rng.random_range(1..5) {
            let spec = SubtopologySpec { tasks: rng.random_range(1..20), is_stateful: rng.random_bool(0.6) };
            group.subtopologies.insert(index.to_string().into(), spec);
        }
        for _ in 0..STEPS {
            for _ in 0..rng.random_range(1..5) {
                let members: Vec<Arc<str>> = group.members.keys().cloned().collect();
                if rng.random_bool(0.35) && members.len() > 1 {
                    group.members.remove(&members[rng.random_range(0..members.len())]);
                } else {
                    let process_id = format!("p{}", rng.random_range(0..6)).into();
                    let member = TaskMemberSpec { process_id, ..Default::default() };
                    group.members.insert(format!("m{:020}", rng.random::<u64>()).into(), member);
                }
            }
            let assigned = group.assign();
            all.push((group.clone(), assigned.clone()));
            group.take(assigned);
        }
    }
    all
}

/// Every task is active once, and its standbys are on different processes as far as there are enough.
fn check(group: &Group, assigned: &Assignments) {
    let mut active = BTreeMap::new();
    let mut processes: BTreeMap<(Arc<str>, i32), Vec<&str>> = BTreeMap::new();
    for (id, of) in assigned {
        let process: &str = &group.members[id].process_id;
        for task in list(&of.active) {
            *active.entry(task.clone()).or_insert(0) += 1;
            processes.entry(task).or_default().push(process);
        }
        list(&of.standby).into_iter().for_each(|task| processes.entry(task).or_default().push(process));
    }
    let all: BTreeSet<&str> = group.members.values().map(|member| &*member.process_id).collect();
    for (id, spec) in &group.subtopologies {
        for partition in 0..spec.tasks {
            let task = (id.clone(), partition);
            assert_eq!(active.remove(&task), Some(1), "{task:?} {group:#?}");
            let on = processes.remove(&task).unwrap_or_default();
            let replicas = if spec.is_stateful { group.standby_replicas } else { 0 };
            assert_eq!(on.len(), all.len().min(1 + replicas), "{task:?} {group:#?}");
            assert_eq!(on.iter().collect::<BTreeSet<_>>().len(), on.len(), "{task:?} {group:#?}");
        }
    }
    assert!(active.is_empty() && processes.is_empty(), "tasks that do not exist");
}

/// Difference between the largest and the smallest number of active tasks per member.
fn spread(assigned: &Assignments) -> usize {
    let counts: Vec<usize> = assigned.values().map(|of| list(&of.active).len()).collect();
    counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0)
}

#[test]
fn tasks_are_active_once_and_standbys_on_other_processes() {
    for (group, assigned) in lives() {
        assert!(assigned.keys().eq(group.members.keys()));
        check(&group, &assigned);
    }
}

#[test]
fn without_members_or_subtopologies_nothing_is_assigned() {
    assert!(Group::default().assign().is_empty());
    let mut group = Group { standby_replicas: 1, ..Group::default() };
    group.members.insert("a".into(), TaskMemberSpec::default());
    assert_eq!(group.assign(), [("a".into(), TaskAssignment::default())].into());
}

#[test]
fn tasks_of_a_member_that_left_go_where_their_state_is_as_far_as_there_is_room() {
    let mut group = Group { standby_replicas: 1, ..Group::default() };
    group.subtopologies.insert("0".into(), SubtopologySpec { tasks: 6, is_stateful: true });
    for name in ["a", "b", "c"] {
        let member = TaskMemberSpec { process_id: name.into(), ..Default::default() };
        group.members.insert(name.into(), member);
    }
    let assigned = group.assign();
    group.take(assigned);
    let gone = list(&group.members.remove("b").expect("it is a member").active);
    assert_eq!(gone.len(), 2);
    let assigned = group.assign();
    for (id, member) in &group.members {
        let active = list(&assigned[id].active);
        assert_eq!(active.len(), 3);
        assert!(list(&member.active).iter().all(|task| active.contains(task)), "{assigned:#?}");
    }
    let goes_home = |task: &(Arc<str>, i32)| {
        let heir = assigned.iter().find(|(_, of)| list(&of.active).contains(task)).expect("it is assigned").0;
        list(&group.members[heir].standby).contains(task)
    };
    assert!(gone.iter().any(goes_home), "{group:#?} {assigned:#?}");
}

fn words(tasks: &Tasks) -> String {
    let of = |(id, partitions): (&Arc<str>, &BTreeSet<i32>)| {
        let partitions: Vec<String> = partitions.iter().map(i32::to_string).collect();
        format!("{id}:{}", partitions.join(","))
    };
    let all: Vec<String> = tasks.iter().map(of).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(";") }
}

fn tasks(words: &str) -> Tasks {
    let of = |word: &str| {
        let (id, partitions) = word.split_once(':').expect("an id and partitions");
        (Arc::from(id), partitions.split(',').map(|index| index.parse().expect("a number")).collect())
    };
    if words == "-" { Tasks::new() } else { words.split(';').map(of).collect() }
}

/// Assignments are valid, and over all groups as sticky and as even as Kafka's.
#[test]
fn tasks_are_assigned_as_well_as_by_kafka() {
    let lives = lives();
    let mut input = String::new();
    for (group, _) in &lives {
        let mut put = |line: String| writeln!(input, "{line}").expect("a string takes it");
        put(format!("group {}", group.standby_replicas));
        for (id, spec) in &group.subtopologies {
            put(format!("subtopology {id} {} {}", spec.tasks, spec.is_stateful));
        }
        for (id, member) in &group.members {
            put(format!(
                "member {id} {} {} {}",
                member.process_id,
                words(&member.active),
                words(&member.standby)
            ));
        }
        put("end".to_owned());
    }
    let Some(output) = run_kafka_program(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/Tasks.java"),
        "sticky assignor of tasks",
        &input,
    ) else {
        return;
    };
    let mut lines = output.lines();
    let (mut kept, mut spreads) = ([0, 0], [0, 0]);
    for (group, ours) in &lives {
        let kafkas: Assignments = lines
            .by_ref()
            .take_while(|line| *line != "end")
            .map(|line| {
                let [id, active, standby] =
                    line.split(' ').collect::<Vec<_>>().try_into().expect("three words");
                (Arc::from(id), TaskAssignment { active: tasks(active), standby: tasks(standby) })
            })
            .collect();
        assert!(kafkas.keys().eq(group.members.keys()));
        for (index, assigned) in [ours, &kafkas].into_iter().enumerate() {
            kept[index] += group.kept(assigned);
            spreads[index] += spread(assigned);
        }
    }
    assert!(kept[0] * 100 >= kept[1] * 99, "kept: ours {}, Kafka's {}", kept[0], kept[1]);
    assert!(spreads[0] * 100 <= spreads[1] * 101, "spread: ours {}, Kafka's {}", spreads[0], spreads[1]);
}
