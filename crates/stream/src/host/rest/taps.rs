//! HTTP view of a stage's output: the newest messages, for a limited time.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, Query, State as Extracted};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Starting, StreamErrorAnswer, WrongRequest, answer, either, started};
use crate::host::onlooking::{Cut, TappedMessage};

/// Maximum number of messages per answer.
const MESSAGES_MAX: usize = 100;
/// Maximum wait in milliseconds.
const WAIT_MS_MAX: u64 = 10_000;

/// Hides parts of a message that passed a stage, before an answer shows it.
pub type Hide = Arc<dyn Fn(&mut TappedMessage) + Send + Sync>;

/// The limits of a view: a number of messages and a time.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TapQuery {
    messages: usize,
    wait_ms: u64,
}

impl Default for TapQuery {
    fn default() -> TapQuery {
        TapQuery { messages: 20, wait_ms: 1000 }
    }
}

/// The messages that a stage has passed on.
#[derive(Serialize, ToSchema)]
struct PassedMessages {
    /// The messages, oldest first. Messages between them may be missing, because the stream does not wait for
    /// this request.
    messages: Vec<PassedMessage>,
}

/// A message that a stage has passed on. Bytes that are not UTF-8 are in base64.
#[derive(Serialize, ToSchema)]
pub struct PassedMessage {
    /// The number of the message, counted by the source from 0.
    sequence: u64,
    /// The timestamp in milliseconds since 1970.
    time_ms: i64,
    /// The key of the message; none if it is null.
    key: Option<PassedBytes>,
    /// The value; null for a tombstone.
    value: Option<PassedBytes>,
    /// The first headers of the message.
    headers: Vec<PassedHeader>,
}

/// A header of a message.
#[derive(Serialize, ToSchema)]
struct PassedHeader {
    /// The name of the header.
    name: String,
    /// The value of the header; none if it is null.
    value: Option<PassedBytes>,
}

/// Bytes, shortened if there are many.
#[derive(Serialize, ToSchema)]
struct PassedBytes {
    /// The bytes as text, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The bytes in base64, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// The number of bytes before shortening.
    bytes: usize,
}

impl From<&Cut> for PassedBytes {
    fn from(cut: &Cut) -> PassedBytes {
        let text = std::str::from_utf8(&cut.bytes).ok().map(str::to_owned);
        let base64 = text.is_none().then(|| STANDARD.encode(&cut.bytes));
        PassedBytes { text, base64, bytes: cut.whole_bytes }
    }
}

impl From<&TappedMessage> for PassedMessage {
    fn from(passed: &TappedMessage) -> PassedMessage {
        let header = |(name, value): &(String, Option<Cut>)| PassedHeader {
            name: name.clone(),
            value: value.as_ref().map(Into::into),
        };
        PassedMessage {
            sequence: passed.sequence,
            time_ms: passed.time_ms,
            key: passed.key.as_ref().map(Into::into),
            value: passed.value.as_ref().map(Into::into),
            headers: passed.headers.iter().map(header).collect(),
        }
    }
}

/// Shows the messages that a stage passes on, for a limited time.
///
/// Requires ALTER on the cluster, like changes of streams: message contents are more sensitive than figures.
#[utoipa::path(
    get,
    path = "/api/v1/streams/{name}/taps/{stage}",
    tag = "streams",
    params(
        ("name" = String, Path, description = "The name of the stream"),
        ("stage" = String, Path, description = "The label of a stage before the sink"),
        ("messages" = Option<usize>, Query, description = "Maximum number of messages, from 1 to 100; default 20"),
        ("wait_ms" = Option<u64>, Query, description = "Maximum wait in milliseconds, up to 10000; default 1000")
    ),
    responses((status = 200, body = PassedMessages), (status = "default", body = StreamErrorAnswer))
)]
pub async fn look(
    Extracted(host): Extracted<Starting>,
    Extension(hide): Extension<Option<Hide>>,
    Path((name, stage)): Path<(String, String)>,
    Query(query): Query<TapQuery>,
) -> Response {
    if !(1..=MESSAGES_MAX).contains(&query.messages) || query.wait_ms > WAIT_MS_MAX {
        let right = format!("messages must be 1 to {MESSAGES_MAX}, and wait_ms at most {WAIT_MS_MAX}");
        return WrongRequest(right).into_response();
    }
    let looked = async {
        let host = started(&host)?;
        let look = host.look_at(&name, &stage).map_err(|error| Box::new(error.into_response()))?;
        let mut passed = look.collect(query.messages, Duration::from_millis(query.wait_ms)).await;
        if let Some(hide) = hide {
            passed.iter_mut().for_each(|message| hide(message));
        }
        let messages = passed.iter().map(Into::into).collect();
        Ok(answer(StatusCode::OK, &PassedMessages { messages }))
    };
    either(looked.await)
}
