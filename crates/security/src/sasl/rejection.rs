//! Why a server turns a client away.

use std::borrow::Cow;
use std::fmt;

/// A server turns a client away. Its `Display` is for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: Cow<'static, str>,
    is_shown: bool,
}

impl Rejection {
    /// The client is told the reason, as in Kafka (`SaslAuthenticationException`).
    pub fn shown(reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection { reason: reason.into(), is_shown: true }
    }

    /// The client is told no more than that its credentials are invalid (`SaslException`): the reason would say whether a
    /// user exists.
    pub fn hidden(reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection { reason: reason.into(), is_shown: false }
    }

    /// What the client is told, if it may know.
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

/// Kafka's words for a client that wants to act in another name.
pub(super) fn other_authorization_id() -> Rejection {
    Rejection::shown(
        "Authentication failed: Client requested an authorization id that is different from username",
    )
}
