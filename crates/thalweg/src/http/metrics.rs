//! `/metrics`: all metrics of this process, in Prometheus' text format, or in OpenMetrics if the client
//! prefers it.
//!
//! A page of moderate size is sent whole. A larger page is sent in parts, each written when the client has
//! taken the part before, so that the memory of a page does not grow with the number of partitions. Owns the
//! limits: concurrent pages, and the time for a client to take a page.

use super::slots::Owner;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Extension, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::body::Frame;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use thalweg_broker::metrics::{Exposition, Form, PART_BYTES};
use thalweg_places::{FairPermit, FairSemaphore, ReachedLimit};
use tokio::sync::mpsc;

/// Concurrent pages, in total and per user or network: each page holds the figures of all partitions.
const SCRAPES_MAX: usize = 4;
const SCRAPES_OF_ONE_MAX: usize = 2;
/// Time limit for a scrape to get its turn.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for a client to take a page.
const TAKEN_WITHIN: Duration = Duration::from_secs(60);

/// Writes metric families to the page until the page has so many bytes; true if more follow.
pub type Writer = Box<dyn FnMut(&mut Exposition, usize) -> bool + Send>;

/// Reads the figures of some metric families at one moment, and returns their writer.
pub type Source = Box<dyn Fn() -> Writer + Send + Sync>;

/// The route, with the families of all sources one after another.
pub fn routes(sources: Vec<Source>) -> Router {
    let scrapes = Scrapes { sources, turns: FairSemaphore::new(SCRAPES_MAX, SCRAPES_OF_ONE_MAX) };
    Router::new().route("/metrics", get(expose)).with_state(Arc::new(scrapes))
}

struct Scrapes {
    sources: Vec<Source>,
    turns: FairSemaphore<Owner>,
}

/// A page that is being written.
struct Page {
    scrapes: Arc<Scrapes>,
    page: Exposition,
    /// The writer of the current source, once begun; `source` is the index of that source.
    writer: Option<Writer>,
    source: usize,
    _turn: FairPermit,
}

impl Page {
    /// Writes the next part; true if more follow. Blocks, because a source reads every partition.
    fn write(&mut self) -> bool {
        while let Some(source) = self.scrapes.sources.get(self.source) {
            let writer = self.writer.get_or_insert_with(source);
            if writer(&mut self.page, PART_BYTES) {
                return true;
            }
            (self.writer, self.source) = (None, self.source + 1);
        }
        self.page.finish();
        false
    }
}

async fn expose(
    State(scrapes): State<Arc<Scrapes>>,
    Extension(owner): Extension<Owner>,
    headers: HeaderMap,
) -> Response {
    let Ok(turn) = tokio::time::timeout(TURN_WITHIN, scrapes.turns.take(&owner)).await else {
        let text = match scrapes.turns.full(&owner) {
            ReachedLimit::Share(most) => {
                format!("{most} scrapes of yours are in progress; scrape less often\n")
            }
            ReachedLimit::All(most) => format!("{most} scrapes are in progress; scrape less often\n"),
        };
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let accept = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let form = Form::accepted(&accept.collect::<Vec<_>>().join(","));
    let page = Exposition::new(form, usize::MAX);
    let page = Page { scrapes, page, writer: None, source: 0, _turn: turn };
    let Some((mut page, has_more)) = next_part(page).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let first = Bytes::from(page.page.take());
    let body = if has_more { streamed(first, page) } else { Body::from(first) };
    ([(CONTENT_TYPE, form.content_type()), (VARY, "accept")], body).into_response()
}

/// The page with its next part, and true if more follow; none if a source panicked.
async fn next_part(mut page: Page) -> Option<(Page, bool)> {
    let written = tokio::task::spawn_blocking(move || {
        let has_more = page.write();
        (page, has_more)
    });
    written.await.ok()
}

fn streamed(first: Bytes, page: Page) -> Body {
    let (parts, taken) = mpsc::channel(1);
    tokio::spawn(async move {
        // After the time limit the answer breaks off, so that a partial page does not look whole.
        let _ = tokio::time::timeout(TAKEN_WITHIN, send_parts(first, page, parts)).await;
    });
    Body::new(Parts { taken, is_whole: false })
}

async fn send_parts(first: Bytes, page: Page, parts: mpsc::Sender<Part>) {
    let (mut part, mut page, mut has_more) = (first, page, true);
    loop {
        if parts.send(Part::Bytes(part)).await.is_err() {
            return;
        }
        if !has_more {
            let _ = parts.send(Part::End).await;
            return;
        }
        let Some(next) = next_part(page).await else { return };
        (page, has_more) = next;
        part = Bytes::from(page.page.take());
    }
}

enum Part {
    Bytes(Bytes),
    /// The end of a complete page.
    End,
}

/// A page broke off before its end.
#[derive(Debug, thiserror::Error)]
#[error("the page of metrics could not be written, or was not taken within {} s", TAKEN_WITHIN.as_secs())]
struct BrokenPage;

/// The body of a page that is sent in parts.
struct Parts {
    taken: mpsc::Receiver<Part>,
    is_whole: bool,
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = BrokenPage;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenPage>>> {
        if self.is_whole {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.taken.poll_recv(context)) {
            Some(Part::Bytes(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Part::End) => {
                self.is_whole = true;
                None
            }
            None => Some(Err(BrokenPage)),
        })
    }
}
