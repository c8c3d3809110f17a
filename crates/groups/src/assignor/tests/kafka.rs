//! Compares with Kafka's assignors, on random groups. Runs if KAFKA_CLASSPATH names the jars of a Kafka 4.3
//! distribution and `java` is installed.

use super::properties::{imbalance, kept};
use super::random::{Group, Life};
use crate::assignor::*;
use std::fmt::Write as _;
use std::path::Path;
use thalweg_shard::testing::run_kafka_program;

const SEEDS: u64 = 150;
const STEPS: usize = 8;

fn text(assigned: &Assignment) -> String {
    let topic = |(id, partitions): (&Uuid, &BTreeSet<i32>)| {
        let partitions: Vec<String> = partitions.iter().map(i32::to_string).collect();
        format!("{id}:{}", partitions.join(","))
    };
    let topics: Vec<String> = assigned.iter().map(topic).collect();
    if topics.is_empty() { "-".to_owned() } else { topics.join(";") }
}

fn ask(input: &mut String, assignor: &str, group: &Group) {
    let kind = if group.spec().homogeneous { "HOMOGENEOUS" } else { "HETEROGENEOUS" };
    writeln!(input, "group {assignor} {kind}").expect("a string takes it");
    for (id, topic) in &group.topics {
        writeln!(input, "topic {id} {}", topic.partitions).expect("a string takes it");
    }
    for (id, member) in &group.members {
        let topics: Vec<String> = member.topics.iter().map(Uuid::to_string).collect();
        let topics = if topics.is_empty() { "-".to_owned() } else { topics.join(",") };
        let instance = member.instance_id.as_deref().unwrap_or("-");
        let line = format!("member {id} {instance} {topics} {}", text(&member.assigned));
        writeln!(input, "{line}").expect("a string takes it");
    }
    input.push_str("end\n");
}

/// Kafka's assignments of all groups in the input.
fn answers(input: &str) -> Option<Vec<BTreeMap<Arc<str>, Assignment>>> {
    let output = run_kafka_program(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/Assignors.java"),
        "assignors",
        input,
    )?;
    let mut answers = vec![BTreeMap::new()];
    for line in output.lines() {
        match line.split_once(' ') {
            Some((id, topics)) => {
                let assigned = topics.split(';').map(|topic| {
                    let (id, partitions) = topic.split_once(':').expect("an id and partitions");
                    let partitions = partitions.split(',').map(|index| index.parse().expect("a number"));
                    (id.parse().expect("an id"), partitions.collect())
                });
                answers.last_mut().expect("there is one").insert(Arc::from(id), assigned.collect());
            }
            None => answers.push(BTreeMap::new()),
        }
    }
    answers.pop();
    Some(answers)
}

/// The groups of many histories, each with the assignment of our assignor.
fn lives(
    assign: impl Fn(&Group) -> BTreeMap<Arc<str>, Assignment>,
) -> Vec<(Group, BTreeMap<Arc<str>, Assignment>)> {
    let mut all = Vec::new();
    for seed in 0..SEEDS {
        let mut life = Life::new(seed);
        for _ in 0..STEPS {
            life.step();
            let assigned = assign(&life.group);
            all.push((life.group.clone(), assigned.clone()));
            life.group.take(assigned);
        }
    }
    all
}

fn without_idle(mut assigned: BTreeMap<Arc<str>, Assignment>) -> BTreeMap<Arc<str>, Assignment> {
    assigned.retain(|_, assigned| !assigned.is_empty());
    assigned
}

fn sizes(assigned: &BTreeMap<Arc<str>, Assignment>) -> Vec<usize> {
    let mut sizes: Vec<usize> =
        assigned.values().map(|of| of.values().map(BTreeSet::len).sum()).filter(|size| *size > 0).collect();
    sizes.sort_unstable();
    sizes
}

/// Range is identical. Uniform with equal subscriptions has the same sizes and keeps as many partitions;
/// Kafka takes topics in the order of a hash set. With different subscriptions, uniform is as even and keeps
/// as many partitions over all groups.
#[test]
fn consumer_groups_are_assigned_as_by_kafka() {
    for assignor in ServerAssignor::ALL {
        let lives = lives(|group| assignor.assign(&group.spec()));
        let mut input = String::new();
        lives.iter().for_each(|(group, _)| ask(&mut input, assignor.name(), group));
        let Some(answers) = answers(&input) else { return };
        assert_eq!(answers.len(), lives.len());
        let (mut compared, mut figures) = ([0; 3], [[0; 2]; 2]);
        for ((group, ours), mut kafkas) in lives.into_iter().zip(answers) {
            if assignor == ServerAssignor::Range || group.topics.len() == 1 && group.spec().homogeneous {
                assert_eq!(without_idle(ours), kafkas, "{assignor:?} {group:#?}");
                compared[0] += 1;
            } else if group.spec().homogeneous {
                let ours = without_idle(ours);
                assert_eq!(sizes(&ours), sizes(&kafkas), "{group:#?}");
                assert_eq!(kept(&group, &ours), kept(&group, &kafkas), "{group:#?}");
                compared[1] += 1;
            } else {
                for id in group.members.keys() {
                    kafkas.entry(id.clone()).or_default();
                }
                for (figures, assigned) in figures.iter_mut().zip([&ours, &kafkas]) {
                    figures[0] += kept(&group, assigned);
                    figures[1] += imbalance(&group, assigned);
                }
                compared[2] += 1;
            }
        }
        let [ours, kafkas] = figures;
        let is_as_good = ours[0] * 100 >= kafkas[0] * 99 && ours[1] * 100 <= kafkas[1] * 101;
        assert!(is_as_good, "kept and imbalance: ours {ours:?}, Kafka's {kafkas:?}");

        assert!(compared[0] > 100, "{compared:?}");
    }
}

/// Kafka's order always depends on hash maps. Our assignor finds a reader for every partition that has one in
/// Kafka, and over all groups it assigns and keeps as many partitions, as evenly.
#[test]
fn share_groups_are_assigned_as_well_as_by_kafka() {
    let lives = lives(|group| assign_shared(&group.spec(), |_, _| true));
    let mut input = String::new();
    lives.iter().for_each(|(group, _)| ask(&mut input, SIMPLE, group));
    let Some(answers) = answers(&input) else { return };
    assert_eq!(answers.len(), lives.len());
    let mut figures = [[0; 3]; 2];
    for ((group, ours), mut kafkas) in lives.into_iter().zip(answers) {
        for id in group.members.keys() {
            let of = kafkas.entry(id.clone()).or_default();
            of.retain(|topic, _| group.members[id].topics.contains(topic));
        }
        let read = |assigned: &BTreeMap<Arc<str>, Assignment>| -> BTreeSet<(Uuid, i32)> {
            let topics = assigned.values().flatten();
            topics.flat_map(|(topic, partitions)| partitions.iter().map(|index| (*topic, *index))).collect()
        };
        assert!(read(&ours).is_superset(&read(&kafkas)), "{group:#?}");
        for (figures, assigned) in figures.iter_mut().zip([&ours, &kafkas]) {
            figures[0] += sizes(assigned).iter().sum::<usize>();
            figures[1] += kept(&group, assigned);
            figures[2] += imbalance(&group, assigned);
        }
    }
    let [ours, kafkas] = figures;
    let is_as_good = ours[0] * 100 >= kafkas[0] * 99
        && ours[1] * 100 >= kafkas[1] * 99
        && ours[2] * 100 <= kafkas[2] * 101;
    assert!(is_as_good, "assigned, kept and imbalance: ours {ours:?}, Kafka's {kafkas:?}");
}
