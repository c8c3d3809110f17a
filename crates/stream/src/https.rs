//! HTTP and HTTPS client for servers outside the cluster: the target of the `http` sink, a schema registry.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};

/// An HTTP client that reuses its connections.
pub type Client = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Trusted certificate authorities for https servers.
#[derive(Clone, Debug)]
pub struct Trust(RootCertStore);

/// No certificate is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no certificate authority to trust")]
pub struct NoAuthority;

impl Trust {
    /// No authorities: for http only.
    pub fn none() -> Trust {
        Trust(RootCertStore::empty())
    }

    /// The authorities trusted by this system.
    pub fn of_system() -> Result<Trust, NoAuthority> {
        Trust::of(rustls_native_certs::load_native_certs().certs)
    }

    /// These authorities. Unreadable certificates are left out.
    pub fn of(authorities: Vec<CertificateDer<'_>>) -> Result<Trust, NoAuthority> {
        let mut trusted = RootCertStore::empty();
        match trusted.add_parsable_certificates(authorities) {
            (0, _) => Err(NoAuthority),
            _ => Ok(Trust(trusted)),
        }
    }
}

/// A client that trusts these authorities.
pub fn client(trust: Trust) -> Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the protocol versions")
        .with_root_certificates(trust.0)
        .with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
    legacy::Client::builder(TokioExecutor::new()).build(connector)
}

/// An error and its causes.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
