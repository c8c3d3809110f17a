//! Security of connections: `security.protocol` and its settings.
//!
//! [`Security`] is created once from Kafka's settings ([`Security::take`]), with every file read and checked,
//! and is shared by all connections. TLS is between a stream and its frames ([`tls`]); SASL follows the first
//! request on a connection ([`sasl`]), and again before a session's lifetime ends. A connection without
//! either has no cost from this module. librdkafka's names of the settings are accepted too; if both names
//! are set, Kafka's wins.

mod librdkafka;
pub(crate) mod sasl;
pub(crate) mod tls;

use std::sync::Arc;

use crate::byte_stream::ByteStream;
use crate::error::TlsFault;
use crate::properties::{InvalidSetting, Properties};
use sasl::Credentials;
use tls::{Tls, TlsSession};

/// Settings of trusted certificates besides the file.
const TRUSTED: [&str; 4] =
    ["ssl.truststore.certificates", "ssl.truststore.password", "ssl.ca.location", "ssl.ca.pem"];

/// `security.protocol` and its settings. The default is PLAINTEXT. Clones share the settings.
#[derive(Clone, Debug, Default)]
pub struct Security(Option<Arc<Layers>>);

#[derive(Debug)]
struct Layers {
    protocol: &'static str,
    tls: Option<Tls>,
    credentials: Option<Credentials>,
}

impl Security {
    /// Takes `security.protocol`, `ssl.` and `sasl.` settings out of `properties`, and reads the files that
    /// they name. Settings of a layer that the protocol does not use remain.
    pub fn take(properties: &mut Properties) -> Result<Security, InvalidSetting> {
        Security::read(properties).map_err(|invalid| properties.without_secret(invalid))
    }

    fn read(properties: &mut Properties) -> Result<Security, InvalidSetting> {
        properties.change("security.protocol", |name| name.trim().to_ascii_uppercase());
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

    /// Takes the TLS settings for a protocol other than Kafka's, for any `security.protocol`; with `logs_in`
    /// also the login, if there is one. `trusted` is a file that replaces the trusted certificates.
    pub fn take_https(
        properties: &mut Properties,
        trusted: Option<&str>,
        logs_in: bool,
    ) -> Result<Security, InvalidSetting> {
        if let Some(file) = trusted {
            for other in TRUSTED {
                properties.take(other);
            }
            properties.set("ssl.truststore.location", file);
        }
        let has_login = properties.rest().any(|key| matches!(key, "sasl.jaas.config" | "sasl.username"));
        properties.set("security.protocol", if logs_in && has_login { "SASL_SSL" } else { "SSL" });
        Security::take(properties)
    }

    /// `security.protocol`.
    pub fn protocol(&self) -> &'static str {
        self.0.as_ref().map_or("PLAINTEXT", |layers| layers.protocol)
    }

    /// Starts TLS on a stream to `address`, if the protocol uses TLS.
    pub async fn wrap(
        &self,
        stream: Box<dyn ByteStream>,
        address: &str,
    ) -> Result<Box<dyn ByteStream>, TlsFault> {
        match self.tls() {
            Some(tls) => tls.wrap(stream, address).await,
            None => Ok(stream),
        }
    }

    /// User and password for a protocol with plain passwords; `None` with a token or without a login.
    pub fn password(&self) -> Option<(&str, &str)> {
        self.credentials()?.as_password()
    }

    /// The principal of a user with a password, in the form of ACLs; `None` with a token or without a login.
    pub fn principal(&self) -> Option<String> {
        Some(format!("User:{}", self.password()?.0))
    }

    /// The result of the first handshake; `None` before it, and without TLS.
    pub fn tls_session(&self) -> Option<&TlsSession> {
        self.tls()?.session.get()
    }

    /// `sasl.mechanism`; `None` without SASL.
    pub fn mechanism(&self) -> Option<&'static str> {
        self.credentials().map(Credentials::mechanism)
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.0.as_ref()?.tls.as_ref()
    }

    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.0.as_ref()?.credentials.as_ref()
    }
}

/// Takes the first set one of `names`, and returns its name too. All other names are removed.
fn take_first(properties: &mut Properties, names: &[&'static str]) -> Option<(&'static str, String)> {
    thalweg_security::take_first(&mut |key| properties.take(key), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_protocols_take_tls_and_a_password_from_the_same_settings() {
        let settings = |more: &str| {
            let jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"ann\" password=\"pw\";";
            Properties::parse(&format!(
                "security.protocol=PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas}\n{more}"
            ))
        };
        let dir = tempfile::tempdir().expect("a directory");
        let ca = dir.path().join("ca.pem");
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        std::fs::write(&ca, own.cert.pem()).expect("written");
        let ca = ca.to_str();
        let security = Security::take_https(&mut settings(""), ca, true).expect("valid settings");
        assert_eq!((security.protocol(), security.password()), ("SASL_SSL", Some(("ann", "pw"))));
        let security = Security::take_https(&mut settings(""), ca, false).expect("valid settings");
        assert_eq!((security.protocol(), security.password()), ("SSL", None), "the caller has another login");
        let mut other = settings("ssl.truststore.location=/a\nssl.truststore.password=x\n");
        let error =
            Security::take_https(&mut other, Some("/nowhere/ca.pem"), true).expect_err("no such file");
        assert!(error.to_string().contains("ssl.truststore.location=/nowhere/ca.pem"), "{error}");
    }

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
