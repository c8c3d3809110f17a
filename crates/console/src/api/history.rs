//! The last hour of the broker beside the console.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::{RequestView, answer};
use crate::cluster::group;
use crate::history::{self, BrokerHistory, GroupHistory, TopicHistory};
use crate::problem::ErrorAnswer;
use crate::state::Console;

/// Describes the last hour of the broker of this console: samples in steps of ten seconds by default. Sums,
/// request times and disks need DESCRIBE on the cluster.
#[utoipa::path(
    get,
    path = "/api/v1/history",
    tag = "history",
    responses((status = 200, body = BrokerHistory), (status = "default", body = ErrorAnswer))
)]
pub async fn broker(State(console): State<Console>, RequestView(view): RequestView) -> Response {
    answer(StatusCode::OK, history::broker(console.settings().history.as_ref(), &view).await)
}

/// Describes the last hour of a topic, as far as the broker of this console leads it.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/history",
    tag = "history",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = TopicHistory), (status = "default", body = ErrorAnswer))
)]
pub async fn topic(
    State(console): State<Console>,
    RequestView(view): RequestView,
    Path(name): Path<String>,
) -> Response {
    answer(StatusCode::OK, history::topic(console.settings().history.as_ref(), &view, &name).await)
}

/// Describes the last hour of a group, if the broker of this console coordinates it.
#[utoipa::path(
    get,
    path = "/api/v1/groups/{group}/history",
    tag = "history",
    params(("group" = String, Path, description = "The group")),
    responses((status = 200, body = GroupHistory), (status = "default", body = ErrorAnswer))
)]
pub async fn group(
    State(console): State<Console>,
    RequestView(view): RequestView,
    Path(group): Path<String>,
) -> Response {
    let source = console.settings().history.as_ref();
    let outcome = async {
        // Without a history there is nothing to ask the group for.
        let source = history::known(source)?;
        history::group(source, &view, &group::read(&view, &group).await?).await
    };
    answer(StatusCode::OK, outcome.await)
}
