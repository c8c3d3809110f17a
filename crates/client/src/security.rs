//! Authentication of clients and brokers: `security.protocol` and its settings.
//!
//! [`Security`] is created once from Kafka's settings ([`Security::take`]), with every file read and checked, and is
//! shared by all connections. TLS is between a stream and its frames ([`tls`]); SASL follows the first request on a
//! connection ([`sasl`]), and again before a session's lifetime ends. Without either, nothing of this is on a
//! connection's way. Names that librdkafka has for the same things are taken as well; where both are given, Kafka's
//! count.

mod librdkafka;
mod pem;
pub(crate) mod sasl;
mod store;
pub(crate) mod tls;

use std::sync::Arc;

use crate::properties::{InvalidSetting, Properties};
use crate::secrets::{HIDDEN, is_secret};
use sasl::Credentials;
use tls::Tls;

/// Replaces a missing value.
const NOT_SET: &str = "(not set)";

/// `security.protocol` and its settings. The default is PLAINTEXT. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Security(Option<Arc<Layers>>);

#[derive(Debug)]
struct Layers {
    protocol: &'static str,
    tls: Option<Tls>,
    credentials: Option<Credentials>,
}

impl Security {
    /// Takes `security.protocol`, `ssl.` and `sasl.` settings out of `properties`, and reads the files that they
    /// name. Settings of a layer that the protocol does not use remain.
    pub fn take(properties: &mut Properties) -> Result<Security, InvalidSetting> {
        let upper = properties.take("security.protocol").map(|name| name.trim().to_ascii_uppercase());
        if let Some(name) = upper {
            properties.set("security.protocol", &name);
        }
        let choices = [
            ("PLAINTEXT", ("PLAINTEXT", false, false)),
            ("SSL", ("SSL", true, false)),
            ("SASL_PLAINTEXT", ("SASL_PLAINTEXT", false, true)),
            ("SASL_SSL", ("SASL_SSL", true, true)),
        ];
        let (protocol, with_tls, with_sasl) =
            properties.take_choice("security.protocol", choices[0].1, &choices)?;
        if !with_tls && !with_sasl {
            return Ok(Security::default());
        }
        let tls = with_tls.then(|| Tls::take(properties)).transpose()?;
        let credentials = with_sasl.then(|| Credentials::take(properties)).transpose()?;
        Ok(Security(Some(Arc::new(Layers { protocol, tls, credentials }))))
    }

    /// `security.protocol`.
    pub fn protocol(&self) -> &'static str {
        self.0.as_ref().map_or("PLAINTEXT", |layers| layers.protocol)
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.0.as_ref()?.tls.as_ref()
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.0.as_ref()?.credentials.as_ref()
    }
}

/// A setting that is wrong; the value of a secret is not repeated.
fn invalid(key: &str, value: &str, expected: impl Into<String>) -> InvalidSetting {
    let value = if is_secret(key) { HIDDEN } else { value };
    InvalidSetting { key: key.to_owned(), value: value.to_owned(), expected: expected.into() }
}

/// A setting that is missing.
fn missing(key: &str, expected: impl Into<String>) -> InvalidSetting {
    InvalidSetting { key: key.to_owned(), value: NOT_SET.to_owned(), expected: expected.into() }
}

/// Takes the first of `names` that is set, and returns its name too. The others are removed as well.
fn take_first(properties: &mut Properties, names: &[&'static str]) -> Option<(&'static str, String)> {
    let mut found = None;
    for name in names {
        if let Some(value) = properties.take(name).filter(|value| !value.trim().is_empty()) {
            found.get_or_insert((*name, value));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_takes_nothing_of_other_layers() {
        let mut properties = Properties::new();
        properties.set("security.protocol", "plaintext");
        properties.set("ssl.truststore.location", "/nowhere");
        let security = Security::take(&mut properties).expect("nothing is read");
        assert_eq!(security.protocol(), "PLAINTEXT");
        assert_eq!(properties.rest().collect::<Vec<_>>(), ["ssl.truststore.location"]);
        properties.set("security.protocol", "TLS");
        let error = Security::take(&mut properties).expect_err("no such protocol");
        assert_eq!(
            error.to_string(),
            "security.protocol=TLS is invalid: expected PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
        );
    }
}
