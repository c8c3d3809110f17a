//! Kafka's settings for the connections that a broker opens: to controllers, and to the brokers that it
//! follows. Pure: the result is a client's properties, whose files are read elsewhere.
//!
//! As in Kafka, a setting for one listener (`listener.name.NAME.`) overrides the setting without the prefix,
//! and a login module may be set for one mechanism. The listener is that of the other node: the first
//! controller listener, or the listener for connections between brokers.

use std::collections::BTreeMap;

use thalweg_dial::Properties;

use super::broker::BrokerConfig;
use super::listener::SecurityProtocol;
use super::table::{LISTENER_PREFIX, SaslKeys, listener_tls_keys};

impl BrokerConfig {
    /// Settings for connections to controllers.
    pub fn towards_controllers(&self) -> Properties {
        let name = self.listeners.controller_names.first().map_or("", String::as_str);
        self.outgoing(name, self.listeners.controller_protocol, SaslKeys::mechanism_controller.name())
    }

    /// Settings for connections to brokers, by the protocol number of their listener. Plain text has no
    /// settings.
    pub fn towards_brokers(&self) -> BTreeMap<i16, Properties> {
        let secured =
            SecurityProtocol::ALL.into_iter().filter(|protocol| *protocol != SecurityProtocol::Plaintext);
        let properties = |protocol| {
            self.outgoing(&self.listeners.inter_broker, protocol, SaslKeys::mechanism_inter_broker.name())
        };
        secured.map(|protocol| (protocol.code(), properties(protocol))).collect()
    }

    fn outgoing(&self, listener: &str, protocol: SecurityProtocol, mechanism_key: &str) -> Properties {
        let set = &self.layers.file;
        let prefix = format!("{LISTENER_PREFIX}{}.", listener.to_lowercase());
        let find = |key: &str| set.get(&format!("{prefix}{key}")).or_else(|| set.get(key));
        let mut properties = Properties::new();
        properties.set("security.protocol", protocol.name());
        for key in listener_tls_keys() {
            if let Some(value) = find(key.name) {
                properties.set(key.name, value);
            }
        }
        let mechanism = find(mechanism_key);
        if let Some(mechanism) = mechanism {
            properties.set("sasl.mechanism", mechanism);
        }
        let jaas = SaslKeys::jaas_config.name();
        let of_mechanism = mechanism.map(|name| format!("{prefix}{}.{jaas}", name.trim().to_lowercase()));
        if let Some(line) = of_mechanism.and_then(|key| set.get(&key)).or_else(|| find(jaas)) {
            properties.set(jaas, line);
        }
        let token_url = SaslKeys::token_url.name();
        if let Some(url) = find(token_url) {
            properties.set(token_url, url);
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerProperties;

    fn config(settings: &[(&str, &str)]) -> BrokerConfig {
        let mut properties = ServerProperties::default();
        for (key, value) in [
            ("process.roles", "broker"),
            ("node.id", "3"),
            ("controller.quorum.bootstrap.servers", "a:9093"),
            ("controller.listener.names", "CTL"),
        ] {
            properties.set(key, value);
        }
        for (key, value) in settings {
            properties.set(key, value);
        }
        BrokerConfig::new(&properties).expect("a configuration")
    }

    #[test]
    fn the_map_has_the_protocol_of_controllers_and_a_listener_precedes_all() {
        let config = config(&[
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CTL:SASL_SSL"),
            ("sasl.mechanism.controller.protocol", "SCRAM-SHA-512"),
            ("sasl.mechanism.inter.broker.protocol", "PLAIN"),
            ("sasl.jaas.config", "for all"),
            ("listener.name.ctl.scram-sha-512.sasl.jaas.config", "for controllers"),
            ("ssl.truststore.location", "/all.pem"),
            ("ssl.keystore.location", "/own.p12"),
            ("listener.name.ctl.ssl.truststore.location", "/controllers.pem"),
        ]);
        let controllers = config.towards_controllers();
        for (key, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.jaas.config", "for controllers"),
            ("ssl.truststore.location", "/controllers.pem"),
            ("ssl.keystore.location", "/own.p12"),
        ] {
            assert_eq!(controllers.get(key), Some(value), "{key}");
        }
        let brokers = &config.towards_brokers()[&SecurityProtocol::SaslPlaintext.code()];
        for (key, value) in [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.jaas.config", "for all"),
            ("ssl.truststore.location", "/all.pem"),
        ] {
            assert_eq!(brokers.get(key), Some(value), "{key}");
        }
    }

    #[test]
    fn without_a_map_controllers_speak_plaintext() {
        assert_eq!(config(&[]).towards_controllers().get("security.protocol"), Some("PLAINTEXT"));
    }
}
