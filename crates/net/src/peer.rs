//! The peer of a connection: its address and listener, and its names once it has sent them.

use super::mute::Mute;
use std::any::Any;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use thalweg_security::Principal;
use thalweg_security::tls::ServerTlsSession;

/// Characters of a `client.id` that are kept, for log lines and the list of clients.
const CLIENT_ID_SHOWN: usize = 100;

/// The peer of a connection, and the listener.
#[derive(Debug)]
pub struct Peer {
    /// The peer's address.
    pub address: SocketAddr,
    /// The name of the listener.
    pub listener: String,
    /// Result of the TLS handshake; `None` without TLS.
    pub tls: Option<ServerTlsSession>,
    /// Pauses reading from the peer.
    pub mute: Mute,
    /// The client's library, known after ApiVersions (KIP-511).
    pub software: OnceLock<Software>,
    /// The beginning of the client's `client.id`, known after ApiVersions.
    pub client_id: OnceLock<String>,
    /// The authenticated principal, once the handler knows it; it stays the same.
    pub identified: OnceLock<Arc<Principal>>,
    /// Values that are dropped when the connection ends.
    pub attached: Attachment,
}

/// A handler's value attached to a connection. Dropped with the connection, once no request is in
/// progress.
#[derive(Debug, Default)]
pub struct Attachment(OnceLock<Box<dyn Any + Send + Sync>>);

impl Attachment {
    /// The attached value, or the new value of `make`; `None` if a value of another type is attached.
    pub fn get_or_attach<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.0.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

/// A client's library (KIP-511).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Software {
    /// Name, such as `apache-kafka-java`.
    pub name: String,
    /// Version of the library.
    pub version: String,
}

impl std::fmt::Display for Software {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

impl Peer {
    /// Notes the `client.id` of the first request that has one, shortened.
    pub fn note_client_id(&self, id: &str) {
        self.client_id.get_or_init(|| id.chars().take(CLIENT_ID_SHOWN).collect());
    }

    /// The principal by TLS: the name of the client's certificate, or anonymous.
    pub fn principal(&self) -> Principal {
        self.tls.as_ref().map_or_else(Principal::anonymous, ServerTlsSession::principal)
    }
}
