//! Why a handshake with a client failed, in terms of the settings.

use rustls::{AlertDescription, CertificateError, Error};

use crate::names::NoMatchingRule;

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeFault {
    /// Plain text on a TLS listener.
    #[error(
        "the client sends plain text to a TLS listener (its security.protocol may have to be SSL or SASL_SSL)"
    )]
    PlainText,
    /// A certificate that leads to none that is trusted.
    #[error("the client's certificate is signed by none that ssl.truststore.location trusts")]
    UnknownIssuer,
    /// A certificate that has expired.
    #[error("the client's certificate has expired, or the clock of this machine is wrong")]
    Expired,
    /// A certificate that is not valid yet.
    #[error("the client's certificate is not valid yet, or the clock of this machine is wrong")]
    NotValidYet,
    /// A certificate that was revoked.
    #[error("the client's certificate was revoked (ssl.crl.location)")]
    Revoked,
    /// No list says whether it was.
    #[error("ssl.crl.location has no revocation list of the authority that signed the client's certificate")]
    NoRevocationList,
    /// The list is too old.
    #[error("the revocation list in ssl.crl.location has expired, or the clock of this machine is wrong")]
    ExpiredRevocationList,
    /// Something else about the certificate.
    #[error("the client's certificate cannot be accepted: {0}")]
    Certificate(String),
    /// `ssl.client.auth=required`, and the client shows none.
    #[error("the client shows no certificate (ssl.client.auth=required)")]
    NoCertificate,
    /// The client does not trust this broker.
    #[error("the client rejects this broker's certificate (alert {0})")]
    Rejected(String),
    /// No version or cipher suite in common.
    #[error(
        "the client and this listener have no protocol version or cipher suite in common (ssl.enabled.protocols, \
         ssl.cipher.suites): {0}"
    )]
    NothingInCommon(String),
    /// The certificate's name is none that a rule makes a user of.
    #[error(transparent)]
    Unmapped(#[from] NoMatchingRule),
    /// Anything else that the protocol does not allow.
    #[error("{0}")]
    Protocol(String),
}

impl HandshakeFault {
    /// Whether the client was turned away by what its certificate says, or because it has shown none: a login that failed.
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

impl From<&Error> for HandshakeFault {
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

fn of_certificate(error: &CertificateError) -> HandshakeFault {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => HandshakeFault::UnknownIssuer,
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => HandshakeFault::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            HandshakeFault::NotValidYet
        }
        CertificateError::Revoked => HandshakeFault::Revoked,
        CertificateError::UnknownRevocationStatus => HandshakeFault::NoRevocationList,
        CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. } => {
            HandshakeFault::ExpiredRevocationList
        }
        CertificateError::Other(other) => HandshakeFault::Certificate(other.0.to_string()),
        other => HandshakeFault::Certificate(other.to_string()),
    }
}

fn of_alert(alert: AlertDescription) -> HandshakeFault {
    match alert {
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::UnknownCA => HandshakeFault::Rejected(format!("{alert:?}")),
        AlertDescription::HandshakeFailure
        | AlertDescription::ProtocolVersion
        | AlertDescription::InsufficientSecurity => {
            HandshakeFault::NothingInCommon(format!("alert {alert:?}"))
        }
        other => HandshakeFault::Protocol(format!("the client sends alert {other:?}")),
    }
}
