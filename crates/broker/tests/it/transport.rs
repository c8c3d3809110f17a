//! The listener alone, with services of the test: how much it does for a peer that does not read, and how
//! long it waits for one that is slow.

use bytes::{Bytes, BytesMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_log::LogSlice;
use thalweg_log::disk::{Disk, LogFile};
use thalweg_net::{
    AnswerMemory, ConnectionSettings, Connections, Frame, FrameMemory, FrameSegment, Handler, Network, Peer,
    Reply, SocketOptions,
};
use thalweg_security::quota::{ConnectionLimits, Window};
use thalweg_watch as watch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

const ANSWER_LEN: usize = 256 * 1024;
const REQUESTS: usize = 2000;

/// Answers each request with 256 KiB of its first byte.
#[derive(Clone)]
struct Generous {
    served: Arc<AtomicUsize>,
    /// Whether answers are delayed, in order.
    later: bool,
}

impl Handler for Generous {
    type Session = ();

    fn open(&self, _: Arc<Peer>) {}

    fn handle(&self, (): &mut (), frame: Bytes) -> Reply {
        self.served.fetch_add(1, Ordering::Relaxed);
        let mut answer = BytesMut::zeroed(ANSWER_LEN);
        answer.fill(frame[0]);
        let frame = Frame::bytes(answer.freeze());
        if self.later {
            return Reply::Ordered(Box::pin(async move {
                tokio::task::yield_now().await;
                Reply::Now(frame)
            }));
        }
        Reply::Now(frame)
    }
}

/// A listener that serves until it is stopped.
struct ServedListener {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
}

impl ServedListener {
    fn start<H: Handler + Sync>(handler: H, settings: ConnectionSettings) -> ServedListener {
        let options = SocketOptions { backlog: 16, receive_buffer_bytes: Some(64 * 1024) };
        let listening = Network::tcp().bind("TEST", "127.0.0.1", 0, options).expect("a free port");
        let address = listening.addresses()[0];
        let (stop, stopping) = watch::channel(false);
        let limits = ConnectionLimits { connections: 20, per_ip: 20, per_second: 20, ..Default::default() };
        let window = Window::new(11, Duration::from_secs(1));
        let limits = Connections::new(window, limits, None, Default::default());
        let server = tokio::spawn(listening.serve(handler, settings, limits, stopping));
        ServedListener { address, stop, server }
    }

    async fn connect(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        // Else the kernel takes answers for a peer that reads none.
        socket.set_recv_buffer_size(64 * 1024).expect("a size that may be");
        socket.connect(self.address).await.expect("it listens")
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.server.await.expect("no panic");
    }
}

fn settings(frame_max: usize, idle_max: Duration) -> ConnectionSettings {
    let memory = FrameMemory::new(64 << 20, frame_max);
    let answers = AnswerMemory::new(64 << 20);
    ConnectionSettings {
        frame_max,
        idle_max,
        memory,
        answers,
        send_buffer_bytes: Some(64 * 1024),
        flow: thalweg_net::Flow::default(),
    }
}

async fn deaf_peer(later: bool) {
    let served = Arc::new(AtomicUsize::new(0));
    let handler = Generous { served: Arc::clone(&served), later };
    let server = ServedListener::start(handler, settings(1000, Duration::from_secs(60)));

    let mut peer = server.connect().await;
    let mut requests = Vec::new();
    for number in 0..REQUESTS {
        requests.extend_from_slice(&1u32.to_be_bytes());
        requests.push(number as u8);
    }
    peer.write_all(&requests).await.expect("they fit into the socket's buffers");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let unheard = served.load(Ordering::Relaxed);
    // The content of both sockets, the answers that may wait, and no more.
    assert!(unheard <= 150, "{unheard} answers were made for a peer that reads none");

    let mut answer = vec![0; ANSWER_LEN];
    for number in 0..REQUESTS {
        peer.read_exact(&mut answer).await.expect("an answer");
        assert!(answer.iter().all(|byte| *byte == number as u8), "the answers come in order, whole");
    }
    assert_eq!(served.load(Ordering::Relaxed), REQUESTS);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_for_a_peer_that_does_not_read_are_not_made() {
    deaf_peer(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_come_later_are_bounded_as_well() {
    deaf_peer(true).await;
}

const IDLE: Duration = Duration::from_millis(700);

/// Answers each request with 8 MiB, from memory or from a file.
#[derive(Clone)]
struct Huge(Option<Arc<LogFile>>);

const HUGE_LEN: usize = 8 << 20;

impl Handler for Huge {
    type Session = ();

    fn open(&self, _: Arc<Peer>) {}

    fn handle(&self, (): &mut (), _: Bytes) -> Reply {
        let segment = match &self.0 {
            None => FrameSegment::Bytes(BytesMut::zeroed(HUGE_LEN).freeze()),
            Some(file) => {
                let (file, end_offset) = (Arc::clone(file), thalweg_record::Offset(1));
                FrameSegment::File(LogSlice { file, position: 0, len: HUGE_LEN, end_offset })
            }
        };
        Reply::Now(Frame(vec![segment]))
    }
}

/// Reads an answer for several times as long as a connection may be idle, with pauses that are shorter.
async fn slow_reader(handler: Huge) {
    let server = ServedListener::start(handler, settings(1000, IDLE));
    let mut peer = server.connect().await;
    peer.write_all(&[0, 0, 0, 1, 7]).await.expect("the listener reads");
    let started = Instant::now();
    let (mut received, mut part) = (0, vec![0; 256 * 1024]);
    while received < HUGE_LEN {
        let read = peer.read(&mut part).await.expect("the connection goes on");
        assert!(read > 0, "cut off after {received} bytes and {:?}", started.elapsed());
        received += read;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    assert!(started.elapsed() > 2 * IDLE, "it was no slow reader");
    // One that reads nothing is cut off.
    peer.write_all(&[0, 0, 0, 1, 7]).await.expect("the listener reads");
    tokio::time::sleep(3 * IDLE).await;
    let mut left = 0;
    while let Ok(read @ 1..) = peer.read(&mut part).await {
        left += read;
    }
    assert!(left < HUGE_LEN, "the connection ended before the answer did");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_are_not_idle() {
    slow_reader(Huge(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_of_files_are_not_idle() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = Disk::real().open_or_create(&dir.path().join("file")).expect("it can be created");
    file.write_all_at(&vec![0; HUGE_LEN], 0).expect("there is room");
    slow_reader(Huge(Some(Arc::new(file)))).await;
}

/// Answers with the parts that a request lists, in 4 bytes each: bytes in memory and slices of a file by
/// turns.
#[derive(Clone)]
struct Parts(Arc<LogFile>);

const PARTS_FILE_LEN: usize = 1 << 20;

fn parts_of(request: &[u8]) -> impl Iterator<Item = (usize, bool)> {
    let lengths =
        request.chunks_exact(4).map(|length| u32::from_be_bytes(length.try_into().expect("4 bytes")));
    lengths.enumerate().map(|(index, length)| (length as usize, index % 2 == 1))
}

/// What the file has at a position.
fn content(position: usize) -> u8 {
    (position % 251) as u8
}

impl Handler for Parts {
    type Session = ();

    fn open(&self, _: Arc<Peer>) {}

    fn handle(&self, (): &mut (), request: Bytes) -> Reply {
        let mut position = 0;
        let segments = parts_of(&request).map(|(len, is_slice)| {
            if !is_slice {
                return FrameSegment::Bytes(BytesMut::zeroed(len).freeze());
            }
            let (file, end_offset) = (Arc::clone(&self.0), thalweg_record::Offset(1));
            let slice = LogSlice { file, position: position as u64, len, end_offset };
            position += len;
            FrameSegment::File(slice)
        });
        Reply::Now(Frame(segments.collect()))
    }
}

async fn request_parts(peer: &mut TcpStream, lengths: &[usize]) {
    let mut request = BytesMut::new();
    for length in [4 * lengths.len()].iter().chain(lengths) {
        request.extend_from_slice(&u32::try_from(*length).expect("small").to_be_bytes());
    }
    peer.write_all(&request).await.expect("the listener reads");
}

fn expected_parts(lengths: &[usize]) -> Vec<u8> {
    let (mut expected, mut position) = (Vec::new(), 0);
    for (index, length) in lengths.iter().enumerate() {
        match index % 2 {
            0 => expected.resize(expected.len() + length, 0),
            _ => {
                expected.extend((position..position + length).map(content));
                position += length;
            }
        }
    }
    expected
}

/// Small slices leave from memory, large ones by sendfile, and none of it shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_arrive_whole_whatever_the_size_of_their_slices() {
    const SMALL: usize = 16 * 1024;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = Disk::real().open_or_create(&dir.path().join("file")).expect("it can be created");
    file.write_all_at(&(0..PARTS_FILE_LEN).map(content).collect::<Vec<_>>(), 0).expect("there is room");
    let server = ServedListener::start(Parts(Arc::new(file)), settings(10_000, IDLE));
    let mut peer = server.connect().await;
    let many: Vec<usize> = (0..600).map(|index| 1 + index * 37 % 997).collect();
    let shapes: Vec<Vec<usize>> = vec![
        vec![80, 200],
        vec![80, 200, 3],
        vec![0, 1, 0, 1, 0],
        vec![80, SMALL, 3],
        vec![80, SMALL + 1, 3],
        vec![SMALL, SMALL, SMALL, SMALL, SMALL, SMALL],
        vec![80, SMALL + 1, 40, 200, 40, 200_000, 40, 1, 3],
        vec![100_000, 10, 100_000, 10, 3],
        vec![30, 600_000],
        many,
    ];
    for shape in &shapes {
        request_parts(&mut peer, shape).await;
    }
    for shape in &shapes {
        let expected = expected_parts(shape);
        let mut received = vec![0; expected.len()];
        peer.read_exact(&mut received).await.expect("the whole answer");
        assert!(received == expected, "an answer of {:?}", &shape[..shape.len().min(10)]);
    }
    // A slice that the file does not have any more: the connection ends with what was announced missing.
    request_parts(&mut peer, &[10, PARTS_FILE_LEN - 50, 10, 100, 3]).await;
    let mut received = Vec::new();
    let _ = peer.read_to_end(&mut received).await;
    assert!(received.len() < PARTS_FILE_LEN + 73, "{} bytes", received.len());
    server.stop().await;
}

/// Answers that are not read: their total memory is limited, and clients that read are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_stay_within_their_bound() {
    const MAX: usize = 4 * HUGE_LEN;
    let answers = AnswerMemory::new(MAX);
    let settings = ConnectionSettings { answers: answers.clone(), ..settings(1000, Duration::from_secs(60)) };
    let server = ServedListener::start(Huge(None), settings);
    let mut deaf = Vec::new();
    for _ in 0..12 {
        let mut peer = server.connect().await;
        peer.write_all(&[0, 0, 0, 1, 7]).await.expect("the listener reads");
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(answers.used() <= MAX, "{} bytes are held", answers.used());
        deaf.push(peer);
    }
    assert!(answers.used() > MAX / 2, "{} bytes are held, which bounds nothing", answers.used());
    let mut peer = server.connect().await;
    peer.write_all(&[0, 0, 0, 1, 7]).await.expect("the listener reads");
    let mut answer = vec![1; HUGE_LEN];
    peer.read_exact(&mut answer).await.expect("one that reads gets its answer");
    server.stop().await;
    assert_eq!(answers.used(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_senders_are_not_idle() {
    let served = Arc::new(AtomicUsize::new(0));
    let handler = Generous { served: Arc::clone(&served), later: false };
    let server = ServedListener::start(handler, settings(4 << 20, IDLE));
    let mut peer = server.connect().await;
    let length = 3u32 << 20;
    peer.write_all(&length.to_be_bytes()).await.expect("the listener reads");
    let part = vec![1; length as usize / 32];
    for _ in 0..32 {
        peer.write_all(&part).await.expect("the connection goes on");
        tokio::time::sleep(IDLE / 10).await;
    }
    let mut answer = vec![0; ANSWER_LEN];
    peer.read_exact(&mut answer).await.expect("an answer");
    // One that stops in the middle of a request is cut off.
    peer.write_all(&length.to_be_bytes()).await.expect("the listener reads");
    peer.write_all(&part).await.expect("the connection goes on");
    let ended = tokio::time::timeout(10 * IDLE, peer.read(&mut answer)).await;
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    server.stop().await;
}
