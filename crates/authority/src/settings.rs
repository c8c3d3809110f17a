//! Kafka's settings for stores of certificates and for logins.

use std::collections::BTreeMap;
use std::path::Path;

/// Settings by key.
pub type Settings = BTreeMap<String, String>;

/// The mechanism by which users authenticate.
pub const MECHANISM: &str = "SCRAM-SHA-512";

/// A login module of Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginModule {
    /// Sends the password.
    Plain,
    /// Proves to have it.
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

/// A line of `sasl.jaas.config`. With `admits`, a listener of PLAIN lets the user in by it.
pub fn jaas(module: LoginModule, user: &str, password: &str, admits: bool) -> String {
    let class = module.class();
    let users = if admits { format!(" user_{user}=\"{password}\"") } else { String::new() };
    format!(
        "org.apache.kafka.common.security.{class} required username=\"{user}\" password=\"{password}\"{users};"
    )
}

/// The certificate and key of a PEM file.
pub fn keystore(file: &Path) -> Settings {
    store("keystore", file)
}

/// The trusted certificates of a PEM file.
pub fn truststore(file: &Path) -> Settings {
    store("truststore", file)
}

fn store(kind: &str, file: &Path) -> Settings {
    settings([
        (&format!("ssl.{kind}.type"), "PEM".to_owned()),
        (&format!("ssl.{kind}.location"), file.display().to_string()),
    ])
}

/// From pairs.
pub(crate) fn settings<const N: usize>(pairs: [(&str, String); N]) -> Settings {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
