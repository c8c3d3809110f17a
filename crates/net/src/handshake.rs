//! TLS handshakes: within the connection's own task, with limits on time, bytes and concurrent computations;
//! and the log of failed handshakes.

use super::stream::Stream;
use super::stream::tls::TlsStream as OwnStream;
use super::waiting::stopped;
use parking_lot::{Mutex, RwLock};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::Poll;
use std::time::Duration;
use thalweg_places::{FairSemaphore, network};
use thalweg_security::tls::{ServerTls, ServerTlsSession, TlsHandshakeFault};
use thalweg_watch as watch;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Maximum duration of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// Maximum bytes from a peer in a handshake: certificate chains have a few KiB.
const HANDSHAKE_BYTES_MAX: usize = 128 * 1024;
/// The first byte of a handshake record, and of an SSL 2 hello.
const HANDSHAKE: u8 = 0x16;
const SSL2: u8 = 0x80;
/// Maximum number of failed handshakes of a listener logged per interval; further ones are counted.
const LOGGED_MAX: u32 = 10;
const LOGGED_WITHIN: Duration = Duration::from_secs(10);

/// Limits the handshakes that compute at the same time, over all listeners. Each takes up to a millisecond of
/// a worker, and established connections are served in between. Networks take turns: a flood from one network
/// delays only itself.
#[derive(Clone, Debug)]
pub struct HandshakeTurns(Arc<FairSemaphore<IpAddr>>);

impl Default for HandshakeTurns {
    /// Half of the processors, shared by all listeners of the process.
    fn default() -> Self {
        static OF_PROCESS: LazyLock<HandshakeTurns> = LazyLock::new(|| {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            HandshakeTurns(Arc::new(FairSemaphore::in_turn((processors / 2).max(1))))
        });
        OF_PROCESS.clone()
    }
}

/// The TLS of a listener. Settings may be replaced at run time; open connections keep theirs.
#[derive(Debug)]
pub struct TlsListener {
    current: RwLock<Arc<ServerTls>>,
    turns: HandshakeTurns,
    failures: Mutex<Failures>,
    observer: OnceLock<Arc<dyn CertificateObserver>>,
}

/// An observer of clients that were rejected because of their certificates.
pub trait CertificateObserver: fmt::Debug + Send + Sync {
    /// A client at this address was rejected.
    fn turned_away(&self, listener: &str, address: SocketAddr, reason: &TlsHandshakeFault);
}

/// Failed handshakes in the current interval, and the number that was not logged.
#[derive(Debug, Default)]
struct Failures {
    since: Option<Instant>,
    logged: u32,
    unlogged: u64,
    /// All failures since the start.
    total: u64,
}

/// Why a handshake ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeEnd {
    #[error(transparent)]
    Fault(#[from] TlsHandshakeFault),
    #[error("the handshake did not end within {0:?}")]
    TooSlow(Duration),
    #[error("the handshake has more than {HANDSHAKE_BYTES_MAX} bytes")]
    TooLong,
    #[error("the client closed the connection in the handshake")]
    Closed,
    #[error("the broker is stopping")]
    Stopping,
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for HandshakeEnd {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(fault) => Self::Fault(fault.into()),
            None => Self::Io(error),
        }
    }
}

impl TlsListener {
    /// A listener with these settings.
    pub fn new(tls: ServerTls, turns: HandshakeTurns) -> Arc<TlsListener> {
        let (current, failures) = (RwLock::new(Arc::new(tls)), Mutex::default());
        Arc::new(TlsListener { current, turns, failures, observer: OnceLock::new() })
    }

    /// Registers an observer of rejected clients. Only the first observer is kept.
    pub fn observe(&self, observer: Arc<dyn CertificateObserver>) {
        self.observer.get_or_init(|| observer);
    }

    /// Number of failed handshakes, without those that the peer aborted.
    pub fn failures(&self) -> u64 {
        self.failures.lock().total
    }

    /// The settings for new connections.
    pub fn current(&self) -> Arc<ServerTls> {
        Arc::clone(&self.current.read())
    }

    /// Replaces the settings for new connections.
    pub fn replace(&self, tls: ServerTls) {
        *self.current.write() = Arc::new(tls);
    }

    /// Performs the handshake of a new connection, unless the broker stops.
    pub(super) async fn accept(
        &self,
        stream: Stream,
        address: SocketAddr,
        idle_max: Duration,
        stopping: &mut watch::Receiver<bool>,
    ) -> Result<(Stream, ServerTlsSession), HandshakeEnd> {
        let tls = self.current();
        let connection = tls.connection().map_err(|error| TlsHandshakeFault::from(&error))?;
        let mut stream = OwnStream::new(stream, connection);
        let patience = HANDSHAKE_MAX.min(idle_max);
        tokio::select! {
            biased;
            () = stopped(stopping) => {
                stream.reset();
                return Err(HandshakeEnd::Stopping);
            }
            () = sleep(patience) => return Err(HandshakeEnd::TooSlow(patience)),
            ended = self.shake(&mut stream, address.ip()) => ended?,
        }
        let session = tls.session(stream.connection())?;
        Ok((Stream::Tls(Box::new(stream)), session))
    }

    /// Performs the handshake of a connection outside this crate's connection stack. Failures are logged in
    /// the same way.
    pub async fn accept_for(
        &self,
        listener: &str,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Option<(TlsStream<TcpStream>, ServerTlsSession)> {
        let ended = match tokio::time::timeout(HANDSHAKE_MAX, self.shake_for(stream, address.ip())).await {
            Ok(ended) => ended,
            Err(_) => Err(HandshakeEnd::TooSlow(HANDSHAKE_MAX)),
        };
        ended.map_err(|reason| self.note(listener, address, &reason)).ok()
    }

    async fn shake_for(
        &self,
        stream: TcpStream,
        address: IpAddr,
    ) -> Result<(TlsStream<TcpStream>, ServerTlsSession), HandshakeEnd> {
        let tls = self.current();
        let mut begin = [0];
        match stream.peek(&mut begin).await? {
            0 => return Err(HandshakeEnd::Closed),
            _ if !matches!(begin[0], HANDSHAKE | SSL2) => return Err(TlsHandshakeFault::PlainText.into()),
            _ => {}
        }
        let network = network(address);
        let mut shaken = pin!(TlsAcceptor::from(tls.config()).accept(stream));
        let stream = loop {
            // A turn covers computation only, not waiting.
            let turn = self.turns.0.take(&network).await;
            let advanced = poll_fn(|context| Poll::Ready(shaken.as_mut().poll(context))).await;
            drop(turn);
            match advanced {
                Poll::Ready(Ok(stream)) => break stream,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(HandshakeEnd::Closed);
                }
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => woken().await,
            }
        };
        let session = tls.session(stream.get_ref().1)?;
        Ok((stream, session))
    }

    async fn shake(&self, stream: &mut OwnStream, address: IpAddr) -> Result<(), HandshakeEnd> {
        let (network, mut begin, mut received) = (network(address), None, 0);
        while stream.connection().is_handshaking() {
            stream.readable().await?;
            match stream.receive_handshake(&mut begin) {
                Ok(0) => return Err(HandshakeEnd::Closed),
                Ok(read) => received += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error.into()),
            }
            if !matches!(begin, Some(HANDSHAKE | SSL2)) {
                return Err(TlsHandshakeFault::PlainText.into());
            }
            if received > HANDSHAKE_BYTES_MAX {
                return Err(HandshakeEnd::TooLong);
            }
            let turn = self.turns.0.take(&network).await;
            let advanced = stream.advance_handshake();
            drop(turn);
            advanced?;
            while let Err(error) = stream.flush(false) {
                match error.kind() {
                    io::ErrorKind::WouldBlock => stream.writable().await?,
                    _ => return Err(error.into()),
                }
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Logs a failed handshake, unless there are too many.
    pub(super) fn note(&self, listener: &str, address: SocketAddr, reason: &HandshakeEnd) {
        // Typical for a port scanner, or for a client that gave up.
        if matches!(reason, HandshakeEnd::Closed | HandshakeEnd::Stopping | HandshakeEnd::Io(_)) {
            return tracing::debug!(listener, %address, %reason, "TLS handshake ended");
        }
        if let (HandshakeEnd::Fault(fault), Some(observer)) = (reason, self.observer.get())
            && fault.is_failed_login()
        {
            observer.turned_away(listener, address, fault);
        }
        let mut failures = self.failures.lock();
        failures.total += 1;
        if failures.since.is_none_or(|since| since.elapsed() >= LOGGED_WITHIN) {
            let unlogged = failures.unlogged;
            *failures =
                Failures { since: Some(Instant::now()), total: failures.total, ..Failures::default() };
            if unlogged > 0 {
                tracing::warn!(listener, unlogged, "More TLS handshakes failed");
            }
        }
        if failures.logged < LOGGED_MAX {
            failures.logged += 1;
            drop(failures);
            tracing::warn!(listener, %address, %reason, "TLS handshake failed");
        } else {
            failures.unlogged += 1;
        }
    }
}

/// Returns when the task is woken again, by anything that its last poll waits for.
async fn woken() {
    let mut is_again = false;
    poll_fn(|_| match std::mem::replace(&mut is_again, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
