//! Connections to the HTTP server: accepted, wrapped in TLS, and served one request after another, within
//! limits of number, time and size.

use super::gate::{self, Visit};
use super::silence::{self, Connection, IsAtWork, SILENT_MAX};
use super::slots::{ConnectionSlot, ConnectionSlots};
use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use thalweg_broker::HttpAccess;
use thalweg_client::ByteStream;
use thalweg_config::HTTP_LISTENER;
use thalweg_console::Console;
use thalweg_security::Principal;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Time limit for a new connection to finish its handshake and get a request admitted.
const STRANGER_MAX: Duration = Duration::from_secs(10);
/// Limit of a request's head; a larger head is answered with 431.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Pause after a failed accept, usually for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Shortest interval between log lines about failed accepts.
const FAILED_ACCEPTS_NOTED: Duration = Duration::from_secs(60);

/// The served routes, with their access control and limits.
pub(super) struct ServedRoutes {
    pub routes: Router,
    /// None serves everybody.
    pub access: Option<Arc<HttpAccess>>,
    pub console: Option<Console>,
    pub slots: Arc<ConnectionSlots>,
}

/// Accepts connections until the server stops, and waits for their last requests.
pub(super) async fn accept(socket: TcpListener, serving: Arc<ServedRoutes>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let stopping = stop.clone();
    let mut noted: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = stopped(&mut stop) => break,
            Some(_) = connections.join_next() => {}
            accepted = socket.accept() => match accepted {
                Ok((stream, address)) => {
                    let slot = serving.slots.enter(address.ip());
                    connections.spawn(attend(stream, address, Arc::clone(&serving), slot, stopping.clone()));
                }
                Err(error) => {
                    if noted.is_none_or(|noted| noted.elapsed() >= FAILED_ACCEPTS_NOTED) {
                        noted = Some(Instant::now());
                        tracing::warn!(%error, "Failed to accept HTTP connections");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(socket);
    while connections.join_next().await.is_some() {}
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves a connection until it ends, or has to give way.
async fn attend(
    stream: TcpStream,
    address: SocketAddr,
    serving: Arc<ServedRoutes>,
    slot: ConnectionSlot,
    stop: watch::Receiver<bool>,
) {
    let slot = Arc::new(slot);
    let too_late = async {
        tokio::time::sleep(STRANGER_MAX).await;
        if !slot.is_strangers() {
            std::future::pending().await
        }
    };
    tokio::select! {
        biased;
        () = slot.lost() => tracing::debug!(%address, "Closed an HTTP connection to make room"),
        () = too_late => tracing::debug!(%address, "Closed an HTTP connection without a request"),
        () = serve(stream, address, &serving, Arc::clone(&slot), stop) => {}
    }
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    serving: &ServedRoutes,
    slot: Arc<ConnectionSlot>,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are sent whole, so Nagle's delay would gain nothing.
    let _ = stream.set_nodelay(true);
    let (stream, certified): (Box<dyn ByteStream>, _) =
        match serving.access.as_ref().and_then(|access| access.tls.as_ref()) {
            None => (Box::new(stream), None),
            Some(tls) => match tls.accept_for(HTTP_LISTENER, stream, address).await {
                Some((stream, session)) => (Box::new(stream), session.certificate.map(|shown| shown.user)),
                None => return,
            },
        };
    let routes = serving.routes.clone();
    let certified = certified.map(Principal::user);
    let (access, console) = (serving.access.clone(), serving.console.clone());
    let visit = Visit::begin(access, console, slot, address.ip(), certified);
    let at_work = IsAtWork::default();
    let routes = routes
        .layer(from_fn_with_state(Arc::new(visit), gate::check))
        .layer(from_fn_with_state(at_work.clone(), silence::watch));
    let service = TowerToHyperService::new(routes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENT_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Connection::new(stream, at_work)), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "HTTP connection ended");
    }
}
