//! What clients of the `http` source receive, and when.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use thalweg_stream::plan::Plan;
use thalweg_stream::runtime::{Figures, RunOptions, RunningStreams, StreamEnd, start};
use thalweg_stream::{Cluster, OnError};
use tokio::runtime::Runtime;
use tokio::time::timeout;

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
        ServedStream::start_with(text, OnError::Fail)
    }

    fn start_with(text: &str, on_error: OnError) -> ServedStream {
        ServedStream::start_on(text, on_error, options(Arc::default()).cluster)
    }

    fn start_on(text: &str, on_error: OnError, cluster: Cluster) -> ServedStream {
        let plan = Plan::read(text, None, "s").unwrap_or_else(|error| panic!("{error}"));
        let lines = Arc::new(Lines::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let options = RunOptions { on_error, cluster, ..options(lines.clone()) };
        let running = runtime.block_on(async { start(&plan, &options) });
        let running = running.unwrap_or_else(|error| panic!("{error}"));
        let said = lines.0.lock().expect("no test panics with the lock")[0].clone();
        let address = said.split_once("http://").and_then(|(_, rest)| rest.split_once('/'));
        let address = address.unwrap_or_else(|| panic!("an address in {said}")).0.to_owned();
        ServedStream { runtime, running, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("it listens")
    }

    /// Sends a request without reading the answer.
    fn send(&self, body: &str) -> TcpStream {
        self.send_to("/", body)
    }

    fn send_to(&self, target: &str, body: &str) -> TcpStream {
        let mut client = self.connect();
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
fn a_bad_message_goes_back_to_its_sender_and_the_stream_continues() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, letters) = (dir.path().join("stored"), dir.path().join("letters"));
    let reason = "The message was refused: filter: it is not JSON";
    for on_error in [OnError::Fail, OnError::Skip, OnError::DeadLetter(letters.clone())] {
        let _ = std::fs::remove_file(&path);
        let text = format!(
            "http --port=0 | splitter --delimiter=, | filter --expression='payload.x > 0' | file --path={}",
            path.display()
        );
        let served = ServedStream::start_with(&text, on_error.clone());
        assert_eq!(served.post("{\"x\": 1}"), (200, String::new()));
        let (status, text) = served.post("no JSON,{\"x\": 2},nor this");
        assert_eq!(status, 422, "{text}");
        assert!(text.starts_with(reason), "{text}");
        assert_eq!(text.contains("it is a dead letter"), letters.exists(), "{text}");
        assert_eq!(served.post("{\"x\": 0}"), (200, String::new()), "a filtered message is no bad one");
        let figures = served.stop();
        assert_eq!((figures.streams[0].bad, &figures.streams[0].ended), (2, &Some(StreamEnd::Stopped)));
        let stored = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(stored, "{\"x\": 1}\n{\"x\": 2}\n");
    }
    assert_eq!(std::fs::read_to_string(letters).expect("it is there").lines().count(), 2);
}

#[test]
fn a_bad_message_of_a_stream_that_stores_nothing_goes_back_too() {
    let served = ServedStream::start("http --port=0 | filter --expression='payload.x > 0' | null");
    for _ in 0..2 {
        assert_eq!(served.post("{\"x\": 1}").0, 202);
        assert_eq!(served.post("no JSON").0, 422);
    }
    served.stop();
}

#[test]
fn connections_beyond_the_limit_get_503_and_free_places_are_used_again() {
    let served = ServedStream::start("http --port=0 --connections=3 | null");
    let mut silent: Vec<TcpStream> = (0..3).map(|_| served.connect()).collect();
    assert_eq!(served.post("x").0, 503);
    let (_, text) = served.post("x");
    assert!(text.contains("all 3 connections of the source are in use (--connections)"), "{text}");
    // A client that has not sent its request yet reads the answer, too.
    let (status, _) = answer(&mut served.connect(), PATIENCE).expect("it answers");
    assert_eq!(status, 503);
    silent.pop();
    let until = now() + PATIENCE;
    while served.post("x").0 != 202 {
        assert!(now() < until, "the place is not free");
    }
    served.stop();
}

#[test]
fn unfinished_requests_leave_descriptors_to_the_process() {
    let served = ServedStream::start("http --port=0 | null");
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("it is Linux").count();
    let before = descriptors();
    let mut clients = Vec::new();
    for _ in 0..400 {
        let mut client = served.connect();
        write!(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n").expect("it reads");
        clients.push(client);
    }
    served.runtime.block_on(async { tokio::time::sleep(Duration::from_secs(3)).await });
    let taken = descriptors() - before - clients.len();
    // Other tests of this process open files meanwhile.
    assert!(taken <= 256 + 100, "{taken} of 400");
}

#[test]
fn the_time_behind_the_last_message_is_in_no_total() {
    let served = ServedStream::start("http --port=0 | throughput");
    for _ in 0..2 {
        assert_eq!(served.post("x").0, 202);
    }
    let pause = || served.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1500)).await });
    pause();
    let seconds =
        |figures: &Figures| figures.streams[0].stages[1].findings["seconds"].as_f64().expect("a number");
    let figures = served.running.figures();
    assert!(seconds(&figures) < 1.2, "{figures:?}");
    let meters = served.running.meters();
    let figures = served.stop();
    assert!(seconds(&figures) < 1.2, "{figures:?}");
    let later = meters.figures();
    assert_eq!(later.elapsed, figures.elapsed, "the stream has ended");
}

#[test]
fn requests_of_a_stream_that_fails_are_answered_with_500() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("stored");
    let text = format!(
        "http --port=0 | topic:t\ntopic:t > filter --expression=payload.x | file --path={}",
        path.display()
    );
    let mut served = ServedStream::start(&text);
    let mut client = served.send("no JSON");
    served.runtime.block_on(served.running.ended()).expect_err("a message cannot be worked on");
    let (status, text) = answer(&mut client, PATIENCE).expect("it answers");
    assert_eq!(status, 500);
    assert_eq!(text, "The stream failed after accepting the message, which may or may not be stored\n");
}

/// Sends requests at once, and returns their clients.
fn send_many(served: &ServedStream, count: usize) -> Vec<TcpStream> {
    (0..count).map(|number| served.send(&number.to_string())).collect()
}

/// The statuses of all answers. A connection that is closed without an answer has none.
fn statuses(clients: &mut [TcpStream]) -> Vec<Option<u16>> {
    let status = |client: &mut TcpStream| {
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut text = String::new();
        client.read_to_string(&mut text).ok()?;
        text.split(' ').nth(1)?.parse().ok()
    };
    clients.iter_mut().map(status).collect()
}

#[test]
fn all_clients_of_a_stream_that_fails_are_answered() {
    // Port 1 takes no connections.
    let mut served = ServedStream::start(
        "http --port=0 | batch --size=12 --timeout=1h | http --url=http://127.0.0.1:1/ --retryFor=1ms",
    );
    let mut clients = send_many(&served, 14);
    served.runtime.block_on(served.running.ended()).expect_err("the server cannot be reached");
    let statuses = statuses(&mut clients);
    let count = |status| statuses.iter().filter(|answered| **answered == Some(status)).count();
    assert_eq!((count(500) + count(503), count(500) >= 12), (14, true), "{statuses:?}");
}

#[test]
fn all_clients_of_a_full_stream_that_stops_are_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let served = ServedStream::start(&format!(
        "http --port=0 | rate-limit --rate=0.5 --burst=1 | file --path={}",
        dir.path().join("stored").display()
    ));
    assert_eq!(served.post("first").0, 200);
    let mut clients = send_many(&served, 20);
    served.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(500)).await });
    served.stop();
    let statuses = statuses(&mut clients);
    assert!(statuses.iter().all(|status| matches!(status, Some(200 | 503))), "{statuses:?}");
}

#[test]
fn a_refusal_after_the_answer_is_left_to_the_policy() {
    let dir = tempfile::tempdir().expect("a directory");
    let rest =
        format!("filter --expression='payload.x > 0' | file --path={}", dir.path().join("x").display());
    let ways = [
        (202, "http --port=0 | exec --replies=each --command='sleep 1; cat'"),
        (504, "http --port=0 --timeout=300ms | rate-limit --rate=1 --burst=1"),
    ];
    for (status, text) in ways {
        let text = format!("{text} | {rest}");
        let mut served = ServedStream::start(&text);
        served.post("{\"x\": 1}");
        assert_eq!(served.post("no JSON").0, status, "{text}");
        let ended = served.runtime.block_on(async { timeout(PATIENCE, served.running.ended()).await });
        let failed = ended.expect("it fails").expect_err("the policy is to fail").to_string();
        assert!(failed.contains("filter: Bad message: it is not JSON"), "{failed}");

        let served = ServedStream::start_with(&text, OnError::Skip);
        served.post("{\"x\": 1}");
        assert_eq!(served.post("no JSON").0, status, "{text}");
        assert_eq!(served.stop().streams[0].bad, 1);
    }
}

#[test]
fn clients_that_disconnect_do_not_stop_the_stream() {
    let dir = tempfile::tempdir().expect("a directory");
    let served = ServedStream::start(&format!(
        "http --port=0 | rate-limit --rate=2 --burst=1 | filter --expression='payload.x > 0' | file --path={}",
        dir.path().join("x").display()
    ));
    assert_eq!(served.post("{\"x\": 1}").0, 200);
    let client = served.send("no JSON");
    served.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
    drop(client);
    assert_eq!(served.post("{\"x\": 2}").0, 200);
    assert_eq!(served.stop().streams[0].bad, 1);
}

#[test]
fn a_dead_letter_is_stored_before_its_sender_has_an_answer() {
    let plan = "http --port=0 --timeout=1s | filter --expression='payload.x > 0' | null";
    // Port 1 takes no connections.
    let cluster = Cluster { bootstrap: "127.0.0.1:1".to_owned(), properties: None };
    let served = ServedStream::start_on(plan, OnError::DeadLetterTopic("letters".to_owned()), cluster);
    let (status, text) = served.post("no JSON");
    assert_eq!(status, 504, "{text}");
}

#[test]
fn slow_uploads_leave_room_for_others() {
    let served = ServedStream::start("http --port=0 --maxSize=64MiB --timeout=2s | null");
    let mut slow = served.connect();
    write!(slow, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\nx").expect("it reads");
    served.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(300)).await });
    assert_eq!(served.post("y").0, 202);
    // Bodies that together exceed the budget do not block each other.
    let body = "x".repeat(40 << 20);
    let posts: Vec<u16> = std::thread::scope(|scope| {
        let posts: Vec<_> = (0..3).map(|_| scope.spawn(|| served.post(&body).0)).collect();
        posts.into_iter().map(|post| post.join().expect("it answers")).collect()
    });
    assert_eq!(posts, [202; 3]);
}

#[expect(clippy::disallowed_methods, reason = "clients wait in real time")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
