//! Secrets of requests. An option names the place of a secret, a file or a variable of the environment, so
//! that the secret is in no definition, log or report.

use std::io;
use std::path::PathBuf;

use axum::http::{HeaderName, HeaderValue, header};

use crate::declaration::{Settings, WrongMix};
use crate::disk;
use crate::reach::Reach;
use crate::stage::IoFailed;

/// Size limit of a file with a secret.
const SECRET_BYTES_MAX: usize = 1 << 20;

/// The place of a secret.
enum SecretPlace {
    File(PathBuf),
    Variable(String),
}

impl SecretPlace {
    fn read(text: &str) -> Option<SecretPlace> {
        match text.split_once(':')? {
            ("file", path) if !path.is_empty() => Some(SecretPlace::File(path.into())),
            ("env", name) if !name.is_empty() => Some(SecretPlace::Variable(name.to_owned())),
            _ => None,
        }
    }

    /// The secret, without a line end behind it.
    fn secret(&self, reach: &Reach) -> Result<String, IoFailed> {
        let failed = |what: &str, reason: &str| IoFailed {
            action: "read the secret in",
            what: what.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidData, reason.to_owned()),
        };
        match self {
            SecretPlace::File(path) => {
                let bytes = disk::read_whole(&reach.properties(path)?, SECRET_BYTES_MAX)?;
                let text = String::from_utf8(bytes);
                let text = text.map_err(|_| failed(&path.display().to_string(), "it is not UTF-8"))?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
            SecretPlace::Variable(name) => std::env::var(name)
                .map_err(|_| failed(&format!("the variable {name}"), "the environment has no such text")),
        }
    }
}

/// Checks the options with secrets.
pub fn check(settings: &Settings) -> Result<(), WrongMix> {
    for option in ["bearer", "apiKey"] {
        if settings.optional_text(option).is_some_and(|text| SecretPlace::read(text).is_none()) {
            let message = "A secret is not in the text of a stream, which others may see";
            return Err(WrongMix::new(option, message, "Name its place: file:PATH or env:NAME."));
        }
    }
    if HeaderName::from_bytes(settings.text("apiKeyHeader").as_bytes()).is_err() {
        let message = "This is no name of a header";
        return Err(WrongMix::new("apiKeyHeader", message, "Use letters, digits and -."));
    }
    Ok(())
}

/// The headers with secrets, read from their places.
pub fn headers(settings: &Settings, reach: &Reach) -> Result<Vec<(HeaderName, HeaderValue)>, IoFailed> {
    let mut headers = Vec::new();
    let mut add = |option: &str, name: HeaderName, scheme: &str| {
        let Some(place) = settings.optional_text(option).and_then(SecretPlace::read) else { return Ok(()) };
        let secret = place.secret(reach)?;
        let value = HeaderValue::from_str(&format!("{scheme}{secret}"));
        let mut value = value.map_err(|_| IoFailed {
            action: "use the secret of",
            what: format!("--{option}"),
            source: io::Error::new(io::ErrorKind::InvalidData, "a header cannot have its characters"),
        })?;
        value.set_sensitive(true);
        headers.push((name, value));
        Ok(())
    };
    add("bearer", header::AUTHORIZATION, "Bearer ")?;
    let name = HeaderName::from_bytes(settings.text("apiKeyHeader").as_bytes());
    add("apiKey", name.unwrap_or(HeaderName::from_static("x-api-key")), "")?;
    Ok(headers)
}
