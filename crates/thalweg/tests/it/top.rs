//! `top`: figures against brokers, by documents, blocks and a terminal.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::binary::{self, Broker, RunningProcess, run, thalweg};
use crate::cluster::{ClusterProcess, is_whole, signal};
use crate::commands::{document, output_of, produce};

/// The row of a list whose field has this value.
fn row<'a>(list: &'a Value, field: &str, value: &str) -> &'a Value {
    let rows = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    rows.iter().find(|row| row[field] == value).unwrap_or_else(|| panic!("no {field} {value}: {list}"))
}

/// Records that the documents count in a topic, or in the cluster.
fn counted(document: &Value, rate: &Value) -> f64 {
    rate.as_f64().unwrap_or_default() * document["interval_s"].as_f64().expect("an interval")
}

/// Against any system: rates add up to the produced records, lags and consumed records to the committed ones.
pub fn figures_are_those_of_the_log(at: &str) {
    output_of(at, "topic create watched idle --partitions 3");
    produce(at, "watched --partition 0", 20);
    produce(at, "idle --partition 0", 5);
    let consume = "consume watched --group watching --from-beginning --max-messages";
    output_of(at, &format!("{consume} 5"));
    let mut command = thalweg("top --json --interval 300ms --sort name --bootstrap-server");
    let mut top = RunningProcess::start(command.arg(at));
    let mut documents = top.lines().map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    let first = documents.next().expect("a document");
    let group = row(&first["groups"], "group", "watching");
    assert_eq!(
        (&group["lag"], &group["lag_partial"], &group["problem"]),
        (&15.into(), &false.into(), &Value::Null)
    );
    assert_eq!(first["cluster"]["health"], "healthy", "{first:#}");
    assert_eq!((&first["cluster"]["brokers"], &first["cluster"]["brokers_up"]), (&1.into(), &1.into()));
    assert_eq!((&first["error"], &first["machine"]), (&Value::Null, &Value::Null));
    let topic = row(&first["topics"], "topic", "watched");
    assert_eq!((&topic["partitions"], &topic["offline"]), (&3.into(), &0.into()));
    assert!(topic["log_bytes"].as_i64().is_some_and(|bytes| bytes > 0), "{topic}");
    let broker = &first["brokers"][0];
    assert_eq!((&broker["state"], &broker["out_of_sync"]), (&"up".into(), &0.into()));
    assert!(broker["leaders"].as_u64() >= Some(6) && broker["address"] == at, "{broker}");

    produce(at, "watched --partition 1", 40);
    output_of(at, &format!("{consume} 7"));
    let (mut messages, mut consumed, mut bytes) = (0.0, 0.0, 0.0);
    // A rate is of the time between two answers of a broker, which on a busy machine is not that between two
    // documents.
    let is_all = |messages: f64| (13.0..=120.0).contains(&messages);
    for document in documents.by_ref().take(200) {
        let topic = row(&document["topics"], "topic", "watched");
        assert_eq!(topic["messages_partial"], false, "{topic}");
        messages += counted(&document, &topic["messages_per_s"]);
        bytes += counted(&document, &topic["bytes_per_s"]);
        let group = row(&document["groups"], "group", "watching");
        consumed += counted(&document, &group["consumed_per_s"]);
        assert_eq!(row(&document["topics"], "topic", "idle")["messages_per_s"], 0.0, "a known zero");
        if is_all(messages) && group["lag"] == 48 {
            break;
        }
    }
    assert!(is_all(messages), "{messages}");
    assert!(bytes > 40.0, "{bytes}");
    // A commit of the consumer may be the first in a partition, which tells no rate.
    assert!((0.0..=21.0).contains(&consumed), "{consumed}");
    top.interrupt();
    assert_eq!(top.exit_code(), Some(0));
}

#[test]
fn figures_of_a_broker_are_those_of_its_log() {
    let broker = Broker::start();
    figures_are_those_of_the_log(&broker.address);
}

#[test]
fn a_block_shows_the_cluster_and_this_machine() {
    let broker = Broker::start();
    let at = &*broker.address;
    output_of(at, "topic create orders payments");
    produce(at, "orders", 3);
    let block = output_of(at, "top --once --interval 300ms --rows 1 --machine");
    for text in
        ["thalweg top ", "Brokers 1 of 1 up, controller 1;", "Health: healthy\n", "\nTOPIC 1/2 ", "\nGROUP "]
    {
        assert!(block.contains(text), "{text}: {block}");
    }
    assert!(
        block.contains("This machine: ") && block.contains("\nDEVICE") && block.contains("\nINTERFACE"),
        "{block}"
    );

    let shown = document(at, "top --once --interval 300ms --machine");
    let brokers = shown["machine"]["brokers"].as_array().expect("a list");
    let ours = brokers.iter().find(|one| one["pid"] == broker.pid()).unwrap_or_else(|| panic!("{shown:#}"));
    assert_eq!((&ours["program"], &ours["node_id"]), (&"thalweg".into(), &1.into()));
    assert_eq!(ours["cluster_id"], shown["cluster"]["cluster_id"]);
    assert!(ours["cpus"].as_f64().is_some_and(|cpus| (0.0..64.0).contains(&cpus)), "{ours}");
    assert!(ours["memory_bytes"].as_u64() > Some(1 << 20), "{ours}");
    assert!(ours["threads"].as_array().is_some_and(|threads| !threads.is_empty()), "{ours}");
    let storage = &ours["storage"][0];
    assert!(storage["directory"].is_string() && storage["filesystem"].is_string(), "{ours}");
    let lo = row(&shown["machine"]["interfaces"], "name", "lo");
    assert!(lo["received"]["packets_per_s"].as_f64() > Some(0.0), "{lo}");
}

#[test]
fn a_dead_and_a_silent_broker_hide_only_their_own_figures() {
    let dir = tempfile::tempdir().expect("a directory");
    // The controller must not expire a session during this test.
    let up = ClusterProcess::start(dir.path(), "--brokers 3 --set broker.session.timeout.ms=600000");
    up.run("topic create orders --replica-assignment 1:2,2:3,3:1");
    up.status_where("a leader of each partition", is_whole);
    let at = up.brokers()[0].clients.clone();
    produce(&at, "orders --partition 0", 4);
    signal(up.brokers()[2].pid, Signal::KILL);
    for (state, silent) in [("dead", false), ("dead and silent", true)] {
        if silent {
            signal(up.brokers()[1].pid, Signal::STOP);
        }
        let began = binary::now();
        let shown = document(&at, "top --once --interval 300ms --timeout-ms 1500");
        assert!(began.elapsed() < Duration::from_secs(30), "{state}: {:?}", began.elapsed());
        let up_now = if silent { 1 } else { 2 };
        let cluster = &shown["cluster"];
        assert_eq!(
            (&cluster["brokers_up"], &cluster["brokers"]),
            (&up_now.into(), &3.into()),
            "{state}: {shown:#}"
        );
        assert_eq!(cluster["health"], "unavailable", "{state}");
        let orders = row(&shown["topics"], "topic", "orders");
        assert_eq!((&orders["messages_per_s"], &orders["messages_partial"]), (&0.0.into(), &true.into()));
        assert_eq!(orders["offline"], 3 - up_now, "{state}: {orders}");
        let dead = &shown["brokers"][2];
        assert_eq!((&dead["state"], &dead["log_bytes"]), (&"not reached".into(), &Value::Null), "{state}");
        assert_eq!(dead["out_of_sync"], 2, "{state}: all its replicas");
        let first = &shown["brokers"][0];
        assert!(
            first["log_bytes"].as_i64() > Some(0) && first["log_bytes_per_s"].is_number(),
            "{state}: {first}"
        );
        let notes = shown["notes"].to_string();
        assert!(
            notes.contains("Broker 3: ") && notes.contains("of 3 partitions are unknown"),
            "{state}: {notes}"
        );
    }
    signal(up.brokers()[1].pid, Signal::CONT);
}

#[test]
fn failures_have_exit_codes() {
    let none = "top --once --bootstrap-server 127.0.0.1:1 --timeout-ms 2000";
    let (code, out, error) = run(&mut thalweg(none));
    assert_eq!((code, out.as_str()), (Some(5), ""), "{error}");
    let (code, _, error) = run(&mut thalweg("top --interval 5ms"));
    assert!(code == Some(2) && error.contains("use a time from 100ms to 1h"), "{error}");

    let mut broker = Broker::start();
    let mut command =
        thalweg("top --json --updates 100 --interval 200ms --timeout-ms 1000 --bootstrap-server");
    let mut top = RunningProcess::start(command.arg(&broker.address));
    let mut documents = top.lines().map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    assert_eq!(documents.next().expect("a document")["error"], Value::Null);
    broker.kill();
    let failed = documents.by_ref().find(|document| document["error"].is_string()).expect("a failure");
    assert_eq!((&failed["cluster"], &failed["topics"]), (&Value::Null, &Value::Null), "no old figures");
    broker.restart();
    let again = documents.by_ref().find(|document| document["error"].is_null()).expect("it is back");
    assert_eq!(again["cluster"]["brokers_up"], 1);
    broker.kill();
    assert_eq!(documents.last().map(|last| last["error"].is_string()), Some(true));
    assert_eq!(top.exit_code(), Some(5));
}

/// A command on a terminal of 80 columns, which `script` of util-linux makes; `keys` are typed after a while.
/// Ctrl-C and Ctrl-\ reach the shell, too, which is the user's or `/bin/sh`: it must outlive the command.
fn on_a_terminal(line: &str, keys: &str) -> Option<(Option<i32>, String)> {
    on_a_terminal_of("xterm", line, keys)
}

fn on_a_terminal_of(kind: &str, line: &str, keys: &str) -> Option<(Option<i32>, String)> {
    let thalweg = env!("CARGO_BIN_EXE_thalweg");
    let command =
        format!("trap : INT QUIT; stty cols 80 rows 24; {thalweg} {line}; echo \"code $?\"; stty -a");
    let script = Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .env("TERM", kind)
        .env("THALWEG_CONFIG", "/nonexistent/config.toml")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut script) = script else {
        let what = "SKIPPED: the live screen on a terminal: `script` of util-linux is not installed";
        writeln!(std::io::stderr(), "{what}").expect("standard error is open");
        return None;
    };
    let mut typing = script.stdin.take().expect("it is a pipe");
    let keys = keys.to_owned();
    let typist = std::thread::spawn(move || {
        for key in keys.chars() {
            binary::pause(Duration::from_secs(2));
            // The command may have ended.
            let _ = write!(typing, "{key}").and_then(|()| typing.flush());
        }
        typing
    });
    let output = script.wait_with_output().expect("it ends");
    drop(typist.join());
    Some((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[test]
fn a_terminal_is_redrawn_and_restored() {
    let broker = Broker::start();
    output_of(&broker.address, "topic create orders");
    let line = format!("top --interval 300ms --bootstrap-server {}", broker.address);
    // Another order, this machine, the end; and Ctrl-C and Ctrl-\ in place of the end.
    for keys in ["smq", "sm\u{3}", "sm\u{1c}"] {
        let Some((_, shown)) = on_a_terminal(&line, keys) else { return };
        assert!(shown.contains("\u{1b}[?1049h") && shown.contains("code 0"), "{shown}");
        let (screens, after) = shown.rsplit_once("\u{1b}[?1049l").expect("the alternate screen ends");
        assert!(screens.contains("order rate") && screens.contains("Health: healthy"), "{screens}");
        assert!(screens.contains("This machine: ") && screens.contains("INTERFACE"), "{screens}");
        let modes: Vec<&str> = after.split_whitespace().collect();
        assert!(modes.contains(&"icanon") && modes.contains(&"echo"), "{after}");
    }
}

#[test]
fn a_terminal_that_only_prints_gets_blocks() {
    let broker = Broker::start();
    let line = format!("top --updates 2 --interval 300ms --bootstrap-server {}", broker.address);
    let Some((_, shown)) = on_a_terminal_of("dumb", &line, "q") else { return };
    assert!(shown.contains("code 0") && !shown.contains('\u{1b}'), "{shown}");
    assert_eq!(shown.matches("Health: healthy").count(), 2, "{shown}");
}

#[test]
fn a_signal_ends_a_screen_whose_terminal_takes_no_output() {
    let broker = Broker::start();
    // `timeout` sends SIGTERM, and SIGKILL later.
    let thalweg = env!("CARGO_BIN_EXE_thalweg");
    let top = format!("top --interval 300ms --bootstrap-server {}", broker.address);
    let line = format!("--version; timeout --foreground -k 12 6 {thalweg} {top}");
    // Ctrl-S, and Ctrl-Q after both, for the shell.
    let keys = format!("\u{13}{}\u{11}", "s".repeat(10));
    let Some((_, shown)) = on_a_terminal(&line, &keys) else { return };
    assert!(shown.contains("code 124"), "SIGTERM ended it: {shown}");
    let (_, after) = shown.rsplit_once("code 124").expect("found above");
    let modes: Vec<&str> = after.split_whitespace().collect();
    assert!(modes.contains(&"icanon") && modes.contains(&"echo"), "{after}");
}
