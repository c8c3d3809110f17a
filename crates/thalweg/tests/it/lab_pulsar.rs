//! `thalweg lab` and `thalweg pulsar-perf` on Apache Pulsar. The test with a broker needs Java 17 and
//! Pulsar's distribution (`PULSAR_HOME`); otherwise it is skipped, with a notice.

#![expect(
    clippy::disallowed_methods,
    reason = "processes run in the world's time, and their tests wait in it"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use thalweg_lab::result::State;
use thalweg_lab::target::{self, PulsarAdmin, StartOptions, TargetSpec, pulsar_distribution};
use thalweg_lab::worker::{Assignment, Driver, Event, Handle, Report, Role, StopWhen};
use thalweg_lab::workload::{ClusterSpec, Payload, RecordSpec, Verification};

use crate::lab::{LabDirectory, alone, assert_ends_with, ran, signal, text, workload};

fn pulsar_perf(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.arg("pulsar-perf").args(arguments).stdin(Stdio::null());
    command.output().expect("it runs")
}

#[test]
fn a_workloads_target_that_is_not_installed_is_left_out_with_the_way_to_get_it() {
    let _alone = alone();
    let lab = LabDirectory::with(&workload(0.5, "targets = \"embedded, pulsar\""));
    let mut command = lab.run(&[]);
    command.env("PULSAR_HOME", lab.dir.path());
    let output = ran(command);
    assert_ends_with(&output, 0);
    let said = text(&output.stderr);
    for part in ["Skipped Apache Pulsar", "pulsar-server-distribution:4.0.8:tar.gz:bin", "Java 17 or later"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(lab.result().workloads[0].points.len(), 1);

    // A target that is asked for fails instead.
    let lab = LabDirectory::with(&workload(0.5, ""));
    let mut command = lab.run(&["--target", "pulsar"]);
    command.env("PULSAR_HOME", lab.dir.path());
    let output = ran(command);
    assert_ends_with(&output, 1);
    assert!(text(&output.stdout).contains("Apache Pulsar is not in"), "{}", text(&output.stdout));
}

#[tokio::test]
async fn a_running_pulsar_is_measured_with_evidence_and_by_the_perf_tool() {
    if let Err(error) = pulsar_distribution(None) {
        writeln!(std::io::stderr(), "SKIPPED: the lab on Pulsar: {error}").expect("stderr takes a line");
        return;
    }
    let work = tempfile::tempdir().expect("a directory");
    let spec = ClusterSpec::plaintext(1, BTreeMap::new());
    let running = target::start(&TargetSpec::Pulsar, &spec, &StartOptions::new(work.path())).await;
    let running = running.expect("it starts");
    let _alone = alone();
    let cluster = running.cluster().clone();
    let (url, admin) = (cluster.bootstrap[0].as_str(), cluster.pulsar_admin.as_deref().expect("a URL"));

    let points = "verify = \"whole\"\nrepetitions = 1\nconsumers.count = 2\n\
                  [[point]]\nlabel = \"both\"\nload = { kind = \"rate\", records_per_s = 2000 }\n\
                  [[point]]\nlabel = \"drain\"\nmeasure = \"drain\"\n\
                  load = { kind = \"rate\", records_per_s = 1000 }\nextent = { records = 30000 }\n\
                  [[point]]\nlabel = \"idle\"\ncluster.idle_connections = 3\n";
    let lab = LabDirectory::with(&workload(2.0, points).replace("label = \"only\"\nrepetitions = 2\n", ""));
    let output = ran(lab.run(&["--bootstrap", url, "--pulsar-admin", admin]));
    // The point with idle connections fails.
    assert_ends_with(&output, 1);
    let result = lab.result();
    assert!(matches!(result.state, State::Partial { .. }), "{:?}", result.state);
    let points = &result.workloads[0].points;
    for point in &points[..2] {
        assert_eq!(point.failure, None);
        let repetition = &point.repetitions[0];
        let evidence = &repetition.evidence;
        assert_eq!(evidence.faults, [""; 0]);
        let check = evidence.check.as_ref().expect("all was read back");
        assert!(check.whole && check.lost == 0 && check.read == evidence.acknowledged, "{evidence:?}");
        let figures = &repetition.figures;
        let bytes_per_record =
            figures.bytes_per_batch.zip(figures.records_per_batch).map(|(all, of)| all / of);
        assert!(bytes_per_record.is_some_and(|bytes| (100.0..160.0).contains(&bytes)), "{figures:?}");
        let ledgers = || evidence.partitions.iter().flat_map(|partition| &partition.ledgers);
        let records: u64 = ledgers().map(|ledger| ledger.acknowledged_records).sum();
        assert_eq!(records, evidence.acknowledged, "by ledger and entry");
        assert!(ledgers().all(|ledger| ledger.acknowledged_entries <= ledger.entries.unsigned_abs()));
        let notes = repetition.notes.join(" / ");
        assert!(notes.contains("Not checked on Pulsar"), "{notes}");
        assert!(repetition.end_to_end_latency.is_some());
    }
    assert!(points[1].repetitions[0].figures.drain_s.is_some_and(|seconds| seconds > 0.0));
    let refused = points[2].failure.as_deref().expect("a refusal");
    assert!(refused.contains("cluster.idle_connections"), "{refused}");

    let produced = pulsar_perf(&["produce", "-u", url, "-m", "3000", "-r", "3000", "-bm", "50", "perf"]);
    assert_ends_with(&produced, 0);
    let said = text(&produced.stdout);
    assert!(
        said.contains("PerformanceProducer - Aggregated throughput stats --- 3000 records sent --- "),
        "{said}"
    );
    assert!(said.contains("Aggregated latency stats --- Latency: mean: "), "{said}");
    let consumed =
        pulsar_perf(&["consume", "-u", url, "-m", "3000", "-sp", "Earliest", "-time", "60", "perf"]);
    assert_ends_with(&consumed, 0);
    let said = text(&consumed.stdout);
    assert!(
        said.contains("PerformanceConsumer - Aggregated throughput stats --- 3000 records received"),
        "{said}"
    );

    // A signal ends a test with its totals, and a second one does without a broker.
    let endless = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["pulsar-perf", "produce", "-u", url, "-r", "1000", "perf"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        let mut first = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        lines.read_line(&mut first).expect("readable");
        assert!(first.ends_with("Created 1 producers\n"), "{first}");
        std::thread::sleep(Duration::from_secs(1));
        (child, lines)
    };
    let rest = |(child, mut lines): (Child, BufReader<ChildStdout>)| {
        let mut said = String::new();
        lines.read_to_string(&mut said).expect("readable");
        assert!(said.contains("Aggregated throughput stats") && said.contains("latency stats"), "{said}");
        child.wait_with_output().expect("it ends")
    };
    let ended = endless();
    signal(ended.0.id(), Signal::TERM);
    assert_ends_with(&rest(ended), 0);
    let cut = endless();
    running.stop();
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..2 {
        signal(cut.0.id(), Signal::INT);
        std::thread::sleep(Duration::from_millis(500));
    }
    let output = rest(cut);
    assert_ends_with(&output, 1);
    assert!(text(&output.stderr).contains("messages had no answer"), "{}", text(&output.stderr));
}

/// Microseconds of the kernel's monotonic clock, to a hundredth of a second.
fn uptime_us() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").expect("Linux");
    let seconds: f64 = uptime.split(' ').next().expect("a number").parse().expect("a number");
    (seconds * 1e6) as u64
}

/// The clock of all workers is an hour behind the machine's, as that of an agent is, if the lab's is behind
/// its machine's: times of records are on the workers' clock alone.
#[tokio::test]
async fn latencies_of_records_without_stamps_are_on_the_workers_clock() {
    if let Err(error) = pulsar_distribution(None) {
        writeln!(std::io::stderr(), "SKIPPED: clocks on Pulsar: {error}").expect("stderr takes a line");
        return;
    }
    let work = tempfile::tempdir().expect("a directory");
    let spec = ClusterSpec::plaintext(1, BTreeMap::new());
    let running = target::start(&TargetSpec::Pulsar, &spec, &StartOptions::new(work.path())).await;
    let running = running.expect("it starts");
    let _alone = alone();
    let cluster = running.cluster().clone();
    let admin = PulsarAdmin::new(cluster.pulsar_admin.as_deref().expect("an admin API")).expect("a URL");
    admin.create_topic("events", 2, "readers").await.expect("made");
    let wall_us = SystemTime::now().duration_since(UNIX_EPOCH).expect("a present").as_micros();
    let ahead_us = i64::try_from(wall_us).expect("a present") - 3_600_000_000 - uptime_us().cast_signed();
    let now_us = || uptime_us().saturating_add_signed(ahead_us);
    let spawn = |role: Role| {
        let assignment = Assignment {
            role,
            driver: Driver::Thalweg,
            bootstrap: cluster.bootstrap.clone(),
            properties: BTreeMap::new(),
            topics: vec!["events".to_owned()],
            clients: 1,
            first_client: 0,
            threads: 1,
            records: RecordSpec { size_bytes: 128, payload: Payload::Random, keys: None },
            verify: Verification::Off,
            records_per_s: (role == Role::Producer).then_some(500.0),
            stop: if role == Role::Producer { StopWhen::Seconds(2.0) } else { StopWhen::OnCommand },
            groups: vec!["readers".to_owned()],
            drains: false,
            all_clients: 1,
            seed: 42,
        };
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_thalweg"));
        command.args(["lab", "worker", &format!("--clock-ahead-us={ahead_us}")]);
        Handle::spawn_command("worker", command, &assignment).expect("it starts")
    };
    let (mut producer, mut consumer) = (spawn(Role::Producer), spawn(Role::Consumer));
    producer.ready().await.expect("ready");
    consumer.ready().await.expect("ready");
    let at_us = now_us() + 1_000_000;
    producer.start(at_us, at_us).await;
    consumer.start(at_us, at_us).await;
    let produced = report(&mut producer).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    consumer.stop().await;
    let consumed = report(&mut consumer).await;
    assert_eq!((produced.acknowledged, consumed.acknowledged), (1000, 1000));
    assert_eq!(consumed.negative.records, 0, "{:?}", consumed.negative);
    let latency = consumed.end_to_end_latency.expect("publish times");
    // Whole milliseconds: the first records may be before the start.
    assert!(latency.count > 990 && latency.p50_us < 500_000, "{} of {}", latency.p50_us, latency.count);
    running.stop();
}

async fn report(worker: &mut Handle) -> Report {
    loop {
        if let Event::Done(report) = worker.next_event().await.expect("a report") {
            return *report;
        }
    }
}
