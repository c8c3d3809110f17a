//! Limits of a peer before authentication, and last answers.

use super::*;
use crate::{Connections, Network, SocketOptions};
use std::net::SocketAddr;
use thalweg_config::{BrokerConfig, ServerProperties};
use thalweg_log::disk::Disk;
use thalweg_security::quota::{ConnectionLimits, Window};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// More bytes than the sockets on both ends hold.
const LARGE: usize = 64 << 20;

/// Echoes frames. `prove` authenticates, `large` has a large answer, and `lock` holds a lock for a while.
#[derive(Clone)]
struct Echo {
    until: Instant,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl Handler for Echo {
    type Session = bool;

    fn open(&self, _: Arc<Peer>) -> bool {
        false
    }

    fn handle(&self, is_proven: &mut bool, frame: Bytes) -> Reply {
        let answer = Frame::with_length(frame.clone());
        match &frame[..] {
            b"prove" => *is_proven = true,
            b"slow" => {
                return Reply::Ordered(Box::pin(async {
                    sleep(Duration::from_millis(200)).await;
                    Reply::Now(answer)
                }));
            }
            b"large" => {
                return Reply::Ordered(Box::pin(async {
                    sleep(Duration::from_millis(50)).await;
                    Reply::Now(Frame::with_length(vec![7; LARGE].into()))
                }));
            }
            b"lock" => {
                let lock = Arc::clone(&self.lock);
                return Reply::Ordered(Box::pin(async move {
                    let _guard = lock.lock().await;
                    sleep(Duration::from_millis(200)).await;
                    Reply::Now(answer)
                }));
            }
            b"last" => return Reply::Last(answer, "enough".to_owned()),
            _ => {}
        }
        Reply::Now(answer)
    }

    fn unproven(&self, is_proven: &bool) -> Option<UnprovenLimits> {
        (!is_proven).then_some(UnprovenLimits { frame_max: 10, setting: "a.setting", until: self.until })
    }
}

/// Connects to a listener with this time limit for authentication.
async fn connect(within: Duration) -> TcpStream {
    let (address, stopping) = listen(within);
    let stream = TcpStream::connect(address).await.expect("it listens");
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(stopping);
    });
    stream
}

/// A listener that is served until the value becomes true.
fn listen(within: Duration) -> (SocketAddr, watch::Sender<bool>) {
    let config = BrokerConfig::new(&ServerProperties::default()).expect("the defaults are valid");
    let options = SocketOptions { backlog: 1, receive_buffer_bytes: None };
    let listening = Network::tcp().bind("TEST", "127.0.0.1", 0, options).expect("a free port");
    let address = listening.addresses()[0];
    let limits = ConnectionLimits { connections: 10, per_ip: 10, per_second: 10, ..Default::default() };
    let window = Window::new(11, Duration::from_secs(1));
    let limits = Connections::new(window, limits, None, Disk::real().descriptors().clone());
    let (stopping, stop) = watch::channel(false);
    let echo = Echo { until: Instant::now() + within, lock: Arc::default() };
    let settings = ConnectionSettings::of(&config.network);
    tokio::spawn(async move { listening.serve(echo, settings, limits, stop).await });
    (address, stopping)
}

async fn send(stream: &mut TcpStream, frame: &[u8]) {
    let length = u32::try_from(frame.len()).expect("short").to_be_bytes();
    stream.write_all(&[&length, frame].concat()).await.expect("it reads");
}

async fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let read = async {
        let mut frame = vec![0; stream.read_u32().await.ok()?.try_into().expect("short")];
        stream.read_exact(&mut frame).await.ok()?;
        Some(frame)
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("an answer, or the end")
}

#[tokio::test]
async fn time_runs_out_for_those_who_do_not_authenticate() {
    let (mut idle, mut busy) =
        (connect(Duration::from_millis(300)).await, connect(Duration::from_millis(300)).await);
    let mut proven = connect(Duration::from_millis(300)).await;
    send(&mut proven, b"prove").await;
    assert_eq!(receive(&mut proven).await.as_deref(), Some(&b"prove"[..]));
    // Neither silence nor activity extends the time.
    let talk = async {
        loop {
            let frame = [&5_u32.to_be_bytes()[..], b"hello"].concat();
            if busy.write_all(&frame).await.is_err() || receive(&mut busy).await.is_none() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), talk).await.expect("the end");
    assert_eq!(receive(&mut idle).await, None);
    send(&mut proven, b"a frame of more than ten bytes").await;
    assert!(receive(&mut proven).await.is_some());
}

#[tokio::test]
async fn frames_are_small_until_then() {
    let mut stranger = connect(Duration::from_secs(20)).await;
    send(&mut stranger, b"0123456789").await;
    assert!(receive(&mut stranger).await.is_some());
    stranger.write_all(&11_u32.to_be_bytes()).await.expect("it reads");
    assert_eq!(receive(&mut stranger).await, None);
    // The same for a large frame that was sent together with the login.
    let mut hasty = connect(Duration::from_secs(20)).await;
    send(&mut hasty, b"prove").await;
    send(&mut hasty, &[7; 5000]).await;
    assert!(receive(&mut hasty).await.is_some());
    assert_eq!(receive(&mut hasty).await, Some(vec![7; 5000]));
}

#[tokio::test]
async fn the_last_answer_is_behind_the_others_and_ends_the_connection() {
    let mut peer = connect(Duration::from_secs(20)).await;
    for frame in [&b"slow"[..], b"last", b"more"] {
        send(&mut peer, frame).await;
    }
    assert_eq!(receive(&mut peer).await.as_deref(), Some(&b"slow"[..]));
    assert_eq!(receive(&mut peer).await.as_deref(), Some(&b"last"[..]));
    assert_eq!(receive(&mut peer).await, None);
}

#[tokio::test]
async fn a_peer_that_does_not_read_keeps_no_lock() {
    let (address, _stopping) = listen(Duration::from_secs(20));
    let connect = async || TcpStream::connect(address).await.expect("it listens");
    let (mut lazy, mut other) = (connect().await, connect().await);
    for peer in [&mut lazy, &mut other] {
        send(peer, b"prove").await;
        assert!(receive(peer).await.is_some());
    }
    // The lock is taken during the wait for the large answer, which the peer does not read.
    for frame in [&b"large"[..], b"lock"] {
        send(&mut lazy, frame).await;
    }
    sleep(Duration::from_millis(100)).await;
    send(&mut other, b"lock").await;
    assert_eq!(receive(&mut other).await.as_deref(), Some(&b"lock"[..]));
    assert_eq!(receive(&mut lazy).await.map(|large| large.len()), Some(LARGE));
    assert_eq!(receive(&mut lazy).await.as_deref(), Some(&b"lock"[..]));
}

#[tokio::test]
async fn the_end_does_not_overtake_the_last_answer() {
    let mut peer = connect(Duration::from_secs(20)).await;
    let begun = Instant::now();
    send(&mut peer, b"last").await;
    // Closing with unread bytes would reset the connection and lose the answer.
    peer.write_all(&[7; 20_000]).await.expect("it reads");
    sleep(Duration::from_millis(100)).await;
    assert_eq!(receive(&mut peer).await.as_deref(), Some(&b"last"[..]));
    assert_eq!(receive(&mut peer).await, None);
    assert!(begun.elapsed() >= LAST_ANSWER_READ, "the peer has time to close");
}

#[tokio::test]
async fn peers_that_close_behind_the_last_answer_are_not_waited_for() {
    const PEERS: u32 = 10;
    let begun = Instant::now();
    for _ in 0..PEERS {
        let mut peer = connect(Duration::from_secs(20)).await;
        send(&mut peer, b"last").await;
        assert_eq!(receive(&mut peer).await.as_deref(), Some(&b"last"[..]));
        peer.shutdown().await.expect("it is open");
        assert_eq!(receive(&mut peer).await, None);
    }
    assert!(begun.elapsed() < PEERS * LAST_ANSWER_READ, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_stop_ends_in_order_only_what_was_answered() {
    let (address, stopping) = listen(Duration::from_secs(20));
    let mut answered = TcpStream::connect(address).await.expect("it listens");
    send(&mut answered, b"hello").await;
    assert!(receive(&mut answered).await.is_some());
    let mut silent = TcpStream::connect(address).await.expect("it listens");
    let mut partial = TcpStream::connect(address).await.expect("it listens");
    partial.write_all(&[0, 0]).await.expect("it reads");
    sleep(Duration::from_millis(100)).await;
    stopping.send_replace(true);
    assert_eq!(answered.read(&mut [0; 8]).await.expect("an orderly end"), 0);
    for unanswered in [&mut silent, &mut partial] {
        let end = unanswered.read(&mut [0; 8]).await.expect_err("as if it had not been accepted");
        assert_eq!(end.kind(), io::ErrorKind::ConnectionReset);
    }
}
