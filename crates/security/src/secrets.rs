//! Secret settings, and their replacement in displays.

/// The replacement of a secret.
pub const HIDDEN: &str = "[hidden]";

/// True if the value of a setting is secret: passwords, private keys, and lines that contain them.
pub fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let parts = ["password", "secret", "jaas", "token", "credential"];
    // Settings of a listener have a prefix with its name.
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
