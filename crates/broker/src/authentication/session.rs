//! One connection: who is at the other end.

use super::authenticator::Authenticator;
use super::exchange::{Exchange, Verdict};
use crate::audit::{AuditedConnection, AuditedRequest};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_audit::Trail;
use thalweg_net::{Peer, Reply, UnprovenLimits};
use thalweg_security::Principal;
use thalweg_security::acl::host_address;
use thalweg_security::sasl::Mechanism;
use tokio::time::Instant;

/// How long a peer has to authenticate after it has connected. Kafka's clients take a few round trips.
const AUTHENTICATED_WITHIN: Duration = Duration::from_secs(30);

/// Who a peer has proven to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub principal: Arc<Principal>,
    /// Whether by a delegation token.
    pub by_token: bool,
    /// By which mechanism of SASL.
    pub mechanism: Option<Mechanism>,
}

/// What is known of one connection.
pub struct Session {
    peer: Arc<Peer>,
    /// The peer's address as ACLs name it.
    host: Arc<str>,
    identity: Identity,
    audited: Option<AuditedRequest>,
    /// None where nobody is asked for a name.
    exchange: Option<Box<Exchange>>,
}

/// What happens with a frame.
pub enum Admission {
    /// It is a request to serve.
    Serve,
    /// It is part of an authentication.
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
    /// A connection that was just accepted, on a listener with SASL or without.
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
        // Over SASL_SSL a client's certificate only lets it in.
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
        let identity = Identity { principal: Arc::new(principal), by_token: false, mechanism: None };
        let host = host_address(peer.address.ip()).into();
        Session { peer, host, identity, audited, exchange }
    }

    /// The peer.
    pub fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Its address, as ACLs name it.
    pub fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// Its principal, by SASL or by its certificate; anonymous where nobody is asked for a name.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.identity.principal
    }

    /// Whether the principal was proven by a delegation token.
    pub fn is_by_token(&self) -> bool {
        self.identity.by_token
    }

    /// A request of this client, as the audit trail names it; none without a trail.
    pub fn audited(&mut self, client_id: Option<&str>) -> Option<AuditedRequest> {
        let audited = self.audited.as_mut()?;
        // It is the same in all requests of most clients.
        if audited.client_id.as_deref() != client_id {
            audited.client_id = client_id.map(Arc::from);
        }
        Some(audited.clone())
    }

    /// Decides whether a frame is a request to serve.
    pub fn admit(&mut self, frame: &Bytes) -> Admission {
        let Some(exchange) = &mut self.exchange else { return Admission::Serve };
        let verdict = exchange.receive(frame, Instant::now());
        if let Some(identity) = exchange.take_identity() {
            if let Some(audited) = &mut self.audited {
                let connection = audited.connection.of_principal(&identity.principal, identity.mechanism);
                audited.connection = Arc::new(connection);
            }
            self.identity = identity;
        }
        match verdict {
            Verdict::Serve => Admission::Serve,
            Verdict::Answer(reply) => Admission::Answered(reply),
        }
    }

    /// The limits of the peer while it has not authenticated.
    pub fn unproven(&self) -> Option<UnprovenLimits> {
        self.exchange.as_ref()?.unproven()
    }
}
