//! Streams from and to topics of a broker: written records are read, offsets move only with acknowledged
//! messages, and a killed stream resumes at the acknowledged offset.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use thalweg_ports::free_port;

use super::binary::{self, RunningProcess, until};
use super::node;

fn run(command: &mut Command, input: &[u8]) -> (Option<i32>, String, String) {
    binary::run_with_input(command, input)
}

/// A broker with the topics `in` and `out`, and a directory.
pub struct Broker {
    pub broker: binary::Broker,
    pub dir: tempfile::TempDir,
}

impl Broker {
    pub fn start() -> Broker {
        Broker::start_with(&[])
    }

    /// The same, with these settings.
    pub fn start_with(settings: &[&str]) -> Broker {
        let broker = Broker {
            broker: binary::Broker::start_with(settings),
            dir: tempfile::tempdir().expect("a temporary directory"),
        };
        for topic in ["in", "out"] {
            let create =
                format!("topic create {topic} --partitions 3 --bootstrap-server {}", broker.broker.address);
            let (code, _, error) = run(&mut binary::thalweg(&create), b"");
            assert_eq!(code, Some(0), "{error}");
        }
        broker
    }

    pub fn address(&self) -> &str {
        &self.broker.address
    }

    /// A stream whose `kafka` stages use this broker.
    pub fn stream(&self, text: &str) -> Command {
        stream(self.address(), text)
    }

    /// Writes numbers to `in`, each with itself as key.
    pub fn produce(&self, numbers: std::ops::Range<u32>) {
        let lines: String = numbers.map(|number| format!("{number}\n")).collect();
        let text = "stdin | transform --expression=text --key=text | kafka --topic=in";
        let (code, _, error) = run(&mut self.stream(text), lines.as_bytes());
        assert_eq!(code, Some(0), "{error}");
    }
}

/// Numbers, one per line.
pub fn numbers(lines: &str) -> Vec<u32> {
    lines.lines().map(|line| line.parse().expect("a number")).collect()
}

/// A stream whose `kafka` stages use the broker at an address.
pub fn stream(address: &str, text: &str) -> Command {
    let mut command = binary::thalweg("stream run");
    command.arg(text.replace("kafka ", &format!("kafka --bootstrap={address} ")));
    command
}

/// The contents of a file; empty if it is missing.
pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_message_that_is_too_large_for_the_topic_is_a_bad_message() {
    let broker = Broker::start();
    let create = format!(
        "topic create small --config max.message.bytes=2000 --bootstrap-server {}",
        broker.broker.address
    );
    let (code, _, error) = run(&mut binary::thalweg(&create), b"");
    assert_eq!(code, Some(0), "{error}");
    let large = "x".repeat(3000);
    let lines: String = (0..50).map(|number| format!("{number}\n")).collect();
    let lines = format!("{lines}{large}\n{lines}");
    // The topic refuses one message, and the settings of the producer another.
    let settings = broker.dir.path().join("client.properties");
    std::fs::write(&settings, "max.request.size=2500\n").expect("it can be written");
    for more in [String::new(), format!("--properties={}", settings.display())] {
        let text = format!("stdin | kafka --topic=small {more}");
        let (code, _, error) = run(&mut broker.stream(&text), lines.as_bytes());
        assert_eq!(code, Some(1), "{error}");
        let letters = broker.dir.path().join("letters");
        let _ = std::fs::remove_file(&letters);
        let policy = format!("dead-letter:{}", letters.display());
        let (code, _, error) = run(broker.stream(&text).args(["--on-error", &policy]), lines.as_bytes());
        assert_eq!(code, Some(0), "{error}");
        let letters = self::text(&letters);
        let letter: serde_json::Value = serde_json::from_str(&letters).expect("one line of JSON");
        assert_eq!((letter["value"].as_str(), letter["sequence"].as_u64()), (Some(&*large), Some(50)));
        assert_eq!(letter["stage"], "kafka");
    }
    let (code, out, error) = run(&mut broker.stream("kafka --topics=small --untilEnd=true | stdout"), b"");
    assert_eq!(code, Some(0), "{error}");
    assert!(numbers(&out).len() >= 200, "the others are stored: {}", out.len());
}

#[test]
fn only_the_messages_of_a_batch_that_are_at_fault_are_bad() {
    let broker = Broker::start();
    let create =
        format!("topic create state --config cleanup.policy=compact --bootstrap-server {}", broker.address());
    let (code, _, error) = run(&mut binary::thalweg(&create), b"");
    assert_eq!(code, Some(0), "{error}");
    let letters = broker.dir.path().join("letters");
    let text = "stdin | transform --expression=text --key='text.startsWith(\"x\") ? null : text' \
                | kafka --topic=state --linger=300ms";
    let policy = format!("dead-letter:{}", letters.display());
    // A compacted topic refuses messages without a key, and the whole batch with them.
    let (code, _, error) = run(broker.stream(text).args(["--on-error", &policy]), b"1\nx1\n2\nx2\nx3\n3\n");
    assert_eq!(code, Some(0), "{error}");
    let letters = self::text(&letters);
    let bad = letters.lines().map(|line| {
        let letter: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
        letter["value"].as_str().expect("a text").to_owned()
    });
    assert_eq!(bad.collect::<Vec<_>>(), ["x1", "x2", "x3"]);
    let (code, out, error) = run(&mut broker.stream("kafka --topics=state --untilEnd=true | stdout"), b"");
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(numbers(&out), [1, 2, 3]);
    // Without a policy, the first one fails the stream.
    let (code, _, error) = run(&mut broker.stream(text), b"x1\nx2\n");
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("INVALID_RECORD"), "{error}");
}

#[test]
fn a_sender_is_answered_when_the_topic_has_the_dead_letter() {
    let broker = Broker::start();
    let create = format!(
        "topic create letters --config max.message.bytes=2000 --bootstrap-server {}",
        broker.address()
    );
    let (code, _, error) = run(&mut binary::thalweg(&create), b"");
    assert_eq!(code, Some(0), "{error}");
    let mut stream = broker.stream("http --port=0 | filter --expression='payload.x > 0' | null");
    let options = ["--on-error", "dead-letter:topic:letters", "--bootstrap-server", broker.address()];
    let mut stream = RunningProcess::start(stream.args(options));
    let line = stream.lines().find(|line| line.contains("http://")).expect("it names its address");
    let address =
        line.split_once("http://").and_then(|(_, rest)| rest.split_once('/')).expect("an address").0;
    let post = |body: &str| node::ask(address, "POST", "/", "", body);
    let answer = post("no JSON");
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(answer.body.contains("it is a dead letter"), "{}", answer.body);
    let answer = post(&"x".repeat(3000));
    assert_eq!(answer.status, 500, "the topic refuses it: {}", answer.body);
    assert_eq!(stream.exit_code(), Some(1));
}

#[test]
fn the_lag_behind_a_topic_of_transactions_reaches_zero() {
    let broker = Broker::start();
    broker.produce(0..30);
    let mut moving = broker.stream("kafka --topics=in --group=moving | kafka --topic=out");
    let mut moving = RunningProcess::start(moving.args(["--guarantee", "exactly-once"]));
    let mut reading = RunningProcess::start(&mut broker.stream("kafka --topics=out --group=reading | null"));
    let create = format!("topic create out-again --bootstrap-server {}", broker.address());
    let (code, _, error) = run(&mut binary::thalweg(&create), b"");
    assert_eq!(code, Some(0), "{error}");
    let mut again = broker.stream("kafka --topics=out --group=again | kafka --topic=out-again");
    let mut again = RunningProcess::start(again.args(["--guarantee", "exactly-once"]));
    let lags = |group: &str| {
        let describe = format!("group describe {group} --json --bootstrap-server {}", broker.address());
        let (_, out, _) = run(&mut binary::thalweg(&describe), b"");
        let described: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        let partitions = described[0]["partitions"].as_array().cloned().unwrap_or_default();
        let of = |partition: &serde_json::Value, name: &str| partition[name].as_i64();
        let lags =
            partitions.iter().map(|partition| of(partition, "lag").zip(of(partition, "current_offset")));
        lags.collect::<Option<Vec<_>>>().unwrap_or_default()
    };
    let is_read = |group: &str| {
        let lags = lags(group);
        // All three partitions have messages, and a marker behind the last of them.
        lags.len() == 3
            && lags.iter().all(|(lag, _)| *lag == 0)
            && lags.iter().map(|(_, at)| at).sum::<i64>() > 30
    };
    for group in ["reading", "again"] {
        until(&format!("the end of each partition in {group}"), || is_read(group));
    }
    for running in [&mut moving, &mut reading, &mut again] {
        running.interrupt();
        assert_eq!(running.exit_code(), Some(0));
    }
}

#[test]
fn records_are_read_with_keys_from_any_position() {
    let broker = Broker::start();
    broker.produce(0..1000);
    let read = |options: &str| {
        let (code, out, error) =
            run(&mut broker.stream(&format!("kafka --topics=in --untilEnd=true {options} | stdout")), b"");
        assert_eq!(code, Some(0), "{options}: {error}");
        numbers(&out)
    };
    let all = read("");
    assert_eq!(all.len(), 1000);
    assert_eq!(all.iter().copied().collect::<BTreeSet<_>>(), (0..1000).collect());
    let of_one = read("--partitions=1");
    assert!(of_one.len() > 200 && of_one.is_sorted(), "{of_one:?}");
    assert_eq!(read("--partitions=1 --from=offset:5"), of_one[5..]);
    let others = all.len() - of_one.len();
    assert_eq!(read("--from=offset:1=7").len(), others + of_one.len() - 7);
    assert_eq!(read("--from=timestamp:0").len(), 1000);
    assert_eq!(read("--from=latest"), [0; 0]);
    let keys = "kafka --topics=in --untilEnd=true | transform --expression=key | counter";
    let (code, out, error) = run(&mut broker.stream(keys), b"");
    assert_eq!((code, out.as_str()), (Some(0), "stream: 1000\n"), "{error}");
}

#[test]
fn a_record_that_deletes_its_key_does_so_in_the_next_topic_too() {
    let broker = Broker::start();
    let at = format!("--bootstrap-server {}", broker.address());
    let produce = format!("produce in {at} --key-separator : --null-marker NULL");
    let (code, _, error) = run(&mut binary::thalweg(&produce), b"a:1\nb:\na:NULL\n");
    assert_eq!(code, Some(0), "{error}");
    let moved = "kafka --topics=in --untilEnd=true | transform --headers='{\"by\": \"a stream\"}' | kafka --topic=out";
    let (code, _, error) = run(&mut broker.stream(moved), b"");
    assert_eq!(code, Some(0), "{error}");
    let consume = format!("consume out {at} --from-beginning --until-end --print-key");
    let (code, out, error) = run(&mut binary::thalweg(&consume), b"");
    assert_eq!(code, Some(0), "{error}");
    let of_key = |key: &str| out.lines().filter(|line| line.starts_with(key)).collect::<Vec<_>>();
    assert_eq!((of_key("a"), of_key("b")), (vec!["a\t1", "a\tnull"], vec!["b\t"]), "{out}");
}

#[test]
fn a_group_resumes_at_the_acknowledged_offset() {
    for protocol in ["classic", "consumer"] {
        a_member_of_a_group_resumes_at_the_acknowledged_offset(protocol);
    }
}

fn a_member_of_a_group_resumes_at_the_acknowledged_offset(protocol: &str) {
    let broker = Broker::start();
    broker.produce(0..500);
    let file = broker.dir.path().join("seen.txt");
    let text_of_stream =
        format!("kafka --topics=in --group=g --groupProtocol={protocol} | file --path={}", file.display());
    let start = || RunningProcess::start(&mut broker.stream(&text_of_stream));
    let mut first = start();
    until("all of the first part", || text(&file).lines().count() >= 500);
    first.signal(Signal::INT);
    assert_eq!(first.exit_code(), Some(0));
    broker.produce(500..800);
    let mut second = start();
    until("all of the second part", || text(&file).lines().count() >= 800);
    second.signal(Signal::INT);
    assert_eq!(second.exit_code(), Some(0));
    // Stopped cleanly, it repeats nothing.
    let mut seen = numbers(&text(&file));
    seen.sort_unstable();
    assert_eq!(seen, (0..800).collect::<Vec<_>>());
}

#[test]
fn a_stream_that_is_killed_delivers_every_record_at_least_once() {
    let broker = Broker::start();
    let count = 10_000;
    broker.produce(0..count);
    let properties = broker.dir.path().join("properties");
    std::fs::write(&properties, "session.timeout.ms=6000\nheartbeat.interval.ms=500\n")
        .expect("it can be written");
    // Slow enough to be killed more than one commit after its start.
    let text_of_stream = format!(
        "kafka --topics=in --group=g --properties={} | rate-limit --rate=2000 --burst=100 | kafka --topic=out",
        properties.display()
    );
    let written = || {
        let (code, out, error) = run(&mut broker.stream("kafka --topics=out --untilEnd=true | counter"), b"");
        assert_eq!(code, Some(0), "{error}");
        out.trim_start_matches("stream: ").trim().parse::<u32>().expect("a count")
    };
    let first = RunningProcess::start(&mut broker.stream(&text_of_stream));
    until("some records", || written() > count / 5);
    first.signal(Signal::KILL);
    drop(first);
    let last = RunningProcess::start(&mut broker.stream(&text_of_stream));
    let seen = || {
        let (_, out, _) = run(&mut broker.stream("kafka --topics=out --untilEnd=true | stdout"), b"");
        numbers(&out).into_iter().collect::<BTreeSet<_>>()
    };
    until("every record", || seen().len() == count as usize);
    drop(last);
}

/// The text does not change with the transport. Two instances share the stages between them, and one of them
/// stops.
#[test]
fn topics_between_stages_carry_every_message_while_instances_come_and_go() {
    let broker = Broker::start();
    let file = broker.dir.path().join("seen.txt");
    let over_kafka = |text: &str| {
        let mut command = binary::thalweg("stream run --name s --transport kafka --transport-partitions 4");
        command.args(["--bootstrap-server", &broker.broker.address, text]);
        command
    };
    // Named destinations are topics: one stream writes, another process reads.
    let mut reader = over_kafka(&format!(
        "r = topic:numbers > transform --expression='text + \"0\"' | file --path={}",
        file.display()
    ));
    let mut first = RunningProcess::start(&mut reader);
    let lines: String = (0..3000).map(|number| format!("{number}\n")).collect();
    let mut writer =
        RunningProcess::start(&mut over_kafka("w = stdin | transform --key=text | topic:numbers"));
    let mut input = writer.0.stdin.take().expect("it is a pipe");
    input.write_all(lines.as_bytes()).expect("it reads");
    until("some", || text(&file).lines().count() > 100);
    let mut second = RunningProcess::start(&mut reader);
    input.write_all(lines.replace('\n', "x\n").replace('x', "7").as_bytes()).expect("it reads");
    drop(input);
    first.interrupt();
    assert_eq!(first.exit_code(), Some(0));
    let expected: BTreeSet<u32> = (0..3000).flat_map(|number| [number * 10, number * 100 + 70]).collect();
    let seen = || text(&file).lines().filter_map(|line| line.parse().ok()).collect::<BTreeSet<u32>>();
    until("every message", || seen() == expected);
    for instance in [&mut second, &mut writer] {
        instance.interrupt();
        assert_eq!(instance.exit_code(), Some(0));
    }
}

/// Three instances of the middle stage share its partitions; messages with the same key keep their order.
#[test]
fn a_stage_with_a_count_has_instances_that_share_its_messages_by_key() {
    let broker = Broker::start();
    let file = broker.dir.path().join("seen.txt");
    let text_of_stream = format!(
        "stdin | keyed: transform --expression=text --key='string(int(text) % 7)' | work: filter --expression='int(text) >= 0' \
         | file --path={}; tap:stream:s.work > counter --name=tapped",
        file.display()
    );
    let mut command =
        binary::thalweg("stream run --name s --json --properties module.work.count=3,module.*.count=0");
    command.args(["--bootstrap-server", &broker.broker.address, &text_of_stream]);
    let mut running = RunningProcess::start(&mut command);
    // Wait until all are in the group; otherwise the first would process everything.
    until("all instances in the group", || {
        let describe = format!("group describe s.work --json --bootstrap-server {}", broker.broker.address);
        let (_, out, _) = run(&mut binary::thalweg(&describe), b"");
        let groups: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        let members = groups[0]["members"].as_array().map_or(&[][..], Vec::as_slice);
        let busy =
            |member: &&serde_json::Value| member["partitions"].as_array().is_some_and(|of| !of.is_empty());
        members.iter().filter(busy).count() == 3
    });
    let lines: String = (0..3000).map(|number| format!("{number}\n")).collect();
    running.0.stdin.take().expect("it is a pipe").write_all(lines.as_bytes()).expect("it reads");
    until("every message", || text(&file).lines().count() >= 3000);
    running.interrupt();
    let mut report = String::new();
    running.0.stdout.take().expect("it is a pipe").read_to_string(&mut report).expect("text");
    assert_eq!(running.exit_code(), Some(0), "{report}");
    let seen = numbers(&text(&file));
    for key in 0..7 {
        let of_key: Vec<u32> = seen.iter().copied().filter(|number| number % 7 == key).collect();
        assert_eq!(of_key, (0..3000).filter(|number| number % 7 == key).collect::<Vec<_>>());
    }
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let parts = report["streams"].as_array().expect("a list");
    let names: Vec<&str> = parts.iter().filter_map(|part| part["name"].as_str()).collect();
    assert_eq!(names, ["s.stdin", "s.work", "s.work", "s.work", "s.file", "s-2"]);
    let worked: Vec<u64> =
        parts[1..4].iter().filter_map(|part| part["stages"][1]["messages_in"].as_u64()).collect();
    assert_eq!(worked.iter().sum::<u64>(), 3000);
    assert!(worked.iter().filter(|count| **count > 0).count() > 1, "one instance did all: {worked:?}");
    assert_eq!(parts[5]["stages"][1]["found"]["count"], 3000, "a tap hears all instances");
}

#[test]
fn unreachable_and_missing_topics_are_reported() {
    let broker = Broker::start();
    let (code, _, error) = run(&mut broker.stream("kafka --topics=nope | null"), b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("Topic nope: there is no such topic"), "{error}");
    let (code, _, error) = run(&mut broker.stream("kafka --topics=in --partitions=7 | null"), b"");
    assert_eq!(code, Some(1));
    assert!(error.contains("it has no partition 7: use 0 to 2"), "{error}");
    let free = format!("127.0.0.1:{}", free_port());
    let text = "stdin | kafka --topic=x --deliveryTimeout=1s";
    let (code, _, error) = run(&mut stream(&free, text), b"a\n");
    assert_eq!(code, Some(1));
    assert!(error.contains("Topic x did not take a message"), "{error}");
}
