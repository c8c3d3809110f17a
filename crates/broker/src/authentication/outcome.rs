//! The outcome of a message of a mechanism: another message, a name, or a rejection.

use super::authenticator::{Authenticator, random};
use super::identity::Identity;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thalweg_security::sasl::oauth::{FirstMessage, INVALID_TOKEN, MORE, Token, TokenFault};
use thalweg_security::sasl::scram::{ClientFirst, DecoyForm, Hash, ScramServer};
use thalweg_security::sasl::{Mechanism, Rejection};

/// Random bytes of a nonce.
const NONCE_LEN: usize = 24;

/// The next step of an exchange.
pub(super) enum Step {
    First,
    /// The proof of a user, or of the bearer of a delegation token.
    Proof {
        server: Box<ScramServer>,
        by_token: bool,
        /// The name of the user, or the id of the token.
        user: String,
    },
    /// A token was refused, and the client's confirmation is expected.
    Refused(TokenFault),
}

/// The outcome of a message.
pub(super) enum Outcome {
    More(Step, Vec<u8>),
    Done {
        name: String,
        by_token: bool,
        expires_ms: Option<i64>,
        last: Vec<u8>,
    },
    /// The client is rejected. `user` is the claimed user, if the client has sent one.
    Rejected {
        rejection: Rejection,
        user: Option<String>,
    },
}

impl Outcome {
    pub fn rejected(rejection: Rejection) -> Outcome {
        Outcome::Rejected { rejection, user: None }
    }
}

pub(super) fn plain(authenticator: &Authenticator, message: &[u8]) -> Outcome {
    match authenticator.users().authenticate(message) {
        Ok(name) => Outcome::Done { name, by_token: false, expires_ms: None, last: Vec::new() },
        Err(rejection) => Outcome::Rejected { rejection, user: claimed_user(message) },
    }
}

/// The user in a message of PLAIN (RFC 4616), without a check of the password.
fn claimed_user(message: &[u8]) -> Option<String> {
    let user = message.split(|byte| *byte == 0).nth(1)?;
    String::from_utf8(user.to_vec()).ok()
}

pub(super) fn scram(authenticator: &Authenticator, hash: Hash, message: &[u8]) -> Outcome {
    let mut claimed = None;
    let begun = ClientFirst::parse(message).and_then(|first| {
        let (by_token, user) = (first.is_token, first.user.clone());
        claimed = Some(user.clone());
        let (credential, decoys) = match by_token {
            true => {
                let credential = authenticator.token_credential(hash, &first.user);
                (Some(credential.ok_or_else(no_token)?), DecoyForm::like(None, Vec::new()))
            }
            false => authenticator.credential(hash, &first.user),
        };
        let mut bytes = [0; NONCE_LEN];
        random(&mut bytes);
        let begun = ScramServer::begin(hash, first, credential, &URL_SAFE_NO_PAD.encode(bytes), &decoys);
        begun.map(|(server, answer)| (Step::Proof { server: Box::new(server), by_token, user }, answer))
    });
    match begun {
        Ok((step, answer)) => Outcome::More(step, answer),
        Err(rejection) => Outcome::Rejected { rejection, user: claimed },
    }
}

fn no_token() -> Rejection {
    Rejection::hidden("there is no such delegation token, or it has expired, or this listener takes none")
}

pub(super) fn prove(
    authenticator: &Authenticator,
    server: ScramServer,
    by_token: bool,
    user: String,
    message: &[u8],
) -> Outcome {
    let proven = server.finish(message).and_then(|(name, last)| match by_token {
        false => Ok(Outcome::Done { name, by_token, expires_ms: None, last }),
        true => {
            let bearer = authenticator.bearer(&name).ok_or_else(no_token)?;
            Ok(Outcome::Done { name: bearer.name, by_token, expires_ms: Some(bearer.expires_ms), last })
        }
    });
    proven.unwrap_or_else(|rejection| Outcome::Rejected { rejection, user: Some(user) })
}

pub(super) fn bearer(verified: Result<Token, TokenFault>, first: &FirstMessage) -> Outcome {
    match verified {
        Ok(token) if first.authorization_id.as_ref().is_some_and(|id| *id != token.subject) => {
            Outcome::rejected(Rejection::shown(format!(
                "Authentication failed: Client requested an authorization id ({}) that is different from the token's \
                 principal name ({})",
                first.authorization_id.as_deref().unwrap_or_default(),
                token.subject
            )))
        }
        Ok(token) => Outcome::Done {
            name: token.subject,
            by_token: false,
            expires_ms: Some(token.expires_ms),
            last: Vec::new(),
        },
        Err(fault) => Outcome::More(Step::Refused(fault), INVALID_TOKEN.as_bytes().to_vec()),
    }
}

/// The rejection after the client has confirmed the refusal of its token.
pub(super) fn refused_token(fault: &TokenFault, message: &[u8]) -> Rejection {
    match message == MORE {
        // The details are only logged.
        true => {
            tracing::debug!(%fault, "Rejected a token");
            Rejection::shown(INVALID_TOKEN)
        }
        false => Rejection::hidden("another message behind a token that was refused"),
    }
}

pub(super) fn other_mechanism(requested: Mechanism, before: Option<&(Mechanism, Identity)>) -> Rejection {
    let before = before.map_or("none", |(mechanism, _)| mechanism.name());
    Rejection::shown(format!(
        "SASL mechanism '{}' requested by client is not supported for re-authentication of mechanism '{before}'",
        requested.name()
    ))
}
