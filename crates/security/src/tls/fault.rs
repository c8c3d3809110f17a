//! Reasons for failed handshakes with clients, in terms of settings.

use rustls::{AlertDescription, CertificateError, Error};

use crate::names::NoMatchingRule;

/// The reason for a failed handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsHandshakeFault {
    /// Plain text on a TLS listener.
    #[error(
        "the client sends plain text to a TLS listener (its security.protocol may have to be SSL or SASL_SSL)"
    )]
    PlainText,
    /// A certificate that leads to no trusted one.
    #[error("the client's certificate is signed by none that ssl.truststore.location trusts")]
    UnknownIssuer,
    /// An expired certificate.
    #[error("the client's certificate has expired, or the clock of this machine is wrong")]
    Expired,
    /// A certificate that is not valid yet.
    #[error("the client's certificate is not valid yet, or the clock of this machine is wrong")]
    NotValidYet,
    /// A revoked certificate.
    #[error("the client's certificate was revoked (ssl.crl.location)")]
    Revoked,
    /// No revocation list covers the certificate.
    #[error("ssl.crl.location has no revocation list of the authority that signed the client's certificate")]
    NoRevocationList,
    /// An expired revocation list.
    #[error("the revocation list in ssl.crl.location has expired, or the clock of this machine is wrong")]
    ExpiredRevocationList,
    /// Another fault of the certificate.
    #[error("the client's certificate cannot be accepted: {0}")]
    Certificate(String),
    /// No client certificate despite `ssl.client.auth=required`.
    #[error("the client shows no certificate (ssl.client.auth=required)")]
    NoCertificate,
    /// The client does not trust this broker.
    #[error("the client rejects this broker's certificate (alert {0})")]
    Rejected(String),
    /// No common version or cipher suite.
    #[error(
        "the client and this listener have no protocol version or cipher suite in common (ssl.enabled.protocols, \
         ssl.cipher.suites): {0}"
    )]
    NothingInCommon(String),
    /// No mapping rule applies to the certificate's name.
    #[error(transparent)]
    Unmapped(#[from] NoMatchingRule),
    /// Another protocol error.
    #[error("{0}")]
    Protocol(String),
}

impl TlsHandshakeFault {
    /// True if the handshake failed because of the client's certificate or its absence, which counts as a
    /// failed login.
    pub fn is_failed_login(&self) -> bool {
        match self {
            Self::UnknownIssuer
            | Self::Expired
            | Self::NotValidYet
            | Self::Revoked
            | Self::NoRevocationList
            | Self::ExpiredRevocationList
            | Self::Certificate(_)
            | Self::NoCertificate
            | Self::Unmapped(_) => true,
            Self::PlainText | Self::Rejected(_) | Self::NothingInCommon(_) | Self::Protocol(_) => false,
        }
    }
}

impl From<&Error> for TlsHandshakeFault {
    fn from(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => of_certificate(error),
            Error::NoCertificatesPresented => Self::NoCertificate,
            Error::AlertReceived(alert) => of_alert(*alert),
            Error::PeerIncompatible(what) => Self::NothingInCommon(format!("{what:?}")),
            other => Self::Protocol(other.to_string()),
        }
    }
}

fn of_certificate(error: &CertificateError) -> TlsHandshakeFault {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsHandshakeFault::UnknownIssuer,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsHandshakeFault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsHandshakeFault::NotValidYet
        }
        CertificateError::Revoked => TlsHandshakeFault::Revoked,
        CertificateError::UnknownRevocationStatus => TlsHandshakeFault::NoRevocationList,
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            TlsHandshakeFault::ExpiredRevocationList
        }
        CertificateError::Other(other) => TlsHandshakeFault::Certificate(other.0.to_string()),
        other => TlsHandshakeFault::Certificate(other.to_string()),
    }
}

fn of_alert(alert: AlertDescription) -> TlsHandshakeFault {
    match alert {
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::UnknownCA => TlsHandshakeFault::Rejected(format!("{alert:?}")),
        AlertDescription::HandshakeFailure
        | AlertDescription::ProtocolVersion
        | AlertDescription::InsufficientSecurity => {
            TlsHandshakeFault::NothingInCommon(format!("alert {alert:?}"))
        }
        other => TlsHandshakeFault::Protocol(format!("the client sends alert {other:?}")),
    }
}
