//! What commands print: documents whose fields are stable, tables with aligned columns, colours on a terminal
//! only.

use std::io::Write;
use std::process::Command;

use serde_json::{Value, json};

use super::binary::{Broker, run, run_with_input, thalweg};

/// A broker with a topic of three records and a group that has read two of them.
fn prepared() -> Broker {
    let broker = Broker::start();
    let to = |line: &str| to(&broker, line);
    assert_eq!(run(&mut to("topic create orders --partitions 2 --config retention.ms=3600000")).0, Some(0));
    assert_eq!(run_with_input(&mut to("produce orders --partition 0"), b"a\nb\nc\n").0, Some(0));
    let (code, out, error) = run(&mut to("consume orders --group billing --from-beginning --max-messages 2"));
    assert_eq!((code, out.as_str()), (Some(0), "a\nb\n"), "{error}");
    broker
}

fn to(broker: &Broker, line: &str) -> Command {
    let mut command = thalweg(line);
    command.env("THALWEG_BOOTSTRAP_SERVER", &broker.address);
    command
}

/// The fields of a document, with the kinds of their values; of a list, the first item stands for all.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "truth".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "text".into(),
        Value::Array(items) => items.first().map(shape).into_iter().collect(),
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), shape(value))).collect(),
    }
}

/// Documents of commands on a broker. Programs read these fields: what is here may grow, and nothing goes.
fn golden() -> Vec<(&'static str, Value)> {
    let topic_partition = json!({
        "partition": "number", "leader": "number", "leader_epoch": "number", "replicas": ["number"], "isr": ["number"],
        "offline": [], "error": "null",
    });
    let topic = json!([{
        "topic": "text", "topic_id": "text", "internal": "truth", "configs": { "retention.ms": "text" },
        "partitions": [topic_partition],
    }]);
    let group = json!([{
        "group": "text", "state": "text", "type": "text", "protocol": "text", "members": [], "coordinator": "text",
        "group_epoch": "null", "assignment_epoch": "null", "problem": "null",
        "partitions": [{
            "topic": "text", "partition": "number", "current_offset": "number", "log_end_offset": "number", "lag": "number",
            "lag_seconds": "number", "member_id": "null", "client_id": "null", "host": "null", "readers": "number",
        }],
    }]);
    let status = json!({
        "cluster_id": "text", "health": "text", "problems": [], "not_reached": {}, "differing": [], "topics": "number",
        "hidden_topics": "number",
        "partitions": "number", "offline": [], "under_min_isr": [], "under_replicated": [], "reassignments": [],
        "brokers": [{
            "id": "number", "address": "text", "rack": "null", "state": "text", "fenced": "truth", "reached": "truth",
            "error": "null", "leaders": "number", "replicas": "number",
        }],
        "quorum": {
            "leader": "number", "epoch": "number", "high_watermark": "number",
            "nodes": [{
                "id": "number", "role": "text", "address": "null", "log_end_offset": "number", "lag": "number",
                "last_fetch_ms_ago": "number",
            }],
        },
    });
    vec![
        ("topic list -q", json!(["text"])),
        (
            "topic list",
            json!([{
                "topic": "text", "internal": "truth", "partitions": "number", "replicas": "number", "under_replicated": "number",
                "leaderless": "number", "state": "text", "bytes": "number",
            }]),
        ),
        ("broker list -q", json!(["number"])),
        (
            "broker list",
            json!([{
                "id": "number", "address": "text", "rack": "null", "state": "text", "role": "text", "kafka_version": "text",
                "leaders": "number", "replicas": "number", "lagging": "number", "bytes": "number",
            }]),
        ),
        ("topic describe orders", topic),
        ("topic create more", json!([{ "topic": "text", "outcome": "text" }])),
        ("topic create other --validate-only", json!([{ "topic": "text", "outcome": "text" }])),
        ("topic alter more --partitions 2", json!([{ "topic": "text", "outcome": "text" }])),
        ("topic delete more", json!([{ "topic": "text", "outcome": "text" }])),
        (
            "group list",
            json!([{
                "group": "text", "state": "text", "type": "text", "protocol_type": "text", "members": "number", "lag": "number",
                "beyond_end": "number", "problem": "null",
            }]),
        ),
        ("group list --quiet", json!(["text"])),
        ("group describe billing", group),
        ("group delete billing", json!([{ "group": "text", "outcome": "text" }])),
        ("cluster status", status),
        ("security user add alice", json!({ "user": "text", "mechanisms": ["text"], "password": "text" })),
        ("security user list", json!({ "alice": [{ "mechanism": "text", "iterations": "number" }] })),
        (
            "security user remove alice --mechanism SCRAM-SHA-256",
            json!([{ "user": "text", "mechanism": "text", "outcome": "text" }]),
        ),
        ("lab list", json!([{ "name": "text", "title": "text", "points": "number" }])),
        ("profile list", json!([])),
    ]
}

#[test]
fn documents_keep_their_fields() {
    let broker = prepared();
    for (line, expected) in golden() {
        let (code, out, error) = run(to(&broker, line).args(["--format", "json"]));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{line}");
        assert_eq!(out.lines().count(), 1, "{line}: a document is a line: {out}");
        let mut document: Value =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}: {out}"));
        // The disk of the machine may be nearly full.
        if let Some(Value::Array(problems)) = document.get_mut("problems") {
            problems.retain(|problem| problem["fault"] != "disk-nearly-full");
        }
        assert_eq!(shape(&document), expected, "{line}: {document:#}");
    }
}

#[test]
fn the_short_form_and_yaml_mean_the_same() {
    let broker = prepared();
    for line in ["topic describe orders", "group list", "lab list"] {
        let long = run(to(&broker, line).args(["--format", "json"]));
        let short = run(to(&broker, line).arg("--json"));
        let mut before = vec!["--json"];
        before.extend(line.split(' '));
        let before = run(to(&broker, "").args(before));
        assert_eq!((&long, &long), (&short, &before), "{line}");
    }
    let yaml = |line: &str| {
        let (code, out, error) = run(to(&broker, line).args(["--format", "yaml"]));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{line}");
        out
    };
    let group = "- beyond_end: 0\n  group: billing\n  lag: 1\n  members: 0\n  problem: null\n  \
                 protocol_type: consumer\n  state: Empty\n  type: classic\n";
    assert_eq!(yaml("group list"), group);
    assert_eq!(yaml("topic create no"), "- outcome: created\n  topic: \"no\"\n");
    assert_eq!(yaml("topic list -q"), "- __consumer_offsets\n- \"no\"\n- orders\n");
}

#[test]
fn tables_have_aligned_columns_and_no_colours_in_a_pipe() {
    let broker = prepared();
    let table = |line: &str| {
        let (code, out, error) = run(&mut to(&broker, line));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{line}");
        assert!(!out.contains('\u{1b}'), "{line}: {out}");
        out
    };
    let groups = "\
GROUP    TYPE     STATE  PROTOCOL  MEMBERS  LAG
billing  classic  Empty  consumer  0        1
";
    assert_eq!(table("group list"), groups);
    assert_eq!(table("group list --format table"), groups);
    assert_eq!(table("group list -q"), "billing\n");
    let topics = table("topic list --exclude-internal");
    let lines: Vec<Vec<&str>> = topics.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["TOPIC", "PARTITIONS", "REPLICAS", "STATE", "BYTES"]);
    assert_eq!(lines[1][..5], ["orders", "2", "1", "in", "sync"], "{topics}");
    assert!(lines[1][5].parse::<u64>().is_ok_and(|bytes| bytes > 0) && lines.len() == 2, "{topics}");
    assert_eq!(table("topic list -q --exclude-internal"), "orders\n");
    let brokers = table("broker list");
    let lines: Vec<Vec<&str>> = brokers.lines().map(|line| line.split_whitespace().collect()).collect();
    let heads = ["ID", "ADDRESS", "RACK", "STATE", "KAFKA", "LEADS", "REPLICAS", "LAGGING", "BYTES"];
    assert_eq!(lines[0], heads);
    assert_eq!((lines[1][3], lines[1][4], lines[1][7]), ("active", "4.3", "0"), "{brokers}");
    assert!(brokers.lines().all(|line| line.len() <= 80), "{brokers}");
    assert_eq!(table("broker list -q"), format!("{}\n", lines[1][0]));
    let described = table("group describe billing");
    let (columns, rest): (Vec<&str>, Vec<&str>) =
        described.lines().map(|line| line.split_at_checked(65).unwrap_or((line, ""))).unzip();
    assert_eq!(
        columns,
        [
            "Group billing: Empty, 0 members, consumer",
            "GROUP    TOPIC   PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG  ",
            "billing  orders  0          2               3               1    ",
            "billing  orders  1          0               0               0    ",
        ]
    );
    assert_eq!(rest[1], "LAG-SECONDS  CONSUMER-ID  HOST  CLIENT-ID");
    let (age, owner) = rest[2].split_once(' ').expect("more columns");
    assert!(age.parse::<f64>().is_ok(), "{described}");
    assert_eq!(owner.trim_start(), "-            -     -");
    assert_eq!(rest[3], "0.0          -            -     -");
    table("cluster status");
    table("lab list");
}

/// Under `script`, which gives a command a terminal.
#[test]
fn headers_have_a_colour_on_a_terminal() {
    let shown = |variable: &str| {
        let line = format!("{} lab list", env!("CARGO_BIN_EXE_thalweg"));
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        let output = command.env("NO_COLOR", variable).stdin(std::process::Stdio::null()).output().ok()?;
        Some(String::from_utf8(output.stdout).expect("text"))
    };
    let Some(coloured) = shown("") else {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: colours on a terminal: install script (Debian: bsdutils)");
        return;
    };
    assert!(coloured.starts_with("\u{1b}[1mNAME "), "{coloured:?}");
    assert!(shown("1").is_some_and(|plain| plain.starts_with("NAME ")));
}

#[test]
fn an_option_that_would_be_ignored_is_refused() {
    for (line, expected) in [
        ("serve --format json", "--format has no effect on `serve`"),
        ("--json completion bash", "--json has no effect on `completion`"),
        (
            "--format yaml producer-perf-test --topic t --num-records 1 --record-size 1 --throughput -1",
            "it has --json",
        ),
        ("lab list --profile x", "--profile has no effect on `lab list`"),
        ("topic list --format xml", "[possible values: table, json, yaml]"),
        ("topic list --json --format yaml", "cannot be used with"),
    ] {
        let (code, out, error) = run(&mut thalweg(line));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{line}: {error}");
        assert!(error.contains(expected), "{line}: {error}");
    }
}
