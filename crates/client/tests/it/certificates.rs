//! Certificates made for a test: an authority, and its signatures.

use std::path::{Path, PathBuf};

use p12_keystore::{Certificate, KeyStore, KeyStoreEntry, PrivateKey, PrivateKeyChain};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What every password of a test is.
pub const PASSWORD: &str = "changeit";

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
    pub pem: String,
}

/// A certificate and its key.
pub struct SignedCertificate {
    der: Vec<u8>,
    key: Vec<u8>,
    pub pem: String,
    pub key_pem: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Now,
    NoMore,
    NotYet,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let (der, pem) = (certificate.der().to_vec(), certificate.pem());
        Authority { issuer: Issuer::new(params, key), der, pem }
    }

    pub fn sign(&self, names: &[&str], valid: Validity) -> SignedCertificate {
        let params = params(names, valid);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        SignedCertificate::of(&certificate, &key)
    }

    /// A truststore in PKCS12 with this authority.
    pub fn write_truststore(&self, path: &Path) {
        let mut store = KeyStore::new();
        store.add_entry("ca", KeyStoreEntry::Certificate(Certificate::from_der(&self.der).expect("X.509")));
        write(path, &store.writer(PASSWORD).write().expect("a store"));
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.der.clone().into()
    }
}

fn params(names: &[&str], valid: Validity) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("host names");
    params.distinguished_name.push(DnType::CommonName, "a broker or client of a test");
    match valid {
        Validity::Now => {}
        Validity::NoMore => params.not_after = date_time_ymd(2001, 1, 1),
        Validity::NotYet => params.not_before = date_time_ymd(2999, 1, 1),
    }
    params
}

impl SignedCertificate {
    fn of(certificate: &rcgen::Certificate, key: &KeyPair) -> SignedCertificate {
        SignedCertificate {
            der: certificate.der().to_vec(),
            key: key.serialize_der(),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// A self-signed certificate that may sign others, as `openssl req -x509` creates it.
    pub fn by_itself(names: &[&str]) -> SignedCertificate {
        let mut params = params(names, Validity::Now);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        SignedCertificate::of(&params.self_signed(&key).expect("a certificate"), &key)
    }

    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.der.clone().into()]
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone().into())
    }

    /// The key in PEM under the password.
    pub fn encrypted_key_pem(&self) -> String {
        let key = pkcs8::PrivateKeyInfoRef::try_from(self.key.as_slice()).expect("PKCS8");
        let encrypted =
            key.encrypt_with_rng(&mut p12_keystore::rand::rng(), PASSWORD).expect("an encrypted key");
        let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, encrypted.as_bytes());
        format!("-----BEGIN ENCRYPTED PRIVATE KEY-----\n{base64}\n-----END ENCRYPTED PRIVATE KEY-----\n")
    }

    /// A keystore in PKCS12.
    pub fn write_keystore(&self, path: &Path) {
        let mut store = KeyStore::new();
        let key = PrivateKey::from_der(&self.key).expect("PKCS8");
        let chain = [Certificate::from_der(&self.der).expect("X.509")];
        store.add_entry("me", KeyStoreEntry::PrivateKeyChain(PrivateKeyChain::new("me", key, chain)));
        write(path, &store.writer(PASSWORD).write().expect("a store"));
    }
}

/// Writes a file, and gives its path as a setting has it.
pub fn write(path: &Path, content: &[u8]) -> String {
    std::fs::write(path, content).expect("written");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// A path in a directory, as a setting has it.
pub fn path(directory: &tempfile::TempDir, name: &str) -> (PathBuf, String) {
    let path = directory.path().join(name);
    let text = path.to_str().expect("a path in UTF-8").to_owned();
    (path, text)
}
