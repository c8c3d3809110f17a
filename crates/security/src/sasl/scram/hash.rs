//! Hash functions of SCRAM mechanisms.

use std::num::NonZeroU32;

use ring::{digest, hmac, pbkdf2};

/// The hash function of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    /// The name of the mechanism in SaslHandshake.
    pub const fn mechanism(self) -> &'static str {
        match self {
            Hash::Sha256 => "SCRAM-SHA-256",
            Hash::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// The hash function of a mechanism's name, case-sensitive as on the wire.
    pub(super) fn from_mechanism(name: &str) -> Option<Hash> {
        [Hash::Sha256, Hash::Sha512].into_iter().find(|hash| hash.mechanism() == name)
    }

    /// Kafka's code in requests and metadata records.
    pub const fn code(self) -> i8 {
        match self {
            Hash::Sha256 => 1,
            Hash::Sha512 => 2,
        }
    }

    /// The hash function of a code.
    pub fn from_code(code: i8) -> Option<Hash> {
        [Hash::Sha256, Hash::Sha512].into_iter().find(|hash| hash.code() == code)
    }

    pub(super) fn key(self, bytes: &[u8]) -> hmac::Key {
        let algorithm = match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::Key::new(algorithm, bytes)
    }

    pub(super) fn digest(self, bytes: &[u8]) -> digest::Digest {
        digest::digest(self.algorithm(), bytes)
    }

    /// The digest length in bytes.
    pub(crate) fn len(self) -> usize {
        self.algorithm().output_len()
    }

    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    /// The salted password (PBKDF2). The time is proportional to the iterations.
    pub fn salted(self, password: &str, salt: &[u8], iterations: NonZeroU32) -> Vec<u8> {
        let algorithm = match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut salted = vec![0; self.len()];
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
        salted
    }
}
