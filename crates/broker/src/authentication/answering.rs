//! The answers to the messages of an exchange, and the resulting states.

use super::authenticator::Authenticator;
use super::identity::Identity;
use super::outcome::Outcome;
use super::state::{AuthenticatedPeer, NextState, State, Talk};
use crate::audit::AuditedConnection;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use thalweg_net::{Frame, Reply};
use thalweg_security::Principal;
use thalweg_security::sasl::{Mechanism, Rejection};
use thalweg_wire::frame::{decode_request_header, encode_response, peek_request};
use thalweg_wire::request::{SaslAuthenticateRequest, SaslAuthenticateResponse};
use thalweg_wire::{DecodeError, Decoder, ErrorCode, Message, Request};
use tokio::time::Instant;

/// Elements of a request within an exchange: ApiVersions has a list of them.
const ELEMENTS_MAX: usize = 100;

/// The framing of the answer to a message of a mechanism.
#[derive(Clone, Copy)]
pub(super) enum Framing {
    Raw,
    Framed { version: i16, correlation_id: i32 },
}

/// The inputs of the answer to a message.
pub(super) struct Answering {
    pub authenticator: Arc<Authenticator>,
    pub audited: Option<Arc<AuditedConnection>>,
    pub before: Option<(Mechanism, Identity)>,
    pub mechanism: Mechanism,
    pub framing: Framing,
}

impl Answering {
    pub(super) fn finish(self, outcome: Outcome, now: Instant) -> (NextState, Reply) {
        match outcome {
            Outcome::Rejected { rejection, user } => self.reject(&rejection, user.as_deref()),
            Outcome::More(step, message) => {
                let is_framed = matches!(self.framing, Framing::Framed { .. });
                let talk = Talk { mechanism: self.mechanism, is_framed, step };
                self.answer(message, 0, NextState { state: State::Message(talk), identity: None })
            }
            Outcome::Done { name, by_token, expires_ms, last } => {
                let identity = Identity {
                    principal: Arc::new(Principal::user(name)),
                    by_token,
                    mechanism: Some(self.mechanism),
                };
                if let Some(rejection) = self.changed_principal(&identity) {
                    return self.reject(&rejection, Some(identity.principal.name()));
                }
                self.authenticator.login_succeeded();
                if let Some(audited) = &self.audited {
                    let audited = audited.of_principal(&identity.principal, identity.mechanism);
                    audited.logged_in(self.before.is_some());
                }
                let lifetime = self.lifetime(expires_ms);
                let established = AuthenticatedPeer {
                    mechanism: self.mechanism,
                    identity: identity.clone(),
                    ends_at: lifetime.map(|lifetime| now + lifetime),
                };
                let lifetime_ms = lifetime.map_or(0, |lifetime| lifetime.as_millis());
                let lifetime_ms = i64::try_from(lifetime_ms).unwrap_or(i64::MAX);
                let state = State::Established(established);
                self.answer(last, lifetime_ms, NextState { state, identity: Some(identity) })
            }
        }
    }

    /// The rejection of a re-authentication with another principal.
    fn changed_principal(&self, identity: &Identity) -> Option<Rejection> {
        let (_, before) =
            self.before.as_ref().filter(|(_, before)| before.principal != identity.principal)?;
        let text = |principal: &Principal| format!("{}.{}", principal.kind(), principal.name());
        Some(Rejection::shown(format!(
            "Cannot change principals during re-authentication from {}: {}",
            text(&before.principal),
            text(&identity.principal)
        )))
    }

    /// Lifetime of the session: until the credential expires, limited by `connections.max.reauth.ms`.
    fn lifetime(&self, expires_ms: Option<i64>) -> Option<Duration> {
        let of_credential = expires_ms.map(|expires_ms| {
            let left_ms = expires_ms.saturating_sub(self.authenticator.now_ms());
            // No token lasts for ten years; more would overflow the clock.
            Duration::from_millis(u64::try_from(left_ms).unwrap_or(0))
                .min(Duration::from_secs(10 * 365 * 86_400))
        });
        let limits = [of_credential, self.authenticator.max_reauth(self.mechanism)];
        limits.into_iter().flatten().min()
    }

    fn answer(self, message: Vec<u8>, lifetime_ms: i64, next: NextState) -> (NextState, Reply) {
        let frame = match self.framing {
            Framing::Raw => Some(Frame::with_length(message.into())),
            Framing::Framed { version, correlation_id } => {
                let response = SaslAuthenticateResponse {
                    auth_bytes: message.into(),
                    session_lifetime_ms: if version > 0 { lifetime_ms } else { 0 },
                    ..Default::default()
                };
                encode::<SaslAuthenticateRequest>(&response, version, correlation_id)
            }
        };
        match frame {
            Some(frame) => (next, Reply::Now(frame)),
            None => {
                let reply = Reply::Close("SaslAuthenticate could not be answered".to_owned());
                (NextState { state: State::Failed, identity: None }, reply)
            }
        }
    }

    fn reject(self, rejection: &Rejection, user: Option<&str>) -> (NextState, Reply) {
        self.authenticator.login_failed();
        if let Some(audited) = &self.audited {
            let is_again = self.before.is_some();
            audited.login_failed(Some(self.mechanism), user, is_again, &rejection.to_string());
        }
        let what = if self.before.is_some() { "re-authentication" } else { "authentication" };
        let mechanism = self.mechanism.name();
        let for_client = match rejection.for_client() {
            Some(shown) => shown.to_owned(),
            None => {
                format!(
                    "Authentication failed during {what} due to invalid credentials with SASL mechanism {mechanism}"
                )
            }
        };
        let answer = match self.framing {
            Framing::Raw => None,
            Framing::Framed { version, correlation_id } => {
                let response = SaslAuthenticateResponse {
                    error_code: ErrorCode::SaslAuthenticationFailed.code(),
                    error_message: Some(for_client),
                    ..Default::default()
                };
                encode::<SaslAuthenticateRequest>(&response, version, correlation_id)
            }
        };
        let reply = delayed(self.authenticator.failure_delay(), answer, format!("{mechanism}: {rejection}"));
        (NextState { state: State::Failed, identity: None }, reply)
    }
}

/// The last answer, if any, and the end of the connection, after a delay that slows down guessing.
pub(super) fn delayed(delay: Duration, answer: Option<Frame>, reason: String) -> Reply {
    let reason = format!("authentication failed: {reason}");
    Reply::Later(Box::pin(async move {
        tokio::time::sleep(delay).await;
        match answer {
            Some(frame) => Reply::Last(frame, reason),
            None => Reply::Close(reason),
        }
    }))
}

/// An unexpected or unreadable request.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("a request of another API ({0})")]
    Api(i16),
    #[error("version {0} is not served")]
    Version(i16),
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

pub(super) fn read<R: Request>(frame: &Bytes) -> Result<(R, i16, i32), Unreadable> {
    let prefix = peek_request(frame)?;
    let version = prefix.api_version;
    if prefix.api_key != R::KEY as i16 {
        return Err(Unreadable::Api(prefix.api_key));
    }
    if !(R::MIN_VERSION..=R::MAX_VERSION).contains(&version) {
        return Err(Unreadable::Version(version));
    }
    let mut d = Decoder::new(frame.clone()).with_elements_max(ELEMENTS_MAX);
    decode_request_header(&mut d, R::KEY, version)?;
    Ok((R::decode(&mut d, version)?, version, prefix.correlation_id))
}

pub(super) fn encode<R: Request>(response: &R::Response, version: i16, correlation_id: i32) -> Option<Frame>
where
    R::Response: Message,
{
    let (bytes, _) = encode_response(response, R::KEY, version, correlation_id).ok()?;
    Some(Frame::bytes(bytes.freeze()))
}
