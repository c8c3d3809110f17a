//! The listener alone, with a service that makes large answers: how much it does for a peer that does not listen.

use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use thalweg_broker::net::{
    ConnectionLimits, ConnectionSettings, Frame, FrameMemory, Handler, Network, Peer, Reply, SocketOptions,
};
use thalweg_broker::watch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANSWER_LEN: usize = 256 * 1024;
const REQUESTS: usize = 2000;

/// Answers each request with 256 KiB of its first byte.
#[derive(Clone)]
struct Generous {
    served: Arc<AtomicUsize>,
    /// Whether answers come a moment later, in order.
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

async fn deaf_peer(later: bool) {
    let options = SocketOptions { backlog: 16, receive_buffer_bytes: Some(64 * 1024) };
    let listening = Network::tcp().bind("TEST", "127.0.0.1", 0, options).expect("a free port");
    let address = listening.addresses()[0];
    let served = Arc::new(AtomicUsize::new(0));
    let settings = ConnectionSettings {
        frame_max: 1000,
        idle_max: Duration::from_secs(60),
        memory: FrameMemory::new(1 << 20, 1000),
        send_buffer_bytes: Some(64 * 1024),
    };
    let (stop, stopping) = watch::channel(false);
    let handler = Generous { served: Arc::clone(&served), later };
    let limits = ConnectionLimits::new(10, 10, Default::default());
    let server = tokio::spawn(listening.serve(handler, settings, limits, stopping));

    let mut peer = TcpStream::connect(address).await.expect("it listens");
    let mut requests = Vec::new();
    for number in 0..REQUESTS {
        requests.extend_from_slice(&1u32.to_be_bytes());
        requests.push(number as u8);
    }
    peer.write_all(&requests).await.expect("they fit into the socket's buffers");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let unheard = served.load(Ordering::Relaxed);
    // What the sockets of both sides hold, the answers that may wait, and no more.
    assert!(unheard <= 150, "{unheard} answers were made for a peer that reads none");

    let mut answer = vec![0; ANSWER_LEN];
    for number in 0..REQUESTS {
        peer.read_exact(&mut answer).await.expect("an answer");
        assert!(answer.iter().all(|byte| *byte == number as u8), "the answers come in order, whole");
    }
    assert_eq!(served.load(Ordering::Relaxed), REQUESTS);
    stop.send_replace(true);
    server.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_for_a_peer_that_does_not_read_are_not_made() {
    deaf_peer(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_come_later_are_bounded_as_well() {
    deaf_peer(true).await;
}
