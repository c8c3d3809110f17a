//! SCRAM (RFC 5802, with SHA-256 and SHA-512 of RFC 7677): a client proves knowledge of a password without
//! sending it, and a server proves knowledge of the keys derived from the password. As in Kafka, names and
//! passwords are UTF-8 without SASLprep, and there is no channel binding.

mod client;
mod credential;
mod hash;
mod new_user;
mod server;
mod verified;

pub use client::{ITERATIONS_ASKED_MAX, ITERATIONS_MIN, ScramClient, ScramFault};
pub use credential::{Credential, DecoyForm, ITERATIONS_MAX};
pub use hash::Hash;
pub use new_user::{NewUser, NewUserFault};
pub use server::{ClientFirst, ScramServer};
pub use verified::VerifiedPasswords;

/// "No channel binding": the start of a client's first message.
const GS2_HEADER: &str = "n,,";

/// The extension for a login with a delegation token instead of a user's password.
const TOKEN_AUTH: &str = "tokenauth";

/// The message that both sides sign.
fn auth_message(first_bare: &str, server_first: &str, without_proof: &str) -> String {
    format!("{first_bare},{server_first},{without_proof}")
}

/// XOR of a key and a signature, in either direction: hides the key, or recovers it.
fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(one, other)| one ^ other).collect()
}
