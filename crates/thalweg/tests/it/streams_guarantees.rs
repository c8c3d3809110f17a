//! The guarantees of streams under failures: offsets wait for all sinks, also behind named destinations; bad
//! messages reach their topic, with the reason in headers; at most once is at most once; sinks retry.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use rustix::process::Signal;
use thalweg_ports::free_port;

use super::binary::{self, RunningProcess, pause, until};
use super::streams_kafka::{Broker, numbers, text};

/// Runs a stream to its end; returns standard output.
fn out(broker: &Broker, text: &str, options: &[&str], input: &[u8]) -> String {
    let (code, out, error) = binary::run_with_input(broker.stream(text).args(options), input);
    assert_eq!(code, Some(0), "{text}: {error}");
    out
}

/// Properties with a short session timeout.
fn short_session(broker: &Broker) -> String {
    let path = broker.dir.path().join("properties");
    std::fs::write(&path, "session.timeout.ms=6000\nheartbeat.interval.ms=500\n").expect("it can be written");
    format!("--properties={}", path.display())
}

#[test]
fn offsets_stay_until_the_sinks_behind_a_named_destination_have_acknowledged() {
    let broker = Broker::start();
    broker.produce(0..500);
    let session = short_session(&broker);
    let path = |name: &str| broker.dir.path().join(name);
    let nobody = format!("127.0.0.1:{}", free_port());
    let text_of_stream = |sink: &str, tap: &str| {
        format!(
            "a = kafka --topics=in --group=g {session} | topic:t\ntopic:t > {sink}\n\
             tap:stream:a > file --path={}",
            path(tap).display()
        )
    };
    // A sink that never accepts anything: nothing listens at its target.
    let stuck = text_of_stream(&format!("http --url=http://{nobody}/ --retryFor=1h"), "first");
    let first = RunningProcess::start(&mut broker.stream(&stuck));
    until("all to be read", || text(&path("first")).lines().count() >= 500);
    // Time for a wrong commit.
    pause(Duration::from_secs(1));
    first.signal(Signal::KILL);
    drop(first);
    let sound = text_of_stream(&format!("file --path={}", path("sink").display()), "second");
    let mut second = RunningProcess::start(&mut broker.stream(&sound));
    let seen = |name: &str| numbers(&text(&path(name))).into_iter().collect::<BTreeSet<u32>>();
    until("all of them again", || seen("sink").len() == 500);
    second.interrupt();
    assert_eq!(second.exit_code(), Some(0));
    // It has stopped cleanly and committed everything: the next gets only new records.
    broker.produce(500..510);
    let third = text_of_stream(&format!("file --path={}", path("third").display()), "fourth");
    let mut third = RunningProcess::start(&mut broker.stream(&third));
    until("what is new", || seen("third").len() == 10);
    third.interrupt();
    assert_eq!(third.exit_code(), Some(0));
    assert_eq!(seen("third"), (500..510).collect());
}

#[test]
fn headers_are_read_set_and_carried_unless_raw() {
    let broker = Broker::start();
    let write = "stdin | transform --headers='{\"n\": text, \"gone\": null, \"size\": size(text)}' | kafka --topic=in";
    out(&broker, write, &[], b"one\nthree\n");
    let copy = "kafka --topics=in --untilEnd=true | filter --expression=\"headers.n == 'three'\" \
                | transform --headers='{\"size\": null, \"more\": \"x\"}' | kafka --topic=out";
    out(&broker, copy, &[], b"");
    let read = |options: &str| {
        let text =
            format!("kafka --topics=out --untilEnd=true {options} | transform --expression=headers | stdout");
        out(&broker, &text, &[], b"")
    };
    assert_eq!(read(""), "{\"more\":\"x\",\"n\":\"three\"}\n");
    assert_eq!(read("--mode=raw"), "{}\n");
}

#[test]
fn bad_messages_go_to_a_topic_with_the_reason_in_headers() {
    let broker = Broker::start();
    let text_of_stream = "stdin | transform --key=text --headers='{\"from\": \"here\"}' \
                          | large: filter --expression='payload.n > 1' | stdout";
    let options =
        ["--on-error", "dead-letter:topic:out", "--bootstrap-server", &broker.broker.address, "--name", "s"];
    assert_eq!(out(&broker, text_of_stream, &options, b"{\"n\":1}\nbad\n{\"n\":2}\n"), "{\"n\":2}\n");
    let read = "kafka --topics=out --untilEnd=true \
                | transform --expression='{\"key\": key, \"value\": text, \"headers\": headers}' | stdout";
    let letters = out(&broker, read, &[], b"");
    let letter: serde_json::Value =
        serde_json::from_str(&letters).unwrap_or_else(|e| panic!("{e}: {letters}"));
    assert_eq!((&letter["key"], &letter["value"]), (&"bad".into(), &"bad".into()));
    let headers = &letter["headers"];
    assert_eq!(headers["from"], "here");
    assert_eq!(headers["thalweg.error.stage"], "large");
    assert_eq!(headers["thalweg.error.stream"], "s");
    assert!(
        headers["thalweg.error.reason"].as_str().is_some_and(|why| why.contains("not JSON")),
        "{headers}"
    );
}

#[test]
fn at_most_once_delivers_nothing_twice_after_a_kill() {
    let broker = Broker::start();
    let count = 8000;
    broker.produce(0..count);
    let session = short_session(&broker);
    let text_of_stream = format!(
        "kafka --topics=in --group=g {session} | rate-limit --rate=4000 --burst=100 | kafka --topic=out"
    );
    let start =
        || RunningProcess::start(broker.stream(&text_of_stream).args(["--guarantee", "at-most-once"]));
    let seen = || numbers(&out(&broker, "kafka --topics=out --untilEnd=true | stdout", &[], b""));
    let first = start();
    until("some records", || seen().len() > count as usize / 8);
    first.signal(Signal::KILL);
    drop(first);
    let mut second = start();
    // Records from now on are not lost. Partitions are read in order: after these, everything is done.
    broker.produce(count..count + 200);
    let last: BTreeSet<u32> = (count..count + 200).collect();
    until("the last records", || last.is_subset(&seen().into_iter().collect()));
    second.interrupt();
    assert_eq!(second.exit_code(), Some(0));
    let all = seen();
    let distinct: BTreeSet<u32> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len(), "a record came twice");
    let (code, _, error) = binary::run(binary::thalweg("stream run --guarantee twice").arg("time | log"));
    assert_eq!(code, Some(2));
    assert!(error.contains("use at-least-once, at-most-once or exactly-once"), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_for_a_while_loses_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (here, away) = (dir.path().join("here"), dir.path().join("away"));
    std::fs::create_dir(&here).expect("it can be made");
    let text_of_stream = format!("stdin | file --path={} --rollSize=1000", here.join("x.log").display());
    let mut running = RunningProcess::start(binary::thalweg("stream run").arg(&text_of_stream));
    let mut input = running.0.stdin.take().expect("it is a pipe");
    let lines =
        |numbers: std::ops::Range<u32>| numbers.map(|number| format!("{number}\n")).collect::<String>();
    input.write_all(lines(0..500).as_bytes()).expect("it reads");
    until("a file that was rolled", || here.join("x.1.log").exists());
    std::fs::rename(&here, &away).expect("it can be renamed");
    input.write_all(lines(500..1500).as_bytes()).expect("it reads");
    pause(Duration::from_millis(500));
    std::fs::rename(&away, &here).expect("it can be renamed");
    input.write_all(lines(1500..2000).as_bytes()).expect("it reads");
    drop(input);
    assert_eq!(running.exit_code(), Some(0));
    let files = std::fs::read_dir(&here).expect("it is there");
    let mut seen: Vec<u32> = files.flat_map(|file| numbers(&text(&file.expect("a file").path()))).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..2000).collect::<Vec<_>>());
}

#[test]
fn a_medium_that_stays_full_fails_the_stream_when_its_time_is_over() {
    let text_of_stream = "stdin | file --path=/dev/full --retryFor=300ms";
    let (code, _, error) =
        binary::run_with_input(binary::thalweg("stream run").arg(text_of_stream), b"a\nb\n");
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("Cannot write /dev/full: No space left"), "{error}");
    assert!(error.contains("retrying"), "{error}");
}

#[test]
fn results_of_an_aggregate_are_stored_before_their_messages_are_committed() {
    let broker = Broker::start();
    // The last key is first in the results, and its messages are the last.
    let lines: String = (0..300u64)
        .map(|n| format!("{{\"t\": {}, \"k\": \"{}\"}}\n", n * 100, (b'z' - (n / 20) as u8) as char))
        .chain(["{\"t\": 60000, \"k\": \"last\"}\n".to_owned()])
        .collect();
    let create = format!("topic create single --partitions 1 --bootstrap-server {}", broker.address());
    assert_eq!(binary::run(&mut binary::thalweg(&create)).0, Some(0));
    out(&broker, "stdin | kafka --topic=single", &[], lines.as_bytes());
    let session = short_session(&broker);
    let text_of_stream = |linger: &str| {
        format!(
            "kafka --topics=single --group=g {session} \
             | aggregate --window=1m --time=payload.t --key=payload.k | kafka --topic=out --linger={linger}"
        )
    };
    // The results stay in the producer.
    let first = RunningProcess::start(&mut broker.stream(&text_of_stream("2m")));
    pause(Duration::from_secs(6));
    first.signal(Signal::KILL);
    drop(first);
    let mut second = RunningProcess::start(&mut broker.stream(&text_of_stream("5ms")));
    let read = "kafka --topics=out --untilEnd=true | transform --expression='string(payload.count)' | stdout";
    until("all results", || numbers(&out(&broker, read, &[], b"")).into_iter().sum::<u32>() >= 300);
    second.interrupt();
    assert_eq!(second.exit_code(), Some(0));
}

#[test]
fn messages_inside_a_program_are_not_committed() {
    let broker = Broker::start();
    broker.produce(0..1000);
    let session = short_session(&broker);
    let text_of_stream = |program: &str, more: &str| {
        format!(
            "kafka --topics=in --group=g {session} | exec --command='{program}' {more} | kafka --topic=out"
        )
    };
    let refused = binary::run(&mut broker.stream(&text_of_stream("cat", "")));
    assert_eq!(refused.0, Some(2), "{}", refused.2);
    assert!(refused.2.contains("use --replies=each"), "{}", refused.2);
    // A program that answers the first messages only.
    let stuck = "for n in $(seq 100); do read -r l; echo \"$l\"; done; cat > /dev/null";
    let first = RunningProcess::start(&mut broker.stream(&text_of_stream(stuck, "--replies=each")));
    let seen = || {
        let lines = out(&broker, "kafka --topics=out --untilEnd=true | stdout", &[], b"");
        numbers(&lines).into_iter().collect::<BTreeSet<u32>>()
    };
    until("the first replies", || seen().len() >= 100);
    pause(Duration::from_secs(2));
    first.signal(Signal::KILL);
    drop(first);
    let mut second = RunningProcess::start(&mut broker.stream(&text_of_stream("cat", "--replies=each")));
    until("all of them", || seen().len() == 1000);
    second.interrupt();
    assert_eq!(second.exit_code(), Some(0));
}
