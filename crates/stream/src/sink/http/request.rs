//! The request of a message: its address and its headers.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use bytes::BytesMut;

use crate::expression::Expression;
use crate::message::Message;

/// Headers that belong to the connection.
const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The parts of all requests, and the expressions of the parts that depend on the message.
pub struct RequestForm {
    /// The URL of the stage.
    pub uri: Uri,
    /// The content type.
    pub content_type: HeaderValue,
    /// The login and other secrets.
    pub secrets: Vec<(HeaderName, HeaderValue)>,
    pub address: Option<Arc<Expression>>,
    pub headers: Option<Arc<Expression>>,
}

impl RequestForm {
    /// The address and headers for a message, or the reason why it has none.
    pub fn of(&self, message: &Message<'_>) -> Result<(Uri, HeaderMap), String> {
        let uri = match &self.address {
            Some(address) => self.address(address, message)?,
            None => self.uri.clone(),
        };
        let mut headers = HeaderMap::with_capacity(self.secrets.len() + 1);
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        if let Some(expression) = &self.headers {
            for (name, value) in expression.entries(message).map_err(|error| error.to_string())? {
                let Some(value) = value else { continue };
                let known = HeaderName::from_bytes(name.as_bytes())
                    .map_err(|_| format!("{name} is no name of a header"))?;
                if OF_CONNECTION.contains(&known) {
                    return Err(format!("--headers cannot set {name}, which belongs to the connection"));
                }
                if self.secrets.iter().any(|(secret, _)| *secret == known) {
                    return Err(format!("--headers cannot set {name}, which has the secret of the stage"));
                }
                let value = HeaderValue::from_bytes(&value)
                    .map_err(|_| format!("the header {name} has a character that no header can have"))?;
                headers.insert(known, value);
            }
        }
        headers.extend(self.secrets.iter().cloned());
        Ok((uri, headers))
    }

    /// A path is on the server of the stage. Another server gets no secrets.
    fn address(&self, expression: &Expression, message: &Message<'_>) -> Result<Uri, String> {
        let mut text = BytesMut::new();
        expression.write(message, &mut text).map_err(|error| error.to_string())?;
        let shown = String::from_utf8_lossy(&text).into_owned();
        let wrong = |reason: &str| format!("--address gives {shown}: {reason}");
        let uri: Uri =
            shown.parse().map_err(|_| wrong("it is no URL; use percentEncode() for parts of it"))?;
        let mut parts = uri.into_parts();
        if parts.authority.is_none() && shown.starts_with('/') {
            let own = self.uri.clone().into_parts();
            (parts.scheme, parts.authority) = (own.scheme, own.authority);
        }
        let uri =
            Uri::from_parts(parts).map_err(|_| wrong("use a path such as /orders/7, or a whole URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(wrong("use a path such as /orders/7, or a URL that begins with http:// or https://"));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("--address gives a URL with a login; use --bearer, or the login of --url".to_owned());
        }
        let is_own = uri.scheme() == self.uri.scheme() && uri.authority() == self.uri.authority();
        if !is_own && !self.secrets.is_empty() {
            return Err(wrong("the secrets of the stage are for the server of --url only"));
        }
        Ok(uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Headers;

    fn form(address: Option<&str>, headers: Option<&str>, secrets: &[&'static str]) -> RequestForm {
        let compile = |text: &str| Arc::new(Expression::compile(text).expect("it is valid"));
        let secret = |name: &&'static str| (HeaderName::from_static(name), HeaderValue::from_static("s"));
        RequestForm {
            uri: "http://h:1/base?a=b".parse().expect("a URL"),
            content_type: HeaderValue::from_static("text/plain"),
            secrets: secrets.iter().map(secret).collect(),
            address: address.map(compile),
            headers: headers.map(compile),
        }
    }

    fn of(form: &RequestForm, value: &str) -> Result<String, String> {
        let message = Message {
            value: value.as_bytes(),
            is_null: false,
            key: Some(b"k"),
            headers: Headers::default(),
            time_ms: 0,
            sequence: 0,
        };
        let (uri, headers) = form.of(&message)?;
        let headers = headers.iter().map(|(name, value)| format!("{name}={}", value.to_str().expect("text")));
        Ok(format!("{uri} {}", headers.collect::<Vec<_>>().join(" ")))
    }

    #[test]
    fn a_path_is_on_the_server_of_the_stage() {
        let plain = form(Some("payload.to"), None, &[]);
        let secret = form(Some("payload.to"), None, &["authorization"]);
        for (to, expected) in [("/x/7?y=1", Ok("http://h:1/x/7?y=1")), ("https://o/z", Ok("https://o/z"))] {
            let message = format!("{{\"to\":\"{to}\"}}");
            assert_eq!(of(&plain, &message), expected.map(|uri| format!("{uri} content-type=text/plain")));
        }
        assert!(of(&secret, r#"{"to":"/x"}"#).is_ok() && of(&secret, r#"{"to":"http://h:1/x"}"#).is_ok());
        for (form, to, reason) in [
            (&secret, "https://o/z", "are for the server of --url only"),
            (&secret, "https://h:1/z", "are for the server of --url only"),
            (&plain, "x/7", "it is no URL"),
            (&plain, "ftp://o/z", "use a path such as"),
            (&plain, "/a b", "use percentEncode()"),
            (&plain, "http://ann:pw@o/", "a URL with a login"),
        ] {
            let error = of(form, &format!("{{\"to\":\"{to}\"}}")).expect_err(to);
            assert!(error.contains(reason) && !error.contains("pw@"), "{error}");
        }
    }

    #[test]
    fn headers_of_a_message_do_not_replace_those_of_the_connection_or_secrets() {
        let headers = |text: &str| of(&form(None, Some(text), &["x-api-key"]), "{}");
        let expected = "http://h:1/base?a=b content-type=application/json x-key=k x-api-key=s";
        let all = "{'Content-Type': 'application/json', 'X-Key': key, 'X-None': null}";
        assert_eq!(headers(all), Ok(expected.to_owned()));
        for (text, reason) in [
            ("{'Host': 'x'}", "which belongs to the connection"),
            ("{'X-API-Key': 'x'}", "which has the secret"),
            ("{'a b': 'x'}", "a b is no name of a header"),
            ("{'a': 'x\\ny'}", "a character that no header can have"),
        ] {
            let error = headers(text).expect_err(text);
            assert!(error.contains(reason), "{error}");
        }
    }
}
