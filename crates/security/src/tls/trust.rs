//! Trusted certificates, and checks of a peer's chain: clients' chains by brokers and controllers, brokers'
//! chains by clients.
//!
//! As in Java, a trusted certificate is accepted unchanged, and any other certificate must lead to an
//! authority. Not every trusted certificate is an authority: an imported client certificate, trusted for that
//! client alone, cannot sign others.
//!
//! webpki checks chains. webpki refuses certificates of version 1, authorities and critical policies at the
//! end of a chain, which Java accepts. Such chains are checked in this file, and refused if the chain has
//! name constraints or there are revocation lists.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerMisbehaved, RootCertStore,
    SignatureScheme,
};
use webpki::{EndEntityCert, RawPublicKeyEntity};

use super::Revocation;
use super::certificate::{Certificate, CertificateHolder, KeyUsageCheck};
use super::error::{of_webpki, unfit};
use crate::der::{self, Elements};
use crate::names::distinguished_name;
use crate::setting::InvalidSetting;
use crate::stores::TrustedCertificates;

/// Maximum number of certificates besides the peer's own, more than a real chain has.
const SENT_MAX: usize = 16;
/// Maximum authorities between the end of a chain and a trusted certificate, as in webpki.
const BETWEEN_MAX: u32 = 6;
const TRUSTSTORE: &str = "ssl.truststore.location";

/// The trusted certificates of one listener or client.
#[derive(Debug)]
pub struct Trust {
    /// Certificates that may sign others.
    authorities: RootCertStore,
    /// The same certificates, for the chains checked in this file.
    signers: Vec<Signer>,
    /// All trusted certificates, each accepted unchanged.
    own: Vec<CertificateDer<'static>>,
    /// Subjects of all trusted certificates, by which a client selects its own certificate.
    subjects: Vec<DistinguishedName>,
    revocation: Option<Arc<Revocation>>,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Signer {
    subject: Vec<u8>,
    key: SubjectPublicKeyInfoDer<'static>,
    constrains_names: bool,
}

impl Trust {
    /// Reads the certificates of a setting, or the system's authorities if `None`.
    pub fn new(
        trusted: Option<&TrustedCertificates>,
        revocation: Option<Arc<Revocation>>,
        provider: &CryptoProvider,
    ) -> Result<Trust, InvalidSetting> {
        let mut trust = Trust {
            authorities: RootCertStore::empty(),
            signers: Vec::new(),
            own: Vec::new(),
            subjects: Vec::new(),
            revocation,
            algorithms: provider.signature_verification_algorithms,
        };
        match trusted {
            Some(trusted) => {
                for (at, certificate) in trusted.certificates.iter().enumerate() {
                    if !trust.add(certificate) {
                        let expected = format!(
                            "certificates that can be read, but number {} in it is malformed",
                            at + 1
                        );
                        return Err(InvalidSetting::new(trusted.setting, &trusted.value, expected));
                    }
                }
                trust.own.clone_from(&trusted.certificates);
            }
            None => {
                // Unreadable system certificates are skipped.
                for certificate in rustls_native_certs::load_native_certs().certs {
                    trust.add(&certificate);
                }
                if trust.signers.is_empty() {
                    let expected = "a file of certificates to trust, of which this system has none,";
                    return Err(InvalidSetting::missing(TRUSTSTORE, expected));
                }
            }
        }
        Ok(trust)
    }

    /// Adds a certificate; false if it is malformed.
    fn add(&mut self, certificate: &CertificateDer<'_>) -> bool {
        let Some(read) = Certificate::of(certificate) else { return false };
        let subject = read.0.subject().as_raw();
        self.subjects.push(DistinguishedName::from(subject.to_vec()));
        if read.may_sign_if_trusted() {
            self.signers.push(Signer {
                subject: subject.to_vec(),
                key: read.0.public_key().raw.to_vec().into(),
                constrains_names: read.constrains_names(),
            });
            if let Err(error) = self.authorities.add(certificate.clone().into_owned()) {
                let name = distinguished_name(subject).unwrap_or_default();
                tracing::warn!(subject = name, %error, "A trusted authority signs only certificates of version 1");
            }
        }
        true
    }

    /// The subjects of the trusted certificates, sent to clients.
    pub fn subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    /// Checks a peer's certificate, with the other certificates that the peer sent.
    pub fn check(
        &self,
        holder: CertificateHolder,
        end: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.own.iter().any(|own| **own == **end) {
            return Ok(());
        }
        let read = Certificate::of(end).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        read.check_use(holder)?;
        if sent.len() > SENT_MAX {
            return Err(unfit(format!("more than {SENT_MAX} certificates were sent with it")));
        }
        // webpki ignores a policy requirement that is not critical.
        if read.demands_policies() {
            return Err(unfit("it demands policies, which are not checked".to_owned()));
        }
        let is_authority = |der: &&CertificateDer<'_>| {
            Certificate::of(der).is_some_and(|read| read.may_sign() && !read.demands_policies())
        };
        let sent: Vec<CertificateDer<'_>> = sent.iter().filter(is_authority).cloned().collect();
        if !read.is_usual_end() {
            return self.check_unusual(holder, end, &sent, now);
        }
        let parsed = EndEntityCert::try_from(end).map_err(of_webpki)?;
        parsed
            .verify_for_usage(
                self.algorithms.all,
                &self.authorities.roots,
                &sent,
                now,
                KeyUsageCheck(holder),
                None,
                None,
            )
            .map_err(|error| self.explained(&read, of_webpki(error)))?;
        if let Some(revocation) = &self.revocation {
            revocation.check(holder, end, &sent, &self.authorities, &self.algorithms, now)?;
        }
        Ok(())
    }

    /// Checks a chain whose end certificate webpki refuses. `sent` holds authorities without policy
    /// requirements.
    fn check_unusual(
        &self,
        holder: CertificateHolder,
        end: &CertificateDer<'_>,
        sent: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        if self.revocation.is_some() {
            return Err(Error::InvalidCertificate(CertificateError::UnknownRevocationStatus));
        }
        let unreadable = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let authorities: Vec<Certificate<'_>> = sent.iter().filter_map(|der| Certificate::of(der)).collect();
        let (mut read, mut der) = (Certificate::of(end).ok_or_else(unreadable)?, end);
        let mut is_used = vec![false; authorities.len()];
        // `between` counts the authorities between the end certificate and `read`.
        for between in 0..=BETWEEN_MAX {
            read.check_time(now)?;
            if !read.has_only_known_extensions() {
                return Err(unfit("it has a critical extension that is unknown".to_owned()));
            }
            let issuer = read.0.issuer().as_raw();
            let signs = |signer: &&Signer| {
                signer.subject == issuer
                    && !signer.constrains_names
                    && self.is_signed(der, &read, &signer.key)
            };
            if self.signers.iter().any(|signer| signs(&signer)) {
                return Ok(());
            }
            let next = authorities.iter().enumerate().find(|(at, authority)| {
                let is_long_enough = authority.path_length().is_none_or(|length| between <= length);
                let key = SubjectPublicKeyInfoDer::from(authority.0.public_key().raw);
                !is_used[*at]
                    && authority.0.subject().as_raw() == issuer
                    && is_long_enough
                    && !authority.constrains_names()
                    && authority.is_for(holder)
                    && self.is_signed(der, &read, &key)
            });
            let Some((at, _)) = next else { break };
            is_used[at] = true;
            (read, der) = (Certificate::of(&sent[at]).ok_or_else(unreadable)?, &sent[at]);
        }
        let end = Certificate::of(end).ok_or_else(unreadable)?;
        Err(self.explained(&end, Error::InvalidCertificate(CertificateError::UnknownIssuer)))
    }

    fn is_signed(&self, der: &[u8], read: &Certificate<'_>, key: &SubjectPublicKeyInfoDer<'_>) -> bool {
        let parts = der::only(der, der::SEQUENCE).map(Elements);
        let Some(algorithm) = parts.and_then(|mut parts| parts.nth(1)) else { return false };
        let Ok(key) = RawPublicKeyEntity::try_from(key) else { return false };
        let certificate = &read.0;
        certificate.signature_algorithm == certificate.tbs_certificate.signature
            && self.algorithms.all.iter().any(|known| {
                known.signature_alg_id().as_ref() == algorithm.content
                    && key
                        .verify_signature(
                            *known,
                            certificate.tbs_certificate.as_ref(),
                            &certificate.signature_value.data,
                        )
                        .is_ok()
            })
    }

    /// Replaces the error if the issuer is trusted, but is not an authority.
    fn explained(&self, read: &Certificate<'_>, error: Error) -> Error {
        let issuer = read.0.issuer().as_raw();
        let is_unknown = matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let is_trusted = self.subjects.iter().any(|subject| subject.as_ref() == issuer);
        if !is_unknown || !is_trusted || self.signers.iter().any(|signer| signer.subject == issuer) {
            return error;
        }
        let name = distinguished_name(issuer).unwrap_or_default();
        unfit(format!(
            "it is signed by {name}, which is trusted, but is no authority (CA:TRUE, with keyCertSign)"
        ))
    }

    /// Verifies a handshake signature of TLS 1.2.
    pub fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = key(certificate)?;
        let key = RawPublicKeyEntity::try_from(&key).map_err(of_webpki)?;
        let (_, candidates) = self
            .algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signed.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let is_valid =
            candidates.iter().any(|known| key.verify_signature(*known, message, signed.signature()).is_ok());
        if is_valid {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(Error::InvalidCertificate(CertificateError::BadSignature))
        }
    }

    /// Verifies a handshake signature of TLS 1.3.
    pub fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(message, &key(certificate)?, signed, &self.algorithms)
    }

    /// The supported signature schemes.
    pub fn schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

fn key(certificate: &[u8]) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let read =
        Certificate::of(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
    Ok(read.0.public_key().raw.to_vec().into())
}
