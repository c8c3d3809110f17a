//! The own certificate and key, ready for handshakes.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, InconsistentKeys};
use x509_parser::public_key::PublicKey;

use super::certificate::Certificate;
use crate::setting::InvalidSetting;
use crate::stores::Identity;

/// Loads the key, and checks that it matches the certificate, which may be of any version.
pub fn certified(
    identity: &Identity,
    provider: &CryptoProvider,
) -> Result<Arc<SingleCertAndKey>, InvalidSetting> {
    let Identity { chain, key, setting, value, .. } = identity;
    let wrong =
        |why: String| InvalidSetting::new(setting, value, format!("a certificate with its key ({why})"));
    let read = chain
        .first()
        .and_then(|own| Certificate::of(own))
        .ok_or_else(|| wrong("it is malformed".to_owned()))?;
    let public = read.0.public_key();
    let key = provider.key_provider.load_private_key(key.clone_key()).map_err(|error| {
        let Ok(PublicKey::RSA(rsa)) = public.parsed() else { return wrong(error.to_string()) };
        let bits = rsa.key_size();
        let exponent = rsa.try_exponent().map_or_else(|_| "a large one".to_owned(), |exponent| exponent.to_string());
        wrong(format!(
            "its RSA key has {bits} bits, exponent {exponent}, or is damaged; 2048, 3072 or 4096 bits and 65537 can be used, \
             or a key on P-256, P-384 or Ed25519"
        ))
    })?;
    if key.public_key().is_some_and(|own| own.as_ref() != public.raw) {
        return Err(wrong(Error::InconsistentKeys(InconsistentKeys::KeyMismatch).to_string()));
    }
    Ok(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain.clone(), key))))
}
