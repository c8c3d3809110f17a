//! Which settings are secrets, and what is shown in their place.

/// Replaces a secret when a setting is shown.
pub const HIDDEN: &str = "[hidden]";

/// Whether the value of a setting is a secret: passwords, private keys, and the lines that hold them.
pub fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let parts = ["password", "secret", "jaas", "token", "credential"];
    // Those of a listener have its name before them.
    let keys = ["ssl.keystore.key", "ssl.key.pem"];
    parts.iter().any(|part| key.contains(part))
        || keys.iter().any(|of_a_listener| key.ends_with(of_a_listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_known_by_their_names() {
        for key in [
            "sasl.jaas.config",
            "sasl.password",
            "ssl.keystore.password",
            "ssl.key.password",
            "ssl.keystore.key",
            "listener.name.internal.scram-sha-512.sasl.jaas.config",
            "listener.name.internal.ssl.keystore.key",
        ] {
            assert!(is_secret(key), "{key}");
        }
        for key in ["ssl.keystore.location", "ssl.key.location", "sasl.mechanism", "key.serializer", "acks"] {
            assert!(!is_secret(key), "{key}");
        }
    }
}
