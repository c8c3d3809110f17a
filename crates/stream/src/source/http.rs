//! `http`: accepts messages as requests on a port.
//!
//! If the stream ends in a sink that stores messages, a request is answered when its message is stored: the
//! sink has acknowledged the message, and the figures of every stage include it. Otherwise the answer is 202,
//! when the message has passed the stream. A message that a stage refuses goes back to its client, with the
//! reason, and does not stop the stream. Clients of a slow stream wait, for a bounded time. The total size of
//! pending bodies and the number of connections are bounded, for any number of clients.

mod server;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::declaration::{
    Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::message::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, MESSAGE_BYTES_MAX};
use crate::passwords::percent_decoded;
use crate::stage::{FillResult, IoFailed, Source, StageError, Turn, Wait};

/// Messages queued for the stream.
const WAITING_MAX: usize = 256;
/// Total bytes of bodies that are queued or being received, without the body beyond the limit.
const WAITING_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// Number of bodies that may be received beyond the limit. Without one, bodies that are received in part
/// could wait for each other.
const BODIES_BEYOND: usize = 1;
/// Maximum time for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

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
            | 400 | The parameter `key` of the query has an invalid percent-encoding. The message is not stored. |\n\
            | 408 | The body did not arrive within a minute. |\n\
            | 413 | The body is larger than `--maxSize`. |\n\
            | 422 | A stage refused the message: it is a bad message, for the reason in the answer. It is not stored, unless as a dead \
            letter. It does not stop the stream, also without `--on-error`: only for a message that was already answered with 202 or 504 \
            `--on-error` decides. Of several parts that `splitter` made of the \
            message, others may be stored. |\n\
            | 500 | The stream failed after accepting the message, which may or may not be stored. |\n\
            | 503 | The stream did not accept the message within `--timeout`, or is stopping, or there are too many connections. The \
            message is not stored. |\n\
            | 504 | The stream accepted the message, but did not store it within `--timeout`. It may still be stored. |\n\n\
            A stage that holds messages back, such as `batch`, delays the answer. `file` stores in the page cache, or with \
            `--sync=true` on the medium. Messages that `batch`, `aggregate` or `exec` have combined, or that continue through \
            `topic:NAME`, cannot be traced to a request: if a later stage refuses one, `--on-error` decides, as for other \
            sources.\n\n\
            A connection is closed when the head of a request does not arrive within 30 seconds, or when no request follows the last \
            answer for as long. All `http` sources of a process together take at most a quarter of the process's file descriptors.",
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
        OptionSpec {
            name: "connections",
            takes: OptionType::Integer(1, 10_000),
            default: OptionDefault::Value("256"),
            summary: "The maximum number of open connections; more get 503 and are closed.",
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
    state: Arc<RequestState>,
    answer: oneshot::Sender<Answer>,
    _room: Option<OwnedSemaphorePermit>,
}

/// The state of a request: waiting, until the stream accepts its message or its time is over.
#[derive(Default)]
struct RequestState(AtomicU8);

impl RequestState {
    const ACCEPTED: u8 = 1;
    const TIMED_OUT: u8 = 2;

    /// Accepts the message. Returns false if the client has received 503, so that the message must not be
    /// stored.
    fn accept(&self) -> bool {
        self.0.fetch_or(RequestState::ACCEPTED, Ordering::AcqRel) & RequestState::TIMED_OUT == 0
    }

    /// Ends the time of the request. Returns true if the stream has accepted the message.
    fn time_out(&self) -> bool {
        self.0.fetch_or(RequestState::TIMED_OUT, Ordering::AcqRel) & RequestState::ACCEPTED != 0
    }

    fn is_accepted(&self) -> bool {
        self.0.load(Ordering::Acquire) & RequestState::ACCEPTED != 0
    }

    fn is_timed_out(&self) -> bool {
        self.0.load(Ordering::Acquire) & RequestState::TIMED_OUT != 0
    }
}

/// A request whose message the stream has accepted.
struct AcceptedRequest {
    sequence: u64,
    state: Arc<RequestState>,
    /// `None` if the message has gone back to its client. Other parts of the message may still be in the
    /// stream.
    answer: Option<oneshot::Sender<Answer>>,
}

/// The state of the server.
#[derive(Clone)]
struct Door {
    sender: mpsc::Sender<PostedMessage>,
    room: BodyRoom,
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
        room: BodyRoom {
            bytes: Arc::new(Semaphore::new(WAITING_BYTES_MAX)),
            beyond: Arc::new(Semaphore::new(BODIES_BEYOND)),
        },
        size_max: (settings.integer("maxSize") as usize).min(MESSAGE_BYTES_MAX),
        timeout: settings.duration("timeout"),
    };
    let router = Router::new().route(&path, post(take)).with_state(door);
    let (closing, closed) = oneshot::channel::<()>();
    let connections_max = settings.integer("connections") as usize;
    let server = tokio::spawn(server::serve(listener, router, connections_max, closed));
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
        Some(value) => percent_decoded(&value.replace('+', " ")).map(Some).ok_or(()),
        None => Ok(None),
    }
}

/// A status and an explanation.
type Answer = (StatusCode, String);

fn not_taken(why: &str) -> Answer {
    (StatusCode::SERVICE_UNAVAILABLE, format!("The message was not accepted: {why}\n"))
}

/// The room for bodies.
#[derive(Clone)]
struct BodyRoom {
    bytes: Arc<Semaphore>,
    /// The bodies beyond the limit.
    beyond: Arc<Semaphore>,
}

/// The reason why a body is not received.
enum BodyRefusal {
    TooLarge,
    NoRoom,
    /// The client has disconnected, or violates the protocol.
    Broken,
}

impl Door {
    /// Receives a body, and takes its room as its bytes arrive: a slow client takes no more than it has sent.
    async fn receive(
        &self,
        mut body: Body,
        length: Option<usize>,
    ) -> Result<(Bytes, Option<OwnedSemaphorePermit>), BodyRefusal> {
        let length_max = length.unwrap_or(self.size_max);
        if length_max > self.size_max {
            return Err(BodyRefusal::TooLarge);
        }
        let mut received = Vec::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        let mut is_beyond = false;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| BodyRefusal::Broken)?.into_data() else { continue };
            let left = length_max - received.len();
            if data.len() > left {
                return Err(BodyRefusal::TooLarge);
            }
            if !is_beyond {
                let (bytes, beyond) = (self.room.bytes.clone(), self.room.beyond.clone());
                let more = async {
                    tokio::select! {
                        biased;
                        more = bytes.acquire_many_owned(data.len() as u32) => (more, false),
                        beyond = beyond.acquire_owned() => (beyond, true),
                    }
                };
                let Ok((Ok(more), goes_beyond)) = timeout(self.timeout, more).await else {
                    return Err(BodyRefusal::NoRoom);
                };
                is_beyond = goes_beyond;
                match &mut room {
                    // The whole body stands for its bytes within the limit, which become free.
                    Some(room) if !is_beyond => room.merge(more),
                    room => *room = Some(more),
                }
            }
            if received.capacity() - received.len() < data.len() {
                received.reserve_exact(data.len().max(received.len()).min(left));
            }
            received.extend_from_slice(&data);
        }
        Ok((received.into(), room))
    }
}

async fn take(State(door): State<Door>, query: RawQuery, headers: HeaderMap, body: Body) -> Answer {
    let Ok(key) = key(query.0.as_deref().unwrap_or_default()) else {
        let text =
            "The message was not accepted: the parameter key of the query has an invalid percent-encoding\n";
        return (StatusCode::BAD_REQUEST, text.to_owned());
    };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let (body, room) = match timeout(BODY_TIMEOUT, door.receive(body, length)).await {
        Ok(Ok(received)) => received,
        Ok(Err(BodyRefusal::TooLarge)) => {
            let text = format!("The body is larger than {} bytes\n", door.size_max);
            return (StatusCode::PAYLOAD_TOO_LARGE, text);
        }
        Ok(Err(BodyRefusal::NoRoom)) => return not_taken("too many requests are waiting"),
        Ok(Err(BodyRefusal::Broken)) => return not_taken("its body is incomplete"),
        Err(_elapsed) => {
            let text = format!("The body did not arrive within {} s\n", BODY_TIMEOUT.as_secs());
            return (StatusCode::REQUEST_TIMEOUT, text);
        }
    };
    let (answer, answered) = oneshot::channel();
    let state = Arc::<RequestState>::default();
    let posted = PostedMessage { body, key, state: state.clone(), answer, _room: room };
    let by = Instant::now() + door.timeout;
    match timeout_at(by, door.sender.send(posted)).await {
        Ok(Ok(())) => {}
        Ok(Err(_ended)) => return not_taken("the stream is stopping"),
        Err(_elapsed) => return not_taken("the stream is busy"),
    }
    match timeout_at(by, answered).await {
        Ok(Ok(answer)) => answer,
        // Dropped without an answer: the stream failed, or ended before accepting the message.
        Ok(Err(_gone)) if state.is_accepted() => {
            let text = "The stream failed after accepting the message, which may or may not be stored\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
        }
        Ok(Err(_gone)) => not_taken("the stream is stopping"),
        Err(_elapsed) if state.time_out() => {
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
    unanswered: VecDeque<AcceptedRequest>,
    /// Stops the server.
    closing: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Http {
    fn answer(&mut self, through: u64) {
        let status = if self.is_stored { StatusCode::OK } else { StatusCode::ACCEPTED };
        while self.unanswered.front().is_some_and(|request| request.sequence <= through) {
            if let Some(AcceptedRequest { answer: Some(answer), .. }) = self.unanswered.pop_front() {
                // The client may have disconnected.
                let _ = answer.send((status, String::new()));
            }
        }
    }

    /// Closes the server, and waits until all answers are sent. Requests that wait for their acceptance get
    /// 503, and accepted ones without an answer 500.
    async fn close_server(&mut self) {
        self.posted = mpsc::channel(1).1;
        self.next = None;
        self.unanswered.clear();
        if self.closing.take().is_some() {
            // The server bounds the time of its end.
            let _ = (&mut self.server).await;
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
            if !posted.state.accept() {
                continue;
            }
            bytes += posted.body.len();
            batch.push(posted.body, posted.key.map(Bytes::from), turn.time_ms, self.sequence);
            let PostedMessage { state, answer, .. } = posted;
            self.unanswered.push_back(AcceptedRequest {
                sequence: self.sequence,
                state,
                answer: Some(answer),
            });
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

    fn answers_senders(&self) -> bool {
        true
    }

    fn return_bad(&mut self, sequence: u64, reason: &str) -> bool {
        let index = self.unanswered.binary_search_by_key(&sequence, |request| request.sequence);
        let Some(request) = index.ok().and_then(|index| self.unanswered.get_mut(index)) else {
            // The answer was 202.
            return false;
        };
        let Some(answer) = request.answer.take() else { return true };
        let text = format!("The message was refused: {reason}\n");
        // A client that has disconnected has no answer, and must not fail the stream. The answer 504 leaves
        // the message to the stream.
        answer.send((StatusCode::UNPROCESSABLE_ENTITY, text)).is_ok() || !request.state.is_timed_out()
    }

    fn acknowledge(&mut self, through: u64) -> Wait<'_, Result<(), StageError>> {
        self.answer(through);
        Box::pin(async { Ok(()) })
    }

    fn finish(&mut self) -> Wait<'_, Result<(), StageError>> {
        self.answer_passed();
        Box::pin(async {
            self.close_server().await;
            Ok(())
        })
    }

    /// Also after a failure, all clients get an answer.
    fn leave(&mut self) -> Wait<'_, ()> {
        Box::pin(self.close_server())
    }
}
