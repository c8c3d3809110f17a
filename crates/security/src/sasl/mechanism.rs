//! SASL mechanisms and their names.

use super::scram::Hash;

/// Kafka's mechanism that Thalweg does not support.
pub const GSSAPI: &str = "GSSAPI";

/// A supported mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// Sends the password.
    Plain,
    /// Proves knowledge of the password.
    Scram(Hash),
    /// Sends a token of an identity provider.
    OAuthBearer,
}

impl Mechanism {
    /// All supported mechanisms.
    pub const ALL: [Mechanism; 4] = [
        Mechanism::Plain,
        Mechanism::Scram(Hash::Sha256),
        Mechanism::Scram(Hash::Sha512),
        Mechanism::OAuthBearer,
    ];

    /// The name in SaslHandshake.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(hash) => hash.mechanism(),
            Mechanism::OAuthBearer => "OAUTHBEARER",
        }
    }

    /// The mechanism of a name, case-sensitive as on the wire.
    pub fn from_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// The class of the login module, with its package.
    pub const fn login_module(self) -> &'static str {
        match self {
            Mechanism::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            Mechanism::Scram(_) => "org.apache.kafka.common.security.scram.ScramLoginModule",
            Mechanism::OAuthBearer => "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        }
    }

    /// True if a login module class, without its package, belongs to this mechanism.
    pub fn is_of(self, class: &str) -> bool {
        self.login_module().rsplit('.').next() == Some(class)
    }
}
