//! Kafka's settings for the TLS of a listener. Pure: the result is text, which `thalweg_security` reads and
//! checks.
//!
//! As in Kafka, a setting for one listener (`listener.name.NAME.`) overrides the setting without the prefix.
//! With SASL_SSL, client certificates are requested only by a setting of the listener.

use std::collections::BTreeMap;

use super::broker::BrokerConfig;
use super::listener::{Listener, SecurityProtocol};
use super::table::{LISTENER_PREFIX, TlsKeys, listener_tls_keys};

impl BrokerConfig {
    /// The `ssl.` settings that are set for a listener, by Kafka's names; `None` without TLS.
    pub fn tls_of(&self, listener: &Listener) -> Option<BTreeMap<&'static str, String>> {
        if !listener.protocol.has_tls() {
            return None;
        }
        let set = self.layers.merged();
        let prefix = format!("{LISTENER_PREFIX}{}.", listener.name.to_lowercase());
        let find = |key: &str| {
            let is_own = listener.protocol == SecurityProtocol::SaslSsl && key == TlsKeys::client_auth.name();
            let shared = set.get(key).filter(|_| !is_own);
            set.get(&format!("{prefix}{key}")).or(shared).cloned()
        };
        Some(listener_tls_keys().filter_map(|key| Some((key.name, find(key.name)?))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerProperties;

    #[test]
    fn a_listeners_own_setting_counts_first() {
        let mut properties = ServerProperties::default();
        for (key, value) in [
            ("listeners", "SSL://localhost:9093,EXT://localhost:9094,PLAINTEXT://localhost:9092"),
            ("listener.security.protocol.map", "SSL:SSL,EXT:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
            ("ssl.keystore.location", "/own.jks"),
            ("ssl.client.auth", "required"),
            ("listener.name.ext.ssl.client.auth", "none"),
        ] {
            properties.set(key, value);
        }
        let config = BrokerConfig::new(&properties).expect("a configuration");
        let dynamic = [("listener.name.ext.ssl.keystore.location".to_owned(), "/new.jks".to_owned())];
        let (config, refused) = config.with_dynamic(&BTreeMap::new(), &dynamic.into());
        assert_eq!(refused, []);
        let of = |at: usize| config.tls_of(&config.listeners.broker[at]);
        let ssl = of(0).expect("TLS");
        assert_eq!((&*ssl["ssl.keystore.location"], &*ssl["ssl.client.auth"]), ("/own.jks", "required"));
        let ext = of(1).expect("TLS");
        assert_eq!((&*ext["ssl.keystore.location"], &*ext["ssl.client.auth"]), ("/new.jks", "none"));
        assert_eq!(of(2), None);
    }
}
