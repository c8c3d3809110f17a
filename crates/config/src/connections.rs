//! Connection limits of each listener. As in Kafka, a setting for one listener (`listener.name.NAME.`)
//! overrides the broker's setting, which otherwise applies to each listener.

use std::collections::BTreeMap;

use super::error::ConfigError;
use super::listener::Listener;
use super::setting::{Setting, SettingType};
use super::table::{self, LISTENER_PREFIX, NetworkSettings};
use super::value::Value;

/// Limits on a listener's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerConnectionLimits {
    /// Maximum number of open connections.
    pub max: usize,
    /// Maximum number of new connections per second.
    pub creation_rate: u32,
}

/// The limits of these listeners by name, from properties that may include settings for single listeners.
pub(super) fn of_listeners<'a>(
    listeners: impl Iterator<Item = &'a Listener>,
    network: &NetworkSettings,
    set: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, ListenerConnectionLimits>, ConfigError> {
    let mut found = BTreeMap::new();
    for listener in listeners {
        let prefix = format!("{LISTENER_PREFIX}{}.", listener.name.to_lowercase());
        let max = own(NetworkSettings::max_connections, &prefix, set)?;
        let creation_rate = own(NetworkSettings::max_connection_creation_rate, &prefix, set)?;
        let settings = ListenerConnectionLimits {
            max: max.unwrap_or(network.max_connections),
            creation_rate: creation_rate.unwrap_or(network.max_connection_creation_rate),
        };
        found.insert(listener.name.clone(), settings);
    }
    Ok(found)
}

/// The value set for this listener.
fn own<T: SettingType>(
    setting: Setting<T>,
    prefix: &str,
    set: &BTreeMap<String, String>,
) -> Result<Option<T>, ConfigError> {
    let name = format!("{prefix}{}", setting.name());
    let Some(text) = set.get(&name) else { return Ok(None) };
    let key = table::broker_key(setting.name()).expect("settings have keys");
    match Value::parse(key, text) {
        Ok(value) => Ok(Some(setting.read(Some(&value), key.unit))),
        Err(error) => Err(error.named(&name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BrokerConfig, ServerProperties};

    fn config(properties: &[(&str, &str)]) -> Result<BrokerConfig, crate::InvalidConfig> {
        let mut all = ServerProperties::default();
        all.set("listeners", "PLAINTEXT://localhost:9092,EXTERNAL://localhost:9093");
        all.set("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT");
        properties.iter().for_each(|(key, value)| all.set(key, value));
        BrokerConfig::new(&all)
    }

    #[test]
    fn a_listeners_own_limit_counts_first() {
        let config = config(&[
            ("max.connections", "100"),
            ("max.connection.creation.rate", "7"),
            ("listener.name.external.max.connections", "20"),
        ])
        .expect("a configuration");
        let of = |config: &BrokerConfig, name: &str| config.connections[name];
        assert_eq!(of(&config, "PLAINTEXT"), ListenerConnectionLimits { max: 100, creation_rate: 7 });
        assert_eq!(of(&config, "EXTERNAL"), ListenerConnectionLimits { max: 20, creation_rate: 7 });

        let dynamic = [("listener.name.external.max.connection.creation.rate".to_owned(), "3".to_owned())];
        let cluster = [("max.connections".to_owned(), "50".to_owned())];
        let (config, refused) = config.with_dynamic(&cluster.into(), &dynamic.into());
        assert_eq!(refused, []);
        assert_eq!(of(&config, "PLAINTEXT"), ListenerConnectionLimits { max: 50, creation_rate: 7 });
        assert_eq!(of(&config, "EXTERNAL"), ListenerConnectionLimits { max: 20, creation_rate: 3 });
    }

    #[test]
    fn a_wrong_limit_of_a_listener_is_named() {
        let error = config(&[("listener.name.external.max.connections", "many")]).expect_err("no number");
        assert!(error.to_string().contains("listener.name.external.max.connections"), "{error}");
    }
}
