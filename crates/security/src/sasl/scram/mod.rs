//! SCRAM (RFC 5802, with SHA-256 and SHA-512 of RFC 7677): a client proves that it knows a password without sending it,
//! and a server proves that it knows the keys made of it. Like Kafka, it uses names and passwords as UTF-8 without
//! SASLprep, and no channel binding.

mod client;
mod credential;
mod hash;
mod new_user;
mod server;
mod verified;

pub use client::{Client, ITERATIONS_ASKED_MAX, ITERATIONS_MIN, ScramFault};
pub use credential::{Credential, DecoyForm, ITERATIONS_MAX};
pub use hash::Hash;
pub use new_user::{NewUser, NewUserFault};
pub use server::{ClientFirst, Server};
pub use verified::VerifiedPasswords;

/// "No channel binding": the start of a client's first message.
const GS2_HEADER: &str = "n,,";

/// The extension by which a client logs in with a delegation token in place of a user's password.
const TOKEN_AUTH: &str = "tokenauth";

/// What both sides sign.
fn auth_message(first_bare: &str, server_first: &str, without_proof: &str) -> String {
    format!("{first_bare},{server_first},{without_proof}")
}

/// A key hidden by a signature, and a key that is found again.
fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(one, other)| one ^ other).collect()
}
