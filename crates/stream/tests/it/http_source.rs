//! What clients of the `http` source receive, and when.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{Figures, RunningStreams, StreamEnd, start};
use tokio::runtime::Runtime;

use super::{Lines, options};

/// A generous timeout for busy machines.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream behind an `http` source.
struct ServedStream {
    runtime: Runtime,
    running: RunningStreams,
    address: String,
}

impl ServedStream {
    fn start(text: &str) -> ServedStream {
        let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
        let lines = Arc::new(Lines::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let options = options(lines.clone());
        let running = runtime.block_on(async { start(&plan, &options) });
        let running = running.unwrap_or_else(|error| panic!("{error}"));
        let said = lines.0.lock().expect("no test panics with the lock")[0].clone();
        let address = said.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
        let address = address.unwrap_or_else(|| panic!("an address in {said}")).0.to_owned();
        ServedStream { runtime, running, address }
    }

    /// Sends a request without reading the answer.
    fn send(&self, body: &str) -> TcpStream {
        self.send_to("/", body)
    }

    fn send_to(&self, target: &str, body: &str) -> TcpStream {
        let mut client = TcpStream::connect(&self.address).expect("it listens");
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}",
            body.len()
        );
        write!(client, "{head}\r\n\r\n{body}").expect("it reads");
        client
    }

    /// Sends a request and returns status and body.
    fn post(&self, body: &str) -> (u16, String) {
        answer(&mut self.send(body), PATIENCE).expect("it answers")
    }

    /// Stops it cleanly.
    fn stop(mut self) -> Figures {
        self.running.stopper().stop();
        self.runtime.block_on(self.running.ended()).unwrap_or_else(|error| panic!("{error}"));
        self.running.figures()
    }
}

/// An answer, if it arrives in time.
fn answer(client: &mut TcpStream, within: Duration) -> Option<(u16, String)> {
    client.set_read_timeout(Some(within)).expect("a timeout");
    let mut text = String::new();
    client.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("an answer: {text}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Some((status.expect("a status"), body.to_owned()))
}

#[test]
fn a_key_that_cannot_be_decoded_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("out");
    let served = ServedStream::start(&format!(
        "http --port=0 | transform --expression='{{\"k\": key, \"v\": text}}' | file --path={}",
        path.display()
    ));
    let post = |target: &str| answer(&mut served.send_to(target, "x"), PATIENCE).expect("it answers").0;
    for (target, status) in [
        ("/?key=a%20b", 200),
        ("/?key=%zz", 400),
        ("/?key=%4", 400),
        ("/?key=%", 400),
        ("/?key=%+4", 400),
        ("/", 200),
    ] {
        assert_eq!(post(target), status, "{target}");
    }
    served.stop();
    let stored = std::fs::read_to_string(path).expect("it is there");
    assert_eq!(stored, "{\"k\":\"a b\",\"v\":\"x\"}\n{\"k\":null,\"v\":\"x\"}\n");
}

#[test]
fn a_file_is_rolled_on_time_without_a_further_message() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let text = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    let served = ServedStream::start(&format!(
        "http --port=0 | file --path={} --rollEvery=300ms --sync=true",
        path("x.log").display()
    ));
    let pause = |ms| served.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(ms)).await });
    assert_eq!(served.post("1").0, 200);
    let until = now() + PATIENCE;
    while text("x.1.log") != "1\n" {
        assert!(now() < until, "the file is not rolled: {:?}", text("x.log"));
        pause(20);
    }
    pause(1000);
    assert!(!path("x.2.log").exists(), "an empty file is not rolled");
    assert_eq!(served.post("2").0, 200);
    served.stop();
    assert_eq!(text("x.log") + &text("x.2.log"), "2\n");
}

/// A file that rejects all writes, like one on a full medium.
const FULL: &str = "/dev/full";

#[test]
fn requests_wait_while_their_message_cannot_be_stored() {
    let served = ServedStream::start(&format!("http --port=0 | file --path={FULL}"));
    let answered = answer(&mut served.send("x"), Duration::from_secs(1));
    assert_eq!(answered, None, "nothing is stored");
}

#[test]
fn requests_behind_a_full_medium_end_with_504_and_503() {
    let served = ServedStream::start(&format!("http --port=0 --timeout=300ms | file --path={FULL}"));
    // The stream accepts the first and tries to store it; meanwhile it accepts no other.
    let (status, text) = served.post("first");
    assert_eq!(status, 504, "{text}");
    assert_eq!(text, "The message was not stored within 300 ms; it may still be stored\n");
    let (status, text) = served.post("second");
    assert_eq!(status, 503, "{text}");
    assert_eq!(text, "The message was not accepted: the stream is busy\n");
}

#[test]
fn messages_are_in_the_file_when_their_requests_are_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("stored");
    let ways = [
        format!("http --port=0 | file --path={}", path.display()),
        // Through a topic in memory: the answer must not be delayed by the commit interval.
        format!("http --port=0 | topic:t\ntopic:t > file --path={}", path.display()),
    ];
    for text in ways {
        let _ = std::fs::remove_file(&path);
        let served = ServedStream::start(&text);
        let mut expected = String::new();
        let started = now();
        for number in 0..20 {
            assert_eq!(served.post(&number.to_string()), (200, String::new()));
            expected.push_str(&format!("{number}\n"));
            let stored = std::fs::read_to_string(&path).expect("it is there");
            assert_eq!(stored, expected, "{text}");
            let figures = served.running.figures();
            let counts = figures.streams.iter().flat_map(|stream| &stream.stages);
            assert!(counts.map(|stage| stage.messages_out).all(|count| count == number + 1), "{figures:?}");
        }
        assert!(started.elapsed() < PATIENCE / 3, "{:?}", started.elapsed());
        served.stop();
    }
}

#[test]
fn streams_that_store_nothing_answer_202_when_the_message_has_passed() {
    for text in ["http --port=0 | null", "http --port=0 | aggregate --window=1h | file --path=/dev/null"] {
        let served = ServedStream::start(text);
        for number in 1..=3 {
            assert_eq!(served.post("{}"), (202, String::new()), "{text}");
            let figures = served.running.figures();
            assert_eq!(figures.streams[0].stages[0].messages_out, number, "{figures:?}");
        }
        let figures = served.stop();
        assert_eq!(figures.streams[0].ended, Some(StreamEnd::Stopped));
    }
}

#[test]
fn requests_that_wait_are_answered_when_the_stream_stops() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("stored");
    let text = format!("http --port=0 | batch --size=10 --timeout=1h | file --path={}", path.display());
    let served = ServedStream::start(&text);
    let mut clients = [served.send("a"), served.send("b")];
    // A batch of ten is incomplete: both wait.
    assert_eq!(answer(&mut clients[0], Duration::from_millis(500)), None);
    served.stop();
    assert_eq!(answer(&mut clients[1], PATIENCE), Some((200, String::new())));
    let stored = std::fs::read_to_string(&path).expect("it is there");
    assert!(["a\nb\n", "b\na\n"].contains(&&*stored), "{stored}");
}

#[test]
fn requests_of_a_stream_that_fails_are_answered_with_500() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("stored");
    let text = format!("http --port=0 | filter --expression=payload.x | file --path={}", path.display());
    let mut served = ServedStream::start(&text);
    let mut client = served.send("no JSON");
    served.runtime.block_on(served.running.ended()).expect_err("a message cannot be worked on");
    let (status, text) = answer(&mut client, PATIENCE).expect("it answers");
    assert_eq!(status, 500);
    assert_eq!(text, "The stream failed after accepting the message, which may or may not be stored\n");
}

#[expect(clippy::disallowed_methods, reason = "clients wait in real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
