//! The state of a connection's authentication.

use super::identity::Identity;
use super::outcome::Step;
use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_security::sasl::Mechanism;
use tokio::time::Instant;

/// The state of a connection's authentication.
pub(super) enum State {
    /// ApiVersions or SaslHandshake is expected.
    Initial,
    /// SaslHandshake is expected.
    Handshake,
    /// A message of the mechanism is expected.
    Message(Talk),
    /// The outcome is being computed.
    Awaited(Arc<Mutex<Option<NextState>>>),
    /// Requests are served.
    Established(AuthenticatedPeer),
    /// The connection is about to be closed.
    Failed,
}

/// An authenticated peer.
pub(super) struct AuthenticatedPeer {
    pub mechanism: Mechanism,
    pub identity: Identity,
    pub ends_at: Option<Instant>,
}

/// An exchange of messages.
pub(super) struct Talk {
    pub mechanism: Mechanism,
    /// True if messages are in SaslAuthenticate.
    pub is_framed: bool,
    pub step: Step,
}

/// The state that a future has reached, to be applied with the next frame.
pub(super) struct NextState {
    pub state: State,
    pub identity: Option<Identity>,
}
