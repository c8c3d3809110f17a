//! `/metrics`: all metrics of this process, in Prometheus' text format.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;
use thalweg_broker::metrics::{self, Exposition};

/// Writes families of metrics.
pub type Source = Box<dyn Fn(&mut Exposition) + Send + Sync>;

/// The route, with the families of all sources one after another.
pub fn routes(sources: Vec<Source>) -> Router {
    Router::new().route("/metrics", get(expose)).with_state(Arc::new(sources))
}

async fn expose(State(sources): State<Arc<Vec<Source>>>) -> Response {
    // It reads every partition: do not block other requests.
    let written = tokio::task::spawn_blocking(move || {
        let mut page = Exposition::default();
        sources.iter().for_each(|source| source(&mut page));
        page.into_text()
    });
    match written.await {
        Ok(page) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response(),
        Err(_panicked) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
