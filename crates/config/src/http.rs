//! The HTTP listener in the form of a Kafka listener: its name is HTTP, so that `listener.name.http.`
//! precedes its settings. Its protocol is SSL with TLS, and SASL_SSL or SASL_PLAINTEXT if it requires a
//! password.

use std::collections::BTreeMap;

use super::error::{ConfigError, InvalidValue};
use super::listener::{Listener, Listeners, SecurityProtocol};
use super::sasl::{self, SaslListener};
use super::table::{HttpSettings, ListenerSettings};

/// The name of the HTTP listener.
pub const HTTP_LISTENER: &str = "HTTP";

impl HttpSettings {
    /// The listener in Kafka's form; `None` if HTTP is off.
    pub fn as_listener(&self) -> Option<Listener> {
        let (host, port) = self.listener.clone()?;
        let protocol = match (self.has_tls, self.has_login) {
            (false, false) => SecurityProtocol::Plaintext,
            (true, false) => SecurityProtocol::Ssl,
            (false, true) => SecurityProtocol::SaslPlaintext,
            (true, true) => SecurityProtocol::SaslSsl,
        };
        let host = Some(host).filter(|host| !host.is_empty());
        Some(Listener { name: HTTP_LISTENER.to_owned(), protocol, host, port })
    }
}

/// The login settings of the HTTP listener; `None` without a login. Refuses passwords in plain text over the
/// network, and another listener of the same name.
pub(super) fn login(
    listener: &Listener,
    others: &Listeners,
    file: &BTreeMap<String, String>,
) -> Result<Option<(String, SaslListener)>, ConfigError> {
    let mut others = others.broker.iter().chain(&others.controller);
    if let Some(other) = others.find(|other| other.name == listener.name) {
        let reason = format!(
            "{HTTP_LISTENER} is the name of http.listener, whose settings begin with listener.name.http.: give this \
             listener another name"
        );
        return Err(InvalidValue::new(ListenerSettings::listeners.name(), other, reason).into());
    }
    if !listener.protocol.has_sasl() {
        return Ok(None);
    }
    if !listener.protocol.has_tls() && listener.is_reachable() {
        let reason = format!(
            "Passwords would be sent in plain text to {listener}: set {}=SSL with a certificate \
             (ssl.keystore.location), or listen on localhost",
            HttpSettings::has_tls.name()
        );
        return Err(InvalidValue::new(HttpSettings::has_login.name(), "basic", reason).into());
    }
    Ok(Some((listener.name.clone(), sasl::of_passwords(listener, file)?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use thalweg_security::sasl::Mechanism;
    use thalweg_security::sasl::scram::Hash;

    use super::*;
    use crate::{BrokerConfig, ServerProperties};

    const PLAIN: &str =
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann=\"s3cret\";";
    const JAAS: (&str, &str) = ("listener.name.http.plain.sasl.jaas.config", PLAIN);
    const MECHANISMS: &str = "listener.name.http.sasl.enabled.mechanisms";

    fn configure(settings: &[(&str, &str)]) -> Result<BrokerConfig, String> {
        let mut properties = ServerProperties::default();
        for (key, value) in [("http.listener", "localhost:9090")].iter().chain(settings) {
            properties.set(key, value);
        }
        BrokerConfig::new(&properties).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn it_has_the_protocol_of_a_listener() {
        for (protocol, login, expected) in [
            ("PLAINTEXT", "none", SecurityProtocol::Plaintext),
            ("ssl", "none", SecurityProtocol::Ssl),
            ("PLAINTEXT", "basic", SecurityProtocol::SaslPlaintext),
            ("SSL", "basic", SecurityProtocol::SaslSsl),
        ] {
            let settings = [
                ("http.security.protocol", protocol),
                ("http.authentication", login),
                ("ssl.client.auth", "required"),
                ("listener.name.http.ssl.keystore.location", "/http.pem"),
            ];
            let config = configure(&settings).expect("a configuration");
            let listener = config.http.as_listener().expect("it was asked for");
            assert_eq!(
                (listener.protocol, listener.to_string().as_str()),
                (expected, "HTTP://localhost:9090")
            );
            assert_eq!(config.sasl.contains_key(HTTP_LISTENER), login == "basic");
            let tls = config.tls_of(&listener);
            let tls =
                tls.map(|tls| (tls["ssl.keystore.location"].clone(), tls.contains_key("ssl.client.auth")));
            let expected = expected.has_tls().then(|| ("/http.pem".to_owned(), login == "none"));
            assert_eq!(
                tls, expected,
                "with a login by password, the certificate is asked for by its own setting only"
            );
        }
    }

    #[test]
    fn users_are_those_of_scram_and_of_its_own_line() {
        let scram = [Mechanism::Scram(Hash::Sha256), Mechanism::Scram(Hash::Sha512)];
        let basic = ("http.authentication", "basic");
        let of = |settings: &[(&str, &str)]| {
            let config = configure(&[&[basic], settings].concat()).expect("a configuration");
            config.sasl[HTTP_LISTENER].clone()
        };
        let shared = [("sasl.enabled.mechanisms", "PLAIN"), ("sasl.jaas.config", PLAIN)];
        assert_eq!(of(&shared).mechanisms, BTreeSet::from(scram), "the settings of others are not for it");
        assert!(of(&shared).users.is_empty());
        let with_plain = of(&[JAAS]);
        assert_eq!(with_plain.mechanisms, [&[Mechanism::Plain], &scram[..]].concat().into_iter().collect());
        assert!(with_plain.users.authenticate(b"\0ann\0s3cret").is_ok());
        assert_eq!(of(&[JAAS, (MECHANISMS, "PLAIN")]).mechanisms, BTreeSet::from([Mechanism::Plain]));
        assert_eq!(of(&[(MECHANISMS, "SCRAM-SHA-256")]).mechanisms, BTreeSet::from([scram[0]]));
    }

    #[test]
    fn what_would_be_unsafe_or_without_effect_is_refused() {
        let basic = ("http.authentication", "basic");
        let open = "Passwords would be sent in plain text to HTTP://";
        for (settings, expected) in [
            (&[basic, ("http.listener", ":9090")] as &[_], open),
            (&[basic, ("http.listener", "10.0.0.7:9090")], open),
            (&[basic, ("http.listener", "example.org:9090")], "set http.security.protocol=SSL"),
            (&[basic, (MECHANISMS, "OAUTHBEARER")], "Expected some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
            (&[basic, (MECHANISMS, "")], "expected some of PLAIN"),
            (
                &[basic, (MECHANISMS, "PLAIN")],
                "listener.name.http.plain.sasl.jaas.config: Expected the users",
            ),
            (&[("http.authentication", "digest")], "http.authentication"),
            (&[("http.security.protocol", "SASL_SSL")], "http.security.protocol"),
            (
                &[
                    ("listeners", "HTTP://localhost:9092"),
                    ("listener.security.protocol.map", "HTTP:PLAINTEXT,CONTROLLER:PLAINTEXT"),
                    ("inter.broker.listener.name", "HTTP"),
                ],
                "HTTP is the name of http.listener",
            ),
        ] {
            let error = configure(settings).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
        for host in ["localhost", "127.0.0.1", "[::1]"] {
            let own = ("http.listener", &*format!("{host}:9090"));
            assert!(configure(&[basic, own]).is_ok(), "{host}");
        }
        let encrypted = [basic, ("http.listener", ":9090"), ("http.security.protocol", "SSL")];
        assert!(configure(&encrypted).is_ok());
    }
}
