//! A live tail: new messages of a topic as an event stream (`text/event-stream`).
//!
//! The number of tails, their bytes per second and their duration are bounded. Messages above the limits are
//! counted and dropped. A tail ends with its connection, with the session of its person, or with its time
//! limit.
//!
//! Events: `message` with data in JSON, `omitted` with a number of messages, `waiting` and `end` with a
//! sentence.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use thalweg_browse::{EndReason, Event, Message, Search};
use thalweg_record::Offset;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::{SendTimeoutError, TrySendError};
use tokio::time::{Instant, MissedTickBehavior};

use crate::cluster::View;
use crate::cluster::messages::{self, MessageQuery};
use crate::problem::Problem;
use crate::session::SessionKey;
use crate::state::Console;

/// Maximum duration of a tail. A page then opens a new tail.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// Maximum bytes and messages that a tail sends per second. Messages above the limit are counted.
const BYTES_PER_SECOND: usize = 512 << 10;
const MESSAGES_PER_SECOND: usize = 50;
/// Queued events for a slow connection.
const EVENTS_MAX: usize = 16;
/// Time that a message waits for a slow connection. After that, messages are counted until the queue has
/// room.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of session checks, and of comments that keep the connection alive.
const LOOK: Duration = Duration::from_secs(1);
const ALIVE: Duration = Duration::from_secs(15);

/// Opens a tail, from these offsets or from now. `write` formats a message.
pub async fn open(
    console: &Console,
    view: &View,
    headers: &HeaderMap,
    topic: &str,
    query: &MessageQuery,
    after: BTreeMap<i32, Offset>,
    write: impl Fn(&Message) -> String + Send + Sync + 'static,
) -> Result<Response, Problem> {
    let search = messages::tail(view, topic, query, !after.is_empty(), TIME_MAX).await?;
    let (to, events) = mpsc::channel(EVENTS_MAX);
    let session = console.sessions().key(headers);
    let tail = Tail {
        console: console.clone(),
        session,
        search,
        after,
        to,
        write,
        second: Instant::now(),
        bytes: 0,
        messages: 0,
        omitted: 0,
        is_slow: false,
    };
    tokio::spawn(tail.run());
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(Events(events))).into_response())
}

/// The response body, which ends when the sender is dropped.
struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

struct Tail<W> {
    console: Console,
    session: Option<SessionKey>,
    search: Search,
    /// Start offsets by partition.
    after: BTreeMap<i32, Offset>,
    to: mpsc::Sender<Bytes>,
    write: W,
    /// Start of the current second.
    second: Instant,
    bytes: usize,
    messages: usize,
    omitted: u64,
    /// True if the connection did not take a message within [`PATIENCE`].
    is_slow: bool,
}

/// The connection is closed.
struct ClosedConnection;

impl<W: Fn(&Message) -> String> Tail<W> {
    async fn run(mut self) {
        let words = match self.pump().await {
            Ok(words) => words,
            Err(ClosedConnection) => return,
        };
        // The connection may have closed in the meantime.
        let _ = self.say("end", &words).await;
    }

    async fn pump(&mut self) -> Result<String, ClosedConnection> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alive_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = self.to.closed() => return Err(ClosedConnection),
                _ = look.tick() => {
                    if self.session.as_ref().is_some_and(|session| !self.console.sessions().lasts(session)) {
                        return Ok("The session has ended.".to_owned());
                    }
                    self.report_omitted().await?;
                    if alive_at.elapsed() >= ALIVE {
                        alive_at = Instant::now();
                        self.send_or_pass(":\n\n".to_owned()).await?;
                    }
                }
                event = self.search.next() => match event {
                    Some(Event::Matches(found)) => {
                        for message in &found {
                            if self.is_new(message) {
                                self.message(message).await?;
                            }
                        }
                    }
                    Some(Event::Progress(_)) => {}
                    Some(Event::Waiting(words)) => {
                        let words = serde_json::Value::from(words);
                        self.send_or_pass(format!("event: waiting\ndata: {words}\n\n")).await?;
                    }
                    Some(Event::Ended(ended)) => return Ok(match ended.why {
                        EndReason::Failed(error) => error.to_string(),
                        _ => "The time of this tail is over.".to_owned(),
                    }),
                    None => return Ok("The search has ended.".to_owned()),
                },
            }
        }
    }

    fn is_new(&self, message: &Message) -> bool {
        self.after.get(&message.partition).is_none_or(|after| message.offset >= *after)
    }

    async fn message(&mut self, message: &Message) -> Result<(), ClosedConnection> {
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.bytes, self.messages) = (Instant::now(), 0, 0);
        }
        if self.bytes >= BYTES_PER_SECOND || self.messages >= MESSAGES_PER_SECOND {
            self.omitted += 1;
            return Ok(());
        }
        let text = format!("event: message\ndata: {}\n\n", (self.write)(message));
        self.bytes += text.len();
        self.messages += 1;
        self.send_or_count(Bytes::from(text)).await
    }

    /// A slow connection must not stall the search, which holds a share of the memory of all searches.
    async fn send_or_count(&mut self, text: Bytes) -> Result<(), ClosedConnection> {
        let text = match self.to.try_send(text) {
            Ok(()) => {
                self.is_slow = false;
                return Ok(());
            }
            Err(TrySendError::Full(text)) => text,
            Err(TrySendError::Closed(_)) => return Err(ClosedConnection),
        };
        if !self.is_slow {
            match self.to.send_timeout(text, PATIENCE).await {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Timeout(_)) => self.is_slow = true,
                Err(SendTimeoutError::Closed(_)) => return Err(ClosedConnection),
            }
        }
        self.omitted += 1;
        Ok(())
    }

    async fn report_omitted(&mut self) -> Result<(), ClosedConnection> {
        if self.omitted == 0 || self.to.capacity() == 0 {
            return Ok(());
        }
        let omitted = std::mem::take(&mut self.omitted);
        self.send(format!("event: omitted\ndata: {omitted}\n\n")).await
    }

    /// Sends an optional event; skipped if the queue is full.
    async fn send_or_pass(&self, text: String) -> Result<(), ClosedConnection> {
        if self.to.capacity() == 0 { Ok(()) } else { self.send(text).await }
    }

    /// Sends a sentence in JSON, which has no line breaks.
    async fn say(&self, event: &str, words: &str) -> Result<(), ClosedConnection> {
        self.send(format!("event: {event}\ndata: {}\n\n", serde_json::Value::from(words))).await
    }

    async fn send(&self, text: String) -> Result<(), ClosedConnection> {
        self.to.send(Bytes::from(text)).await.map_err(|_| ClosedConnection)
    }
}
