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

/// How long is looked, and for how many messages.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LookQuery {
    messages: usize,
    wait_ms: u64,
}

impl Default for LookQuery {
    fn default() -> LookQuery {
        LookQuery { messages: 20, wait_ms: 1000 }
    }
}

/// What passed a stage.
#[derive(Serialize, ToSchema)]
struct PassedMessages {
    /// The messages, oldest first. Others may have passed between them: the stream does not wait for those
    /// who look.
    messages: Vec<PassedMessage>,
}

/// A message that passed a stage. Its bytes are text, or base64 if they are none.
#[derive(Serialize, ToSchema)]
pub struct PassedMessage {
    /// Its number, counted by its source from 0.
    sequence: u64,
    /// Its timestamp, in milliseconds since 1970.
    time_ms: i64,
    /// Its key.
    key: Option<PassedBytes>,
    /// Its value; none of a tombstone.
    value: Option<PassedBytes>,
    /// Its first headers.
    headers: Vec<PassedHeader>,
}

/// A header.
#[derive(Serialize, ToSchema)]
struct PassedHeader {
    /// Its name.
    name: String,
    /// Its value.
    value: Option<PassedBytes>,
}

/// Bytes, or the first of them.
#[derive(Serialize, ToSchema)]
struct PassedBytes {
    /// As text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// In base64, if they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// How many there are.
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

/// What flows out of a stage, for a while.
///
/// Needs ALTER on the cluster, as all changes of streams do: the contents of messages are more than figures.
#[utoipa::path(
    get,
    path = "/api/v1/streams/{name}/taps/{stage}",
    tag = "streams",
    params(
        ("name" = String, Path, description = "The stream"),
        ("stage" = String, Path, description = "The label of a stage before the sink"),
        ("messages" = Option<usize>, Query, description = "Messages at most: 20, or up to 100"),
        ("wait_ms" = Option<u64>, Query, description = "The longest wait for them in milliseconds: 1000, or up to 10000")
    ),
    responses((status = 200, body = PassedMessages), (status = "default", body = StreamErrorAnswer))
)]
pub async fn look(
    Extracted(host): Extracted<Starting>,
    Extension(hide): Extension<Option<Hide>>,
    Path((name, stage)): Path<(String, String)>,
    Query(query): Query<LookQuery>,
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
