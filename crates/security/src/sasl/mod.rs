//! SASL: the messages by which a client proves who it is. Each mechanism is a state machine: message in, message or
//! outcome out. Servers' sides say what Kafka's say.
//!
//! Owns: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628) with the verification of its tokens, and the
//! lines of `sasl.jaas.config`. Refuses: GSSAPI, which needs Kerberos' libraries, and channel binding.

pub mod jaas;
mod mechanism;
pub mod oauth;
pub mod plain;
mod rejection;
pub mod scram;

pub use mechanism::{GSSAPI, Mechanism};
pub use rejection::Rejection;
