//! The deletion of all messages of a topic.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Body, RequestView, answer};
use crate::cluster::purge::{self, PurgeEnd, PurgeOutcome, PurgePlan};
use crate::problem::ErrorAnswer;

/// A purge of a topic.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Purge {
    /// The topic id of the plan: a topic that was created again since then keeps its messages.
    topic_id: String,
    /// The offset of each partition before which all messages are deleted, as the plan shows it. Messages
    /// that arrive after the plan stay.
    until: Vec<PurgeEnd>,
}

/// Shows what a purge of a topic would delete.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/purge",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = PurgePlan), (status = "default", body = ErrorAnswer))
)]
pub async fn plan(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, purge::plan(&view, &name).await)
}

/// Deletes the messages of a topic before these offsets.
#[utoipa::path(
    post,
    path = "/api/v1/topics/{name}/purge",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    request_body = Purge,
    responses((status = 200, body = PurgeOutcome), (status = "default", body = ErrorAnswer))
)]
pub async fn purge(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Body(order): Body<Purge>,
) -> Response {
    answer(StatusCode::OK, purge::purge(&view, &name, &order.topic_id, &order.until).await)
}
