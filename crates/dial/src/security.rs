//! Authentication of clients and brokers: `security.protocol` and its settings.
//!
//! [`Security`] is created once from Kafka's settings ([`Security::take`]), with every file read and checked, and is
//! shared by all connections. TLS is between a stream and its frames ([`tls`]); SASL follows the first request on a
//! connection ([`sasl`]), and again before a session's lifetime ends. Without either, nothing of this is on a
//! connection's way. Names that librdkafka has for the same things are taken as well; where both are given, Kafka's
//! count.

mod librdkafka;
pub(crate) mod sasl;
pub(crate) mod tls;

use std::sync::Arc;

use crate::byte_stream::ByteStream;
use crate::error::TlsFault;
use crate::properties::{InvalidSetting, Properties};
use sasl::Credentials;
use tls::{Tls, TlsSession};

/// The settings of what is trusted, besides the file.
const TRUSTED: [&str; 4] =
    ["ssl.truststore.certificates", "ssl.truststore.password", "ssl.ca.location", "ssl.ca.pem"];

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

    /// Takes the settings of TLS for a protocol other than Kafka's, whatever `security.protocol` says, and with `logs_in` the
    /// login, if there is one. `trusted` is a file of certificates that takes the place of the trusted ones.
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

    /// Begins TLS on a stream to `address`, where the protocol has it.
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

    /// The user and the password, for a protocol that shows them as such; none with a token or without a login.
    pub fn password(&self) -> Option<(&str, &str)> {
        self.credentials()?.as_password()
    }

    /// The principal of a user with a password, as ACLs name it; none with a token or without a login.
    pub fn principal(&self) -> Option<String> {
        Some(format!("User:{}", self.password()?.0))
    }

    /// What the first handshake settled on; none before it, and without TLS.
    pub fn tls_session(&self) -> Option<&TlsSession> {
        self.tls()?.session.get()
    }

    /// `sasl.mechanism`; none without SASL.
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

/// Takes the first of `names` that is set, and returns its name too. The others are removed as well.
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
