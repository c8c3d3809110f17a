//! The client side: proves knowledge of a password, and verifies that the server knows the password too.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use super::hash::Hash;
use super::{GS2_HEADER, TOKEN_AUTH, auth_message, xor};

/// Minimum number of iterations. With fewer, guessing passwords from a captured exchange is cheap.
pub const ITERATIONS_MIN: u32 = 4096;
/// Maximum number of iterations that a client performs: the broker chooses the number, and the client spends
/// the time. Kafka's brokers allow 16384.
pub const ITERATIONS_ASKED_MAX: u32 = 1_000_000;

/// The reason for a failed exchange.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScramFault {
    /// A message is not in SCRAM's format.
    #[error("its message {0} is not valid SCRAM")]
    Message(&'static str),
    /// The nonce does not start with the client's nonce.
    #[error("it answers another exchange")]
    Nonce,
    /// The number of iterations is out of range.
    #[error("it requests {0} iterations; expected {ITERATIONS_MIN} to {ITERATIONS_ASKED_MAX}")]
    Iterations(u32),
    /// The broker's reason for a refusal.
    #[error("it says {0}")]
    Refused(String),
    /// The broker does not know the password.
    #[error("it does not prove that it knows the password: it may be an impostor")]
    ServerSignature,
}

/// An exchange in progress.
pub struct ScramClient {
    hash: Hash,
    password: String,
    nonce: String,
    first_bare: String,
    state: State,
}

enum State {
    First,
    /// The broker's key, and the message that the broker must have signed.
    Final {
        server_key: hmac::Key,
        auth_message: String,
    },
    Done,
}

impl ScramClient {
    /// Starts an exchange, and returns the first message; `nonce` must be unique. With `by_token`, user and
    /// password are the id and the HMAC of a delegation token.
    pub fn begin(
        hash: Hash,
        user: &str,
        password: &str,
        nonce: &str,
        by_token: bool,
    ) -> (ScramClient, Vec<u8>) {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let extension = if by_token { format!(",{TOKEN_AUTH}=true") } else { String::new() };
        let first_bare = format!("n={user},r={nonce}{extension}");
        let message = format!("{GS2_HEADER}{first_bare}").into_bytes();
        let (nonce, password) = (nonce.to_owned(), password.to_owned());
        (ScramClient { hash, password, nonce, first_bare, state: State::First }, message)
    }

    /// Processes a message, and returns the next one; `None` once the broker is verified.
    pub fn next(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, ScramFault> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::First => self.prove(message).map(Some),
            State::Final { server_key, auth_message } => {
                verify(&server_key, &auth_message, message).map(|()| None)
            }
            State::Done => Err(ScramFault::Message("behind the last")),
        }
    }

    /// Computes the proof from salt and iterations.
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
            .filter(|_| (ITERATIONS_MIN..=ITERATIONS_ASKED_MAX).contains(&asked))
            .ok_or(ScramFault::Iterations(asked))?;

        let salted = self.hash.key(&self.hash.salted(&self.password, &salt, iterations));
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored_key = self.hash.key(self.hash.digest(client_key.as_ref()).as_ref());
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(GS2_HEADER));
        let auth_message = auth_message(&self.first_bare, server_first, &without_proof);
        let signature = hmac::sign(&stored_key, auth_message.as_bytes());
        let proof = xor(client_key.as_ref(), signature.as_ref());
        let server_key = self.hash.key(hmac::sign(&salted, b"Server Key").as_ref());
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

    fn begun() -> ScramClient {
        let (scram, first) =
            ScramClient::begin(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO", false);
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
        let (_, first) = ScramClient::begin(Hash::Sha512, "a,b=c", "p", "n0", false);
        assert_eq!(first, b"n,,n=a=2Cb=3Dc,r=n0");
        let (_, first) = ScramClient::begin(Hash::Sha512, "id", "hmac", "n0", true);
        assert_eq!(first, b"n,,n=id,r=n0,tokenauth=true");
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
    fn iterations_that_the_broker_requires_are_bounded() {
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
