//! A connection to a broker: requests with answers, and producers and consumers that share the connection.
//!
//! One task per connection writes queued frames and dispatches received ones. Answers have the id of their
//! request; receipts and entries go to the producer or consumer by its id ([`ProducerEvents`],
//! [`ConsumerEvents`]), on the connection's task.

mod dispatch;
mod handshake;
mod link;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::oneshot;

use crate::connector::{ByteStream, Connector};
use crate::error::{
    CloseReason, ConnectFailed, ConnectTimedOut, ConnectionClosed, PulsarError, RequestRefused,
    RequestSubject, RequestTimedOut,
};
use crate::frame::{self, PayloadFrame};
use crate::frame_reader::FrameReader;
use crate::options::ClientOptions;
use crate::protocol::{Command, EntryCommand, Ping, SendReceiptCommand};
use crate::server_error::ServerError;
use crate::service_url::BrokerAddress;
use link::Link;

/// A request id whose answer nothing waits for: ids of requests begin at 1.
pub(crate) const UNANSWERED: u64 = 0;

/// A connection of a client, by number. Events of an earlier connection are recognized by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionId(pub u64);

/// Events of a producer. The methods run on the connection's task, so they must be fast.
pub(crate) trait ProducerEvents: Send + Sync {
    /// A batch is stored. An error ends the connection.
    fn stored(&self, connection: ConnectionId, receipt: &SendReceiptCommand) -> Result<(), CloseReason>;
    /// A batch is refused. An error ends the connection.
    fn refused(
        &self,
        connection: ConnectionId,
        sequence_id: u64,
        error: ServerError,
        message: String,
    ) -> Result<(), CloseReason>;
    /// The broker has closed the producer: the topic moves to another one.
    fn closed_by_broker(&self, connection: ConnectionId);
    fn connection_ended(&self, connection: ConnectionId, error: &ConnectionClosed);
}

/// Events of a consumer. The methods run on the connection's task, so they must be fast.
pub(crate) trait ConsumerEvents: Send + Sync {
    /// An entry arrived; `entry` begins with its checksum. An error ends the connection.
    fn entry(&self, connection: ConnectionId, command: EntryCommand, entry: Bytes)
    -> Result<(), CloseReason>;
    fn active_changed(&self, is_active: bool);
    fn end_of_topic(&self);
    /// The broker has closed the consumer: the topic moves to another one, or the subscription was reset.
    fn closed_by_broker(&self, connection: ConnectionId);
    fn connection_ended(&self, connection: ConnectionId, error: &ConnectionClosed);
}

/// The place of a new connection: the address to connect to, and a broker behind it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ConnectionTarget {
    /// The address of the TCP connection.
    pub address: BrokerAddress,
    /// The broker, if `address` is that of a proxy.
    pub behind: Option<BrokerAddress>,
}

/// A connection to a broker. Clones share the connection; it ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Connection(Arc<ConnectionHandle>);

struct ConnectionHandle(Arc<Link>);

impl Drop for ConnectionHandle {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Connection {
    /// Connects to `target`.
    pub(crate) async fn open(
        connector: &Connector,
        target: &ConnectionTarget,
        id: ConnectionId,
        options: &ClientOptions,
    ) -> Result<Connection, PulsarError> {
        let (peer, timeout) = (target.address.shared(), options.connect_timeout);
        let stream = match tokio::time::timeout(timeout, connector.open(target.address.as_str())).await {
            Err(_) => return Err(ConnectTimedOut { peer: Arc::clone(peer), timeout }.into()),
            Ok(Err(source)) => {
                return Err(ConnectFailed { peer: Arc::clone(peer), source: Arc::new(source) }.into());
            }
            Ok(Ok(stream)) => stream,
        };
        let (reader, mut writer) = tokio::io::split(stream);
        let mut frames = FrameReader::new(reader, handshake::FRAME_BYTES_MAX);
        let message_bytes_max = handshake::connect(&mut frames, &mut writer, target, timeout).await?;
        frames.set_frame_bytes_max(message_bytes_max + handshake::FRAME_PADDING_BYTES);
        let link = Arc::new(Link::new(id, Arc::clone(peer), message_bytes_max));
        tokio::spawn(drive(frames, writer, Arc::clone(&link), options.keep_alive));
        Ok(Connection(Arc::new(ConnectionHandle(link))))
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.link().id
    }

    /// Address of the broker or proxy, `host:port`.
    pub(crate) fn peer(&self) -> &Arc<str> {
        &self.link().peer
    }

    /// The broker's limit of a message, in bytes.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.link().message_bytes_max
    }

    /// True if the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.link().closed().is_some()
    }

    /// Why the connection has ended, for a closed connection.
    pub(crate) fn closed(&self) -> ConnectionClosed {
        self.link().closed().unwrap_or_else(|| self.link().ended_by(CloseReason::ByClient))
    }

    /// Sends the command that `build` makes with a new request id, and waits for its answer. An error of the
    /// broker is [`PulsarError::Refused`].
    ///
    /// If the future is dropped, the request may have been sent; its answer is then ignored.
    pub(crate) async fn request(
        &self,
        subject: RequestSubject,
        timeout: Duration,
        build: impl FnOnce(u64) -> Command + Send,
    ) -> Result<Command, PulsarError> {
        let link = self.link();
        let (reply, answer) = oneshot::channel();
        let pending = link.register_request(reply).ok_or_else(|| self.closed())?;
        self.send(build(pending.id));
        match tokio::time::timeout(timeout, answer).await {
            Err(_) => Err(RequestTimedOut { peer: Arc::clone(&link.peer), request: subject, timeout }.into()),
            Ok(Err(_)) => Err(self.closed().into()),
            Ok(Ok(Command::Error(refusal))) => {
                let (error, message) = (ServerError::of(refusal.error), refusal.message);
                Err(RequestRefused { request: subject, error, message }.into())
            }
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// Queues a command. A closed connection ignores it: its users learn of the end as an event.
    pub(crate) fn send(&self, command: Command) {
        self.link().queue(&[frame::encode(command)]);
    }

    /// Queues an entry, like [`Connection::send`].
    pub(crate) fn send_entry(&self, frame: &PayloadFrame) {
        self.link().queue(&[frame.head.clone(), frame.payload.clone()]);
    }

    /// Registers the receiver of a producer's events; false if the connection has ended.
    pub(crate) fn add_producer(&self, id: u64, events: Arc<dyn ProducerEvents>) -> bool {
        self.link().routes.lock().add_producer(id, events)
    }

    /// Registers the receiver of a consumer's events; false if the connection has ended.
    pub(crate) fn add_consumer(&self, id: u64, events: Arc<dyn ConsumerEvents>) -> bool {
        self.link().routes.lock().add_consumer(id, events)
    }

    pub(crate) fn remove_producer(&self, id: u64) {
        self.link().routes.lock().producers.remove(&id);
    }

    pub(crate) fn remove_consumer(&self, id: u64) {
        self.link().routes.lock().consumers.remove(&id);
    }

    fn link(&self) -> &Link {
        &self.0.0
    }
}

/// The task of a connection: writes and reads until either ends, then notifies all users.
async fn drive(
    mut frames: FrameReader<ReadHalf<Box<dyn ByteStream>>>,
    mut writer: WriteHalf<Box<dyn ByteStream>>,
    link: Arc<Link>,
    keep_alive: Duration,
) {
    let reading = async {
        loop {
            let dispatched = match frames.next().await {
                Ok(frame) => dispatch::dispatch(&link, frame),
                Err(reason) => Err(reason),
            };
            if let Err(reason) = dispatched {
                return reason;
            }
        }
    };
    let reason = tokio::select! {
        biased;
        reason = reading => reason,
        written = link.write_queued(&mut writer) => match written {
            Ok(()) => CloseReason::ByClient,
            Err(error) => error.into(),
        },
        silence = ask_for_life(&link, keep_alive) => CloseReason::Silent(silence),
    };
    link.end(reason);
    // The stream is about to be dropped; an error of a peer that has closed does not matter.
    let _ = writer.shutdown().await;
}

/// Sends PING after `keep_alive` without a command from the peer. Returns the time without one if the next
/// interval is silent, too.
async fn ask_for_life(link: &Link, keep_alive: Duration) -> Duration {
    let mut has_asked = false;
    loop {
        tokio::time::sleep(keep_alive).await;
        if link.take_life_sign() {
            has_asked = false;
        } else if has_asked {
            return 2 * keep_alive;
        } else {
            has_asked = true;
            link.queue(&[frame::encode(Command::Ping(Ping {}))]);
        }
    }
}
