//! Authentication of clients on each listener with SASL: Kafka's settings. A setting for a listener and a
//! mechanism (`listener.name.NAME.MECHANISM.`) overrides the setting for the listener
//! (`listener.name.NAME.`), which overrides the setting without a prefix.
//!
//! Safe by default: OAUTHBEARER requires the keys of a provider, whereas Kafka accepts unsigned tokens. A
//! setting with a Java class is refused, because the class may be an access check.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use thalweg_security::sasl::jaas::{self, LoginModule};
use thalweg_security::sasl::oauth::TokenRules;
use thalweg_security::sasl::plain::Users;
use thalweg_security::sasl::scram::Hash;
use thalweg_security::sasl::{GSSAPI, Mechanism};

use super::error::{ConfigError, InvalidValue};
use super::listener::{Listener, Listeners};
use super::setting::Setting;
use super::table::LISTENER_PREFIX;
use super::table::{self, SaslKeys};
use super::value::Value;

/// Placeholder for a missing value in an error.
const NOT_SET: &str = "null";

/// Kafka's classes that verify signed tokens.
const TOKEN_VALIDATORS: [&str; 2] = [
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
];

/// Kafka's class that accepts unsigned tokens, the default without another.
const UNSECURED_VALIDATOR: &str = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler";

/// The reason against unsigned tokens, and the replacement in tests.
const UNSIGNED_TOKENS: &str = "Tokens without a signature, which Kafka accepts by default, are refused: with them, anyone can \
                               be anyone. A test signs its tokens with a key of its own: docs/security.md, \
                               \"OAUTHBEARER in a test\"";

/// Mechanisms whose users are in the metadata.
const SCRAM: [Mechanism; 2] = [Mechanism::Scram(Hash::Sha256), Mechanism::Scram(Hash::Sha512)];

/// SASL on one listener.
#[derive(Debug, Clone, PartialEq)]
pub struct SaslListener {
    /// `sasl.enabled.mechanisms`.
    pub mechanisms: BTreeSet<Mechanism>,
    /// `sasl.server.max.receive.size`.
    pub receive_max_bytes: usize,
    /// Users of PLAIN.
    pub users: Users,
    /// Verification of OAUTHBEARER tokens, if the mechanism is enabled.
    pub tokens: Option<TokenSettings>,
    /// `connections.max.reauth.ms` of the mechanisms with a value.
    pub max_reauth: BTreeMap<Mechanism, Duration>,
}

/// Verification of signed tokens. Equal settings may share the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSettings {
    /// `sasl.oauthbearer.jwks.endpoint.url`.
    pub keys_url: String,
    /// `sasl.oauthbearer.jwks.endpoint.refresh.ms`.
    pub refresh: Duration,
    /// `sasl.oauthbearer.jwks.endpoint.retry.backoff.ms`.
    pub retry_backoff: Duration,
    /// `sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms`.
    pub retry_backoff_max: Duration,
    /// Rules for tokens.
    pub rules: TokenRules,
}

/// The settings of all listeners with SASL, by name.
pub(super) fn of_listeners(
    listeners: &Listeners,
    file: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, SaslListener>, ConfigError> {
    let with_sasl = || {
        listeners.broker.iter().chain(&listeners.controller).filter(|listener| listener.protocol.has_sasl())
    };
    let mut found = BTreeMap::new();
    for listener in with_sasl() {
        found.insert(listener.name.clone(), of_listener(listener, file)?);
    }
    let is_between_brokers = |listener: &&Listener| listener.name == listeners.inter_broker;
    if let Some(listener) = with_sasl().find(is_between_brokers) {
        let names = Names { file, listener: &listener.name, mechanism: None };
        let mechanism: String = match file.get(SaslKeys::mechanism_inter_broker.name()) {
            Some(name) => name.trim().to_owned(),
            None => GSSAPI.to_owned(),
        };
        let is_enabled = |sasl: &SaslListener| sasl.mechanisms.iter().any(|known| known.name() == mechanism);
        if !found.get(&listener.name).is_some_and(is_enabled) {
            let reason = format!(
                "Must be one of sasl.enabled.mechanisms of the listener between brokers, {} ({})",
                listener.name,
                names.get(SaslKeys::enabled_mechanisms)?.join(", ")
            );
            let key = SaslKeys::mechanism_inter_broker.name();
            return Err(InvalidValue::new(key, mechanism, reason).into());
        }
    }
    Ok(found)
}

fn of_listener(listener: &Listener, file: &BTreeMap<String, String>) -> Result<SaslListener, ConfigError> {
    let names = Names { file, listener: &listener.name, mechanism: None };
    let mechanisms = names.mechanisms()?;
    let (mut users, mut tokens, mut max_reauth) = (Users::default(), None, BTreeMap::new());
    for &mechanism in &mechanisms {
        let names = Names { mechanism: Some(mechanism), ..names };
        names.check_handler(mechanism)?;
        let module = names.login_module(mechanism)?;
        match (mechanism, module) {
            (Mechanism::Plain, Some(module)) => users = Users::of(&module),
            (Mechanism::Plain, None) => return Err(names.without_users(mechanism).into()),
            (Mechanism::OAuthBearer, _) => tokens = Some(names.tokens()?),
            (Mechanism::Scram(_), _) => {}
        }
        match u64::try_from(names.get(SaslKeys::max_reauth_ms)?) {
            Ok(ms) if ms > 0 => max_reauth.insert(mechanism, Duration::from_millis(ms)),
            _ => None,
        };
    }
    let receive_max_bytes = names.get(SaslKeys::receive_max_bytes)?;
    Ok(SaslListener { mechanisms, receive_max_bytes, users, tokens, max_reauth })
}

/// Verification of plain passwords on a listener without SASL messages. Only the listener's own settings
/// apply; settings without the prefix are for mechanisms.
pub(super) fn of_passwords(
    listener: &Listener,
    file: &BTreeMap<String, String>,
) -> Result<SaslListener, ConfigError> {
    let names = Names { file, listener: &listener.name, mechanism: Some(Mechanism::Plain) };
    let is_own = |key: &str| names.find(key).is_some_and(|(name, _)| name.starts_with(&names.prefix()));
    let module = match is_own(SaslKeys::jaas_config.name()) {
        true => names.login_module(Mechanism::Plain)?,
        false => None,
    };
    let plain = module.as_ref().map(|_| Mechanism::Plain);
    let mechanisms = match is_own(SaslKeys::enabled_mechanisms.name()) {
        true => names.mechanisms_of_passwords()?,
        false => SCRAM.into_iter().chain(plain).collect(),
    };
    if mechanisms.contains(&Mechanism::Plain) && module.is_none() {
        return Err(names.without_users(Mechanism::Plain).into());
    }
    let users = module.filter(|_| mechanisms.contains(&Mechanism::Plain)).map(|module| Users::of(&module));
    let receive_max_bytes = names.get(SaslKeys::receive_max_bytes)?;
    let users = users.unwrap_or_default();
    Ok(SaslListener { mechanisms, receive_max_bytes, users, tokens: None, max_reauth: BTreeMap::new() })
}

/// The names under which a setting is searched.
#[derive(Clone, Copy)]
struct Names<'a> {
    file: &'a BTreeMap<String, String>,
    listener: &'a str,
    mechanism: Option<Mechanism>,
}

impl Names<'_> {
    fn prefix(&self) -> String {
        format!("{LISTENER_PREFIX}{}.", self.listener.to_lowercase())
    }

    /// The value of a key, and the name under which it is set.
    fn find(&self, key: &str) -> Option<(String, &str)> {
        let prefix = self.prefix();
        let of_mechanism =
            self.mechanism.map(|mechanism| format!("{prefix}{}.{key}", mechanism.name().to_lowercase()));
        let names = [of_mechanism, Some(format!("{prefix}{key}")), Some(key.to_owned())];
        names.into_iter().flatten().find_map(|name| {
            let value = self.file.get(&name)?;
            Some((name, value.as_str()))
        })
    }

    fn get<T>(&self, setting: Setting<T>) -> Result<T, ConfigError> {
        let key = table::broker_key(setting.name()).expect("settings are of the table");
        let value = match self.find(key.name) {
            Some((name, text)) => {
                let named = |error| match error {
                    ConfigError::Value(mut invalid) => {
                        invalid.name.clone_from(&name);
                        ConfigError::Value(invalid)
                    }
                    error => error,
                };
                Some(Value::parse(key, text).map_err(named)?)
            }
            None => Value::default_of(key, false),
        };
        Ok(setting.read(value.as_ref(), key.unit))
    }

    fn mechanisms(&self) -> Result<BTreeSet<Mechanism>, ConfigError> {
        const KEY: &str = SaslKeys::enabled_mechanisms.name();
        let given = self.get(SaslKeys::enabled_mechanisms)?;
        let key = self.find(KEY).map_or(KEY.to_owned(), |(name, _)| name);
        let served = Mechanism::ALL.map(Mechanism::name).join(", ");
        let wrong = |value: &str, reason: String| Err(InvalidValue::new(&key, value, reason).into());
        let mut mechanisms = BTreeSet::new();
        for name in &given {
            match Mechanism::from_name(name) {
                Some(mechanism) => mechanisms.insert(mechanism),
                None if name == GSSAPI => {
                    let reason = format!(
                        "Listener {}: GSSAPI (Kerberos), which is Kafka's default, is not supported; expected some of \
                         {served}",
                        self.listener
                    );
                    return wrong(name, reason);
                }
                None => return wrong(name, format!("Expected some of {served}")),
            };
        }
        match mechanisms.is_empty() {
            true => wrong("", format!("Listener {} uses SASL: expected some of {served}", self.listener)),
            false => Ok(mechanisms),
        }
    }

    /// The mechanisms whose users have a verifiable password.
    fn mechanisms_of_passwords(&self) -> Result<BTreeSet<Mechanism>, ConfigError> {
        let mechanisms = self.mechanisms()?;
        match mechanisms.contains(&Mechanism::OAuthBearer) {
            true => {
                let key = format!("{}{}", self.prefix(), SaslKeys::enabled_mechanisms.name());
                let reason =
                    "Expected some of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, whose users have passwords";
                Err(InvalidValue::new(&key, Mechanism::OAuthBearer.name(), reason).into())
            }
            false => Ok(mechanisms),
        }
    }

    fn without_users(&self, mechanism: Mechanism) -> InvalidValue {
        let reason = format!(
            "Expected the users of {}: {} required user_NAME=\"PASSWORD\"; (a JAAS file, of KAFKA_OPTS or \
             java.security.auth.login.config, is not read: copy the login module of its section KafkaServer)",
            mechanism.name(),
            mechanism.login_module()
        );
        InvalidValue::new(&self.key_of_jaas(mechanism), NOT_SET, reason)
    }

    /// Checks the class that would decide instead of the mechanism.
    fn check_handler(&self, mechanism: Mechanism) -> Result<(), ConfigError> {
        let Some(class) = self.get(SaslKeys::server_callback_handler)?.filter(|class| !class.is_empty())
        else {
            return Ok(());
        };
        if mechanism == Mechanism::OAuthBearer && TOKEN_VALIDATORS.contains(&class.as_str()) {
            return Ok(());
        }
        let (name, _) = self.find(SaslKeys::server_callback_handler.name()).unwrap_or_default();
        let reason = match mechanism == Mechanism::OAuthBearer && class == UNSECURED_VALIDATOR {
            true => format!("{UNSIGNED_TOKENS}. Remove this setting"),
            false => format!(
                "Java classes cannot be loaded, so nobody would be asked for {}: remove it, or the mechanism",
                mechanism.name()
            ),
        };
        Err(InvalidValue::new(&name, class, reason).into())
    }

    fn key_of_jaas(&self, mechanism: Mechanism) -> String {
        format!("{}{}.{}", self.prefix(), mechanism.name().to_lowercase(), SaslKeys::jaas_config.name())
    }

    /// The login module of a mechanism. Only a setting for this mechanism must name its module: a general
    /// setting may be for another mechanism, or for outgoing connections.
    fn login_module(&self, mechanism: Mechanism) -> Result<Option<LoginModule>, ConfigError> {
        let Some((name, line)) = self.find(SaslKeys::jaas_config.name()) else { return Ok(None) };
        let fails = |reason: String| Err(InvalidValue::new(&name, "[hidden]", reason).into());
        match jaas::parse(line) {
            Ok(module) if mechanism.is_of(&module.class) => Ok(Some(module)),
            Ok(_) if name != self.key_of_jaas(mechanism) => Ok(None),
            Ok(_) => fails(format!("Expected {} required ...;", mechanism.login_module())),
            Err(fault) => fails(format!(
                "It cannot be read ({fault}): expected {} required ...;",
                mechanism.login_module()
            )),
        }
    }

    fn tokens(&self) -> Result<TokenSettings, ConfigError> {
        let key = SaslKeys::keys_url;
        let Some(keys_url) = self.get(key)?.filter(|url| !url.is_empty()) else {
            let reason = format!(
                "OAUTHBEARER needs the keys of the identity provider, a JWKS document at an https:, http: or file: URL. \
                 {UNSIGNED_TOKENS}"
            );
            return Err(InvalidValue::new(key.name(), NOT_SET, reason).into());
        };
        if !["https://", "http://", "file:/"].iter().any(|scheme| keys_url.starts_with(scheme)) {
            return Err(
                InvalidValue::new(key.name(), keys_url, "Expected an https:, http: or file: URL").into()
            );
        }
        let skew = SaslKeys::clock_skew_seconds;
        let skew_seconds = self.get(skew)?;
        if skew_seconds < 0 {
            return Err(InvalidValue::new(skew.name(), skew_seconds, "Value must be at least 0").into());
        }
        Ok(TokenSettings {
            keys_url,
            refresh: self.get(SaslKeys::keys_refresh)?,
            retry_backoff: self.get(SaslKeys::keys_retry_backoff)?,
            retry_backoff_max: self.get(SaslKeys::keys_retry_backoff_max)?,
            rules: TokenRules {
                audiences: self.get(SaslKeys::expected_audience)?,
                issuer: self.get(SaslKeys::expected_issuer)?,
                scope_claim: self.get(SaslKeys::scope_claim)?,
                subject_claim: self.get(SaslKeys::subject_claim)?,
                skew_seconds,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BrokerConfig, ServerProperties};

    const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                         username=\"admin\" password=\"s3cret\" user_admin=\"s3cret\";";

    fn configure(settings: &[(&str, &str)]) -> Result<BrokerConfig, String> {
        let mut properties = ServerProperties::default();
        properties.set("listeners", "INTERNAL://localhost:9092,CLIENTS://localhost:9093");
        properties.set("inter.broker.listener.name", "INTERNAL");
        let map = "INTERNAL:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT";
        properties.set("listener.security.protocol.map", map);
        for (key, value) in settings {
            properties.set(key, value);
        }
        BrokerConfig::new(&properties).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn what_is_nearest_to_listener_and_mechanism_counts() {
        let config = configure(&[
            ("sasl.enabled.mechanisms", "GSSAPI"),
            ("listener.name.clients.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512"),
            ("listener.name.clients.plain.sasl.jaas.config", PLAIN),
            ("connections.max.reauth.ms", "5000"),
            ("listener.name.clients.plain.connections.max.reauth.ms", "0"),
            ("listener.name.clients.sasl.server.max.receive.size", "1000"),
        ]);
        let config = config.expect("a configuration");
        assert_eq!(config.sasl.keys().collect::<Vec<_>>(), ["CLIENTS"]);
        let sasl = &config.sasl["CLIENTS"];
        let scram = Mechanism::Scram(Hash::Sha512);
        assert_eq!(sasl.mechanisms, BTreeSet::from([Mechanism::Plain, scram]));
        assert_eq!(sasl.max_reauth, BTreeMap::from([(scram, Duration::from_secs(5))]));
        assert_eq!(sasl.receive_max_bytes, 1000);
        assert!(sasl.users.authenticate(b"\0admin\0s3cret").is_ok());
        assert!(!format!("{config:?}").contains("s3cret"), "no secret is shown");
    }

    #[test]
    fn tokens_need_the_keys_of_a_provider() {
        let bearer = ("sasl.enabled.mechanisms", "OAUTHBEARER");
        let error = configure(&[bearer]).expect_err("no keys");
        assert!(error.contains("sasl.oauthbearer.jwks.endpoint.url: OAUTHBEARER needs the keys"), "{error}");
        assert!(error.contains("anyone can be anyone"), "{error}");
        let url = ("sasl.oauthbearer.jwks.endpoint.url", "file:/etc/keys.json");
        let config = configure(&[
            bearer,
            url,
            ("sasl.oauthbearer.expected.audience", "kafka, other"),
            ("listener.name.clients.oauthbearer.sasl.oauthbearer.sub.claim.name", "client_id"),
            (
                "listener.name.clients.oauthbearer.sasl.server.callback.handler.class",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
            ),
            (
                "listener.name.clients.oauthbearer.sasl.jaas.config",
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
            ),
        ]);
        let config = config.expect("a configuration");
        let tokens = config.sasl["CLIENTS"].tokens.as_ref().expect("OAUTHBEARER");
        assert_eq!(tokens.rules.audiences, ["kafka", "other"]);
        assert_eq!((tokens.rules.subject_claim.as_str(), tokens.rules.skew_seconds), ("client_id", 30));
        assert_eq!(tokens.refresh, Duration::from_secs(3600));
        for (key, value) in [
            ("sasl.oauthbearer.jwks.endpoint.url", "ftp://x"),
            ("sasl.oauthbearer.clock.skew.seconds", "-1"),
            ("sasl.server.callback.handler.class", UNSECURED_VALIDATOR),
        ] {
            let error = configure(&[bearer, url, (key, value)]).expect_err(value);
            assert!(error.contains(&format!("for configuration {key}: ")), "{error}");
        }
    }

    #[test]
    fn unsigned_tokens_are_refused_with_the_way_of_a_test() {
        let bearer = ("sasl.enabled.mechanisms", "OAUTHBEARER");
        let module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                      unsecuredLoginStringClaim_sub=\"admin\";";
        let handler = ("sasl.server.callback.handler.class", UNSECURED_VALIDATOR);
        for settings in [&[bearer, ("sasl.jaas.config", module)][..], &[bearer, handler]] {
            let error = configure(settings).expect_err("unsigned tokens");
            assert!(error.contains(UNSIGNED_TOKENS), "{error}");
        }
        let page = include_str!("../../../docs/security.md");
        assert!(page.contains("\n### OAUTHBEARER in a test\n"), "the error names it");
    }

    #[test]
    fn what_keeps_nobody_out_is_refused_in_words() {
        let plain = ("sasl.enabled.mechanisms", "PLAIN");
        let jaas = "listener.name.clients.plain.sasl.jaas.config";
        for (settings, expected) in [
            (
                &[] as &[(&str, &str)],
                "GSSAPI (Kerberos), which is Kafka's default, is not supported; expected some of PLAIN",
            ),
            (&[("sasl.enabled.mechanisms", "")], "Listener CLIENTS uses SASL: expected some of PLAIN"),
            (&[("sasl.enabled.mechanisms", "plain")], "Expected some of PLAIN, SCRAM-SHA-256"),
            (&[plain], "listener.name.clients.plain.sasl.jaas.config: Expected the users of PLAIN"),
            (
                &[plain, (jaas, "a.b.ScramLoginModule required;")],
                "Expected org.apache.kafka.common.security.plain",
            ),
            (&[plain, (jaas, "PlainLoginModule user_a=\"s3cret\";")], "It cannot be read (the control flag"),
            (
                &[plain, (jaas, PLAIN), ("sasl.server.callback.handler.class", "com.example.Ldap")],
                "sasl.server.callback.handler.class: Java classes cannot be loaded",
            ),
            (
                &[plain, (jaas, PLAIN), ("listener.name.clients.connections.max.reauth.ms", "soon")],
                "for configuration listener.name.clients.connections.max.reauth.ms: Not a number",
            ),
            (
                &[plain, (jaas, PLAIN), ("inter.broker.listener.name", "CLIENTS")],
                "sasl.mechanism.inter.broker.protocol: Must be one of sasl.enabled.mechanisms",
            ),
        ] {
            let error = configure(settings).expect_err("a refusal");
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let scram = configure(&[("sasl.enabled.mechanisms", "SCRAM-SHA-256")]);
        assert!(scram.is_ok(), "its users are in the metadata: {scram:?}");
        let own = [plain, ("sasl.jaas.config", PLAIN), ("sasl.mechanism.inter.broker.protocol", "PLAIN")];
        assert!(configure(&own).is_ok(), "one line for all");
    }
}
