//! All drivers of the lab as real workers against the null server, and the evidence that detects its losses.
#![allow(clippy::disallowed_methods, reason = "the start time of workers is wall-clock time")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg_client::{Cluster, ConnectionOptions};
use thalweg_lab::evidence::{self, Claim, ReadBack, ReplicaObservations};
use thalweg_lab::null_server::{Loss, NullServer, ServiceTime, Settings};
use thalweg_lab::result::Evidence;
use thalweg_lab::target::{KafkaOptions, kafka_jars};
use thalweg_lab::worker::{Assignment, BatchCounts, Driver, Event, Handle, Report, Role, StopWhen};
use thalweg_lab::workload::{Payload, RecordSpec, Verification};

const SEED: u64 = 42;
/// A worker without output for this long has failed.
const SILENCE: Duration = Duration::from_secs(60);
const RECORDS: RecordSpec = RecordSpec { size_bytes: 128, payload: Payload::Random, keys: None };

fn serve(settings: Settings) -> NullServer {
    NullServer::start(&Settings { partitions: 3, ..settings }).expect("a null server")
}

/// A null server that stores records.
fn keeping(loss: Option<Loss>) -> NullServer {
    serve(Settings { keep_bytes_max: 1 << 30, loss, ..Settings::default() })
}

fn assignment(driver: Driver, role: Role, server: &NullServer, stop: StopWhen) -> Assignment {
    Assignment {
        role,
        driver,
        bootstrap: vec![server.address()],
        properties: BTreeMap::new(),
        topics: vec!["events".to_owned()],
        clients: 1,
        first_client: 0,
        threads: 1,
        records: RECORDS,
        verify: if driver == Driver::Java { Verification::Off } else { Verification::Whole },
        records_per_s: None,
        stop,
        groups: (role == Role::Consumer).then(|| "readers".to_owned()).into_iter().collect(),
        drains: false,
        all_clients: 1,
        seed: SEED,
    }
}

async fn run(assignment: &Assignment) -> (String, Report) {
    let binary = Path::new(env!("CARGO_BIN_EXE_thalweg"));
    let mut worker = Handle::spawn("worker", binary, assignment).expect("started");
    let (client, _) = tokio::time::timeout(SILENCE, worker.ready()).await.expect("in time").expect("ready");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
    let at_us = u64::try_from(now).expect("fits") + 50_000;
    worker.start(at_us, at_us).await;
    loop {
        match tokio::time::timeout(SILENCE, worker.next_event()).await.expect("in time").expect("a word") {
            Event::Done(report) => return (client, *report),
            Event::Interval(_) | Event::Ready { .. } | Event::Failed { .. } => {}
        }
    }
}

async fn evidence(server: &NullServer, producer: Report) -> Evidence {
    let cluster =
        Cluster::connect(&[server.address()], &ConnectionOptions::default()).await.expect("it serves");
    let watched = ReplicaObservations { in_sync_replicas_min: Some(1), looks: 1, failures: 0 };
    let claim = Claim {
        cluster: &cluster,
        topics: &["events".to_owned()],
        replication_factor: 1,
        producers: &[producer],
        consumers: &[],
        records: &RECORDS,
        seed: SEED,
        keeps_order: true,
        read_back: &ReadBack::Whole,
        watched: &watched,
    };
    evidence::collect(claim).await.expect("evidence")
}

/// Whether a driver is available; prints a message if not.
fn has(driver: Driver) -> bool {
    let missing = match driver {
        Driver::Thalweg | Driver::Stream => None,
        Driver::Librdkafka => driver
            .check()
            .err()
            .map(|_| "cargo test -p thalweg --features librdkafka --test it lab_drivers".to_owned()),
        Driver::Java => kafka_jars(&KafkaOptions::default()).err().map(|error| error.to_string()),
    };
    if let Some(missing) = &missing {
        // Bypasses the test harness, which captures output.
        writeln!(std::io::stderr(), "SKIPPED: the driver {}: {missing}", driver.words())
            .expect("standard error is open");
    }
    missing.is_none()
}

#[tokio::test]
async fn every_driver_produces_to_the_null_server() {
    for driver in [Driver::Thalweg, Driver::Librdkafka, Driver::Java] {
        if !has(driver) {
            continue;
        }
        let server = serve(Settings::default());
        let (client, report) =
            run(&assignment(driver, Role::Producer, &server, StopWhen::Records(20_000))).await;
        assert_eq!((report.acknowledged, report.failed), (20_000, 0), "{client}: {report:?}");
        assert_eq!(server.counts().records, 20_000, "{client}");
        assert_eq!(report.measured.bytes, 20_000 * 128, "{client}");
        assert!(report.measured.to_us > report.measured.from_us, "{client}: {report:?}");
        // The tool's latencies do not count from the intended time, which its notes say.
        assert_eq!(report.acknowledge_latency.is_some(), driver != Driver::Java, "{client}");
        assert_eq!(report.tool_percentiles.is_some(), driver == Driver::Java, "{client}: {report:?}");
        let own = report.notes.iter().any(|note| note.contains("coordinated omission"));
        assert_eq!(own, driver == Driver::Java, "{client}: {:?}", report.notes);
        // Without a warm-up all batches are measured.
        let counts = server.counts();
        let stored = BatchCounts { batches: counts.batches, bytes: counts.bytes };
        assert_eq!(report.batches, driver.why_no_batches().is_none().then_some(stored), "{client}");
    }
}

#[tokio::test]
async fn every_driver_consumes_the_null_servers_records() {
    let server = keeping(None);
    let produced =
        run(&assignment(Driver::Thalweg, Role::Producer, &server, StopWhen::Records(20_000))).await.1;
    assert_eq!(produced.acknowledged, 20_000, "{produced:?}");
    for driver in [Driver::Thalweg, Driver::Librdkafka, Driver::Java] {
        if !has(driver) {
            continue;
        }
        let mut consume = assignment(driver, Role::Consumer, &server, StopWhen::Records(20_000));
        consume.groups = vec![format!("readers-{driver:?}")];
        let (client, report) = run(&consume).await;
        assert!(report.acknowledged >= 20_000, "{client}: {report:?}");
        if consume.verify == Verification::Whole {
            let seen = &report.seen[..];
            assert_eq!(seen.len(), 1, "{client}: {seen:?}");
            assert_eq!(seen[0].ranges, [(0, 20_000)], "{client}");
            assert_eq!((seen[0].duplicates, seen[0].reordered, seen[0].damaged), (0, 0, 0), "{client}");
        }
    }
}

#[tokio::test]
async fn streams_report_exact_counts() {
    let server = keeping(None);
    let mut produce = assignment(Driver::Stream, Role::Producer, &server, StopWhen::Records(20_000));
    (produce.verify, produce.properties) = (Verification::Off, [("acks".to_owned(), "1".to_owned())].into());
    let (client, produced) = run(&produce).await;
    assert!(client.ends_with(" streams"), "{client}");
    assert!(produced.measured.records >= 20_000, "{produced:?}");
    // Stopped like by Ctrl-C: messages in flight were delivered and counted.
    assert_eq!(server.counts().records, produced.acknowledged, "{produced:?}");
    assert_eq!(produced.measured.bytes, produced.measured.records * 128, "{produced:?}");
    let mut consume = assignment(Driver::Stream, Role::Consumer, &server, StopWhen::Records(20_000));
    consume.verify = Verification::Off;
    let (_, consumed) = run(&consume).await;
    assert!(consumed.acknowledged >= 20_000, "{consumed:?}");
    let mut direct = assignment(Driver::Stream, Role::Producer, &server, StopWhen::Seconds(0.5));
    (direct.verify, direct.bootstrap, direct.topics) = (Verification::Off, Vec::new(), Vec::new());
    let (_, carried) = run(&direct).await;
    assert!(carried.measured.records > 20_000, "{carried:?}");
}

#[tokio::test]
async fn librdkafkas_stamps_are_verified() {
    if !has(Driver::Librdkafka) {
        return;
    }
    let server = keeping(None);
    let produced =
        run(&assignment(Driver::Librdkafka, Role::Producer, &server, StopWhen::Records(20_000))).await.1;
    let found = evidence(&server, produced).await;
    assert_eq!((found.acknowledged, found.in_log), (20_000, 20_000));
    assert_eq!(found.check.map(|check| (check.read, check.lost, check.damaged)), Some((20_000, 0, 0)));
}

#[tokio::test]
async fn acknowledged_records_that_are_lost_are_found_out() {
    for hidden in [false, true] {
        let server = keeping(Some(Loss { every_nth_batch: 10, hidden }));
        let produced =
            run(&assignment(Driver::Thalweg, Role::Producer, &server, StopWhen::Records(20_000))).await.1;
        let lost = server.counts().lost_records;
        assert!(lost > 0 && produced.acknowledged == 20_000, "{lost} {produced:?}");
        let found = evidence(&server, produced).await;
        // If the end offsets hide losses, only reading back finds them.
        assert_eq!(found.in_log, 20_000 - if hidden { 0 } else { lost }, "hidden={hidden}");
        assert_eq!(found.check.map(|check| check.lost), Some(lost), "hidden={hidden}");
        assert!(!found.faults.is_empty(), "hidden={hidden}");
    }
}

#[tokio::test]
async fn librdkafka_measures_a_known_service_time() {
    if !has(Driver::Librdkafka) {
        return;
    }
    let server =
        serve(Settings { service_time: ServiceTime::Fixed { us: 100_000.0 }, ..Settings::default() });
    let mut produce = assignment(Driver::Librdkafka, Role::Producer, &server, StopWhen::Seconds(2.0));
    produce.records_per_s = Some(50.0);
    produce.clients = 10;
    produce.threads = 2;
    produce.properties =
        [("linger.ms", "0"), ("acks", "1")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let report = run(&produce).await.1;
    let latency = report.acknowledge_latency.expect("latencies");
    assert_eq!(latency.count, 100);
    assert!((100_000..150_000).contains(&latency.p50_us), "{} us", latency.p50_us);
}

/// A worker of another build, or started by hand: the command line refuses the driver before this.
#[tokio::test]
async fn a_worker_names_the_driver_that_it_was_built_without() {
    if Driver::Librdkafka.check().is_ok() {
        return;
    }
    let server = serve(Settings::default());
    let produce = assignment(Driver::Librdkafka, Role::Producer, &server, StopWhen::Records(10));
    let binary = Path::new(env!("CARGO_BIN_EXE_thalweg"));
    let mut worker = Handle::spawn("worker", binary, &produce).expect("started");
    let error = worker.ready().await.expect_err("refused").to_string();
    assert!(error.contains("without the driver librdkafka"), "{error}");
}

#[tokio::test]
async fn unsupported_options_of_kafkas_tools_are_refused_by_name() {
    if !has(Driver::Java) {
        return;
    }
    let server = serve(Settings::default());
    let mut produce = assignment(Driver::Java, Role::Producer, &server, StopWhen::Records(10));
    produce.verify = Verification::Whole;
    let binary = Path::new(env!("CARGO_BIN_EXE_thalweg"));
    let mut worker = Handle::spawn("worker", binary, &produce).expect("started");
    let error = worker.ready().await.expect_err("refused").to_string();
    assert!(error.contains("verify = \"whole\": Kafka's ProducerPerformance cannot do that"), "{error}");
}
