//! Letters to brokers in memory. A test decides when a request is answered or fails.

use super::{Letter, NoAnswer, Outbox};
use crate::peers::{PeerError, PeerOptions, Peers};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_dial::{ByteStream, CloseReason, Connection, Connector, FrameReader};
use thalweg_metadata::{BrokerId, Delta, Image, ImageCell, Provenance};
use thalweg_wire::metadata::RegisterBrokerRecord;
use thalweg_wire::metadata::register_broker_record::BrokerEndpoint;
use thalweg_wire::request::ApiVersionsResponse;
use thalweg_wire::{ApiKey, MetadataRecord, frame};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::{JoinHandle, yield_now};

const ONE: BrokerId = BrokerId(1);
const TWO: BrokerId = BrokerId(2);
/// Total size of the letters of a request.
const SIZE_MAX: u32 = 3;

/// The other brokers.
struct Network {
    /// Broker and letters of each request, in the order of sending.
    sent: Mutex<Vec<(BrokerId, Vec<u32>)>>,
    /// Requests in flight by broker and kind, and their maximum.
    in_flight: Mutex<BTreeMap<(BrokerId, u8), (usize, usize)>>,
    /// Permits of requests to end.
    ends: Semaphore,
    /// True if the next request fails.
    fails: AtomicBool,
    /// Number of opened connections, and number of connections that are still open.
    opened: AtomicUsize,
    open: AtomicUsize,
    /// Notified when the brokers close their connections.
    hang_up: Notify,
}

impl Network {
    fn new() -> Arc<Network> {
        Arc::new(Network {
            sent: Mutex::default(),
            in_flight: Mutex::default(),
            ends: Semaphore::new(0),
            fails: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            hang_up: Notify::new(),
        })
    }
}

/// A letter. Its answer repeats its number.
struct Note {
    number: u32,
    kind: u8,
    size: u32,
    network: Arc<Network>,
}

/// A request in flight, until its future is dropped.
struct InFlight<'a>(&'a Network, (BrokerId, u8));

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.lock().entry(self.1).or_default().0 -= 1;
    }
}

impl Letter for Note {
    const PURPOSE: &'static str = "test";
    const FAILURE: &'static str = "Failed to send notes";
    type Kind = u8;
    type Load = u32;
    type Answer = u32;

    fn kind(&self) -> u8 {
        self.kind
    }

    fn join(&self, load: &mut u32) -> bool {
        let fits = *load + self.size <= SIZE_MAX;
        *load += if fits { self.size } else { 0 };
        fits
    }

    async fn send(connection: &Connection, broker: BrokerId, notes: &[Note]) -> Result<Vec<u32>, PeerError> {
        assert_eq!(**connection.peer(), format!("broker-{broker}:9092"));
        let [first, ..] = notes else { panic!("a request without letters") };
        assert!(notes.iter().all(|note| note.kind == first.kind), "letters of one kind");
        let (network, numbers) = (&first.network, notes.iter().map(|note| note.number).collect::<Vec<_>>());
        network.sent.lock().push((broker, numbers.clone()));
        let flight = InFlight(network, (broker, first.kind));
        {
            let mut in_flight = network.in_flight.lock();
            let (now, max) = in_flight.entry(flight.1).or_default();
            *now += 1;
            *max = (*max).max(*now);
        }
        network.ends.acquire().await.expect("the semaphore stays open").forget();
        if network.fails.swap(false, Ordering::Relaxed) {
            return Err(PeerError::TooOld { broker, api: "Note", version: 0 });
        }
        Ok(numbers)
    }
}

struct Bench {
    network: Arc<Network>,
    image: Arc<ImageCell>,
    outbox: Arc<Outbox<Note>>,
}

impl Bench {
    /// An outbox without connections, in a cluster with both other brokers.
    fn new() -> Bench {
        let (network, image) = (Network::new(), ImageCell::new());
        let options = PeerOptions {
            node_id: BrokerId(0),
            listener: "L".to_owned(),
            or_any: false,
            security: BTreeMap::new(),
            request_timeout: Duration::from_secs(30),
        };
        let peers = Peers::new(options, connector(&network), Arc::clone(&image));
        let bench = Bench { network, image, outbox: Arc::new(Outbox::new(Arc::new(peers))) };
        bench.set_brokers(&[ONE, TWO]);
        bench
    }

    /// Replaces the image by one with these brokers.
    fn set_brokers(&self, brokers: &[BrokerId]) {
        let mut delta = Delta::new(Arc::new(Image::empty()));
        for broker in brokers {
            let host = format!("broker-{broker}");
            let record = RegisterBrokerRecord {
                broker_id: broker.0,
                end_points: vec![BrokerEndpoint {
                    name: "L".to_owned(),
                    host,
                    port: 9092,
                    security_protocol: 0,
                }],
                fenced: false,
                ..Default::default()
            };
            delta.replay(&MetadataRecord::RegisterBroker(record)).expect("the record fits");
        }
        self.image.set(delta.apply(Provenance::EMPTY));
    }

    /// Starts a task that sends a letter, and waits until it has sent or queued the letter.
    async fn ask(&self, broker: BrokerId, number: u32) -> AnswerTask {
        self.ask_with(broker, number, 0, 1).await
    }

    async fn ask_with(&self, broker: BrokerId, number: u32, kind: u8, size: u32) -> AnswerTask {
        let (outbox, network) = (Arc::clone(&self.outbox), Arc::clone(&self.network));
        let task =
            tokio::spawn(async move { outbox.ask(broker, Note { number, kind, size, network }).await });
        settle().await;
        task
    }

    /// Lets requests in flight end.
    async fn end(&self, requests: usize) {
        self.network.ends.add_permits(requests);
        settle().await;
    }

    /// Lets a request in flight fail.
    async fn fail(&self) {
        self.network.fails.store(true, Ordering::Relaxed);
        self.end(1).await;
    }

    /// The letters of each request to broker 1.
    fn sent(&self) -> Vec<Vec<u32>> {
        let sent = self.network.sent.lock();
        sent.iter().filter(|(broker, _)| *broker == ONE).map(|(_, numbers)| numbers.clone()).collect()
    }

    fn opened(&self) -> usize {
        self.network.opened.load(Ordering::Relaxed)
    }
}

type AnswerTask = JoinHandle<Result<u32, NoAnswer>>;

/// Runs all tasks until each of them waits for the test.
async fn settle() {
    for _ in 0..200 {
        yield_now().await;
    }
}

/// The answer of a letter, which has to be there.
async fn answer(asked: AnswerTask) -> Result<u32, NoAnswer> {
    assert!(asked.is_finished(), "the letter still waits");
    asked.await.expect("the task does not panic")
}

fn connector(network: &Arc<Network>) -> Connector {
    let network = Arc::clone(network);
    Connector::new(move |_| {
        let network = Arc::clone(&network);
        async move {
            let (ours, theirs) = tokio::io::duplex(4096);
            tokio::spawn(serve(network, theirs));
            Ok(Box::new(ours) as Box<dyn ByteStream>)
        }
    })
}

/// A broker's side of a connection: answers the request for versions.
async fn serve(network: Arc<Network>, stream: DuplexStream) {
    network.opened.fetch_add(1, Ordering::Relaxed);
    network.open.fetch_add(1, Ordering::Relaxed);
    let (reader, mut writer) = tokio::io::split(stream);
    let mut frames = FrameReader::new(reader, 4096);
    let request = frames.next().await.expect("a request for versions");
    let prefix = frame::peek_request(&request).expect("a request");
    let (version, id) = (prefix.api_version, prefix.correlation_id);
    let versions = ApiVersionsResponse::default();
    let (bytes, _) = frame::encode_response(&versions, ApiKey::ApiVersions, version, id).expect("an answer");
    writer.write_all(&bytes).await.expect("the connection is open");
    tokio::select! {
        biased;
        ended = frames.next() => assert!(matches!(ended, Err(CloseReason::ByPeer)), "{ended:?}"),
        () = network.hang_up.notified() => {}
    }
    network.open.fetch_sub(1, Ordering::Relaxed);
}

#[tokio::test]
async fn letters_share_the_next_request_in_their_order() {
    let bench = Bench::new();
    let first = bench.ask(ONE, 1).await;
    let mut others = Vec::new();
    for number in [4, 2, 3] {
        others.push((number, bench.ask(ONE, number).await));
    }
    assert_eq!(bench.sent(), [vec![1]], "the broker has a request");
    bench.end(1).await;
    assert_eq!(answer(first).await, Ok(1));
    assert_eq!(bench.sent(), [vec![1], vec![4, 2, 3]]);
    assert!(others.iter().all(|(_, asked)| !asked.is_finished()));
    bench.end(1).await;
    for (number, asked) in others {
        assert_eq!(answer(asked).await, Ok(number), "each letter gets its own answer");
    }
}

#[tokio::test]
async fn a_broker_has_one_request_of_a_kind_in_flight() {
    let bench = Bench::new();
    let mut asked = Vec::new();
    for number in 0..20 {
        for (broker, kind) in [(ONE, 0), (ONE, 1), (TWO, 0)] {
            asked.push((number, bench.ask_with(broker, number, kind, 1).await));
        }
    }
    let in_flight = || bench.network.in_flight.lock().values().map(|(now, _)| *now).collect::<Vec<_>>();
    assert_eq!(in_flight(), [1, 1, 1], "brokers and kinds do not wait for each other");
    bench.end(100).await;
    for (number, asked) in asked {
        assert_eq!(answer(asked).await, Ok(number));
    }
    assert_eq!(in_flight(), [0, 0, 0]);
    assert!(bench.network.in_flight.lock().values().all(|(_, max)| *max == 1));
    assert_eq!(bench.opened(), 3, "a connection for each broker and kind");
}

#[tokio::test]
async fn a_request_has_the_letters_that_fit() {
    let bench = Bench::new();
    let mut asked = vec![(0, bench.ask(ONE, 0).await)];
    for (number, size) in [(1, 1), (2, 1), (3, 2), (4, 1), (5, 3), (6, 1)] {
        asked.push((number, bench.ask_with(ONE, number, 0, size).await));
    }
    bench.end(100).await;
    // Letter 4 takes the place that letter 3 is too large for; the other letters keep their order.
    assert_eq!(bench.sent(), [vec![0], vec![1, 2, 4], vec![3, 6], vec![5]]);
    for (number, asked) in asked {
        assert_eq!(answer(asked).await, Ok(number));
    }
}

#[tokio::test]
async fn a_failed_request_is_not_repeated() {
    let bench = Bench::new();
    let first = bench.ask(ONE, 1).await;
    let others = [bench.ask(ONE, 2).await, bench.ask(ONE, 3).await];
    bench.fail().await;
    assert_eq!(answer(first).await, Err(NoAnswer));
    assert_eq!(bench.sent(), [vec![1], vec![2, 3]], "waiting letters are sent");
    assert_eq!(bench.opened(), 2, "over another connection");
    let later = bench.ask(ONE, 4).await;
    bench.fail().await;
    for other in others {
        assert_eq!(answer(other).await, Err(NoAnswer), "all letters of the request");
    }
    bench.end(1).await;
    assert_eq!(answer(later).await, Ok(4));
    assert_eq!(bench.sent(), [vec![1], vec![2, 3], vec![4]]);
    assert_eq!(bench.network.open.load(Ordering::Relaxed), 1, "failed connections are closed");
}

#[tokio::test]
async fn a_connection_serves_requests_until_it_is_closed() {
    let bench = Bench::new();
    for number in 0..3 {
        let asked = bench.ask(ONE, number).await;
        bench.end(1).await;
        assert_eq!(answer(asked).await, Ok(number));
    }
    assert_eq!(bench.opened(), 1);
    bench.network.hang_up.notify_waiters();
    settle().await;
    let asked = bench.ask(ONE, 3).await;
    bench.end(1).await;
    assert_eq!(answer(asked).await, Ok(3));
    assert_eq!(bench.opened(), 2);
}

#[tokio::test]
async fn a_broker_that_left_gets_no_request_until_it_returns() {
    let bench = Bench::new();
    let sent = bench.ask(ONE, 1).await;
    let waiting = [bench.ask(ONE, 2).await, bench.ask(ONE, 3).await];
    bench.set_brokers(&[TWO]);
    bench.network.hang_up.notify_waiters();
    bench.fail().await;
    assert_eq!(answer(sent).await, Err(NoAnswer));
    for waiting in waiting {
        assert_eq!(answer(waiting).await, Err(NoAnswer));
    }
    assert_eq!(answer(bench.ask(ONE, 4).await).await, Err(NoAnswer));
    assert_eq!((bench.sent(), bench.opened()), (vec![vec![1]], 1));
    bench.set_brokers(&[ONE, TWO]);
    let returned = bench.ask(ONE, 5).await;
    bench.end(1).await;
    assert_eq!(answer(returned).await, Ok(5));
    assert_eq!((bench.sent(), bench.opened()), (vec![vec![1], vec![5]], 2));
}

#[tokio::test]
async fn an_aborted_request_leaves_its_letters_without_an_answer() {
    let bench = Bench::new();
    let first = bench.ask(ONE, 1).await;
    let sender = bench.ask(ONE, 2).await;
    let other = bench.ask(ONE, 3).await;
    bench.end(1).await;
    assert_eq!(answer(first).await, Ok(1));
    assert_eq!(bench.sent(), [vec![1], vec![2, 3]], "the task of letter 2 sends");
    sender.abort();
    settle().await;
    assert_eq!(answer(other).await, Err(NoAnswer));
    // The connection may still get the answer of the aborted request.
    let later = bench.ask(ONE, 4).await;
    bench.end(1).await;
    assert_eq!((answer(later).await, bench.opened()), (Ok(4), 2));
    assert_eq!(bench.network.open.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_letter_without_its_task_does_not_disturb_others() {
    let bench = Bench::new();
    let first = bench.ask(ONE, 1).await;
    let aborted = bench.ask(ONE, 2).await;
    aborted.abort();
    bench.end(1).await;
    assert_eq!(answer(first).await, Ok(1));
    assert_eq!(bench.sent(), [vec![1]], "no task runs that could send");
    let next = bench.ask(ONE, 3).await;
    bench.end(1).await;
    assert_eq!((answer(next).await, bench.sent()), (Ok(3), vec![vec![1], vec![2, 3]]));
}

#[tokio::test]
async fn the_end_of_an_outbox_closes_its_connections() {
    let bench = Bench::new();
    let done = bench.ask(ONE, 1).await;
    bench.end(1).await;
    assert_eq!(answer(done).await, Ok(1));
    let (in_flight, waiting) = (bench.ask(TWO, 2).await, bench.ask(TWO, 3).await);
    assert_eq!(bench.network.open.load(Ordering::Relaxed), 2);
    let network = Arc::clone(&bench.network);
    in_flight.abort();
    waiting.abort();
    drop(bench);
    settle().await;
    assert_eq!(network.open.load(Ordering::Relaxed), 0);
    assert!(network.in_flight.lock().values().all(|(now, _)| *now == 0));
}
