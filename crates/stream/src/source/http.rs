//! `http`: what is posted to a port. A request is answered when the stream has taken its message; where the stream is slow, its
//! clients wait. Bodies that wait or are on their way have a bound in bytes, however many clients there are.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::message::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::module::{Absent, Make, Module, OptionSpec, Settings, Site, Takes, WrongMix};
use crate::stage::{Filled, IoFailed, Source, StageError, Turn, Wait};

/// Messages that were posted and wait to be taken.
const WAITING_MAX: usize = 256;
/// The bytes of bodies that wait or are read.
const WAITING_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The declaration.
pub const MODULE: Module = Module {
    name: "http",
    summary: "the bodies of requests that are posted to a port",
    about: "A request is answered with 200 when the stream has taken its message into memory, and with 503 when the stream \
            ends. `?key=...` gives the message a key. There is no TLS and no authentication: keep the port to the machine, \
            as it is by default, or behind a proxy.",
    options: &[
        OptionSpec {
            name: "port",
            takes: Takes::Integer(0, 65_535),
            default: Absent::Value("9000"),
            summary: "The port; 0 takes one that is free, and says which.",
        },
        OptionSpec {
            name: "host",
            takes: Takes::Name,
            default: Absent::Value("127.0.0.1"),
            summary: "The address to listen on.",
        },
        OptionSpec {
            name: "path",
            takes: Takes::Name,
            default: Absent::Value("/"),
            summary: "The path that is posted to.",
        },
        OptionSpec {
            name: "maxSize",
            takes: Takes::Size,
            default: Absent::Value("1MiB"),
            summary: "The largest body; a larger one is answered with 413.",
        },
    ],
    examples: &[("http --port=9000 | log", "what is posted to the port, shown")],
    check,
    make: Make::Source(start),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    match settings.text("path").contains(['{', '}', '*', ':']) {
        true => {
            Err(WrongMix::new("path", "A path is plain text here", "A path such as /orders would be right."))
        }
        false => Ok(()),
    }
}

/// What was posted, with its share of the bytes that may wait.
struct Posted {
    body: Bytes,
    key: Option<String>,
    _bytes: OwnedSemaphorePermit,
}

/// Where requests go.
#[derive(Clone)]
struct Door {
    sender: mpsc::Sender<Posted>,
    bytes: Arc<Semaphore>,
    size_max: usize,
}

fn start(settings: &Settings, site: &Site) -> Result<Box<dyn Source>, StageError> {
    let address = format!("{}:{}", settings.text("host"), settings.integer("port"));
    let failed = |action: &'static str| {
        let what = address.clone();
        move |source: io::Error| IoFailed { action, what, source }
    };
    let listener = std::net::TcpListener::bind(&address).map_err(failed("listen on"))?;
    listener.set_nonblocking(true).map_err(failed("listen on"))?;
    let bound: SocketAddr = listener.local_addr().map_err(failed("listen on"))?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed("listen on"))?;
    let (sender, posted) = mpsc::channel(WAITING_MAX);
    let path = settings.text("path");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let size_max = (settings.integer("maxSize") as usize).min(MESSAGE_BYTES_MAX);
    let door = Door { sender, bytes: Arc::new(Semaphore::new(WAITING_BYTES_MAX)), size_max };
    let router = Router::new().route(&path, post(take)).with_state(door);
    let server = tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    site.console.line(&format!("{}: listens on http://{bound}{path}", site.stream));
    Ok(Box::new(Http { posted, next: None, sequence: 0, has_ended: false, server }))
}

/// The key in a query, without its escapes.
fn key(query: &str) -> Option<String> {
    let value = query.split('&').find_map(|part| part.strip_prefix("key="))?;
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            _ => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

async fn take(State(door): State<Door>, query: RawQuery, headers: HeaderMap, body: Body) -> StatusCode {
    let key = key(query.0.as_deref().unwrap_or_default());
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length: usize = length.unwrap_or(door.size_max);
    if length > door.size_max {
        return StatusCode::PAYLOAD_TOO_LARGE;
    }
    let Ok(bytes) = door.bytes.acquire_many_owned(length as u32).await else {
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    let body = match timeout(BODY_TIMEOUT, to_bytes(body, length)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return StatusCode::PAYLOAD_TOO_LARGE,
        Err(_elapsed) => return StatusCode::REQUEST_TIMEOUT,
    };
    match door.sender.send(Posted { body, key, _bytes: bytes }).await {
        Ok(()) => StatusCode::OK,
        Err(_ended) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

struct Http {
    posted: mpsc::Receiver<Posted>,
    next: Option<Posted>,
    sequence: u64,
    has_ended: bool,
    server: JoinHandle<()>,
}

impl Source for Http {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<Filled, StageError> {
        batch.clear();
        let mut bytes = 0;
        while batch.len() < BATCH_MESSAGES_MAX && bytes < BATCH_BYTES_MAX {
            let Some(posted) = self.next.take().or_else(|| self.posted.try_recv().ok()) else { break };
            bytes += posted.body.len();
            batch.push(posted.body, posted.key.map(Bytes::from), turn.time_ms, self.sequence);
            self.sequence += 1;
        }
        match (batch.is_empty(), self.has_ended) {
            (false, _) => Ok(Filled::Ready),
            (true, true) => Ok(Filled::End),
            (true, false) => Ok(Filled::Pending),
        }
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(async {
            if self.next.is_none() {
                self.next = self.posted.recv().await;
                self.has_ended = self.next.is_none();
            }
        })
    }

    /// Requests that have been answered are in the channel still: they are read. Whoever waits to be taken is refused.
    fn close(&mut self) {
        self.posted.close();
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.server.abort();
    }
}
