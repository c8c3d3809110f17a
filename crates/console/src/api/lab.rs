//! The lab.

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Body, ChangeAnswer, answer, done};
use crate::lab::{Comparison, LabOverview, NewRun};
use crate::measuring::Visitor;
use crate::problem::ErrorAnswer;

/// A started run.
#[derive(Serialize, ToSchema)]
pub struct StartedRun {
    /// The result name of the run.
    name: String,
}

/// Names of the two results to compare.
#[derive(Deserialize, Default)]
#[serde(default)]
pub struct ComparisonQuery {
    a: String,
    b: String,
}

/// Describes the lab: workloads, the current run, results. Needs DESCRIBE on the cluster.
#[utoipa::path(
    get,
    path = "/api/v1/lab",
    tag = "lab",
    responses((status = 200, body = LabOverview), (status = "default", body = ErrorAnswer))
)]
pub async fn overview(visitor: Visitor) -> Response {
    answer(StatusCode::OK, visitor.overview().await)
}

/// Starts a run. Needs ALTER on the cluster.
#[utoipa::path(
    post,
    path = "/api/v1/lab/run",
    tag = "lab",
    request_body = NewRun,
    responses((status = 202, body = StartedRun), (status = "default", body = ErrorAnswer))
)]
pub async fn start(visitor: Visitor, Body(new): Body<NewRun>) -> Response {
    answer(StatusCode::ACCEPTED, visitor.start(&new).await.map(|name| StartedRun { name }))
}

/// Stops the run. The points measured so far are its result. Needs ALTER on the cluster.
#[utoipa::path(
    delete,
    path = "/api/v1/lab/run",
    tag = "lab",
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn stop(visitor: Visitor) -> Response {
    done(visitor.stop().await.map(drop), "The run ends")
}

/// Compares two results.
#[utoipa::path(
    get,
    path = "/api/v1/lab/compare",
    tag = "lab",
    params(
        ("a" = String, Query, description = "The name of the first result"),
        ("b" = String, Query, description = "The name of the second; ratios divide it by the first")
    ),
    responses((status = 200, body = Comparison), (status = "default", body = ErrorAnswer))
)]
pub async fn compare(visitor: Visitor, Query(both): Query<ComparisonQuery>) -> Response {
    answer(StatusCode::OK, visitor.compare(&both.a, &both.b).await)
}

/// Deletes a result. Needs ALTER on the cluster.
#[utoipa::path(
    delete,
    path = "/api/v1/lab/results/{name}",
    tag = "lab",
    params(("name" = String, Path, description = "The name of the result")),
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn delete(visitor: Visitor, Path(name): Path<String>) -> Response {
    done(visitor.delete(&name).await, format!("{name} was deleted"))
}
