//! State that outlives the process: windows, counts and remembered messages of streams that are stopped,
//! killed, and joined by other instances, beside a plain computation.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::binary::{self, RunningProcess, until};
use super::streams_kafka::{Broker, stream, text};

/// Length of a window, and the time for which it waits for late messages.
const WINDOW_MS: i64 = 60_000;
const LATENESS_MS: i64 = 60_000;
/// A time behind all windows.
const END_MS: i64 = 1_000_000_000;
/// Number of keys.
const KEYS: u64 = 37;

/// A broker with short session and transaction timeouts.
fn broker() -> Broker {
    Broker::start_with(&[
        "group.min.session.timeout.ms=1000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
    ])
}

/// A reproducible source of intervals.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[derive(Clone, Copy)]
struct Message {
    id: u64,
    key: u64,
    time_ms: i64,
    value: u64,
}

/// A message per second, some of which are late; with one partition, some are too late.
fn messages(count: u64, partitions: u32) -> Vec<Message> {
    let message = |id: u64| {
        let time_ms = id as i64 * 1000;
        let late_ms = match id {
            _ if partitions == 1 && id % 701 == 700 => 3_600_000,
            _ if id % 50 == 49 => 30_000,
            _ => 0,
        };
        Message { id, key: id % KEYS, time_ms: (time_ms - late_ms).max(0), value: id % 1000 }
    };
    (0..count).map(message).collect()
}

/// The sums of a key in a window: how many, and their sum.
type Sums = BTreeMap<(i64, u64), (u64, u64)>;

/// The plain computation, in the order of one partition.
fn expected(messages: &[Message], partitions: u32) -> Sums {
    let (mut sums, mut watermark_ms) = (Sums::new(), i64::MIN);
    for message in messages {
        let start_ms = message.time_ms / WINDOW_MS * WINDOW_MS;
        let is_late = start_ms + WINDOW_MS <= watermark_ms.saturating_sub(LATENESS_MS);
        assert!(partitions == 1 || !is_late, "the order of partitions would decide");
        if !is_late {
            let (count, sum) = sums.entry((start_ms, message.key)).or_default();
            *count += 1;
            *sum += message.value;
        }
        watermark_ms = watermark_ms.max(message.time_ms);
    }
    sums
}

fn create(broker: &Broker, topic: &str, partitions: u32) {
    let create =
        format!("topic create {topic} --partitions {partitions} --bootstrap-server {}", broker.address());
    assert_eq!(binary::run(&mut binary::thalweg(&create)).0, Some(0));
}

/// Writes messages, and ones that close all windows of every partition.
fn produce(broker: &Broker, topic: &str, messages: &[Message], is_last: bool) {
    let line = |message: &Message| {
        let Message { id, key, time_ms, value } = message;
        format!("{{\"id\": {id}, \"k\": {key}, \"t\": {time_ms}, \"v\": {value}}}\n")
    };
    let mut lines: String = messages.iter().map(line).collect();
    for key in (0..500).filter(|_| is_last) {
        lines.push_str(&format!("{{\"id\": -1, \"k\": {}, \"t\": {END_MS}, \"v\": 0}}\n", 1_000_000 + key));
    }
    let write = format!("stdin | transform --key='string(payload.k)' | kafka --topic={topic}");
    let (code, _, error) = binary::run_with_input(&mut stream(broker.address(), &write), lines.as_bytes());
    assert_eq!(code, Some(0), "{error}");
}

fn committed(broker: &Broker, topic: &str, options: &str) -> String {
    let consume = format!(
        "consume {topic} --from-beginning --until-end --read-committed --bootstrap-server {} {options}",
        broker.address()
    );
    let (code, out, error) = binary::run(&mut binary::thalweg(&consume));
    assert_eq!(code, Some(0), "{error}");
    out
}

/// The rows of windows in their order.
fn rows(lines: &str) -> Vec<((i64, u64), (u64, u64))> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let number = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name} of {line}"));
        let key = row["key"].as_str().and_then(|key| key.parse().ok()).expect("a key");
        ((row["window_start"].as_i64().expect("a time"), key), (number("count"), number("sum")))
    };
    lines.lines().map(row).collect()
}

/// A stream of windows from topic to topic.
#[derive(Clone)]
struct Windows<'a> {
    broker: &'a Broker,
    guarantee: &'a str,
    from: String,
    to: String,
    rate: u32,
}

impl Windows<'_> {
    fn command(&self, instance: &str) -> Command {
        let Windows { broker, guarantee, from, to, rate } = self;
        let mut command = stream(
            broker.address(),
            &format!(
                "kafka --topics={from} --group={from}-{to} --sessionTimeout=3s | rate-limit --rate={rate} \
                 | aggregate --window=60s --lateness=60s --time=payload.t --key='string(payload.k)' --of=payload.v \
                 --figures=count,sum,p50 | kafka --topic={to}"
            ),
        );
        command.args(["--guarantee", guarantee, "--instance", instance]);
        command
    }

    fn rows(&self) -> Vec<((i64, u64), (u64, u64))> {
        rows(&committed(self.broker, &self.to, ""))
    }

    /// Checks the rows. Returns the number of repetitions.
    fn audit(&self, expected: &Sums) -> usize {
        let rows = self.rows();
        let mut seen = Sums::new();
        for (window, sums) in &rows {
            assert_eq!(expected.get(window), Some(sums), "{window:?} has other sums");
            seen.insert(*window, *sums);
        }
        let missing: Vec<_> = expected.keys().filter(|window| !seen.contains_key(window)).collect();
        assert!(missing.is_empty(), "{} windows are missing: {:?}", missing.len(), missing.first());
        rows.len() - seen.len()
    }

    fn until_complete(&self, expected: &Sums) {
        let are_there = || {
            let windows: BTreeSet<_> = self.rows().into_iter().map(|(window, _)| window).collect();
            windows.len() >= expected.len()
        };
        until("all windows", are_there);
    }
}

/// Runs a stream that ends again and again, by SIGINT or SIGKILL, then to its end. Returns the number of
/// repeated rows.
fn interrupted(
    windows: &Windows<'_>,
    expected: &Sums,
    rounds: u64,
    dice: &mut Dice,
    mut signal: impl FnMut(&mut Dice) -> Signal,
) -> usize {
    for _ in 0..rounds {
        let mut running = RunningProcess::start(&mut windows.command("0"));
        binary::pause(Duration::from_millis(400 + dice.below(1200)));
        let signal = signal(dice);
        running.signal(signal);
        if signal == Signal::INT {
            assert_eq!(running.exit_code(), Some(0));
        }
    }
    let mut last = RunningProcess::start(&mut Windows { rate: 1_000_000, ..windows.clone() }.command("0"));
    windows.until_complete(expected);
    last.interrupt();
    assert_eq!(last.exit_code(), Some(0));
    windows.audit(expected)
}

#[test]
fn windows_go_on_where_they_were_after_stops_and_kills() {
    let broker = broker();
    let mut dice = Dice(1);
    for partitions in [1, 4, 12] {
        let (from, messages) = (format!("in-{partitions}"), messages(12_000, partitions));
        let expected = expected(&messages, partitions);
        create(&broker, &from, partitions);
        produce(&broker, &from, &messages, true);
        for guarantee in ["at-least-once", "exactly-once"] {
            let to = format!("out-{partitions}-{guarantee}");
            create(&broker, &to, 1);
            let windows = Windows { broker: &broker, guarantee, from: from.clone(), to, rate: 2500 };
            let mut kills = 0;
            let repeated = interrupted(&windows, &expected, 4, &mut dice, |_| {
                kills += 1;
                if kills % 2 == 0 { Signal::KILL } else { Signal::INT }
            });
            assert!(guarantee == "at-least-once" || repeated == 0, "{repeated} rows are repeated");
        }
    }
}

#[test]
fn an_orderly_stop_repeats_and_splits_no_window() {
    let broker = broker();
    let path = broker.dir.path().join("out");
    create(&broker, "events", 1);
    let halves = messages(600, 4);
    let text_of = format!(
        "kafka --topics=events --group=g | aggregate --window=10m --time=payload.t --figures=count | file --path={}",
        path.display()
    );
    let expected = "{\"count\":600,\"window_end\":600000,\"window_start\":0}\n";
    for (half, is_last) in [(&halves[..300], false), (&halves[300..], true)] {
        produce(&broker, "events", half, is_last);
        let mut running = RunningProcess::start(&mut broker.stream(&text_of));
        match is_last {
            false => binary::pause(Duration::from_secs(2)),
            true => until("the window", || !text(&path).is_empty()),
        }
        running.interrupt();
        assert_eq!(running.exit_code(), Some(0));
        assert_eq!(text(&path), if is_last { expected } else { "" });
    }
}

#[test]
fn instances_that_come_and_go_keep_the_windows_of_their_partitions() {
    let broker = broker();
    let messages = messages(24_000, 4);
    let expected = expected(&messages, 4);
    create(&broker, "in-4", 4);
    produce(&broker, "in-4", &messages, true);
    for guarantee in ["at-least-once", "exactly-once"] {
        let to = format!("out-{guarantee}");
        create(&broker, &to, 1);
        let windows = Windows { broker: &broker, guarantee, from: "in-4".to_owned(), to, rate: 1500 };
        let start = |instance: &str| RunningProcess::start(&mut windows.command(instance));
        let first = start("first");
        binary::pause(Duration::from_secs(2));
        let mut second = start("second");
        binary::pause(Duration::from_secs(3));
        first.signal(Signal::KILL);
        drop(first);
        let third = start("third");
        binary::pause(Duration::from_secs(3));
        second.interrupt();
        assert_eq!(second.exit_code(), Some(0));
        let mut last =
            RunningProcess::start(&mut Windows { rate: 1_000_000, ..windows.clone() }.command("last"));
        windows.until_complete(&expected);
        let repeated = windows.audit(&expected);
        assert!(guarantee == "at-least-once" || repeated == 0, "{repeated} rows are repeated");
        last.interrupt();
        assert_eq!(last.exit_code(), Some(0));
        drop(third);
    }
}

/// The counts that a stream prints at its end, by key.
fn printed(lines: &str) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (key, count) = line.trim().rsplit_once(": ")?;
        Some((key.to_owned(), count.parse().ok()?))
    };
    lines.lines().filter_map(line).collect()
}

#[test]
fn counts_and_remembered_messages_outlive_stops_and_kills() {
    let broker = broker();
    let all = messages(6_000, 4);
    for partitions in [1, 4, 12] {
        let topic = format!("in-{partitions}");
        create(&broker, &topic, partitions);
        // Each message comes again, some later.
        let twice: Vec<Message> =
            all.chunks(500).flat_map(|chunk| [chunk, chunk]).flatten().copied().collect();
        produce(&broker, &topic, &twice, false);
        for (guarantee, sink) in [
            ("at-least-once", "counter --name=c --by='payload.k % 10'"),
            ("exactly-once", "counter --name=c --by='payload.k % 10'"),
            ("exactly-once", "histogram --name=c --of=payload.v"),
        ] {
            let group = format!("{}-{guarantee}-{partitions}", &sink[..7]);
            let run = |rate: u32, signal: Signal, time_ms: u64| {
                let mut command = stream(
                    broker.address(),
                    &format!(
                        "kafka --topics={topic} --group={group} --sessionTimeout=3s | rate-limit --rate={rate} \
                         | dedup --by=payload.id | {sink}"
                    ),
                );
                command.args(["--guarantee", guarantee, "--instance", "0"]);
                let mut running = RunningProcess::start(&mut command);
                let lines = running.lines();
                binary::pause(Duration::from_millis(time_ms));
                running.signal(signal);
                let code = running.exit_code();
                assert!(signal == Signal::KILL || code == Some(0), "{code:?}");
                lines.collect::<Vec<_>>().join("\n")
            };
            for time_ms in [700, 1100] {
                run(3000, Signal::KILL, time_ms);
                run(3000, Signal::INT, time_ms);
            }
            let expected = match sink.starts_with("counter") {
                true => {
                    let mut counts = BTreeMap::from([("c".to_owned(), 6000)]);
                    for message in &all {
                        *counts.entry((message.key % 10).to_string()).or_default() += 1;
                    }
                    counts
                }
                false => BTreeMap::new(),
            };
            until("all counts", || {
                let report = run(1_000_000, Signal::INT, 1500);
                match expected.is_empty() {
                    true => report.contains("c: 6000 numbers, min 0, mean 499.5,"),
                    false => printed(&report) == expected,
                }
            });
        }
    }
}

#[test]
fn closed_windows_leave_the_topic_of_state_and_reset_offsets_drop_it() {
    let broker = broker();
    let messages = messages(3000, 4);
    let expected = expected(&messages, 4);
    for topic in ["in-1", "out-1"] {
        create(&broker, topic, 1);
    }
    produce(&broker, "in-1", &messages, true);
    let (from, to) = ("in-1".to_owned(), "out-1".to_owned());
    let windows = Windows { broker: &broker, guarantee: "exactly-once", from, to, rate: 1_000_000 };
    assert_eq!(interrupted(&windows, &expected, 1, &mut Dice(2), |_| Signal::KILL), 0);
    let topic = "in-1-out-1-aggregate-changelog";
    let described =
        binary::thalweg(&format!("topic describe {topic} --bootstrap-server {}", broker.address()));
    let (code, described, error) = binary::run(&mut { described });
    assert_eq!(code, Some(0), "{error}");
    assert!(described.contains("cleanup.policy") && described.contains("compact"), "{described}");
    let mut live = BTreeSet::new();
    for line in committed(&broker, topic, "--json").lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        match record["value"].is_null() && record.get("value_base64").is_none_or(Value::is_null) {
            true => live.remove(&record["key"].to_string()),
            false => live.insert(record["key"].to_string()),
        };
    }
    // Those of the messages at the end of all windows, the marks and the checkpoint.
    assert_eq!(live.len(), 502, "{:?}", live.iter().next());
    let reset = format!(
        "group reset in-1-out-1 --topic in-1 --to-earliest --execute --bootstrap-server {}",
        broker.address()
    );
    // The group still has the member that was killed.
    until("the offset to be reset", || binary::run(&mut binary::thalweg(&reset)).0 == Some(0));
    let mut again = RunningProcess::start(&mut windows.command("0"));
    until("all windows again", || windows.rows().len() == 2 * expected.len());
    again.interrupt();
    assert_eq!(again.exit_code(), Some(0));
    assert_eq!(windows.audit(&expected), expected.len());
}

/// Many rounds, for a machine with time.
#[test]
#[ignore = "takes minutes"]
fn windows_are_right_after_many_random_kills() {
    let mut broker = broker();
    let mut dice = Dice(3);
    for partitions in [1, 4, 12] {
        let (from, messages) = (format!("in-{partitions}"), messages(60_000, partitions));
        let expected = expected(&messages, partitions);
        create(&broker, &from, partitions);
        produce(&broker, &from, &messages, true);
        for guarantee in ["at-least-once", "exactly-once"] {
            let to = format!("out-{partitions}-{guarantee}");
            create(&broker, &to, 1);
            for round in 0..5 {
                let windows =
                    Windows { broker: &broker, guarantee, from: from.clone(), to: to.clone(), rate: 3000 };
                let mut running = RunningProcess::start(&mut windows.command("0"));
                binary::pause(Duration::from_millis(dice.below(3000)));
                if round % 2 == 0 {
                    broker.broker.kill_and_restart();
                    binary::pause(Duration::from_millis(dice.below(3000)));
                }
                let signal = if dice.below(2) == 0 { Signal::KILL } else { Signal::INT };
                running.signal(signal);
                let _ = running.exit_code();
            }
            let windows = Windows { broker: &broker, guarantee, from: from.clone(), to, rate: 3000 };
            let repeated = interrupted(&windows, &expected, 15, &mut dice, |dice| {
                if dice.below(3) == 0 { Signal::INT } else { Signal::KILL }
            });
            assert!(guarantee == "at-least-once" || repeated == 0, "{repeated} rows are repeated");
        }
    }
}
