//! SCRAM credentials as stored by a server.

use std::fmt;
use std::num::NonZeroU32;

use ring::hmac;
use subtle::ConstantTimeEq;

use super::client::ITERATIONS_MIN;
use super::hash::Hash;

/// Maximum iterations of a credential, as in Kafka's controllers.
pub const ITERATIONS_MAX: u32 = 16_384;

/// A user's credential, which verifies a password but does not permit a login.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The random salt of the password hash.
    pub salt: Vec<u8>,
    /// The digest of the client key.
    pub stored_key: Vec<u8>,
    /// The server's signing key.
    pub server_key: Vec<u8>,
    /// The number of hash iterations.
    pub iterations: u32,
}

/// The form of credentials for unknown users, which resembles credentials of existing users. Salts and
/// iterations of the latter depend on the tool that created the credentials.
pub struct DecoyForm {
    /// A secret unknown to clients, identical on all brokers that a client may ask.
    secret: Vec<u8>,
    salt_len: usize,
    /// True if salts consist of letters and digits, as from Kafka's tools.
    is_text: bool,
    iterations: u32,
}

impl DecoyForm {
    /// The form of a user's credential, or of Kafka's tools if `None`.
    pub fn like(credential: Option<&Credential>, secret: Vec<u8>) -> DecoyForm {
        const KAFKAS_SALT_LEN: usize = 26;
        const SALT_LEN_MAX: usize = 1024;
        let usable = credential.filter(|known| known.iterations >= ITERATIONS_MIN);
        DecoyForm {
            secret,
            salt_len: usable.map_or(KAFKAS_SALT_LEN, |known| known.salt.len().min(SALT_LEN_MAX)),
            is_text: usable.is_none_or(|known| known.salt.iter().all(u8::is_ascii_alphanumeric)),
            iterations: usable.map_or(ITERATIONS_MIN, |known| known.iterations),
        }
    }
}

impl fmt::Debug for DecoyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecoyForm").field("salt_len", &self.salt_len).finish_non_exhaustive()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Credential {
    /// Creates a credential from a password. The time is proportional to the iterations.
    pub fn of_password(hash: Hash, password: &str, salt: Vec<u8>, iterations: NonZeroU32) -> Credential {
        let salted = hash.salted(password, &salt, iterations);
        Credential::of_salted_password(hash, &salted, salt, iterations.get())
    }

    /// Creates a credential from a salted password.
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

    /// True if this password matches. The time is proportional to the iterations, which are at most
    /// [`ITERATIONS_MAX`].
    pub fn is_of(&self, hash: Hash, password: &str) -> bool {
        let Some(iterations) = NonZeroU32::new(self.iterations).filter(|known| known.get() <= ITERATIONS_MAX)
        else {
            return false;
        };
        let made = Credential::of_password(hash, password, self.salt.clone(), iterations);
        made.stored_key.ct_eq(&self.stored_key).into()
    }

    /// The credential shown for an unknown user: the same salt at every attempt, and keys that match no
    /// password.
    pub fn decoy(hash: Hash, user: &str, form: &DecoyForm) -> Credential {
        const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let key = hmac::Key::new(hmac::HMAC_SHA512, &form.secret);
        let block = |at: usize| hmac::sign(&key, format!("{}:{at}:{user}", hash.code()).as_bytes());
        let made = block(0);
        let salt =
            (1..=form.salt_len.div_ceil(made.as_ref().len())).flat_map(|at| block(at).as_ref().to_vec());
        let salt = salt.take(form.salt_len).map(|byte| match form.is_text {
            true => DIGITS[usize::from(byte) % DIGITS.len()],
            false => byte,
        });
        Credential {
            salt: salt.collect(),
            stored_key: made.as_ref()[..hash.len()].to_vec(),
            server_key: made.as_ref()[..hash.len()].to_vec(),
            iterations: form.iterations,
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
        let form = DecoyForm::like(None, b"secret".to_vec());
        assert!(!Credential::decoy(Hash::Sha512, "nobody", &form).is_of(Hash::Sha512, ""));
    }

    #[test]
    fn decoys_have_the_form_of_a_users_credential() {
        let known = |salt: &[u8], iterations| Credential {
            salt: salt.to_vec(),
            stored_key: Vec::new(),
            server_key: Vec::new(),
            iterations,
        };
        let decoy = |user: &str, like: Option<&Credential>| {
            Credential::decoy(Hash::Sha256, user, &DecoyForm::like(like, b"secret".to_vec()))
        };
        let text = decoy("a", Some(&known(b"0a1b2c", 8192)));
        assert_eq!((text.salt.len(), text.iterations), (6, 8192));
        assert!(text.salt.iter().all(u8::is_ascii_alphanumeric));
        let noise = decoy("a", Some(&known(&[0xff; 100], 4096)));
        assert_eq!(noise.salt.len(), 100);
        assert!(!noise.salt.iter().all(u8::is_ascii_alphanumeric));
        assert_eq!(decoy("a", None).salt.len(), 26);
        assert!(decoy("a", None) == decoy("a", None) && decoy("a", None).salt != decoy("b", None).salt);
        assert_eq!(decoy("a", Some(&known(b"x", 1))).iterations, ITERATIONS_MIN, "no client takes less");
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
