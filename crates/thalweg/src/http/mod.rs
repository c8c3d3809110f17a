//! The HTTP server of a node (`http.listener`), for operators: bound before anything else is done, served once the node serves.
//!
//! Its starter merges axum routers, such as [`metrics`]. Owns the sockets and their limits. Refuses: TLS,
//! authentication, and knowledge of the served content.

mod connections;
pub mod metrics;

use axum::Router;
use connections::Bounded;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use thalweg_config::HttpSettings;
use thalweg_net::{BindError, Listening, Network, SocketOptions};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Time for started requests when the server stops.
const DRAIN: Duration = Duration::from_secs(1);

/// The address of `http.listener` cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("http.listener: cannot listen on {host}:{port}")]
pub struct HttpBindError {
    host: String,
    port: u16,
    source: io::Error,
}

/// Sockets that are open and not served yet.
pub struct HttpListening(Listening);

impl HttpListening {
    /// Opens the sockets, if the settings want a server. Must run inside a runtime.
    pub fn bind(settings: &HttpSettings) -> Result<Option<HttpListening>, HttpBindError> {
        let Some((host, port)) = &settings.listener else { return Ok(None) };
        let options = SocketOptions { backlog: BACKLOG, receive_buffer_bytes: None };
        let failed =
            |error: BindError| HttpBindError { host: host.clone(), port: *port, source: error.source };
        let bound = Network::tcp().bind("HTTP", host, *port, options);
        bound.map(|listening| Some(HttpListening(listening))).map_err(failed)
    }

    /// Serves the routes until the server is stopped.
    pub fn serve(self, routes: Router) -> HttpServer {
        let addresses = self.0.addresses();
        let (stopping, stop) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for socket in self.0.into_sockets() {
            let (routes, mut stop) = (routes.clone(), stop.clone());
            let served = axum::serve(Bounded::new(socket), routes).with_graceful_shutdown(async move {
                // An error means that it cannot be stopped cleanly any more.
                let _ = stop.wait_for(|stop| *stop).await;
            });
            tasks.spawn(async move {
                if let Err(error) = served.await {
                    tracing::error!(%error, "HTTP server stopped");
                }
            });
        }
        HttpServer { addresses, stopping, tasks }
    }
}

/// A server that runs until it is stopped or dropped.
pub struct HttpServer {
    /// Where it listens.
    pub addresses: Vec<SocketAddr>,
    stopping: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl HttpServer {
    /// Stops cleanly: started requests are answered, unless they take long.
    pub async fn stop(mut self) {
        self.stopping.send_replace(true);
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            self.tasks.abort_all();
        }
    }
}
