//! `thalweg stream` for users: every example under `examples/streams/`, invalid texts, Ctrl-C, reports,
//! servers that start late, and a followed file that is rotated.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use thalweg_ports::free_port;

use super::binary::{self, RunningProcess, pause, until};
use super::streams_kafka::Broker;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/streams")
}

fn stream(arguments: &[&str]) -> Command {
    let mut command = binary::thalweg("stream");
    command.args(arguments).env("TZ", "UTC");
    command
}

fn run(command: &mut Command, input: &[u8]) -> (Option<i32>, String, String) {
    binary::run_with_input(command, input)
}

fn start(arguments: &[&str]) -> RunningProcess {
    RunningProcess::start(&mut stream(arguments))
}

/// Runs an example in its own directory, with the orders on standard input; returns standard output and the
/// directory.
fn example(name: &str) -> (String, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let document = examples().join("orders-document.json");
    std::fs::copy(document, dir.path().join("orders-document.json")).expect("it can be copied");
    let orders = std::fs::read(examples().join("orders.json")).expect("the orders are there");
    let file = examples().join(name);
    let mut command = stream(&["run", "--file", file.to_str().expect("text")]);
    let (code, out, error) = run(command.current_dir(dir.path()), &orders);
    assert_eq!(code, Some(0), "{name}: {error}");
    (out, dir)
}

fn file(dir: &tempfile::TempDir, name: &str) -> String {
    std::fs::read_to_string(dir.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The ids in lines of JSON.
fn ids(lines: &str) -> Vec<u64> {
    let id = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).expect("JSON")["id"].as_u64().expect("an id")
    };
    lines.lines().map(id).collect()
}

#[test]
fn every_example_has_a_test_here() {
    let entries = std::fs::read_dir(examples()).expect("the examples are there");
    let names =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned());
    let streams: BTreeSet<String> = names.filter(|name| name.ends_with(".stream")).collect();
    assert!(streams.len() >= 10, "{streams:?}");
    let tests = include_str!("streams.rs");
    for name in &streams {
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is run by no test");
    }
}

/// From topic to topic; a second run resumes.
#[test]
fn the_example_from_topic_to_topic_moves_each_order_once() {
    let broker = Broker::start();
    for topic in ["orders", "big-orders"] {
        let create = format!("topic create {topic} --bootstrap-server {}", broker.broker.address);
        assert_eq!(run(&mut binary::thalweg(&create), b"").0, Some(0));
    }
    let orders = std::fs::read(examples().join("orders.json")).expect("the orders are there");
    let text = std::fs::read_to_string(examples().join("exactly-once.stream")).expect("it is there");
    let moved = || {
        let (code, out, error) =
            run(&mut broker.stream("kafka --topics=big-orders --untilEnd=true | stdout"), b"");
        assert_eq!(code, Some(0), "{error}");
        ids(&out)
    };
    let large = ids(&run(
        &mut stream(&["run", "stdin | filter --expression='payload.amount > 1000' | stdout"]),
        &orders,
    )
    .1);
    for times in 1..=2 {
        let (code, _, error) = run(&mut broker.stream("stdin | kafka --topic=orders"), &orders);
        assert_eq!(code, Some(0), "{error}");
        let mut running = RunningProcess::start(broker.stream(&text).args(["--guarantee", "exactly-once"]));
        until("the large orders", || moved().len() >= large.len() * times);
        running.interrupt();
        assert_eq!(running.exit_code(), Some(0));
        let (mut moved, mut expected) = (moved(), large.repeat(times));
        moved.sort_unstable();
        expected.sort_unstable();
        assert_eq!(moved, expected);
    }
}

#[test]
fn the_example_of_the_time_shows_three_lines() {
    let (out, _dir) = example("first.stream");
    assert_eq!(out.lines().filter(|line| line.contains(" stream: 20")).count(), 3, "{out}");
}

#[test]
fn measurement_examples_report_like_the_original_and_miss_nothing() {
    for name in ["measure.stream", "by-reference.stream"] {
        let (out, _dir) = example(name);
        assert!(out.contains("stream: Messages:    1000000 in "), "{out}");
        assert!(out.contains("stream: Throughput:   1000000000 in "), "{out}");
        assert!(out.contains("stream: No message is missing"), "{out}");
    }
}

#[test]
fn the_example_of_large_orders_writes_two_fields_of_each() {
    let (_, dir) = example("large-orders.stream");
    let expected = "{\"id\":2,\"amount\":1200}\n{\"id\":3,\"amount\":3100.25}\n{\"id\":6,\"amount\":1500}\n";
    assert_eq!(file(&dir, "large-orders.json"), expected);
}

#[test]
fn the_example_of_a_fan_out_parts_the_orders() {
    let (_, dir) = example("fan-out.stream");
    assert_eq!(
        (ids(&file(&dir, "large.json")), ids(&file(&dir, "small.json"))),
        (vec![2, 3, 6], vec![1, 4, 5])
    );
}

#[test]
fn the_example_of_a_tap_counts_on_both_sides_of_a_filter() {
    let (out, _dir) = example("tap.stream");
    let lines: BTreeSet<&str> = out.lines().collect();
    assert_eq!(lines, BTreeSet::from(["all: 6", "large: 3"]), "{out}");
}

#[test]
fn the_example_of_windows_sums_by_the_time_in_the_orders() {
    let (out, _dir) = example("per-customer.stream");
    let rows: Vec<serde_json::Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let told: Vec<_> =
        rows.iter().map(|row| (row["key"].as_str(), row["count"].as_u64(), row["sum"].as_f64())).collect();
    assert_eq!(
        told,
        [
            (Some("ada"), Some(2), Some(3350.75)),
            (Some("bert"), Some(2), Some(2190.99)),
            (Some("ada"), Some(1), Some(1500.0)),
            (Some("cleo"), Some(1), Some(80.0)),
        ]
    );
    assert_eq!(rows[0]["window_start"], 1_769_850_000_000_u64);
}

#[test]
fn the_example_of_a_document_names_each_customer_once() {
    let (out, _dir) = example("split-document.stream");
    assert_eq!(out, "ada\nbert\n");
}

#[test]
fn the_example_of_a_program_of_ones_own_shouts() {
    let (out, _dir) = example("own-program.stream");
    assert!(out.starts_with("{\"ID\":1,\"CUSTOMER\":\"ADA\"") && out.lines().count() == 6, "{out}");
}

#[test]
fn the_example_of_a_spread_prints_percentiles() {
    let (out, _dir) = example("spread.stream");
    assert!(out.starts_with("amounts: 6 numbers, min 80, mean 1186.956666667, "), "{out}");
    assert!(out.ends_with("p99.9 3100.25, max 3100.25\n"), "{out}");
}

#[test]
fn the_example_of_batches_reaches_a_server_that_comes_late() {
    // The server starts after the first requests of the stream.
    let port = free_port();
    let text = std::fs::read_to_string(examples().join("batches.stream")).expect("it is there");
    let mut sender = start(&["run", &text.replace("9000/orders --", &format!("{port}/orders --"))]);
    let mut stdin = sender.0.stdin.take().expect("it is a pipe");
    stdin
        .write_all(&std::fs::read(examples().join("orders.json")).expect("the orders are there"))
        .expect("it reads");
    drop(stdin);
    pause(Duration::from_millis(300));
    let mut receiver = start(&["run", &format!("http --port={port} --path=/orders | log")]);
    let mut lines = receiver.lines();
    let request = lines.find(|line| line.contains(" stream: [")).expect("a request comes");
    assert_eq!(request.matches("\"id\":").count(), 6, "{request}");
    assert_eq!(sender.exit_code(), Some(0));
    receiver.interrupt();
    assert_eq!(receiver.exit_code(), Some(0));
}

#[test]
fn invalid_texts_are_reported_with_position_and_exit_code_2() {
    for command in ["run", "check"] {
        let (code, out, error) = run(&mut stream(&[command, "time | fliter --expression=true | log"]), b"");
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        let expected = "thalweg: There is no processor fliter\n    time | fliter --expression=true | log\n           \
                        ^^^^^^\n  Did you mean filter?\n";
        assert_eq!(error, expected);
    }
}

#[test]
fn invalid_properties_are_reported_with_advice() {
    for (property, part) in [
        ("module.nul.count=2", "use module.null.count"),
        ("module.null.count=-1", "use a number from 0 to 256"),
        ("count=2", "module.LABEL.count=N"),
    ] {
        let (code, _, error) = run(&mut stream(&["run", "--properties", property, "time | null"]), b"");
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn check_shows_streams_and_runs_nothing() {
    let text = "a = stdin | x: filter --expression=true | topic:t; topic:t > null; tap:stream:a.x > counter";
    let (code, out, error) = run(&mut stream(&["check", text]), b"");
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(
        out,
        "a = stdin | x: filter | topic:t\nstream-2 = topic:t | null\nstream-3 = tap:stream:a.x | counter\n"
    );
}

#[test]
fn modules_are_documented_and_unknown_ones_named() {
    let (code, out, _) = run(&mut stream(&["modules"]), b"");
    assert_eq!(code, Some(0));
    assert!(out.contains("load-generator") && out.contains("throughput"), "{out}");
    let (code, out, _) = run(&mut stream(&["modules", "file"]), b"");
    assert_eq!(code, Some(0));
    assert!(
        out.contains("file, a source") && out.contains("file, a sink") && out.contains("--rollSize"),
        "{out}"
    );
    let (code, _, error) = run(&mut stream(&["modules", "fitler"]), b"");
    assert_eq!(
        (code, error.as_str()),
        (Some(2), "thalweg: There is no stage fitler; did you mean filter?\n")
    );
}

#[test]
fn ctrl_c_drains_and_the_report_has_the_counts() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let seen = dir.path().join("seen.txt");
    let text = format!(
        "time --fixedDelay=0.01 | batch --size=1000000 --timeout=1h | null; tap:stream:stream > file --path={}",
        seen.display()
    );
    let mut running = start(&["run", "--json", &text]);
    until("a message", || std::fs::metadata(&seen).is_ok_and(|metadata| metadata.len() > 0));
    running.interrupt();
    let mut report = String::new();
    running.0.stdout.take().expect("it is a pipe").read_to_string(&mut report).expect("text");
    assert_eq!(running.exit_code(), Some(0), "{report}");
    let report: serde_json::Value =
        serde_json::from_str(&report).unwrap_or_else(|error| panic!("{error}: {report}"));
    let stream = &report["streams"][0];
    assert_eq!(stream["ended"], "stopped", "{report}");
    // The messages held by batch were delivered.
    assert_eq!(stream["stages"][2]["messages_out"], 1, "{report}");
    assert_eq!(stream["stages"][1]["messages_in"], stream["stages"][0]["messages_out"], "{report}");
}

#[test]
fn bad_messages_fail_the_stream_are_skipped_or_set_aside() {
    let text = "stdin | filter --expression='payload.n > 1' | stdout";
    let input = b"{\"n\":1}\nbad\n{\"n\":2}\n";
    let (code, out, error) = run(&mut stream(&["run", text]), input);
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.contains("Stream stream, filter: Bad message: it is not JSON"), "{error}");
    let (code, out, error) = run(&mut stream(&["run", "--on-error", "skip", text]), input);
    assert_eq!((code, out.as_str()), (Some(0), "{\"n\":2}\n"));
    assert!(error.contains("Skipped bad messages") && error.contains("count=1"), "{error}");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let dead = dir.path().join("dead.json");
    let policy = format!("dead-letter:{}", dead.display());
    let (code, out, _) = run(&mut stream(&["run", "--on-error", &policy, text]), input);
    assert_eq!((code, out.as_str()), (Some(0), "{\"n\":2}\n"));
    let line: serde_json::Value = serde_json::from_str(&file(&dir, "dead.json")).expect("JSON");
    assert_eq!(
        (&line["value"], &line["stage"], &line["sequence"]),
        (&"bad".into(), &"filter".into(), &1.into())
    );
}

#[test]
fn a_program_that_fails_fails_its_stream() {
    for (command, part) in [("exit 3", "exit status: 3"), ("cat > /dev/null; exit 4", "exit status: 4")] {
        let text = format!("stdin | exec --command='{command}' | stdout");
        let (code, _, error) = run(&mut stream(&["run", &text]), b"a\nb\n");
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn ten_thousand_lines_are_followed_while_their_file_is_rotated_and_cut() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("app.log");
    let text = format!("file --path={} --mode=follow | stdout", path.display());
    let mut running = start(&["run", &text]);
    let mut lines = running.lines();
    let mut written = 0;
    for (round, count) in [1000, 1000, 1000, 1000, 1000, 500, 1500, 1000, 1000, 1000].into_iter().enumerate()
    {
        let text: Vec<String> = (written..written + count).map(|number| format!("line {number}")).collect();
        written += count;
        let content = text.join("\n") + "\n";
        // The new file appears with all of its lines, as after a rotation. Once, the file is truncated and
        // shorter.
        if round == 5 {
            std::fs::write(&path, content).expect("it can be written");
        } else {
            let fresh = path.with_extension("new");
            std::fs::write(&fresh, content).expect("it can be written");
            std::fs::rename(&fresh, &path).expect("it can be renamed");
        }
        let seen: Vec<String> = lines.by_ref().take(count).collect();
        assert_eq!(seen, text, "round {round}: a line is missing, or comes twice");
    }
    assert_eq!(written, 10_000);
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
fn a_file_that_was_cut_and_has_grown_again_is_read_from_its_beginning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("app.log");
    let lines_of = |name: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{name} {number}")).collect()
    };
    let (first, second) = (lines_of("first", 1000), lines_of("second", 3000));
    std::fs::write(&path, first.join("\n") + "\nhalf").expect("it can be written");
    let mut running = start(&["run", &format!("file --path={} --mode=follow | stdout", path.display())]);
    let mut lines = running.lines();
    assert_eq!(lines.by_ref().take(1000).collect::<Vec<_>>(), first);
    // Like logrotate's copytruncate, but within one check: the file is longer than before.
    std::fs::copy(&path, dir.path().join("app.log.1")).expect("it can be copied");
    std::fs::write(&path, second.join("\n") + "\n").expect("it can be written");
    assert_eq!(lines.next().as_deref(), Some("half"));
    assert_eq!(lines.by_ref().take(3000).collect::<Vec<_>>(), second);
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
#[expect(clippy::disallowed_types, reason = "the file of a program that keeps it open")]
fn lines_added_after_a_rotation_are_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("app.log");
    let mut old = std::fs::File::create(&path).expect("it can be made");
    let mut running = start(&["run", &format!("file --path={} --mode=follow | stdout", path.display())]);
    let mut lines = running.lines();
    writeln!(old, "before").expect("it can be written");
    assert_eq!(lines.next().as_deref(), Some("before"));
    std::fs::rename(&path, dir.path().join("app.log.1")).expect("it can be renamed");
    std::fs::write(&path, "new\n").expect("it can be written");
    assert_eq!(lines.next().as_deref(), Some("new"));
    writeln!(old, "after").expect("it can be written");
    assert_eq!(lines.next().as_deref(), Some("after"));
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
fn special_files_are_refused_before_they_block_a_stream() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    let pipe = pipe.display();
    for (text, part) in [
        (
            format!("file --path={pipe} | null"),
            "it is not a regular file; to read a pipe or a device, use stdin",
        ),
        (format!("file --path={pipe} --mode=follow | null"), "it is not a regular file"),
        (format!("file --path={pipe} --mode=whole | null"), "it is not a regular file"),
        ("file --path=/dev/zero | null".to_owned(), "it is not a regular file"),
        (format!("file --path={} | null", dir.path().display()), "Is a directory"),
        (format!("time --count=1 | file --path={pipe}"), "it is a named pipe; to write to one, use stdout"),
    ] {
        let (code, _, error) = run(&mut stream(&["run", &text]), b"");
        assert_eq!(code, Some(1), "{text}: {error}");
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Files under /proc have a size of zero, but contents.
#[test]
fn a_file_with_a_size_of_zero_is_read_once() {
    let (code, out, error) = run(&mut stream(&["run", "file --path=/proc/self/status | stdout"]), b"");
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(out.lines().filter(|line| line.starts_with("Pid:")).count(), 1, "{out}");
}

#[test]
fn a_slow_sink_is_waited_for() {
    // An endless generator: without backpressure, memory would fill within seconds.
    let text = "load-generator --messageCount=0 --messageSize=100000 | rate-limit --rate=50 | null";
    let mut running = start(&["run", "--json", text]);
    pause(Duration::from_secs(2));
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.0.id())).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory is told");
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib < 200 * 1024, "{kib} KiB");
    running.interrupt();
    assert_eq!(running.exit_code(), Some(0));
}

#[test]
fn requests_are_answered_when_their_messages_went_through() {
    let mut running =
        start(&["run", "http --port=0 --path=/in --maxSize=10 | transform --key=key | log --showKey=true"]);
    let mut lines = running.lines();
    let said = lines.next().expect("it says where it listens");
    let address = said
        .split_once("http://")
        .and_then(|(_, rest)| rest.split_once('/'))
        .expect("an address")
        .0
        .to_owned();
    let post = |path: &str, body: &str| {
        let mut stream = std::net::TcpStream::connect(&address).expect("it listens");
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.split(' ').nth(1).map(str::to_owned)
    };
    assert_eq!(post("/in?key=a%20b", "hello").as_deref(), Some("202"), "a log stores nothing");
    assert_eq!(post("/in", "more than ten bytes").as_deref(), Some("413"));
    assert_eq!(post("/elsewhere", "x").as_deref(), Some("404"));
    let line = lines.next().expect("it is shown");
    assert!(line.ends_with(" stream: a b hello"), "{line}");
    running.interrupt();
    until("its end", || running.0.try_wait().expect("it is a child").is_some());
    assert_eq!(running.exit_code(), Some(0));
}
