//! Listeners that strangers can reach: one warning for each, which says what it means.

use std::net::IpAddr;

use thalweg_config::{BrokerConfig, Listener, SecurityProtocol, TlsKeys};

/// The warnings.
pub fn warnings(config: &BrokerConfig) -> Vec<String> {
    let listeners = &config.listeners;
    let open = |listener: &&Listener| is_reachable(listener) && !asks_for_a_name(config, listener);
    let warning = |listener: &Listener, may: &str| {
        format!(
            "ANYONE who reaches {listener} {may}: it asks nobody for a name. Listen on localhost, or authenticate: \
             thalweg serve --secure (docs/security.md)"
        )
    };
    let clients = listeners.broker.iter().filter(open).map(|listener| {
        let may = match config.access.has_authorizer {
            true => "may do what the ACLs allow to User:ANONYMOUS",
            false => "may read, change and delete everything",
        };
        warning(listener, may)
    });
    let controllers = listeners.controller.iter().filter(open);
    let controllers = controllers.map(|listener| warning(listener, "may take the cluster over"));
    let http = config.http.listener.iter().filter(|(host, _)| is_reachable_at(host)).map(|(host, port)| {
        let may = if config.streams.enabled { "run streams in this process" } else { "read its metrics" };
        format!("ANYONE who reaches http.listener {host}:{port} may {may}: it has no login yet. Listen on localhost")
    });
    clients.chain(controllers).chain(http).collect()
}

fn is_reachable_at(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host != "localhost" && !address.is_ok_and(|address| address.is_loopback())
}

fn is_reachable(listener: &Listener) -> bool {
    is_reachable_at(listener.host.as_deref().unwrap_or_default())
}

/// Whether a peer must authenticate.
fn asks_for_a_name(config: &BrokerConfig, listener: &Listener) -> bool {
    match listener.protocol {
        SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl => true,
        SecurityProtocol::Plaintext => false,
        SecurityProtocol::Ssl => {
            let settings = config.tls_of(listener).unwrap_or_default();
            settings.get(TlsKeys::client_auth.name()).is_some_and(|auth| auth == "required")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_config::ServerProperties;

    fn warned(settings: &[(&str, &str)]) -> Vec<String> {
        let mut properties = ServerProperties::default();
        for (key, value) in settings {
            properties.set(key, value);
        }
        warnings(&BrokerConfig::new(&properties).expect("valid settings"))
    }

    #[test]
    fn listeners_that_strangers_reach_are_named() {
        for listeners in ["PLAINTEXT://:9092", "PLAINTEXT://10.0.0.7:9092", "SSL://example.org:9092"] {
            let name = listeners.split(':').next().unwrap_or_default();
            let warned = warned(&[("listeners", listeners), ("inter.broker.listener.name", name)]);
            assert_eq!(warned.len(), 1, "{listeners}");
            assert!(warned[0].contains("read, change and delete everything"), "{}", warned[0]);
        }
    }

    #[test]
    fn the_http_listener_is_named_too() {
        assert!(warned(&[("http.listener", "127.0.0.1:9090")]).is_empty());
        for enabled in ["false", "true"] {
            let warned = warned(&[("http.listener", ":9090"), ("streams.enabled", enabled)]);
            assert!(warned[0].starts_with("ANYONE who reaches http.listener :9090 may "), "{warned:?}");
        }
    }

    #[test]
    fn those_that_ask_for_a_name_are_not() {
        for (listeners, name) in [
            ("PLAINTEXT://localhost:9092", "PLAINTEXT"),
            ("PLAINTEXT://127.0.0.1:9092", "PLAINTEXT"),
            ("PLAINTEXT://[::1]:9092", "PLAINTEXT"),
            ("SSL://:9092", "SSL"),
        ] {
            let settings = [
                ("listeners", listeners),
                ("inter.broker.listener.name", name),
                ("ssl.client.auth", "required"),
            ];
            assert!(warned(&settings).is_empty(), "{listeners}");
        }
    }
}
