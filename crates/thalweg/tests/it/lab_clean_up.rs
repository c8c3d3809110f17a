//! A failed or interrupted run of the lab leaves nothing behind, in any state. On brokers of this binary:
//! those started by the lab must be gone with their files, and a running one must have no topic of the run.
#![allow(
    clippy::disallowed_methods,
    reason = "processes run in the world's time, and their tests wait in it"
)]

use std::path::Path;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use thalweg_lab::result::State;

use super::binary::{run, thalweg};
use super::lab::{LabDirectory, assert_ends_with, end, place, ran, signal, text, workload};
use super::node::Node;

/// Timeout for a run to reach a state.
const LIMIT: Duration = Duration::from_secs(60);

/// Standard error of a run.
#[expect(clippy::disallowed_types, reason = "the log of a child process is no data file")]
fn error_file(lab: &LabDirectory) -> std::fs::File {
    std::fs::File::create(lab.dir.path().join("stderr")).expect("a file")
}

/// A running broker, not started by the lab.
struct ForeignBroker {
    node: Node,
    _dir: tempfile::TempDir,
}

impl ForeignBroker {
    fn start() -> ForeignBroker {
        let dir = tempfile::tempdir().expect("a directory");
        let node = Node::start(dir.path(), &["listeners=PLAINTEXT://127.0.0.1:0"]);
        ForeignBroker { node, _dir: dir }
    }

    /// Topics of the lab's runs.
    fn topics(&self) -> Vec<String> {
        let (code, out, error) =
            run(&mut thalweg(&format!("topic list -q --bootstrap-server {}", self.node.address)));
        assert_eq!(code, Some(0), "{error}");
        let words = out.split_whitespace().filter(|word| word.starts_with("thalweg-lab-"));
        words.map(str::to_owned).collect()
    }

    /// Starts a run on it, with standard error in a file.
    fn run(&self, lab: &LabDirectory) -> Child {
        let mut command = lab.run(&["--bootstrap", &self.node.address]);
        command.stderr(error_file(lab));
        command.spawn().expect("the binary starts")
    }

    #[track_caller]
    fn assert_nothing_is_left(&self, lab: &LabDirectory) {
        lab.assert_nothing_is_left();
        assert_eq!(self.topics(), [""; 0], "topics are left");
    }
}

fn stderr_of(lab: &LabDirectory) -> String {
    std::fs::read_to_string(lab.dir.path().join("stderr")).unwrap_or_default()
}

/// The workers of a run.
fn workers(lab: &LabDirectory) -> Vec<u32> {
    let is_worker = |pid: &u32| {
        std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains("\0lab\0worker"))
    };
    lab.processes().into_iter().filter(is_worker).collect()
}

/// Waits until a run reaches a state.
#[track_caller]
fn await_state(run: &mut Child, lab: &LabDirectory, state: &str, is_there: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(
            run.try_wait().expect("ours to wait for").is_none(),
            "it ended before {state}: {}",
            stderr_of(lab)
        );
        assert!(began.elapsed() < LIMIT, "it does not come to {state}: {}", stderr_of(lab));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until a repetition with this progress line measures: its worker has been sending for a moment.
#[track_caller]
fn await_measuring(run: &mut Child, lab: &LabDirectory, words: &str) {
    await_state(run, lab, words, || stderr_of(lab).contains(words) && !workers(lab).is_empty());
    std::thread::sleep(Duration::from_millis(800));
}

fn assert_failed(output: &Output, lab: &LabDirectory, words: &str) {
    assert_ends_with(output, 1);
    let failure = lab.point().failure.expect("it was not measured");
    assert!(failure.contains(words), "{failure}");
}

fn assert_interrupted(output: &Output, lab: &LabDirectory) {
    assert_ends_with(output, 1);
    assert!(matches!(lab.result().state, State::Partial { why } if why.contains("SIGINT")));
    assert_eq!(lab.point().failure, None, "an interrupt is no failure");
}

#[test]
fn cluster_up_that_fails_leaves_nothing() {
    let _place = place();
    let lab = LabDirectory::with(&workload(1.0, "cluster.properties = { log.segment.bytes = \"none\" }"));
    let output = ran(lab.run(&[]));
    assert_failed(&output, &lab, "log.segment.bytes");
    lab.assert_nothing_is_left();
    let lab = LabDirectory::with(&workload(1.0, "cluster.brokers = 3"));
    let foreign = ForeignBroker::start();
    let output = end(foreign.run(&lab));
    assert_failed(&output, &lab, "cluster.brokers = 3");
    foreign.assert_nothing_is_left(&lab);
}

#[test]
fn cluster_up_that_is_interrupted_leaves_nothing() {
    let _place = place();
    let lab = LabDirectory::with(&workload(1.0, "cluster.brokers = 3"));
    let mut command = lab.run(&[]);
    command.stderr(error_file(&lab));
    let mut run = command.spawn().expect("the binary starts");
    // The lab, the guard and the first broker.
    await_state(&mut run, &lab, "the start of a broker", || lab.processes().len() >= 3);
    signal(run.id(), Signal::INT);
    assert_interrupted(&end(run), &lab);
    assert!(!stderr_of(&lab).contains("warm-up"), "it was past the start: {}", stderr_of(&lab));
    lab.assert_nothing_is_left();
}

#[test]
fn prepare_that_fails_leaves_no_topic() {
    let _place = place();
    let foreign = ForeignBroker::start();
    for (more, words) in [
        // No topic is created.
        ("topics.properties = { retention.ms = \"none\" }", "Creating"),
        // The topics exist when the worker refuses its assignment.
        ("producers.properties = { acks = \"7\" }", "acks"),
    ] {
        let lab = LabDirectory::with(&workload(1.0, more));
        let output = end(foreign.run(&lab));
        assert_failed(&output, &lab, words);
        foreign.assert_nothing_is_left(&lab);
    }
}

#[test]
fn prepare_that_is_interrupted_leaves_no_topic() {
    let _place = place();
    let foreign = ForeignBroker::start();
    let backlog = "extent = { records = 40_000_000 }";
    let text = workload(60.0, "measure = \"consume\"\nconsumers.count = 1")
        .replace("extent = { warm_up_s = 0.2, seconds = 60 }", backlog);
    assert!(text.contains(backlog), "{text}");
    let lab = LabDirectory::with(&text);
    let mut run = foreign.run(&lab);
    // The first worker produces the backlog.
    await_state(&mut run, &lab, "the backlog", || !workers(&lab).is_empty() && !foreign.topics().is_empty());
    signal(run.id(), Signal::INT);
    assert_interrupted(&end(run), &lab);
    foreign.assert_nothing_is_left(&lab);
}

#[test]
fn a_worker_that_dies_in_warm_up_or_measurement_leaves_no_topic() {
    let _place = place();
    let foreign = ForeignBroker::start();
    // Like an aborting panic, or the kernel's out-of-memory killer.
    for (words, by) in [("(warm-up, not counted)", Signal::ABORT), ("repetition 1 of 2", Signal::KILL)] {
        let lab = LabDirectory::with(&workload(60.0, ""));
        let mut run = foreign.run(&lab);
        await_measuring(&mut run, &lab, words);
        for worker in workers(&lab) {
            signal(worker, by);
        }
        assert_failed(&end(run), &lab, "producer-0");
        foreign.assert_nothing_is_left(&lab);
    }
}

#[test]
fn a_measurement_that_is_interrupted_leaves_no_topic_and_keeps_whole_repetitions() {
    let _place = place();
    let foreign = ForeignBroker::start();
    for (words, whole) in [("(warm-up, not counted)", 0), ("repetition 2 of 2", 1)] {
        // Some of the topics that come and go are there at any time.
        let lab = LabDirectory::with(&workload(
            4.0,
            "topics.created_per_s = 100\nload = { kind = \"rate\", records_per_s = 5000 }",
        ));
        let mut run = foreign.run(&lab);
        await_measuring(&mut run, &lab, words);
        signal(run.id(), Signal::INT);
        assert_interrupted(&end(run), &lab);
        assert_eq!(lab.point().repetitions.len(), whole, "{words}");
        assert!(stderr_of(&lab).contains("interrupted"), "{}", stderr_of(&lab));
        foreign.assert_nothing_is_left(&lab);
    }
}

#[test]
fn a_clean_up_that_is_interrupted_keeps_the_repetition_that_it_follows() {
    let _place = place();
    let lab = LabDirectory::with(&workload(1.0, ""));
    let mut command = lab.run(&["--repetitions", "3"]);
    command.env("RUST_LOG", "warn,thalweg_lab=debug").stderr(error_file(&lab));
    let mut run = command.spawn().expect("the binary starts");
    // The clean-up of the warm-up, then that of the first repetition: its files are gone half a second after
    // it begins.
    await_state(&mut run, &lab, "a clean-up", || stderr_of(&lab).matches("Deleting topics").count() == 2);
    signal(run.id(), Signal::INT);
    assert_interrupted(&end(run), &lab);
    let repetitions = lab.point().repetitions;
    assert_eq!(repetitions.len(), 1, "{}", stderr_of(&lab));
    assert!(repetitions[0].figures.produced_records_per_s.is_some());
    assert_eq!(repetitions[0].evidence.acknowledged, repetitions[0].evidence.in_log);
    lab.assert_nothing_is_left();
}

#[test]
fn a_contender_that_fails_leaves_the_others_their_turns() {
    let _place = place();
    let foreign = ForeignBroker::start();
    // Streams refuse verified records; the plain client completes all its repetitions.
    let lab = LabDirectory::with(&workload(0.5, "drivers = \"stream, thalweg\"\nverify = \"whole\""));
    let output = end(foreign.run(&lab));
    assert_ends_with(&output, 1);
    let points = lab.result().workloads.remove(0).points;
    assert!(points[0].failure.as_ref().is_some_and(|why| why.contains("verify")), "{:?}", points[0].failure);
    assert_eq!(
        (points[1].failure.as_ref(), points[1].repetitions.len()),
        (None, 2),
        "{}",
        text(&output.stdout)
    );
    foreign.assert_nothing_is_left(&lab);
}
