//! `http`: posts each message to a server, and waits for its answer. What fails for the moment is tried again, ever more slowly.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::message::Batch;
use crate::module::{Absent, Make, Module, OptionSpec, Settings, Site, Takes};
use crate::stage::{IoFailed, NotDelivered, Sink, StageError, Turn, Wait};

/// The wait before the second try. It doubles from try to try.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The declaration.
pub const MODULE: Module = Module {
    name: "http",
    summary: "posts each message to a server, and tries again what fails",
    about: "An answer with a status of 200 to 299 takes the message. A server that cannot be reached or does not answer in time, \
            and the statuses 408, 425, 429 and 500 to 599, are tried again with growing pauses for as long as `--retryFor` \
            allows. Any other status fails the stream at once. With one request at a time messages arrive in order; with more \
            they may pass each other. There is no TLS yet: the URL begins with http://.",
    options: &[
        OptionSpec {
            name: "url",
            takes: Takes::Url,
            default: Absent::Required,
            summary: "Where to, such as http://127.0.0.1:9000/orders.",
        },
        OptionSpec {
            name: "method",
            takes: Takes::Choice(&["POST", "PUT"]),
            default: Absent::Value("POST"),
            summary: "The method.",
        },
        OptionSpec {
            name: "contentType",
            takes: Takes::Name,
            default: Absent::Value("application/octet-stream"),
            summary: "What the messages are said to be.",
        },
        OptionSpec {
            name: "concurrency",
            takes: Takes::Integer(1, 256),
            default: Absent::Value("1"),
            summary: "How many requests may be on their way.",
        },
        OptionSpec {
            name: "timeout",
            takes: Takes::Duration,
            default: Absent::Value("10s"),
            summary: "How long an answer may take.",
        },
        OptionSpec {
            name: "retryFor",
            takes: Takes::Duration,
            default: Absent::Value("5m"),
            summary: "How long a message is tried again.",
        },
    ],
    examples: &[(
        "stdin | http --url=http://127.0.0.1:9000/orders --contentType=application/json",
        "a request for each line",
    )],
    make: Make::Sink(make),
};

fn make(settings: &Settings, _site: &Site) -> Result<Box<dyn Sink>, StageError> {
    let url = settings.text("url");
    let uri: Uri = url.parse().map_err(|error| IoFailed {
        action: "post to",
        what: url.to_owned(),
        source: std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{error}")),
    })?;
    Ok(Box::new(Http {
        poster: Poster {
            client: Client::builder(TokioExecutor::new()).build_http(),
            uri,
            method: if settings.text("method") == "PUT" { Method::PUT } else { Method::POST },
            content_type: settings.text("contentType").to_owned(),
            timeout: settings.duration("timeout"),
            retry_for: settings.duration("retryFor"),
        },
        concurrency: settings.integer("concurrency") as usize,
        waiting: Vec::new(),
    }))
}

struct Http {
    poster: Poster,
    concurrency: usize,
    waiting: Vec<Bytes>,
}

#[derive(Clone)]
struct Poster {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    method: Method,
    content_type: String,
    timeout: Duration,
    retry_for: Duration,
}

/// How a try ended.
enum Try {
    Taken,
    /// Another may succeed.
    Failed(String),
    /// No other will.
    Refused(String),
}

impl Poster {
    async fn deliver(self, body: Bytes) -> Result<(), NotDelivered> {
        let started = Instant::now();
        let mut backoff = BACKOFF_MIN;
        let mut tries = 0;
        loop {
            tries += 1;
            let (reason, is_final) = match self.post(body.clone()).await {
                Try::Taken => return Ok(()),
                Try::Failed(reason) => (reason, started.elapsed() + backoff > self.retry_for),
                Try::Refused(reason) => (reason, true),
            };
            if is_final {
                let seconds = started.elapsed().as_secs_f64();
                return Err(NotDelivered { to: self.uri.to_string(), tries, seconds, reason });
            }
            if tries == 1 {
                tracing::warn!(url = %self.uri, reason, "A message was not taken; it is tried again");
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    async fn post(&self, body: Bytes) -> Try {
        let request = Request::builder()
            .method(self.method.clone())
            .uri(self.uri.clone())
            .header(header::CONTENT_TYPE, &self.content_type)
            .body(Full::new(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return Try::Refused(error.to_string()),
        };
        let answered = timeout(self.timeout, async {
            let answer = self.client.request(request).await.map_err(|error| told(&error))?;
            let status = answer.status();
            // The connection is used again only when the answer has been read.
            let _ = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok::<StatusCode, String>(status)
        });
        match answered.await {
            Err(_elapsed) => Try::Failed(format!("no answer within {:?}", self.timeout)),
            Ok(Err(reason)) => Try::Failed(reason),
            Ok(Ok(status)) if status.is_success() => Try::Taken,
            Ok(Ok(status)) if status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) => {
                Try::Failed(format!("it answers {status}"))
            }
            Ok(Ok(status)) => Try::Refused(format!("it answers {status}")),
        }
    }
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

impl Sink for Http {
    fn write(&mut self, batch: &Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.waiting.extend((0..batch.len()).map(|index| batch.value(index)));
        Ok(())
    }

    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        let waiting = std::mem::take(&mut self.waiting);
        Some(Box::pin(async move {
            if self.concurrency == 1 {
                for body in waiting {
                    self.poster.clone().deliver(body).await?;
                }
                return Ok(());
            }
            let mut tasks = JoinSet::new();
            for body in waiting {
                if tasks.len() == self.concurrency
                    && let Some(done) = tasks.join_next().await
                {
                    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
                }
                tasks.spawn(self.poster.clone().deliver(body));
            }
            while let Some(done) = tasks.join_next().await {
                done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
            }
            Ok(())
        }))
    }
}
