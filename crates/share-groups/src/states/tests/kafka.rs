//! Compares with Kafka's share coordinator, on random requests: the answers, and the records byte for byte.
//! Runs if KAFKA_CLASSPATH names the jars of a Kafka 4.3 distribution and `java` is installed.

use super::harness::{Harness, key};
use crate::states::request::{StateReply, StateRequest, StateWrite};
use crate::states::runs::StateRun;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write as _;
use std::path::Path;
use thalweg_hash::HashSet;
use thalweg_shard::testing::run_kafka_program;
use thalweg_share::SharePartitionKey;

const SEEDS: u64 = 60;
const STEPS: usize = 150;

fn runs(random: &mut StdRng) -> Vec<StateRun> {
    let count = random.random_range(0..5);
    let one = |_| {
        let first_offset = random.random_range(0..80);
        let last_offset = first_offset + random.random_range(0..15);
        let delivery_state = [0, 2, 4, 0, 2][random.random_range(0..5)];
        StateRun { first_offset, last_offset, delivery_count: random.random_range(0..4), delivery_state }
    };
    (0..count).map(one).collect()
}

fn random_request(random: &mut StdRng, start: i64) -> StateRequest {
    let leader_epoch = [-1, 0, 1, 1, 2][random.random_range(0..5)];
    let state_epoch = [-1, 0, 1, 1][random.random_range(0..4)];
    match random.random_range(0..20) {
        0..2 => {
            StateRequest::Initialize { state_epoch, start_offset: [-1, 0, start][random.random_range(0..3)] }
        }
        2..5 => StateRequest::Read { leader_epoch },
        5..7 => StateRequest::Summarize { leader_epoch },
        7 => StateRequest::Delete,
        _ => StateRequest::Write(StateWrite {
            state_epoch,
            leader_epoch,
            start_offset: [-1, start, start][random.random_range(0..3)],
            delivery_complete_count: random.random_range(-1..9),
            runs: runs(random),
        }),
    }
}

fn text(runs: &[StateRun]) -> String {
    let one = |run: &StateRun| {
        format!("{}:{}:{}:{}", run.first_offset, run.last_offset, run.delivery_count, run.delivery_state)
    };
    runs.iter().map(one).collect::<Vec<_>>().join(",")
}

fn line(key: &SharePartitionKey, request: &StateRequest) -> String {
    let at = format!("{} {} {}", key.group, key.topic, key.partition);
    match request {
        StateRequest::Initialize { state_epoch, start_offset } => {
            format!("init {at} {state_epoch} {start_offset}")
        }
        StateRequest::Read { leader_epoch } => format!("read {at} {leader_epoch}"),
        StateRequest::Summarize { .. } => format!("summary {at}"),
        StateRequest::Delete => format!("delete {at}"),
        StateRequest::Write(write) => {
            let runs = if write.runs.is_empty() { "-".to_owned() } else { text(&write.runs) };
            let StateWrite { state_epoch, leader_epoch, start_offset, delivery_complete_count, .. } = write;
            format!("write {at} {state_epoch} {leader_epoch} {start_offset} {delivery_complete_count} {runs}")
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes it");
        text
    })
}

/// An answer, the records since a batch, and the redundant offset, as the program prints them.
fn outcome(harness: &Harness, answer: &str, batch: usize) -> String {
    let record = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| {
        format!("{}={}", hex(key), value.as_deref().map(hex).unwrap_or_default())
    };
    let mut records: Vec<String> = harness.records_from(batch).iter().map(record).collect();
    records.sort();
    let redundant = harness.shard.redundant_before().unwrap_or(-1);
    format!("{answer} [{}] {redundant}", records.join(" "))
}

fn served(harness: &mut Harness, key: &SharePartitionKey, request: StateRequest) -> String {
    let batch = harness.log.len();
    let answer = match harness.request(key, request) {
        Err(error) => format!("{} -", error.code().code()),
        Ok(StateReply::Changed) => "0 -".to_owned(),
        Ok(StateReply::State { state_epoch, start_offset, runs }) => {
            format!("0 {state_epoch}/{start_offset}/{}", text(&runs))
        }
        Ok(StateReply::Summary(summary)) => format!(
            "0 {}/{}/{}/{}",
            summary.state_epoch, summary.leader_epoch, summary.start_offset, summary.delivery_complete_count
        ),
    };
    outcome(harness, &answer, batch)
}

#[test]
fn records_and_answers_are_kafkas() {
    let (mut input, mut expected) = (String::new(), Vec::new());
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let updates = [0, 1, 3, 10][random.random_range(0..4)];
        let mut harness = Harness::new(updates);
        writeln!(input, "new {updates}").expect("a string takes it");
        let mut start = 0;
        for step in 0..STEPS {
            start += i64::from(random.random_range(0..3));
            harness.now_ms += random.random_range(0..1_000);
            writeln!(input, "clock {}", harness.now_ms).expect("a string takes it");
            let line = match random.random_range(0..100) {
                0..3 => {
                    let batch = harness.log.len();
                    // Not by the shard's own timer, which follows the clock.
                    harness.now_ms += 300_000;
                    writeln!(input, "clock {}", harness.now_ms).expect("a string takes it");
                    harness.turn(|shard, _, now| shard.snapshot_cold(now));
                    expected.push((seed, step, outcome(&harness, "0 -", batch)));
                    "cold".to_owned()
                }
                3 => {
                    let (batch, gone) = (harness.log.len(), key("g", 7, 0).topic);
                    harness.turn(|shard, _, _| shard.topics_deleted(&HashSet::from_iter([gone])));
                    expected.push((seed, step, outcome(&harness, "0 -", batch)));
                    format!("gone {gone}")
                }
                _ => {
                    let topic = [7, 7, 8, 1][random.random_range(0..4)];
                    let partition = [0, 0, 1, 9, -1][random.random_range(0..5)];
                    let key = key(["g", "h:i"][random.random_range(0..2)], topic, partition);
                    let request = random_request(&mut random, start);
                    let line = line(&key, &request);
                    expected.push((seed, step, served(&mut harness, &key, request)));
                    line
                }
            };
            writeln!(input, "{line}").expect("a string takes it");
        }
    }
    let Some(output) = run_kafka_program(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ShareStates.java"),
        "share coordinator",
        &input,
    ) else {
        return;
    };
    let answers: Vec<&str> = output.lines().collect();
    assert_eq!(answers.len(), expected.len());
    for ((seed, step, ours), kafkas) in expected.iter().zip(answers) {
        assert_eq!(ours, kafkas, "seed {seed}, step {step}");
    }
}
