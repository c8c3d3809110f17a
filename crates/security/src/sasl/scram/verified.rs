//! A cache of recently verified passwords, so that a client with a password in each request does not cost
//! thousands of hashes each time.
//!
//! The cache holds no passwords, only hashes under a key that lives as long as the process, with the
//! credential of each verification. After a change of the credential, the password must be verified again.

use std::collections::BTreeMap;

use ring::hmac;

use super::Credential;

/// The last verified password of each user. The number of users is bounded; the least recently used one gives
/// way.
pub struct VerifiedPasswords {
    key: hmac::Key,
    users_max: usize,
    users: BTreeMap<String, VerifiedPassword>,
    /// Counter of uses, for the eviction order.
    uses: u64,
}

struct VerifiedPassword {
    credential: Credential,
    hashed: hmac::Tag,
    used: u64,
}

impl VerifiedPasswords {
    /// Creates an empty cache for `users_max` users. The secret must be unique to this cache.
    pub fn new(secret: &[u8; 32], users_max: usize) -> VerifiedPasswords {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        VerifiedPasswords { key, users_max, users: BTreeMap::new(), uses: 0 }
    }

    /// True if this password was verified against one of the user's current credentials.
    pub fn contains<'a>(
        &mut self,
        user: &str,
        password: &str,
        mut credentials: impl Iterator<Item = &'a Credential>,
    ) -> bool {
        let Some(verified) = self.users.get_mut(user) else { return false };
        if !credentials.any(|credential| *credential == verified.credential) {
            self.users.remove(user);
            return false;
        }
        let is_same = hmac::verify(&self.key, password.as_bytes(), verified.hashed.as_ref()).is_ok();
        if is_same {
            self.uses += 1;
            verified.used = self.uses;
        }
        is_same
    }

    /// Adds a password that was verified against this credential.
    pub fn insert(&mut self, user: &str, password: &str, credential: Credential) {
        if self.users.len() >= self.users_max && !self.users.contains_key(user) {
            let oldest = self.users.iter().min_by_key(|(_, verified)| verified.used);
            if let Some(oldest) = oldest.map(|(user, _)| user.clone()) {
                self.users.remove(&oldest);
            }
        }
        self.uses += 1;
        let hashed = hmac::sign(&self.key, password.as_bytes());
        self.users.insert(user.to_owned(), VerifiedPassword { credential, hashed, used: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(mark: u8) -> Credential {
        Credential { salt: vec![mark], stored_key: vec![mark], server_key: vec![mark], iterations: 4096 }
    }

    #[test]
    fn a_password_counts_while_the_credential_is_the_users() {
        let mut known = VerifiedPasswords::new(&[7; 32], 10);
        let (old, new) = (credential(1), credential(2));
        known.insert("ann", "secret", old.clone());
        assert!(known.contains("ann", "secret", [&new, &old].into_iter()));
        assert!(!known.contains("ann", "Secret", [&old].into_iter()));
        assert!(!known.contains("bob", "secret", [&old].into_iter()));
        assert!(!known.contains("ann", "secret", [&new].into_iter()), "the password was changed");
        assert!(!known.contains("ann", "secret", [&old].into_iter()), "it is forgotten");
        known.insert("ann", "secret", old);
        assert!(!known.contains("ann", "secret", [].into_iter()), "the user was removed");
    }

    #[test]
    fn the_number_of_users_is_bounded() {
        let mut known = VerifiedPasswords::new(&[7; 32], 2);
        let one = credential(1);
        known.insert("ann", "a", one.clone());
        known.insert("bob", "b", one.clone());
        assert!(known.contains("ann", "a", [&one].into_iter()));
        known.insert("ann", "a", one.clone());
        known.insert("eve", "e", one.clone());
        assert!(!known.contains("bob", "b", [&one].into_iter()), "he was not asked for longest");
        assert!(
            known.contains("ann", "a", [&one].into_iter()) && known.contains("eve", "e", [&one].into_iter())
        );
        assert_eq!(known.users.len(), 2);
    }
}
