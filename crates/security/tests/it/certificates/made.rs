//! Certificates of any form, also those that no tool makes: each field and extension is written here, and
//! signed with ECDSA.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};

use crate::der::element;

const SEQUENCE: u8 = 0x30;
const ECDSA_SHA256: [u8; 8] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
const EC_KEY_ON_P256: [u8; 19] =
    [6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const UTF8: u8 = 12;
pub const PRINTABLE: u8 = 19;

/// Bits of a key usage, from the first.
pub const SIGNATURE: u16 = 0x8000;
pub const ENCIPHERMENT: u16 = 0x2000;
pub const CERT_SIGN: u16 = 0x0400;
pub const CRL_SIGN: u16 = 0x0200;

/// Uses of an extended key usage.
pub const SERVER: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
pub const CLIENT: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
pub const CODE: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 3];
pub const ANY: &[u8] = &[0x55, 0x1d, 0x25, 0];

/// When a certificate is valid, around a time that is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    Now,
    NoMore,
    NotYet,
}

/// A certificate to be made. Names are those of keys too, unless another is given.
#[derive(Clone, Debug)]
pub struct Spec {
    pub version: u8,
    pub subject: String,
    pub key: String,
    pub issuer: String,
    pub signer: String,
    pub valid: Validity,
    /// The string type of the issuer's name.
    pub issuer_type: u8,
    pub extensions: Vec<Vec<u8>>,
}

impl Spec {
    /// Signed by itself, of version 3, without extensions.
    pub fn new(name: &str) -> Spec {
        Spec {
            version: 3,
            subject: name.to_owned(),
            key: name.to_owned(),
            issuer: name.to_owned(),
            signer: name.to_owned(),
            valid: Validity::Now,
            issuer_type: UTF8,
            extensions: Vec::new(),
        }
    }

    /// An authority as openssl and keytool make it.
    pub fn authority(name: &str) -> Spec {
        Spec::new(name).basic(Some(true), None).usage(CERT_SIGN | CRL_SIGN)
    }

    pub fn v1(name: &str) -> Spec {
        Spec { version: 1, ..Spec::new(name) }
    }

    pub fn by(mut self, issuer: &str) -> Spec {
        issuer.clone_into(&mut self.issuer);
        issuer.clone_into(&mut self.signer);
        self
    }

    pub fn key(mut self, name: &str) -> Spec {
        name.clone_into(&mut self.key);
        self
    }

    /// Signed with another key than that of the issuer.
    pub fn signer(mut self, name: &str) -> Spec {
        name.clone_into(&mut self.signer);
        self
    }

    pub fn valid(self, valid: Validity) -> Spec {
        Spec { valid, ..self }
    }

    pub fn issuer_type(self, issuer_type: u8) -> Spec {
        Spec { issuer_type, ..self }
    }

    fn extension(mut self, id: &[u8], is_critical: bool, value: &[u8]) -> Spec {
        let critical = if is_critical { element(1, &[0xff]) } else { Vec::new() };
        self.extensions.push(element(SEQUENCE, &[element(6, id), critical, element(4, value)].concat()));
        self
    }

    pub fn basic(self, is_authority: Option<bool>, path_length: Option<u8>) -> Spec {
        let flag = match is_authority {
            Some(true) => element(1, &[0xff]),
            // The default, which DER leaves out.
            Some(false) | None => Vec::new(),
        };
        let length = path_length.map_or_else(Vec::new, |length| element(2, &[length]));
        self.extension(&[0x55, 0x1d, 0x13], true, &element(SEQUENCE, &[flag, length].concat()))
    }

    pub fn usage(self, bits: u16) -> Spec {
        let [first, second] = bits.to_be_bytes();
        let value = if second == 0 {
            vec![u8::try_from(first.trailing_zeros().min(7)).expect("few"), first]
        } else {
            vec![7, first, second]
        };
        self.extension(&[0x55, 0x1d, 0x0f], true, &element(3, &value))
    }

    pub fn uses(self, uses: &[&[u8]]) -> Spec {
        let ids: Vec<u8> = uses.iter().flat_map(|id| element(6, id)).collect();
        self.extension(&[0x55, 0x1d, 0x25], false, &element(SEQUENCE, &ids))
    }

    pub fn policies(self, is_critical: bool) -> Spec {
        let policy = element(SEQUENCE, &element(6, &[0x2a, 3, 4, 5]));
        self.extension(&[0x55, 0x1d, 0x20], is_critical, &element(SEQUENCE, &policy))
    }

    /// An extension that no program knows.
    pub fn unknown(self, is_critical: bool) -> Spec {
        self.extension(&[0x2a, 3, 4, 9], is_critical, &element(5, &[]))
    }

    /// A key usage whose content is no bit string.
    pub fn broken_usage(self) -> Spec {
        self.extension(&[0x55, 0x1d, 0x0f], false, &element(5, &[]))
    }

    /// An extended key usage with a byte behind it.
    pub fn broken_uses(self, id: &[u8]) -> Spec {
        let value = [element(SEQUENCE, &element(6, id)), vec![0]].concat();
        self.extension(&[0x55, 0x1d, 0x25], false, &value)
    }

    /// An authority that says so with a number.
    pub fn broken_basic(self) -> Spec {
        self.extension(&[0x55, 0x1d, 0x13], false, &element(SEQUENCE, &element(4, &[1])))
    }

    /// Each certificate below it must have a policy.
    pub fn demands_policies(self) -> Spec {
        self.extension(&[0x55, 0x1d, 0x24], false, &element(SEQUENCE, &element(0x80, &[0])))
    }

    /// Names in this domain only may be signed.
    pub fn only_domain(self, domain: &str) -> Spec {
        let subtrees = element(0xa0, &element(SEQUENCE, &element(0x82, domain.as_bytes())));
        self.extension(&[0x55, 0x1d, 0x1e], true, &element(SEQUENCE, &subtrees))
    }

    pub fn host(self, host: &str) -> Spec {
        self.extension(&[0x55, 0x1d, 0x11], false, &element(SEQUENCE, &element(0x82, host.as_bytes())))
    }

    /// Netscape's type of a certificate: 0x80 for a client, 0x40 for a server.
    pub fn netscape_type(self, bits: u8) -> Spec {
        let id = [0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 1, 1];
        self.extension(&id, false, &element(3, &[u8::try_from(bits.trailing_zeros()).expect("few"), bits]))
    }

    /// The certificate, which is the same however often it is asked for.
    pub fn der(&self) -> Vec<u8> {
        static MADE: LazyLock<Mutex<BTreeMap<String, Vec<u8>>>> = LazyLock::new(Mutex::default);
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(format!("{self:?}")).or_insert_with(|| self.sign()).clone()
    }

    fn sign(&self) -> Vec<u8> {
        let algorithm = element(SEQUENCE, &element(6, &ECDSA_SHA256));
        let version = match self.version {
            1 => Vec::new(),
            version => element(0xa0, &element(2, &[version - 1])),
        };
        let serial = element(2, &[1]);
        let (from, until) = match self.valid {
            Validity::Now => ("200101000000Z", "491231235959Z"),
            Validity::NoMore => ("200101000000Z", "210101000000Z"),
            Validity::NotYet => ("480101000000Z", "491231235959Z"),
        };
        let validity = [element(0x17, from.as_bytes()), element(0x17, until.as_bytes())].concat();
        let point = key(&self.key, |(key, _)| key.public_key().as_ref().to_vec());
        let public =
            [element(SEQUENCE, &EC_KEY_ON_P256), element(3, &[&[0], point.as_slice()].concat())].concat();
        let extensions = if self.extensions.is_empty() {
            Vec::new()
        } else {
            element(0xa3, &element(SEQUENCE, &self.extensions.concat()))
        };
        let body = [
            version,
            serial,
            algorithm.clone(),
            name(&self.issuer, self.issuer_type),
            element(SEQUENCE, &validity),
            name(&self.subject, UTF8),
            element(SEQUENCE, &public),
            extensions,
        ];
        let body = element(SEQUENCE, &body.concat());
        let signature = key(&self.signer, |(key, _)| {
            key.sign(&SystemRandom::new(), &body).expect("a signature").as_ref().to_vec()
        });
        element(SEQUENCE, &[body, algorithm, element(3, &[&[0], signature.as_slice()].concat())].concat())
    }
}

fn name(common: &str, string_type: u8) -> Vec<u8> {
    let pair = [element(6, &[0x55, 4, 3]), element(string_type, common.as_bytes())].concat();
    element(SEQUENCE, &element(0x31, &element(SEQUENCE, &pair)))
}

/// A key, and its PKCS8.
type Key = (EcdsaKeyPair, Vec<u8>);

/// The private key of a name, in PKCS8.
pub fn private(name: &str) -> Vec<u8> {
    key(name, |(_, document)| document.clone())
}

/// The key of a name: the same in all tests of a run.
fn key<T>(name: &str, with: impl FnOnce(&Key) -> T) -> T {
    static KEYS: LazyLock<Mutex<BTreeMap<String, Key>>> = LazyLock::new(Mutex::default);
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    with(keys.entry(name.to_owned()).or_insert_with(|| {
        let (signing, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(signing, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(signing, document.as_ref(), &random).expect("a key");
        (key, document.as_ref().to_vec())
    }))
}
