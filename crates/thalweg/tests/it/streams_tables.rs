//! Streams with a table of a topic: whole before the first message, with its deletions, within its memory.
//! Topics by a pattern.

use std::process::Command;

use super::binary::{self, RunningProcess, until};
use super::streams_kafka::{Broker, text};

fn run(command: &mut Command, input: &[u8]) -> (Option<i32>, String, String) {
    binary::run_with_input(command, input)
}

/// Runs a stream to its end, and returns its standard output.
fn output(broker: &Broker, text: &str, input: &str) -> String {
    let (code, out, error) = run(&mut broker.stream(text), input.as_bytes());
    assert_eq!(code, Some(0), "{text}: {error}");
    out
}

/// Creates a compacted topic of three partitions, and writes lines of JSON with the member `k` as the key. A
/// line with the member `gone` is a tombstone.
fn table(broker: &Broker, lines: &str) {
    let create = format!(
        "topic create table --partitions 3 --config cleanup.policy=compact --bootstrap-server {}",
        broker.address()
    );
    let (code, _, error) = run(&mut binary::thalweg(&create), b"");
    assert_eq!(code, Some(0), "{error}");
    let write = "stdin | transform --key=payload.k --tombstone='has(payload.gone)' | kafka --topic=table";
    output(broker, write, lines);
}

/// A stage whose table is at this broker.
fn enrich(broker: &Broker, options: &str) -> String {
    format!("enrich --table=table --bootstrap={} {options}", broker.address())
}

#[test]
fn no_message_passes_before_the_table_is_whole() {
    let broker = Broker::start();
    let rows: String = (0..20_000).map(|row| format!("{{\"k\":\"{row}\",\"v\":{row}}}\n")).collect();
    table(&broker, &format!("{rows}{{\"k\":\"7\",\"v\":\"new\"}}\n{{\"k\":\"8\",\"gone\":true}}\n"));
    let messages: String = (0..20_000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let stage = enrich(&broker, "--key='string(payload.id)' --as=row");
    let out = output(&broker, &format!("stdin | {stage} | stdout"), &messages);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 20_000);
    for (id, line) in lines.iter().enumerate() {
        let expected = match id {
            7 => "{\"id\":7,\"row\":{\"k\":\"7\",\"v\":\"new\"}}".to_owned(),
            8 => "{\"id\":8,\"row\":null}".to_owned(),
            id => format!("{{\"id\":{id},\"row\":{{\"k\":\"{id}\",\"v\":{id}}}}}"),
        };
        assert_eq!(*line, expected);
    }
    // A member of the name is replaced; a missing row drops or refuses the message.
    let few = "{\"id\":8}\n{\"row\":\"9\",\"id\":1.50}\n{\"id\":null}\n";
    let drop = enrich(
        &broker,
        "--key='has(payload.row) ? payload.row : string(payload.id)' --as=row --missing=drop",
    );
    let out =
        run(broker.stream(&format!("stdin | {drop} | stdout")).args(["--on-error", "skip"]), few.as_bytes())
            .1;
    assert_eq!(out, "{\"id\":1.50,\"row\":{\"k\":\"9\",\"v\":9}}\n");
    let bad = enrich(&broker, "--key='string(payload.id)' --as=row --missing=bad");
    let (code, _, error) = run(&mut broker.stream(&format!("stdin | {bad} | stdout")), few.as_bytes());
    assert!(code == Some(1) && error.contains("the table has no row for the key 8"), "{error}");
}

#[test]
fn a_table_follows_its_topic() {
    let broker = Broker::start();
    table(&broker, "{\"k\":\"a\",\"v\":1}\n");
    let path = broker.dir.path().join("out");
    let stage = enrich(&broker, "--key=text --as=row");
    let stage = stage.replace("--key=text", "--key=\"'a'\"");
    let stream = format!(
        "time --fixedDelay=100ms --format='{{\"t\":0}}' | {stage} | transform --expression='payload.row.v' | file --path={}",
        path.display()
    );
    let mut running = RunningProcess::start(&mut broker.stream(&stream));
    until("the first value", || text(&path).contains("1\n"));
    output(&broker, "stdin | transform --key=payload.k | kafka --topic=table", "{\"k\":\"a\",\"v\":2}\n");
    until("the second value", || text(&path).ends_with("2\n"));
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
fn a_table_that_is_too_large_fails_with_its_size() {
    let broker = Broker::start();
    let rows: String = (0..20_000).map(|row| format!("{{\"k\":\"{row}\"}}\n")).collect();
    table(&broker, &rows);
    let stage = enrich(&broker, "--key=text --as=row --memory=1MiB");
    let (code, _, error) = run(&mut broker.stream(&format!("time --format='{{}}' | {stage} | null")), b"");
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("it has more than 1 MiB, in ") && error.contains("raise --memory"), "{error}");
    let missing = enrich(&broker, "--as=row").replace("--table=table", "--table=no-table");
    let (code, _, error) = run(&mut broker.stream(&format!("time | {missing} | null")), b"");
    assert!(code == Some(1) && error.contains("Table of the topic no-table"), "{error}");
}

#[test]
fn topics_are_found_by_a_pattern() {
    let broker = Broker::start();
    for topic in ["orders-a", "orders-b", "other-orders-c"] {
        let create = format!("topic create {topic} --bootstrap-server {}", broker.address());
        assert_eq!(run(&mut binary::thalweg(&create), b"").0, Some(0));
        output(&broker, &format!("stdin | kafka --topic={topic}"), &format!("{topic}\n"));
    }
    let path = broker.dir.path().join("out");
    let stream = format!("kafka --topics='^orders-' --group=all | file --path={}", path.display());
    let mut running = RunningProcess::start(&mut broker.stream(&stream));
    until("two records", || text(&path).lines().count() >= 2);
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
    let mut lines: Vec<String> = text(&path).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["orders-a", "orders-b"]);
}
