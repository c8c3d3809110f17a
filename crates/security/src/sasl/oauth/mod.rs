//! OAUTHBEARER (RFC 7628): a client shows a token that an identity provider has signed (a JWT, RFC 7519), and the server
//! verifies it by the provider's keys (a JWKS, RFC 7517).
//!
//! Refuses: tokens without a signature, which Kafka's default handler would take, and keys that are secrets (HMAC).

mod algorithm;
mod first_message;
mod keys;
mod token;

pub use first_message::{FirstMessage, MORE};
pub use keys::{KeySet, KeySetFault};
pub use token::{Token, TokenFault, TokenRules};

/// The answer to a client whose token is not accepted; the client confirms it with [`MORE`], and is refused then.
pub const INVALID_TOKEN: &str = "{\"status\":\"invalid_token\"}";
