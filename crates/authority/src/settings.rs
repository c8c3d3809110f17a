//! Kafka's settings for certificate stores and logins.

use std::collections::BTreeMap;
use std::path::Path;

/// Settings by name.
pub type Settings = BTreeMap<String, String>;

/// The SASL mechanism of users.
pub const MECHANISM: &str = "SCRAM-SHA-512";

/// A login module of Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginModule {
    /// Sends the password.
    Plain,
    /// Proves knowledge of the password.
    Scram,
}

impl LoginModule {
    fn class(self) -> &'static str {
        match self {
            LoginModule::Plain => "plain.PlainLoginModule",
            LoginModule::Scram => "scram.ScramLoginModule",
        }
    }
}

/// The value of `sasl.jaas.config`. With `admits`, a PLAIN listener accepts the user.
pub fn jaas(module: LoginModule, user: &str, password: &str, admits: bool) -> String {
    let class = module.class();
    let users = if admits { format!(" user_{user}=\"{password}\"") } else { String::new() };
    format!(
        "org.apache.kafka.common.security.{class} required username=\"{user}\" password=\"{password}\"{users};"
    )
}

/// Settings of a PEM file with certificate and key.
pub fn keystore(file: &Path) -> Settings {
    store("keystore", file)
}

/// Settings of a PEM file with trusted certificates.
pub fn truststore(file: &Path) -> Settings {
    store("truststore", file)
}

fn store(kind: &str, file: &Path) -> Settings {
    settings([
        (&format!("ssl.{kind}.type"), "PEM".to_owned()),
        (&format!("ssl.{kind}.location"), file.display().to_string()),
    ])
}

/// Converts pairs to settings.
pub(crate) fn settings<const N: usize>(pairs: [(&str, String); N]) -> Settings {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
