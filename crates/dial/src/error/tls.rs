//! Errors of TLS, in terms of the settings.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError};

/// TLS with a broker could not be started, or the broker ended it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TLS with {peer} failed: {fault}")]
pub struct TlsFailed {
    /// Address of the peer.
    pub peer: Arc<str>,
    pub fault: TlsFault,
}

/// Why TLS failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsFault {
    /// The certificate chain leads to no trusted certificate.
    #[error(
        "the broker's certificate is signed by none that is trusted here; ssl.truststore.location has to name the \
         certificate of who signed it"
    )]
    UnknownIssuer,
    /// The certificate is for other hosts.
    #[error(
        "the broker's certificate is not for {host}{}; address the broker by one of its names, or \
         set ssl.endpoint.identification.algorithm to nothing",
        presented(.names)
    )]
    Name {
        /// The host in the broker's address.
        host: String,
        /// The names in the certificate.
        names: Vec<String>,
    },
    /// The certificate, or one in its chain, has expired.
    #[error("the broker's certificate has expired, or the clock of this machine is wrong")]
    Expired,
    /// The certificate, or one in its chain, is not valid yet.
    #[error("the broker's certificate is not valid yet, or the clock of this machine is wrong")]
    NotValidYet,
    /// The certificate was revoked.
    #[error("the broker's certificate was revoked (ssl.crl.location)")]
    Revoked,
    /// No revocation list of the certificate's authority is configured.
    #[error("ssl.crl.location has no revocation list of the authority that signed the broker's certificate")]
    NoRevocationList,
    /// The revocation list has expired.
    #[error("the revocation list in ssl.crl.location has expired, or the clock of this machine is wrong")]
    ExpiredRevocationList,
    /// Another error of the certificate.
    #[error("the broker's certificate cannot be accepted: {0}")]
    Certificate(String),
    /// The broker requires a client certificate.
    #[error("the broker requires a client certificate (ssl.keystore.location), or rejects the presented one")]
    ClientCertificate,
    /// The two sides have no common protocol version or cipher.
    #[error("the two sides have no protocol version or cipher in common ({0})")]
    NothingInCommon(String),
    /// The other side does not speak TLS.
    #[error("the peer does not speak TLS (security.protocol may have to be PLAINTEXT or SASL_PLAINTEXT)")]
    NotTls,
    /// The other side closed the connection.
    #[error("the peer closed the connection in the handshake (a listener without TLS does so)")]
    Closed,
    /// The host in the address is no valid name for a certificate.
    #[error("{0:?} is not a host name")]
    HostName(String),
    #[error("{0}")]
    Other(String),
}

fn presented(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(", but for {}", names.join(", ")) }
}

impl TlsFault {
    /// True if the same handshake may succeed later.
    pub fn is_retriable(&self) -> bool {
        matches!(self, TlsFault::Closed | TlsFault::Other(_))
    }

    /// The TLS fault in an error of a stream, if there is one.
    pub fn of(error: &io::Error) -> Option<TlsFault> {
        let error: &rustls::Error = error.get_ref()?.downcast_ref()?;
        Some(match error {
            rustls::Error::InvalidCertificate(error) => of_certificate(error),
            rustls::Error::AlertReceived(alert) => of_alert(*alert),
            rustls::Error::InvalidMessage(_) => TlsFault::NotTls,
            rustls::Error::PeerIncompatible(what) => TlsFault::NothingInCommon(format!("{what:?}")),
            rustls::Error::NoCertificatesPresented => TlsFault::Certificate("it shows none".to_owned()),
            other => TlsFault::Other(other.to_string()),
        })
    }
}

fn of_certificate(error: &CertificateError) -> TlsFault {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFault::UnknownIssuer,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => TlsFault::NotValidYet,
        CertificateError::NotValidForNameContext { expected, presented } => {
            TlsFault::Name { host: expected.to_str().into_owned(), names: presented.clone() }
        }
        CertificateError::Revoked => TlsFault::Revoked,
        CertificateError::UnknownRevocationStatus => TlsFault::NoRevocationList,
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            TlsFault::ExpiredRevocationList
        }
        CertificateError::Other(other) => TlsFault::Certificate(other.0.to_string()),
        other => TlsFault::Certificate(other.to_string()),
    }
}

fn of_alert(alert: AlertDescription) -> TlsFault {
    match alert {
        AlertDescription::CertificateRequired
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::UnknownCA => TlsFault::ClientCertificate,
        AlertDescription::HandshakeFailure
        | AlertDescription::ProtocolVersion
        | AlertDescription::InsufficientSecurity => TlsFault::NothingInCommon(format!(
            "alert {alert:?}; a missing certificate of this client looks like this too"
        )),
        other => TlsFault::Other(format!("the other side says {other:?}")),
    }
}
