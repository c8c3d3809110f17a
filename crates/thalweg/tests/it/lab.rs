//! `thalweg lab` from its arguments to its report: successful runs, and everything that may go wrong.
#![allow(
    clippy::disallowed_methods,
    reason = "processes run in the world's time, and their tests wait in it"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thalweg_lab::null_server::{Loss, NullServer, Settings, Stalls};
use thalweg_lab::result::{self, PointResult, RunResult, State};
use thalweg_lab::worker::Driver;

/// A run that takes longer than this has failed.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A small workload, followed by the test's settings.
pub(super) fn workload(seconds: f64, more: &str) -> String {
    format!(
        "title = \"A test\"\ndescription = \"A test.\"\nlabel = \"only\"\nrepetitions = 2\n\
         topics.partitions = 2\nrecords.size_bytes = 100\n\
         extent = {{ warm_up_s = 0.2, seconds = {seconds} }}\n{more}\n"
    )
}

/// A directory with a workload, and one for the result.
pub(super) struct LabDirectory {
    pub(super) dir: tempfile::TempDir,
}

impl LabDirectory {
    pub(super) fn with(workload: &str) -> LabDirectory {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("small.toml"), workload).expect("written");
        LabDirectory { dir }
    }

    pub(super) fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    /// `thalweg lab run small.toml --out out` with more arguments.
    pub(super) fn run(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(&["run", "small.toml", "--out", "out"]);
        command.args(arguments);
        command
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.arg("lab").args(arguments).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(super) fn result(&self) -> RunResult {
        result::read(&self.out().join("result.json")).expect("a result")
    }

    pub(super) fn point(&self) -> PointResult {
        self.result().workloads[0].points[0].clone()
    }

    /// Processes of this run: brokers with data here, and workers with this working directory.
    pub(super) fn processes(&self) -> Vec<u32> {
        let here = self.dir.path().canonicalize().expect("it exists");
        let is_here = |pid: &u32| {
            std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&here))
        };
        pids().into_iter().filter(is_here).collect()
    }

    /// The broker of this run.
    fn broker(&self) -> Option<u32> {
        let here = self.dir.path().to_str().expect("UTF-8").to_owned();
        pids().into_iter().find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(" serve ") && line.contains(&here)
        })
    }

    pub(super) fn assert_nothing_is_left(&self) {
        let began = Instant::now();
        while !self.processes().is_empty() && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(self.processes(), Vec::<u32>::new(), "processes are left");
        assert!(!self.out().join("brokers").exists(), "the brokers' files are left");
    }
}

fn pids() -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("Linux");
    processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Two runs at a time, so that the others do not make them slow.
static PLACES: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];

/// Waits for a place for a run whose figures do not matter.
pub(super) fn place() -> MutexGuard<'static, ()> {
    loop {
        for place in &PLACES {
            match place.try_lock() {
                Ok(held) => return held,
                Err(TryLockError::Poisoned(held)) => return held.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for all places: no other run of this program distorts the figures.
pub(super) fn alone() -> [MutexGuard<'static, ()>; 2] {
    PLACES.each_ref().map(|place| place.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Waits for the end, with a timeout.
pub(super) fn end(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().expect("ours to wait for").is_none() {
        if began.elapsed() > TIMEOUT {
            child.kill().expect("ours to end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().expect("it has ended")
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(super) fn ran(mut command: Command) -> Output {
    end(command.spawn().expect("the binary starts"))
}

#[track_caller]
pub(super) fn assert_ends_with(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}\n{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_short_run_yields_a_whole_result_that_can_be_shown_compared_and_run_again() {
    let _place = place();
    let lab = LabDirectory::with(&workload(1.0, "consumers.count = 1"));
    let output = ran(lab.run(&["--seed", "7"]));
    assert_ends_with(&output, 0);
    assert!(text(&output.stderr).contains("Estimated run: 1 point, about 0:"), "{}", text(&output.stderr));
    let (table, page) = (text(&output.stdout), lab.out().join("report.html"));
    assert!(table.contains("Thalweg") && table.contains("report.html"), "{table}");
    let results = table.split("No figure of Thalweg may be quoted").next().unwrap_or_default();
    assert!(results.len() < table.len(), "a second is too short: {table}");
    assert!(results.contains("Evidence: "), "the results come first: {table}");
    assert!(std::fs::read_to_string(page).expect("a report").contains("</html>"));
    lab.assert_nothing_is_left();

    let result = lab.result();
    assert_eq!((&result.state, result.seed), (&State::Complete, 7));
    let point = &result.workloads[0].points[0];
    assert_eq!((point.failure.as_ref(), point.repetitions.len()), (None, 2));
    for repetition in &point.repetitions {
        let evidence = &repetition.evidence;
        assert_eq!(evidence.faults, Vec::<String>::new());
        assert_eq!(evidence.acknowledged, evidence.in_log);
        let check = evidence.check.as_ref().expect("it was asked for");
        assert_eq!((check.whole, check.lost, check.duplicated, check.damaged), (true, 0, 0, 0));
        assert!(evidence.acknowledged > 0 && check.read == evidence.in_log);
        assert!(repetition.acknowledge_latency.is_some() && repetition.end_to_end_latency.is_some());
        let names: Vec<&str> = repetition.processes.iter().map(|used| used.name.as_str()).collect();
        assert_eq!(names, ["broker-1", "consumer-0", "producer-0"]);
    }
    assert!(point.verdict.no_headline.iter().any(|reason| reason.contains("5 s")), "{:?}", point.verdict);
    assert_eq!(point.summary.figures["produced_records_per_s"].count, 2);

    let shown = ran(lab.command(&["report", "out/result.json", "-o", "shown.html"]));
    assert_ends_with(&shown, 0);
    assert!(lab.dir.path().join("shown.html").exists());

    std::fs::remove_file(lab.dir.path().join("small.toml")).expect("it is there");
    assert_ends_with(&ran(lab.command(&["rerun", "out/result.json", "--out", "again", "--json"])), 0);
    let again = result::read(&lab.dir.path().join("again/result.json")).expect("a result");
    assert_eq!((again.seed, &again.arguments), (result.seed, &result.arguments));
    assert_eq!(again.workloads[0].workload, result.workloads[0].workload);

    let compared = ran(lab.command(&["compare", "out/result.json", "again/result.json"]));
    assert_ends_with(&compared, 0);
    assert!(text(&compared.stdout).contains("ratio"), "{}", text(&compared.stdout));
    assert_ends_with(&ran(lab.command(&["run", "ibm-fast", "--out", "out"])), 2);
}

#[test]
fn streams_in_memory_are_measured_without_a_cluster() {
    let _place = place();
    let lab =
        LabDirectory::with(&workload(0.5, "drivers = \"stream\"\ncluster.brokers = 0\nverify = \"off\""));
    assert_ends_with(&ran(lab.run(&["--target", "embedded", "--target", "apache-kafka"])), 0);
    let result = lab.result();
    assert_eq!(result.state, State::Complete);
    assert_eq!(result.workloads[0].points.len(), 1, "once, whatever the targets");
    let point = lab.point();
    assert_eq!((point.target.as_str(), point.driver.words()), ("in memory", "stream"));
    assert!(point.client.ends_with(" streams"), "{}", point.client);
    for repetition in &point.repetitions {
        assert!(repetition.figures.produced_records_per_s.is_some_and(|rate| rate > 0.0), "{repetition:?}");
        assert_eq!(repetition.evidence.faults, [""; 0]);
    }
    assert!(lab.out().join("report.html").is_file());
    lab.assert_nothing_is_left();
    let lab = LabDirectory::with(&workload(0.5, "cluster.brokers = 0\nverify = \"off\""));
    let output = ran(lab.run(&["--driver", "java"]));
    assert!(text(&output.stderr).contains("use --driver stream"), "{}", text(&output.stderr));
}

#[test]
fn a_broken_workload_file_is_refused_with_its_line() {
    let lab = LabDirectory::with(&workload(1.0, "topics.partition = 3"));
    let output = ran(lab.run(&[]));
    assert_ends_with(&output, 2);
    let told = text(&output.stderr);
    assert!(told.contains("small.toml:8") && told.contains("topics.partition"), "{told}");
    assert!(!lab.out().exists(), "nothing is made for nothing");
    assert_ends_with(&ran(lab.command(&["run", "no-such-workload"])), 2);
    assert_ends_with(&ran(lab.command(&["run", "ibm-fast", "--points", "no such point"])), 2);
    assert_ends_with(&ran(lab.command(&["report", "small.toml"])), 2);
}

/// The driver librdkafka needs a cargo feature. With the feature, `lab_drivers` tests it.
#[test]
fn a_driver_that_is_not_built_in_is_refused_before_anything_is_made() {
    if Driver::Librdkafka.check().is_ok() {
        return;
    }
    let named = LabDirectory::with(&workload(1.0, "drivers = \"thalweg, librdkafka\""));
    let plain = LabDirectory::with(&workload(1.0, ""));
    for (lab, arguments) in [
        (&named, "run small.toml --out out"),
        (&plain, "run small.toml --out out --driver librdkafka"),
        (&plain, "tune small.toml --out out --driver librdkafka"),
        (&plain, "calibrate --driver librdkafka"),
    ] {
        let output = ran(lab.command(&arguments.split(' ').collect::<Vec<_>>()));
        assert_ends_with(&output, 2);
        let error = text(&output.stderr);
        assert!(error.contains("cargo build --release -p thalweg --features librdkafka"), "{error}");
        assert!(!lab.out().exists(), "nothing is made for nothing");
    }
    let shown = ran(named.command(&["show", "small.toml"]));
    assert_ends_with(&shown, 0);
    let help = ran(named.command(&["run", "--help"]));
    // Ignore line breaks.
    let help = text(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("--features librdkafka"), "{help}");
}

#[test]
fn a_java_that_is_not_there_is_named_and_the_other_target_is_measured() {
    let _place = place();
    let lab = LabDirectory::with(&workload(1.0, ""));
    let mut command = lab.run(&["--target", "apache-kafka", "--target", "embedded", "--repetitions", "1"]);
    let nothing = lab.dir.path().join("nothing");
    std::fs::create_dir(&nothing).expect("made");
    command.env("PATH", &nothing).env_remove("JAVA_HOME").env_remove("KAFKA_CLASSPATH");
    let output = ran(command);
    assert_ends_with(&output, 1);
    let result = lab.result();
    assert!(matches!(result.state, State::Partial { .. }), "{:?}", result.state);
    let points = &result.workloads[0].points;
    assert_eq!((points[0].target.as_str(), points[1].target.as_str()), ("apache-kafka", "embedded"));
    assert!(points[0].failure.as_ref().is_some_and(|why| why.contains("Java")), "{:?}", points[0].failure);
    assert_eq!((points[1].failure.as_ref(), points[1].repetitions.len()), (None, 1));
    lab.assert_nothing_is_left();
}

#[test]
fn an_absent_cluster_is_reported_once_within_a_moment() {
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let lab =
        LabDirectory::with(&workload(1.0, "producers.count = [1, 2]").replace("only", "{producers.count}"));
    for command in ["run small.toml --out out", "tune small.toml --out out"] {
        let server = format!("127.0.0.1:{port}");
        let arguments: Vec<&str> = command.split(' ').chain(["--bootstrap", &server]).collect();
        let began = Instant::now();
        let output = ran(lab.command(&arguments));
        assert!(began.elapsed() < Duration::from_secs(3), "it took {:?}", began.elapsed());
        assert_ends_with(&output, 1);
        let error = text(&output.stderr);
        assert!(error.contains(&format!("No server of {server} can be reached")), "{error}");
        assert_eq!(error.matches("can be reached").count(), 1, "{error}");
        assert!(!lab.out().exists(), "nothing is made for nothing");
    }
}

#[test]
fn a_rate_is_reached_in_a_short_run() {
    let _alone = alone();
    let rate = "load = { kind = \"rate\", records_per_s = 2000 }\nproducers.properties = { linger.ms = 40 }";
    let lab = LabDirectory::with(&workload(1.0, rate));
    assert_ends_with(&ran(lab.run(&["--repetitions", "2"])), 0);
    for repetition in lab.point().repetitions {
        // The answers of the last 40 ms come after the end: counted until the last one, a short run would
        // miss its rate.
        let rate = repetition.figures.produced_records_per_s.expect("produced");
        assert!((1900.0..2100.0).contains(&rate), "{rate} of 2000");
        assert!((repetition.measured_s - 1.0).abs() < 1e-6, "{}", repetition.measured_s);
    }
    lab.assert_nothing_is_left();
}

#[test]
fn every_group_consumes_every_record_beside_idle_connections() {
    let _place = place();
    let settings = "load = { kind = \"rate\", records_per_s = 2000 }\nconsumers = { count = 6, groups = 3 }\n\
                    cluster.idle_connections = 150\n";
    let lab = LabDirectory::with(&workload(1.0, settings));
    assert_ends_with(&ran(lab.run(&["--repetitions", "1"])), 0);
    let repetition = lab.point().repetitions.remove(0);
    let consumed: u64 = repetition.consumed.iter().map(|second| second.records).sum();
    let produced: u64 = repetition.produced.iter().map(|second| second.records).sum();
    assert!(produced > 0 && consumed.abs_diff(3 * produced) * 20 < produced, "{produced}, {consumed}");
    assert!(!repetition.notes.iter().any(|note| note.contains("idle")), "{:?}", repetition.notes);
    lab.assert_nothing_is_left();
    let many = "cluster.idle_connections = 100000";
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "ulimit -n 1000 && exec \"$0\" lab run small.toml --out out",
        env!("CARGO_BIN_EXE_thalweg"),
    ]);
    let lab = LabDirectory::with(&workload(1.0, many));
    command.current_dir(lab.dir.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = ran(command);
    assert_ends_with(&output, 1);
    let error = text(&output.stderr);
    assert!(
        error.contains("100000 idle connections need 100200 open files, and the limit is 1000"),
        "{error}"
    );
}

#[test]
fn the_time_of_a_drain_follows_its_backlog() {
    let _alone = alone();
    let settings = "measure = \"drain\"\ntopics.partitions = 2\nconsumers.count = 1\n\
                    load = { kind = \"rate\", records_per_s = 1000 }\n[[point]]\nlabel = \"short\"\n\
                    extent = { warm_up_s = 0, records = 20000 }\n[[point]]\nlabel = \"long\"\n\
                    extent = { warm_up_s = 0, records = 400000 }\n";
    let lab = LabDirectory::with(&format!("title = \"t\"\ndescription = \"d\"\n{settings}"));
    assert_ends_with(&ran(lab.run(&["--repetitions", "1"])), 0);
    let result = lab.result();
    let drain = |place: usize| {
        let repetition = &result.workloads[0].points[place].repetitions[0];
        let figures = &repetition.figures;
        let drain_s = figures.drain_s.expect("drained");
        let records = [20_000.0, 400_000.0][place];
        let rate = figures.consumed_records_per_s.expect("consumed");
        assert!((rate * drain_s / records - 1.0).abs() < 0.001, "{figures:?}");
        let latency = figures.drained_p99_us.expect("the latency of drained records");
        assert!(latency > drain_s * 1e6 / 2.0, "it contains the wait: {figures:?}");
        assert!(figures.group_start_s.is_some_and(|start| start > 0.0), "{figures:?}");
        drain_s
    };
    let (short, long) = (drain(0), drain(1));
    assert!(short < 0.5 && long > short * 3.0, "{short} s and {long} s");
    lab.assert_nothing_is_left();
}

#[test]
fn topics_come_and_go_beside_the_load_and_partitions_that_are_not_used() {
    let _place = place();
    let settings = "load = { kind = \"rate\", records_per_s = 500 }\ncluster.idle_partitions = 1200\n\
                    topics.created_per_s = 20\n";
    let lab = LabDirectory::with(&workload(2.0, settings));
    let output = ran(lab.run(&["--repetitions", "1"]));
    assert_ends_with(&output, 0);
    assert!(text(&output.stderr).contains("Making 1,200 idle partitions"), "{}", text(&output.stderr));
    let repetition = lab.point().repetitions.remove(0);
    let figures = &repetition.figures;
    let ready =
        [figures.topic_ready_p50_us, figures.topic_ready_p99_us].map(|figure| figure.expect("40 topics"));
    assert!(0.0 < ready[0] && ready[0] <= ready[1] && ready[1] < 5e6, "{ready:?}");
    assert!(figures.metadata_us.is_some_and(|us| us > 0.0), "{figures:?}");
    assert_eq!(repetition.notes, [""; 0]);
    assert!(text(&output.stdout).contains("topic ready, p99"), "{}", text(&output.stdout));
    lab.assert_nothing_is_left();
}

#[test]
fn nodes_are_held_to_their_limits_and_their_groups_are_removed() {
    let _alone = alone();
    let limits = "cluster = { node_cpus = 0.2, node_memory_mb = 512 }";
    let lab = LabDirectory::with(&workload(2.0, limits));
    let output = ran(lab.run(&["--repetitions", "1"]));
    let point = lab.point();
    if let Some(failure) = point.failure {
        assert_ends_with(&output, 1);
        assert!(failure.contains("control groups"), "{failure}");
        let skipped = format!("SKIPPED: nodes with limits: {failure}");
        writeln!(std::io::stderr(), "{skipped}").expect("standard error is open");
        return;
    }
    assert_ends_with(&output, 0);
    let repetition = &point.repetitions[0];
    let broker = repetition.processes.iter().find(|used| used.name == "broker-1").expect("a broker");
    let used = (broker.user_s + broker.system_s) / repetition.measured_s;
    assert!(used < 0.24, "{used} processors");
    // Beside other tests the whole machine may be at its limit, too.
    let verdict = &point.verdict;
    let is_crowded = verdict.no_headline.iter().any(|reason| reason.starts_with("processes outside the run"));
    assert!(verdict.limit == "broker CPU" || is_crowded && verdict.limit == "machine CPU", "{verdict:?}");
    let notes = &lab.result().targets["embedded"].notes;
    let said = "Each node is limited to 0.2 CPU, 512 MB by control groups, version ";
    assert!(notes.iter().any(|note| note.starts_with(said)), "{notes:?}");
    lab.assert_nothing_is_left();
    assert_eq!(control_groups(), [""; 0]);

    // The guard removes them, too.
    let lab = LabDirectory::with(&workload(60.0, limits));
    let mut run = lab.run(&[]).spawn().expect("the binary starts");
    under_way(&lab, &mut run);
    assert_ne!(control_groups(), [""; 0], "the method finds them");
    signal(run.id(), Signal::KILL);
    end(run);
    let began = Instant::now();
    while !control_groups().is_empty() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(control_groups(), [""; 0]);
}

/// The control groups of embedded brokers. Runs of this test program have the machine one at a time.
fn control_groups() -> Vec<String> {
    fn below(dir: &Path, depth: u32, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let is_dir = entry.file_type().is_ok_and(|is| is.is_dir());
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_dir && name.starts_with("thalweg-lab-embedded-") {
                found.push(entry.path().display().to_string());
            } else if is_dir && depth > 0 {
                below(&entry.path(), depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), 8, &mut found);
    found
}

#[test]
fn limits_that_a_machine_cannot_give_are_refused_with_what_it_lacks() {
    let _place = place();
    let lab = LabDirectory::with(&workload(1.0, "cluster = { brokers = 9, node_cpus = 1000 }"));
    let output = ran(lab.run(&[]));
    assert_ends_with(&output, 1);
    let failure = lab.point().failure.expect("it was not measured");
    assert!(failure.contains("9 nodes of 1000 CPU need 9000 processors, but this machine has "), "{failure}");
    lab.assert_nothing_is_left();
}

/// Waits until the first repetition has its workers, and returns the broker's process.
fn under_way(lab: &LabDirectory, run: &mut Child) -> u32 {
    let began = Instant::now();
    loop {
        // The broker, its guard, a producer, and the lab itself.
        if let Some(broker) = lab.broker().filter(|_| lab.processes().len() >= 4) {
            std::thread::sleep(Duration::from_millis(1500));
            return broker;
        }
        assert!(run.try_wait().expect("ours to wait for").is_none(), "it ended before it began");
        assert!(began.elapsed() < TIMEOUT, "it does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(super) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("process ids are small")).expect("not 0");
    kill_process(pid, signal).expect("it runs");
}

#[test]
fn an_interrupted_run_leaves_its_partial_result_and_nothing_else() {
    let _place = place();
    for by in [Signal::INT, Signal::TERM] {
        let lab = LabDirectory::with(&workload(60.0, "consumers.count = 1"));
        let mut run = lab.run(&[]).spawn().expect("the binary starts");
        under_way(&lab, &mut run);
        signal(run.id(), by);
        let began = Instant::now();
        let output = end(run);
        assert_ends_with(&output, 1);
        assert!(began.elapsed() < Duration::from_secs(40), "it took {:?}", began.elapsed());
        assert!(matches!(lab.result().state, State::Partial { why } if why.contains("SIG")));
        assert!(lab.out().join("report.html").exists());
        lab.assert_nothing_is_left();
    }
}

#[test]
fn a_run_that_is_killed_leaves_no_process_and_no_data() {
    let _place = place();
    let lab = LabDirectory::with(&workload(60.0, "consumers.count = 1"));
    let mut run = lab.run(&[]).spawn().expect("the binary starts");
    let broker = under_way(&lab, &mut run);
    signal(run.id(), Signal::KILL);
    end(run);
    let began = Instant::now();
    let is_left = || !lab.processes().is_empty() || Path::new(&format!("/proc/{broker}")).exists();
    while is_left() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!is_left(), "processes are left: {:?}", lab.processes());
    let left = std::fs::read_dir(lab.out().join("brokers")).expect("made by the run").count();
    assert_eq!(left, 0, "the brokers' files are left");
}

#[test]
fn a_broker_that_dies_in_the_middle_is_named() {
    let _place = place();
    let lab = LabDirectory::with(&workload(60.0, ""));
    let mut run = lab.run(&[]).spawn().expect("the binary starts");
    let broker = under_way(&lab, &mut run);
    signal(broker, Signal::KILL);
    let began = Instant::now();
    let output = end(run);
    assert_ends_with(&output, 1);
    assert!(began.elapsed() < Duration::from_secs(30), "it took {:?}", began.elapsed());
    let failure = lab.point().failure.expect("it was not measured");
    assert!(failure.contains("broker-1") && failure.contains("listens on"), "{failure}");
    lab.assert_nothing_is_left();
}

fn null_server(settings: Settings) -> NullServer {
    NullServer::start(&settings).expect("a free port")
}

#[test]
fn a_broker_that_drops_acknowledged_records_is_caught() {
    let _place = place();
    for hidden in [false, true] {
        let server = null_server(Settings {
            loss: Some(Loss { every_nth_batch: 5, hidden }),
            keep_bytes_max: 1 << 30,
            partitions: 2,
            ..Settings::default()
        });
        let rate = "load = { kind = \"rate\", records_per_s = 20000 }";
        let lab = LabDirectory::with(&workload(1.0, rate));
        let output =
            ran(lab.run(&["--bootstrap", &server.address(), "--verify", "whole", "--repetitions", "1"]));
        assert_ends_with(&output, 1);
        let point = lab.point();
        let evidence = &point.repetitions.first().unwrap_or_else(|| panic!("{:?}", point.failure)).evidence;
        assert!(!evidence.faults.is_empty(), "hidden {hidden}: {evidence:?}");
        assert!(evidence.check.as_ref().is_some_and(|check| check.lost > 0), "hidden {hidden}: {evidence:?}");
        assert!(point.verdict.no_headline.iter().any(|reason| reason.contains("not in the log")));
        assert!(text(&output.stderr).contains("faults"), "{}", text(&output.stderr));
    }
}

#[test]
fn stalls_of_20_ms_show_in_the_999th_of_a_thousand_latencies() {
    let _alone = alone();
    let server = null_server(Settings {
        stalls: Stalls::Every { period_s: 1.0, length_s: 0.02 },
        partitions: 2,
        ..Settings::default()
    });
    let rate = "load = { kind = \"rate\", records_per_s = 5000 }\nproducers.properties = { linger.ms = 0 }";
    // A busy machine has its own stalls: one quiet run of three suffices.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let lab = LabDirectory::with(&workload(4.0, rate));
        ran(lab.run(&["--bootstrap", &server.address(), "--repetitions", "1"]));
        let point = lab.point();
        let taken = point.repetitions.first().unwrap_or_else(|| panic!("{:?}", point.failure));
        let figures = &taken.figures;
        let p999_us = figures.acknowledge_p999_us.expect("latencies");
        assert!(p999_us >= 15_000.0, "{p999_us} us at p99.9 do not show the stalls");
        if p999_us < 60_000.0 && figures.acknowledge_p50_us.expect("latencies") < 10_000.0 {
            return;
        }
        seen.push((p999_us, taken.host.cpu_busy));
    }
    // Other load on the machine is not the lab's fault.
    if seen.iter().all(|(_, busy)| *busy > 0.8) {
        let skipped =
            "SKIPPED: that stalls show as no more than they are: run it on a machine with nothing else to do";
        writeln!(std::io::stderr(), "{skipped}").expect("standard error is open");
        return;
    }
    panic!("p99.9 was, by the share of the processors that were busy, {seen:?} us");
}

const OMB_WORKLOAD: &str = "name: two topics\n\ntopics: 2\npartitionsPerTopic: 2\nmessageSize: 200\n\
                            payloadFile: \"payload/payload-200b.data\"\nsubscriptionsPerTopic: 1\n\
                            consumerPerSubscription: 1\nproducersPerTopic: 1\nproducerRate: 2000\n\
                            consumerBacklogSizeGB: 0\ntestDurationMinutes: 0.02\nwarmupDurationMinutes: 0.01\n";

const OMB_DRIVER: &str = "name: Kafka\ndriverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver\n\n\
                          replicationFactor: 1\nreset: true\n\ntopicConfig: |\n  retention.ms=3600000\n\ncommonConfig: |\n  \
                          bootstrap.servers=localhost:9092\n\nproducerConfig: |\n  acks=all\n  linger.ms=1\n\n\
                          consumerConfig: |\n  auto.offset.reset=earliest\n  enable.auto.commit=false\n";

#[test]
fn files_of_the_openmessaging_benchmark_are_run_and_its_results_written() {
    let _place = place();
    let lab = LabDirectory::with("");
    std::fs::write(lab.dir.path().join("two.yaml"), OMB_WORKLOAD).expect("written");
    std::fs::write(lab.dir.path().join("kafka.yaml"), OMB_DRIVER).expect("written");
    let arguments = ["run", "two.yaml", "--omb-driver", "kafka.yaml", "--omb-result", "--out", "out"];
    let output = ran(lab.command(&arguments));
    assert_ends_with(&output, 0);
    lab.assert_nothing_is_left();
    let point = lab.point();
    assert_eq!(
        (point.point.topics.count, point.point.producers.count, point.point.consumers.count),
        (2, 2, 2)
    );
    assert_eq!(point.point.topics.properties.get("retention.ms").map(String::as_str), Some("3600000"));
    assert_eq!(point.point.producers.properties.get("acks").map(String::as_str), Some("all"));
    let written = lab.out().join("omb-two-two-topics-embedded-thalweg.json");
    let json = std::fs::read(&written).expect("a result of its form");
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((&json["topics"], &json["messageSize"]), (&2.into(), &200.into()));
    assert!(json["aggregatedPublishLatency99pct"].as_f64().is_some_and(|ms| ms > 0.0), "{json}");
    assert!(text(&output.stdout).contains("omb-two-two-topics-embedded-thalweg.json"));

    std::fs::remove_file(&written).expect("it is there");
    assert_ends_with(&ran(lab.command(&["report", "out/result.json", "--omb-result"])), 0);
    assert!(written.exists(), "a report can write them, too");
    let strange = ran(lab.command(&["run", "quick", "--omb-driver", "kafka.yaml"]));
    assert_ends_with(&strange, 2);
    assert!(text(&strange.stderr).contains("--omb-driver kafka.yaml has no effect"));
}
