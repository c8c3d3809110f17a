//! How far the authentication of a connection is.

use super::outcome::Step;
use super::session::Identity;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_security::sasl::Mechanism;
use tokio::time::Instant;

/// How far a connection's authentication is.
pub(super) enum State {
    /// ApiVersions or SaslHandshake is expected.
    Initial,
    /// SaslHandshake is expected.
    Handshake,
    /// A message of the mechanism is expected.
    Message(Talk),
    /// The outcome is on its way.
    Awaited(Arc<Mutex<Option<Settled>>>),
    /// Requests are served.
    Established(Established),
    /// The connection is about to be closed.
    Failed,
}

/// An authenticated peer.
pub(super) struct Established {
    pub mechanism: Mechanism,
    pub identity: Identity,
    pub ends_at: Option<Instant>,
}

/// An exchange of messages.
pub(super) struct Talk {
    pub mechanism: Mechanism,
    /// Whether messages are in SaslAuthenticate.
    pub is_framed: bool,
    pub step: Step,
}

/// A state that was reached while nobody looked.
pub(super) struct Settled {
    pub state: State,
    pub identity: Option<Identity>,
}
