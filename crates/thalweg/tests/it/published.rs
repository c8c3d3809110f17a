//! The command lines that five published reports print (`docs/reports.md`), typed behind the name of the
//! binary: each runs, or is refused with the line that works, which then runs.
//!
//! Counts of a million and more are 2,000 here, and three replicas are one, because the lines run on
//! one broker of a debug build. Hosts are the broker's. Lines for Apache Pulsar are in `lab_pulsar`, those of
//! librdkafka and of Kafka's own tools in `compat/`.

use std::process::Command;

use super::binary::{run, thalweg};
use super::node::Node;

/// Records instead of a published count.
const RECORDS: &str = "2000";

/// Lines of perf tools that run as they are printed, by report.
const RUNS: [&str; 14] = [
    // IBM Event Streams.
    "kafka-producer-perf-test.sh --topic t --num-records 60000000 --record-size 128 --throughput -1 \
     --producer-props acks=all bootstrap.servers=HOST:9092",
    "kafka-producer-perf-test.sh --topic t --num-records 1000000 --record-size 102400 --throughput -1 \
     --producer-props acks=1 bootstrap.servers=HOST:9092",
    "kafka-consumer-perf-test.sh --broker-list HOST:9092 --messages 1000000 --topic t --group readers",
    // Apache Kafka on IBM zSystems: LinkedIn's lines, adjusted to the version.
    "bin/kafka-run-class.sh org.apache.kafka.clients.tools.ProducerPerformance t 50000000 100 -1 acks=1 \
     bootstrap.servers=HOST:9092 buffer.memory=67108864 batch.size=65536",
    "bin/kafka-producer-perf-test.sh --topic t --num-records 50000000 --record-size 100 --throughput -1 \
     --producer-props acks=all bootstrap.servers=HOST:9092 buffer.memory=67108864 batch.size=65536 linger.ms=5",
    "bin/kafka-run-class.sh kafka.tools.EndToEndLatency HOST:9092 t 100 1 100",
    // Spring XD Benchmarks.
    "bin/kafka-run-class.sh org.apache.kafka.clients.tools.ProducerPerformance t 300000000 1000 -1 acks=1 \
     bootstrap.servers=HOST:9092 batch.size=128000",
    // Aiven: batches of 10,000 messages or 1,000,000 bytes.
    "kafka-producer-perf-test.sh --topic t --num-records 10000000 --record-size 512 --throughput -1 \
     --producer-props acks=1 bootstrap.servers=HOST:9092 batch.num.messages=10000 batch.size=1000000",
    // Queue performance.
    "kafka-producer-perf-test.sh --topic t --num-records 1000000 --record-size 1000 --throughput -1 \
     --producer-props acks=1 bootstrap.servers=HOST:9092 buffer.memory=67108864 batch.size=8196",
    "kafka-producer-perf-test.sh --topic t --num-records 2000000 --record-size 500 --throughput -1 \
     --producer-props acks=1 bootstrap.servers=HOST:9092 buffer.memory=67108864 batch.size=8196",
    "kafka-consumer-perf-test.sh --broker-list HOST:9092 --messages 1000000 --topic t --threads 1",
    "kafka-consumer-perf-test.sh --broker-list HOST:9092 --messages 1000000 --topic t --threads 2",
    "kafka-consumer-perf-test.sh --broker-list HOST:9092 --messages 1000000 --topic t --threads 10",
    "kafka-consumer-perf-test.sh --broker-list HOST:9092 --messages 1000000 --topic t --threads 1 --list",
];

/// Lines of ZooKeeper's time, which are refused with the line of today.
const REFUSED: [&str; 3] = [
    "bin/kafka-topics.sh --zookeeper HOST:2181 --create --topic xd --partitions 6 --replication-factor 3",
    "kafka-topics.sh --zookeeper HOST:2181 --describe --topic t",
    "bin/kafka-consumer-perf-test.sh --zookeeper HOST:2181 --messages 300000000 --topic t --threads 1",
];

/// The words of a line on this broker.
fn words(line: &str, broker: &str) -> String {
    let words = line.split_whitespace().map(|word| match word.parse::<u64>() {
        Ok(count) if count >= 1_000_000 => RECORDS.to_owned(),
        _ => word.replace("HOST:9092", broker).replace("HOST:2181", "zookeeper:2181"),
    });
    words.collect::<Vec<_>>().join(" ").replace("--replication-factor 3", "--replication-factor 1")
}

#[test]
fn published_lines_of_kafkas_tools_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &["group.initial.rebalance.delay.ms=0"]);
    let at = |line: &str| run(thalweg(line).env("THALWEG_BOOTSTRAP_SERVER", &node.address));
    assert_eq!(at("topic create t --partitions 6").0, Some(0));
    for line in RUNS {
        let (code, out, error) = at(&words(line, &node.address));
        assert_eq!(code, Some(0), "{line}: {error}");
        let wanted = match () {
            () if line.contains("Latency") => "Avg latency: ",
            () if line.contains("consumer") => "data.consumed.in.nMsg",
            () => "2000 records sent",
        };
        assert!(out.contains(wanted), "{line}: {out}");
    }
}

#[test]
fn published_lines_of_zookeepers_time_are_refused_with_the_line_that_works() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path(), &["group.initial.rebalance.delay.ms=0"]);
    let at = |line: &str| run(thalweg(line).env("THALWEG_BOOTSTRAP_SERVER", &node.address));
    assert_eq!(at("topic create t --partitions 6").0, Some(0));
    let produced = "producer-perf-test t 2000 100 -1 acks=1 bootstrap.servers=HOST:9092";
    assert_eq!(at(&words(produced, &node.address)).0, Some(0));
    for line in REFUSED {
        let (code, _, error) = at(&words(line, &node.address));
        assert_eq!(code, Some(2), "{line}: {error}");
        assert!(error.contains("there is no ZooKeeper"), "{line}: {error}");
        let works = error.lines().find_map(|line| line.split_once("use: thalweg "));
        let (_, works) = works.unwrap_or_else(|| panic!("{line}: {error}"));
        let (code, _, error) = at(&words(works, &node.address));
        assert_eq!(code, Some(0), "{works}: {error}");
    }
}

#[test]
fn published_streams_are_created_and_deployed() {
    let dir = tempfile::tempdir().expect("a directory");
    let hosts = Node::start(&dir.path().join("hosts"), &["streams.enabled=true"]);
    let refuses = Node::start(&dir.path().join("refuses"), &[]);
    let definition = "load-generator --messageCount=500000000 --messageSize=1000 | throughput";
    let typed = |node: &Node, line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{} {line}", env!("CARGO_BIN_EXE_thalweg"))]);
        run(shell.env("THALWEG_SERVER", format!("http://{}", node.http)))
    };
    let create = format!("stream create directBindingTest --definition \"{definition}\"");
    super::binary::until("the streams are known", || typed(&hosts, "stream list").0 == Some(0));
    for line in [
        create.as_str(),
        "stream deploy directBindingTest --properties module.*.count=0",
        "stream undeploy directBindingTest",
        "stream destroy directBindingTest",
    ] {
        let (code, _, error) = typed(&hosts, line);
        assert_eq!(code, Some(0), "{line}: {error}");
    }
    let (code, _, error) = typed(&refuses, &create);
    assert_ne!(code, Some(0));
    assert!(error.contains("streams.enabled"), "{error}");
}

/// The server.properties of the comparison of queues, as far as its lines are refused.
#[test]
fn a_published_file_of_settings_is_refused_line_by_line_and_then_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("server.properties");
    let data = dir.path().join("data");
    let serve = |lines: &[&str]| {
        let usual = [
            "broker.id=1",
            "listeners=PLAINTEXT://127.0.0.1:0",
            "num.network.threads=3",
            "num.io.threads=8",
            "socket.send.buffer.bytes=102400",
            "socket.receive.buffer.bytes=102400",
            "socket.request.max.bytes=104857600",
            "num.partitions=1",
            "num.recovery.threads.per.data.dir=1",
            "offsets.topic.replication.factor=1",
            "log.retention.hours=168",
            "log.segment.bytes=1073741824",
            "log.retention.check.interval.ms=300000",
        ];
        let logs = format!("log.dirs={}", data.display());
        let text = usual.into_iter().chain([logs.as_str()]).chain(lines.iter().copied());
        std::fs::write(&file, text.collect::<Vec<_>>().join("\n")).expect("written");
        let mut command = thalweg("serve");
        command.arg(&file);
        command
    };
    let comment = "group.initial.rebalance.delay.ms=0 #for quick response";
    let zookeeper = ["zookeeper.connect=kz1:2181,kz2:2181,kz3:2181", "zookeeper.connection.timeout.ms=6000"];
    let (code, _, error) = run(&mut serve(&[comment]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("comment"), "{error}");
    let (code, _, error) = run(&mut serve(&zookeeper));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("process.roles=broker"), "{error}");
    let right = ["process.roles=broker,controller", "node.id=1", "group.initial.rebalance.delay.ms=0"];
    let mut command = serve(&right);
    command.stderr(std::process::Stdio::piped());
    let mut broker = command.spawn().expect("the binary runs");
    let lines = std::io::BufRead::lines(std::io::BufReader::new(broker.stderr.take().expect("a pipe")));
    let listens = lines.map_while(Result::ok).any(|line| line.contains(" listens on "));
    let _ = broker.kill();
    let _ = broker.wait();
    assert!(listens, "it starts");
}
