//! Authentication of connections by SASL (KIP-43, KIP-152, KIP-368), on listeners of brokers and controllers
//! alike.
//!
//! [`Authenticator`] belongs to a listener: mechanisms, users, keys of tokens. [`Session`] belongs to a
//! connection: peer, principal, and state of the exchange. A request is served only if [`Session::admit`]
//! admits it: before authentication only ApiVersions, once.
//!
//! An unauthenticated peer has limits: size of frames (`sasl.server.max.receive.size`), messages of an
//! exchange, and time to authenticate, which Kafka limits only by `connections.max.idle.ms`.

mod answering;
mod authenticator;
mod delegation;
mod exchange;
mod identity;
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
