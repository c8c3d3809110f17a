//! Parts of the page as files: what the view selects, and a part of one message, for the clipboard.

use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use thalweg_browse::Message;
use thalweg_browse::show::to_json;

use crate::cluster::messages::{self, Keeping};
use crate::download::{self, DownloadQuery};
use crate::page::Shell;
use crate::problem::Problem;
use crate::state::Console;

/// A part of the message at an offset.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartQuery {
    partition: i32,
    offset: i64,
    /// `key`, `value`, or `json` for the message as a line.
    part: String,
    /// `base64`, or the bytes as they are.
    #[serde(default)]
    form: String,
}

/// Downloads what a search finds.
pub async fn download(
    State(console): State<Console>,
    shell: Shell,
    headers: HeaderMap,
    Path(name): Path<String>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    let opened = match DownloadQuery::read(pairs) {
        Ok(query) => download::open(&console, shell.view(), &headers, &name, query).await,
        Err(problem) => Err(problem),
    };
    opened.unwrap_or_else(|problem| shell.refuse(&problem))
}

/// A part of a message, as plain text.
pub async fn part(shell: Shell, Path(name): Path<String>, Query(query): Query<PartQuery>) -> Response {
    let read = async {
        Problem::unless_known("part", &query.part, &["key", "value", "json"])?;
        Problem::unless_known("form", &query.form, &["base64"])?;
        let (partition, offset) = (query.partition, query.offset);
        let message = messages::one(shell.view(), &name, partition, offset, Keeping::Whole).await?;
        bytes(&message, &query)
    };
    match read.await {
        Ok(bytes) => {
            let mut response = bytes.into_response();
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, text);
            response
        }
        Err(problem) => shell.refuse(&problem),
    }
}

fn bytes(message: &Message, query: &PartQuery) -> Result<Vec<u8>, Problem> {
    let content = match query.part.as_str() {
        "key" => &message.key,
        "value" => &message.value,
        _ => return Ok(to_json(message).to_string().into_bytes()),
    };
    let content = content.as_ref().ok_or_else(|| {
        Problem::missing(format!(
            "The message at offset {} of partition {} has no {}",
            query.offset, query.partition, query.part
        ))
    })?;
    Ok(match query.form.as_str() {
        "base64" => STANDARD.encode(&content.bytes).into_bytes(),
        _ => content.bytes.to_vec(),
    })
}
