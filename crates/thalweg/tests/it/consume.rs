//! `consume` and `produce`: what is chosen, how it is printed, and that no wait is silent.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::binary::{Broker, RunningProcess, pause, run, run_with_input, thalweg, until};

fn to(broker: &Broker, line: &str) -> Command {
    let mut command = thalweg(line);
    command.env("THALWEG_BOOTSTRAP_SERVER", &broker.address);
    command
}

/// Topics, each with these lines; `key:value`.
fn fill(broker: &Broker, topic: &str, partitions: u32, input: &str) {
    let create = format!("topic create {topic} --partitions {partitions}");
    let (code, _, error) = run(&mut to(broker, &create));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let (code, _, error) =
        run_with_input(&mut to(broker, &format!("produce {topic} --key-separator :")), input.as_bytes());
    assert_eq!((code, error.as_str()), (Some(0), ""));
}

/// The output of a command that succeeds.
fn printed(broker: &Broker, line: &str, more: &[&str]) -> String {
    let (code, out, error) = run(to(broker, line).args(more));
    assert_eq!((code, error.as_str()), (Some(0), ""), "{line} {more:?}");
    out
}

fn sorted(out: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn records_are_chosen_by_expression_key_and_text() {
    let broker = Broker::start();
    fill(&broker, "orders", 1, "a:{\"n\": 1}\nb:{\"n\": 2}\na:{\"n\": 3}\nc:plain\n");
    let all = "consume orders --from-beginning --until-end";
    let (code, out, error) = run(to(&broker, all).args(["--filter", "payload.n >= 2"]));
    assert_eq!((code, out.as_str()), (Some(0), "{\"n\": 2}\n{\"n\": 3}\n"));
    let expected = "thalweg: 1 records did not match because --filter has no value for them: it is not JSON: expected value at line 1 column 1\n";
    assert_eq!(error, expected);
    assert_eq!(printed(&broker, all, &["--key", "a"]), "{\"n\": 1}\n{\"n\": 3}\n");
    assert_eq!(printed(&broker, all, &["--grep", "lai"]), "plain\n");
    assert_eq!(printed(&broker, all, &["--filter", "key == 'c' || sequence == 0"]), "{\"n\": 1}\nplain\n");
    assert_eq!(printed(&broker, all, &["--filter", "key == 'a'", "--max-messages", "1"]), "{\"n\": 1}\n");
    let (code, _, error) = run(to(&broker, all).args(["--filter", "pyload.n > 1"]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--filter") && error.contains("did you mean payload?"), "{error}");
}

#[test]
fn several_topics_and_regular_expressions_are_read() {
    let broker = Broker::start();
    for topic in ["orders-eu", "orders-us", "other"] {
        fill(&broker, topic, 2, &format!("k:in {topic}\n"));
    }
    let end = "--from-beginning --until-end";
    assert_eq!(
        sorted(&printed(&broker, &format!("consume orders-eu other {end}"), &[])),
        ["in orders-eu", "in other"]
    );
    let both = ["in orders-eu", "in orders-us"];
    assert_eq!(sorted(&printed(&broker, &format!("consume {end}"), &["^orders-.*"])), both);
    let group = format!("consume {end} --group g");
    assert_eq!(
        sorted(&printed(&broker, &group, &["^orders-", "other"])),
        ["in orders-eu", "in orders-us", "in other"]
    );
    assert_eq!(printed(&broker, &group, &["^orders-", "other"]), "", "the group has read them");
    let (code, _, error) = run(to(&broker, &format!("consume {end}")).arg("^nothing"));
    assert_eq!((code, error.as_str()), (Some(7), "thalweg: No topic matches ^nothing\n"));
    let (code, _, error) = run(to(&broker, "consume").arg("^(x"));
    assert_eq!(
        (code, error.as_str()),
        (Some(2), "thalweg: \"^(x\" is no regular expression: unclosed group\n")
    );
}

#[test]
fn a_group_reads_to_the_end_from_the_given_offset() {
    let broker = Broker::start();
    let lines: String = (0..10).map(|number| format!("k:{number}\n")).collect();
    fill(&broker, "numbers", 1, &lines);
    let consume = |options: &str| {
        printed(&broker, &format!("consume numbers --until-end {options}"), &[]).replace('\n', " ")
    };
    assert_eq!(consume("--group g --from-beginning --max-messages 3"), "0 1 2 ");
    assert_eq!(consume("--group g"), "3 4 5 6 7 8 9 ");
    assert_eq!(consume("--group g"), "");
    assert_eq!(consume("--group g --offset 8"), "8 9 ");
    assert_eq!(consume("--group g --offset -1"), "9 ");
    assert_eq!(consume("--group g --from-time 0 --max-messages 2"), "0 1 ");
    assert_eq!(consume("--group g"), "2 3 4 5 6 7 8 9 ");
    // Partitions of one's choice: the group's offsets, without its other members.
    assert_eq!(consume("--group h --partition 0 --offset beginning --max-messages 4"), "0 1 2 3 ");
    assert_eq!(consume("--group h --partition 0"), "4 5 6 7 8 9 ");
    assert_eq!(consume("--group h --partition 0"), "");
}

#[test]
fn a_partition_that_comes_back_continues_at_the_offset_of_the_group() {
    let broker = Broker::start();
    let lines =
        |text: &str| -> Vec<String> { (0..8).map(|number| format!("{number}:{text}{number}\n")).collect() };
    fill(&broker, "t", 2, &lines("old").concat());
    let mut first = RunningProcess::start(&mut to(&broker, "consume t --group g --offset beginning"));
    let mut lines_of_first = first.lines();
    let mut eight = || {
        let mut lines: Vec<String> = lines_of_first.by_ref().take(8).collect();
        lines.sort_unstable();
        lines.join(" ")
    };
    assert_eq!(eight(), "old0 old1 old2 old3 old4 old5 old6 old7");
    // Another member takes a partition, and leaves.
    let (code, out, _) = run(&mut to(&broker, "consume t --group g --offset end --until-end"));
    assert_eq!((code, out.as_str()), (Some(0), ""));
    let (code, _, _) =
        run_with_input(&mut to(&broker, "produce t --key-separator :"), lines("new").concat().as_bytes());
    assert_eq!(code, Some(0));
    assert_eq!(eight(), "new0 new1 new2 new3 new4 new5 new6 new7");
}

#[test]
fn a_member_whose_output_is_not_read_stays_in_its_group() {
    let broker = Broker::start();
    let lines: Vec<String> = (0..6000).map(|number| format!("k:{number:040}\n")).collect();
    fill(&broker, "t", 1, &lines.concat());
    let line = "consume t --group g --from-beginning --set session.timeout.ms=6000";
    let mut blocked = RunningProcess::start(&mut to(&broker, line));
    let members = || {
        let groups: serde_json::Value =
            serde_json::from_str(&printed(&broker, "group list --json", &[])).expect("JSON");
        groups[0]["members"].as_i64()
    };
    until("the member has joined", || members() == Some(1));
    pause(Duration::from_secs(9));
    assert_eq!(members(), Some(1));
    let read: Vec<String> = blocked.lines().take(6000).collect();
    assert!(read.iter().enumerate().all(|(number, line)| *line == format!("{number:040}")));

    let mut blocked = RunningProcess::start(&mut to(&broker, "consume t --from-beginning"));
    pause(Duration::from_secs(1));
    blocked.interrupt();
    pause(Duration::from_millis(500));
    blocked.interrupt();
    assert_eq!(blocked.exit_code(), Some(130));
}

#[test]
fn records_that_wait_for_a_schema_are_not_committed() {
    let broker = Broker::start();
    fill(&broker, "t", 1, "k:\0\0\0\0\x07x\n");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let registry = format!("http://{}", silent.local_addr().expect("an address"));
    let line = format!("consume t --group g --from-beginning --schema-registry {registry}");
    let mut waiting = RunningProcess::start(&mut to(&broker, &line));
    // Held open: a closed connection is an answer, after which the record is printed as it is.
    let _connection = silent.accept().expect("a request for the schema");
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.exit_code(), Some(0));
    let again = printed(&broker, "consume t --group g --from-beginning --until-end", &[]);
    assert_eq!(again, "\0\0\0\0\x07x\n");
}

#[test]
fn records_are_printed_by_a_format_string_or_as_json() {
    let broker = Broker::start();
    fill(&broker, "t", 1, "k:v\n");
    let all = "consume t --from-beginning --until-end";
    assert_eq!(printed(&broker, all, &["-f", "%t/%p/%o %k=%s [%h] %K %S\\n"]), "t/0/0 k=v [] 1 1\n");
    let json: serde_json::Value = serde_json::from_str(&printed(&broker, all, &["--json"])).expect("JSON");
    assert!(
        json["timestamp"].as_i64() > Some(1_700_000_000_000) && json["timestamp_type"] == "CreateTime",
        "{json}"
    );
    assert_eq!(
        (&json["key"], &json["value"], &json["headers"]),
        (&"k".into(), &"v".into(), &serde_json::json!([]))
    );
    let (code, _, error) = run(to(&broker, all).args(["-f", "%z"]));
    assert!(code == Some(2) && error.contains("%z is unknown"), "{code:?} {error}");
    let (code, out, _) = run_with_input(&mut to(&broker, "produce t --print-offsets"), b"a\nb\n");
    assert_eq!((code, out.as_str()), (Some(0), "1\t0\t1\n2\t0\t2\n"));
}

#[test]
fn a_dead_broker_is_named_within_two_seconds() {
    let mut broker = Broker::start();
    fill(&broker, "t", 1, "k:v\n");
    let start = |line: &str| {
        let mut command = to(&broker, line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    };
    let mut consume = start("consume t --from-beginning");
    let mut produce =
        start("produce t --set delivery.timeout.ms=6000 --set request.timeout.ms=1000 --set linger.ms=0");
    let mut first = String::new();
    BufReader::new(consume.stdout.as_mut().expect("a pipe")).read_line(&mut first).expect("text");
    assert_eq!(first, "v\n");
    let mut input = produce.stdin.take().expect("a pipe");
    writeln!(input, "stored").expect("it reads");
    pause(Duration::from_millis(500));
    broker.kill();
    #[expect(clippy::disallowed_methods, reason = "a person waits in the time of the world")]
    let killed = std::time::Instant::now();
    writeln!(input, "lost").expect("it reads");
    let expected = format!("thalweg: Cannot connect to {}: Connection refused", broker.address);
    for child in [&mut consume, &mut produce] {
        let mut line = String::new();
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        errors.read_line(&mut line).expect("text");
        assert!(line.starts_with(&expected) && line.ends_with("; trying again\n"), "{line}");
        assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
        child.stderr = Some(errors.into_inner());
    }
    // The error at the end has the cause.
    let output = produce.wait_with_output().expect("it ends");
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(
        last.contains("not stored within delivery.timeout.ms=6000") && last.contains("Connection refused"),
        "{error}"
    );
    drop(input);
    consume.kill().expect("it runs");
    consume.wait().expect("it ends");
}

#[test]
fn a_server_that_does_not_answer_is_named_while_it_is_waited_for() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    for line in ["topic list", "consume t", "produce t", "group list"] {
        let mut command = thalweg(&format!("{line} --set socket.connection.setup.timeout.ms=3000 -b"));
        let (code, _, error) = run(command.arg(&address));
        let mut lines = error.lines();
        assert_eq!(
            (code, lines.next()),
            (Some(5), Some(format!("thalweg: waiting for a connection to {address}").as_str())),
            "{line}"
        );
        assert!(
            lines.next().is_some_and(|last| last.contains("no answer within 3000 ms")),
            "{line}: {error}"
        );
    }
}
