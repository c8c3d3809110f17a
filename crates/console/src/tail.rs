//! A live tail: new messages of a topic as an event stream (`text/event-stream`).
//!
//! The number of tails, their bytes per second and their duration are bounded. Of messages above the limits,
//! the newest wait for the next second, and the others are counted and dropped. A tail ends with its
//! connection, with the session of its person, or with its time limit.
//!
//! Events: `message` with data in JSON, `omitted` with the number of messages that were passed over since the
//! previous message, `waiting` and `end` with a sentence. A tail that continues at offsets also gives the
//! offsets behind each event as its id, and a `position` without data when they advance without messages: a
//! later tail continues there, so that the messages in between are shown or counted.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use thalweg_browse::{EndReason, Event, Message, PartitionProgress, Search};
use thalweg_record::Offset;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::cluster::View;
use crate::cluster::messages::{self, MessageQuery};
use crate::cluster::positions::Positions;
use crate::problem::Problem;
use crate::session::SessionKey;
use crate::state::Console;

/// Maximum duration of a tail. A page then opens a new tail.
const TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// Maximum bytes and messages that a tail sends per second, and keeps for the next second.
const BYTES_PER_SECOND: usize = 512 << 10;
const MESSAGES_PER_SECOND: usize = 50;
/// Queued events for a slow connection.
const EVENTS_MAX: usize = 16;
/// Interval of session checks, and of comments that keep the connection alive.
const LOOK: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);
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
        shown: ShownOffsets::new(after),
        to,
        write,
        second: Instant::now(),
        bytes: 0,
        messages: 0,
        newest: NewestMessages::default(),
        omitted: 0,
    };
    tokio::spawn(tail.run());
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(ChannelBody(events))).into_response())
}

/// A response body from a channel, which ends when the sender is dropped.
pub struct ChannelBody(pub mpsc::Receiver<Bytes>);

impl HttpBody for ChannelBody {
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
    shown: ShownOffsets,
    to: mpsc::Sender<Bytes>,
    write: W,
    /// Start of the current second.
    second: Instant,
    bytes: usize,
    messages: usize,
    /// Messages to send.
    newest: NewestMessages,
    /// Number of messages that were passed over, and not reported yet.
    omitted: u64,
}

/// The newest messages that were not sent yet, limited in number and bytes. The oldest give way.
#[derive(Default)]
struct NewestMessages {
    bytes: u64,
    /// By timestamp, as in the answer of a search: a partition keeps its order.
    messages: BTreeMap<(i64, i32, Offset), Message>,
    /// The greatest timestamp of each partition.
    latest: BTreeMap<i32, i64>,
}

impl NewestMessages {
    /// Adds a message. Returns the number of messages that gave way.
    fn push(&mut self, message: Message) -> u64 {
        let latest = self.latest.entry(message.partition).or_insert(message.timestamp);
        *latest = message.timestamp.max(*latest);
        self.bytes += message.size_bytes();
        self.messages.insert((*latest, message.partition, message.offset), message);
        let mut dropped = 0;
        while self.messages.len() > MESSAGES_PER_SECOND
            || (self.bytes > BYTES_PER_SECOND as u64 && self.messages.len() > 1)
        {
            dropped += u64::from(self.pop_oldest().is_some());
        }
        dropped
    }

    fn pop_oldest(&mut self) -> Option<Message> {
        let (_, message) = self.messages.pop_first()?;
        self.bytes -= message.size_bytes();
        Some(message)
    }

    fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

/// The offsets up to which a tail has shown its messages, or counted those that it passed over.
struct ShownOffsets {
    /// The offsets at which the tail was asked to continue; empty for a tail that starts now.
    after: BTreeMap<i32, Offset>,
    /// The offset behind the last received or scanned record of each partition.
    read: BTreeMap<i32, Offset>,
    /// The last positions that the reader of the events knows.
    sent: String,
}

impl ShownOffsets {
    fn new(after: BTreeMap<i32, Offset>) -> ShownOffsets {
        let sent = Positions(after.clone()).text();
        ShownOffsets { after, read: BTreeMap::new(), sent }
    }

    /// True if the tail continues at offsets.
    fn is_continued(&self) -> bool {
        !self.after.is_empty()
    }

    /// Takes the progress of the search. Returns the number of offsets that partitions new to the search
    /// have passed over. A partition without an offset to continue at was not shown before.
    fn advance(&mut self, partitions: &[PartitionProgress]) -> u64 {
        if !self.is_continued() {
            return 0;
        }
        let mut omitted = 0;
        for one in partitions {
            if let Some(read) = self.read.get_mut(&one.partition) {
                *read = one.position.max(*read);
                continue;
            }
            let after = self.after.get(&one.partition).copied();
            // A log that ends before the position was created again, or truncated: its messages are shown
            // from the first one, after a truncation some of them again. A new partition begins there, too.
            let after = after.filter(|after| *after <= one.latest).unwrap_or(one.earliest);
            omitted += u64::try_from(one.start.0 - after.0).unwrap_or(0);
            self.after.insert(one.partition, after);
            self.read.insert(one.partition, one.position.max(after));
        }
        omitted
    }

    /// True if a message was not shown before.
    fn is_new(&self, message: &Message) -> bool {
        self.after.get(&message.partition).is_none_or(|after| message.offset >= *after)
    }

    fn receive(&mut self, message: &Message) {
        if let Some(read) = self.read.get_mut(&message.partition) {
            *read = Offset(message.offset.0 + 1).max(*read);
        }
    }

    /// The positions behind all messages but the pending ones, if they have changed.
    fn take(&mut self, pending: &NewestMessages) -> Option<String> {
        if !self.is_continued() {
            return None;
        }
        // Partitions that cannot be read keep their offsets.
        let mut positions = self.after.clone();
        positions.extend(&self.read);
        for (_, partition, offset) in pending.messages.keys() {
            positions.entry(*partition).and_modify(|position| *position = (*position).min(*offset));
        }
        let text = Positions(positions).parameter().filter(|text| *text != self.sent)?;
        self.sent.clone_from(&text);
        Some(text)
    }
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
        let _ = self.send_event("end", &words).await;
    }

    async fn pump(&mut self) -> Result<String, ClosedConnection> {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut alive_at = Instant::now();
        loop {
            let is_due = self.is_due();
            let is_waiting = self.has_news() && !is_due;
            tokio::select! {
                biased;
                () = self.to.closed() => return Err(ClosedConnection),
                _ = look.tick() => {
                    if self.session.as_ref().is_some_and(|session| !self.console.sessions().lasts(session)) {
                        return Ok("The session has ended.".to_owned());
                    }
                    if alive_at.elapsed() >= ALIVE {
                        alive_at = Instant::now();
                        self.send_or_pass(":\n\n".to_owned()).await?;
                    }
                    if !self.has_news()
                        && self.to.capacity() > 0
                        && let Some(position) = self.shown.take(&self.newest)
                    {
                        self.send(format!("event: position\nid: {position}\ndata:\n\n")).await?;
                    }
                }
                permit = self.to.clone().reserve_owned(), if is_due => {
                    let permit = permit.map_err(|_| ClosedConnection)?;
                    if let Some(text) = self.next_text() {
                        permit.send(Bytes::from(text));
                    }
                }
                () = tokio::time::sleep_until(self.second + SECOND), if is_waiting => {
                    (self.second, self.bytes, self.messages) = (Instant::now(), 0, 0);
                }
                event = self.search.next() => match event {
                    Some(Event::Matches(found)) => {
                        for message in found {
                            self.shown.receive(&message);
                            if self.shown.is_new(&message) {
                                self.omitted += self.newest.push(message);
                            }
                        }
                    }
                    Some(Event::Progress(progress)) => {
                        self.omitted += self.shown.advance(&progress.partitions);
                    }
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

    fn has_news(&self) -> bool {
        self.omitted > 0 || !self.newest.is_empty()
    }

    /// True if the limits of the current second allow a message.
    fn is_due(&self) -> bool {
        self.has_news() && self.bytes < BYTES_PER_SECOND && self.messages < MESSAGES_PER_SECOND
    }

    /// The next event: the number of messages that were passed over, or the oldest message that is left.
    fn next_text(&mut self) -> Option<String> {
        if self.omitted > 0 {
            let omitted = std::mem::take(&mut self.omitted);
            return Some(format!("event: omitted\n{}data: {omitted}\n\n", self.id_line()));
        }
        let message = self.newest.pop_oldest()?;
        if self.second.elapsed() >= SECOND {
            (self.second, self.bytes, self.messages) = (Instant::now(), 0, 0);
        }
        let text = format!("event: message\n{}data: {}\n\n", self.id_line(), (self.write)(&message));
        self.bytes += text.len();
        self.messages += 1;
        Some(text)
    }

    /// The positions as the id of an event.
    fn id_line(&mut self) -> String {
        self.shown.take(&self.newest).map_or(String::new(), |position| format!("id: {position}\n"))
    }

    /// Sends an optional event; skipped if the queue is full.
    async fn send_or_pass(&self, text: String) -> Result<(), ClosedConnection> {
        if self.to.capacity() == 0 { Ok(()) } else { self.send(text).await }
    }

    /// Sends a sentence in JSON, which has no line breaks.
    async fn send_event(&self, event: &str, words: &str) -> Result<(), ClosedConnection> {
        self.send(format!("event: {event}\ndata: {}\n\n", serde_json::Value::from(words))).await
    }

    async fn send(&self, text: String) -> Result<(), ClosedConnection> {
        self.to.send(Bytes::from(text)).await.map_err(|_| ClosedConnection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing;
    use thalweg_browse::Content;

    fn message(partition: i32, offset: i64, timestamp: i64, bytes: usize) -> Message {
        let value = Some(Content { bytes: vec![0; bytes].into(), whole_bytes: bytes, schema: None });
        Message { value, ..testing::message(partition, offset, timestamp) }
    }

    fn offsets(mut newest: NewestMessages) -> Vec<(i32, i64)> {
        let all = std::iter::from_fn(|| newest.pop_oldest());
        all.map(|message| (message.partition, message.offset.0)).collect()
    }

    #[test]
    fn a_burst_leaves_its_newest_messages() {
        let mut newest = NewestMessages::default();
        // The partitions come one after the other.
        let burst = [0, 1].into_iter().flat_map(|partition| {
            (0..5000).map(move |offset| message(partition, offset, offset * 10 + i64::from(partition), 10))
        });
        let dropped: u64 = burst.map(|message| newest.push(message)).sum();
        assert_eq!(dropped, 10_000 - 50);
        let expected: Vec<_> = (4975..5000).flat_map(|offset| [(0, offset), (1, offset)]).collect();
        assert_eq!(offsets(newest), expected);
    }

    #[test]
    fn a_partition_keeps_its_order_and_large_messages_are_fewer() {
        let mut newest = NewestMessages::default();
        let times = [500, 3, 900, 4];
        let dropped: u64 =
            (0..).zip(times).map(|(offset, time)| newest.push(message(0, offset, time, 10))).sum();
        assert_eq!((dropped, offsets(newest)), (0, vec![(0, 0), (0, 1), (0, 2), (0, 3)]));
        let mut newest = NewestMessages::default();
        let dropped: u64 = (0..40).map(|offset| newest.push(message(0, offset, offset, 32 << 10))).sum();
        assert_eq!((dropped, newest.messages.len()), (24, 16));
    }

    fn partition(partition: i32, start: i64, position: i64, latest: i64) -> PartitionProgress {
        let [start, position, latest] = [start, position, latest].map(Offset);
        let (from, earliest) = (start, Offset(0));
        PartitionProgress { partition, start, from, position, resume: start, end: None, earliest, latest }
    }

    #[test]
    fn offsets_between_a_page_and_its_tail_are_counted_once() {
        let mut shown = ShownOffsets::new([(0, Offset(20)), (1, Offset(900)), (2, Offset(70))].into());
        let starts = [(0, 270, 320), (1, 850, 900), (2, 0, 30), (3, 10, 60)];
        let progress = starts.map(|(index, start, latest)| partition(index, start, start, latest));
        // Partition 2 was created again, and partition 3 is new.
        assert_eq!(shown.advance(&progress), 250 + 10);
        assert_eq!(shown.advance(&progress), 0);
        let is_new = |shown: &ShownOffsets, index, offset| shown.is_new(&message(index, offset, 0, 1));
        assert!(is_new(&shown, 0, 270) && !is_new(&shown, 1, 899) && is_new(&shown, 1, 900));
        assert!(is_new(&shown, 2, 0) && is_new(&shown, 3, 0));
    }

    #[test]
    fn positions_are_behind_all_messages_but_those_to_send() {
        let mut shown = ShownOffsets::new([(0, Offset(10)), (1, Offset(5))].into());
        shown.advance(&[partition(0, 8, 8, 12), partition(1, 5, 5, 5)]);
        let mut newest = NewestMessages::default();
        assert_eq!(shown.take(&newest), None, "the reader asked for them");
        for offset in 8..12 {
            let message = message(0, offset, 0, 1);
            shown.receive(&message);
            if shown.is_new(&message) {
                newest.push(message);
            }
        }
        assert_eq!(shown.take(&newest), None, "they were not sent");
        newest.pop_oldest();
        assert_eq!(shown.take(&newest).as_deref(), Some("0:11,1:5"));
        newest.pop_oldest();
        shown.advance(&[partition(0, 8, 12, 12), partition(1, 5, 9, 9)]);
        assert_eq!(shown.take(&newest).as_deref(), Some("0:12,1:9"));
        let mut unread = ShownOffsets::new([(0, Offset(10)), (1, Offset(5))].into());
        assert_eq!(unread.take(&newest), None);
        unread.advance(&[partition(0, 10, 12, 12)]);
        assert_eq!(unread.take(&newest).as_deref(), Some("0:12,1:5"), "partition 1 cannot be read");
        assert_eq!(ShownOffsets::new(BTreeMap::new()).take(&newest), None);
    }
}
