//! One connection: who is at the other end.

use super::authenticator::Authenticator;
use super::exchange::{Exchange, Verdict};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thalweg_net::{Peer, Reply, Unproven};
use thalweg_security::Principal;
use thalweg_security::acl::host_address;
use tokio::time::Instant;

/// How long a peer has to authenticate after it has connected. Kafka's clients take a few round trips.
const AUTHENTICATED_WITHIN: Duration = Duration::from_secs(30);

/// Who a peer has proven to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub principal: Arc<Principal>,
    /// Whether by a delegation token.
    pub by_token: bool,
}

/// What is known of one connection.
pub struct Session {
    peer: Arc<Peer>,
    /// The peer's address as ACLs name it.
    host: Arc<str>,
    identity: Identity,
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
    pub fn open(peer: Arc<Peer>, authenticator: Option<&Arc<Authenticator>>) -> Session {
        let exchange = authenticator.map(|authenticator| {
            let until = Instant::now() + AUTHENTICATED_WITHIN;
            let limits = Unproven {
                frame_max: authenticator.receive_max_bytes(),
                setting: thalweg_config::SaslKeys::receive_max_bytes.name(),
                until,
            };
            Box::new(Exchange::new(Arc::clone(authenticator), limits))
        });
        // Over SASL_SSL a client's certificate only lets it in.
        let principal = if exchange.is_some() { Principal::anonymous() } else { peer.principal() };
        let identity = Identity { principal: Arc::new(principal), by_token: false };
        let host = host_address(peer.address.ip()).into();
        Session { peer, host, identity, exchange }
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

    /// Decides whether a frame is a request to serve.
    pub fn admit(&mut self, frame: &Bytes) -> Admission {
        let Some(exchange) = &mut self.exchange else { return Admission::Serve };
        let verdict = exchange.receive(frame, Instant::now());
        if let Some(identity) = exchange.take_identity() {
            self.identity = identity;
        }
        match verdict {
            Verdict::Serve => Admission::Serve,
            Verdict::Answer(reply) => Admission::Answered(reply),
        }
    }

    /// The limits of the peer while it has not authenticated.
    pub fn unproven(&self) -> Option<Unproven> {
        self.exchange.as_ref()?.unproven()
    }
}
