//! The limits of connections as the network needs them, from the configuration and the quotas of addresses.
//! Host names are resolved once, when they are set: a change of another limit must neither wait for a name
//! server nor lose a host that the server does not know at the moment.

use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use thalweg_config::{BrokerConfig, Listener, NetworkSettings};
use thalweg_hash::HashMap;
use thalweg_log::disk::Descriptors;
use thalweg_metadata::Quotas;
use thalweg_net::Connections;
use thalweg_security::InvalidSetting;
use thalweg_security::quota::{ConnectionLimits, IpRates, ListenerLimits, Window};

/// The quota of addresses.
const IP_RATE: &str = "connection_creation_rate";
/// The entity of the quota.
const IP: &str = "ip";

/// Refuses overrides for unknown hosts, as Kafka does at the start. Otherwise the general limit would apply
/// to those hosts.
pub(crate) fn check_hosts(network: &NetworkSettings) -> Result<(), InvalidSetting> {
    for (host, max) in &network.max_connections_per_ip_overrides {
        if let Err(error) = resolve(host) {
            let name = NetworkSettings::max_connections_per_ip_overrides.name();
            let expected = format!("addresses and hosts that can be resolved, but {host} cannot ({error})");
            return Err(InvalidSetting::new(name, &format!("{host}:{max}"), expected));
        }
    }
    Ok(())
}

/// Keeps the earlier overrides if the new ones contain an unknown host, as Kafka does by failing to apply
/// them.
pub(crate) fn keep_unless_known(network: &mut NetworkSettings, before: &NetworkSettings) {
    if network.max_connections_per_ip_overrides == before.max_connections_per_ip_overrides {
        return;
    }
    if let Err(error) = check_hosts(network) {
        tracing::error!(%error, "Failed to change the limits of addresses, the earlier ones stay");
        network.max_connections_per_ip_overrides.clone_from(&before.max_connections_per_ip_overrides);
    }
}

/// The limits of a broker's or a controller's listeners.
pub(crate) fn limits(config: &BrokerConfig, listeners: &[Listener]) -> ConnectionLimits {
    let network = &config.network;
    let overrides = network.max_connections_per_ip_overrides.iter().flat_map(|(host, max)| {
        addresses(host, NetworkSettings::max_connections_per_ip_overrides.name())
            .into_iter()
            .map(|address| (address, *max))
    });
    let listeners = listeners.iter().filter_map(|listener| {
        let settings = config.connections.get(&listener.name)?;
        let limits = ListenerLimits { connections: settings.max, per_second: settings.creation_rate };
        Some((listener.name.clone(), limits))
    });
    ConnectionLimits {
        connections: network.max_connections,
        per_second: network.max_connection_creation_rate,
        per_ip: network.max_connections_per_ip,
        per_ip_overrides: overrides.collect(),
        listeners: listeners.collect(),
    }
}

/// The connections of a broker's listeners: none yet.
pub(crate) fn connections(config: &BrokerConfig, descriptors: &Descriptors) -> Arc<Connections> {
    let limits = limits(config, &config.listeners.broker);
    let between_brokers = Some(config.listeners.inter_broker.clone());
    Connections::new(window(config), limits, between_brokers, descriptors.clone())
}

/// The window of rates.
pub(crate) fn window(config: &BrokerConfig) -> Window {
    Window::new(config.network.quota_samples, config.network.quota_sample)
}

/// The rates of addresses.
pub(crate) fn ip_rates(quotas: &Quotas) -> IpRates {
    let mut rates = IpRates::default();
    for (entity, values) in quotas.iter() {
        let (Some(name), Some(rate)) = (entity.get(IP), values.get(IP_RATE)) else { continue };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturating, and the controller takes whole positive numbers"
        )]
        let rate = *rate as u32;
        match name {
            None => rates.default = Some(rate),
            Some(host) => {
                rates.named.extend(addresses(host, "an ip quota").into_iter().map(|address| (address, rate)));
            }
        }
    }
    rates
}

/// The addresses of hosts that this process has resolved.
static RESOLVED: LazyLock<Mutex<HashMap<String, Vec<IpAddr>>>> = LazyLock::new(Mutex::default);

fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![address.to_canonical()]);
    }
    let addresses: Vec<IpAddr> =
        (host, 0).to_socket_addrs()?.map(|address| address.ip().to_canonical()).collect();
    RESOLVED.lock().insert(host.to_owned(), addresses.clone());
    Ok(addresses)
}

/// The addresses of a host, as they were when the host was set.
fn addresses(host: &str, of: &'static str) -> Vec<IpAddr> {
    if let Some(resolved) = RESOLVED.lock().get(host) {
        return resolved.clone();
    }
    match resolve(host) {
        Ok(addresses) => addresses,
        Err(error) => {
            tracing::warn!(host, %error, "Failed to resolve a host of {of}");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use thalweg_metadata::{Delta, Image};
    use thalweg_wire::MetadataRecord;
    use thalweg_wire::metadata::ClientQuotaRecord;
    use thalweg_wire::metadata::client_quota_record::EntityData;

    #[test]
    fn a_host_keeps_its_addresses_without_a_name_server() {
        let address: IpAddr = "10.0.0.9".parse().expect("an address");
        // No name server knows the name.
        assert_eq!(addresses("host.invalid", "a test"), Vec::<IpAddr>::new());
        RESOLVED.lock().insert("host.invalid".to_owned(), vec![address]);
        assert_eq!(addresses("host.invalid", "a test"), [address]);
        assert_eq!(addresses("::ffff:10.0.0.9", "a test"), [address]);
    }

    #[test]
    fn rates_are_those_of_addresses() {
        let mut delta = Delta::new(Arc::new(Image::empty()));
        let mut set = |kind: &str, name: Option<&str>, key: &str, value| {
            let entity = EntityData { entity_type: kind.to_owned(), entity_name: name.map(str::to_owned) };
            let record =
                ClientQuotaRecord { entity: vec![entity], key: key.to_owned(), value, remove: false };
            delta.replay(&MetadataRecord::ClientQuota(record)).expect("a quota");
        };
        set("ip", None, IP_RATE, 7.0);
        set("ip", Some("::ffff:10.0.0.1"), IP_RATE, 3.0);
        set("user", Some("ann"), "producer_byte_rate", 5.0);
        let image = delta.image();
        let rates = ip_rates(image.quotas());
        let address: IpAddr = "10.0.0.1".parse().expect("an address");
        assert_eq!((rates.default, rates.named), (Some(7), [(address, 3)].into_iter().collect()));
    }
}
