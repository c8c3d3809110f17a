//! What a server knows of a password.

use std::fmt;
use std::num::NonZeroU32;

use ring::hmac;
use subtle::ConstantTimeEq;

use super::client::ITERATIONS_MIN;
use super::hash::Hash;

/// Maximum iterations of a credential, as in Kafka's controllers.
pub const ITERATIONS_MAX: u32 = 16_384;

/// A user's credential. It verifies a password, and cannot be used to log in.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The salt.
    pub salt: Vec<u8>,
    /// The digest of the client's key.
    pub stored_key: Vec<u8>,
    /// The key that the server signs with.
    pub server_key: Vec<u8>,
    /// How often the password was hashed.
    pub iterations: u32,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Credential {
    /// Of a password. Takes as long as there are iterations.
    pub fn of_password(hash: Hash, password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Credential {
        let salted = hash.salted(password, &salt, iterations);
        Credential::of_salted_password(hash, &salted, salt, iterations.get())
    }

    /// Of a password that is hashed already.
    pub fn of_salted_password(hash: Hash, salted: &[u8], salt: Vec<u8>, iterations: u32) -> Credential {
        let salted = hash.key(salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let server_key = hmac::sign(&salted, b"Server Key");
        Credential {
            salt,
            stored_key: hash.digest(client_key.as_ref()).as_ref().to_vec(),
            server_key: server_key.as_ref().to_vec(),
            iterations,
        }
    }

    /// Whether this password made it. Takes as long as there are iterations: no more than a server stores.
    pub fn is_of(&self, hash: Hash, password: &str) -> bool {
        let Some(iterations) = NonZeroU32::new(self.iterations).filter(|known| known.get() <= ITERATIONS_MAX)
        else {
            return false;
        };
        let made = Credential::of_password(hash, password, self.salt.clone(), iterations);
        made.stored_key.ct_eq(&self.stored_key).into()
    }

    /// What a user who does not exist is shown: the same salt at every attempt, in the form that Kafka's tools give one,
    /// and keys that nothing matches. `secret` is known to no client.
    pub fn decoy(hash: Hash, user: &str, secret: &[u8]) -> Credential {
        const SALT_LEN: usize = 26;
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let key = hmac::Key::new(hmac::HMAC_SHA512, secret);
        let made = hmac::sign(&key, format!("{}:{user}", hash.code()).as_bytes());
        let digit = |byte: &u8| DIGITS[usize::from(*byte) % DIGITS.len()];
        Credential {
            salt: made.as_ref().iter().take(SALT_LEN).map(digit).collect(),
            stored_key: made.as_ref()[..hash.len()].to_vec(),
            server_key: made.as_ref()[..hash.len()].to_vec(),
            iterations: ITERATIONS_MIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_of_its_password_only() {
        for hash in [Hash::Sha256, Hash::Sha512] {
            let iterations = NonZeroU32::new(4096).expect("not zero");
            let mut credential = Credential::of_password(hash, "pencil", b"salt".to_vec(), iterations);
            assert!(credential.is_of(hash, "pencil"));
            for wrong in ["", "Pencil", "pencil "] {
                assert!(!credential.is_of(hash, wrong), "{wrong}");
            }
            credential.salt.push(0);
            assert!(!credential.is_of(hash, "pencil"));
        }
        assert!(!Credential::decoy(Hash::Sha512, "nobody", b"secret").is_of(Hash::Sha512, ""));
    }

    #[test]
    fn a_number_of_iterations_that_nobody_stores_costs_nothing() {
        for iterations in [0, ITERATIONS_MAX + 1, u32::MAX] {
            let credential =
                Credential { salt: Vec::new(), stored_key: vec![0; 32], server_key: vec![0; 32], iterations };
            assert!(!credential.is_of(Hash::Sha256, "x"), "{iterations}");
        }
    }
}
