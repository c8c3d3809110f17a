//! Connections to other brokers of the cluster, over the listener that is between brokers.

use crate::broker::Broker;
use std::time::Duration;
use thalweg_client::{ClientError, Connection, ConnectionOptions};

/// A broker cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It is not there, or it is fenced.
    #[error("the image has no live broker {broker} with the listener {listener}")]
    NoEndpoint {
        /// The broker.
        broker: i32,
        /// The listener, by inter.broker.listener.name.
        listener: String,
    },
    /// It does not serve what is wanted.
    #[error("broker {broker} serves {api} only up to version {version}, which is not for brokers")]
    TooOld {
        /// The broker.
        broker: i32,
        /// The API.
        api: &'static str,
        /// The newest version that both speak.
        version: i16,
    },
    /// It does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Connects to a broker. `purpose` names the connection in that broker's logs; `timeout` is for connecting, and for each
/// answer.
pub async fn connect(
    broker: &Broker,
    id: i32,
    purpose: &str,
    timeout: Duration,
) -> Result<Connection, PeerError> {
    let listener = broker.config().listeners.inter_broker.clone();
    let image = broker.image();
    let peer = image.broker(id).filter(|peer| !peer.fenced);
    let Some(endpoint) = peer.and_then(|peer| peer.endpoint(&listener)) else {
        return Err(PeerError::NoEndpoint { broker: id, listener });
    };
    let address = match endpoint.host.contains(':') {
        true => format!("[{}]:{}", endpoint.host, endpoint.port),
        false => format!("{}:{}", endpoint.host, endpoint.port),
    };
    let options = ConnectionOptions {
        client_id: format!("broker-{}-{purpose}", broker.node_id),
        connect_timeout: timeout,
        request_timeout: timeout,
        ..ConnectionOptions::default()
    };
    Ok(Connection::connect(&address, &options).await?)
}
