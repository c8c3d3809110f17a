//! Listening sockets: bound first, served when the broker is ready, closed first when it stops.

use super::admission::{Admission, Connections, RefusedConnection};
use super::connection::{Connection, ConnectionSettings, Disconnect, Handler};
use super::handshake::TlsListener;
use super::mute::Mute;
use super::peer::Peer;
use super::stream::{SimulatedStream, Stream};
use super::waiting::stopped;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use thalweg_watch as watch;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Pause of the accept loop when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval of log lines about a listener that cannot accept or is full.
const NOTED_EVERY: Duration = Duration::from_secs(60);

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("listener {name} (listeners) cannot listen on {host}:{port}")]
pub struct BindError {
    pub name: String,
    /// Host as configured; empty for all interfaces.
    pub host: String,
    /// Port as configured; 0 for any free port.
    pub port: u16,
    /// The system's error.
    pub source: io::Error,
}

/// A listener with open sockets that are not served yet.
pub struct BoundListener {
    pub name: String,
    sockets: Vec<Acceptor>,
    tls: Option<Arc<TlsListener>>,
}

/// A listening port of a simulated machine, closed when dropped.
pub trait SimulatedListener: Send + Sync {
    /// Address of the port.
    fn address(&self) -> SocketAddr;

    /// The next new connection, and the peer's address.
    fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Box<dyn SimulatedStream>, SocketAddr)>>;
}

/// The source of connections.
enum Acceptor {
    Tcp(TcpListener),
    Simulated(Box<dyn SimulatedListener>),
}

impl Acceptor {
    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Acceptor::Tcp(socket) => socket.local_addr(),
            Acceptor::Simulated(listener) => Ok(listener.address()),
        }
    }

    async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Acceptor::Tcp(socket) => socket.accept().await.map(|(stream, peer)| (Stream::Tcp(stream), peer)),
            Acceptor::Simulated(listener) => {
                let (stream, peer) = poll_fn(|context| listener.poll_accept(context)).await?;
                Ok((Stream::Simulated(stream), peer))
            }
        }
    }
}

/// Options for opening the sockets of a listener.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// Maximum number of connections waiting to be accepted, `socket.listen.backlog.size`.
    pub backlog: i32,
    /// SO_RCVBUF, `socket.receive.buffer.bytes`; `None` for the system's default.
    pub receive_buffer_bytes: Option<usize>,
}

/// Opens the sockets of a listener: one per address of its host, on IPv4 and IPv6. An empty host means all
/// interfaces of both families. Port 0 selects a free port, the same for all addresses. Must run inside a
/// runtime.
pub(super) fn bind(
    name: &str,
    host: &str,
    port: u16,
    options: SocketOptions,
) -> Result<BoundListener, BindError> {
    let error = |source| BindError { name: name.to_owned(), host: host.to_owned(), port, source };
    let addresses = addresses(host, port).map_err(error)?;
    let mut sockets: Vec<Acceptor> = Vec::new();
    let mut failure = None;
    for mut address in addresses {
        if let Some(first) = sockets.first() {
            address.set_port(first.address().map_err(error)?.port());
        }
        match open(address, options) {
            Ok(socket) => sockets.push(Acceptor::Tcp(socket)),
            // A machine may lack one of the two families, but not both.
            Err(source) if matches!(source.raw_os_error(), Some(97 | 99)) => failure = Some(source),
            Err(source) => return Err(error(source)),
        }
    }
    match (sockets.is_empty(), failure) {
        (false, _) => Ok(BoundListener { name: name.to_owned(), sockets, tls: None }),
        (true, source) => Err(error(source.unwrap_or_else(|| io::Error::other("the host has no address")))),
    }
}

fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_everywhere = host.is_empty() || host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified());
    let mut found: Vec<SocketAddr> = match host {
        _ if is_everywhere => any.iter().map(|ip| SocketAddr::new(*ip, port)).collect(),
        // Many clients try ::1 first, regardless of the hosts file.
        "localhost" => loopback.iter().map(|ip| SocketAddr::new(*ip, port)).collect(),
        host => (host, port).to_socket_addrs()?.collect(),
    };
    found.dedup();
    Ok(found)
}

fn open(address: SocketAddr, options: SocketOptions) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if let Some(bytes) = options.receive_buffer_bytes {
        // Connections inherit the size, which must be set before they agree on a window.
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    TcpListener::from_std(socket.into())
}

/// State common to all connections of a listener.
#[derive(Clone)]
pub(super) struct ListenerState<H> {
    handler: H,
    settings: ConnectionSettings,
    limits: Arc<Connections>,
    stopping: watch::Receiver<bool>,
    name: String,
    tls: Option<Arc<TlsListener>>,
}

impl fmt::Debug for BoundListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundListener")
            .field("name", &self.name)
            .field("addresses", &self.addresses())
            .finish()
    }
}

impl BoundListener {
    pub(super) fn simulated(name: &str, listener: Box<dyn SimulatedListener>) -> BoundListener {
        BoundListener { name: name.to_owned(), sockets: vec![Acceptor::Simulated(listener)], tls: None }
    }

    /// The same listener over TLS; `None` for no TLS.
    pub fn over(self, tls: Option<Arc<TlsListener>>) -> BoundListener {
        BoundListener { tls, ..self }
    }

    /// The addresses of the open sockets.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.iter().filter_map(|socket| socket.address().ok()).collect()
    }

    /// The port, including a selected free one.
    pub fn port(&self) -> u16 {
        self.addresses().first().map_or(0, SocketAddr::port)
    }

    /// The open sockets, for other servers.
    pub fn into_sockets(self) -> Vec<TcpListener> {
        let socket = |acceptor| match acceptor {
            Acceptor::Tcp(socket) => Some(socket),
            Acceptor::Simulated(_) => None,
        };
        self.sockets.into_iter().filter_map(socket).collect()
    }

    /// Serves connections until `stopping` becomes true. Then closes the sockets, lets connections finish the
    /// requests that they have begun, and returns when the last connection has ended.
    pub async fn serve<H: Handler + Sync>(
        self,
        handler: H,
        settings: ConnectionSettings,
        limits: Arc<Connections>,
        stopping: watch::Receiver<bool>,
    ) {
        let serving = ListenerState { handler, settings, limits, stopping, name: self.name, tls: self.tls };
        let mut accepting = JoinSet::new();
        for socket in self.sockets {
            accepting.spawn(accept(socket, serving.clone()));
        }
        while accepting.join_next().await.is_some() {}
    }
}

async fn accept<H: Handler + Sync>(socket: Acceptor, serving: ListenerState<H>) {
    let mut connections = JoinSet::new();
    let mut stopping = serving.stopping.clone();
    let (mut failed_noted, mut full_noted) = (None, None);
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stopping) => break,
            // Before the next accept, so that finished tasks do not pile up when connections arrive without a
            // pause.
            Some(_) = connections.join_next() => {}
            accepted = socket.accept() => match accepted {
                Ok((stream, address)) => {
                    // No connection is accepted meanwhile; the system's queue holds new ones.
                    admit(stream, address, &serving, &mut connections, &mut full_noted).await;
                }
                Err(error) => {
                    if is_due(&mut failed_noted) {
                        tracing::warn!(listener = serving.name, %error, "Failed to accept connections");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

/// Limits log lines about repeated failures to one per minute.
fn is_due(noted: &mut Option<Instant>) -> bool {
    let is_due = noted.is_none_or(|noted| noted.elapsed() >= NOTED_EVERY);
    if is_due {
        *noted = Some(Instant::now());
    }
    is_due
}

/// Serves an accepted connection once the rates and limits allow it, or closes it.
async fn admit<H: Handler + Sync>(
    mut stream: Stream,
    address: SocketAddr,
    serving: &ListenerState<H>,
    connections: &mut JoinSet<()>,
    full_noted: &mut Option<Instant>,
) {
    let ListenerState { limits, name, .. } = serving;
    let pause = limits.arrive(name);
    let full = || {
        if is_due(full_noted) {
            tracing::warn!(listener = name, "Accepts no connection until one ends (max.connections)");
        }
    };
    let admitted = async {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        limits.admit(name, address.ip(), full).await
    };
    let mut stopping = serving.stopping.clone();
    let admitted = tokio::select! {
        biased;
        () = stopped(&mut stopping) => return stream.reset(),
        admitted = admitted => admitted,
    };
    let admission = match admitted {
        Ok(admission) => admission,
        Err(RefusedConnection::TooFast { delay, .. }) => {
            tracing::debug!(listener = name, %address, ?delay, "Rejected a connection for the rate of its address");
            if let Some(delay) = delay {
                connections.spawn(async move {
                    tokio::select! {
                        biased;
                        () = stopped(&mut stopping) => {}
                        () = tokio::time::sleep(delay.length) => {}
                    }
                    drop(stream);
                });
            }
            return;
        }
        Err(reason) => {
            tracing::warn!(listener = name, %address, %reason, "Rejected a connection");
            return;
        }
    };
    if let Stream::Tcp(socket) = &stream {
        tune(socket, address, &serving.settings);
    }
    let (serving, id) = (serving.clone(), admission.id());
    let limits = Arc::clone(&serving.limits);
    let task = connections.spawn(async move { serve(stream, address, serving, admission).await });
    limits.served_by(id, task);
}

/// Serves one connection, after its handshake if the listener has TLS.
async fn serve<H: Handler>(
    stream: Stream,
    address: SocketAddr,
    serving: ListenerState<H>,
    admission: Admission,
) {
    let ListenerState { handler, settings, mut stopping, name, tls, limits } = serving;
    let (stream, session) = match tls {
        None => (stream, None),
        Some(tls) => match tls.accept(stream, address, settings.idle_max, &mut stopping).await {
            Ok((stream, session)) => (stream, Some(session)),
            Err(reason) => return tls.note(&name, address, &reason),
        },
    };
    let peer = Arc::new(Peer {
        address,
        listener: name,
        tls: session,
        mute: Mute::default(),
        software: OnceLock::new(),
        client_id: OnceLock::new(),
        identified: OnceLock::new(),
        attached: Default::default(),
    });
    admission.serves(&peer);
    let connection = Connection::new(stream, Arc::clone(&peer), handler, settings, stopping, admission);
    let reason = connection.run().await;
    // For a log line, if the client has sent them.
    let (client_id, software) = (peer.client_id.get(), peer.software.get().map(tracing::field::display));
    limits.ended(reason.end());
    match reason {
        reason @ (Disconnect::FrameLength(_)
        | Disconnect::Refused(_)
        | Disconnect::Answered(_)
        | Disconnect::TooSlow
        | Disconnect::Unread) => {
            tracing::warn!(%address, client_id, software, %reason, "Closed a connection");
        }
        reason => tracing::debug!(%address, client_id, software, %reason, "Connection ended"),
    }
}

/// Sets socket options. A failure makes a connection slower, not wrong.
fn tune(stream: &TcpStream, address: SocketAddr, settings: &ConnectionSettings) {
    // Answers are sent whole, so waiting for more bytes gains nothing.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%address, %error, "Failed to set TCP_NODELAY");
    }
    if let Some(bytes) = settings.send_buffer_bytes
        && let Err(error) = SockRef::from(stream).set_send_buffer_size(bytes)
    {
        tracing::debug!(%address, bytes, %error, "Failed to set SO_SNDBUF");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnswerMemory, FrameMemory};
    use std::time::Duration;
    use thalweg_config::{BrokerConfig, ServerProperties};

    #[tokio::test]
    async fn all_interfaces_are_those_of_both_families() {
        let options = SocketOptions { backlog: 1, receive_buffer_bytes: None };
        for host in ["", "0.0.0.0", "::", "[::]", "::0"] {
            let port = bind("TEST", host, 0, options).expect("a free port");
            let found: Vec<_> = port.addresses().into_iter().map(|address| address.ip()).collect();
            let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
            assert!(!found.is_empty() && found.contains(&any[0]), "{host}: {found:?}");
            // A machine may lack IPv6.
            assert!(found.iter().all(|ip| any.contains(ip)), "{host}: {found:?}");
        }
    }

    #[tokio::test]
    async fn connections_that_come_at_once_wait_to_be_accepted() {
        let config = BrokerConfig::new(&ServerProperties::default()).expect("the defaults are valid");
        let options = SocketOptions { backlog: config.network.listen_backlog, receive_buffer_bytes: None };
        let listening = bind("TEST", "127.0.0.1", 0, options).expect("a free port");
        let address = listening.addresses()[0];
        // No task accepts. A connection that does not fit into the queue would be retried after a second.
        // Some systems allow only 128.
        let connect = |_| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(900));
        let waiting: Result<Vec<_>, _> = (0..120).map(connect).collect();
        assert_eq!(waiting.expect("all of them wait").len(), 120);
    }

    fn socket_of(listening: &BoundListener) -> &TcpListener {
        match &listening.sockets[0] {
            Acceptor::Tcp(socket) => socket,
            Acceptor::Simulated(_) => panic!("it was bound by the kernel"),
        }
    }

    #[tokio::test]
    async fn sockets_get_the_requested_buffers() {
        let of_listener = |receive_buffer_bytes| {
            let options = SocketOptions { backlog: 1, receive_buffer_bytes };
            let listening = bind("TEST", "127.0.0.1", 0, options).expect("a free port");
            let size = SockRef::from(socket_of(&listening)).recv_buffer_size().expect("it is open");
            (listening, size)
        };
        let (listening, small) = of_listener(Some(16 * 1024));
        let (_, usual) = of_listener(None);
        assert!(small < usual, "{small} of {usual}");

        let stream = TcpStream::connect(listening.addresses()[0]).await.expect("it listens");
        let usual = SockRef::from(&stream).send_buffer_size().expect("it is open");
        let settings = ConnectionSettings {
            frame_max: 1000,
            idle_max: Duration::from_secs(1),
            memory: FrameMemory::new(1000, 1000),
            answers: AnswerMemory::new(1000),
            send_buffer_bytes: Some(16 * 1024),
            flow: crate::Flow::default(),
        };
        tune(&stream, listening.addresses()[0], &settings);
        let small = SockRef::from(&stream).send_buffer_size().expect("it is open");
        assert!(small < usual, "{small} of {usual}");
        assert!(stream.nodelay().expect("it is open"));
    }
}
