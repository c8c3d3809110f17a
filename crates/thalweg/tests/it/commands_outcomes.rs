//! What commands report: every outcome, also beside a failure, and never a success that is none.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::binary::{Broker, RunningProcess, pause, run, run_with_input, thalweg, until};
use crate::commands::{column, document, fails, output_of, produce, runs, write_in_a_transaction};

/// The outcomes that a command prints before it fails with `code`, and its error.
fn outcomes(at: &str, line: &str, code: i32) -> (Value, String) {
    let (ended, out, error) = runs(at, &format!("{line} --json"));
    assert_eq!(ended, Some(code), "{line}: {error}");
    (serde_json::from_str(&out).unwrap_or_else(|wrong| panic!("{line}: {wrong}: {out:?} {error}")), error)
}

#[test]
fn outcomes_beside_a_failure_are_reported() {
    let broker = Broker::start();
    let at = &broker.address;
    let done = |field: &str, names: &[&str], outcome: &str| -> Value {
        names.iter().map(|name| json!({ field: name, "outcome": outcome })).collect()
    };
    let (created, error) = outcomes(at, "topic create a b:x c", 1);
    assert_eq!(created, done("topic", &["a", "c"], "created"), "{error}");
    assert!(error.contains("b:x"), "{error}");
    let (deleted, error) = outcomes(at, "topic delete a nosuch c", 7);
    assert_eq!(deleted, done("topic", &["a", "c"], "deleted"), "{error}");
    assert!(error.contains("nosuch"), "{error}");

    output_of(at, "topic create read --partitions 1");
    produce(at, "read", 1);
    for group in ["g1", "g2"] {
        output_of(at, &format!("consume read --group {group} --from-beginning --max-messages 1"));
    }
    let (deleted, error) = outcomes(at, "group delete g1 nosuch nosuch2 g2", 7);
    assert_eq!(deleted, done("group", &["g1", "g2"], "deleted"), "{error}");
    assert!(error.contains("group nosuch:") && error.contains("group nosuch2:"), "{error}");

    output_of(at, "security user add ann --mechanism SCRAM-SHA-256");
    output_of(at, "security user add bob --mechanism SCRAM-SHA-512");
    let (removed, error) = outcomes(at, "security user remove nosuch ann bob --mechanism SCRAM-SHA-512", 7);
    let gone = json!([{ "user": "bob", "mechanism": "SCRAM-SHA-512", "outcome": "removed" }]);
    assert_eq!(removed, gone, "{error}");
    assert!(error.contains("nosuch") && error.contains("ann"), "{error}");
    assert_eq!(document(at, "security user list").as_object().map(|users| users.len()), Some(1));
}

#[test]
fn a_time_before_1970_is_refused() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create timed --partitions 1");
    produce(at, "timed", 3);
    for line in [
        "topic trim timed --to-datetime 1969-12-31T23:59:59.999Z --execute",
        "topic trim timed --to-datetime=-5 --execute",
        "topic offsets timed --at-datetime=-1",
        "group reset g --topic timed --to-datetime 1969-12-31 --execute",
        "consume timed --from-time=-2 --until-end",
    ] {
        fails(at, line, 2, "is before 1970");
    }
    assert_eq!(column(&document(at, "topic offsets timed --earliest"), "offset"), [0]);
    let reset = document(at, "group reset g --topic timed --by-duration 30000d");
    assert_eq!(column(&reset, "new_offset"), [0]);
    assert_eq!(output_of(at, "consume timed --from-time 2001-01-01 --until-end"), "0\n1\n2\n");
}

#[test]
fn a_broker_that_does_not_exist_is_an_error() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create moved --partitions 1");
    fails(at, "broker decommission 9 --execute --wait", 7, "There is no broker 9");
    fails(at, "topic move moved --without-broker 9", 7, "There is no broker 9");
    fails(at, "topic move moved --to-brokers 9", 7, "Broker 9 is not running; these are: 1");
}

#[test]
fn an_offset_before_the_first_record_is_the_first() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create trimmed --partitions 1");
    produce(at, "trimmed", 9);
    output_of(at, "topic trim trimmed --to-offset 3 --execute");
    assert_eq!(output_of(at, "consume trimmed -p 0 -o -100 -e"), "3\n4\n5\n6\n7\n8\n");
    assert_eq!(output_of(at, "consume trimmed -g before -o -100 -e"), "3\n4\n5\n6\n7\n8\n");
    assert_eq!(output_of(at, "consume trimmed -o -2 -e"), "7\n8\n");
}

#[test]
fn a_regular_expression_chooses_the_same_topics_with_a_group() {
    let broker = Broker::start();
    let at = &broker.address;
    for topic in ["abc", "bcd", "xab", "cab"] {
        output_of(at, &format!("topic create {topic} --partitions 1"));
        produce(at, topic, 1);
    }
    for options in ["", "-g none", "-g new --group-protocol consumer"] {
        fails(at, &format!("consume ^none {options} -e"), 7, "No topic matches ^none");
    }
    let topics = |options: &str| {
        let printed = output_of(at, &format!("consume ^a|b|cab --from-beginning -e -f %t\\n {options}"));
        let mut topics: Vec<String> = printed.lines().map(str::to_owned).collect();
        topics.sort();
        topics
    };
    for options in ["", "-g classic", "-g modern --group-protocol consumer"] {
        assert_eq!(topics(options), ["abc", "bcd", "cab"], "{options}");
    }
}

#[test]
fn a_group_without_offsets_to_take_is_not_reset() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create reset --partitions 1");
    produce(at, "reset", 1);
    output_of(at, "consume reset --group gg --from-beginning --max-messages 1");
    fails(at, "group reset gg --topic reset:0 --to-group typo --execute", 7, "there is no group typo");
    fails(at, "group reset gg --from-file /dev/null --execute", 2, "/dev/null, which is empty");
}

/// As service managers and containers end a process.
#[test]
fn sigterm_ends_a_member_in_order() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create ended --partitions 1");
    produce(at, "ended", 3);
    for protocol in ["classic", "consumer"] {
        let line = format!("consume ended --group {protocol} --group-protocol {protocol} --from-beginning");
        let mut member = RunningProcess::start(thalweg(&line).env("THALWEG_BOOTSTRAP_SERVER", at));
        assert_eq!(member.lines().take(3).collect::<Vec<_>>(), ["0", "1", "2"]);
        member.signal(Signal::TERM);
        assert_eq!(member.exit_code(), Some(0), "{protocol}");
        let group = document(at, &format!("group describe {protocol}"));
        assert_eq!((&group[0]["state"], &group[0]["members"]), (&json!("Empty"), &json!([])), "{group}");
        assert_eq!(column(&group[0]["partitions"], "current_offset"), [3], "{group}");
    }
    output_of(at, "config set group:sharing share.auto.offset.reset=earliest");
    let share = "consume ended --share --group sharing";
    let mut member = RunningProcess::start(thalweg(share).env("THALWEG_BOOTSTRAP_SERVER", at));
    assert_eq!(member.lines().take(3).count(), 3);
    member.signal(Signal::TERM);
    assert_eq!(member.exit_code(), Some(0));
    assert_eq!(document(at, "group describe sharing")[0]["members"], json!([]));
}

#[test]
fn a_command_goes_on_when_its_output_is_closed() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create closed --partitions 1");
    produce(at, "closed", 1);
    for group in 0..6 {
        output_of(at, &format!("consume closed --group h{group} --from-beginning --max-messages 1"));
    }
    let ends = |line: &str, out: Stdio| {
        let mut command = thalweg(line);
        command.env("THALWEG_BOOTSTRAP_SERVER", at).stdout(out).stderr(Stdio::piped());
        let ended = command.spawn().and_then(std::process::Child::wait_with_output).expect("the binary runs");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("text"))
    };
    let closed = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        Stdio::from(writer)
    };
    #[expect(clippy::disallowed_types, reason = "a device that is full")]
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("a device"));

    assert_eq!(ends("group delete h0 h1", closed()), (Some(0), String::new()));
    assert_eq!(
        ends("group delete h2 nosuch h3", closed()).0,
        Some(7),
        "a failure is one without a reader, too"
    );
    let (code, error) = ends("group delete h4 h5", full());
    assert_eq!(code, Some(1));
    assert!(error.contains("No space left on device"), "{error}");
    assert_eq!(document(at, "group list"), json!([]));
    let trim = "topic trim closed --to-latest --execute";
    assert_eq!(ends(trim, closed()).0, Some(0));
    assert_eq!(column(&document(at, "topic offsets closed --earliest"), "offset"), [1]);
}

#[test]
fn a_topic_does_not_grow_if_its_settings_are_refused() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create altered --partitions 1");
    fails(at, "topic alter altered --partitions 3 --config nosuch=1", 1, "nosuch");
    let partitions = || document(at, "topic describe altered")[0]["partitions"].as_array().map(Vec::len);
    assert_eq!(partitions(), Some(1));
    output_of(at, "topic alter altered --partitions 3 --config retention.ms=1");
    assert_eq!(partitions(), Some(3));
}

#[test]
fn a_broker_that_does_not_answer_is_named_by_streams_and_the_console() {
    let mut broker = Broker::start();
    output_of(&broker.address, "topic create q --partitions 1");
    let dead = format!("127.0.0.1:{}", thalweg_ports::free_port());
    let starts = |arguments: &[&str]| {
        let mut command = thalweg("");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = RunningProcess(command.spawn().expect("the binary runs"));
        let errors = BufReader::new(running.0.stderr.take().expect("a pipe"));
        (running, errors.lines().map(|line| line.expect("text")))
    };
    let text = |address: &str| format!("kafka --topics=q --bootstrap={address} | log");
    let (_stream, mut errors) = starts(&["stream", "run", &text(&dead)]);
    name_within_seconds(&mut errors, &dead);
    // With SASL the client settings have no login: people bring theirs.
    for protocol in ["PLAINTEXT", "SASL_PLAINTEXT"] {
        let protocol = format!("security.protocol={protocol}");
        let line = ["console", "-b", &dead, "--listen", "localhost:0", "--set", &protocol];
        let (_console, mut errors) = starts(&line);
        name_within_seconds(&mut errors, &dead);
    }
    let (_stream, mut errors) = starts(&["stream", "run", &text(&broker.address)]);
    pause(Duration::from_secs(2));
    broker.kill();
    name_within_seconds(&mut errors, &broker.address);
}

fn name_within_seconds(errors: &mut impl Iterator<Item = String>, address: &str) {
    let began = now();
    let expected = format!("thalweg: Cannot connect to {address}: Connection refused");
    let said = errors.find(|line| line.starts_with(&expected));
    assert!(said.is_some_and(|line| line.ends_with("; trying again")), "{expected}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[expect(clippy::disallowed_methods, reason = "a person waits in the time of the world")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn a_member_without_partitions_is_at_the_end() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create one --partitions 1");
    for protocol in ["classic", "consumer"] {
        // One of the two gets the only partition.
        let line = format!("consume ^one -g {protocol} --group-protocol {protocol}");
        let _other = RunningProcess::start(thalweg(&line).env("THALWEG_BOOTSTRAP_SERVER", at));
        let line = format!("{line} -e");
        let mut member = RunningProcess::start(thalweg(&line).env("THALWEG_BOOTSTRAP_SERVER", at));
        until("its end", || member.0.try_wait().expect("ours").is_some());
        assert_eq!(member.exit_code(), Some(0), "{protocol}");
    }
}

#[test]
fn filters_that_can_match_nothing_are_refused() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create filtered --partitions 1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(write_in_a_transaction(at, "filtered", "tx"));
    let completed = document(at, "transaction list --in-state completecommit --in-state PREPARECOMMIT");
    assert_eq!(completed[0]["transactional_id"], "tx", "{completed}");
    fails(at, "transaction list --in-state Foo", 2, "possible values: Empty, Ongoing");
    fails(at, "group list --in-state Foo", 2, "possible values: Empty, Stable");
    fails(at, "transaction find-hanging --broker 7", 7, "There is no broker 7: these are 1");
}

#[test]
fn a_removal_that_removes_nothing_is_an_error() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create kept --partitions 1 --config retention.ms=1000");
    for line in [
        "topic alter kept --delete-config nosuch",
        "topic alter kept --delete-config cleanup.policy --delete-config nosuch",
        "config remove topic:kept retention.ms nosuch",
        "broker config remove all nosuch",
        "broker config remove 1 nosuch",
    ] {
        fails(at, line, 7, "nosuch is not set for ");
    }
    let settings = document(at, "config describe topic:kept");
    assert_eq!(settings[0]["name"], "retention.ms", "a refused change changes nothing: {settings}");
    output_of(at, "topic alter kept --delete-config retention.ms");
    output_of(at, "quota set --user ann producer_byte_rate=5");
    fails(at, "quota remove --user ann nosuch producer_byte_rate", 7, "There is no quota nosuch of user ann");
    output_of(at, "quota remove --user ann producer_byte_rate");
}

#[test]
fn a_dry_run_refuses_what_the_execution_would() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create cut --partitions 1");
    output_of(at, "topic create compacted --partitions 1 --config cleanup.policy=compact");
    produce(at, "cut", 3);
    for execute in ["", "--execute"] {
        let beyond = format!("topic trim cut --to-offset 9223372036854775807 {execute}");
        fails(at, &beyond, 1, "is after the end of cut-0: expected at most 3");
        fails(at, &format!("topic trim compacted --to-latest {execute}"), 1, "Topic compacted is compacted");
        fails(at, &format!("topic move cut --replicas 1,1 {execute}"), 2, "name a broker twice");
        fails(at, &format!("topic move cut --replicas 9 {execute}"), 7, "there is no broker 9");
    }
    let (trimmed, error) = outcomes(at, "topic trim cut compacted --to-latest --execute", 1);
    assert_eq!(column(&trimmed, "new_start_offset"), [3], "{error}");
}

#[test]
fn csv_is_csv_under_a_profile_with_another_format() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create exported --partitions 1");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "profile = \"p\"\n[profiles.p]\nformat = \"json\"\n").expect("written");
    let mut command = thalweg("group reset g --topic exported --to-earliest --csv");
    let (code, out, error) = run(command.env("THALWEG_CONFIG", &file).env("THALWEG_BOOTSTRAP_SERVER", at));
    assert_eq!((code, out.as_str()), (Some(0), "exported,0,0\n"), "{error}");
}

#[test]
fn what_does_not_exist_has_its_exit_code() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create one --partitions 1");
    for (line, reason) in [
        ("broker config describe 9", "9"),
        ("config set broker:9 a=b", "9"),
        ("broker log-level list 9", "9"),
        ("broker log-dirs 9", "9"),
        ("broker api-versions 9", "9"),
        ("broker unregister 9", "9"),
        ("transaction producers one --broker 9", "9"),
        ("consume one -p 9", "Topic one has no partition 9"),
        ("consume ^nomatch -e", "No topic matches ^nomatch"),
        ("group remove-members nosuch --all", "nosuch"),
        ("group remove-members nosuch --instance i", "nosuch"),
    ] {
        fails(at, line, 7, reason);
    }
}

#[test]
fn a_stage_without_an_address_uses_the_cluster_of_the_environment() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create written --partitions 1");
    let run_stream = |text: &str| {
        let mut command = thalweg("stream run");
        run(command.arg(text).env("THALWEG_BOOTSTRAP_SERVER", at))
    };
    let (code, _, error) =
        run_stream("load-generator --messageCount=3 --messageSize=1 | kafka --topic=written");
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(column(&document(at, "topic offsets written"), "offset"), [3]);
}

#[test]
fn a_throttled_producer_waits_instead_of_connecting_again() {
    let broker = Broker::start();
    let at = &broker.address;
    output_of(at, "topic create slow --partitions 1");
    output_of(at, "quota set --default client-id producer_byte_rate=20000");
    let lines = format!("{}\n", "x".repeat(999)).repeat(320);
    let line = "produce slow --set request.timeout.ms=1000 --set linger.ms=0 --set batch.size=16000";
    let (code, _, error) =
        run_with_input(thalweg(line).env("THALWEG_BOOTSTRAP_SERVER", at), lines.as_bytes());
    assert_eq!((code, error.contains("NETWORK_EXCEPTION")), (Some(0), false), "{error}");
    assert!(!error.contains("trying again"), "{error}");
    assert_eq!(column(&document(at, "topic offsets slow"), "offset"), [320]);
}
