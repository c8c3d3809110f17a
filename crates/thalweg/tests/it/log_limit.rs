//! Limits of the log lines that strangers can cause.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use super::binary::until;
use super::node::Node;

/// Each of these frames closes its connection with a warning.
const FRAMES: [&[u8]; 3] = [
    // An invalid length.
    &[0x7f, 0xff, 0xff, 0xff],
    // An unknown API.
    &[0, 0, 0, 8, 0x7f, 0, 0, 0, 0, 0, 0, 1],
    // Shorter than a header.
    &[0, 0, 0, 1, 0],
];

#[test]
fn malformed_frames_do_not_fill_the_log() {
    const ROUNDS: usize = 500;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut node = Node::start(dir.path(), &[]);
    for _ in 0..ROUNDS {
        for frame in FRAMES {
            let mut stream = TcpStream::connect(&node.address).expect("it listens");
            stream.write_all(frame).expect("it reads");
            // It closes the connection without an answer.
            let closed = stream.read(&mut [0]);
            assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
        }
    }
    node.end(Signal::TERM);
    let told = || {
        let said = node.output();
        let lines = |part: &str| said.lines().filter(|line| line.contains(part)).count();
        (lines("Closed a connection"), said.contains("more from 127.0.0.1"), said.clone())
    };
    // The thread that reads its lines may lag a little.
    let mut last = told();
    for _ in 0..100 {
        if last.1 {
            break;
        }
        std::thread::yield_now();
        last = told();
    }
    let (warnings, is_counted, said) = last;
    assert!((1..=20).contains(&warnings), "{warnings} lines for {} frames", ROUNDS * FRAMES.len());
    assert!(is_counted, "what was left out is not counted: {said}");
}

#[tokio::test]
async fn many_addresses_do_not_fill_the_log_either() {
    const ADDRESSES: u16 = 200;
    const EACH: usize = 20;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut node = Node::start(dir.path(), &[]);
    let broker = node.address.parse().expect("an address");
    for number in 1..=ADDRESSES {
        let from = format!("127.{}.{}.{}:0", number % 7 + 1, number % 256, number % 251 + 1);
        for _ in 0..EACH {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.bind(from.parse().expect("an address")).expect("all of 127.0.0.0/8 is this machine");
            let mut stream = socket.connect(broker).await.expect("it listens");
            stream.write_all(FRAMES[0]).await.expect("it reads");
            // It closes the connection without an answer.
            let _ = stream.read(&mut [0]).await;
        }
    }
    node.end(Signal::TERM);
    until("the count", || node.output().contains("Stopped cleanly"));
    let said = node.output();
    let written =
        said.lines().filter(|line| line.contains("Closed a connection") && line.contains("address=")).count();
    let counts: Vec<_> = said.lines().filter(|line| line.contains("Closed a connection: and ")).collect();
    assert!((20..=250).contains(&written), "{written} lines");
    let [count] = &counts[..] else { panic!("one line for all addresses: {counts:?}") };
    let (_, rest) = count.split_once(": and ").expect("a count");
    let suppressed: usize = rest.split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
    assert_eq!(suppressed + written, usize::from(ADDRESSES) * EACH, "{count}");
    assert!(count.contains(" sources in the last "), "{count}");
}
