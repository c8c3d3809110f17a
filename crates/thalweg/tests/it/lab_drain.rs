//! The time of a drain, by the lab and by a stopwatch that knows nothing of the lab: a proxy between broker
//! and consumer, which sees the consumer's first request for data, and the last data.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "processes run in the world's time, and their tests wait in it; both times are shown"
)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::lab::{LabDirectory, alone, assert_ends_with, ran};
use crate::node::Node;

/// The relative difference that is allowed between both times.
const DIFFERENCE_MAX: f64 = 0.02;
/// A part of an answer of this size is data: the answer to a fetch without records is smaller.
const DATA_BYTES: usize = 1_000;
/// Maximum size of a part.
const PART_BYTES: usize = 16 << 10;

/// The traffic of a connection.
#[derive(Debug, Default)]
struct Traffic {
    asked_at: Option<Instant>,
    /// The request for the first data, and the last data.
    data: Option<(Instant, Instant)>,
    bytes: usize,
}

/// The traffic of each connection.
type Stopwatch = Arc<Mutex<Vec<Traffic>>>;

fn note(stopwatch: &Stopwatch, connection: usize, change: impl FnOnce(&mut Traffic)) {
    change(&mut stopwatch.lock().unwrap_or_else(PoisonError::into_inner)[connection]);
}

/// Passes connections on to the broker, whose answers take a second for so many bytes.
fn serve(listener: TcpListener, broker: String, bytes_per_s: Option<f64>, stopwatch: Stopwatch) {
    for client in listener.incoming().map_while(Result::ok) {
        let Ok(broker) = TcpStream::connect(&broker) else { return };
        for stream in [&client, &broker] {
            stream.set_nodelay(true).expect("a socket");
        }
        let connection = {
            let mut all = stopwatch.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(Traffic::default());
            all.len() - 1
        };
        let (mut from, mut to) =
            (client.try_clone().expect("a socket"), broker.try_clone().expect("a socket"));
        let watch = Arc::clone(&stopwatch);
        std::thread::spawn(move || {
            pass(&mut from, &mut to, |_| {
                note(&watch, connection, |passed| passed.asked_at = Some(Instant::now()))
            });
        });
        let watch = Arc::clone(&stopwatch);
        std::thread::spawn(move || {
            let (mut from, mut to) = (broker, client);
            pass(&mut from, &mut to, |count| {
                if let Some(bytes_per_s) = bytes_per_s.filter(|_| count >= DATA_BYTES) {
                    std::thread::sleep(Duration::from_secs_f64(count as f64 / bytes_per_s));
                }
                note(&watch, connection, |passed| {
                    passed.bytes += count;
                    if count >= DATA_BYTES {
                        let now = Instant::now();
                        let began = passed.data.map(|(began, _)| began).or(passed.asked_at).unwrap_or(now);
                        passed.data = Some((began, now));
                    }
                });
            });
        });
    }
}

/// Passes bytes on, each part after `before`.
fn pass(from: &mut TcpStream, to: &mut TcpStream, mut before: impl FnMut(usize)) {
    let mut bytes = vec![0; PART_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        before(count);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Seconds of a drain of so many records, by the lab and by the stopwatch.
fn drained(records: u64, bytes_per_s: Option<f64>) -> (f64, f64) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy = listener.local_addr().expect("an address").to_string();
    let data = tempfile::tempdir().expect("a directory");
    let advertised = format!("advertised.listeners=PLAINTEXT://{proxy}");
    let broker = Node::start(data.path(), &["listeners=PLAINTEXT://127.0.0.1:0", &advertised]);
    let stopwatch = Stopwatch::default();
    let (address, watch) = (broker.address.clone(), Arc::clone(&stopwatch));
    std::thread::spawn(move || serve(listener, address, bytes_per_s, watch));
    // The producers beside the drain send next to nothing, so that the last data is the backlog's.
    let lab = LabDirectory::with(&format!(
        "title = \"t\"\ndescription = \"d\"\nlabel = \"drain\"\nmeasure = \"drain\"\nrepetitions = 1\nverify = \"off\"\n\
         topics.partitions = 2\nrecords.size_bytes = 100\nconsumers.count = 1\n\
         load = {{ kind = \"rate\", records_per_s = 0.01 }}\nextent = {{ warm_up_s = 0, records = {records} }}\n"
    ));
    assert_ends_with(&ran(lab.run(&["--bootstrap", &proxy])), 0);
    let figures = &lab.point().repetitions[0].figures;
    let by_lab_s = figures.drain_s.expect("drained");
    let rate = figures.consumed_records_per_s.expect("consumed");
    assert!((rate * by_lab_s / records as f64 - 1.0).abs() < 0.001, "{figures:?}");
    let all = stopwatch.lock().unwrap_or_else(PoisonError::into_inner);
    // A drain has another repetition before, which warms up, with fewer records.
    let consumer = all.iter().max_by_key(|passed| passed.bytes).expect("connections");
    let (began, ended) = consumer.data.expect("data");
    let by_stopwatch_s = ended.duration_since(began).as_secs_f64();
    eprintln!("{records} records: {by_lab_s:.3} s by the lab, {by_stopwatch_s:.3} s by the stopwatch");
    (by_lab_s, by_stopwatch_s)
}

fn assert_equal((by_lab_s, by_stopwatch_s): (f64, f64)) {
    let difference = by_lab_s / by_stopwatch_s - 1.0;
    assert!(
        difference.abs() <= DIFFERENCE_MAX,
        "{by_lab_s} s by the lab, {by_stopwatch_s} s by the stopwatch"
    );
}

#[test]
fn a_short_drain_takes_as_long_as_by_a_stopwatch() {
    let _alone = alone();
    // Over a slow path, on which it takes some seconds.
    assert_equal(drained(20_000, Some(600_000.0)));
}

#[test]
#[ignore = "millions of records: in the nightly form of scripts/test"]
fn long_drains_take_as_long_as_by_a_stopwatch() {
    let _alone = alone();
    for records in [1_000_000, 5_000_000] {
        assert_equal(drained(records, None));
    }
}
