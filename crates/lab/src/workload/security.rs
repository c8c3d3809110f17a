//! The security of a cluster's clients and brokers: Kafka's listener protocols, and login mechanisms.

use serde::{Deserialize, Serialize};

/// The security of connections from clients to brokers, and between brokers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSecurity {
    /// `security.protocol`.
    pub protocol: SecurityProtocol,
    /// `sasl.mechanism`; `None` without SASL.
    pub mechanism: Option<SaslMechanism>,
}

/// Kafka's protocols of listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum SecurityProtocol {
    /// Neither TLS nor a login.
    #[default]
    #[serde(rename = "PLAINTEXT")]
    #[value(name = "PLAINTEXT")]
    Plaintext,
    /// TLS 1.3.
    #[serde(rename = "SSL")]
    #[value(name = "SSL")]
    Ssl,
    /// A login without TLS.
    #[serde(rename = "SASL_PLAINTEXT")]
    #[value(name = "SASL_PLAINTEXT")]
    SaslPlaintext,
    /// A login over TLS 1.3.
    #[serde(rename = "SASL_SSL")]
    #[value(name = "SASL_SSL")]
    SaslSsl,
}

impl SecurityProtocol {
    /// The name in Kafka's properties.
    pub fn name(self) -> &'static str {
        match self {
            SecurityProtocol::Plaintext => "PLAINTEXT",
            SecurityProtocol::Ssl => "SSL",
            SecurityProtocol::SaslPlaintext => "SASL_PLAINTEXT",
            SecurityProtocol::SaslSsl => "SASL_SSL",
        }
    }

    /// True if the protocol has TLS.
    pub fn has_tls(self) -> bool {
        matches!(self, SecurityProtocol::Ssl | SecurityProtocol::SaslSsl)
    }

    /// True if the protocol has a login.
    pub fn has_sasl(self) -> bool {
        matches!(self, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl)
    }
}

/// Mechanisms of logins by password.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum SaslMechanism {
    /// RFC 4616.
    #[serde(rename = "PLAIN")]
    #[value(name = "PLAIN")]
    Plain,
    /// RFC 7677.
    #[serde(rename = "SCRAM-SHA-256")]
    #[value(name = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same with SHA-512.
    #[default]
    #[serde(rename = "SCRAM-SHA-512")]
    #[value(name = "SCRAM-SHA-512")]
    ScramSha512,
}

impl SaslMechanism {
    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl ClusterSecurity {
    /// The security with a protocol, and for SASL with this mechanism, by default SCRAM-SHA-512.
    pub fn new(protocol: SecurityProtocol, mechanism: Option<SaslMechanism>) -> ClusterSecurity {
        let mechanism = protocol.has_sasl().then(|| mechanism.unwrap_or_default());
        ClusterSecurity { protocol, mechanism }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::workload::file;

    fn read(text: &str) -> Result<ClusterSecurity, String> {
        let text = format!("title = \"A\"\ndescription = \"A\"\n{text}\n");
        let workload = file::parse("x", "x.toml", &text, Path::new("")).map_err(|error| error.to_string())?;
        Ok(workload.points[0].cluster.security)
    }

    #[test]
    fn sasl_has_a_mechanism_and_the_others_have_none() {
        assert_eq!(read(""), Ok(ClusterSecurity::default()));
        let security = read("cluster.security_protocol = \"SSL\"").expect("TLS");
        assert_eq!((security.protocol, security.mechanism), (SecurityProtocol::Ssl, None));
        let security = read("cluster.security_protocol = \"SASL_SSL\"").expect("a login");
        assert_eq!(security.mechanism, Some(SaslMechanism::ScramSha512));
        let text = "cluster.security_protocol = \"SASL_PLAINTEXT\"\ncluster.sasl_mechanism = \"PLAIN\"";
        assert_eq!(read(text).expect("a login").mechanism, Some(SaslMechanism::Plain));
    }

    #[test]
    fn what_has_no_effect_is_refused() {
        let refused = |text: &str, message: &str| {
            let error = read(text).expect_err("a refusal");
            assert!(error.contains(message), "{error}");
        };
        refused(
            "cluster.sasl_mechanism = \"PLAIN\"",
            "no effect with cluster.security_protocol = \"PLAINTEXT\"",
        );
        refused("cluster.security_protocol = \"TLS\"", "use one of \"PLAINTEXT\", \"SSL\"");
        let nothing =
            "drivers = \"stream\"\nverify = \"off\"\ncluster = { brokers = 0, security_protocol = \"SSL\" }";
        refused(nothing, "has no effect without a cluster");
    }
}
