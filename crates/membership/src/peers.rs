//! Connections to other brokers of the cluster, over the inter-broker listener.
//!
//! Owns: the addresses of brokers, by the latest image, and the security of connections. Refuses: the content of
//! requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::SaslKeys;
use thalweg_dial::{
    ClientError, Connection, ConnectionOptions, Connector, InvalidSetting, Properties, Security,
    host_and_port,
};
use thalweg_metadata::{BrokerId, Endpoint, ImageCell};

/// A broker cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It is not there, or it is fenced.
    #[error("the image has no live broker {broker} with the listener {listener}")]
    NoEndpoint {
        /// The broker.
        broker: BrokerId,
        /// The listener, by inter.broker.listener.name.
        listener: String,
    },
    /// It has no listener of the default name, and none of the others can be used.
    #[error(
        "broker {broker} has no listener {listener}, and cannot be reached by its other listeners; set \
         inter.broker.listener.name of this node, and the security of that listener: {error}"
    )]
    NoListener {
        /// The broker.
        broker: BrokerId,
        /// The name by default.
        listener: String,
        /// The failure of the last one.
        error: Box<PeerError>,
    },
    /// It does not serve the required version.
    #[error("broker {broker} serves {api} only up to version {version}, which is too old for brokers")]
    TooOld {
        /// The broker.
        broker: BrokerId,
        /// The API.
        api: &'static str,
        /// The newest version that both speak.
        version: i16,
    },
    /// It does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The configured security does not allow a connection.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),
}

/// How other brokers are reached.
#[derive(Debug)]
pub struct PeerOptions {
    /// `node.id`, which connections name.
    pub node_id: BrokerId,
    /// `inter.broker.listener.name`.
    pub listener: String,
    /// True if a broker without that listener is reached by one of its others, the first that answers.
    pub or_any: bool,
    /// How to speak to a listener, by the number of its security protocol. Plain text for those that are missing.
    pub security: BTreeMap<i16, Properties>,
    /// `request.timeout.ms`, for requests of coordinators.
    pub request_timeout: Duration,
}

/// The way to other brokers.
#[derive(Debug)]
pub struct Peers {
    options: PeerOptions,
    connector: Connector,
    image: Arc<ImageCell>,
}

impl Peers {
    /// No connections yet.
    pub fn new(options: PeerOptions, connector: Connector, image: Arc<ImageCell>) -> Peers {
        Peers { options, connector, image }
    }

    /// `request.timeout.ms`.
    pub fn request_timeout(&self) -> Duration {
        self.options.request_timeout
    }

    /// Connects to a broker. `purpose` names the connection in that broker's logs; `timeout` is for connecting, and for each
    /// answer.
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

    /// The security settings for a listener with this protocol. Their files are read again for each connection, so
    /// they can be renewed.
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
