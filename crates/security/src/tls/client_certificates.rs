//! Checks client certificates as Java does: one must lead to a trusted certificate, or be one. Those that lead to one must not be
//! revoked, where there are revocation lists.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};

use super::revocation::{Holder, Revocation};
use crate::setting::InvalidSetting;
use crate::stores::Trusted;

/// rustls' own check, and the trusted certificates that a client may show themselves.
#[derive(Debug)]
struct OwnOrSigned {
    signed: Arc<dyn ClientCertVerifier>,
    own: Vec<CertificateDer<'static>>,
    revocation: Option<Arc<Revocation>>,
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The check for `ssl.client.auth=requested` or `required`.
pub(super) fn verifier(
    roots: RootCertStore,
    trusted: Option<&Trusted>,
    revocation: Option<Arc<Revocation>>,
    is_required: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, InvalidSetting> {
    let roots = Arc::new(roots);
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
    let builder = if is_required { builder } else { builder.allow_unauthenticated() };
    let signed = builder.build().map_err(|error| {
        InvalidSetting::missing("ssl.truststore.location", format!("certificates to trust ({error}),"))
    })?;
    let own = trusted.map(|trusted| trusted.certificates.clone()).unwrap_or_default();
    let algorithms = provider.signature_verification_algorithms;
    Ok(Arc::new(OwnOrSigned { signed, own, revocation, roots, algorithms }))
}

impl ClientCertVerifier for OwnOrSigned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if self.own.iter().any(|own| **own == **end_entity) {
            return Ok(ClientCertVerified::assertion());
        }
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        if let Some(revocation) = &self.revocation {
            let (roots, algorithms) = (&self.roots, &self.algorithms);
            revocation.check(Holder::Client, end_entity, intermediates, roots, algorithms, now)?;
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
