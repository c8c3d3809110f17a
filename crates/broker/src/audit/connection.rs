//! The client of a connection, as named in the audit trail.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use thalweg_audit::{Change, Client, EventContent, Login, Tls, Trail};
use thalweg_config::AuditKind;
use thalweg_net::Peer;
use thalweg_places::network;
use thalweg_security::Principal;
use thalweg_security::acl::{Decision, host_address};
use thalweg_security::sasl::Mechanism;
use thalweg_security::tls::{ServerTlsSession, TlsHandshakeFault};

/// The mechanism of a client certificate.
const CERTIFICATE: &str = "SSL";

/// A connection with events in a trail.
#[derive(Clone, Debug)]
pub struct AuditedConnection {
    trail: Arc<Trail>,
    address: SocketAddr,
    listener: String,
    tls: Option<Tls>,
    /// Empty before the login.
    principal: String,
    mechanism: Option<&'static str>,
}

/// A request on an audited connection. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditedRequest {
    pub connection: Arc<AuditedConnection>,
    pub client_id: Option<Arc<str>>,
}

impl AuditedConnection {
    /// A new connection.
    pub fn of(trail: &Arc<Trail>, peer: &Peer) -> AuditedConnection {
        Self::at(trail, peer.address, &peer.listener, peer.tls.as_ref())
    }

    /// A connection to a listener.
    pub fn at(
        trail: &Arc<Trail>,
        address: SocketAddr,
        listener: &str,
        tls: Option<&ServerTlsSession>,
    ) -> AuditedConnection {
        let tls = tls.map(|tls| Tls { version: tls.protocol, cipher: tls.cipher.clone() });
        AuditedConnection {
            trail: Arc::clone(trail),
            address,
            listener: listener.to_owned(),
            tls,
            principal: String::new(),
            mechanism: None,
        }
    }

    /// The trail that the connection's events go to.
    pub fn trail(&self) -> &Arc<Trail> {
        &self.trail
    }

    /// The connection after authentication, or without need of a login.
    pub fn of_principal(&self, principal: &Principal, mechanism: Option<Mechanism>) -> AuditedConnection {
        let principal = principal.to_string();
        AuditedConnection { principal, mechanism: mechanism.map(Mechanism::name), ..self.clone() }
    }

    /// The connection with the principal of a client certificate.
    pub fn of_certificate(&self, principal: &Principal) -> AuditedConnection {
        AuditedConnection { mechanism: Some(CERTIFICATE), ..self.of_principal(principal, None) }
    }

    /// Records a successful login.
    pub fn logged_in(&self, is_again: bool) {
        let login = || (self.client(None), EventContent::Login(Login { is_again, failure: None }));
        self.trail.record(AuditKind::Logins, &self.source(), login);
    }

    /// Records a failed login, with the claimed user if the client has sent one.
    pub fn login_failed(
        &self,
        mechanism: Option<Mechanism>,
        user: Option<&str>,
        is_again: bool,
        reason: &str,
    ) {
        let source = host_address(network(self.address.ip()));
        self.trail.record(AuditKind::Logins, &source, || {
            let principal = user.map_or_else(String::new, |user| Principal::user(user).to_string());
            let mechanism = mechanism.map(Mechanism::name);
            let client = Client { principal, mechanism, ..self.client(None) };
            (client, EventContent::Login(Login { is_again, failure: Some(reason.to_owned()) }))
        });
    }

    /// Records a failed login by a client certificate.
    pub fn certificate_refused(&self, reason: &TlsHandshakeFault) {
        let source = host_address(network(self.address.ip()));
        self.trail.record(AuditKind::Logins, &source, || {
            let client = Client { mechanism: Some(CERTIFICATE), ..self.client(None) };
            (client, EventContent::Login(Login { is_again: false, failure: Some(reason.to_string()) }))
        });
    }

    /// Records a decision.
    pub fn decided(&self, decision: &Decision<'_>, client_id: Option<&str>) {
        self.trail.record_decision(decision, || self.client(client_id));
    }

    /// Records a change of the cluster.
    pub fn changed(&self, change: Change, client_id: Option<&str>) {
        self.trail.record(AuditKind::Administration, &self.source(), || {
            (self.client(client_id), EventContent::Change(change))
        });
    }

    /// The source of events: the principal, or the client's network without a principal.
    fn source(&self) -> Cow<'_, str> {
        if self.principal.is_empty() || self.principal == Principal::anonymous().as_str() {
            return Cow::Owned(host_address(network(self.address.ip())));
        }
        Cow::Borrowed(&self.principal)
    }

    fn client(&self, client_id: Option<&str>) -> Client {
        Client {
            principal: self.principal.clone(),
            host: host_address(self.address.ip()),
            port: Some(self.address.port()),
            listener: Some(self.listener.clone()),
            mechanism: self.mechanism,
            tls: self.tls.clone(),
            client_id: client_id.map(str::to_owned),
        }
    }
}

impl AuditedRequest {
    /// Records a decision on this request.
    pub fn decided(&self, decision: &Decision<'_>) {
        self.connection.decided(decision, self.client_id.as_deref());
    }

    /// Records a change by this request.
    pub fn changed(&self, change: Change) {
        self.connection.changed(change, self.client_id.as_deref());
    }

    /// True if changes are recorded.
    pub fn wants_changes(&self) -> bool {
        self.connection.trail.wants(AuditKind::Administration)
    }
}
