//! Parts of the page as files: what the view selects, and a part of one message, for the clipboard.

use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use thalweg_browse::Message;
use thalweg_browse::show::to_json;

use crate::cluster::messages::{self, Keeping, WHOLE_MESSAGE_BYTES};
use crate::download::{self, DownloadQuery};
use crate::format;
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

/// The bytes of a part. A part that is not kept as a whole is refused, because a copy does not say so.
fn bytes(message: &Message, query: &PartQuery) -> Result<Vec<u8>, Problem> {
    let sides = [("key", &message.key), ("value", &message.value)];
    let copied = sides.into_iter().filter(|(name, _)| query.part == "json" || query.part == *name);
    let mut copied = copied.filter_map(|(name, content)| Some((name, content.as_ref()?)));
    if let Some((name, cut)) = copied.find(|(_, content)| content.omitted_bytes() > 0) {
        return Err(Problem {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            kind: "too large".to_owned(),
            message: format!(
                "The {name} at offset {} of partition {} has {}; a copy has at most {} of it: use thalweg consume",
                query.offset,
                query.partition,
                format::bytes(cut.whole_bytes as u64),
                format::bytes(WHOLE_MESSAGE_BYTES as u64)
            ),
        });
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::testing::message;
    use thalweg_browse::Content;

    #[test]
    fn a_part_that_is_not_kept_as_a_whole_is_no_copy() {
        let content = |whole_bytes| Some(Content { bytes: b"v".to_vec().into(), whole_bytes, schema: None });
        let stored = Message { key: content(1), value: content(60_000_000), ..message(3, 42, 0) };
        let copy = |part: &str, form: &str| {
            let query = PartQuery { partition: 3, offset: 42, part: part.to_owned(), form: form.to_owned() };
            bytes(&stored, &query)
        };
        assert_eq!(copy("key", "").expect("it is whole"), b"v");
        for (part, form) in [("value", ""), ("value", "base64"), ("json", "")] {
            let problem = copy(part, form).expect_err(part);
            assert_eq!(problem.status.as_u16(), 413, "{part}");
            assert!(
                problem.message.contains("4.00 MiB") && problem.message.contains("57.2 MiB"),
                "{}",
                problem.message
            );
        }
    }
}
