//! OAUTHBEARER (RFC 7628): a client sends a token signed by an identity provider (a JWT, RFC 7519), and the
//! server verifies the token with the provider's keys (a JWKS, RFC 7517).
//!
//! Refuses: unsigned tokens, which Kafka's default handler accepts, and symmetric keys (HMAC).

mod algorithm;
mod first_message;
mod keys;
mod token;

pub use first_message::{FirstMessage, MORE};
pub use keys::{KeySet, KeySetFault};
pub use token::{Token, TokenFault, TokenRules};

/// The answer to an invalid token. The client acknowledges the answer with [`MORE`], and is then refused.
pub const INVALID_TOKEN: &str = "{\"status\":\"invalid_token\"}";
