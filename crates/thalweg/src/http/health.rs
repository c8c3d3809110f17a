//! `/livez`, `/readyz` and `/healthz`: for those who watch over processes. They are open to all, and say no more than `ok` or
//! `stopping`.
//!
//! The server begins once the node serves, so an answer means that it lives. A node that stops is alive, but should get no more
//! work.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;

/// The paths.
pub const PATHS: [&str; 3] = ["/livez", "/readyz", "/healthz"];

/// The routes; the channel is true while the node stops.
pub fn routes(stopping: watch::Receiver<bool>) -> Router {
    let ready = move || {
        let is_stopping = *stopping.borrow();
        async move { if is_stopping { answer(StatusCode::SERVICE_UNAVAILABLE, "stopping\n") } else { ok() } }
    };
    let [live, readiness, health] = PATHS;
    Router::new()
        .route(live, get(|| async { ok() }))
        .route(readiness, get(ready.clone()))
        .route(health, get(ready))
}

fn ok() -> Response {
    answer(StatusCode::OK, "ok\n")
}

fn answer(status: StatusCode, text: &'static str) -> Response {
    (status, [(CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
