//! The keys of an identity provider, as listed in its JWKS document. Keys of other types or for other uses
//! are skipped, since a provider may publish them too.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use super::algorithm::Algorithm;

/// Maximum number of keys, more than a real provider has.
const KEYS_MAX: usize = 200;

/// An invalid JWKS document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetFault {
    /// Not JSON, or not in the JWKS format.
    #[error("it is not a JWKS document ({0})")]
    Form(String),
    /// No key that can verify a token.
    #[error("it has no key for signatures (RSA, EC on P-256 and P-384, Ed25519)")]
    Empty,
    /// Too many keys.
    #[error("it has {0} keys, more than {KEYS_MAX}")]
    TooMany(usize),
}

/// The keys of an identity provider.
#[derive(Clone, Default)]
pub struct KeySet(Vec<Key>);

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

#[derive(Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: Option<String>,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// The algorithm of the curve, and the encoded point.
    Curve(Algorithm, Vec<u8>),
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Entry {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses a JWKS document.
    pub fn parse(document: &[u8]) -> Result<KeySet, KeySetFault> {
        let Document { keys } =
            serde_json::from_slice(document).map_err(|error| KeySetFault::Form(error.to_string()))?;
        if keys.len() > KEYS_MAX {
            return Err(KeySetFault::TooMany(keys.len()));
        }
        let keys: Vec<Key> = keys.into_iter().filter_map(key).collect();
        if keys.is_empty() { Err(KeySetFault::Empty) } else { Ok(KeySet(keys)) }
    }

    /// The keys that may have signed a token with this optional key id.
    pub(super) fn candidates<'a>(&'a self, id: Option<&'a str>) -> impl Iterator<Item = &'a Key> {
        // As in Kafka, a token with a key id matches no key without one.
        self.0.iter().filter(move |key| id.is_none() || key.id.as_deref() == id)
    }
}

fn key(entry: serde_json::Value) -> Option<Key> {
    let entry: Entry = serde_json::from_value(entry).ok()?;
    let verifies = entry.key_ops.is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !verifies || entry.usage.is_some_and(|usage| usage != "sig") {
        return None;
    }
    let bytes = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?.trim_end_matches('=')).ok();
    let curve = entry.crv.as_deref();
    let material = match entry.kty.as_str() {
        "RSA" => {
            let trimmed = |bytes: Vec<u8>| bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            Material::Rsa { n: trimmed(bytes(&entry.n)?), e: trimmed(bytes(&entry.e)?) }
        }
        "EC" => {
            let (algorithm, size) = match curve? {
                "P-256" => (Algorithm::Es256, 32),
                "P-384" => (Algorithm::Es384, 48),
                _ => return None,
            };
            let (x, y) = (bytes(&entry.x)?, bytes(&entry.y)?);
            if x.len() != size || y.len() != size {
                return None;
            }
            Material::Curve(algorithm, [&[4], x.as_slice(), y.as_slice()].concat())
        }
        "OKP" if curve == Some("Ed25519") => Material::Curve(Algorithm::EdDsa, bytes(&entry.x)?),
        _ => return None,
    };
    Some(Key { id: entry.kid, algorithm: entry.alg, material })
}

impl Key {
    /// True if this key made the signature of `message`, with an algorithm that suits the key.
    pub(super) fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if self.algorithm.as_deref().is_some_and(|name| name != algorithm.name()) {
            return false;
        }
        match &self.material {
            Material::Rsa { n, e } => algorithm
                .rsa()
                .is_some_and(|rsa| RsaPublicKeyComponents { n, e }.verify(rsa, message, signature).is_ok()),
            Material::Curve(own, point) => algorithm.curve().is_some_and(|curve| {
                *own == algorithm && UnparsedPublicKey::new(curve, point).verify(message, signature).is_ok()
            }),
        }
    }
}
