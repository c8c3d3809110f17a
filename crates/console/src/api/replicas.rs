//! Replica moves of a topic, and leader elections.

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;

use super::{Body, ChangeAnswer, RequestView, answer};
use crate::cluster::moves::{self, MoveOrder, MovePlan, MoveProgress, MoveQuery};
use crate::cluster::topic::{self, LeaderElection};
use crate::problem::ErrorAnswer;

/// Lists the partitions of a topic that move, with their progress.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/moves",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = Vec<MoveProgress>), (status = "default", body = ErrorAnswer))
)]
pub async fn progress(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, moves::progress(&view, &name).await)
}

/// Plans moves. Nothing changes.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/moves/plan",
    tag = "topics",
    params(("name" = String, Path, description = "The topic"), MoveQuery),
    responses((status = 200, body = MovePlan), (status = "default", body = ErrorAnswer))
)]
pub async fn plan(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Query(query): Query<MoveQuery>,
) -> Response {
    answer(StatusCode::OK, moves::plan(&view, &name, &query).await)
}

/// Starts moves if every partition still has the replicas of the plan.
#[utoipa::path(
    post,
    path = "/api/v1/topics/{name}/moves",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    request_body = MoveOrder,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn begin(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Body(order): Body<MoveOrder>,
) -> Response {
    let begun = moves::begin(&view, &name, &order).await;
    answer(StatusCode::OK, begun.map(|begun| ChangeAnswer { done: format!("{begun} partitions move") }))
}

/// Cancels all moves of a topic.
#[utoipa::path(
    delete,
    path = "/api/v1/topics/{name}/moves",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn cancel(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    let cancelled = moves::cancel(&view, &name).await;
    answer(
        StatusCode::OK,
        cancelled.map(|count| ChangeAnswer { done: format!("{count} moves were cancelled") }),
    )
}

/// Removes the move throttles of the topic and of all brokers.
#[utoipa::path(
    delete,
    path = "/api/v1/topics/{name}/moves/throttle",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn end_throttle(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    let ended = moves::end_throttle(&view, &name).await;
    answer(StatusCode::OK, ended.map(|kept| ChangeAnswer { done: moves::throttle_ended(&kept) }))
}

/// Elects leaders of partitions of a topic.
#[utoipa::path(
    post,
    path = "/api/v1/topics/{name}/elections",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    request_body = LeaderElection,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn elect(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Body(election): Body<LeaderElection>,
) -> Response {
    let elected = topic::elect(&view, &name, &election).await;
    answer(
        StatusCode::OK,
        elected.map(|count| ChangeAnswer { done: format!("{count} leaders were elected") }),
    )
}
