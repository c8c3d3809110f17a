//! `thalweg serve` started by another program, such as a test: its line once it serves, its stop when the
//! program ends, and the removal of its data.

use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use super::binary::{RunningProcess, run, run_with_input, thalweg};

/// The options by which a node belongs to a program.
const OPTIONS: &str = "serve --temporary --listen 127.0.0.1:0 --json --until-stdin-closes \
                       --set thalweg.console.enabled=false";

/// A node, and its line about itself.
fn started(command: &mut Command) -> (RunningProcess, Value) {
    let mut node = RunningProcess::start(command);
    let document = document(&mut node);
    (node, document)
}

/// The line of a node that starts.
fn document(node: &mut RunningProcess) -> Value {
    let line = node.lines().next().expect("a line once it serves");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The directory of temporary data, which has the data directory.
fn directory(document: &Value) -> &Path {
    let directory = document["temporary_dir"].as_str().map(Path::new).expect("a directory");
    let data = document["data_dirs"][0].as_str().map(Path::new).expect("a directory");
    assert_eq!(data.parent(), Some(directory), "{document}");
    directory
}

#[test]
fn a_node_serves_once_its_line_is_out_and_ends_with_standard_input() {
    let (mut node, document) = started(&mut thalweg(OPTIONS));
    let address = document["bootstrap_servers"][0].as_str().expect("an address");
    assert_eq!(document["listeners"]["PLAINTEXT"], address, "{document}");
    assert_eq!(document["pid"], node.0.id(), "{document}");
    assert_eq!((&document["console"], &document["http"]), (&Value::Null, &Value::Null));
    let to = |line: &str| thalweg(&format!("{line} --bootstrap-server {address}"));
    assert_eq!(run_with_input(&mut to("produce greetings"), b"hello\n").0, Some(0));
    let (_, out, error) = run(&mut to("consume greetings --from-beginning --max-messages 1"));
    assert_eq!(out, "hello\n", "{error}");
    let directory = directory(&document);
    assert!(directory.is_dir(), "{}", directory.display());
    drop(node.0.stdin.take());
    assert_eq!(node.exit_code(), Some(0));
    assert!(!directory.exists(), "{}", directory.display());
}

#[test]
fn a_node_ends_with_a_killed_program() {
    let mut program = Command::new("sleep").arg("600").stdout(Stdio::piped()).spawn().expect("sleep");
    let input = program.stdout.take().expect("a pipe");
    let mut command = thalweg(OPTIONS);
    let node = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut node = RunningProcess(node.expect("the binary runs"));
    let document = document(&mut node);
    assert!(node.0.try_wait().expect("ours").is_none(), "it serves while the program runs");
    program.kill().and_then(|()| program.wait()).expect("ours to kill");
    assert_eq!(node.exit_code(), Some(0));
    assert!(!directory(&document).exists(), "{document}");
}

#[test]
fn temporary_data_is_removed_after_a_signal_with_that_of_secure() {
    let options =
        "serve --temporary --secure --listen 127.0.0.1:0 --json --set thalweg.console.enabled=false";
    let (mut node, document) = started(&mut thalweg(options));
    let directory = directory(&document);
    assert!(directory.join("data-security/ca.crt").is_file(), "{document}");
    assert!(document["listeners"]["SASL_SSL"].is_string(), "{document}");
    node.signal(Signal::TERM);
    assert_eq!(node.exit_code(), Some(0));
    assert!(!directory.exists(), "{}", directory.display());
}

#[test]
fn a_stop_during_the_start_leaves_no_temporary_data() {
    let parent = tempfile::tempdir().expect("a directory");
    let start = |delay_ms: u64| {
        let mut command = thalweg(OPTIONS);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let node = command.env("TMPDIR", parent.path()).spawn().expect("the binary runs");
        std::thread::park_timeout(std::time::Duration::from_millis(delay_ms));
        RunningProcess(node)
    };
    for delay_ms in (0..250).step_by(5) {
        let mut by_signal = start(delay_ms);
        by_signal.signal(Signal::TERM);
        let mut by_input = start(delay_ms);
        drop(by_input.0.stdin.take());
        let mut logged = String::new();
        for node in [&mut by_signal, &mut by_input] {
            let mut stderr = node.0.stderr.take().expect("a pipe");
            std::io::Read::read_to_string(&mut stderr, &mut logged).expect("text");
            node.0.wait().expect("ours");
        }
        let left = std::fs::read_dir(parent.path()).expect("it is there").count();
        assert_eq!(left, 0, "after {delay_ms} ms: {logged}");
        assert!(!logged.contains("ERROR"), "after {delay_ms} ms: {logged}");
    }
}

#[test]
fn a_failed_start_leaves_no_temporary_data_and_no_line() {
    let parent = tempfile::tempdir().expect("a directory");
    let mut command = thalweg(OPTIONS);
    command.args(["--set", "num.partitions=none"]).env("TMPDIR", parent.path());
    let (code, out, error) = run(&mut command);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
    assert_eq!(std::fs::read_dir(parent.path()).expect("it is there").count(), 0);
    let mut nowhere = thalweg(OPTIONS);
    let (_, _, error) = run(nowhere.env("TMPDIR", "/nonexistent"));
    assert!(error.contains("/nonexistent: TMPDIR selects another"), "{error}");
    let (code, _, error) = run(&mut thalweg("serve --temporary --data-dir ./data"));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("cannot be used with"), "{error}");
}
