//! The refusal of a login by a server.

use std::borrow::Cow;
use std::fmt;

/// The refusal of a login. `Display` gives the reason for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: Cow<'static, str>,
    is_shown: bool,
}

impl Rejection {
    /// A refusal whose reason the client sees, as in Kafka (`SaslAuthenticationException`).
    pub fn shown(reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection { reason: reason.into(), is_shown: true }
    }

    /// A refusal that the client sees only as invalid credentials (`SaslException`), since the reason could
    /// reveal if a user exists.
    pub fn hidden(reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection { reason: reason.into(), is_shown: false }
    }

    /// The reason for the client, if it may see one.
    pub fn for_client(&self) -> Option<&str> {
        self.is_shown.then_some(&*self.reason)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Rejection {}

/// Kafka's message for a client that requests another authorization id.
pub(super) fn other_authorization_id() -> Rejection {
    Rejection::shown(
        "Authentication failed: Client requested an authorization id that is different from username",
    )
}
