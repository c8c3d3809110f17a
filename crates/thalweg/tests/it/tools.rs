//! `produce` and `consume`: output equals input, and nothing is lost.

use crate::binary::{Broker, run, thalweg};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

/// A command of the tools against `broker`.
fn to(broker: &Broker, line: &str) -> Command {
    let mut command = thalweg(line);
    command.env("THALWEG_BOOTSTRAP_SERVER", &broker.address);
    command
}

/// A topic of that name, with one partition.
fn create(broker: &Broker, topic: &str) {
    let (code, _, error) = run(&mut to(broker, &format!("topic create {topic}")));
    assert_eq!((code, error.as_str()), (Some(0), ""));
}

/// Starts a `produce` that reads from a pipe.
fn producing(broker: &Broker, line: &str) -> Child {
    let mut command = to(broker, line);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the binary runs")
}

/// Pipes `input` into a `produce`: its exit code and output.
fn produce(broker: &Broker, line: &str, input: &[u8]) -> (Option<i32>, String) {
    let mut child = producing(broker, line);
    // A process that has exited has reported why.
    let _ = child.stdin.take().expect("it is a pipe").write_all(input);
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

/// All values of the topic, one per line.
fn values(broker: &Broker, topic: &str) -> Vec<u8> {
    let mut command = to(broker, &format!("consume {topic} --from-beginning --until-end"));
    command.output().expect("the binary runs").stdout
}

fn is(code: i32, error: &str) -> (Option<i32>, String) {
    (Some(code), error.to_owned())
}

#[test]
fn lines_are_bytes_and_arrive_as_they_are() {
    let broker = Broker::start();
    create(&broker, "lines");
    let input = b"caf\xe9\n\xff\xfe\x00\r\n\ntab\tin\n\xc3\xa9 without an end";
    assert_eq!(produce(&broker, "produce lines", input), is(0, ""));
    assert_eq!(values(&broker, "lines"), b"caf\xe9\n\xff\xfe\x00\n\ntab\tin\n\xc3\xa9 without an end\n");
}

#[test]
fn a_line_that_cannot_be_sent_is_named_and_those_before_it_are_sent() {
    let broker = Broker::start();
    create(&broker, "keyed");
    let (code, error) = produce(&broker, "produce keyed --key-separator :", b"a:1\nb:2\nno key\nd:4\n");
    let expected = "thalweg: Line 3: \"no key\" has no \":\" after a key, which --key-separator requires\n";
    assert_eq!((code, error.as_str()), (Some(2), expected));
    assert_eq!(values(&broker, "keyed"), b"1\n2\n");
    create(&broker, "long");
    let small = "produce long --set max.request.size=1000";
    let (code, error) = produce(&broker, small, &[b"short\n", &[b'x'; 5000][..], b"\nafter\n"].concat());
    let expected = "thalweg: Line 2 is longer than max.request.size=1000 bytes\n";
    assert_eq!((code, error.as_str()), (Some(1), expected));
    let nearly = [&[b'x'; 990][..], b"\n"].concat();
    let (code, error) = produce(&broker, small, &nearly);
    assert_eq!(code, Some(1));
    assert!(error.starts_with("thalweg: Line 1: A record of 1"), "{error}");
    assert_eq!(values(&broker, "long"), b"short\n");
}

#[test]
fn an_interrupt_sends_the_lines_read() {
    let broker = Broker::start();
    create(&broker, "interrupted");
    let mut child =
        producing(&broker, "produce interrupted --set linger.ms=3600000 --set delivery.timeout.ms=7200000");
    let mut input = child.stdin.take().expect("it is a pipe");
    // The pipe holds less than this, so the first lines have been read when the last ones are written.
    for number in 0..100_000 {
        writeln!(input, "{number}").expect("it reads");
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let output = child.wait_with_output().expect("it ends");
    drop(input);
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).expect("text")), is(0, ""));
    let values = String::from_utf8(values(&broker, "interrupted")).expect("text");
    let sent: Vec<usize> = values.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(sent.len() > 10_000 && sent.iter().enumerate().all(|(at, value)| at == *value), "{}", sent.len());
}

#[test]
fn a_group_resumes_after_the_last_printed_record() {
    let broker = Broker::start();
    create(&broker, "numbers");
    let numbers: String = (0..1000).map(|number| format!("{number}\n")).collect();
    assert_eq!(produce(&broker, "produce numbers", numbers.as_bytes()), is(0, ""));
    let consume = "consume numbers --group readers --from-beginning --max-messages 3";
    for expected in ["0\n1\n2\n", "3\n4\n5\n"] {
        let (code, out, error) = run(&mut to(&broker, consume));
        assert_eq!((code, out.as_str(), error.as_str()), (Some(0), expected, ""));
    }
    // A reader that disconnects does not lose records that it did not receive.
    let mut child = to(&broker, "consume numbers --group readers")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    let (_, out, _) = run(&mut to(&broker, consume));
    assert_eq!(out, "6\n7\n8\n");
}

#[test]
fn a_delivery_that_fails_ends_produce_before_its_input_does() {
    let broker = Broker::start();
    create(&broker, "t");
    let mut child = producing(
        &broker,
        "produce t --set delivery.timeout.ms=300 --set request.timeout.ms=200 --set linger.ms=0",
    );
    let mut input = child.stdin.take().expect("it is a pipe");
    writeln!(input, "sent").expect("it reads");
    while values(&broker, "t") != b"sent\n" {}
    drop(broker);
    writeln!(input, "lost").expect("it reads");
    let mut said = String::new();
    BufReader::new(child.stderr.take().expect("it is a pipe")).read_line(&mut said).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "{said}");
    drop(input);
}
