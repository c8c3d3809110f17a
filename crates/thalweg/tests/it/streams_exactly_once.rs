//! Exactly-once streams as processes that are killed, started and stopped, and whose broker is killed: every
//! input record is in the output once, in partition order, as seen by read_committed readers of our own
//! client and librdkafka. And at-least-once streams, which repeat nothing as long as no process is killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use thalweg_ports::free_port;

use super::binary::{self, RunningProcess, until};
use super::node::Node;
use super::streams_kafka::{Broker, numbers, stream};

/// A broker with short session and transaction timeouts.
fn broker() -> Broker {
    Broker::start_with(&[
        "group.min.session.timeout.ms=1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    ])
}

/// The committed records of a topic, by partition, as read by one of the clients.
fn committed(address: &str, topic: &str, by_librdkafka: bool) -> Vec<Vec<u32>> {
    let of_partition = |partition: u32| {
        let mut command = match by_librdkafka {
            true => stream(
                address,
                &format!("kafka --topics={topic} --partitions={partition} --untilEnd=true | stdout"),
            ),
            false => consume(address, topic, &format!("--partition {partition}")),
        };
        let (code, out, error) = binary::run(&mut command);
        assert_eq!(code, Some(0), "{error}");
        numbers(&out)
    };
    (0..3).map(of_partition).collect()
}

fn consume(address: &str, topic: &str, options: &str) -> Command {
    binary::thalweg(&format!(
        "consume {topic} --from-beginning --until-end --read-committed --bootstrap-server {address} {options}"
    ))
}

fn count(address: &str, topic: &str) -> usize {
    let (code, out, error) = binary::run(&mut consume(address, topic, ""));
    assert_eq!(code, Some(0), "{error}");
    out.lines().count()
}

/// Checks that every record is present once, in partition order.
fn audit(address: &str, topic: &str, expected: u32) {
    for by_librdkafka in [false, true] {
        let mut all = Vec::new();
        for partition in committed(address, topic, by_librdkafka) {
            assert!(partition.is_sorted(), "records of a partition came in another order: {partition:?}");
            all.extend(partition);
        }
        all.sort_unstable();
        let repeated: Vec<u32> = all.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
        let missing: Vec<u32> = (0..expected).filter(|number| all.binary_search(number).is_err()).collect();
        assert!(repeated.is_empty() && missing.is_empty(), "repeated {repeated:?}, missing {missing:?}");
        assert_eq!(all.len(), expected as usize);
    }
}

/// Waits until a topic has this many committed records.
fn until_moved(address: &str, topic: &str, records: usize) {
    until(&format!("{records} records in {topic}"), || count(address, topic) >= records);
}

/// A stream from `in` to `out`, slow enough to be interrupted.
fn slow(address: &str, rate: u32) -> Command {
    let mut command = stream(
        address,
        &format!(
            "kafka --topics=in --group=g --sessionTimeout=3s | filter --expression='int(text) >= 0' | rate-limit --rate={rate} \
         | transform --expression=text | kafka --topic=out"
        ),
    );
    command.args(["--guarantee", "exactly-once"]);
    command
}

fn stop(mut stream: RunningProcess) {
    stream.interrupt();
    assert_eq!(stream.exit_code(), Some(0));
}

#[test]
fn a_stream_that_is_killed_again_and_again_moves_every_record_once() {
    let broker = broker();
    let (records, kills) = (12_000, 8);
    broker.produce(0..records);
    for kill in 1..=kills {
        let stream = RunningProcess::start(&mut slow(broker.address(), 2000));
        until_moved(broker.address(), "out", (records as usize / (kills + 2)) * kill);
        stream.signal(Signal::KILL);
    }
    let last = RunningProcess::start(&mut slow(broker.address(), 20_000));
    until_moved(broker.address(), "out", records as usize);
    stop(last);
    audit(broker.address(), "out", records);
}

#[test]
fn a_stream_whose_broker_is_killed_again_and_again_moves_every_record_once() {
    let mut broker = broker();
    let (records, kills) = (12_000, 6);
    broker.produce(0..records);
    let stream = RunningProcess::start(&mut slow(broker.address(), 2000));
    for kill in 1..=kills {
        until_moved(broker.address(), "out", (records as usize / (kills + 2)) * kill);
        broker.broker.kill_and_restart();
    }
    until_moved(broker.address(), "out", records as usize);
    stop(stream);
    audit(broker.address(), "out", records);
}

/// The group's coordinator is killed, disappears from the metadata, and returns. librdkafka waits forever for
/// one that was gone, so the stream abandons the waiting producer.
#[test]
fn a_stream_moves_every_record_once_when_its_coordinator_leaves_and_returns() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (controller, second_port) = (free_port(), free_port());
    let node = |id: i32, properties: &[&str]| {
        let (id_is, dir) = (format!("node.id={id}"), dir.path().join(id.to_string()));
        let usual = [
            id_is.as_str(),
            "group.initial.rebalance.delay.ms=0",
            "group.min.session.timeout.ms=1000",
            "broker.session.timeout.ms=1000",
            "broker.heartbeat.interval.ms=200",
        ];
        Node::start(&dir, &[&usual, properties].concat())
    };
    let first = node(
        1,
        &[
            "process.roles=broker,controller",
            &format!("listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller}"),
            "controller.listener.names=CONTROLLER",
        ],
    );
    let start_second = || {
        node(
            2,
            &[
                "process.roles=broker",
                &format!("listeners=PLAINTEXT://127.0.0.1:{second_port}"),
                &format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}"),
            ],
        )
    };
    let mut second = start_second();
    let address = first.address.as_str();
    for (topic, replicas) in
        [("in", "1,1,1"), ("out", "1,1,1"), ("__transaction_state", "1"), ("__consumer_offsets", "2")]
    {
        let create = format!("topic create {topic} --replica-assignment {replicas} -b {address}");
        let (code, _, error) = binary::run(&mut binary::thalweg(&create));
        assert_eq!(code, Some(0), "{error}");
    }
    let produce = |numbers: std::ops::Range<u32>| {
        let lines: String = numbers.map(|number| format!("{number}\n")).collect();
        let text = "stdin | transform --expression=text --key=text | kafka --topic=in";
        let (code, _, error) = binary::run_with_input(&mut stream(address, text), lines.as_bytes());
        assert_eq!(code, Some(0), "{error}");
    };
    produce(0..1000);
    let mut moving =
        RunningProcess(slow(address, 500).stderr(Stdio::piped()).spawn().expect("the binary runs"));
    let stderr = BufReader::new(moving.0.stderr.take().expect("it is a pipe"));
    let is_given_up = Arc::new(AtomicBool::new(false));
    let given_up = is_given_up.clone();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            given_up.fetch_or(line.contains("opening another producer"), Ordering::Relaxed);
        }
    });
    until_moved(address, "out", 1000);
    second.end(Signal::KILL);
    // These cannot be committed.
    produce(1000..2000);
    until("the producer to be given up", || is_given_up.load(Ordering::Relaxed));
    let _second = start_second();
    until_moved(address, "out", 2000);
    stop(moving);
    audit(address, "out", 2000);
}

/// With topics between the stages, each hop is exactly once, while two processes, one of them with two
/// instances of a stage, are stopped, killed and restarted.
#[test]
fn instances_that_come_and_go_under_load_move_every_record_once() {
    let broker = broker();
    let records = 12_000;
    broker.produce(0..records);
    let process = |instance: &str, rate: u32| {
        let mut command = binary::thalweg("stream run --name s --transport kafka --transport-partitions 3");
        command.args(["--guarantee", "exactly-once", "--instance", instance]);
        command.args(["--properties", "module.work.count=2", "--bootstrap-server", &broker.broker.address]);
        let bootstrap = &broker.broker.address;
        command.arg(format!(
            "kafka --bootstrap={bootstrap} --topics=in --group=g --sessionTimeout=3s | pace: rate-limit --rate={rate} \
             | work: transform --expression=text | kafka --bootstrap={bootstrap} --topic=out"
        ));
        RunningProcess::start(&mut command)
    };
    let first = process("left", 1500);
    until_moved(broker.address(), "out", 1000);
    let second = process("right", 1500);
    until_moved(broker.address(), "out", 3000);
    stop(first);
    let first = process("left", 1500);
    until_moved(broker.address(), "out", 6000);
    second.signal(Signal::KILL);
    let second = process("right", 20_000);
    until_moved(broker.address(), "out", records as usize);
    stop(first);
    stop(second);
    audit(broker.address(), "out", records);
}

/// The second, but where its start takes the first longer than a transaction may last: then the first takes
/// the name back.
#[test]
fn of_two_processes_with_one_name_one_is_shut_out() {
    let broker = broker();
    broker.produce(0..1000);
    let start = |rate: u32| {
        let mut command = slow(broker.address(), rate);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        RunningProcess(command.spawn().expect("the binary runs"))
    };
    let mut both = vec![start(100)];
    until_moved(broker.address(), "out", 100);
    both.push(start(20_000));
    let mut has_ended =
        |stream: &mut RunningProcess| stream.0.try_wait().expect("ours to wait for").is_some();
    let mut ended = None;
    until("a process to be shut out", || {
        ended = both.iter_mut().position(&mut has_ended);
        ended.is_some()
    });
    let mut shut_out = both.remove(ended.expect("one has ended"));
    let mut error = String::new();
    shut_out.0.stderr.take().expect("it is a pipe").read_to_string(&mut error).expect("text");
    assert_eq!(shut_out.exit_code(), Some(1), "{error}");
    assert!(
        error.contains("another process writes under the transactional id g-stream-kafka-2-0.0"),
        "{error}"
    );
    assert!(error.contains("--instance=NAME"), "{error}");
    until_moved(broker.address(), "out", 1000);
    both.into_iter().for_each(stop);
    audit(broker.address(), "out", 1000);
}

#[test]
fn unsupported_exactly_once_streams_are_refused_before_they_run() {
    for verb in ["check", "run"] {
        for (text, options, part) in [
            ("time | kafka --topic=b", "", "its source is time"),
            ("kafka --topics=a --group=g | file --path=x", "", "use `kafka --topic=...`"),
            ("a = kafka --topics=a --group=g | topic:t\ntopic:t > kafka --topic=b", "", "--transport=kafka"),
            (
                "a = kafka --topics=a --group=g | kafka --topic=b\ntap:stream:a > kafka --topic=c",
                "",
                "a tap in memory sees aborted messages",
            ),
            ("time | kafka --topic=b", "--transport=kafka", "s.time cannot run exactly once"),
            ("kafka --topics=a --group=g | kafka --topic=b", "--on-error=dead-letter:x", "onError=skip"),
        ] {
            let mut command =
                binary::thalweg(&format!("stream {verb} --name s --guarantee exactly-once {options}"));
            let (code, _, error) = binary::run(command.arg(text));
            assert_eq!(code, Some(2), "{text}: {error}");
            assert!(error.contains("cannot run exactly once") && error.contains(part), "{text}: {error}");
        }
    }
    let sound = "a = kafka --topics=a --group=g | topic:t\ntopic:t > kafka --topic=b";
    let check = "stream check --guarantee exactly-once --transport kafka";
    assert_eq!(binary::run(binary::thalweg(check).arg(sound)).0, Some(0));
}

/// At least once without unnecessary repetition: before partitions are revoked, their messages are delivered
/// and committed.
#[test]
fn instances_that_come_and_go_in_order_repeat_nothing() {
    let broker = broker();
    let records = 60_000;
    broker.produce(0..records);
    let start = |rate: u32| {
        let text = format!(
            "kafka --topics=in --group=g --sessionTimeout=6s | rate-limit --rate={rate} | kafka --topic=out --linger=50ms"
        );
        RunningProcess::start(&mut broker.stream(&text))
    };
    let mut running = vec![start(5000)];
    for step in 1..=4 {
        until_moved(broker.address(), "out", step * 5000);
        running.push(start(5000));
        until_moved(broker.address(), "out", step * 5000 + 2500);
        stop(running.remove(0));
    }
    running.push(start(40_000));
    until_moved(broker.address(), "out", records as usize);
    running.into_iter().for_each(stop);
    let mut seen: Vec<u32> = committed(broker.address(), "out", false).concat();
    seen.sort_unstable();
    let repeats = seen.windows(2).filter(|two| two[0] == two[1]).count();
    assert_eq!((repeats, seen.len()), (0, records as usize));
}
