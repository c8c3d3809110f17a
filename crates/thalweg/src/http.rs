//! The HTTP server of a node (`http.listener`), for operators: bound before anything else starts, served once
//! the node serves.
//!
//! The starter of the server merges axum routers, such as [`metrics`] and the console's. Owns the sockets,
//! their limits and the check of access. Knows nothing about the served content.

mod answer_body;
mod connections;
mod gate;
pub mod health;
pub mod metrics;
mod silence;
mod slots;
mod strict_transport;

use axum::Router;
use connections::ServedRoutes;
use slots::ConnectionSlots;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thalweg_broker::HttpAccess;
use thalweg_console::Console;
use thalweg_net::{BindError, BoundListener, Network, SocketOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Limit of connections waiting to be accepted.
const BACKLOG: i32 = 128;
/// Time for started requests when the server stops.
const DRAIN: Duration = Duration::from_secs(1);

/// An address to listen on, from a command line.
#[derive(Clone, Debug)]
pub struct HttpAddress(pub (String, u16));

/// Parses `HOST:PORT`; the host may be an IPv6 address in brackets.
pub fn address(text: &str) -> Result<HttpAddress, String> {
    let wrong = || "use HOST:PORT, such as localhost:9090".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(HttpAddress((host, port.parse().map_err(|_| wrong())?)))
}

/// The address of `http.listener` cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("http.listener: cannot listen on {host}:{port}")]
pub struct HttpBindError {
    host: String,
    port: u16,
    source: io::Error,
}

/// Sockets that are open and not served yet.
pub struct HttpSockets(BoundListener);

impl HttpSockets {
    /// Opens the sockets. Must run inside a runtime.
    pub fn bind((host, port): &(String, u16)) -> Result<HttpSockets, HttpBindError> {
        let options = SocketOptions { backlog: BACKLOG, receive_buffer_bytes: None };
        let failed =
            |error: BindError| HttpBindError { host: host.clone(), port: *port, source: error.source };
        let bound = Network::tcp().bind("HTTP", host, *port, options);
        bound.map(HttpSockets).map_err(failed)
    }

    /// Serves the routes until the server is stopped: to everybody, or to principals that `access` allows.
    /// The console may have its own login.
    pub fn serve(self, routes: Router, access: Option<HttpAccess>, console: Option<Console>) -> HttpServer {
        let scheme =
            if access.as_ref().is_some_and(|access| access.tls.is_some()) { "https" } else { "http" };
        let addresses = self.0.addresses();
        let urls = addresses.iter().map(|address| format!("{scheme}://{address}")).collect();
        let (stopping, stop) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let access = access.map(Arc::new);
        let serving =
            Arc::new(ServedRoutes { routes, access, console, slots: Arc::new(ConnectionSlots::default()) });
        for socket in self.0.into_sockets() {
            tasks.spawn(connections::accept(socket, Arc::clone(&serving), stop.clone()));
        }
        HttpServer { urls, stopping, tasks }
    }
}

/// A server that runs until it is stopped or dropped.
pub struct HttpServer {
    /// The URLs of the sockets, such as `http://127.0.0.1:9090`.
    pub urls: Vec<String>,
    stopping: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl HttpServer {
    /// Stops cleanly: started requests have `DRAIN` to finish.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            self.tasks.abort_all();
        }
    }
}
