//! Groups.

use std::collections::BTreeMap;

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use thalweg_client::TopicPartition;
use utoipa::ToSchema;

use super::{Body, ChangeAnswer, RequestView, answer, done};
use crate::cluster::group::{self, Group, ResetPlan, ResetTarget, Scope, Step};
use crate::cluster::groups::{self, GroupList, GroupQuery};
use crate::partition_index;
use crate::problem::{ErrorAnswer, Problem};

/// A reset of committed offsets.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// The topic. Default: all topics with a committed offset.
    #[serde(default)]
    topic: Option<String>,
    /// The partition, which needs `topic`. Default: all partitions of the topic.
    #[serde(default, deserialize_with = "partition_index::number")]
    partition: Option<i32>,
    /// `earliest`, `latest`, `offset`, `time` (milliseconds since 1970, or 2026-01-31T12:00:00Z) or `by`
    /// (records forward or back).
    to: String,
    /// The offset, time or number. An offset outside a partition becomes the nearest one, which the step
    /// notes. Negative offsets and times are refused.
    #[serde(default)]
    value: String,
    /// True for a dry run: the answer lists the steps, and no offset changes.
    #[serde(default)]
    dry_run: bool,
}

/// The steps of a reset.
#[derive(Serialize, ToSchema)]
pub struct ResetSteps {
    /// False after a dry run.
    done: bool,
    /// One step per partition.
    steps: Vec<Step>,
    /// The reason why a reset of all topics may leave some out: topics that exist, or may exist, and that the
    /// login may not describe.
    partial: Option<String>,
}

/// Partitions of one topic whose offsets are deleted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OffsetsToDelete {
    /// The topic name.
    topic: String,
    /// The partition indexes.
    partitions: Vec<i32>,
}

/// Lists one page of groups, with the lag of each.
#[utoipa::path(
    get,
    path = "/api/v1/groups",
    tag = "groups",
    params(GroupQuery),
    responses((status = 200, body = GroupList), (status = "default", body = ErrorAnswer))
)]
pub async fn list(RequestView(view): RequestView, Query(query): Query<GroupQuery>) -> Response {
    answer(StatusCode::OK, groups::list(&view, &query).await)
}

/// Describes one group with members, assignment, offsets and lag.
#[utoipa::path(
    get,
    path = "/api/v1/groups/{group}",
    tag = "groups",
    params(("group" = String, Path, description = "The group")),
    responses((status = 200, body = Group), (status = "default", body = ErrorAnswer))
)]
pub async fn show(RequestView(view): RequestView, Path(group): Path<String>) -> Response {
    answer(StatusCode::OK, group::read(&view, &group).await)
}

/// Deletes a group without members.
#[utoipa::path(
    delete,
    path = "/api/v1/groups/{group}",
    tag = "groups",
    params(("group" = String, Path, description = "The group")),
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn delete(RequestView(view): RequestView, Path(group): Path<String>) -> Response {
    done(group::delete(&view, &group).await, format!("The group {group} was deleted"))
}

/// Resets offsets of a group without active members, or shows the changes in a dry run.
#[utoipa::path(
    post,
    path = "/api/v1/groups/{group}/reset",
    tag = "groups",
    params(("group" = String, Path, description = "The group")),
    request_body = Reset,
    responses((status = 200, body = ResetSteps), (status = "default", body = ErrorAnswer))
)]
pub async fn reset(
    RequestView(view): RequestView,
    Path(group): Path<String>,
    Body(reset): Body<Reset>,
) -> Response {
    let outcome = async {
        let scope = Scope::new(reset.topic.as_deref(), reset.partition)?;
        let to = ResetTarget::read(&reset.to, &reset.value)?;
        let ResetPlan { steps, partial } = group::plan(&view, &group, &scope, to).await?;
        if !reset.dry_run {
            let offsets: BTreeMap<TopicPartition, i64> = steps
                .iter()
                .map(|step| (TopicPartition::new(step.topic.as_str(), step.partition), step.to))
                .collect();
            group::set(&view, &group, &offsets).await?;
        }
        Ok::<_, Problem>(ResetSteps { done: !reset.dry_run, steps, partial })
    };
    answer(StatusCode::OK, outcome.await)
}

/// Deletes offsets of a group, which must exist.
#[utoipa::path(
    delete,
    path = "/api/v1/groups/{group}/offsets",
    tag = "groups",
    params(("group" = String, Path, description = "The group")),
    request_body = OffsetsToDelete,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn delete_offsets(
    RequestView(view): RequestView,
    Path(group): Path<String>,
    Body(offsets): Body<OffsetsToDelete>,
) -> Response {
    let partitions = offsets.partitions.iter();
    let partitions: Vec<_> =
        partitions.map(|partition| TopicPartition::new(offsets.topic.as_str(), *partition)).collect();
    done(group::delete_offsets(&view, &group, &partitions).await.map(drop), "The offsets were deleted")
}
