//! Errors of a peer's certificate, in rustls's terms.

use std::sync::Arc;

use rustls::{CertificateError, Error, OtherError};

/// A certificate unfit for its use.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UnfitCertificate(String);

pub(super) fn unfit(why: String) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(UnfitCertificate(why)))))
}

/// The rustls error of a webpki error.
pub(super) fn of_webpki(error: webpki::Error) -> Error {
    Error::InvalidCertificate(match error {
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        webpki::Error::CertExpired { .. } => CertificateError::Expired,
        webpki::Error::CertNotValidYet { .. } => CertificateError::NotValidYet,
        webpki::Error::CertRevoked => CertificateError::Revoked,
        webpki::Error::UnknownRevocationStatus => CertificateError::UnknownRevocationStatus,
        webpki::Error::CrlExpired { .. } => CertificateError::ExpiredRevocationList,
        webpki::Error::BadDer => CertificateError::BadEncoding,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    })
}
