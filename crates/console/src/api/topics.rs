//! Topics.

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use thalweg_browse::Message;
use utoipa::ToSchema;

use super::{Body, ChangeAnswer, RequestView, answer, done};
use crate::cluster::configs::{self, ConfigChanges, ConfigLine, ConfiguredResource};
use crate::cluster::message_to_send::{self, MessageToSend};
use crate::cluster::messages::{self, Keeping, MessageQuery, TailQuery};
use crate::cluster::search_result::SearchResult;
use crate::cluster::topic::{self, Topic, TopicCreation};
use crate::cluster::topic_groups::{self, TopicReaders};
use crate::cluster::topics::{self, TopicList, TopicQuery};
use crate::download::{self, DownloadParameters, DownloadQuery};
use crate::problem::{ErrorAnswer, Problem};
use crate::state::Console;
use crate::tail;

/// A new number of partitions.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// The total number of partitions.
    partitions: i32,
}

/// Lists one page of topics.
#[utoipa::path(
    get,
    path = "/api/v1/topics",
    tag = "topics",
    params(TopicQuery),
    responses((status = 200, body = TopicList), (status = "default", body = ErrorAnswer))
)]
pub async fn list(RequestView(view): RequestView, Query(query): Query<TopicQuery>) -> Response {
    answer(StatusCode::OK, topics::list(&view, &query).await)
}

/// Creates a topic.
#[utoipa::path(
    post,
    path = "/api/v1/topics",
    tag = "topics",
    request_body = TopicCreation,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn create(RequestView(view): RequestView, Body(creation): Body<TopicCreation>) -> Response {
    let words = format!("{} was created", creation.name);
    done(topic::create(&view, creation).await, words)
}

/// Describes one topic with its partitions.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = Topic), (status = "default", body = ErrorAnswer))
)]
pub async fn show(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, topic::read(&view, &name).await)
}

/// Deletes a topic.
#[utoipa::path(
    delete,
    path = "/api/v1/topics/{name}",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn delete(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    done(topic::delete(&view, &name).await, format!("{name} was deleted"))
}

/// Describes the configuration of a topic, with defaults, sources and documentation.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/configuration",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = Vec<ConfigLine>), (status = "default", body = ErrorAnswer))
)]
pub async fn configuration(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    answer(StatusCode::OK, configs::read(&view, &ConfiguredResource::Topic(name)).await)
}

/// Lists the groups that read a topic, with their lag.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/groups",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    responses((status = 200, body = TopicReaders), (status = "default", body = ErrorAnswer))
)]
pub async fn groups(RequestView(view): RequestView, Path(name): Path<String>) -> Response {
    let readers = topic_groups::read(&view, &name).await;
    answer(StatusCode::OK, readers.as_deref().map_err(Problem::clone))
}

/// Changes the configuration of a topic.
#[utoipa::path(
    patch,
    path = "/api/v1/topics/{name}/configuration",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    request_body = ConfigChanges,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn configure(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Body(changes): Body<ConfigChanges>,
) -> Response {
    let words = format!("The configuration of {name} was changed");
    done(configs::alter(&view, &ConfiguredResource::Topic(name), changes).await, words)
}

/// Adds partitions to a topic.
#[utoipa::path(
    post,
    path = "/api/v1/topics/{name}/partitions",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    request_body = Growth,
    responses((status = 200, body = ChangeAnswer), (status = "default", body = ErrorAnswer))
)]
pub async fn grow(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Body(growth): Body<Growth>,
) -> Response {
    let words = format!("{name} has {} partitions", growth.partitions);
    done(topic::grow(&view, &name, growth.partitions).await, words)
}

/// The position of a stored message.
#[derive(Serialize, ToSchema)]
pub struct StoredMessage {
    /// The partition index.
    partition: i32,
    /// The offset of the message.
    offset: i64,
}

/// Messages of a topic, and the extent of the search.
#[derive(Serialize, ToSchema)]
pub struct Messages {
    /// Messages with key, value, headers and the facts of the batch.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<serde_json::Value>,
    /// `newest_first` or `oldest_first`: by offset within a partition, by timestamp across partitions.
    order: &'static str,
    /// Number of records looked at.
    records: u64,
    /// Bytes of the keys and values of those records.
    bytes: u64,
    /// Number of records for which the expression has no value.
    without_value: u64,
    /// Number of offsets behind open transactions, which a search for committed records does not read.
    open_offsets: u64,
    /// An example of the reason why the expression has no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    without_value_reason: Option<String>,
    /// True if there may be more messages.
    more: bool,
    /// The reason why the search ended: `complete`, `limit` (the number of messages asked for),
    /// `answer_bytes` (4 MiB), `read_bytes` (64 MiB without a filter), or `time` (10 seconds).
    end: &'static str,
    /// A sentence: whether there may be more, and why the search ended.
    ended: String,
    /// The extent of the search in each partition.
    partitions: Vec<SearchedPartition>,
    /// The parameter `before` for the next older messages; null if there are none.
    older: Option<String>,
    /// The parameter `after` for the next newer messages; null if there are none.
    newer: Option<String>,
    /// The partitions that cannot be read.
    unreadable: Vec<UnreadablePartition>,
}

/// The extent of a search in a partition.
#[derive(Serialize, ToSchema)]
pub struct SearchedPartition {
    /// The partition index.
    partition: i32,
    /// The first offset looked at.
    from: i64,
    /// The offset after the last one looked at; equal to `from` if none was.
    to: i64,
    /// The first offset of the range.
    start: i64,
    /// The offset after the range.
    end: i64,
}

/// A partition that cannot be read.
#[derive(Serialize, ToSchema)]
pub struct UnreadablePartition {
    /// The partition index.
    partition: i32,
    /// The reason.
    reason: String,
}

impl Messages {
    fn of(found: SearchResult) -> Messages {
        let (more, ended) = (found.has_more(), found.ended());
        let partitions = found.progress.partitions.iter().map(|progress| SearchedPartition {
            partition: progress.partition,
            from: progress.from.0,
            to: progress.position.0,
            start: progress.start.0,
            end: progress.end.unwrap_or(progress.latest).0,
        });
        let partitions = partitions.collect();
        let (older, newer) = (found.older(), found.newer());
        let unreadable = found.progress.unreadable.into_iter();
        let unreadable =
            unreadable.map(|one| UnreadablePartition { partition: one.partition, reason: one.reason });
        Messages {
            messages: found.messages.iter().map(thalweg_browse::show::to_json).collect(),
            order: if found.is_newest_first { "newest_first" } else { "oldest_first" },
            records: found.progress.records,
            bytes: found.progress.bytes,
            without_value: found.progress.without_value,
            open_offsets: found.progress.open_offsets,
            without_value_reason: found.progress.without_value_reason,
            more,
            end: found.end.name(),
            ended,
            partitions,
            older: older.map(|positions| positions.text()),
            newer: newer.map(|positions| positions.text()),
            unreadable: unreadable.collect(),
        }
    }
}

/// Searches the messages of a topic, for at most 10 seconds.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/messages",
    tag = "topics",
    params(("name" = String, Path, description = "The topic"), MessageQuery),
    responses((status = 200, body = Messages), (status = "default", body = ErrorAnswer))
)]
pub async fn messages(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Query(query): Query<MessageQuery>,
) -> Response {
    let found = messages::search(&view, &name, &query, Keeping::First).await;
    // The client knows the expression.
    let without_expression = |reason: String| {
        let rest = reason.strip_prefix(query.expression.trim()).map(|rest| rest.trim_start().to_owned());
        rest.unwrap_or(reason)
    };
    let found = found.map(|found| {
        let found = Messages::of(found);
        Messages { without_value_reason: found.without_value_reason.map(without_expression), ..found }
    });
    answer(StatusCode::OK, found)
}

/// Downloads what a search finds: up to `limit` messages, or 100,000; 256 MiB; for 5 minutes. The last line
/// of a file that is not whole says why: `{"cut": ...}` in JSON lines, else a line that begins with `#
/// cut:`.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/messages/download",
    tag = "topics",
    params(("name" = String, Path, description = "The topic"), MessageQuery, DownloadParameters),
    responses(
        (status = 200, content_type = "application/jsonl", body = String),
        (status = "default", body = ErrorAnswer)
    )
)]
pub async fn download(
    State(console): State<Console>,
    RequestView(view): RequestView,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    let opened = match DownloadQuery::read(pairs) {
        Ok(query) => download::open(&console, &view, &headers, &name, query).await,
        Err(problem) => Err(problem),
    };
    opened.unwrap_or_else(|problem| answer::<(), _>(problem.status, Err(problem)))
}

/// Streams new messages of a topic as events: `message` with a message as JSON, `omitted` with the number of
/// messages above the limits, `waiting` and `end` with a sentence. At most 50 messages and 512 KiB a second,
/// for 15 minutes.
#[utoipa::path(
    get,
    path = "/api/v1/topics/{name}/tail",
    tag = "topics",
    params(("name" = String, Path, description = "The topic"), TailQuery),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = "default", body = ErrorAnswer))
)]
pub async fn tail(
    State(console): State<Console>,
    RequestView(view): RequestView,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(query): Query<TailQuery>,
) -> Response {
    let write = |message: &Message| thalweg_browse::show::to_json(message).to_string();
    match tail::open(&console, &view, &headers, &name, &query.into(), BTreeMap::new(), write).await {
        Ok(response) => response,
        Err(problem) => answer::<(), _>(problem.status, Err(problem)),
    }
}

/// Sends a message.
#[utoipa::path(
    post,
    path = "/api/v1/topics/{name}/messages",
    tag = "topics",
    params(("name" = String, Path, description = "The topic")),
    request_body = MessageToSend,
    responses((status = 200, body = StoredMessage), (status = "default", body = ErrorAnswer))
)]
pub async fn send(
    RequestView(view): RequestView,
    Path(name): Path<String>,
    Body(message): Body<MessageToSend>,
) -> Response {
    let sent = message_to_send::send(&view, &name, message).await;
    answer(StatusCode::OK, sent.map(|at| StoredMessage { partition: at.partition, offset: at.offset.0 }))
}
