//! Connections to other brokers of the cluster, over the listener that is between brokers.

use crate::broker::Broker;
use std::time::Duration;
use thalweg_client::{ClientError, Connection, ConnectionOptions, InvalidSetting, Security, host_and_port};
use thalweg_config::{BrokerConfig, INTER_BROKER_MECHANISM, SecurityProtocol};

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
    /// It cannot be spoken to as the configuration says.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
}

/// How to speak to a listener that a broker has registered with this protocol. The files that the settings name are read
/// anew for each connection, and may be renewed meanwhile.
async fn security(config: &BrokerConfig, protocol: i16) -> Result<Security, InvalidSetting> {
    let protocol = SecurityProtocol::from_code(protocol).unwrap_or(SecurityProtocol::Plaintext);
    if protocol == SecurityProtocol::Plaintext {
        return Ok(Security::default());
    }
    let mut properties = config.towards_brokers(protocol);
    let read = tokio::task::spawn_blocking(move || Security::take(&mut properties));
    read.await.expect("reading settings does not panic").map_err(|mut error| {
        if error.key == "sasl.mechanism" {
            error.key = INTER_BROKER_MECHANISM.to_owned();
        }
        error
    })
}

/// Connects to a broker. `purpose` names the connection in that broker's logs; `timeout` is for connecting, and for each
/// answer.
pub async fn connect(
    broker: &Broker,
    id: i32,
    purpose: &str,
    timeout: Duration,
) -> Result<Connection, PeerError> {
    let config = broker.config();
    let listener = config.listeners.inter_broker.clone();
    let image = broker.image();
    let peer = image.broker(id).filter(|peer| !peer.fenced);
    let Some(endpoint) = peer.and_then(|peer| peer.endpoint(&listener)) else {
        return Err(PeerError::NoEndpoint { broker: id, listener });
    };
    let security = security(&config, endpoint.security_protocol).await?;
    let address = host_and_port(&endpoint.host, endpoint.port);
    let options = ConnectionOptions {
        client_id: format!("broker-{}-{purpose}", broker.node_id),
        connect_timeout: timeout,
        request_timeout: timeout,
        security,
        ..ConnectionOptions::default()
    };
    Ok(Connection::connect_by(&broker.connector, &address, &options).await?)
}
