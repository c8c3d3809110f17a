//! Authentication of connections by SASL (KIP-43, KIP-152, KIP-368), on listeners of brokers and controllers alike.
//!
//! [`Authenticator`] is what a listener knows: mechanisms, users, keys of tokens. [`Session`] is what is known of one
//! connection: its peer, its principal, and how far its exchange of messages is. A request is served only when
//! [`Session::admit`] lets it pass: before authentication that is ApiVersions, once.
//!
//! What an unauthenticated peer can cost is bounded: the size of its frames (`sasl.server.max.receive.size`), the messages
//! of an exchange, and the time until it must have authenticated, for which Kafka has `connections.max.idle.ms` only.

mod answering;
mod authenticator;
mod delegation;
mod exchange;
mod outcome;
mod passwords;
mod session;
mod state;
mod token_keys;

pub use authenticator::{Authenticator, Images};
pub use delegation::TokenLogins;
pub use passwords::Passwords;
pub use session::{Admission, Session};
pub use token_keys::TokenKeys;
