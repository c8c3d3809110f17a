//! Security of clusters that the lab starts: certificates, and a user with a password, created for the run
//! and removed with it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thalweg_authority::{
    Authority, AuthorityError, LoginModule, Purpose, jaas, keystore, password, truststore,
};
use thalweg_client::Security;

use crate::workload::{ClusterSecurity, SaslMechanism, SecurityProtocol};

/// The user of clients and brokers.
const USER: &str = "lab";
/// The directory of keys and certificates, inside the cluster's directory.
const DIR: &str = "security";

/// The negotiated security between a client and the cluster, as seen by the lab's own client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegotiatedSecurity {
    /// `security.protocol`.
    pub protocol: String,
    /// The version of TLS, such as `TLSv1.3`; `None` without TLS.
    pub tls_version: Option<String>,
    /// The cipher suite, such as `TLS_AES_256_GCM_SHA384`; `None` without TLS.
    pub cipher_suite: Option<String>,
    /// `sasl.mechanism`; `None` without SASL.
    pub mechanism: Option<String>,
}

impl NegotiatedSecurity {
    /// Neither TLS nor a login.
    pub(super) fn plaintext() -> NegotiatedSecurity {
        NegotiatedSecurity {
            protocol: SecurityProtocol::Plaintext.name().to_owned(),
            tls_version: None,
            cipher_suite: None,
            mechanism: None,
        }
    }

    /// The security that a client with these settings has negotiated.
    pub(super) fn of(security: &Security) -> NegotiatedSecurity {
        let session = security.tls_session();
        NegotiatedSecurity {
            protocol: security.protocol().to_owned(),
            tls_version: session.map(|session| session.version.to_owned()),
            cipher_suite: session.map(|session| session.cipher_suite.clone()),
            mechanism: security.mechanism().map(str::to_owned),
        }
    }
}

impl fmt::Display for NegotiatedSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.protocol)?;
        [&self.tls_version, &self.cipher_suite, &self.mechanism]
            .into_iter()
            .flatten()
            .try_for_each(|part| write!(f, ", {part}"))
    }
}

/// Security settings of a cluster's nodes and clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecuritySettings {
    pub protocol: SecurityProtocol,
    /// Settings of each node, in addition to its listeners.
    pub node: BTreeMap<String, String>,
    /// Settings of clients.
    pub client: BTreeMap<String, String>,
    /// The first user of a new cluster, in the format of `--add-scram`; `None` without SCRAM.
    pub first_user: Option<String>,
}

impl SecuritySettings {
    /// Settings without TLS and logins.
    pub fn plaintext() -> SecuritySettings {
        let none = BTreeMap::new;
        SecuritySettings {
            protocol: SecurityProtocol::Plaintext,
            node: none(),
            client: none(),
            first_user: None,
        }
    }

    /// Creates the keys, certificates and settings of a cluster in `dir` whose brokers have the settings
    /// `requested`.
    pub fn make(
        security: ClusterSecurity,
        requested: &BTreeMap<String, String>,
        dir: &Path,
    ) -> Result<SecuritySettings, AuthorityError> {
        let protocol = security.protocol;
        let mut secured = SecuritySettings { protocol, ..SecuritySettings::plaintext() };
        if protocol != SecurityProtocol::Plaintext {
            secured.client.insert("security.protocol".to_owned(), protocol.name().to_owned());
        }
        if protocol.has_tls() {
            secured.encrypt(requested, &dir.join(DIR))?;
        }
        if let Some(mechanism) = security.mechanism {
            secured.log_in(mechanism);
        }
        Ok(secured)
    }

    /// Enables TLS 1.3, unless the workload's broker settings differ. Clients get a certificate if the
    /// brokers request one.
    fn encrypt(&mut self, requested: &BTreeMap<String, String>, dir: &Path) -> Result<(), AuthorityError> {
        let authority = Authority::open_or_create(dir)?;
        let hosts = ["localhost", "127.0.0.1"].map(str::to_owned);
        let trusted = truststore(&authority.certificate_file());
        self.node.extend(trusted.clone());
        self.node.extend(keystore(&authority.sign("node", Purpose::Node, &hosts)?));
        let versions = "ssl.enabled.protocols";
        if !requested.contains_key(versions) {
            self.node.insert(versions.to_owned(), "TLSv1.3".to_owned());
        }
        self.client.extend(trusted);
        if requested.get("ssl.client.auth").is_some_and(|auth| auth != "none") {
            self.client.extend(keystore(&authority.sign("client", Purpose::Client, &[])?));
        }
        Ok(())
    }

    /// Creates one user, for clients and for brokers among themselves.
    fn log_in(&mut self, mechanism: SaslMechanism) {
        let (name, password) = (mechanism.name(), password());
        let module = match mechanism {
            SaslMechanism::Plain => LoginModule::Plain,
            SaslMechanism::ScramSha256 | SaslMechanism::ScramSha512 => {
                self.first_user = Some(format!("{name}=[name={USER},password={password}]"));
                LoginModule::Scram
            }
        };
        let listener = self.protocol.name().to_ascii_lowercase();
        let key = format!("listener.name.{listener}.{}.sasl.jaas.config", name.to_ascii_lowercase());
        let node = [
            ("sasl.enabled.mechanisms", name.to_owned()),
            ("sasl.mechanism.inter.broker.protocol", name.to_owned()),
            (&key, jaas(module, USER, &password, module == LoginModule::Plain)),
        ];
        self.node.extend(node.map(|(key, value)| (key.to_owned(), value)));
        self.client.insert("sasl.mechanism".to_owned(), name.to_owned());
        self.client.insert("sasl.jaas.config".to_owned(), jaas(module, USER, &password, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(
        protocol: SecurityProtocol,
        mechanism: Option<SaslMechanism>,
        requested: &[(&str, &str)],
    ) -> SecuritySettings {
        let dir = tempfile::tempdir().expect("a directory");
        let requested =
            requested.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SecuritySettings::make(ClusterSecurity::new(protocol, mechanism), &requested, dir.path())
            .expect("it is made")
    }

    #[test]
    fn plaintext_needs_nothing() {
        assert_eq!(made(SecurityProtocol::Plaintext, None, &[]), SecuritySettings::plaintext());
    }

    #[test]
    fn clients_have_a_certificate_where_brokers_request_one() {
        let with = |auth| made(SecurityProtocol::Ssl, None, &[("ssl.client.auth", auth)]).client;
        assert!(with("required").contains_key("ssl.keystore.location"));
        assert!(!with("none").contains_key("ssl.keystore.location"));
    }

    #[test]
    fn versions_of_tls_are_the_workloads_or_the_newest() {
        let node = |requested: &[(&str, &str)]| made(SecurityProtocol::SaslSsl, None, requested).node;
        assert_eq!(node(&[])["ssl.enabled.protocols"], "TLSv1.3");
        assert!(!node(&[("ssl.enabled.protocols", "TLSv1.2")]).contains_key("ssl.enabled.protocols"));
    }

    #[test]
    fn users_of_scram_are_in_the_cluster_and_those_of_plain_in_its_settings() {
        let scram = made(SecurityProtocol::SaslPlaintext, None, &[]);
        assert!(scram.first_user.is_some_and(|user| user.starts_with("SCRAM-SHA-512=[name=lab,")));
        let plain = made(SecurityProtocol::SaslPlaintext, Some(SaslMechanism::Plain), &[]);
        assert_eq!(plain.first_user, None);
        assert!(plain.node["listener.name.sasl_plaintext.plain.sasl.jaas.config"].contains(" user_lab=\""));
    }
}
