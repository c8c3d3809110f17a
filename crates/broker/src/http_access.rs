//! Who may use a node's HTTP listener, which the program serves: its TLS, its logins and its rights, as those of the other
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
    /// Its TLS; none where it speaks plain HTTP.
    pub tls: Option<Arc<TlsListener>>,
    /// The passwords of its users; none where nobody is asked for one.
    pub passwords: Option<Passwords>,
    /// What they may do.
    pub rights: ClusterRights,
}

impl HttpAccess {
    /// Records a login in the audit trail, if there is one: by a password or a certificate, and why it failed.
    pub fn record_login(
        &self,
        principal: &Principal,
        address: IpAddr,
        by: &'static str,
        failure: Option<&str>,
    ) {
        let Some(trail) = self.rights.trail() else { return };
        // Of a login that failed, the name is a claim.
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

    /// Records a change that was asked for over HTTP and that no API of Kafka's makes.
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
        // Without them the listener would be open: the start has read both.
        let tls = || secured.of(HTTP_LISTENER).expect("the TLS of the HTTP listener was read at the start");
        // A browser has a user's password: no delegation token.
        let tokens = None;
        let authenticator = || Authenticator::of(config, HTTP_LISTENER, images, clock, tokens);
        let passwords = || Passwords::of(authenticator().expect("the users of the HTTP listener were read"));
        let http = &config.http;
        HttpAccess { tls: http.has_tls.then(tls), passwords: http.has_login.then(passwords), rights }
    }
}
