//! Listeners that strangers can reach without authentication: a warning for each, with the consequences.

use thalweg_config::{BrokerConfig, HTTP_LISTENER, Listener, SecurityProtocol, TlsKeys};

/// A warning for each listener that other machines can reach without authentication.
pub fn warnings(config: &BrokerConfig) -> Vec<String> {
    let listeners = &config.listeners;
    let open = |listener: &&Listener| listener.is_reachable() && !requires_authentication(config, listener);
    let warning = |listener: &Listener, may: &str| {
        let right = match listener.name == HTTP_LISTENER {
            true => "http.security.protocol=SSL and http.authentication=basic",
            false => "thalweg serve --secure",
        };
        format!(
            "ANYONE who reaches {listener} {may}: it asks nobody for a name. Listen on localhost, or authenticate: \
             {right} (docs/security.md)"
        )
    };
    let by_acls = "may do what the ACLs allow to User:ANONYMOUS";
    let clients = listeners.broker.iter().filter(open).map(|listener| {
        let may = match config.access.has_authorizer {
            true => by_acls,
            false => "may read, change and delete everything",
        };
        warning(listener, may)
    });
    let controllers = listeners.controller.iter().filter(open);
    let controllers = controllers.map(|listener| warning(listener, "may take the cluster over"));
    let http = config.http.as_listener();
    let http = http.iter().filter(open).map(|listener| {
        let has_sasl = listeners.broker.iter().any(|listener| listener.protocol.has_sasl());
        let has_open_console = config.console.enabled && config.node.roles.broker && !has_sasl;
        let may = match (config.access.has_authorizer, config.streams.enabled, has_open_console) {
            (true, ..) => by_acls,
            (false, true, _) => "may run streams in this process",
            (false, false, true) => "may read, change and delete everything",
            (false, false, false) => "may read its metrics",
        };
        warning(listener, may)
    });
    clients.chain(controllers).chain(http).collect()
}

/// True if a peer must authenticate.
fn requires_authentication(config: &BrokerConfig, listener: &Listener) -> bool {
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
    fn every_form_of_an_address_that_strangers_reach_is_named() {
        let advertised = ("advertised.listeners", "PLAINTEXT://broker.example:9092");
        for host in ["", "0.0.0.0", "[::]", "[fd00::7]", "192.168.1.7", "broker", "broker.example"] {
            let listeners = format!("PLAINTEXT://{host}:9092");
            let warned = warned(&[("listeners", &listeners), advertised]);
            assert_eq!(warned.len(), 1, "{listeners}");
        }
        let warned = warned(&[("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://:9093")]);
        assert_eq!(warned.len(), 1, "{warned:?}");
        assert!(warned[0].starts_with("ANYONE who reaches CONTROLLER://:9093 may take the cluster over"));
    }

    #[test]
    fn the_http_listener_is_named_too() {
        assert!(warned(&[("http.listener", "127.0.0.1:9090")]).is_empty());
        let open = ("http.listener", ":9090");
        let authorizer = ("authorizer.class.name", thalweg_config::STANDARD_AUTHORIZER_CLASS);
        let tls = ("http.security.protocol", "SSL");
        for (settings, may) in [
            (&[open] as &[_], "may read, change and delete everything"),
            (&[open, tls], "may read, change and delete everything"),
            (&[open, tls, ("thalweg.console.enabled", "false")], "may read its metrics"),
            (&[open, ("streams.enabled", "true")], "may run streams in this process"),
            (&[open, authorizer], "may do what the ACLs allow to User:ANONYMOUS"),
            (&[open, tls, ("ssl.client.auth", "requested")], "may read, change and delete everything"),
        ] {
            let warned = warned(settings);
            assert_eq!(warned.len(), 1, "{warned:?}");
            assert!(warned[0].starts_with(&format!("ANYONE who reaches HTTP://:9090 {may}: ")), "{warned:?}");
            assert!(warned[0].contains("http.authentication=basic"), "{warned:?}");
        }
        for login in [("http.authentication", "basic"), ("ssl.client.auth", "required")] {
            assert!(warned(&[open, tls, login]).is_empty(), "{login:?}");
        }
    }

    #[test]
    fn listeners_with_authentication_are_not() {
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
