//! The secret of delegation tokens (KIP-48), as in Kafka: the HMAC of the token id under this secret, in
//! base64, is the password of a SCRAM login.

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::sasl::scram::{Credential, Hash, ITERATIONS_MIN};

const ITERATIONS: NonZeroU32 = NonZeroU32::new(ITERATIONS_MIN).expect("the minimum is not zero");

/// `delegation.token.secret.key`, identical on all nodes of a cluster.
#[derive(Clone, PartialEq, Eq)]
pub struct DelegationTokenSecret(String);

impl fmt::Debug for DelegationTokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::HIDDEN)
    }
}

impl DelegationTokenSecret {
    /// Creates a secret; none if the text is empty.
    pub fn new(text: impl Into<String>) -> Option<DelegationTokenSecret> {
        Some(text.into()).filter(|text| !text.is_empty()).map(DelegationTokenSecret)
    }

    /// The HMAC of a token id.
    pub fn hmac(&self, token_id: &str) -> Vec<u8> {
        let key = hmac::Key::new(hmac::HMAC_SHA512, self.0.as_bytes());
        hmac::sign(&key, token_id.as_bytes()).as_ref().to_vec()
    }

    /// The login password for a token.
    pub fn password(&self, token_id: &str) -> String {
        STANDARD.encode(self.hmac(token_id))
    }

    /// The SCRAM credential of a token, at the cost of hashing a password.
    pub fn credential(&self, hash: Hash, token_id: &str) -> Credential {
        // The salt need not be random, because the password has high entropy and is not used elsewhere.
        let salt = self.hmac(&format!("salt:{}:{token_id}", hash.code()))[..hash.len()].to_vec();
        Credential::of_password(hash, &self.password(token_id), salt, ITERATIONS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sasl::scram::{ClientFirst, DecoyForm, ScramClient, ScramServer};

    #[test]
    fn the_hmac_is_that_of_java() {
        // Computed by Java's `Mac.getInstance("HmacSHA512")`, as in Kafka's controllers.
        let secret = DelegationTokenSecret::new("secret").expect("not empty");
        let expected =
            "L9GI74TzKQbUs/njb0Ovmng8JiKhlRicLMRqnxiK/5w6faQB9wu02HVCcHKmVOW+T0JHSKivNUdOh1nrRBfomA==";
        assert_eq!(secret.password("fHCB4S5ESjOvFHXQSlwGsg"), expected);
    }

    #[test]
    fn a_token_logs_in_by_its_password_with_both_hashes() {
        let secret = DelegationTokenSecret::new("secret").expect("not empty");
        for hash in [Hash::Sha256, Hash::Sha512] {
            let (mut client, first) = ScramClient::begin(hash, "id", &secret.password("id"), "nonce", true);
            let first = ClientFirst::parse(&first).expect("a first message");
            assert!(first.is_token);
            let known = Some(secret.credential(hash, "id"));
            let (server, answer) =
                ScramServer::begin(hash, first, known, "server", &DecoyForm::like(None, Vec::new()))
                    .expect("an answer");
            let proof = client.next(&answer).expect("a proof").expect("a message");
            let (user, last) = server.finish(&proof).expect("the right password");
            assert_eq!((user.as_str(), client.next(&last)), ("id", Ok(None)));
        }
    }

    #[test]
    fn an_empty_secret_is_none_and_no_secret_is_shown() {
        assert_eq!(DelegationTokenSecret::new(""), None);
        assert_eq!(format!("{:?}", DelegationTokenSecret::new("secret")), "Some([hidden])");
    }
}
