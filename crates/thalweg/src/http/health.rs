//! `/livez`, `/readyz` and `/healthz`: health checks for process supervisors. These paths are open to
//! everybody, and answer only `ok`, `stopping` or `catching up`.
//!
//! They judge this node alone. The cluster is judged by `thalweg_client::verdict`, for people with a login.
//!
//! The HTTP server begins once the node serves, so any answer means that the node is alive. A stopping node
//! is alive, but should get no more work. A broker becomes ready when its replicas are in sync for the first
//! time: a rolling restart that waits for `/readyz` stops no second replica. A ready broker stays ready,
//! however far its replicas fall behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

/// The paths of liveness, readiness and health, in this order.
pub const PATHS: [&str; 3] = ["/livez", "/readyz", "/healthz"];

/// True if all replicas of the node are in sync.
pub type SyncCheck = Box<dyn Fn() -> bool + Send + Sync>;

/// The routes; the channel is true while the node stops.
pub fn routes(stopping: watch::Receiver<bool>, is_in_sync: SyncCheck) -> Router {
    let state = Arc::new(Health { stopping, is_in_sync, was_in_sync: AtomicBool::new(false) });
    let ready = Arc::clone(&state);
    let [live, readiness, health] = PATHS;
    Router::new()
        .route(live, get(|| async { ok() }))
        .route(readiness, get(move || async move { ready.readiness() }))
        .route(health, get(move || async move { state.health() }))
}

struct Health {
    stopping: watch::Receiver<bool>,
    is_in_sync: SyncCheck,
    was_in_sync: AtomicBool,
}

impl Health {
    fn health(&self) -> Response {
        if *self.stopping.borrow() { answer(StatusCode::SERVICE_UNAVAILABLE, "stopping\n") } else { ok() }
    }

    fn readiness(&self) -> Response {
        if !self.was_in_sync.load(Ordering::Relaxed) {
            if !(self.is_in_sync)() {
                return answer(StatusCode::SERVICE_UNAVAILABLE, "catching up\n");
            }
            self.was_in_sync.store(true, Ordering::Relaxed);
        }
        self.health()
    }
}

fn ok() -> Response {
    answer(StatusCode::OK, "ok\n")
}

fn answer(status: StatusCode, text: &'static str) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
