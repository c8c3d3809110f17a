//! A connection: frames in, answers out, in the order of the requests.

mod pending;

use super::admission::{Admission, End};
use super::answers::{AnswerMemory, HeldAnswers};
use super::behind::FramesBehind;
use super::flow::{ApiSlot, Flow, UnsentAnswers};
use super::holder::Holder;
use super::input::{FrameLength, Input, ReadOutcome};
use super::memory::FrameMemory;
use super::output::{Frame, HELD_MAX, OutputQueue};
use super::peer::Peer;
use super::stream::Stream;
use super::waiting::{Alarm, Stop};
use bytes::Bytes;
use pending::{PendingAnswer, first_answer, go_on};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::NetworkSettings;
use thalweg_places::network;
use thalweg_watch as watch;
use tokio::time::{Instant, sleep, sleep_until};

/// Memory of frames over all connections, unless `queued.max.request.bytes` is set.
const FRAME_MEMORY: usize = 512 * 1024 * 1024;
/// Divisor of [`FRAME_MEMORY`] for the memory of answers that peers do not read.
const ANSWER_SHARE: usize = 4;
/// Minimum memory of answers that peers do not read.
const ANSWER_MEMORY_MIN: usize = 64 * 1024 * 1024;
/// Size below which ready answers behind a pending one are not counted.
const COUNTED_MIN: usize = 16 * 1024;
/// An idle timeout that is never reached.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Maximum number of pending answers of a connection. At the limit it is not read.
const PENDING_MAX: usize = 64;
/// Maximum time for which one connection is read and served before its task yields. A peer that sends faster
/// than it is served would otherwise occupy its worker. Yielding is not free for a busy connection: another
/// worker may take it over, with cold caches.
const TURN_MAX: Duration = Duration::from_millis(10);
/// Time for a peer to receive the last answers when the broker stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Time for a peer to read a final answer and to close.
const LAST_ANSWER_READ: Duration = Duration::from_millis(500);
/// Maximum number of further bytes of such a peer that are dropped, in total and at once.
const DROPPED_MAX: usize = 64 * 1024;
const DROPPED_AT_ONCE: usize = 4 * 1024;
/// A connection that is quiet for this long releases its buffer.
const QUIET: Duration = Duration::from_secs(1);
/// A connection whose waits last this long releases its buffer at once.
const LONG_WAIT: Duration = Duration::from_millis(50);
/// Interval of writes to a socket that reports no room. Sockets report room only when much of their buffer is
/// free, which a slow reader may take long to achieve.
const TRY_UNASKED: Duration = Duration::from_secs(5);
/// Retry interval for reading without memory, on a connection that waits for an answer.
const READ_AGAIN: Duration = Duration::from_millis(100);

/// Settings common to all connections of a listener.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// Maximum size of a frame, `socket.request.max.bytes`.
    pub frame_max: usize,
    /// Maximum time without progress, `connections.max.idle.ms`.
    pub idle_max: Duration,
    /// Memory budget of frames.
    pub memory: FrameMemory,
    /// Memory budget of answers that peers do not read.
    pub answers: AnswerMemory,
    /// SO_SNDBUF, `socket.send.buffer.bytes`; `None` for the system's default.
    pub send_buffer_bytes: Option<usize>,
    /// Counts of requests and answers.
    pub flow: Flow,
}

impl ConnectionSettings {
    /// Settings by the network settings. Each call creates a separate memory budget.
    pub fn of(network: &NetworkSettings) -> ConnectionSettings {
        let memory = network.queued_max_request_bytes.unwrap_or(FRAME_MEMORY);
        ConnectionSettings {
            frame_max: network.request_max_bytes,
            idle_max: network.connections_max_idle.unwrap_or(NEVER),
            memory: FrameMemory::new(memory, network.request_max_bytes),
            answers: AnswerMemory::new((memory / ANSWER_SHARE).max(ANSWER_MEMORY_MIN)),
            send_buffer_bytes: network.send_buffer_bytes,
            flow: Flow::default(),
        }
    }
}

/// The answer to one request.
pub enum Reply {
    /// The answer is ready.
    Now(Frame),
    /// Available later; the connection serves no further request before.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// Available later; the order of the request's effects is already fixed, so the connection reads on.
    Ordered(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// The request has no answer (Produce with acks=0).
    Nothing,
    /// The request cannot be answered: the connection is closed.
    Close(String),
    /// The answer is the last one: the connection is closed after it.
    Last(Frame, String),
}

/// A handler's result: the answer to the request, and the answers to later requests served together with it.
pub struct Replies {
    /// The answer to the request itself.
    pub first: Reply,
    /// The answers to the later requests, in order.
    pub behind: Vec<ReplyBehind>,
}

/// The answer to a request taken from [`FramesBehind`].
pub struct ReplyBehind {
    /// Length of the request's frame.
    pub frame_len: usize,
    /// The answer to the request.
    pub reply: Reply,
}

impl From<Reply> for Replies {
    fn from(first: Reply) -> Replies {
        Replies { first, behind: Vec::new() }
    }
}

/// The limits on a peer that has not authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnprovenLimits {
    /// Maximum size of a frame.
    pub frame_max: usize,
    /// Name of the setting with that limit.
    pub setting: &'static str,
    /// Time at which the connection is closed.
    pub until: Instant,
}

impl Reply {
    /// The final reply, once everything it waits for is available.
    pub async fn resolved(mut self) -> Reply {
        while let Reply::Later(rest) | Reply::Ordered(rest) = self {
            self = rest.await;
        }
        self
    }
}

/// Serves the requests of connections.
pub trait Handler: Clone + Send + 'static {
    /// State of one connection.
    type Session: Send;

    /// Called for a new connection.
    fn open(&self, peer: Arc<Peer>) -> Self::Session;

    /// Serves one request: a frame without its length.
    fn handle(&self, session: &mut Self::Session, frame: Bytes) -> Reply;

    /// Serves a request together with later ones, if that costs less.
    fn handle_with(&self, session: &mut Self::Session, frame: Bytes, _: &mut FramesBehind<'_>) -> Replies {
        self.handle(session, frame).into()
    }

    /// The limits on a peer that has not authenticated; `None` afterwards. Called when a connection opens,
    /// and after each frame while there are limits.
    fn unproven(&self, _: &Self::Session) -> Option<UnprovenLimits> {
        None
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Disconnect {
    #[error("the peer closed it")]
    Closed,
    #[error("without progress for {0:?} (connections.max.idle.ms)")]
    Idle(Duration),
    #[error("a request arrives too slowly while others wait for memory (queued.max.request.bytes)")]
    TooSlow,
    #[error("it reads its answers too slowly, and others need the memory")]
    Unread,
    #[error("it has not authenticated in time")]
    Unproven,
    #[error("the broker is stopping")]
    Stopping,
    #[error(transparent)]
    FrameLength(#[from] FrameLength),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
    /// The last answer has the reason for the peer.
    #[error("{0}")]
    Answered(String),
}

impl Disconnect {
    /// The reason in the categories of the figures.
    pub(super) fn end(&self) -> End {
        match self {
            Disconnect::Closed | Disconnect::Stopping => End::Regular,
            Disconnect::Idle(_) => End::Idle,
            Disconnect::TooSlow => End::Slow,
            Disconnect::Unread => End::Unread,
            Disconnect::Unproven => End::Unproven,
            Disconnect::FrameLength(_) | Disconnect::Refused(_) | Disconnect::Answered(_) => End::Refused,
            Disconnect::Io(_) => End::Io,
        }
    }
}

pub(super) struct Connection<H: Handler> {
    stream: Stream,
    peer: Arc<Peer>,
    handler: H,
    session: H::Session,
    settings: ConnectionSettings,
    input: Input,
    /// Time of the last read.
    read_at: Instant,
    output: OutputQueue,
    /// The answers in `output`, for figures.
    unsent: UnsentAnswers,
    /// Time at which the first of these answers was complete, if known.
    answered_at: Option<Instant>,
    pending: VecDeque<PendingAnswer>,
    /// Bytes in memory of the ready answers in `pending`.
    ready_bytes: usize,
    /// The waiting answers as counted over all connections.
    held: Option<HeldAnswers>,
    /// True if there was no memory to continue reading while answers are pending.
    is_starved: bool,
    /// Start of the current turn on the worker.
    turn_began: Option<Instant>,
    /// The limits before authentication.
    unproven: Option<UnprovenLimits>,
    /// The reason for the end, once the last answer is in `output`.
    last: Option<String>,
    stop: Stop,
    alarm: Alarm,
    /// True if the last wait for bytes, and for an answer, was long.
    waits_long: bool,
    answers_late: bool,
    admission: Admission,
}

impl<H: Handler> Connection<H> {
    pub(super) fn new(
        stream: Stream,
        peer: Arc<Peer>,
        handler: H,
        settings: ConnectionSettings,
        stopping: watch::Receiver<bool>,
        admission: Admission,
    ) -> Self {
        let session = handler.open(Arc::clone(&peer));
        let unproven = handler.unproven(&session);
        let mut input = Input::new(settings.frame_max, settings.memory.share(&holder(&peer)));
        input.limit(unproven.map(|unproven| (unproven.frame_max, unproven.setting)));
        let alarm = Alarm::new(Instant::now() + settings.idle_max);
        Self {
            stream,
            peer,
            handler,
            session,
            settings,
            input,
            read_at: Instant::now(),
            output: OutputQueue::default(),
            unsent: UnsentAnswers::default(),
            answered_at: None,
            pending: VecDeque::new(),
            ready_bytes: 0,
            held: None,
            is_starved: false,
            turn_began: None,
            unproven,
            last: None,
            stop: Stop::new(stopping),
            alarm,
            waits_long: false,
            answers_late: false,
            admission,
        }
    }

    /// Serves until the connection ends, and returns the reason.
    pub(super) async fn run(mut self) -> Disconnect {
        loop {
            let round = match self.unproven {
                None => self.round().await,
                Some(UnprovenLimits { until, .. }) => {
                    let round = tokio::time::timeout_at(until, self.round()).await;
                    round.unwrap_or(Err(Disconnect::Unproven))
                }
            };
            if let Err(reason) = round {
                match reason {
                    Disconnect::Answered(_) => self.linger().await,
                    Disconnect::Stopping if self.output.progress() == 0 => self.stream.reset(),
                    _ => {}
                }
                self.stream.close();
                return reason;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Disconnect> {
        let mut now = Instant::now();
        let until = *self.turn_began.get_or_insert(now) + TURN_MAX;
        self.admission.touch(now);
        let was_unproven = self.unproven.is_some();
        let refused = self.handle_frames(&mut now, until);
        self.push_ready();
        if !self.output.is_empty() {
            self.flush().await?;
        }
        refused?;
        if let Some(reason) = self.last.take() {
            return Err(Disconnect::Answered(reason));
        }
        if was_unproven && self.unproven.is_none() {
            // The peer has authenticated: the deadline for authentication no longer applies.
            return Ok(());
        }
        tokio::task::coop::consume_budget().await;
        if now >= until {
            self.turn_began = None;
            tokio::task::yield_now().await;
        }
        if self.reads_on() && self.input.has_frame() {
            return Ok(());
        }
        let mut has_waited = false;
        let waited = noticing(self.wait(), &mut has_waited).await;
        if has_waited {
            self.turn_began = None;
        }
        waited
    }

    /// Waits until the peer has read the last answer and closes. kafka-python drops an answer that it reads
    /// together with the end of the connection, and closing with unread bytes would make the system drop the
    /// answer on its way.
    async fn linger(&mut self) {
        let Self { stream, stop, .. } = self;
        let closed = async {
            let (mut dropped, mut left) = (Vec::<u8>::with_capacity(DROPPED_AT_ONCE), DROPPED_MAX);
            while left > 0 && stream.readable().await.is_ok() {
                dropped.clear();
                match stream.try_read_buf(&mut dropped) {
                    Ok(0) => return,
                    Ok(read) => left = left.saturating_sub(read),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
        };
        tokio::select! {
            biased;
            () = stop.begun() => {}
            () = closed => {}
            () = sleep(LAST_ANSWER_READ) => {}
        }
    }

    /// Sends the answers that are ready.
    async fn flush(&mut self) -> Result<(), Disconnect> {
        let since = self.answered_at.take().unwrap_or_else(Instant::now);
        if !self.output.send(&mut self.stream, false)? {
            self.flush_slowly().await?;
        }
        self.unsent.sent(&self.settings.flow, since.elapsed());
        Ok(())
    }

    /// Adds a complete answer to the output.
    fn push(&mut self, slot: ApiSlot, frame: Frame) {
        self.unsent.push(&self.settings.flow, slot, frame.len());
        self.output.push(frame);
    }

    /// Waits for the peer to read its answers, as long as it makes progress. The wait must neither delay the
    /// broker's stop nor keep memory or locks that other connections need.
    async fn flush_slowly(&mut self) -> Result<(), Disconnect> {
        self.output.compact();
        self.hold(self.output.unsent_bytes() + self.ready_bytes);
        let Self { output, stream, settings, stop, held, pending, ready_bytes, .. } = self;
        let idle_max = settings.idle_max;
        let stopped_for_long = async {
            stop.begun().await;
            sleep(LAST_ANSWERS).await;
        };
        tokio::pin!(stopped_for_long);
        let (mut in_memory, mut progress, mut since) =
            (output.unsent_bytes(), output.progress(), Instant::now());
        loop {
            let unasked = tokio::select! {
                biased;
                ready = stream.writable() => ready.map(|()| false)?,
                () = cut_off(held) => return Err(Disconnect::Unread),
                () = sleep(TRY_UNASKED.min(idle_max / 4)) => true,
                () = &mut stopped_for_long => return Err(Disconnect::Stopping),
                never = go_on(pending, ready_bytes) => match never {},
            };
            let is_all = output.send(stream, unasked)?;
            if is_all {
                break;
            }
            if output.progress() != progress {
                (progress, since) = (output.progress(), Instant::now());
            } else if since.elapsed() >= idle_max {
                return Err(Disconnect::Idle(idle_max));
            }
            if output.unsent_bytes() < in_memory / 2 {
                output.compact();
                in_memory = output.unsent_bytes();
            }
            held.iter().for_each(|held| held.set(in_memory + *ready_bytes));
        }
        self.held = None;
        Ok(())
    }

    /// Counts the answers that have to wait.
    fn hold(&mut self, bytes: usize) {
        match &self.held {
            Some(held) => held.set(bytes),
            None => self.held = Some(self.settings.answers.hold(holder(&self.peer), bytes)),
        }
    }

    /// Serves the received complete frames while the connection may read on: at least one, and no more after
    /// `until`. Updates `now`.
    fn handle_frames(&mut self, now: &mut Instant, until: Instant) -> Result<(), Disconnect> {
        while self.reads_on() && *now < until {
            let Some(frame) = self.input.next_frame()? else { break };
            let slot = ApiSlot::of(&frame);
            let waited = now.saturating_duration_since(self.read_at);
            self.settings.flow.received(slot, frame.len(), waited);
            // Unauthenticated peers are served one request at a time: each answer may change their limits.
            let room = if self.unproven.is_some() { 0 } else { PENDING_MAX - 1 - self.pending.len() };
            let mut behind = FramesBehind::new(&mut self.input, room);
            let Replies { first, behind } = self.handler.handle_with(&mut self.session, frame, &mut behind);
            *now = Instant::now();
            self.take_reply(slot, first, *now)?;
            for ReplyBehind { frame_len, reply } in behind {
                self.settings.flow.received(slot, frame_len, waited);
                self.take_reply(slot, reply, *now)?;
            }
            self.update_limits();
        }
        Ok(())
    }

    /// Sends a reply, or queues it in its order.
    fn take_reply(&mut self, slot: ApiSlot, reply: Reply, now: Instant) -> Result<(), Disconnect> {
        match reply {
            Reply::Now(frame) if self.pending.is_empty() => {
                self.answered_at.get_or_insert(now);
                self.push(slot, frame);
            }
            Reply::Now(frame) => {
                self.ready_bytes += frame.bytes_in_memory();
                self.pending.push_back(PendingAnswer::Ready(slot, frame));
            }
            Reply::Later(answer) => {
                self.pending.push_back(PendingAnswer::Awaited { slot, answer, reads_on: false });
            }
            Reply::Ordered(answer) => {
                self.pending.push_back(PendingAnswer::Awaited { slot, answer, reads_on: true });
            }
            Reply::Nothing => {}
            Reply::Close(reason) => return Err(Disconnect::Refused(reason)),
            // After pending answers, the last answer has to wait for its turn.
            last @ Reply::Last(..) => {
                let answer = Box::pin(std::future::ready(last));
                self.pending.push_back(PendingAnswer::Awaited { slot, answer, reads_on: false });
            }
        }
        Ok(())
    }

    fn reads_on(&self) -> bool {
        self.last.is_none()
            && self.pending.len() < PENDING_MAX
            && self.ready_bytes < HELD_MAX
            && !self.output.is_full()
            && self.peer.mute.until().is_none()
            && !matches!(self.pending.back(), Some(PendingAnswer::Awaited { reads_on: false, .. }))
    }

    /// Moves ready answers, in order, to the output.
    fn push_ready(&mut self) {
        while let Some(PendingAnswer::Ready(..)) = self.pending.front() {
            if let Some(PendingAnswer::Ready(slot, frame)) = self.pending.pop_front() {
                self.ready_bytes -= frame.bytes_in_memory();
                self.push(slot, frame);
            }
        }
    }

    /// Waits for the next event: bytes, an answer, a timeout, the broker's stop.
    async fn wait(&mut self) -> Result<(), Disconnect> {
        // This answer became ready while earlier answers were sent.
        if matches!(self.pending.front(), Some(PendingAnswer::Ready(..))) {
            return Ok(());
        }
        let muted_until = self.peer.mute.until();
        if self.pending.is_empty() {
            return match muted_until {
                Some(until) => self.wait_muted(until).await,
                None => self.wait_for_bytes().await,
            };
        }
        match self.ready_bytes {
            bytes @ COUNTED_MIN.. => self.hold(bytes),
            _ => self.held = None,
        }
        self.input.yield_memory();
        if self.answers_late {
            self.input.rest_if_empty();
        }
        let takes_more = !self.input.is_full() && !self.is_starved && muted_until.is_none();
        let rests = self.is_starved || self.input.has_memory();
        let since = Instant::now();
        let patience = if self.is_starved { READ_AGAIN } else { QUIET };
        let Self { pending, ready_bytes, stream, held, alarm, .. } = self;
        tokio::select! {
            biased;
            reply = first_answer(pending, ready_bytes) => {
                self.is_starved = false;
                self.answers_late = since.elapsed() >= LONG_WAIT;
                self.answered(reply)
            }
            ready = stream.readable(), if takes_more => {
                ready?;
                self.is_starved = self.read_now()? == Some(ReadOutcome::NoRoom);
                Ok(())
            }
            () = cut_off(held) => Err(Disconnect::Unread),
            () = unmuted(muted_until) => Ok(()),
            () = alarm.by(since + patience), if rests => {
                self.is_starved = false;
                if since.elapsed() >= patience {
                    self.input.rest();
                }
                Ok(())
            }
        }
    }

    /// Waits for the end of a pause. Nothing is read, and the connection does not count as idle. A partial
    /// frame must not keep memory that other connections need.
    async fn wait_muted(&mut self, until: Instant) -> Result<(), Disconnect> {
        self.held = None;
        self.input.rest();
        let since = Instant::now();
        while !self.stop.has_begun() {
            let is_arriving = self.input.is_arriving();
            if is_arriving && self.input.is_too_slow(since.elapsed()) {
                return Err(Disconnect::TooSlow);
            }
            let look = if is_arriving { until.min(Instant::now() + QUIET) } else { until };
            tokio::select! {
                biased;
                () = self.stop.begun() => {}
                () = self.alarm.by(look) => {}
            }
            if Instant::now() >= until {
                self.input.was_held_up(since);
                return Ok(());
            }
        }
        Err(Disconnect::Stopping)
    }

    async fn wait_for_bytes(&mut self) -> Result<(), Disconnect> {
        // All received requests are answered. Do not wait for the rest of a partial frame, nor for further
        // requests.
        if self.stop.has_begun() {
            return Err(Disconnect::Stopping);
        }
        self.held = None;
        // Often more bytes have arrived while the last frames were served.
        if self.input.has_memory() && self.read_with_room().await? {
            return Ok(());
        }
        self.input.yield_memory();
        if self.waits_long {
            self.input.rest_if_empty();
        }
        let (since, idle_max) = (Instant::now(), self.settings.idle_max);
        let mut quiet = Duration::ZERO;
        loop {
            if self.input.is_arriving() && self.input.is_too_slow(quiet) {
                return Err(Disconnect::TooSlow);
            }
            let patience = idle_max.saturating_sub(quiet);
            if patience.is_zero() {
                return Err(Disconnect::Idle(idle_max));
            }
            let look_in = if self.input.has_memory() { QUIET.min(patience) } else { patience };
            tokio::select! {
                biased;
                ready = self.stream.readable() => {
                    ready?;
                    self.waits_long = since.elapsed() >= LONG_WAIT;
                    if self.read_with_room().await? {
                        return Ok(());
                    }
                }
                () = self.stop.begun() => return Ok(()),
                () = self.alarm.by(since + quiet + look_in) => {
                    if since.elapsed() >= QUIET {
                        self.input.rest();
                    }
                }
            }
            quiet = since.elapsed();
        }
    }

    fn answered(&mut self, reply: Reply) -> Result<(), Disconnect> {
        let Some(PendingAnswer::Awaited { slot, .. } | PendingAnswer::Ready(slot, _)) =
            self.pending.pop_front()
        else {
            return Ok(());
        };
        match reply {
            Reply::Now(frame) => self.push(slot, frame),
            Reply::Nothing => {}
            Reply::Close(reason) => return Err(Disconnect::Refused(reason)),
            Reply::Later(answer) => {
                self.pending.push_front(PendingAnswer::Awaited { slot, answer, reads_on: false });
            }
            Reply::Ordered(answer) => {
                self.pending.push_front(PendingAnswer::Awaited { slot, answer, reads_on: true });
            }
            Reply::Last(frame, reason) => {
                self.pending.clear();
                self.push(slot, frame);
                self.last = Some(reason);
            }
        }
        // A pending answer may have authenticated the peer.
        self.update_limits();
        Ok(())
    }

    /// Applies the limits of the peer, which may have authenticated.
    fn update_limits(&mut self) {
        if self.unproven.is_none() {
            return;
        }
        self.unproven = self.handler.unproven(&self.session);
        self.input.limit(self.unproven.map(|unproven| (unproven.frame_max, unproven.setting)));
        if self.unproven.is_none() {
            self.input.charge_to(self.settings.memory.share(&holder(&self.peer)));
        }
    }

    /// Reads available bytes; `None` if there are none.
    fn read_now(&mut self) -> Result<Option<ReadOutcome>, Disconnect> {
        match self.input.try_read(&mut self.stream) {
            Ok(ReadOutcome::Bytes(0)) => Err(Disconnect::Closed),
            Ok(ReadOutcome::Bytes(bytes)) => {
                self.read_at = Instant::now();
                Ok(Some(ReadOutcome::Bytes(bytes)))
            }
            Ok(ReadOutcome::NoRoom) => Ok(Some(ReadOutcome::NoRoom)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads available bytes. Returns false if no bytes are available. Waits if there is no memory; the
    /// connection does not count as idle meanwhile.
    async fn read_with_room(&mut self) -> Result<bool, Disconnect> {
        let read = self.read_now()?;
        if read == Some(ReadOutcome::NoRoom) {
            let since = Instant::now();
            tokio::select! {
                biased;
                () = self.stop.begun() => {}
                () = self.input.room() => {}
            }
            self.input.was_held_up(since);
        }
        Ok(read.is_some())
    }
}

/// The holder of a connection's memory.
fn holder(peer: &Peer) -> Holder {
    let address = peer.address.ip();
    match peer.identified.get() {
        Some(principal) => Holder::of(principal, address),
        None => Holder::Network(network(address)),
    }
}

/// Returns when a connection has to end because of the memory of its answers.
async fn cut_off(held: &Option<HeldAnswers>) {
    match held {
        Some(held) => held.cut_off().await,
        None => std::future::pending().await,
    }
}

/// Records if a future was ever pending.
async fn noticing<T>(future: impl Future<Output = T>, was_pending: &mut bool) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        *was_pending |= polled.is_pending();
        polled
    })
    .await
}

/// Returns at the end of a pause; never without one.
async fn unmuted(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
