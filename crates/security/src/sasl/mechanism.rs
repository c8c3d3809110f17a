//! The mechanisms by their names.

use super::scram::Hash;

/// The name of the mechanism that Kafka has and Thalweg has not.
pub const GSSAPI: &str = "GSSAPI";

/// A mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// The password itself.
    Plain,
    /// The proof of a password.
    Scram(Hash),
    /// A token of an identity provider.
    OAuthBearer,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Mechanism; 4] = [
        Mechanism::Plain,
        Mechanism::Scram(Hash::Sha256),
        Mechanism::Scram(Hash::Sha512),
        Mechanism::OAuthBearer,
    ];

    /// Its name in SaslHandshake.
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(Hash::Sha256) => "SCRAM-SHA-256",
            Mechanism::Scram(Hash::Sha512) => "SCRAM-SHA-512",
            Mechanism::OAuthBearer => "OAUTHBEARER",
        }
    }

    /// The mechanism of this name, in capitals as on the wire.
    pub fn from_name(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// The class of its login module, with its package.
    pub const fn login_module(self) -> &'static str {
        match self {
            Mechanism::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            Mechanism::Scram(_) => "org.apache.kafka.common.security.scram.ScramLoginModule",
            Mechanism::OAuthBearer => "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        }
    }

    /// Whether a login module of this class, without its package, belongs to it.
    pub fn is_of(self, class: &str) -> bool {
        self.login_module().rsplit('.').next() == Some(class)
    }
}
