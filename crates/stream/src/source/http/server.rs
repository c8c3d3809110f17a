//! The server of the `http` source: connections are accepted and served within limits of number, time and
//! size. A connection beyond the limit is answered with 503 and closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thalweg_places::DescriptorPart;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Maximum time for a request's head, and between two requests of a connection.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Limit of a request's head; a larger head gets 431.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// A connection is closed if its client takes no answer for this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time to tell a client that there are too many connections, and number of such clients at once.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);
const REFUSALS_MAX: usize = 16;
/// Pause after a failed accept, usually for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum interval between log lines about refused connections or failed accepts.
const NOTED_EVERY: Duration = Duration::from_secs(60);
/// Maximum time for sending answers after the server is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The connections of all `http` sources of this process: a quarter of its descriptors at most.
static CONNECTIONS: DescriptorPart = DescriptorPart::new(4, u64::MAX);

/// A server of these routes, until it is closed. Open requests are answered then, within [`CLOSE_TIMEOUT`].
pub async fn serve(
    listener: TcpListener,
    router: Router,
    connections_max: usize,
    closed: oneshot::Receiver<()>,
) {
    let slots = Arc::new(Semaphore::new(connections_max));
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let (stopping, stop) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut noted = None;
    let mut closed = std::pin::pin!(closed);
    loop {
        tokio::select! {
            biased;
            _ = closed.as_mut() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => match (slots.clone().try_acquire_owned(), CONNECTIONS.take()) {
                    (Ok(slot), Some(place)) => {
                        let (router, stop) = (router.clone(), stop.clone());
                        connections.spawn(async move {
                            attend(stream, router, stop).await;
                            drop((slot, place));
                        });
                    }
                    (slot, _) => {
                        let why = match slot {
                            Err(_) => format!("all {connections_max} connections of the source are in use (--connections)"),
                            Ok(_) => "the process has too many connections (a quarter of its descriptors)".to_owned(),
                        };
                        if is_due(&mut noted) {
                            tracing::warn!(reason = why, "Refused connections to an http source");
                        }
                        if let Ok(place) = refusals.clone().try_acquire_owned() {
                            connections.spawn(async move {
                                let _ = timeout(REFUSAL_TIMEOUT, refuse(stream, &why)).await;
                                drop(place);
                            });
                        }
                    }
                },
                Err(error) => {
                    if is_due(&mut noted) {
                        tracing::warn!(%error, "Failed to accept connections to an http source");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    stopping.send_replace(true);
    // The timeout is reached if a client sends a body, or takes its answer, slowly.
    let _ = timeout(CLOSE_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
}

/// True at most once per interval.
fn is_due(noted: &mut Option<Instant>) -> bool {
    let is_due = noted.is_none_or(|noted| noted.elapsed() >= NOTED_EVERY);
    if is_due {
        *noted = Some(Instant::now());
    }
    is_due
}

/// Answers the first request of a connection, unread, with 503.
async fn refuse(mut stream: TcpStream, why: &str) {
    let body = format!("The message was not accepted: {why}\n");
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    if stream.write_all(answer.as_bytes()).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    // A connection closed with unread bytes is reset, and the client would lose the answer.
    let mut unread = [0; 4096];
    while matches!(stream.read(&mut unread).await, Ok(1..)) {}
}

/// Serves a connection until it ends, or its client takes no answer.
async fn attend(stream: TcpStream, router: Router, mut stop: watch::Receiver<bool>) {
    // Answers are sent whole, so Nagle's delay would gain nothing.
    let _ = stream.set_nodelay(true);
    let work = Arc::new(Work::default());
    let service = TowerToHyperService::new(router.layer(from_fn_with_state(work.clone(), count)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            // An error means that the server was dropped.
            _ = stop.wait_for(|stop| *stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    };
    tokio::select! {
        biased;
        () = served => {}
        () = work.stands_still() => tracing::debug!("Closed a connection whose client takes no answers"),
    }
}

/// The requests of a connection.
#[derive(Default)]
struct Work {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

async fn count(State(work): State<Arc<Work>>, request: Request, next: Next) -> Response {
    work.begun.fetch_add(1, Ordering::AcqRel);
    let response = next.run(request).await;
    work.ended.fetch_add(1, Ordering::AcqRel);
    response
}

impl Work {
    /// Waits until no request has begun or been in progress for [`ANSWER_TIMEOUT`].
    async fn stands_still(&self) {
        let mut before = None;
        loop {
            sleep(ANSWER_TIMEOUT).await;
            let (begun, ended) = (self.begun.load(Ordering::Acquire), self.ended.load(Ordering::Acquire));
            if begun == ended && before == Some(begun) {
                return;
            }
            before = Some(begun);
        }
    }
}
