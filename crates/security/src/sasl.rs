//! SASL: authentication of clients. Each mechanism is a state machine: message in, message or outcome out.
//! The server sides send Kafka's messages.
//!
//! Owns: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677), OAUTHBEARER (RFC 7628) with token verification, and the
//! format of `sasl.jaas.config`. Refuses: GSSAPI, which needs Kerberos libraries, and channel binding.

pub mod jaas;
mod mechanism;
pub mod oauth;
pub mod plain;
mod rejection;
pub mod scram;

pub use mechanism::{GSSAPI, Mechanism};
pub use rejection::Rejection;
