//! HTTPS requests to servers beside the cluster: collectors of metrics, providers of token keys.

use hyper::body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::io;

/// A client for requests with bodies of type `B`.
pub(crate) type HttpsClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// A client that trusts the certificates of the system. Fails if these cannot be read.
pub(crate) fn client<B>() -> io::Result<HttpsClient<B>>
where
    B: Body + Send,
    B::Data: Send,
{
    let connector = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())?
        .https_or_http()
        .enable_http1()
        .build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// An error with its causes.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    text
}
