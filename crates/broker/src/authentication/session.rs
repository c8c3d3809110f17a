//! The session of a connection: peer, principal, state of authentication.

use super::authenticator::Authenticator;
use super::exchange::{Exchange, FrameOutcome};
use super::identity::Identity;
use crate::audit::{AuditedConnection, AuditedRequest};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_audit::Trail;
use thalweg_net::{Peer, Reply, UnprovenLimits};
use thalweg_security::Principal;
use thalweg_security::acl::host_address;
use tokio::time::Instant;

/// Time for a peer to authenticate after it has connected. Kafka's clients take a few round trips.
const AUTHENTICATED_WITHIN: Duration = Duration::from_secs(30);

/// The state of one connection.
pub struct Session {
    peer: Arc<Peer>,
    /// The peer's address in the form of ACLs.
    host: Arc<str>,
    identity: Identity,
    audited: Option<AuditedRequest>,
    /// `None` if the listener has no SASL.
    exchange: Option<Box<Exchange>>,
}

/// The admission of a frame.
pub enum Admission {
    /// A request to serve.
    Serve,
    /// A message of an exchange, with its answer.
    Answered(Reply),
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The session of a new connection, on a listener with SASL or without.
    pub fn open(
        peer: Arc<Peer>,
        authenticator: Option<&Arc<Authenticator>>,
        trail: Option<&Arc<Trail>>,
    ) -> Session {
        let audited = trail.map(|trail| Arc::new(AuditedConnection::of(trail, &peer)));
        let exchange = authenticator.map(|authenticator| {
            let until = Instant::now() + AUTHENTICATED_WITHIN;
            let limits = UnprovenLimits {
                frame_max: authenticator.receive_max_bytes(),
                setting: thalweg_config::SaslKeys::receive_max_bytes.name(),
                until,
            };
            Box::new(Exchange::new(Arc::clone(authenticator), limits, audited.clone()))
        });
        // On SASL_SSL a client certificate allows the connection, but gives no principal.
        let principal = if exchange.is_some() { Principal::anonymous() } else { peer.principal() };
        let by_certificate =
            exchange.is_none() && peer.tls.as_ref().is_some_and(|tls| tls.certificate.is_some());
        let audited = audited.map(|audited| match by_certificate {
            true => {
                let audited = audited.of_certificate(&principal);
                audited.logged_in(false);
                audited
            }
            false => audited.of_principal(&principal, None),
        });
        let audited =
            audited.map(|audited| AuditedRequest { connection: Arc::new(audited), client_id: None });
        let principal = Arc::new(principal);
        if exchange.is_none() {
            peer.identified.get_or_init(|| Arc::clone(&principal));
        }
        let identity = Identity { principal, by_token: false, mechanism: None };
        let host = host_address(peer.address.ip()).into();
        Session { peer, host, identity, audited, exchange }
    }

    /// The peer, with its address, listener and TLS.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// The peer's address in the form of ACLs.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// The peer's principal, by SASL or by certificate; anonymous without authentication.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.identity.principal
    }

    /// True if the peer has authenticated by a delegation token.
    pub fn is_by_token(&self) -> bool {
        self.identity.by_token
    }

    /// A request of this client for the audit trail; `None` without a trail.
    pub fn audited(&mut self, client_id: Option<&str>) -> Option<AuditedRequest> {
        let audited = self.audited.as_mut()?;
        // Most clients send the same client id in all requests.
        if audited.client_id.as_deref() != client_id {
            audited.client_id = client_id.map(Arc::from);
        }
        Some(audited.clone())
    }

    /// Admits a frame as a request, or answers it.
    pub fn admit(&mut self, frame: &Bytes) -> Admission {
        let Some(exchange) = &mut self.exchange else { return Admission::Serve };
        let outcome = exchange.receive(frame, Instant::now());
        if let Some(identity) = exchange.take_identity() {
            if let Some(audited) = &mut self.audited {
                let connection = audited.connection.of_principal(&identity.principal, identity.mechanism);
                audited.connection = Arc::new(connection);
            }
            // A client that authenticates again has the same principal.
            self.peer.identified.get_or_init(|| Arc::clone(&identity.principal));
            self.identity = identity;
        }
        match outcome {
            FrameOutcome::Serve => Admission::Serve,
            FrameOutcome::Answer(reply) => Admission::Answered(reply),
        }
    }

    /// The limits of an unauthenticated peer; `None` after authentication.
    pub fn unproven(&self) -> Option<UnprovenLimits> {
        self.exchange.as_ref()?.unproven()
    }
}
