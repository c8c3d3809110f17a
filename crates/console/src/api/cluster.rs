//! The cluster as a whole, its brokers, controllers and transactions.

use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::response::Response;

use super::{Body, ChangeAnswer, RequestView, answer, done};
use crate::cluster::brokers::{self, BrokerQuery, BrokerRow};
use crate::cluster::configs::{self, ConfigChanges, ConfigLine, ConfiguredResource};
use crate::cluster::overview::{self, Overview};
use crate::cluster::quorum::{self, Feature, LevelChange, Quorum};
use crate::cluster::transactions::{
    self, Abortion, HangingList, HangingQuery, TopicProducers, Transaction, TransactionList, TransactionQuery,
};
use crate::problem::ErrorAnswer;

/// Describes the cluster at a glance, with its alerts.
#[utoipa::path(
    get,
    path = "/api/v1/cluster",
    tag = "cluster",
    responses((status = 200, body = Overview), (status = "default", body = ErrorAnswer))
)]
pub async fn overview(RequestView(view): RequestView) -> Response {
    answer(StatusCode::OK, overview::read(&view).await)
}

/// Lists the brokers.
#[utoipa::path(
    get,
    path = "/api/v1/brokers",
    tag = "cluster",
    params(BrokerQuery),
    responses((status = 200, body = Vec<BrokerRow>), (status = "default", body = ErrorAnswer))
)]
pub async fn brokers(RequestView(view): RequestView, Query(query): Query<BrokerQuery>) -> Response {
    answer(StatusCode::OK, brokers::list(&view, &query).await)
}

/// Describes the quorum of controllers.
#[utoipa::path(
    get,
    path = "/api/v1/quorum",
    tag = "cluster",
    responses((status = 200, body = Quorum), (status = "default", body = ErrorAnswer))
)]
pub async fn quorum(RequestView(view): RequestView) -> Response {
    answer(StatusCode::OK, quorum::read(&view).await)
}

/// Lists the feature levels.
#[utoipa::path(
    get,
    path = "/api/v1/features",
    tag = "cluster",
    responses((status = 200, body = Vec<Feature>), (status = "default", body = ErrorAnswer))
)]
pub async fn features(RequestView(view): RequestView) -> Response {
    answer(StatusCode::OK, quorum::features(&view).await)
}

/// Sets the level of a feature, or validates the change in a dry run.
#[utoipa::path(
    post,
    path = "/api/v1/features",
    tag = "cluster",
    request_body = LevelChange,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn set_level(RequestView(view): RequestView, Body(change): Body<LevelChange>) -> Response {
    let did = if change.dry_run { "could be set" } else { "was set" };
    let words = format!("{} {did} to level {}", change.feature, change.level);
    done(quorum::set_level(&view, &change).await, words)
}

/// Describes the configuration of a broker.
#[utoipa::path(
    get,
    path = "/api/v1/brokers/{id}/configuration",
    tag = "cluster",
    params(("id" = i32, Path, description = "The broker")),
    responses((status = 200, body = Vec<ConfigLine>), (status = "default", body = ErrorAnswer))
)]
pub async fn configuration(RequestView(view): RequestView, Path(id): Path<i32>) -> Response {
    let lines = configs::read(&view, &ConfiguredResource::Broker(id)).await;
    answer(StatusCode::OK, lines.map_err(configs::problem))
}

/// Changes the configuration of a broker.
#[utoipa::path(
    patch,
    path = "/api/v1/brokers/{id}/configuration",
    tag = "cluster",
    params(("id" = i32, Path, description = "The broker")),
    request_body = ConfigChanges,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn configure(
    RequestView(view): RequestView,
    Path(id): Path<i32>,
    Body(changes): Body<ConfigChanges>,
) -> Response {
    let words = format!("The configuration of broker {id} was changed");
    let altered = configs::alter(&view, &ConfiguredResource::Broker(id), changes).await;
    done(altered.map_err(configs::problem), words)
}

/// Lists one page of transactional ids.
#[utoipa::path(
    get,
    path = "/api/v1/transactions",
    tag = "transactions",
    params(TransactionQuery),
    responses((status = 200, body = TransactionList), (status = "default", body = ErrorAnswer))
)]
pub async fn transactions(RequestView(view): RequestView, Query(query): Query<TransactionQuery>) -> Response {
    answer(StatusCode::OK, transactions::list(&view, &query).await)
}

/// Describes one transactional id.
#[utoipa::path(
    get,
    path = "/api/v1/transactions/{id}",
    tag = "transactions",
    params(("id" = String, Path, description = "The transactional id")),
    responses((status = 200, body = Transaction), (status = "default", body = ErrorAnswer))
)]
pub async fn transaction(RequestView(view): RequestView, Path(id): Path<String>) -> Response {
    answer(StatusCode::OK, transactions::read(&view, &id).await)
}

/// Lists the producers of a topic.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/producers",
    tag = "transactions",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = TopicProducers), (status = "default", body = ErrorAnswer))
)]
pub async fn producers(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, transactions::producers(&view, &name).await)
}

/// Ends the transaction of a transactional id and fences its producer.
#[utoipa::path(
    post,
    path = "/api/v1/transactions/{id}/fence",
    tag = "transactions",
    params(("id" = String, Path, description = "The transactional id")),
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn fence(RequestView(view): RequestView, Path(id): Path<String>) -> Response {
    done(transactions::fence(&view, &id).await, format!("The producers of {id} were fenced"))
}

/// Lists hanging transactions: open ones that no coordinator will end.
#[utoipa::path(
    get,
    path = "/api/v1/hanging-transactions",
    tag = "transactions",
    params(HangingQuery),
    responses((status = 200, body = HangingList), (status = "default", body = ErrorAnswer))
)]
pub async fn hanging(RequestView(view): RequestView, Query(query): Query<HangingQuery>) -> Response {
    answer(StatusCode::OK, transactions::hanging(&view, &query).await)
}

/// Aborts an open transaction in one partition, without its coordinator.
#[utoipa::path(
    post,
    path = "/api/v1/topics/{name}/abort-transaction",
    tag = "transactions",
    params(("name" = String, Path, description = "The topic")),
    request_body = Abortion,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn abort(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Body(abortion): Body<Abortion>,
) -> Response {
    let words = format!("The transaction in {name}-{} was aborted", abortion.partition);
    done(transactions::abort(&view, &name, &abortion).await, words)
}
