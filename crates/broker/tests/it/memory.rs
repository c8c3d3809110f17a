//! The memory of requests and answers over all connections, measured in a separate process.

use crate::child::ChildBroker;
use crate::records::{Topic, batch, fetch, fetch_partition, produce};
use crate::running::RunningBroker;
use bytes::{Buf, Bytes};
use std::net::SocketAddr;
use std::time::Duration;
use thalweg_dial::Connection;
use thalweg_net::{Handler, Reply};
use thalweg_wire::frame::encode_request;
use thalweg_wire::request::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

const MIB: usize = 1 << 20;
const FRAME_MAX: usize = 8 * MIB;
const BUDGET: usize = 32 * MIB;
/// Allowance of the process beyond the budget: the allocator's reserve, and serving itself.
const SLACK: u64 = 24 << 20;

const PROPERTIES: &[(&str, &str)] = &[
    ("socket.request.max.bytes", "8388608"),
    ("queued.max.request.bytes", "33554432"),
    ("message.max.bytes", "8388608"),
];

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("the broker listens")
}

/// Sends until the broker takes no more for a moment. Returns how much it took.
async fn send_part(stream: &mut TcpStream, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while sent < bytes.len() {
        match timeout(Duration::from_millis(30), stream.write(&bytes[sent..])).await {
            Ok(written) => sent += written.expect("the broker reads"),
            Err(_) => break,
        }
    }
    sent
}

/// Sends a frame without its last bytes, reports how much the broker took, and sends the rest and awaits the
/// answer once it may be complete. Meanwhile single bytes arrive, so that the frame does not count as
/// stalled, however long the others take.
async fn held_back(
    address: SocketAddr,
    frame: Bytes,
    report: mpsc::Sender<usize>,
    mut complete: watch::Receiver<bool>,
) {
    let mut stream = connect(address).await;
    let mut sent = send_part(&mut stream, &frame[..frame.len() - 1000]).await;
    report.send(sent).await.expect("the test waits for it");
    while timeout(Duration::from_millis(500), complete.wait_for(|complete| *complete)).await.is_err() {
        sent += send_part(&mut stream, &frame[sent..=sent]).await;
    }
    stream.write_all(&frame[sent..]).await.expect("the broker reads on");
    stream.read_i32().await.expect("an answer");
}

/// The broker's growth since `before`, at its highest.
fn grown(broker: &ChildBroker, before: u64) -> u64 {
    broker.memory("VmHWM").saturating_sub(before)
}

async fn is_served(client: &Connection) {
    let started = Instant::now();
    let answered = timeout(Duration::from_secs(5), client.send(&ApiVersionsRequest::default())).await;
    assert!(matches!(answered, Ok(Ok(_))), "a small request is not served after {:?}", started.elapsed());
}

fn large_frame(len: usize) -> Bytes {
    let topic = Topic::unknown();
    let frame = encode_request(&produce(9, &topic, 0, 1, batch(&[&vec![7; len]])), 9, 1, None);
    frame.expect("it fits")
}

/// Eight times the budget in frames of which the last bytes are missing: the broker takes no more than the
/// budget of them, others are served meanwhile, and each frame is served in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partial_requests_stay_within_their_budget() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = ChildBroker::start(dir.path(), PROPERTIES, None);
    let client = broker.client().await;
    is_served(&client).await;
    let before = broker.memory("VmRSS");
    let frame = large_frame(7 * MIB);
    let (complete, completion) = watch::channel(false);
    let (report, mut reports) = mpsc::channel(1);
    let senders: Vec<_> = (0..8 * BUDGET / FRAME_MAX)
        .map(|_| {
            let sender = held_back(broker.address, frame.clone(), report.clone(), completion.clone());
            tokio::spawn(sender)
        })
        .collect();
    let mut taken = 0;
    for _ in 0..senders.len() {
        taken += reports.recv().await.expect("a sender reports");
    }
    is_served(&client).await;
    assert!(taken > BUDGET / 2, "{taken} bytes were taken, too few to say anything");
    let grown_by = grown(&broker, before);
    assert!(grown_by < BUDGET as u64 + SLACK, "it grew by {} MiB", grown_by >> 20);
    // All are completed at once, each on its own task.
    complete.send_replace(true);
    for sender in senders {
        timeout(Duration::from_secs(60), sender).await.expect("every frame is completed").expect("no panic");
    }
    let grown_by = grown(&broker, before);
    assert!(grown_by < BUDGET as u64 + SLACK, "it grew by {} MiB", grown_by >> 20);
    broker.stop();
}

/// Frames that stop arriving lose their memory to others that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_requests_make_room_for_others() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = ChildBroker::start(dir.path(), PROPERTIES, None);
    let frame = large_frame(7 * MIB);
    let mut stalled = Vec::new();
    for _ in 0..2 * BUDGET / FRAME_MAX {
        let mut stream = connect(broker.address).await;
        send_part(&mut stream, &frame[..frame.len() - 1000]).await;
        stalled.push(stream);
    }
    let mut stream = connect(broker.address).await;
    let served = async {
        stream.write_all(&frame).await.expect("the broker reads");
        stream.read_i32().await.expect("an answer");
    };
    timeout(Duration::from_secs(60), served).await.expect("those that stalled are cut off");
    broker.stop();
}

/// What waits for its answer holds on to nothing of its request: a record that waits for acks is in the log
/// already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_let_go_of_their_frames() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = RunningBroker::start(dir.path(), &[("log.flush.interval.messages", "1")]).await;
    let topic = Topic::create(&broker, "topic", 1, &[]).await;
    let (handler, mut session) = broker.session();
    let produced = encode_request(&produce(9, &topic, 0, -1, batch(&[&[7; 5000]])), 9, 1, None);
    let poll = FetchRequest {
        max_wait_ms: 1000,
        min_bytes: 1 << 20,
        ..fetch(12, &topic, vec![fetch_partition(0, 0)])
    };
    let polled = encode_request(&poll, 12, 2, None);
    for mut frame in [produced.expect("it fits"), polled.expect("it fits")] {
        frame.advance(4);
        let reply = handler.handle(&mut session, frame.clone());
        let (Reply::Ordered(answer) | Reply::Later(answer)) = reply else { panic!("it has to wait") };
        assert!(frame.is_unique(), "the request is kept while its answer is awaited");
        assert!(matches!(answer.await, Reply::Now(_)));
    }
    broker.stop().await;
}
