//! The client's side of SCRAM (RFC 5802, with SHA-256 and SHA-512 of RFC 7677): proves that it knows a password
//! without sending it, and verifies that the broker knows it too. Pure: messages in, messages out. Like Kafka, it
//! uses names and passwords as UTF-8 without SASLprep, and no channel binding.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

use crate::error::{ITERATIONS_MAX, ITERATIONS_MIN, ScramFault};

/// "No channel binding", as every message after the first repeats it.
const GS2_HEADER: &str = "n,,";

/// The hash of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha512,
}

/// An exchange in progress.
pub(super) struct Scram {
    hash: Hash,
    password: String,
    nonce: String,
    first_bare: String,
    state: State,
}

enum State {
    First,
    /// The broker's key, and the message it must have signed.
    Final {
        server_key: hmac::Key,
        auth_message: String,
    },
    Done,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }
}

impl Scram {
    /// Starts an exchange; `nonce` is a text that was never used before. Also returns the first message.
    pub(super) fn begin(hash: Hash, user: &str, password: &str, nonce: &str) -> (Scram, Vec<u8>) {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={user},r={nonce}");
        let message = format!("{GS2_HEADER}{first_bare}").into_bytes();
        let (nonce, password) = (nonce.to_owned(), password.to_owned());
        (Scram { hash, password, nonce, first_bare, state: State::First }, message)
    }

    /// The next message; `None` when the broker is verified.
    pub(super) fn next(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, ScramFault> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::First => self.prove(message).map(Some),
            State::Final { server_key, auth_message } => {
                verify(&server_key, &auth_message, message).map(|()| None)
            }
            State::Done => Err(ScramFault::Message("behind the last")),
        }
    }

    /// Answers the salt and the iterations with the proof.
    fn prove(&mut self, message: &[u8]) -> Result<Vec<u8>, ScramFault> {
        let fault = ScramFault::Message("first");
        let server_first = std::str::from_utf8(message).map_err(|_| fault.clone())?;
        let field = |name| field(server_first, name).ok_or_else(|| fault.clone());
        if let Ok(error) = field("e=") {
            return Err(ScramFault::Refused(error.to_owned()));
        }
        let nonce = field("r=")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramFault::Nonce);
        }
        let salt = STANDARD.decode(field("s=")?).map_err(|_| fault.clone())?;
        let asked: u32 = field("i=")?.parse().map_err(|_| fault.clone())?;
        let iterations = NonZeroU32::new(asked)
            .filter(|_| (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&asked))
            .ok_or(ScramFault::Iterations(asked))?;

        let mut salted = vec![0; self.hash.digest().output_len()];
        pbkdf2::derive(self.hash.pbkdf2(), iterations, &salt, self.password.as_bytes(), &mut salted);
        let salted = hmac::Key::new(self.hash.hmac(), &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), client_key.as_ref());
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(GS2_HEADER));
        let auth_message = format!("{},{server_first},{without_proof}", self.first_bare);
        let stored_key = hmac::Key::new(self.hash.hmac(), stored_key.as_ref());
        let signature = hmac::sign(&stored_key, auth_message.as_bytes());
        let proof: Vec<u8> =
            client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, signed)| key ^ signed).collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        let server_key = hmac::Key::new(self.hash.hmac(), server_key.as_ref());
        self.state = State::Final { server_key, auth_message };
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes())
    }
}

fn verify(server_key: &hmac::Key, auth_message: &str, message: &[u8]) -> Result<(), ScramFault> {
    let fault = ScramFault::Message("final");
    let message = std::str::from_utf8(message).map_err(|_| fault.clone())?;
    if let Some(error) = field(message, "e=") {
        return Err(ScramFault::Refused(error.to_owned()));
    }
    let signature = field(message, "v=").and_then(|text| STANDARD.decode(text).ok()).ok_or(fault)?;
    hmac::verify(server_key, auth_message.as_bytes(), &signature).map_err(|_| ScramFault::ServerSignature)
}

fn field<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    message.split(',').find_map(|field| field.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_FIRST: &[u8] =
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn begun() -> Scram {
        let (scram, first) = Scram::begin(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(first, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        scram
    }

    #[test]
    fn the_exchange_is_that_of_rfc_7677() {
        let mut scram = begun();
        let proof = scram.next(SERVER_FIRST).expect("a proof").expect("a message");
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(String::from_utf8_lossy(&proof), expected);
        let last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(scram.next(last), Ok(None));
        assert_eq!(scram.next(last), Err(ScramFault::Message("behind the last")));
    }

    #[test]
    fn names_are_escaped() {
        let (_, first) = Scram::begin(Hash::Sha512, "a,b=c", "p", "n0");
        assert_eq!(first, b"n,,n=a=2Cb=3Dc,r=n0");
    }

    #[test]
    fn a_broker_that_does_not_know_the_password_is_found_out() {
        let mut scram = begun();
        scram.next(SERVER_FIRST).expect("a proof");
        assert_eq!(scram.next(b"v=AAAA"), Err(ScramFault::ServerSignature));
        let mut scram = begun();
        scram.next(SERVER_FIRST).expect("a proof");
        assert_eq!(scram.next(b"e=other-error"), Err(ScramFault::Refused("other-error".to_owned())));
    }

    #[test]
    fn what_the_broker_asks_for_is_bounded() {
        for (message, fault) in [
            ("r=other,s=AAAA,i=4096", ScramFault::Nonce),
            ("r=rOprNGfwEbeRWgbNEkqO,s=AAAA,i=4096", ScramFault::Nonce),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=1", ScramFault::Iterations(1)),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=2000000000", ScramFault::Iterations(2_000_000_000)),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=AAAA,i=-1", ScramFault::Message("first")),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=?,i=4096", ScramFault::Message("first")),
            ("", ScramFault::Message("first")),
        ] {
            assert_eq!(begun().next(message.as_bytes()), Err(fault), "{message}");
        }
    }
}
