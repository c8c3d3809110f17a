//! `http`: accepts messages as requests on a port.
//!
//! If the stream ends in a sink that stores messages, a request is answered when its message is stored: the
//! sink has acknowledged the message, and the figures of every stage include it. Otherwise the answer is 202,
//! when the message has passed the stream. Clients of a slow stream wait, for a bounded time. The total size
//! of pending bodies and the number of pending requests are bounded, for any number of clients.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::declaration::{
    Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::message::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::stage::{FillResult, IoFailed, Source, StageError, Turn, Wait};

/// Messages queued for the stream.
const WAITING_MAX: usize = 256;
/// Maximum number of requests in progress, including those whose messages are not stored yet.
const REQUESTS_MAX: usize = 4096;
/// Total bytes of bodies that are queued or being received.
const WAITING_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// Maximum time for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time for sending answers when the stream ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub const MODULE: Module = Module {
    name: "http",
    summary: "accepts messages as POST requests",
    about: "`?key=...` sets the message's key. There is no TLS and no authentication: keep the port on the local machine, which is the \
            default, or behind a proxy.\n\n\
            The status of the answer:\n\n\
            | status | meaning |\n|---|---|\n\
            | 200 | The message is stored: every sink behind the source has acknowledged it. Applies to streams that end in `kafka`, \
            `file` or `http`, also behind `topic:NAME`. |\n\
            | 202 | The message has passed a stream that does not guarantee storage: it ends in another sink, or `aggregate` or \
            `exec` holds messages. |\n\
            | 400 | The key in the query has an invalid percent-encoding. The message is not stored. |\n\
            | 408 | The body did not arrive within a minute. |\n\
            | 413 | The body is larger than `--maxSize`. |\n\
            | 500 | The stream failed after accepting the message, which may or may not be stored. |\n\
            | 503 | The stream did not accept the message within `--timeout`, or is stopping. The message is not stored. |\n\
            | 504 | The stream accepted the message, but did not store it within `--timeout`. It may still be stored. |\n\n\
            A stage that holds messages back, such as `batch`, delays the answer. `file` stores in the page cache, or with \
            `--sync=true` on the medium.",
    options: &[
        OptionSpec {
            name: "port",
            takes: OptionType::Integer(0, 65_535),
            default: OptionDefault::Value("9000"),
            summary: "The port; 0 selects a free one and prints it.",
        },
        OptionSpec {
            name: "host",
            takes: OptionType::Name,
            default: OptionDefault::Value("127.0.0.1"),
            summary: "The address to listen on.",
        },
        OptionSpec {
            name: "path",
            takes: OptionType::Name,
            default: OptionDefault::Value("/"),
            summary: "The path of the requests.",
        },
        OptionSpec {
            name: "maxSize",
            takes: OptionType::Size,
            default: OptionDefault::Value("1MiB"),
            summary: "The maximum size of a body; larger ones get 413.",
        },
        OptionSpec {
            name: "timeout",
            takes: OptionType::Duration,
            default: OptionDefault::Value("30s"),
            summary: "How long a request waits for its message to be accepted and stored; then it gets 503 or 504.",
        },
    ],
    examples: &[
        ("http --port=9000 | log", "prints posted messages"),
        ("http --port=9000 | kafka --topic=orders", "answers each request when the cluster has its record"),
    ],
    check,
    make: StageMaker::Source(start),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    match settings.text("path").contains(['{', '}', '*', ':']) {
        true => Err(WrongMix::new("path", "The path cannot contain patterns", "Use a path such as /orders.")),
        false => Ok(()),
    }
}

/// A posted message, with its permit for queued bytes.
struct PostedMessage {
    body: Bytes,
    key: Option<Vec<u8>>,
    /// Set by the first of two events: the stream accepts the message, or the request times out.
    is_decided: Arc<AtomicBool>,
    answer: oneshot::Sender<StatusCode>,
    _bytes: OwnedSemaphorePermit,
}

/// The state of the server.
#[derive(Clone)]
struct Door {
    sender: mpsc::Sender<PostedMessage>,
    requests: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    size_max: usize,
    timeout: Duration,
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
    let door = Door {
        sender,
        requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        bytes: Arc::new(Semaphore::new(WAITING_BYTES_MAX)),
        size_max: (settings.integer("maxSize") as usize).min(MESSAGE_BYTES_MAX),
        timeout: settings.duration("timeout"),
    };
    let router = Router::new().route(&path, post(take)).with_state(door);
    let (closing, closed) = oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(async {
            let _ = closed.await;
        });
        let _ = served.await;
    });
    site.console.line(&format!("{}: listening on http://{bound}{path}", site.stream));
    Ok(Box::new(Http {
        posted,
        next: None,
        sequence: 0,
        has_ended: false,
        is_stored: site.is_stored,
        unanswered: VecDeque::new(),
        closing: Some(closing),
        server,
    }))
}

/// The decoded key in a query, if there is one; an error if it cannot be decoded.
fn key(query: &str) -> Result<Option<Vec<u8>>, ()> {
    match query.split('&').find_map(|part| part.strip_prefix("key=")) {
        Some(value) => decoded(value).map(Some).ok_or(()),
        None => Ok(None),
    }
}

/// The bytes of a percent-encoded value.
fn decoded(value: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            _ => byte,
        });
    }
    Some(bytes)
}

/// A status and an explanation.
type Answer = (StatusCode, String);

fn not_taken(why: &str) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, format!("The message was not accepted: {why}\n"))
}

async fn take(State(door): State<Door>, query: RawQuery, headers: HeaderMap, body: Body) -> Answer {
    let too_large =
        || (StatusCode::PAYLOAD_TOO_LARGE, format!("The body is larger than {} bytes\n", door.size_max));
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let length: usize = length.unwrap_or(door.size_max);
    if length > door.size_max {
        return too_large();
    }
    let admitted = async {
        let request = door.requests.clone().acquire_owned().await.ok()?;
        Some((request, door.bytes.clone().acquire_many_owned(length as u32).await.ok()?))
    };
    let Ok(Some((_request, bytes))) = timeout(door.timeout, admitted).await else {
        return not_taken("too many requests are waiting");
    };
    let body = match timeout(BODY_TIMEOUT, to_bytes(body, length)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return too_large(),
        Err(_elapsed) => {
            let text = format!("The body did not arrive within {} s\n", BODY_TIMEOUT.as_secs());
            return (StatusCode::REQUEST_TIMEOUT, text);
        }
    };
    let Ok(key) = key(query.0.as_deref().unwrap_or_default()) else {
        let text = "The key in the query has an invalid percent-encoding; the message was not accepted\n";
        return (StatusCode::BAD_REQUEST, text.to_owned());
    };
    let (answer, answered) = oneshot::channel();
    let is_decided = Arc::new(AtomicBool::new(false));
    let posted = PostedMessage { body, key, is_decided: is_decided.clone(), answer, _bytes: bytes };
    let by = Instant::now() + door.timeout;
    match timeout_at(by, door.sender.send(posted)).await {
        Ok(Ok(())) => {}
        Ok(Err(_ended)) => return not_taken("the stream is stopping"),
        Err(_elapsed) => return not_taken("the stream is busy"),
    }
    match timeout_at(by, answered).await {
        Ok(Ok(status)) => (status, String::new()),
        // Dropped without an answer: the stream failed, or ended before accepting the message.
        Ok(Err(_gone)) if is_decided.load(Ordering::Acquire) => {
            let text = "The stream failed after accepting the message, which may or may not be stored\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
        }
        Ok(Err(_gone)) => not_taken("the stream is stopping"),
        Err(_elapsed) if is_decided.swap(true, Ordering::AcqRel) => {
            let ms = door.timeout.as_millis();
            let text = format!("The message was not stored within {ms} ms; it may still be stored\n");
            (StatusCode::GATEWAY_TIMEOUT, text)
        }
        Err(_elapsed) => not_taken("the stream is busy"),
    }
}

struct Http {
    posted: mpsc::Receiver<PostedMessage>,
    next: Option<PostedMessage>,
    sequence: u64,
    has_ended: bool,
    /// True if the stream ends in a sink that stores messages.
    is_stored: bool,
    /// The accepted requests, in order.
    unanswered: VecDeque<(u64, oneshot::Sender<StatusCode>)>,
    /// Stops the server.
    closing: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Http {
    fn answer(&mut self, through: u64) {
        let status = if self.is_stored { StatusCode::OK } else { StatusCode::ACCEPTED };
        while self.unanswered.front().is_some_and(|(sequence, _)| *sequence <= through) {
            if let Some((_, answer)) = self.unanswered.pop_front() {
                // The client may have disconnected.
                let _ = answer.send(status);
            }
        }
    }

    /// In a stream that stores nothing, answers requests when their messages have passed: at the runtime's
    /// next request for messages.
    fn answer_passed(&mut self) {
        if !self.is_stored {
            self.answer(u64::MAX);
        }
    }
}

impl Source for Http {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        self.answer_passed();
        batch.clear();
        let mut bytes = 0;
        while batch.len() < BATCH_MESSAGES_MAX && bytes < BATCH_BYTES_MAX {
            let Some(posted) = self.next.take().or_else(|| self.posted.try_recv().ok()) else { break };
            if posted.is_decided.swap(true, Ordering::AcqRel) {
                // The client has received 503, so the message must not be stored.
                continue;
            }
            bytes += posted.body.len();
            batch.push(posted.body, posted.key.map(Bytes::from), turn.time_ms, self.sequence);
            self.unanswered.push_back((self.sequence, posted.answer));
            self.sequence += 1;
        }
        match (batch.is_empty(), self.has_ended) {
            (false, _) => Ok(FillResult::Ready),
            (true, true) => Ok(FillResult::End),
            (true, false) => Ok(FillResult::Pending),
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

    /// Queued messages are still accepted; new requests are refused.
    fn close(&mut self) {
        self.posted.close();
    }

    fn wants_acknowledgement(&self) -> bool {
        self.is_stored && !self.unanswered.is_empty()
    }

    fn has_waiting_clients(&self) -> bool {
        self.is_stored
    }

    fn acknowledge(&mut self, through: u64) -> Wait<'_, Result<(), StageError>> {
        self.answer(through);
        Box::pin(async { Ok(()) })
    }

    fn finish(&mut self) -> Wait<'_, Result<(), StageError>> {
        self.answer_passed();
        drop(self.closing.take());
        Box::pin(async {
            // Completes when all answers are sent, or at the timeout if a client keeps its connection busy.
            let _ = timeout(CLOSE_TIMEOUT, &mut self.server).await;
            Ok(())
        })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.server.abort();
    }
}
