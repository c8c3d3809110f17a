//! One connection: frames in, answers out, in the order of the requests.

use super::admission::Admission;
use super::input::{FrameLength, Input};
use super::listener::stopped;
use super::memory::FrameMemory;
use super::output::{Frame, Output};
use super::stream::Stream;
use crate::config::NetworkSettings;
use crate::watch;
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What frames may take while they arrive, over all connections, unless `queued.max.request.bytes` says otherwise.
const FRAME_MEMORY: usize = 512 * 1024 * 1024;
/// A time without traffic that never comes.
const NEVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// How many answers may wait on one connection before it is not read any further.
const PENDING_MAX: usize = 64;
/// How long a peer may take to receive the last answers when the broker stops.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// A connection that has been quiet for so long gives its buffer back.
const QUIET: Duration = Duration::from_secs(1);

/// What a connection's settings say about all connections of a listener.
#[derive(Clone, Debug)]
pub struct ConnectionSettings {
    /// The largest frame, `socket.request.max.bytes`.
    pub frame_max: usize,
    /// How long a connection may be without traffic, `connections.max.idle.ms`.
    pub idle_max: Duration,
    /// What large frames may take while they arrive.
    pub memory: FrameMemory,
    /// SO_SNDBUF, `socket.send.buffer.bytes`; None leaves it to the system.
    pub send_buffer_bytes: Option<usize>,
}

impl ConnectionSettings {
    /// By the settings of the network. Each call makes a memory of its own.
    pub fn of(network: &NetworkSettings) -> ConnectionSettings {
        let memory = network.queued_max_request_bytes.unwrap_or(FRAME_MEMORY);
        ConnectionSettings {
            frame_max: network.request_max_bytes,
            idle_max: network.connections_max_idle.unwrap_or(NEVER),
            memory: FrameMemory::new(memory, network.request_max_bytes),
            send_buffer_bytes: network.send_buffer_bytes,
        }
    }
}

/// Who is at the other end, and by which listener they came.
#[derive(Debug)]
pub struct Peer {
    /// The peer's address.
    pub address: SocketAddr,
    /// The name of the listener.
    pub listener: String,
}

/// The answer to one request.
pub enum Reply {
    /// It is ready.
    Now(Frame),
    /// It comes later, and no further request of the connection is looked at before.
    Later(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// It comes later; the order of the request's effects is fixed already, so the connection reads on.
    Ordered(Pin<Box<dyn Future<Output = Reply> + Send>>),
    /// The request wants no answer (Produce with acks=0).
    Nothing,
    /// The request cannot be answered: the connection is closed.
    Close(String),
}

/// What serves the requests of connections.
pub trait Handler: Clone + Send + 'static {
    /// What it keeps for one connection.
    type Session: Send;

    /// A connection has come.
    fn open(&self, peer: Arc<Peer>) -> Self::Session;

    /// Serves one request: a frame without its length.
    fn handle(&self, session: &mut Self::Session, frame: Bytes) -> Reply;
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Disconnect {
    #[error("the peer closed it")]
    Closed,
    #[error("without traffic for {0:?} (connections.max.idle.ms)")]
    Idle(Duration),
    #[error("the broker is stopping")]
    Stopping,
    #[error(transparent)]
    FrameLength(#[from] FrameLength),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Refused(String),
}

pub(super) struct Connection<H: Handler> {
    stream: Stream,
    handler: H,
    session: H::Session,
    settings: ConnectionSettings,
    input: Input,
    output: Output,
    pending: VecDeque<Pending>,
    stopping: watch::Receiver<bool>,
    _admission: Admission,
}

/// An answer that is awaited, or is ready behind one that is awaited.
enum Pending {
    Ready(Frame),
    Awaited { answer: Pin<Box<dyn Future<Output = Reply> + Send>>, reads_on: bool },
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
        let session = handler.open(peer);
        let input = Input::new(settings.frame_max, settings.memory.clone());
        let (output, pending) = (Output::default(), VecDeque::new());
        Self { stream, handler, session, settings, input, output, pending, stopping, _admission: admission }
    }

    /// Serves until the connection ends, and says why it did.
    pub(super) async fn run(mut self) -> Disconnect {
        loop {
            if let Err(reason) = self.round().await {
                return reason;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Disconnect> {
        let refused = self.handle_frames();
        self.settle();
        if !self.output.is_empty() {
            self.flush().await?;
        }
        refused?;
        self.input.trim();
        tokio::task::coop::consume_budget().await;
        if self.reads_on() && self.input.has_frame() {
            return Ok(());
        }
        self.wait().await
    }

    /// Sends the answers that are ready. A peer that takes nothing is idle too, and may not hold up the broker's end.
    async fn flush(&mut self) -> Result<(), Disconnect> {
        let Self { output, stream, settings, stopping, .. } = self;
        let stopped_for_long = async {
            stopped(stopping).await;
            tokio::time::sleep(LAST_ANSWERS).await;
        };
        tokio::select! {
            biased;
            sent = output.flush(stream) => Ok(sent?),
            () = tokio::time::sleep(settings.idle_max) => Err(Disconnect::Idle(settings.idle_max)),
            () = stopped_for_long => Err(Disconnect::Stopping),
        }
    }

    /// Serves the whole frames at hand, as long as the connection may look further.
    fn handle_frames(&mut self) -> Result<(), Disconnect> {
        while self.reads_on() {
            let Some(frame) = self.input.next_frame()? else { break };
            match self.handler.handle(&mut self.session, frame) {
                Reply::Now(frame) if self.pending.is_empty() => self.output.push(frame),
                Reply::Now(frame) => self.pending.push_back(Pending::Ready(frame)),
                Reply::Later(answer) => self.pending.push_back(Pending::Awaited { answer, reads_on: false }),
                Reply::Ordered(answer) => self.pending.push_back(Pending::Awaited { answer, reads_on: true }),
                Reply::Nothing => {}
                Reply::Close(reason) => return Err(Disconnect::Refused(reason)),
            }
        }
        Ok(())
    }

    fn reads_on(&self) -> bool {
        self.pending.len() < PENDING_MAX
            && !self.output.is_full()
            && !matches!(self.pending.back(), Some(Pending::Awaited { reads_on: false, .. }))
    }

    /// Moves answers that are ready, in order, to the output.
    fn settle(&mut self) {
        while let Some(Pending::Ready(_)) = self.pending.front() {
            if let Some(Pending::Ready(frame)) = self.pending.pop_front() {
                self.output.push(frame);
            }
        }
    }

    /// Waits for the next thing to happen: bytes, an answer, the end of patience, the end of the broker.
    async fn wait(&mut self) -> Result<(), Disconnect> {
        if self.pending.is_empty() {
            return self.wait_for_bytes().await;
        }
        let takes_more = !self.input.is_full();
        tokio::select! {
            biased;
            reply = first_answer(&mut self.pending) => self.answered(reply),
            ready = self.stream.readable(), if takes_more => {
                ready?;
                self.read()
            }
        }
    }

    async fn wait_for_bytes(&mut self) -> Result<(), Disconnect> {
        // All that was taken is answered. The rest of a frame that has begun is not waited for, nor is more of a client
        // that never pauses.
        if *self.stopping.borrow() {
            return Err(Disconnect::Stopping);
        }
        // Most often more has come already while the last frames were served.
        if self.read_now()? {
            return Ok(());
        }
        self.input.admit().await;
        tokio::select! {
            biased;
            ready = self.stream.readable() => { ready?; return self.read(); }
            _ = self.stopping.changed() => return Ok(()),
            () = tokio::time::sleep(QUIET.min(self.settings.idle_max)) => {}
        }
        self.input.release();
        let patience = self.settings.idle_max.saturating_sub(QUIET);
        tokio::select! {
            biased;
            ready = self.stream.readable() => { ready?; self.read() }
            _ = self.stopping.changed() => Ok(()),
            () = tokio::time::sleep(patience) => Err(Disconnect::Idle(self.settings.idle_max)),
        }
    }

    fn answered(&mut self, reply: Reply) -> Result<(), Disconnect> {
        self.pending.pop_front();
        match reply {
            Reply::Now(frame) => self.output.push(frame),
            Reply::Nothing => {}
            Reply::Close(reason) => return Err(Disconnect::Refused(reason)),
            Reply::Later(answer) => self.pending.push_front(Pending::Awaited { answer, reads_on: false }),
            Reply::Ordered(answer) => self.pending.push_front(Pending::Awaited { answer, reads_on: true }),
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), Disconnect> {
        self.read_now().map(|_| ())
    }

    /// Reads what is there; whether anything was.
    fn read_now(&mut self) -> Result<bool, Disconnect> {
        match self.input.try_read(&self.stream) {
            Ok(0) => Err(Disconnect::Closed),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The answer at the front of the queue. Those behind it make progress too: a batch of produce requests that wait
/// for the same flush is ready as a whole.
async fn first_answer(pending: &mut VecDeque<Pending>) -> Reply {
    std::future::poll_fn(|context: &mut Context<'_>| {
        let mut first = Poll::Pending;
        for (index, entry) in pending.iter_mut().enumerate() {
            let Pending::Awaited { answer, .. } = entry else { continue };
            let Poll::Ready(reply) = answer.as_mut().poll(context) else { continue };
            match (index, reply) {
                (0, reply) => first = Poll::Ready(reply),
                (_, Reply::Now(frame)) => *entry = Pending::Ready(frame),
                // Anything else is kept as it is until its turn comes.
                (_, reply) => {
                    *entry = Pending::Awaited { answer: Box::pin(std::future::ready(reply)), reads_on: true }
                }
            }
        }
        first
    })
    .await
}
