//! Listeners that strangers can reach: one warning for each, which says what it means.

use thalweg_config::{BrokerConfig, Listener, SecurityProtocol};

/// The warnings.
pub fn warnings(config: &BrokerConfig) -> Vec<String> {
    let listeners = &config.listeners;
    let open = |listener: &&Listener| is_reachable(listener) && !asks_for_a_name(listener);
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
    clients.chain(controllers).collect()
}

fn is_reachable(listener: &Listener) -> bool {
    match (listener.address(), listener.host.as_deref()) {
        (Some(address), _) => !address.is_loopback(),
        (None, host) => host != Some("localhost"),
    }
}

/// Whether a peer must authenticate.
fn asks_for_a_name(listener: &Listener) -> bool {
    match listener.protocol {
        SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl => true,
        SecurityProtocol::Plaintext => false,
        SecurityProtocol::Ssl => false,
    }
}
