//! The identity of a connection's peer.

use std::sync::Arc;
use thalweg_security::Principal;
use thalweg_security::sasl::Mechanism;

/// An authenticated identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub principal: Arc<Principal>,
    /// True if the peer has authenticated by a delegation token.
    pub by_token: bool,
    /// The SASL mechanism; `None` without SASL.
    pub mechanism: Option<Mechanism>,
}
