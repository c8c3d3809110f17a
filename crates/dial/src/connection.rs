//! A connection to a broker: typed requests, many in flight, answers in the order of the requests.
//!
//! One task per connection writes queued requests and reads answers. A request that times out closes the
//! connection, as in Kafka's clients, because the state of the request at the broker is unknown.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use thalweg_wire::{ApiKey, Request, frame};
use tokio::io::{AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::Instant;

use crate::byte_stream::ByteStream;
use crate::error::{
    ClientError, CloseReason, ConnectionClosed, RequestTimedOut, UnencodableRequest, UnreadableResponse,
    VersionMismatch,
};
use crate::frames::FrameReader;
use crate::handshake::{self, NegotiatedState, negotiate};
use crate::options::ConnectionOptions;
use crate::security::sasl::Exchange;
use crate::stream::{Connector, write_all_vectored};
use crate::throttle::Throttle;
use crate::versions::ApiVersions;

/// Maximum number of frames in one write.
const WRITE_FRAMES_MAX: usize = 32;

/// Options of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions {
    /// The version to send; `None` for the newest common version.
    pub version: Option<i16>,
    /// Time for the answer; `None` for the connection's request timeout.
    pub timeout: Option<Duration>,
}

/// A future that opens a connection.
pub type ConnectFuture<'a> = Pin<Box<dyn Future<Output = Result<Connection, ClientError>> + Send + 'a>>;

/// A connection to a broker. Clones share the connection; it ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Connection(Arc<ConnectionState>);

#[derive(Debug)]
struct ConnectionState {
    peer: Arc<str>,
    versions: ApiVersions,
    options: ConnectionOptions,
    next_correlation_id: AtomicI32,
    in_flight: Arc<Semaphore>,
    throttle: Throttle,
    link: Arc<Link>,
}

impl Drop for ConnectionState {
    fn drop(&mut self) {
        self.link.waiting.lock().is_abandoned = true;
        self.link.queued.notify_one();
    }
}

/// State shared by the handles and the task of a connection.
#[derive(Debug, Default)]
struct Link {
    waiting: Mutex<RequestQueues>,
    /// Notified when there is a frame to write, and when the last handle is dropped.
    queued: Notify,
    /// Notified when a handle closes the connection.
    abort: Notify,
}

/// Requests of a connection. Permits limit their number. This is a queue and not a channel, which allocates
/// room for 32 entries at once: most connections of a large host are idle.
#[derive(Debug, Default)]
struct RequestQueues {
    /// Requests not written yet.
    queue: VecDeque<OutgoingFrame>,
    /// Requests written and not answered yet.
    requests: VecDeque<InFlightRequest>,
    closed: Option<CloseReason>,
    /// True once any request was answered.
    answered: bool,
    /// True once the last handle is dropped.
    is_abandoned: bool,
}

#[derive(Debug)]
struct InFlightRequest {
    correlation_id: i32,
    api: ApiKey,
    sent_at: Instant,
    timeout: Duration,
    reply: oneshot::Sender<Bytes>,
    /// `None` for the connection's own requests.
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct OutgoingFrame {
    frame: Bytes,
    awaited: AwaitedEvent,
}

#[derive(Debug)]
enum AwaitedEvent {
    Answer(InFlightRequest),
    /// The write of a request without an answer.
    Write(OwnedSemaphorePermit),
}

impl Connection {
    /// Connects to `host:port` by TCP and exchanges versions.
    pub async fn connect(address: &str, options: &ConnectionOptions) -> Result<Connection, ClientError> {
        Connection::connect_by(&Connector::tcp(), address, options).await
    }

    /// Connects to `host:port` by `connector` and exchanges versions. The future is boxed, because a
    /// handshake is large: both in tasks that rarely connect, and in the code of each crate that would
    /// compile it.
    pub fn connect_by<'a>(
        connector: &'a Connector,
        address: &'a str,
        options: &'a ConnectionOptions,
    ) -> ConnectFuture<'a> {
        Box::pin(async move {
            let _wait = options.waits.as_ref().map(|waits| waits.connection(address));
            let started = async {
                let stream = connector.connect(address, options).await?;
                Connection::start(stream, address, options).await
            };
            options.ended(address, started.await)
        })
    }

    /// Exchanges versions with `peer` on an open stream.
    pub async fn start<S: ByteStream + 'static>(
        stream: S,
        peer: &str,
        options: &ConnectionOptions,
    ) -> Result<Connection, ClientError> {
        let peer: Arc<str> = peer.into();
        let (reader, writer) = tokio::io::split(stream);
        let mut frames =
            FrameReader::new(reader, options.frame_bytes_max).within(options.answer_budget.clone());
        let mut writer = writer;
        let negotiated = negotiate(&mut frames, &mut writer, &peer, options).await?;
        Ok(Connection::run(frames, writer, peer, negotiated, options))
    }

    /// Starts a connection on an open stream to a broker with known versions that requires no authentication.
    pub fn start_with<S: ByteStream + 'static>(
        stream: S,
        peer: &str,
        versions: ApiVersions,
        options: &ConnectionOptions,
    ) -> Connection {
        let (reader, writer) = tokio::io::split(stream);
        let frames = FrameReader::new(reader, options.frame_bytes_max).within(options.answer_budget.clone());
        Connection::run(frames, writer, peer.into(), NegotiatedState { versions, renew_at: None }, options)
    }

    fn run<S: ByteStream + 'static>(
        frames: FrameReader<ReadHalf<S>>,
        writer: WriteHalf<S>,
        peer: Arc<str>,
        NegotiatedState { versions, renew_at }: NegotiatedState,
        options: &ConnectionOptions,
    ) -> Connection {
        let link = Arc::<Link>::default();
        let renewal = renew_at.map(|at| {
            let (versions, peer) = (versions.clone(), Arc::clone(&peer));
            Box::new(Renewal { at, versions, peer, options: options.clone() })
        });
        tokio::spawn(drive(frames, writer, Arc::clone(&link), renewal));
        Connection(Arc::new(ConnectionState {
            peer,
            versions,
            options: options.clone(),
            next_correlation_id: AtomicI32::new(1),
            in_flight: Arc::new(Semaphore::new(options.in_flight_max.max(1))),
            throttle: Throttle::default(),
            link,
        }))
    }

    /// The peer's name, as given at the start.
    pub fn peer(&self) -> &Arc<str> {
        &self.0.peer
    }

    /// The peer's versions.
    pub fn versions(&self) -> &ApiVersions {
        &self.0.versions
    }

    /// The version at which [`Connection::send`] sends an `R`.
    pub fn version_of<R: Request>(&self) -> Result<i16, VersionMismatch> {
        self.0.versions.pick::<R>(&self.0.peer)
    }

    /// True if the connection has ended. An overdue answer ends it, also if its caller no longer waits.
    pub fn is_closed(&self) -> bool {
        let shared = &*self.0;
        let overdue = {
            let waiting = shared.link.waiting.lock();
            if waiting.closed.is_some() {
                return true;
            }
            waiting
                .requests
                .front()
                .filter(|oldest| {
                    shared.throttle.counts_from(oldest.sent_at) + oldest.timeout < Instant::now()
                })
                .map(|oldest| (oldest.api, oldest.timeout))
        };
        let Some((api, timeout)) = overdue else { return false };
        shared.link.close(CloseReason::RequestTimedOut { api, timeout });
        true
    }

    /// The time of the oldest request in flight.
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.0.link.waiting.lock().requests.front().map(|oldest| oldest.sent_at)
    }

    /// Ends the connection; waiting requests fail.
    pub fn close(&self) {
        self.0.link.close(CloseReason::ByClient);
    }

    /// Sends a request in the newest common version, and waits for the answer.
    ///
    /// Errors in the answer itself are left to the caller. If the future is dropped, the request may have
    /// been sent; its answer is then ignored.
    pub async fn send<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        self.send_with(request, RequestOptions::default()).await
    }

    /// Like [`Connection::send`], in the given version.
    pub async fn send_at<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, ClientError> {
        self.send_with(request, RequestOptions { version: Some(version), timeout: None }).await
    }

    /// Like [`Connection::send`], with options.
    pub async fn send_with<R: Request>(
        &self,
        request: &R,
        options: RequestOptions,
    ) -> Result<R::Response, ClientError> {
        let shared = &*self.0;
        let version = self.version_for::<R>(options.version)?;
        let (frame, correlation_id) = self.encode(request, version)?;
        let timeout = options.timeout.unwrap_or(shared.options.request_timeout);
        // A broker may delay a Fetch by the part of the timeout beyond the usual one.
        let held = timeout.saturating_sub(shared.options.request_timeout);
        let held = if R::KEY == ApiKey::Fetch { held } else { Duration::ZERO };
        let _wait = shared.options.waits.as_ref().map(|waits| waits.answer(&shared.peer, R::KEY, held));
        let exchange = self.exchange(frame, correlation_id, R::KEY, timeout);
        let answer = match shared.throttle.within(timeout, exchange).await {
            Some(answer) => shared.options.ended(&shared.peer, answer)?,
            None => {
                shared.link.close(CloseReason::RequestTimedOut { api: R::KEY, timeout });
                let peer = Arc::clone(&shared.peer);
                return Err(RequestTimedOut { peer, api: R::KEY, timeout }.into());
            }
        };
        let (_, response) = frame::decode_response::<R>(answer, version).map_err(|source| {
            UnreadableResponse { peer: Arc::clone(&shared.peer), api: R::KEY, version, source }
        })?;
        shared.throttle.note(&response, version);
        Ok(response)
    }

    /// Sends a request without an answer: Produce with `acks=0`. Returns when the request is queued.
    pub async fn send_unanswered<R: Request>(
        &self,
        request: &R,
        version: Option<i16>,
    ) -> Result<(), ClientError> {
        let version = self.version_for::<R>(version)?;
        let (frame, _) = self.encode(request, version)?;
        let awaited = AwaitedEvent::Write(self.permit().await);
        Ok(self.enqueue(OutgoingFrame { frame, awaited })?)
    }

    fn version_for<R: Request>(&self, given: Option<i16>) -> Result<i16, VersionMismatch> {
        let Some(version) = given else { return self.version_of::<R>() };
        if (R::MIN_VERSION..=R::MAX_VERSION).contains(&version) {
            return Ok(version);
        }
        let ours = (R::MIN_VERSION, R::MAX_VERSION);
        Err(self.0.versions.mismatch(&self.0.peer, R::KEY, ours))
    }

    fn encode<R: Request>(&self, request: &R, version: i16) -> Result<(Bytes, i32), UnencodableRequest> {
        let shared = &*self.0;
        let correlation_id = shared.next_correlation_id.fetch_add(1, Ordering::Relaxed);
        let client_id = Some(shared.options.client_id.as_str());
        match frame::encode_request(request, version, correlation_id, client_id) {
            Ok(frame) => Ok((frame, correlation_id)),
            Err(source) => {
                Err(UnencodableRequest { peer: Arc::clone(&shared.peer), api: R::KEY, version, source })
            }
        }
    }

    async fn exchange(
        &self,
        frame: Bytes,
        correlation_id: i32,
        api: ApiKey,
        timeout: Duration,
    ) -> Result<Bytes, ClientError> {
        let permit = self.permit().await;
        let (reply, answer) = oneshot::channel();
        let sent_at = Instant::now();
        let in_flight =
            InFlightRequest { correlation_id, api, sent_at, timeout, reply, _permit: Some(permit) };
        self.enqueue(OutgoingFrame { frame, awaited: AwaitedEvent::Answer(in_flight) })?;
        answer.await.map_err(|_| self.closed().into())
    }

    async fn permit(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.0.in_flight).acquire_owned().await;
        permit.expect("the semaphore lives as long as the connection and is never closed")
    }

    fn enqueue(&self, outgoing: OutgoingFrame) -> Result<(), ConnectionClosed> {
        {
            let mut waiting = self.0.link.waiting.lock();
            if waiting.closed.is_none() {
                waiting.queue.push_back(outgoing);
                self.0.link.queued.notify_one();
                return Ok(());
            }
        }
        Err(self.closed())
    }

    fn closed(&self) -> ConnectionClosed {
        let reason = self.0.link.waiting.lock().closed.clone().unwrap_or(CloseReason::ByClient);
        ConnectionClosed { peer: Arc::clone(&self.0.peer), reason }
    }
}

impl Link {
    /// Records the first reason for closing, and notifies the task.
    fn close(&self, reason: CloseReason) {
        self.waiting.lock().closed.get_or_insert(reason);
        self.abort.notify_one();
    }

    /// Takes frames to write. Returns `None` once no more frames will follow.
    fn take_queued(&self, frames: &mut Vec<Bytes>, permits: &mut Vec<OwnedSemaphorePermit>) -> Option<()> {
        let mut waiting = self.waiting.lock();
        if waiting.queue.is_empty() && waiting.is_abandoned {
            return None;
        }
        let count = waiting.queue.len().min(WRITE_FRAMES_MAX);
        for _ in 0..count {
            let OutgoingFrame { frame, awaited } = waiting.queue.pop_front()?;
            frames.push(frame);
            match awaited {
                AwaitedEvent::Answer(in_flight) => waiting.requests.push_back(in_flight),
                AwaitedEvent::Write(permit) => permits.push(permit),
            }
        }
        Some(())
    }

    fn answered(&self, answer: Bytes) -> Result<(), CloseReason> {
        let received = answer.first_chunk().map_or(-1, |id| i32::from_be_bytes(*id));
        let oldest = {
            let mut waiting = self.waiting.lock();
            waiting.answered = true;
            waiting.requests.pop_front()
        };
        match oldest {
            Some(request) if request.correlation_id == received => {
                // The caller may have stopped waiting.
                let _ = request.reply.send(answer);
                Ok(())
            }
            other => {
                let expected = other.map(|request| request.correlation_id);
                Err(CloseReason::Correlation { received, expected })
            }
        }
    }
}

/// The task of a connection: writes and reads until either ends, then notifies all waiting requests.
async fn drive<S: ByteStream>(
    mut frames: FrameReader<ReadHalf<S>>,
    mut writer: WriteHalf<S>,
    link: Arc<Link>,
    renewal: Option<Box<Renewal>>,
) {
    let reading = async {
        loop {
            let answered = match frames.next().await {
                Ok(answer) => link.answered(answer),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = answered {
                return reason;
            }
        }
    };
    let reason = tokio::select! {
        biased;
        reason = reading => reason,
        written = write_queued(&mut writer, &link, renewal) => match written {
            Ok(()) => CloseReason::ByClient,
            Err(reason) => reason,
        },
        () = link.abort.notified() => CloseReason::ByClient,
    };
    let forgotten = {
        let mut waiting = link.waiting.lock();
        let reason = match reason {
            CloseReason::ByPeer if !waiting.answered && !waiting.requests.is_empty() => CloseReason::AtOnce,
            reason => reason,
        };
        waiting.closed.get_or_insert(reason);
        (std::mem::take(&mut waiting.requests), std::mem::take(&mut waiting.queue))
    };
    // Dropping the senders notifies the receivers, which read the reason from the link.
    drop(forgotten);
    // The stream is about to be dropped; an error of a peer that has closed does not matter.
    let _ = writer.shutdown().await;
}

async fn write_queued<W: AsyncWrite + Unpin + Send>(
    writer: &mut W,
    link: &Link,
    mut renewal: Option<Box<Renewal>>,
) -> Result<(), CloseReason> {
    let mut frames: Vec<Bytes> = Vec::new();
    let mut permits = Vec::new();
    loop {
        if let Some(due) = renewal.as_mut().filter(|due| due.at <= Instant::now()) {
            // Boxed, because renewals are rare.
            if !Box::pin(due.renew(writer, link)).await? {
                renewal = None;
            }
        }
        if link.take_queued(&mut frames, &mut permits).is_none() {
            return Ok(());
        }
        if frames.is_empty() {
            match &renewal {
                None => link.queued.notified().await,
                Some(due) => tokio::select! {
                    biased;
                    () = link.queued.notified() => {}
                    () = tokio::time::sleep_until(due.at) => {}
                },
            }
            continue;
        }
        {
            let mut slices: Vec<IoSlice<'_>> = frames.iter().map(|frame| IoSlice::new(frame)).collect();
            write_all_vectored(writer, &mut slices).await?;
        }
        writer.flush().await?;
        frames.clear();
        permits.clear();
    }
}

/// Re-authentication (KIP-368). Until it is complete, nothing else is written, because brokers accept no
/// other request in between. Answers to earlier requests arrive first.
struct Renewal {
    at: Instant,
    versions: ApiVersions,
    peer: Arc<str>,
    options: ConnectionOptions,
}

impl Renewal {
    /// Authenticates again. Returns true if another renewal will follow.
    async fn renew<W: AsyncWrite + Unpin + Send>(
        &mut self,
        writer: &mut W,
        link: &Link,
    ) -> Result<bool, CloseReason> {
        let mut exchange = RenewalExchange { writer, link, timeout: self.options.request_timeout };
        match handshake::authenticate(&mut exchange, &self.versions, &self.peer, &self.options).await {
            Ok(Some(at)) => {
                self.at = at;
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) => Err(CloseReason::NotRenewed(error.to_string().into())),
        }
    }
}

/// The connection's own requests, on a stream whose answers are read by the other half of the task.
struct RenewalExchange<'a, W> {
    writer: &'a mut W,
    link: &'a Link,
    /// Time for each answer.
    timeout: Duration,
}

impl<W: AsyncWrite + Unpin + Send> Exchange for RenewalExchange<'_, W> {
    async fn ask(&mut self, frame: Bytes) -> Result<Bytes, CloseReason> {
        let (reply, answer) = oneshot::channel();
        // Answers arrive in request order, so one correlation id suffices for all these requests.
        let (api, sent_at, timeout) = (ApiKey::SaslAuthenticate, Instant::now(), self.timeout);
        let in_flight = InFlightRequest { correlation_id: 0, api, sent_at, timeout, reply, _permit: None };
        self.link.waiting.lock().requests.push_back(in_flight);
        self.writer.write_all(&frame).await?;
        self.writer.flush().await?;
        answer.await.map_err(|_| CloseReason::ByPeer)
    }
}
