//! The HTTP client for a broker that hosts streams.

use std::time::Duration;

use anyhow::Context;
use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode, header};
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::cli::failure::{Failed, Usage};

/// Timeout: an undeployment waits for messages in flight.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Size limit of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Error kinds that are the user's mistake, not the host's.
const WRONG: [&str; 6] = [
    "wrong definition",
    "wrong property",
    "wrong name",
    "wrong request",
    "not exactly once",
    "no such stream",
];

/// The host, and the output format.
#[derive(Args, Debug, Clone)]
pub struct Remote {
    /// The http.listener of a broker that hosts streams.
    #[arg(
        long,
        value_name = "http://HOST:PORT",
        env = "THALWEG_SERVER",
        default_value = "http://localhost:9090"
    )]
    server: String,
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
}

impl Remote {
    fn not_reached(&self) -> String {
        format!(
            "Cannot reach {} (use the http.listener of a broker with streams.enabled=true, not a listener for clients)",
            self.server
        )
    }

    /// Sends a request, and reads the answer.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let uri = format!("{}{path}", self.base()?);
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(&uri)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)));
        let request = request.map_err(|_| {
            Usage(format!("--server {} is not an address: use http://HOST:PORT", self.server))
        })?;
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let asked = async {
            let answer = client.request(request).await.with_context(|| self.not_reached())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| Failed(format!("{uri}: cannot read the answer: {error}")))?;
            anyhow::Ok((status, body.to_bytes()))
        };
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
        let (status, body) =
            asked.map_err(|_| Failed(format!("{uri}: no answer within {ANSWER_TIMEOUT:?}")))??;
        read(&uri, status, &body)
    }

    fn base(&self) -> Result<&str, Usage> {
        match self.server.strip_prefix("http://") {
            Some(rest) if !rest.is_empty() => Ok(self.server.trim_end_matches('/')),
            _ => Err(Usage(format!("--server {}: use http://HOST:PORT", self.server))),
        }
    }
}

fn read(uri: &str, status: StatusCode, body: &[u8]) -> anyhow::Result<Value> {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    if status.is_success()
        && let Some(answer) = answer
    {
        return Ok(answer);
    }
    let error = answer.as_ref().map(|answer| &answer["error"]);
    let message = error.and_then(|error| error["message"].as_str());
    let Some(message) = message else {
        let right = "is it the http.listener of a broker with streams.enabled=true?";
        return Err(Failed(format!("{uri} answers {status}: {right}")).into());
    };
    let is_wrong = error.and_then(|error| error["kind"].as_str()).is_some_and(|kind| WRONG.contains(&kind));
    if is_wrong { Err(Usage(message.to_owned()).into()) } else { Err(Failed(message.to_owned()).into()) }
}
