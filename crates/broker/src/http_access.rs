//! Access to a node's HTTP listener, which the binary serves: TLS, logins and rights, as on Kafka's
//! listeners.

use crate::authentication::{Authenticator, Images, Passwords};
use crate::authorization::ClusterRights;
use crate::secured::SecuredListeners;
use std::net::IpAddr;
use std::sync::Arc;
pub use thalweg_audit::{Action as HttpAction, Change as HttpChange, Failure as HttpFailure};
use thalweg_audit::{Client, EventContent, Login};
use thalweg_config::{AuditKind, BrokerConfig, HTTP_LISTENER};
use thalweg_log::Clock;
use thalweg_net::TlsListener;
use thalweg_places::network;
use thalweg_security::Principal;
use thalweg_security::acl::host_address;

/// Access to the HTTP listener.
#[derive(Debug)]
pub struct HttpAccess {
    /// The listener's TLS; `None` for plain HTTP.
    pub tls: Option<Arc<TlsListener>>,
    /// The users' passwords; `None` if the listener needs no login.
    pub passwords: Option<Passwords>,
    /// The rights of principals.
    pub rights: ClusterRights,
}

impl HttpAccess {
    /// Records a login in the audit trail, if there is one: the method, and the reason for a failure.
    pub fn record_login(
        &self,
        principal: &Principal,
        address: IpAddr,
        by: &'static str,
        failure: Option<&str>,
    ) {
        let Some(trail) = self.rights.trail() else { return };
        // The name in a failed login is only a claim.
        let host = host_address(network(address));
        let source = if failure.is_some() { host.as_str() } else { principal.as_str() };
        trail.record(AuditKind::Logins, source, || {
            let client = Client {
                principal: principal.to_string(),
                host: host_address(address),
                listener: Some(HTTP_LISTENER.to_owned()),
                mechanism: Some(by),
                ..Client::default()
            };
            (client, EventContent::Login(Login { is_again: false, failure: failure.map(str::to_owned) }))
        });
    }

    /// Records a change over HTTP that has no Kafka API.
    pub fn record_change(&self, principal: &Principal, address: IpAddr, change: HttpChange) {
        let Some(trail) = self.rights.trail() else { return };
        trail.record(AuditKind::Administration, principal.as_str(), || {
            let client = Client {
                principal: principal.to_string(),
                host: host_address(address),
                listener: Some(HTTP_LISTENER.to_owned()),
                ..Client::default()
            };
            (client, EventContent::Change(change))
        });
    }

    pub(crate) fn new(
        config: &BrokerConfig,
        secured: &SecuredListeners,
        images: &Images,
        clock: &Clock,
        rights: ClusterRights,
    ) -> HttpAccess {
        // Both were read at the start; without them the listener would be open.
        let tls = || secured.of(HTTP_LISTENER).expect("the TLS of the HTTP listener was read at the start");
        // Browsers log in with a user's password, not with a delegation token.
        let tokens = None;
        let authenticator = || Authenticator::of(config, HTTP_LISTENER, images, clock, tokens);
        let passwords = || Passwords::of(authenticator().expect("the users of the HTTP listener were read"));
        let http = &config.http;
        HttpAccess { tls: http.has_tls.then(tls), passwords: http.has_login.then(passwords), rights }
    }
}
