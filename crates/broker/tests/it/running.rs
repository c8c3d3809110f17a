//! A broker on a free port of this machine, with its own data, and a connection to it.

use std::path::Path;
use std::sync::Arc;
use thalweg_broker::api::ApiHandler;
use thalweg_broker::authentication::Session;
use thalweg_broker::{Loading, Machine, Server, start_on};
use thalweg_config::{BrokerConfig, ServerProperties};
use thalweg_dial::{Connection, ConnectionOptions};
use thalweg_log::disk::Disk;
use thalweg_net::{Handler, Peer};
use thalweg_wire::{ErrorCode, Request};

/// A broker that runs until it is dropped or stopped.
pub struct RunningBroker {
    server: Server,
    address: String,
    connection: Connection,
}

/// The configuration of a broker on a free port with its data in `dir` and these properties.
pub fn configuration(dir: &Path, properties: &[(&str, &str)]) -> BrokerConfig {
    let mut all = ServerProperties::default();
    all.set("listeners", "PLAINTEXT://127.0.0.1:0");
    all.set("log.dirs", dir.to_str().expect("a path in UTF-8"));
    all.set("offsets.topic.num.partitions", "1");
    // Some records here are years old by their timestamps.
    all.set("log.retention.ms", "-1");
    for (name, value) in properties {
        all.set(name, value);
    }
    BrokerConfig::new(&all).expect("a valid configuration")
}

impl RunningBroker {
    /// Starts a broker with its data in `dir` and these properties.
    pub async fn start(dir: &Path, properties: &[(&str, &str)]) -> RunningBroker {
        Self::start_on(&Machine::real(), dir, properties).await
    }

    /// As [`RunningBroker::start`], on this machine.
    pub async fn start_on(machine: &Machine, dir: &Path, properties: &[(&str, &str)]) -> RunningBroker {
        let config = configuration(dir, properties);
        let server =
            Box::pin(start_on(machine, config, &Loading::default())).await.expect("the broker starts");
        let address = server.addresses[0].1[0].to_string();
        let connected = Connection::connect(&address, &ConnectionOptions::default()).await;
        RunningBroker { server, address, connection: connected.expect("the broker answers") }
    }

    /// Ends like a killed process: without notice, flush or close. Returns when everything is stopped.
    pub async fn kill(self) {
        let dirs = self.server.data_dirs.clone();
        drop(self);
        // The last to go are the locks of the directories, with the last task that holds the broker.
        for dir in dirs {
            let lock = dir.join(".lock");
            while !matches!(Disk::real().lock(&lock), Ok(Some(_))) {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
    }

    /// A handler of requests without a connection, which outlasts the broker's, and a session.
    pub fn session(&self) -> (ApiHandler, Session) {
        let handler = ApiHandler::new(Arc::clone(&self.server.broker));
        let session = handler.open(Arc::new(Peer {
            address: self.server.addresses[0].1[0],
            listener: "PLAINTEXT".to_owned(),
            tls: None,
            mute: thalweg_net::Mute::default(),
            software: std::sync::OnceLock::new(),
            client_id: std::sync::OnceLock::new(),
            identified: std::sync::OnceLock::new(),
            attached: Default::default(),
        }));
        (handler, session)
    }

    /// Asks at the newest version that both sides know.
    pub async fn ask<R: Request>(&self, request: &R) -> R::Response {
        self.connection.send(request).await.expect("an answer")
    }

    /// Asks at this version.
    pub async fn ask_at<R: Request>(&self, request: &R, version: i16) -> R::Response {
        self.connection.send_at(request, version).await.expect("an answer")
    }

    /// Whether a further connection is served. It is closed again.
    pub async fn admits_another(&self) -> bool {
        let another = Connection::connect(&self.address, &ConnectionOptions::default()).await;
        another.inspect(Connection::close).is_ok()
    }

    /// The connection by which it is asked.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Where its first listener listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The broker itself, for what cannot be asked of it.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Stops the broker cleanly.
    pub async fn stop(self) {
        self.connection.close();
        self.server.stop().await;
    }
}

/// Whether a coordinator has still to be found, or to load its partition.
pub fn is_coming_up(error_code: i16) -> bool {
    let errors =
        [ErrorCode::CoordinatorLoadInProgress, ErrorCode::CoordinatorNotAvailable, ErrorCode::NotCoordinator];
    errors.iter().any(|error| error.code() == error_code)
}
