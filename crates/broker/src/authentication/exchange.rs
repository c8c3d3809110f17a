//! The SASL exchange of a connection, as in Kafka's `SaslServerAuthenticator`: optionally ApiVersions,
//! SaslHandshake with the mechanism, then the mechanism's messages: in SaslAuthenticate, or raw after version
//! 0 of SaslHandshake. Any other message ends the connection.
//!
//! With a session lifetime, a new SaslHandshake re-authenticates the connection, with the same mechanism and
//! principal.
//!
//! Departures: another mechanism in a re-authentication gets an error, where Kafka closes the connection. A
//! request of another API within an exchange closes the connection, where Kafka answers in that API's form
//! first.

use super::answering::{Answering, Framing, delayed, encode, read};
use super::authenticator::Authenticator;
use super::identity::Identity;
use super::outcome::{Outcome, Step, bearer, other_mechanism, plain, prove, refused_token, scram};
use super::state::{AuthenticatedPeer, State, Talk};
use crate::audit::AuditedConnection;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use thalweg_net::{Frame, Reply, UnprovenLimits};
use thalweg_security::sasl::Mechanism;
use thalweg_security::sasl::oauth::{FirstMessage, TokenFault};
use thalweg_wire::frame::peek_request;
use thalweg_wire::request::{
    ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest, SaslHandshakeResponse,
};
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

/// Minimum time between two exchanges, as in Kafka.
const AGAIN_MIN: Duration = Duration::from_secs(1);
/// Maximum wait for a provider's keys if a token names an unknown key.
const KEYS_WITHIN: Duration = Duration::from_secs(5);

/// The outcome of a frame: a request to serve, or an answer of this exchange.
pub(super) enum FrameOutcome {
    Serve,
    Answer(Reply),
}

/// The state of a connection's authentication.
pub(super) struct Exchange {
    authenticator: Arc<Authenticator>,
    limits: UnprovenLimits,
    audited: Option<Arc<AuditedConnection>>,
    state: State,
    /// The peer's mechanism and identity before this exchange.
    before: Option<(Mechanism, Identity)>,
    began_again_at: Option<Instant>,
    /// The peer's new identity.
    identity: Option<Identity>,
}

impl Exchange {
    pub(super) fn new(
        authenticator: Arc<Authenticator>,
        limits: UnprovenLimits,
        audited: Option<Arc<AuditedConnection>>,
    ) -> Exchange {
        let state = State::Initial;
        Exchange { authenticator, limits, audited, state, before: None, began_again_at: None, identity: None }
    }

    pub(super) fn unproven(&self) -> Option<UnprovenLimits> {
        let is_proven = match &self.state {
            State::Established(_) => true,
            State::Awaited(next) => {
                let next = next.lock();
                next.as_ref().is_some_and(|next| matches!(next.state, State::Established(_)))
            }
            _ => false,
        };
        (!is_proven && self.before.is_none()).then_some(self.limits)
    }

    pub(super) fn take_identity(&mut self) -> Option<Identity> {
        self.identity.take()
    }

    pub(super) fn receive(&mut self, frame: &Bytes, now: Instant) -> FrameOutcome {
        self.apply_awaited();
        match &self.state {
            State::Established(AuthenticatedPeer { ends_at: None, .. }) => FrameOutcome::Serve,
            State::Established(AuthenticatedPeer { ends_at: Some(ends_at), .. }) => {
                self.limited(frame, *ends_at, now)
            }
            State::Initial | State::Handshake => self.before_mechanism(frame),
            State::Message(_) => self.message(frame, now),
            State::Awaited(_) | State::Failed => close("a frame behind a failed authentication"),
        }
    }

    /// Applies the result of a finished future.
    fn apply_awaited(&mut self) {
        let State::Awaited(next) = &self.state else { return };
        let Some(next) = next.lock().take() else { return };
        self.state = next.state;
        self.identity = next.identity;
    }

    /// A request on a connection with a session lifetime.
    fn limited(&mut self, frame: &Bytes, ends_at: Instant, now: Instant) -> FrameOutcome {
        let is_handshake =
            peek_request(frame).is_ok_and(|prefix| prefix.api_key == ApiKey::SaslHandshake as i16);
        let too_soon = self.began_again_at.is_some_and(|began_at| now.duration_since(began_at) < AGAIN_MIN);
        if is_handshake && !too_soon {
            self.began_again_at = Some(now);
            if let State::Established(AuthenticatedPeer { mechanism, identity, .. }) =
                std::mem::replace(&mut self.state, State::Failed)
            {
                self.before = Some((mechanism, identity));
            }
            return self.handshake(frame);
        }
        if now > ends_at {
            self.state = State::Failed;
            return close("the session has ended, and the client has not authenticated again");
        }
        FrameOutcome::Serve
    }

    fn before_mechanism(&mut self, frame: &Bytes) -> FrameOutcome {
        let is_first = matches!(self.state, State::Initial);
        let key = peek_request(frame).ok().and_then(|prefix| ApiKey::from_i16(prefix.api_key));
        match key {
            Some(ApiKey::SaslHandshake) => self.handshake(frame),
            Some(ApiKey::ApiVersions) if is_first => {
                if is_answered_with_versions(frame) {
                    self.state = State::Handshake;
                }
                FrameOutcome::Serve
            }
            Some(key) => self.fail(&format!("{key:?} before authentication")),
            None => self.fail(
                "no Kafka request: a client with the wrong security.protocol, or something else than Kafka's client",
            ),
        }
    }

    fn handshake(&mut self, frame: &Bytes) -> FrameOutcome {
        let (request, version, correlation_id) = match read::<SaslHandshakeRequest>(frame) {
            Ok(read) => read,
            Err(error) => return self.fail(&format!("SaslHandshake: {error}")),
        };
        let mechanisms = self.authenticator.mechanisms();
        let names = mechanisms.iter().map(|mechanism| mechanism.name().to_owned()).collect();
        let requested =
            Mechanism::from_name(&request.mechanism).filter(|requested| mechanisms.contains(requested));
        let mut response = SaslHandshakeResponse { error_code: 0, mechanisms: names };
        let Some(mechanism) = requested else {
            response.error_code = ErrorCode::UnsupportedSaslMechanism.code();
            let frame = encode::<SaslHandshakeRequest>(&response, version, correlation_id);
            return self.fail_with(frame, "the mechanism is not one of sasl.enabled.mechanisms".to_owned());
        };
        self.state = State::Message(Talk { mechanism, is_framed: version > 0, step: Step::First });
        match encode::<SaslHandshakeRequest>(&response, version, correlation_id) {
            Some(frame) => FrameOutcome::Answer(Reply::Now(frame)),
            None => self.fail("SaslHandshake could not be answered"),
        }
    }

    /// A message of the mechanism.
    fn message(&mut self, frame: &Bytes, now: Instant) -> FrameOutcome {
        let State::Message(talk) = std::mem::replace(&mut self.state, State::Failed) else {
            return self.fail("no message is expected");
        };
        let (framing, message) = match talk.is_framed {
            false => (Framing::Raw, frame.clone()),
            true => match read::<SaslAuthenticateRequest>(frame) {
                Ok((request, version, correlation_id)) => {
                    (Framing::Framed { version, correlation_id }, request.auth_bytes)
                }
                Err(error) => return self.fail(&format!("SaslAuthenticate: {error}")),
            },
        };
        let answering = Answering {
            authenticator: Arc::clone(&self.authenticator),
            audited: self.audited.clone(),
            before: self.before.clone(),
            mechanism: talk.mechanism,
            framing,
        };
        let is_other = self.before.as_ref().is_some_and(|(before, _)| *before != talk.mechanism);
        let outcome = match (is_other, talk.step) {
            (true, _) => Outcome::rejected(other_mechanism(talk.mechanism, self.before.as_ref())),
            (false, Step::Proof { server, by_token, user }) => {
                prove(&self.authenticator, *server, by_token, user, &message)
            }
            (false, Step::Refused(fault)) => Outcome::rejected(refused_token(&fault, &message)),
            (false, Step::First) => match talk.mechanism {
                Mechanism::Plain => plain(&self.authenticator, &message),
                Mechanism::Scram(hash) => scram(&self.authenticator, hash, &message),
                Mechanism::OAuthBearer => match FirstMessage::parse(&message) {
                    Err(rejection) => Outcome::rejected(rejection),
                    Ok(first) => match self.authenticator.verify(&first.token) {
                        Err(TokenFault::UnknownKey(_)) => return self.request_keys(answering, first),
                        verified => bearer(verified, &first),
                    },
                },
            },
        };
        let (next, reply) = answering.finish(outcome, now);
        self.state = next.state;
        self.identity = next.identity;
        FrameOutcome::Answer(reply)
    }

    /// Waits for a new key of the provider, so that the client need not retry.
    fn request_keys(&mut self, answering: Answering, first: FirstMessage) -> FrameOutcome {
        let slot = Arc::new(Mutex::new(None));
        self.state = State::Awaited(Arc::clone(&slot));
        FrameOutcome::Answer(Reply::Later(Box::pin(async move {
            let authenticator = Arc::clone(&answering.authenticator);
            // Without new keys the token is refused as before.
            drop(tokio::time::timeout(KEYS_WITHIN, authenticator.read_keys_again()).await);
            let outcome = bearer(authenticator.verify(&first.token), &first);
            let (next, reply) = answering.finish(outcome, Instant::now());
            *slot.lock() = Some(next);
            reply
        })))
    }

    fn fail(&mut self, reason: &str) -> FrameOutcome {
        self.fail_with(None, reason.to_owned())
    }

    fn fail_with(&mut self, answer: Option<Frame>, reason: String) -> FrameOutcome {
        self.state = State::Failed;
        self.authenticator.login_failed();
        if let Some(audited) = &self.audited {
            audited.login_failed(None, None, self.before.is_some(), &reason);
        }
        FrameOutcome::Answer(delayed(self.authenticator.failure_delay(), answer, reason))
    }
}

fn close(reason: &str) -> FrameOutcome {
    FrameOutcome::Answer(Reply::Close(reason.to_owned()))
}

/// True if the answer to ApiVersions has versions; otherwise the client may send it again.
fn is_answered_with_versions(frame: &Bytes) -> bool {
    let valid = |text: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        edge(text.chars().next()) && edge(text.chars().last())
    };
    match read::<ApiVersionsRequest>(frame) {
        Ok((request, version, _)) => {
            version < 3 || valid(&request.client_software_name) && valid(&request.client_software_version)
        }
        Err(_) => false,
    }
}
