//! Aggregates over topics: the counts are those of a plain computation, for any number of partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio::time::Instant;

use super::binary::{self, RunningProcess, until};
use super::streams_kafka::{Broker, text};

/// A message per second of four hours.
const MESSAGES: u64 = 14_400;

/// The counts of windows, by their start.
fn counts(lines: &str) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for line in lines.lines() {
        let window: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let number = |name: &str| window[name].as_u64().expect("a number");
        *counts.entry(number("window_start")).or_default() += number("count");
    }
    counts
}

#[test]
fn windows_over_several_partitions_count_every_message() {
    let broker = Broker::start();
    let lines: String =
        (0..MESSAGES).map(|n| format!("{{\"t\": {}, \"k\": {}}}\n", n * 1000, n % 97)).collect();
    let expected: BTreeMap<u64, u64> = (0..MESSAGES / 60).map(|minute| (minute * 60_000, 60)).collect();
    for partitions in [1, 4, 12] {
        let topic = format!("of-{partitions}");
        let create =
            format!("topic create {topic} --partitions {partitions} --bootstrap-server {}", broker.address());
        assert_eq!(binary::run(&mut binary::thalweg(&create)).0, Some(0));
        let write = format!("stdin | transform --key='string(payload.k)' | kafka --topic={topic}");
        let (code, _, error) = binary::run_with_input(&mut broker.stream(&write), lines.as_bytes());
        assert_eq!(code, Some(0), "{error}");
        let aggregate = "aggregate --window=1m --time=payload.t";
        let read = format!("kafka --topics={topic} --untilEnd=true | {aggregate} | stdout");
        let (code, out, error) = binary::run_with_input(&mut broker.stream(&read), b"");
        assert_eq!(code, Some(0), "{error}");
        assert_eq!(counts(&out), expected, "{partitions} partitions");
        // With a group, the windows close while the stream runs.
        let path = broker.dir.path().join(&topic);
        let read = format!("kafka --topics={topic} --group=g | {aggregate} | file --path={}", path.display());
        let mut running = RunningProcess::start(&mut broker.stream(&read));
        until("all windows but the last", || counts(&text(&path)).len() as u64 > MESSAGES / 60 - 10);
        running.interrupt();
        assert_eq!(running.exit_code(), Some(0));
        // The others stay open, until later messages close them.
        let later: String =
            (0..97).map(|key| format!("{{\"t\": {}, \"k\": {key}}}\n", MESSAGES * 10_000)).collect();
        let (code, _, error) = binary::run_with_input(&mut broker.stream(&write), later.as_bytes());
        assert_eq!(code, Some(0), "{error}");
        let mut running = RunningProcess::start(&mut broker.stream(&read));
        until("all windows", || counts(&text(&path)).len() >= expected.len());
        running.interrupt();
        assert_eq!(running.exit_code(), Some(0));
        assert_eq!(counts(&text(&path)), expected, "{partitions} partitions in a group");
    }
}

#[test]
fn a_rebalance_neither_waits_for_windows_nor_counts_twice() {
    let broker = Broker::start();
    let create = format!("topic create shared --partitions 4 --bootstrap-server {}", broker.address());
    assert_eq!(binary::run(&mut binary::thalweg(&create)).0, Some(0));
    let write = |lines: &str| {
        let write = "stdin | transform --key='string(payload.k)' | kafka --topic=shared";
        let (code, _, error) = binary::run_with_input(&mut broker.stream(write), lines.as_bytes());
        assert_eq!(code, Some(0), "{error}");
    };
    let line = |n: u64| format!("{{\"t\": {}, \"k\": {}}}\n", n * 1000, n % 97);
    write(&(0..MESSAGES).map(line).collect::<String>());
    let path = |name: &str| broker.dir.path().join(name);
    let start = |name: &str| {
        let text = format!(
            "s = kafka --topics=shared --group=g | aggregate --window=100h --time=payload.t | file --path={}\n\
             tap:stream:s > file --path={}",
            path(name).display(),
            path(&format!("{name}-read")).display(),
        );
        RunningProcess::start(&mut broker.stream(&text))
    };
    let read = |name: &str| text(&path(&format!("{name}-read"))).lines().count() as u64;
    let mut first = start("first");
    until("all messages", || read("first") == MESSAGES);
    let began = Instant::now();
    let mut second = start("second");
    // The open window moves with its partitions, so that no message is read twice.
    let mut more = 0;
    until("the second member's messages", || {
        write(&(0..97).map(|n| line(MESSAGES + n)).collect::<String>());
        more += 97;
        read("second") > 0
    });
    assert!(began.elapsed() < Duration::from_secs(20), "the window is not waited for");
    until("all messages", || read("first") + read("second") == MESSAGES + more);
    // These close the window in all partitions.
    write(&(0..97).map(|n| line(1_000_000 + n)).collect::<String>());
    let of = |name: &str| counts(&text(&path(name))).values().sum::<u64>();
    until("the window", || of("first") + of("second") >= MESSAGES + more);
    second.interrupt();
    first.interrupt();
    assert_eq!((first.exit_code(), second.exit_code()), (Some(0), Some(0)));
    assert!(of("second") > 0);
    assert_eq!(of("first") + of("second"), MESSAGES + more);
}

#[test]
fn a_stream_that_stood_still_counts_the_messages_of_the_pause() {
    let broker = Broker::start();
    let path = broker.dir.path().join("out");
    let text_of =
        format!("kafka --topics=in --group=g | aggregate --window=500ms | file --path={}", path.display());
    let mut running = RunningProcess::start(&mut broker.stream(&text_of));
    let mut produced = 0;
    let mut produce = |rounds: u32| {
        for _ in 0..rounds {
            broker.produce(produced..produced + 50);
            produced += 50;
            binary::pause(Duration::from_millis(200));
        }
    };
    produce(5);
    until("a closed window", || !counts(&text(&path)).is_empty());
    produce(5);
    running.signal(Signal::STOP);
    produce(20);
    running.signal(Signal::CONT);
    produce(10);
    until("the windows of all messages", || counts(&text(&path)).values().sum::<u64>() == 2000);
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
    assert_eq!(counts(&text(&path)).values().sum::<u64>(), 2000);
}
