//! Requests to a registry: bounded in time and size.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Uri, header};
use serde_json::Value;
use thalweg_stream::https::{self, NoAuthority, Trust, with_causes};

use super::InvalidRegistry;

/// Maximum bytes of a response.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Maximum time for a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum characters of an error text.
const ERROR_CHARS_MAX: usize = 200;

/// A client of one registry.
pub struct Http {
    /// The address without a trailing slash and without a password.
    base: String,
    authorization: Option<String>,
    client: https::Client,
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
        Ok(Http { base, authorization, client })
    }

    /// Fetches JSON from a path.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        let requested = tokio::time::timeout(TIMEOUT, self.request(path));
        let failed = |why: String| format!("the schema registry {} does not answer {path}: {why}", self.base);
        match requested.await {
            Ok(answer) => answer.map_err(failed),
            Err(_) => Err(failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
        }
    }

    async fn request(&self, path: &str) -> Result<Value, String> {
        let mut request = Request::get(format!("{}{path}", self.base))
            .header(header::ACCEPT, "application/vnd.schemaregistry.v1+json, application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let answer = self.client.request(request).await.map_err(|error| with_causes(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        match json {
            Some(json) if status.is_success() => Ok(json),
            Some(json) => {
                let message = json["message"].as_str().unwrap_or_default();
                let message: String = message.chars().take(ERROR_CHARS_MAX).collect();
                Err(format!("{status} {message}"))
            }
            None => Err(format!("{status}, and no JSON")),
        }
    }
}

/// Percent-encodes a name for a path.
pub fn escaped(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
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
        assert_eq!(escaped("a/b c?"), "a%2Fb%20c%3F");
    }
}
