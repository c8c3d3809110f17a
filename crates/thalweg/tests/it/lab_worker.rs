//! The lab's workers as child processes against a broker of this binary, and the evidence.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thalweg_client::{Cluster, ConnectionOptions};
use thalweg_lab::evidence::{self, Claim, ReadBack, ReplicaObservations, Watch};
use thalweg_lab::result::Evidence;
use thalweg_lab::target::{self, RunningCluster, StartOptions, TargetSpec};
use thalweg_lab::worker::{Assignment, Driver, Event, Handle, HandleError, Interval, Report, Role, StopWhen};
use thalweg_lab::workload::{ClusterSpec, Keys, Payload, RecordSpec, Verification};
use thalweg_wire::request::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::{CreateTopicsRequest, DeleteRecordsRequest};

const SEED: u64 = 42;
/// A worker without output for this long has failed.
const SILENCE: Duration = Duration::from_secs(60);

/// A broker with a topic.
struct Lab {
    running: RunningCluster,
    admin: Cluster,
    brokers: u32,
    _dir: tempfile::TempDir,
}

impl Lab {
    async fn start(partitions: i32, settings: &[(&str, &str)]) -> Lab {
        Lab::start_with(&TargetSpec::Embedded, 1, partitions, settings).await
    }

    /// The broker with this many replicas.
    async fn start_with(
        target: &TargetSpec,
        brokers: u32,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Lab {
        let dir = tempfile::tempdir().expect("a directory");
        let binary = Some(env!("CARGO_BIN_EXE_thalweg").into());
        let options = StartOptions { binary, heap_mb: 256, ..StartOptions::new(dir.path()) };
        let spec = ClusterSpec::plaintext(brokers, BTreeMap::new());
        let running = target::start(target, &spec, &options).await.expect("brokers");
        let admin = Cluster::connect(&running.cluster().bootstrap, &ConnectionOptions::default())
            .await
            .expect("it serves");
        let configs = settings.iter().map(|(name, value)| CreatableTopicConfig {
            name: (*name).to_owned(),
            value: Some((*value).to_owned()),
        });
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: "events".to_owned(),
                num_partitions: partitions,
                replication_factor: i16::try_from(brokers).expect("few"),
                configs: configs.collect(),
                ..CreatableTopic::default()
            }],
            timeout_ms: 20_000,
            ..CreateTopicsRequest::default()
        };
        let answer = admin.send_controller(&request).await.expect("an answer");
        assert_eq!(answer.topics[0].error_code, 0, "{:?}", answer.topics[0].error_message);
        Lab { running, admin, brokers, _dir: dir }
    }

    fn assignment(&self, role: Role, stop: StopWhen) -> Assignment {
        Assignment {
            role,
            driver: Driver::Thalweg,
            bootstrap: self.running.cluster().bootstrap.clone(),
            properties: BTreeMap::new(),
            topics: vec!["events".to_owned()],
            clients: 1,
            first_client: 0,
            threads: 1,
            records: RecordSpec { size_bytes: 128, payload: Payload::Random, keys: None },
            verify: Verification::Whole,
            records_per_s: None,
            stop,
            groups: (role == Role::Consumer).then(|| "readers".to_owned()).into_iter().collect(),
            drains: false,
            all_clients: 1,
            seed: SEED,
        }
    }

    async fn evidence(&self, records: &RecordSpec, producers: &[Report], verify: bool) -> Evidence {
        let watched = ReplicaObservations { in_sync_replicas_min: Some(self.brokers), looks: 1, failures: 0 };
        let claim = Claim {
            cluster: &self.admin,
            topics: &["events".to_owned()],
            replication_factor: u16::try_from(self.brokers).expect("few"),
            producers,
            consumers: &[],
            records,
            seed: SEED,
            keeps_order: true,
            read_back: &match verify {
                true => ReadBack::Whole,
                false => ReadBack::No("nobody asked".to_owned()),
            },
            watched: &watched,
        };
        evidence::collect(claim).await.expect("evidence")
    }

    async fn delete_before(&self, offset: i64) {
        let request = DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: "events".to_owned(),
                partitions: vec![DeleteRecordsPartition { partition_index: 0, offset }],
            }],
            timeout_ms: 10_000,
        };
        let answer = self.admin.send_any(&request).await.expect("an answer");
        assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    }
}

#[expect(clippy::disallowed_methods, reason = "workers use wall-clock times")]
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("before the year 500000")
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("not zero");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

fn spawn(name: &str, assignment: &Assignment) -> Handle {
    Handle::spawn(name, Path::new(env!("CARGO_BIN_EXE_thalweg")), assignment).expect("spawned")
}

async fn next(worker: &mut Handle) -> Result<Event, HandleError> {
    tokio::time::timeout(SILENCE, worker.next_event()).await.expect("a word in time")
}

/// Waits for the report.
async fn done(worker: &mut Handle) -> (Report, Vec<Interval>) {
    let mut intervals = Vec::new();
    loop {
        match next(worker).await.expect("the worker goes on") {
            Event::Interval(interval) => intervals.push(interval),
            Event::Done(report) => return (*report, intervals),
            Event::Ready { .. } | Event::Failed { .. } => panic!("neither is next"),
        }
    }
}

/// Starts it in 50 ms, measures after `warm_up` more, and returns its report.
async fn run(assignment: &Assignment, warm_up: Duration) -> (Report, Vec<Interval>) {
    let mut worker = spawn("worker-0", assignment);
    let (client, children) =
        tokio::time::timeout(SILENCE, worker.ready()).await.expect("in time").expect("ready");
    assert!(client.starts_with("thalweg ") && children.is_empty(), "{client}");
    let at_us = now_us() + 50_000;
    worker.start(at_us, at_us + u64::try_from(warm_up.as_micros()).expect("short")).await;
    done(&mut worker).await
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_produced_is_read_back_and_nothing_is_lost() {
    let lab = Lab::start(4, &[]).await;
    let mut assignment = lab.assignment(Role::Producer, StopWhen::Records(20_000));
    (assignment.clients, assignment.threads, assignment.first_client) = (3, 2, 5);
    let watch = Watch::start(lab.admin.clone(), assignment.topics.clone());
    let (report, intervals) = run(&assignment, Duration::ZERO).await;
    assert_eq!((report.sent, report.acknowledged, report.failed), (20_000, 20_000, 0));
    assert_eq!(intervals.iter().map(|interval| interval.records).sum::<u64>(), 20_000);
    assert_eq!((report.measured.records, report.measured.bytes), (20_000, 20_000 * 128));
    assert!(report.measured.to_us > report.measured.from_us);
    let producers: Vec<u32> = report.unacknowledged.iter().map(|order| order.producer).collect();
    assert_eq!(producers, [5, 6, 7]);
    assert_eq!(report.acknowledge_latency.as_ref().map(|latency| latency.count), Some(20_000));

    let watched = watch.finish().await;
    assert_eq!(watched.in_sync_replicas_min, Some(1), "{watched:?}");
    let evidence = lab.evidence(&assignment.records, &[report], true).await;
    assert_eq!(evidence.faults, [""; 0]);
    assert_eq!((evidence.acknowledged, evidence.in_log), (20_000, 20_000));
    assert!(evidence.bytes_on_disk > 20_000 * 128 && evidence.partitions.len() == 4);
    assert!(evidence.fsync_policy.starts_with("left to the operating system"), "{}", evidence.fsync_policy);
    let check = evidence.check.expect("it was asked for");
    assert_eq!(
        (check.read, check.lost, check.duplicated, check.reordered, check.damaged),
        (20_000, 0, 0, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_missing_are_found_with_and_without_a_check() {
    let lab = Lab::start(1, &[]).await;
    let assignment = lab.assignment(Role::Producer, StopWhen::Records(5000));
    let (report, _) = run(&assignment, Duration::ZERO).await;
    lab.delete_before(700).await;
    let evidence = lab.evidence(&assignment.records, std::slice::from_ref(&report), true).await;
    let check = evidence.check.expect("it was asked for");
    assert_eq!((check.read, check.lost, check.duplicated, check.damaged), (4300, 700, 0, 0));
    let lost = "700 acknowledged records of producer 0 are not in the log, the first of them 0 to 699";
    assert!(evidence.faults.contains(&lost.to_owned()), "{:?}", evidence.faults);
    let unchecked = lab.evidence(&assignment.records, &[report], false).await;
    let missing = "5000 records were acknowledged, but the log has 4300: 700 are missing";
    assert!(unchecked.check.is_none() && unchecked.faults.contains(&missing.to_owned()), "{unchecked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_another_seed_are_damage_and_a_compacted_topic_claims_nothing() {
    let lab = Lab::start(1, &[("cleanup.policy", "compact")]).await;
    let mut assignment = lab.assignment(Role::Producer, StopWhen::Records(100));
    assignment.records.keys = Some(Keys { distinct: 10 });
    assignment.seed = SEED + 1;
    let (report, _) = run(&assignment, Duration::ZERO).await;
    assert_eq!(report.measured.bytes, 100 * (128 + 8), "keys count");
    let evidence = lab.evidence(&assignment.records, &[report], true).await;
    let check = evidence.check.expect("it was asked for");
    assert_eq!((check.damaged, check.lost), (100, 100));
    assert!(evidence.faults.iter().any(|fault| fault.starts_with("Topic events is compacted")));
    assert!(evidence.faults.iter().any(|fault| fault.starts_with("100 records of another run")));
}

#[tokio::test(flavor = "multi_thread")]
async fn consumers_share_compressed_records_produced_concurrently() {
    let lab = Lab::start(4, &[]).await;
    let mut consuming = lab.assignment(Role::Consumer, StopWhen::OnCommand);
    (consuming.clients, consuming.threads) = (2, 1);
    let mut consumer = spawn("consumer-0", &consuming);
    tokio::time::timeout(SILENCE, consumer.ready()).await.expect("in time").expect("ready");
    let mut producing = lab.assignment(Role::Producer, StopWhen::Seconds(2.0));
    producing.records_per_s = Some(4000.0);
    producing.records.payload = Payload::Compressible;
    producing.properties.insert("compression.type".to_owned(), "lz4".to_owned());
    let mut producer = spawn("producer-0", &producing);
    tokio::time::timeout(SILENCE, producer.ready()).await.expect("in time").expect("ready");
    // The verified specification must be that of the sent records: this consumer expects others, and reports
    // it.
    let at_us = now_us() + 100_000;
    consumer.start(at_us, at_us + 1_000_000).await;
    producer.start(at_us, at_us + 1_000_000).await;
    let (produced, _) = done(&mut producer).await;
    let mut seen = 0;
    while seen < produced.sent {
        let Event::Interval(interval) = next(&mut consumer).await.expect("the worker goes on") else {
            panic!("nothing else is next")
        };
        seen += interval.records;
    }
    consumer.stop().await;
    let (consumed, _) = done(&mut consumer).await;
    assert_eq!(produced.failed, 0);
    // Three seconds at 4,000 per second, the first of them warm-up.
    assert!(produced.sent.abs_diff(12_000) <= 1, "{}", produced.sent);
    assert_eq!(consumed.acknowledged, produced.sent);
    let damaged: u64 = consumed.seen.iter().map(|seen| seen.damaged).sum();
    assert_eq!(damaged, produced.sent, "it expected other records");

    let evidence = lab.evidence(&producing.records, &[produced], true).await;
    assert_eq!(evidence.faults, [""; 0]);
    assert_eq!(evidence.check.expect("it was asked for").read, evidence.in_log);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_from_end_to_end_counts_from_the_intended_time() {
    let lab = Lab::start(2, &[]).await;
    let mut consuming = lab.assignment(Role::Consumer, StopWhen::Seconds(1.5));
    consuming.groups = vec!["timed".to_owned()];
    let mut consumer = spawn("consumer-0", &consuming);
    tokio::time::timeout(SILENCE, consumer.ready()).await.expect("in time").expect("ready");
    let mut producing = lab.assignment(Role::Producer, StopWhen::Seconds(1.0));
    producing.records_per_s = Some(500.0);
    producing.properties.insert("linger.ms".to_owned(), "0".to_owned());
    let mut producer = spawn("producer-0", &producing);
    tokio::time::timeout(SILENCE, producer.ready()).await.expect("in time").expect("ready");
    let at_us = now_us() + 100_000;
    consumer.start(at_us, at_us + 500_000).await;
    producer.start(at_us, at_us + 500_000).await;
    let (produced, _) = done(&mut producer).await;
    let (consumed, _) = done(&mut consumer).await;
    let acknowledge = produced.acknowledge_latency.expect("some");
    let end_to_end = consumed.end_to_end_latency.expect("some");
    assert!(acknowledge.count.abs_diff(500) <= 1, "{}", acknowledge.count);
    assert!(end_to_end.count.abs_diff(500) <= 1, "{}", end_to_end.count);
    // A debug build on a busy machine: only errors of orders of magnitude fail.
    assert!((10..500_000).contains(&acknowledge.p50_us), "{acknowledge:?}");
    assert!((10..500_000).contains(&end_to_end.p50_us), "{end_to_end:?}");
    let seen = &consumed.seen[0];
    assert_eq!((seen.ranges.len(), seen.duplicates, seen.reordered, seen.damaged), (1, 0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_reports() {
    let lab = Lab::start(1, &[]).await;
    let mut assignment = lab.assignment(Role::Producer, StopWhen::OnCommand);
    assignment.verify = Verification::Off;
    let mut worker = spawn("producer-0", &assignment);
    worker.ready().await.expect("ready");
    let at_us = now_us();
    worker.start(at_us, at_us).await;
    let Event::Interval(first) = next(&mut worker).await.expect("an interval") else { panic!("an interval") };
    assert!(first.records > 0 && first.p99_us.is_some(), "{first:?}");
    worker.stop().await;
    let (report, _) = done(&mut worker).await;
    assert_eq!((report.acknowledged, report.failed), (report.sent, 0));
    let evidence = lab.evidence(&assignment.records, &[report], false).await;
    assert_eq!(evidence.faults, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_consumed_from_its_beginning_and_only_after_the_start() {
    let lab = Lab::start(3, &[]).await;
    let producing = lab.assignment(Role::Producer, StopWhen::Records(30_000));
    run(&producing, Duration::ZERO).await;
    let mut consuming = lab.assignment(Role::Consumer, StopWhen::Records(30_000));
    (consuming.clients, consuming.threads) = (3, 3);
    let (report, _) = run(&consuming, Duration::ZERO).await;
    assert_eq!((report.acknowledged, report.measured.records, report.failed), (30_000, 30_000, 0));
    assert_eq!(report.measured.bytes, 30_000 * 128);
    assert_eq!(report.end_to_end_latency, None, "a backlog has no latency of this run");
    let [seen] = &report.seen[..] else { panic!("one producer: {:?}", report.seen) };
    assert_eq!(
        (&seen.ranges[..], seen.duplicates, seen.reordered, seen.damaged),
        (&[(0, 30_000)][..], 0, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_assignments_are_refused_first() {
    let lab = Lab::start(1, &[]).await;
    let good = lab.assignment(Role::Producer, StopWhen::Records(1));
    let with = |change: fn(&mut Assignment)| {
        let mut assignment = good.clone();
        change(&mut assignment);
        assignment
    };
    let cases = [
        (with(|a| a.records.size_bytes = 20), "records.size_bytes = 20 is too small to verify"),
        (
            with(|a| drop(a.properties.insert("security.protocol".to_owned(), "SASL_SSL".to_owned()))),
            "sasl.mechanism=GSSAPI is invalid: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
        ),
        (with(|a| drop(a.properties.insert("acks".to_owned(), "2".to_owned()))), "acks=2 is invalid"),
        (
            with(|a| a.records.payload = Payload::File("/no/such".to_owned())),
            "Cannot read the payload file /no/such",
        ),
        (with(|a| a.topics.clear()), "topics is empty"),
        (with(|a| a.role = Role::Consumer), "group is not set"),
        (with(|a| a.bootstrap = vec!["127.0.0.1:1".to_owned()]), "Cannot connect to 127.0.0.1:1"),
    ];
    for (assignment, expected) in cases {
        let mut worker = spawn("producer-3", &assignment);
        let error =
            tokio::time::timeout(SILENCE, worker.ready()).await.expect("in time").expect_err(expected);
        let text = error.to_string();
        assert!(text.starts_with("The worker producer-3 failed: ") && text.contains(expected), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_apache_kafka_agree_and_a_missing_one_is_reported() {
    if std::env::var_os("KAFKA_CLASSPATH").is_none() {
        let how = "export KAFKA_CLASSPATH=\"$(compat/kafka-jars/fetch)\", with Java 17 or later";
        writeln!(std::io::stderr(), "SKIPPED: evidence of three brokers of Apache Kafka: {how}")
            .expect("stderr takes a line");
        return;
    }
    let lab = Lab::start_with(&TargetSpec::ApacheKafka, 3, 3, &[("min.insync.replicas", "1")]).await;
    let mut assignment = lab.assignment(Role::Producer, StopWhen::Records(30_000));
    assignment.properties.insert("acks".to_owned(), "1".to_owned());
    // Without idempotence, a batch refused because the topic is unknown yet would end up after those in
    // flight.
    assignment.properties.insert("max.in.flight.requests.per.connection".to_owned(), "1".to_owned());
    let watch = Watch::start(lab.admin.clone(), assignment.topics.clone());
    let (report, _) = run(&assignment, Duration::ZERO).await;
    // It checks once per second, and the first check may precede the topic on all brokers.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let watched = watch.finish().await;
    assert_eq!(watched.in_sync_replicas_min, Some(3), "{watched:?}");
    let evidence = lab.evidence(&assignment.records, std::slice::from_ref(&report), true).await;
    assert_eq!(evidence.faults, [""; 0]);
    assert_eq!((evidence.in_log, evidence.check.as_ref().map(|check| check.read)), (30_000, Some(30_000)));
    for partition in &evidence.partitions {
        assert_eq!(partition.replicas.len(), 3);
        assert!(partition.replicas.iter().all(|replica| replica.end_offset == partition.end_offset));
    }

    let watch = Watch::start(lab.admin.clone(), assignment.topics.clone());
    let (_, pid) = lab.running.cluster().processes[2];
    kill(pid);
    let fewer = async {
        while watch.latest() != Some(2) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), fewer).await.expect("the controller notices");
    assert_eq!(watch.finish().await.in_sync_replicas_min, Some(2));
    let evidence = lab.evidence(&assignment.records, &[report], true).await;
    assert_eq!(evidence.check.as_ref().map(|check| (check.read, check.lost)), Some((30_000, 0)));
    assert!(evidence.faults.iter().any(|fault| fault.contains("an unknown end offset")), "{evidence:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_ends_with_the_lab() {
    let lab = Lab::start(1, &[]).await;
    let mut worker = spawn("producer-0", &lab.assignment(Role::Producer, StopWhen::OnCommand));
    worker.ready().await.expect("ready");
    let pid = worker.pid();
    let proc = format!("/proc/{pid}/stat");
    assert!(Path::new(&proc).exists());
    drop(worker);
    let gone = async {
        // A zombie has exited, too.
        while std::fs::read_to_string(&proc).is_ok_and(|stat| !stat.contains(") Z ")) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("it ends");

    let mut by_hand = std::process::Command::new(env!("CARGO_BIN_EXE_thalweg"));
    let by_hand =
        by_hand.args(["lab", "worker"]).stdin(std::process::Stdio::null()).output().expect("it ran");
    assert!(!by_hand.status.success());
    let text = String::from_utf8_lossy(&by_hand.stderr).into_owned();
    assert!(text.contains("workers are started by the lab"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_is_reported_by_name() {
    let lab = Lab::start(1, &[]).await;
    let mut worker = spawn("producer-9", &lab.assignment(Role::Producer, StopWhen::OnCommand));
    worker.ready().await.expect("ready");
    kill(worker.pid());
    let error = next(&mut worker).await.expect_err("it is gone");
    assert_eq!(error.to_string(), "The worker producer-9 exited unexpectedly, by signal 9");
}
