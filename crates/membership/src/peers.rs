//! Connections to other brokers of the cluster, over the inter-broker listener.
//!
//! Owns: the addresses of brokers from the latest image, and the security of connections. Refuses: the
//! content of requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::SaslKeys;
use thalweg_dial::{
    ClientError, Connection, ConnectionOptions, Connector, InvalidSetting, Properties, Security,
    host_and_port,
};
use thalweg_metadata::{BrokerId, Endpoint, ImageCell};

/// Why a broker cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The broker does not exist or is fenced.
    #[error("the image has no live broker {broker} with the listener {listener}")]
    NoEndpoint {
        broker: BrokerId,
        /// Listener name, from inter.broker.listener.name.
        listener: String,
    },
    /// The broker has no listener of the default name, and its other listeners cannot be used.
    #[error(
        "broker {broker} has no listener {listener}, and cannot be reached by its other listeners; set \
         inter.broker.listener.name of this node, and the security of that listener: {error}"
    )]
    NoListener {
        broker: BrokerId,
        /// The default listener name.
        listener: String,
        /// Error of the last attempt.
        error: Box<PeerError>,
    },
    /// The broker does not serve the required version.
    #[error("broker {broker} serves {api} only up to version {version}, which is too old for brokers")]
    TooOld {
        broker: BrokerId,
        api: &'static str,
        /// The newest common version.
        version: i16,
    },
    /// The broker does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The configured security does not allow a connection.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
}

/// Settings of connections to other brokers.
#[derive(Debug)]
pub struct PeerOptions {
    /// `node.id`, which connections report.
    pub node_id: BrokerId,
    /// `inter.broker.listener.name`.
    pub listener: String,
    /// True if a broker without that listener is reached by another one of its listeners, the first that
    /// answers.
    pub or_any: bool,
    /// Security settings by the number of the listener's security protocol. Missing protocols use plain text.
    pub security: BTreeMap<i16, Properties>,
    /// `request.timeout.ms`, for requests of coordinators.
    pub request_timeout: Duration,
}

/// Opens connections to other brokers.
#[derive(Debug)]
pub struct Peers {
    options: PeerOptions,
    connector: Connector,
    image: Arc<ImageCell>,
}

impl Peers {
    /// An instance without connections.
    pub fn new(options: PeerOptions, connector: Connector, image: Arc<ImageCell>) -> Peers {
        Peers { options, connector, image }
    }

    /// `request.timeout.ms`.
    pub fn request_timeout(&self) -> Duration {
        self.options.request_timeout
    }

    /// Connects to a broker. `purpose` names the connection in that broker's logs. `timeout` applies to
    /// connecting and to each answer.
    pub async fn connect(
        &self,
        id: BrokerId,
        purpose: &str,
        timeout: Duration,
    ) -> Result<Connection, PeerError> {
        let listener = &self.options.listener;
        let image = self.image.get();
        let no_endpoint = || PeerError::NoEndpoint { broker: id, listener: listener.clone() };
        let peer = image.broker(id).filter(|peer| !peer.fenced).ok_or_else(no_endpoint)?;
        if let Some(endpoint) = peer.endpoint(listener) {
            return self.connect_to(endpoint, purpose, timeout).await;
        }
        let mut last = no_endpoint();
        for endpoint in peer.endpoints.iter().filter(|_| self.options.or_any) {
            match self.connect_to(endpoint, purpose, timeout).await {
                Ok(connection) => return Ok(connection),
                Err(error) => {
                    let (listener, error) = (listener.clone(), Box::new(error));
                    last = PeerError::NoListener { broker: id, listener, error };
                }
            }
        }
        Err(last)
    }

    async fn connect_to(
        &self,
        endpoint: &Endpoint,
        purpose: &str,
        timeout: Duration,
    ) -> Result<Connection, PeerError> {
        let options = ConnectionOptions {
            client_id: format!("broker-{}-{purpose}", self.options.node_id),
            connect_timeout: timeout,
            request_timeout: timeout,
            security: self.security(endpoint.security_protocol).await?,
            ..ConnectionOptions::default()
        };
        let address = host_and_port(&endpoint.host, endpoint.port);
        Ok(Connection::connect_by(&self.connector, &address, &options).await?)
    }

    /// The security settings for a listener with this protocol. Their files are read again for each
    /// connection, so certificates can be renewed.
    async fn security(&self, protocol: i16) -> Result<Security, InvalidSetting> {
        let Some(mut properties) = self.options.security.get(&protocol).cloned() else {
            return Ok(Security::default());
        };
        let read = tokio::task::spawn_blocking(move || Security::take(&mut properties));
        read.await.expect("reading settings does not panic").map_err(|mut error| {
            if error.key == "sasl.mechanism" {
                error.key = SaslKeys::mechanism_inter_broker.name().to_owned();
            }
            error
        })
    }
}
