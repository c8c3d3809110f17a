//! Requests to a registry: bounded in time and size. A registry without an answer is left alone for a while,
//! and then tried with one request.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{Request, Uri, header};
use parking_lot::Mutex;
use serde_json::Value;
use thalweg_stream::https::{self, NoAuthority, Trust, with_causes};
use tokio::time::Instant;

use super::InvalidRegistry;

/// Maximum bytes of a response.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum time for a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a registry without an answer is left alone, at first and at most. Each further request
/// without an answer doubles the time.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(32);
/// Maximum characters of an error text.
const ERROR_CHARS_MAX: usize = 200;

/// A client of one registry.
pub struct Http {
    /// The address without a trailing slash and without a password.
    base: String,
    authorization: Option<String>,
    client: https::Client,
    outage: Mutex<Option<Outage>>,
}

/// The time since a request without an answer.
struct Outage {
    reason: String,
    until: Instant,
    pause: Duration,
}

/// A failed request.
enum Failure {
    /// No answer, or no whole one.
    NoAnswer(String),
    /// An answer with another status than success, or without JSON.
    Refused(String),
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Http {
    pub fn new(url: &str, login: Option<&str>) -> Result<Http, InvalidRegistry> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, rest),
        };
        let base = format!("{scheme}://{}", rest.trim_end_matches('/'));
        let wrong = |reason: &str| InvalidRegistry { url: base.clone(), reason: reason.to_owned() };
        let expected = "expected http://HOST:PORT or https://HOST:PORT";
        let uri: Uri = base.parse().map_err(|_| wrong(expected))?;
        if !matches!(scheme, "http" | "https")
            || uri.host().is_none_or(str::is_empty)
            || uri.query().is_some()
        {
            return Err(wrong(expected));
        }
        let trust = match scheme {
            "https" => Trust::of_system()
                .map_err(|NoAuthority| wrong("this system trusts no certificate authority"))?,
            _ => Trust::none(),
        };
        let client = https::client(trust);
        let authorization = login.or(user).map(|user| format!("Basic {}", STANDARD.encode(user)));
        Ok(Http { base, authorization, client, outage: Mutex::default() })
    }

    /// True during a pause after a request without an answer.
    pub fn is_left_alone(&self) -> bool {
        self.outage.lock().as_ref().is_some_and(|outage| Instant::now() < outage.until)
    }

    /// True if a request may be made now. After a pause, this is the only one until its outcome is known.
    pub fn try_begin(&self) -> bool {
        let mut outage = self.outage.lock();
        let Some(outage) = outage.as_mut() else { return true };
        let now = Instant::now();
        let may_begin = now >= outage.until;
        if may_begin {
            outage.until = now + TIMEOUT;
        }
        may_begin
    }

    /// The reason why the registry is left alone.
    pub fn outage(&self) -> Option<String> {
        self.outage.lock().as_ref().map(|outage| outage.reason.clone())
    }

    fn note_silence(&self, reason: &str) {
        let mut outage = self.outage.lock();
        let pause = outage.as_ref().map_or(PAUSE, |outage| (outage.pause * 2).min(PAUSE_MAX));
        *outage = Some(Outage { reason: reason.to_owned(), until: Instant::now() + pause, pause });
    }

    /// Fetches JSON from a path.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        let requested = tokio::time::timeout(TIMEOUT, self.request(path));
        let failed = |why: String| format!("the schema registry {} does not answer {path}: {why}", self.base);
        let answer = requested
            .await
            .unwrap_or_else(|_| Err(Failure::NoAnswer(format!("no answer within {} s", TIMEOUT.as_secs()))));
        if !matches!(answer, Err(Failure::NoAnswer(_))) {
            *self.outage.lock() = None;
        }
        match answer {
            Ok(answer) => Ok(answer),
            Err(Failure::Refused(why)) => Err(failed(why)),
            Err(Failure::NoAnswer(why)) => {
                let reason = failed(why);
                self.note_silence(&reason);
                Err(reason)
            }
        }
    }

    async fn request(&self, path: &str) -> Result<Value, Failure> {
        let mut request = Request::get(format!("{}{path}", self.base))
            .header(header::ACCEPT, "application/vnd.schemaregistry.v1+json, application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(|error| Failure::Refused(error.to_string()))?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| Failure::NoAnswer(with_causes(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.is::<LengthLimitError>() {
            true => Failure::Refused(error.to_string()),
            false => Failure::NoAnswer(error.to_string()),
        });
        let body = body?.to_bytes();
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        match json {
            Some(json) if status.is_success() => Ok(json),
            Some(json) => {
                let message = json["message"].as_str().unwrap_or_default();
                let message: String = message.chars().take(ERROR_CHARS_MAX).collect();
                Err(Failure::Refused(format!("{status} {message}")))
            }
            None => Err(Failure::Refused(format!("{status}, and no JSON"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_passwords_are_not_shown() {
        let http = Http::new("http://me:secret@registry:8081/", None).expect("an address");
        assert_eq!(http.base, "http://registry:8081");
        assert!(!format!("{http:?}").contains("secret"));
        for wrong in ["registry:8081", "ftp://registry", "http://", "http://me:secret@", "http://a b"] {
            let error = Http::new(wrong, None).expect_err(wrong).to_string();
            assert!(error.contains("expected http://HOST:PORT") && !error.contains("secret"), "{error}");
        }
        assert_eq!(thalweg_stream::percent_encoded("a/b c?"), "a%2Fb%20c%3F");
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_without_an_answer_is_tried_by_one_request_after_growing_pauses() {
        let http = Http::new("http://registry:8081", None).expect("an address");
        assert!(!http.is_left_alone() && http.try_begin() && http.try_begin());
        for seconds in [1, 2, 4, 8, 16, 32, 32] {
            http.note_silence("no answer");
            tokio::time::advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
            assert!(http.is_left_alone() && !http.try_begin(), "{seconds} s");
            tokio::time::advance(Duration::from_millis(2)).await;
            assert!(!http.is_left_alone(), "{seconds} s");
            assert!(http.try_begin() && !http.try_begin(), "one request tries it");
        }
        assert_eq!(http.outage().as_deref(), Some("no answer"));
    }
}
