//! `http`: posts each message to a server and waits for the answer. Transient failures are retried with
//! growing pauses. A message that the server refuses is a bad message.

mod credentials;
mod request;

use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::declaration::{
    Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::disk;
use crate::guarantee::Guarantee;
use crate::https::{self, NoAuthority, Trust, with_causes};
use crate::message::Batch;
use crate::passwords;
use crate::reach::Reach;
use crate::retry::Retry;
use crate::stage::{IoFailed, NotDelivered, Sink, StageError, Turn, Wait};
use request::RequestForm;

/// Maximum bytes read of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Maximum pause that a server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

pub const MODULE: Module = Module {
    name: "http",
    summary: "posts each message to a server, with retries",
    about: "A status of 200 to 299 accepts the message. Connection failures, timeouts, and the statuses 408, 425, 429 and 500 to 599 \
            are retried with growing pauses, or after the seconds of the answer's `Retry-After` (at most a minute), for as long as \
            `--retryFor` allows. After that the stream fails, or with `--exhausted=bad` goes on, and the message is a bad message. With `--guarantee=at-most-once`, only failures \
            that certainly did not deliver the message are retried: connection failures, and the statuses 408, 425, 429 and 503. \
            The statuses 400, 409, 413, 415 and 422 refuse the message: it is a bad message, for which `--on-error` decides; \
            so do 404, 405 and 410 with `--address`. Any \
            other status, such as 401 and 404, fails the stream at once. With one request at a time messages arrive in order; with more \
            they may overtake each other. The certificate of an https server must be signed by an authority that the system trusts, or by one \
            in `--caFile`.\n\n\
            `--headers` is a map, for example `{\"X-Key\": key}`; `headers` alone sends the headers of the message. `--address` is a path on the \
            server of `--url`, such as `'/orders/' + percentEncode(key)`, or a whole URL. A message for which one of them has no valid value \
            is a bad message.\n\n\
            `--bearer=file:PATH` or `env:NAME` sends `Authorization: Bearer ...`, `--apiKey` a header of its own. The secret is read when the \
            stream starts, is sent to the server of `--url` only, and is in no log and no list. Hosted streams read files in the broker's \
            `streams.properties.directories`, and no environment.\n\n\
            `http://USER:PASSWORD@HOST/` logs in to the server (basic authentication). Percent-encode special characters. The \
            login is not shown: not in logs, and not in the lists of hosted streams. It is readable in the topic of their definitions.",
    options: &[
        OptionSpec {
            name: "url",
            takes: OptionType::Url,
            default: OptionDefault::Required,
            summary: "The target, such as http://127.0.0.1:9000/orders.",
        },
        OptionSpec {
            name: "method",
            takes: OptionType::Choice(&["POST", "PUT"]),
            default: OptionDefault::Value("POST"),
            summary: "The method.",
        },
        OptionSpec {
            name: "contentType",
            takes: OptionType::Name,
            default: OptionDefault::Value("application/octet-stream"),
            summary: "The Content-Type header.",
        },
        OptionSpec {
            name: "headers",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "A map of further headers; null leaves one out.",
        },
        OptionSpec {
            name: "address",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "The target of each message: a path on the server of --url, or a URL.",
        },
        OptionSpec {
            name: "bearer",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "The place of a token, file:PATH or env:NAME, for the Authorization header.",
        },
        OptionSpec {
            name: "apiKey",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "The place of an API key, file:PATH or env:NAME.",
        },
        OptionSpec {
            name: "apiKeyHeader",
            takes: OptionType::Name,
            default: OptionDefault::Value("X-API-Key"),
            summary: "The header of the API key.",
        },
        OptionSpec {
            name: "concurrency",
            takes: OptionType::Integer(1, 256),
            default: OptionDefault::Value("1"),
            summary: "The maximum number of requests in flight.",
        },
        OptionSpec {
            name: "timeout",
            takes: OptionType::Duration,
            default: OptionDefault::Value("10s"),
            summary: "The timeout of a request.",
        },
        OptionSpec {
            name: "retryFor",
            takes: OptionType::Duration,
            default: OptionDefault::Value("5m"),
            summary: "How long a message is retried.",
        },
        OptionSpec {
            name: "exhausted",
            takes: OptionType::Choice(&["fail", "bad"]),
            default: OptionDefault::Value("fail"),
            summary: "After --retryFor: the stream fails, or the message is bad and the stream goes on.",
        },
        OptionSpec {
            name: "caFile",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "With https, a PEM file of trusted certificate authorities; by default those of the system.",
        },
    ],
    examples: &[
        (
            "stdin | http --url=http://127.0.0.1:9000/orders --contentType=application/json",
            "a request per line",
        ),
        (
            "kafka --topics=orders --group=push | http --url=https://api.example.com/ --bearer=file:/run/secrets/token --method=PUT --address=\"'/orders/' + percentEncode(key)\"",
            "each record to the address of its key, with a token",
        ),
    ],
    check,
    make: StageMaker::Sink(make),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    credentials::check(settings)?;
    let has_login = settings
        .optional_text("url")
        .is_some_and(|url| without_login(url).is_ok_and(|(_, login)| login.is_some()));
    if HeaderValue::from_str(settings.text("contentType")).is_err() {
        let message = "A header cannot have this value";
        return Err(WrongMix::new("contentType", message, "Use a type such as application/json."));
    }
    if settings.optional_text("bearer").is_some() && has_login {
        let message = "--url has a login, which takes the same header";
        return Err(WrongMix::new("bearer", message, "Remove one of them."));
    }
    match settings.optional_text("caFile").is_some() && !is_secure(settings) {
        true => {
            let message = "--caFile needs an https URL";
            Err(WrongMix::new("caFile", message, "Remove it, or begin --url with https://."))
        }
        false => Ok(()),
    }
}

/// True if requests may go to a server with https.
fn is_secure(settings: &Settings) -> bool {
    settings.optional_text("url").is_some_and(|url| url.starts_with("https://"))
        || settings.optional_expression("address").is_some()
}

/// Size limit of the certificates file.
const CA_BYTES_MAX: usize = 4 << 20;

/// The trusted authorities; `None` without https.
fn trust(settings: &Settings, reach: &Reach) -> Result<Trust, StageError> {
    if !is_secure(settings) {
        return Ok(Trust::none());
    }
    let (trust, whom) = match settings.optional_text("caFile") {
        Some(path) => {
            let pem = disk::read_whole(&reach.properties(Path::new(path))?, CA_BYTES_MAX)?;
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            (Trust::of(found.unwrap_or_default()), path)
        }
        None => (Trust::of_system(), "this system"),
    };
    trust.map_err(|NoAuthority| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it contains no PEM certificate");
        let action = "read trusted certificates from";
        IoFailed { action, what: whom.to_owned(), source }.into()
    })
}

fn make(settings: &Settings, site: &Site) -> Result<Box<dyn Sink>, StageError> {
    let url = settings.text("url");
    let wrong = |error: String| IoFailed {
        action: "post to",
        what: passwords::hidden(url).into_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, error),
    };
    let (uri, login) = without_login(url).map_err(wrong)?;
    let mut secrets = credentials::headers(settings, &site.reach)?;
    secrets.extend(login.map(|login| (header::AUTHORIZATION, login)));
    let content_type = HeaderValue::from_str(settings.text("contentType"));
    let content_type = content_type.map_err(|error| wrong(error.to_string()))?;
    Ok(Box::new(Http {
        poster: Poster {
            client: https::client(trust(settings, &site.reach)?),
            method: if settings.text("method") == "PUT" { Method::PUT } else { Method::POST },
            timeout: settings.duration("timeout"),
            retry_for: settings.duration("retryFor"),
            gives_up: settings.text("exhausted") == "bad",
            has_addresses: settings.optional_expression("address").is_some(),
            guarantee: site.guarantee,
        },
        form: RequestForm {
            uri,
            content_type,
            secrets,
            address: settings.optional_expression("address"),
            headers: settings.optional_expression("headers"),
        },
        concurrency: settings.integer("concurrency") as usize,
        batch: Batch::new(),
        posts: Vec::new(),
        refused: Vec::new(),
    }))
}

/// A URL without its user and password, and the header that logs in.
fn without_login(url: &str) -> Result<(Uri, Option<HeaderValue>), String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let Some(authority) = uri.authority() else { return Ok((uri, None)) };
    let Some((login, host)) = authority.as_str().rsplit_once('@') else { return Ok((uri, None)) };
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let decoded =
        |text: &str| passwords::percent_decoded(text).ok_or("its login has an invalid percent-encoding");
    let login = [&decoded(user)?[..], b":", &decoded(password)?].concat();
    let mut header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(login)))
        .map_err(|error| error.to_string())?;
    header.set_sensitive(true);
    let host = host.parse().map_err(|error| format!("{error}"))?;
    let mut parts = uri.into_parts();
    parts.authority = Some(host);
    let uri = Uri::from_parts(parts).map_err(|error| error.to_string())?;
    Ok((uri, Some(header)))
}

struct Http {
    poster: Poster,
    form: RequestForm,
    concurrency: usize,
    /// The messages to be posted.
    batch: Batch,
    /// The requests of the messages.
    posts: Vec<Post>,
    /// The indexes of refused messages, and the reasons.
    refused: Vec<(usize, String)>,
}

/// The request of a message.
struct Post {
    /// The index of the message.
    index: usize,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

#[derive(Clone)]
struct Poster {
    client: https::Client,
    method: Method,
    timeout: Duration,
    retry_for: Duration,
    /// True if a message without success in time is refused, and the stream goes on.
    gives_up: bool,
    /// True if messages have addresses of their own, which they can have wrong.
    has_addresses: bool,
    guarantee: Guarantee,
}

/// The outcome of an attempt.
enum PostOutcome {
    Taken,
    /// Not delivered; a retry may succeed, after the time that the server asks for.
    NotTaken(String, Duration),
    /// Possibly delivered: a retry may deliver twice.
    Unknown(String),
    /// A retry cannot succeed: the message is at fault.
    Refused(String),
    /// A retry cannot succeed, nor can any other message.
    Failed(String),
}

/// A message that the server refused, and the reason.
type Refusal = Option<(usize, String)>;

impl Poster {
    /// Posts a message. Returns it if the server refuses it.
    async fn deliver(self, post: Post) -> Result<Refusal, NotDelivered> {
        let mut retry = Retry::within(self.retry_for);
        let shown = || passwords::hidden(&post.uri.to_string()).into_owned();
        loop {
            let mut after = Duration::ZERO;
            let (reason, may_be_tried) = match self.post(&post).await {
                PostOutcome::Taken => return Ok(None),
                PostOutcome::Refused(reason) => {
                    return Ok(Some((post.index, format!("{}: {reason}", shown()))));
                }
                PostOutcome::NotTaken(reason, asked) => {
                    after = asked;
                    (reason, true)
                }
                PostOutcome::Unknown(reason) => (reason, self.guarantee != Guarantee::AtMostOnce),
                PostOutcome::Failed(reason) => (reason, false),
            };
            let now = Instant::now();
            let pause = retry.failed(now).filter(|_| may_be_tried);
            let Some(pause) = pause else {
                let seconds = retry.elapsed(now).as_secs_f64();
                let failed = NotDelivered { to: shown(), tries: retry.tries(), seconds, reason };
                return match self.gives_up && may_be_tried {
                    true => Ok(Some((post.index, failed.to_string()))),
                    false => Err(failed),
                };
            };
            if retry.tries() == 1 {
                tracing::warn!(url = shown(), reason, "Failed to post a message, retrying");
            }
            sleep(pause.max(after)).await;
        }
    }

    async fn post(&self, post: &Post) -> PostOutcome {
        let mut request = Request::new(Full::new(post.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = post.uri.clone();
        *request.headers_mut() = post.headers.clone();
        let answered = timeout(self.timeout, async {
            let answer = self.client.request(request).await?;
            let status = answer.status();
            let after = retry_after(answer.headers());
            // Read the answer, so that the connection can be reused.
            let _ = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok::<_, legacy::Error>((status, after))
        });
        match answered.await {
            Err(_elapsed) => PostOutcome::Unknown(format!("no answer within {:?}", self.timeout)),
            Ok(Err(error)) if error.is_connect() => {
                PostOutcome::NotTaken(with_causes(&error), Duration::ZERO)
            }
            Ok(Err(error)) => PostOutcome::Unknown(with_causes(&error)),
            Ok(Ok((status, after))) => self.outcome(status, after),
        }
    }

    fn outcome(&self, status: StatusCode, after: Duration) -> PostOutcome {
        let reason = format!("it answers {status}");
        match status.as_u16() {
            200..=299 => PostOutcome::Taken,
            408 | 425 | 429 | 503 => PostOutcome::NotTaken(reason, after),
            500..=599 => PostOutcome::Unknown(reason),
            400 | 409 | 413 | 415 | 422 => PostOutcome::Refused(reason),
            404 | 405 | 410 if self.has_addresses => PostOutcome::Refused(reason),
            _ => PostOutcome::Failed(reason),
        }
    }
}

/// The pause that a server asks for, in seconds. A date, the other form of the header, is not read.
fn retry_after(headers: &HeaderMap) -> Duration {
    let asked = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    asked.map_or(Duration::ZERO, Duration::from_secs).min(RETRY_AFTER_MAX)
}

impl Http {
    async fn deliver_all(&mut self) -> Result<(), NotDelivered> {
        let posts = std::mem::take(&mut self.posts);
        if self.concurrency == 1 {
            for post in posts {
                self.refused.extend(self.poster.clone().deliver(post).await?);
            }
            return Ok(());
        }
        let mut tasks = JoinSet::new();
        for post in posts {
            if tasks.len() == self.concurrency
                && let Some(done) = tasks.join_next().await
            {
                self.refused.extend(done.unwrap_or_else(|error| resume_unwind(error.into_panic()))?);
            }
            tasks.spawn(self.poster.clone().deliver(post));
        }
        while let Some(done) = tasks.join_next().await {
            self.refused.extend(done.unwrap_or_else(|error| resume_unwind(error.into_panic()))?);
        }
        Ok(())
    }
}

impl Sink for Http {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.batch = batch.clone();
        for (index, message) in batch.messages().enumerate() {
            match self.form.of(&message) {
                Ok((uri, headers)) => self.posts.push(Post { index, uri, headers, body: batch.value(index) }),
                Err(reason) => turn.bad.take(&message, &reason)?,
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        Some(Box::pin(async { Ok(self.deliver_all().await?) }))
    }

    fn give_back(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let batch = std::mem::take(&mut self.batch);
        self.refused.sort_unstable();
        for (index, reason) in self.refused.drain(..) {
            if let Some(message) = batch.messages().nth(index) {
                turn.bad.take(&message, &reason)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_the_url_is_a_header() {
        let login = |url: &str| {
            let (uri, login) = without_login(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            (uri.to_string(), login.map(|login| login.to_str().expect("text").to_owned()))
        };
        assert_eq!(login("http://h:1/a?b"), ("http://h:1/a?b".to_owned(), None));
        // printf 'ann:p@ss:w' | base64
        let expected = ("https://h/a".to_owned(), Some("Basic YW5uOnBAc3M6dw==".to_owned()));
        assert_eq!(login("https://ann:p%40ss:w@h/a"), expected);
        assert_eq!(login("http://ann@h/").1.as_deref(), Some("Basic YW5uOg=="));
        assert!(without_login("http://ann:%zz@h/").is_err());
    }
}
