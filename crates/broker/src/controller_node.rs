//! The embedded controller with the listeners by which other nodes reach it (`controller.listener.names`): in
//! a broker's process, or alone (`process.roles=controller`).
//!
//! A connection to such a listener is served by the controller only, with the same limits as a client's. A
//! quorum of one voter makes the cluster read-only while the process is down, which is logged at the start.

use crate::api::served;
use crate::audit::ChangeRecorder;
use crate::authentication::{Admission, Authenticator, Images, Session};
use crate::authorization::ClusterRights;
use crate::config_rules::BrokerConfigRules;
use crate::connection_limits;
use crate::http_access::HttpAccess;
use crate::loading::Loading;
use crate::log_ends::LogEndComparison;
use crate::metrics::{Entrance, Metrics, Sources};
use crate::opening::{self, DRAIN, StartError};
use crate::quotas::throttle_time;
use crate::secured::SecuredListeners;
use crate::trails::Trails;
use bytes::Bytes;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use thalweg_audit::Trail;
use thalweg_config::{BrokerConfig, Listener};
use thalweg_controller::{Controller, ControllerOptions, HandleError, Requester};
use thalweg_log::disk::Disk;
use thalweg_log::{Clock, LogDirs};
use thalweg_membership::features;
use thalweg_metadata::{BrokerId, ConfigMap, ConfigResource, Image};
use thalweg_net::Machine;
use thalweg_net::{
    BoundListener, ConnectionSettings, Connections, Frame, Handler, Peer, Reply, UnprovenLimits,
};
use thalweg_watch as watch;
use thalweg_wire::ApiKey;
use thalweg_wire::frame::peek_request;
use tokio::task::JoinSet;

/// The controller of this process and its listeners.
pub(crate) struct ControllerNode {
    controller: Arc<Controller>,
    addresses: Vec<(String, Vec<SocketAddr>)>,
    stopping: watch::Sender<bool>,
    listeners: JoinSet<()>,
    entrance: Entrance,
    secured: Arc<SecuredListeners>,
}

impl ControllerNode {
    /// Starts the controller, and serves requests on its bound sockets.
    pub async fn start(
        machine: &Machine,
        config: &Arc<BrokerConfig>,
        log_dirs: &LogDirs,
        may_format: bool,
        (listening, secured): (Vec<BoundListener>, Arc<SecuredListeners>),
        connections: &ConnectionSettings,
        trails: &Trails,
    ) -> Result<ControllerNode, StartError> {
        trails.observe(&secured);
        let port = |name: &str| listening.iter().find(|l| l.name == name).map(BoundListener::port);
        let advertised = config.listeners.controller_advertised_as(&opening::host_name(), port);
        let options = ControllerOptions {
            witness: trails.witness(),
            ..options(machine, config, log_dirs, may_format, &advertised)
        };
        let rules = Arc::new(BrokerConfigRules::new(Arc::clone(config)));
        let controller = Arc::new(Controller::start(options, rules).await?);
        if !advertised.is_empty() {
            let addresses: Vec<String> = advertised.iter().map(ToString::to_string).collect();
            tracing::warn!(
                listeners = addresses.join(","),
                "The embedded controller serves other nodes as the only voter of its quorum: it is a single point of \
                 failure. While it is down, leaders do not change, topics cannot be created, and no broker can join"
            );
        }
        let addresses = listening.iter().map(|l| (l.name.clone(), l.addresses())).collect();
        let (stopping, stop) = watch::channel(false);
        let limits = Connections::new(
            connection_limits::window(config),
            connection_limits::limits(config, &config.listeners.controller),
            None,
            machine.disk.descriptors().clone(),
        );
        let (mut listeners, mut logins) = (JoinSet::new(), Vec::new());
        let of_controller = Arc::clone(&controller);
        let images: Images = Arc::new(move || of_controller.image());
        listeners.spawn(Arc::clone(&secured).watch(stop.clone()));
        let follow = follow_image(
            Arc::clone(&controller),
            Arc::clone(config),
            Arc::clone(&limits),
            Arc::clone(&secured),
            stop.clone(),
        );
        listeners.spawn(follow);
        let comparison =
            LogEndComparison::new(Arc::clone(&controller), config, machine.network.connector().clone());
        listeners.spawn(comparison.run(stop.clone()));
        for listening in listening {
            // Delegation tokens are for clients of brokers: at the controller a token could create tokens.
            let authenticator = Authenticator::of(config, &listening.name, &images, &machine.clock, None);
            logins.extend(authenticator.clone().map(|authenticator| (listening.name.clone(), authenticator)));
            let handler = ControllerHandler {
                controller: Arc::clone(&controller),
                authenticator,
                trail: trails.trail().cloned(),
                disk: machine.disk.clone(),
            };
            let (settings, limits) = (connections.clone(), Arc::<Connections>::clone(&limits));
            listeners.spawn(listening.serve(handler, settings, limits, stop.clone()));
        }
        let entrance = Entrance { connections: limits, logins };
        Ok(ControllerNode { controller, addresses, stopping, listeners, entrance, secured })
    }

    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// The controller's connections.
    pub fn entrance(&self) -> Entrance {
        self.entrance.clone()
    }

    /// The TLS of the controller's listeners.
    pub fn secured(&self) -> &Arc<SecuredListeners> {
        &self.secured
    }

    /// The bound listeners: name and addresses.
    pub fn addresses(&self) -> &[(String, Vec<SocketAddr>)] {
        &self.addresses
    }

    /// Stops the controller, then its listeners. Waiting requests get no answer, so that their senders look
    /// up the next controller. Returns true if the log was closed cleanly.
    pub async fn stop(mut self) -> bool {
        let is_clean = self.controller.shutdown().await;
        self.stopping.send_replace(true);
        let drained = async { while self.listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            self.listeners.abort_all();
        }
        is_clean
    }
}

/// Applies the image to the controller's listeners: the settings of this node, which are limits of
/// connections and TLS, and the rates of addresses.
async fn follow_image(
    controller: Arc<Controller>,
    config: Arc<BrokerConfig>,
    connections: Arc<Connections>,
    secured: Arc<SecuredListeners>,
    mut stopping: watch::Receiver<bool>,
) {
    let (own, all) = (ConfigResource::broker(BrokerId(config.node.id)), ConfigResource::brokers());
    let mut network = config.network.clone();
    let (mut seen, mut seen_configs) = (Arc::new(Image::empty()), (ConfigMap::new(), ConfigMap::new()));
    while !*stopping.borrow() {
        let changed = controller.image_changed();
        let image = controller.image();
        if !std::ptr::eq(image.quotas(), seen.quotas()) {
            connections.set_ip_rates(connection_limits::ip_rates(image.quotas()));
        }
        let configs = (image.config(&all).as_ref().clone(), image.config(&own).as_ref().clone());
        if configs != seen_configs {
            let mut config = config.with_dynamic(&configs.0, &configs.1).0;
            connection_limits::keep_unless_known(&mut config.network, &network);
            network = config.network.clone();
            connections.set_limits(connection_limits::limits(&config, &config.listeners.controller));
            secured.apply(&config);
            seen_configs = configs;
        }
        seen = image;
        tokio::select! {
            biased;
            // An error: the node was dropped.
            stopped = stopping.changed() => if stopped.is_err() { return },
            () = changed => {}
        }
    }
}

fn options(
    machine: &Machine,
    config: &BrokerConfig,
    log_dirs: &LogDirs,
    may_format: bool,
    advertised: &[Listener],
) -> ControllerOptions {
    let dir = config.metadata_log_dir();
    let described = log_dirs.describe();
    let directory = described.iter().find(|d| d.path == dir).or(described.first());
    let directory_id = directory.map_or(thalweg_wire::Uuid::ZERO, |d| d.id);
    ControllerOptions {
        listeners: advertised.iter().map(opening::endpoint).collect(),
        supported_features: features::ranges(),
        bootstrap_features: features::of_new_clusters(),
        may_format,
        compares_log_ends: true,
        clock: machine.clock.clone(),
        disk: machine.disk.clone(),
        ..ControllerOptions::of(config, log_dirs.cluster_id(), directory_id, dir)
    }
}

/// Serves the requests of connections to the controller.
#[derive(Clone)]
struct ControllerHandler {
    controller: Arc<Controller>,
    authenticator: Option<Arc<Authenticator>>,
    trail: Option<Arc<Trail>>,
    disk: Disk,
}

impl Handler for ControllerHandler {
    type Session = Session;

    fn open(&self, peer: Arc<Peer>) -> Session {
        Session::open(peer, self.authenticator.as_ref(), self.trail.as_ref())
    }

    fn unproven(&self, session: &Session) -> Option<UnprovenLimits> {
        session.unproven()
    }

    fn handle(&self, session: &mut Session, frame: Bytes) -> Reply {
        if let Admission::Answered(reply) = session.admit(&frame) {
            return reply;
        }
        let principal = session.principal().as_ref().clone();
        let requester = Requester::peer(principal, session.peer().address.ip());
        let (controller, peer) = (Arc::clone(&self.controller), Arc::clone(session.peer()));
        let prefix = peek_request(&frame).ok();
        let api = prefix.and_then(|prefix| Some((ApiKey::from_i16(prefix.api_key)?, prefix.api_version)));
        // Forwarded requests are recorded by the forwarding broker, which knows the client.
        let recorder = api.and_then(|(key, version)| {
            // The client id is in the header, which the controller decodes.
            let describe = served(key)?.describe;
            ChangeRecorder::begin(
                session.audited(None).as_ref(),
                (key, version),
                describe,
                &frame,
                &self.disk,
            )
        });
        let reply = Reply::Later(Box::pin(async move {
            match controller.handle(frame, &requester).await {
                Ok(answer) => {
                    // The request in an envelope is throttled by the forwarding broker.
                    let pause =
                        api.and_then(|(key, version)| throttle_time::of_answer(key, version, &answer));
                    pause.into_iter().for_each(|pause| peer.mute.pause(pause));
                    Reply::Now(Frame::with_length(answer))
                }
                Err(HandleError::Stopped) => Reply::Close("the controller is stopping".to_owned()),
                Err(error) => Reply::Close(error.to_string()),
            }
        }));
        match recorder {
            None => reply,
            Some(recorder) => recorder.follow(reply),
        }
    }
}

/// A process that is a controller and no broker.
pub struct ControllerServer {
    /// The bound listeners: name and addresses.
    pub addresses: Vec<(String, Vec<SocketAddr>)>,
    /// The data directories.
    pub data_dirs: Vec<PathBuf>,
    pub node_id: i32,
    /// The controller's metrics.
    pub metrics: Metrics,
    node: ControllerNode,
    config: Arc<BrokerConfig>,
    secured: Arc<SecuredListeners>,
    clock: Clock,
    trails: Trails,
    /// Tasks of the metrics, aborted on drop.
    _housekeeping: JoinSet<()>,
    /// The locks of the log directories keep other processes out.
    _log_dirs: Arc<LogDirs>,
}

/// Starts a controller without a broker. Boxed like [`start_watched`](crate::start_watched).
pub fn start_controller(
    config: BrokerConfig,
) -> Pin<Box<dyn Future<Output = Result<ControllerServer, StartError>> + Send>> {
    Box::pin(async move { start_controller_on(&Machine::real(), config).await })
}

/// Starts a controller without a broker, on a machine of the caller's choice.
pub async fn start_controller_on(
    machine: &Machine,
    config: BrokerConfig,
) -> Result<ControllerServer, StartError> {
    let config = Arc::new(config);
    let connections = opening::connection_settings(machine, &config);
    let http = config.http.as_listener();
    let (listening, secured) =
        opening::bind_all(machine, &config.listeners.controller, http.as_ref(), &config)?;
    let (log_dirs, found) = opening::open_logs(machine, &config, None, &Loading::default())?;
    let may_format = found.is_empty();
    let trails = Trails::open(machine, &config, log_dirs.cluster_id())?;
    let node = ControllerNode::start(
        machine,
        &config,
        &log_dirs,
        may_format,
        (listening, Arc::clone(&secured)),
        &connections,
        &trails,
    )
    .await?;
    let metrics = Metrics::new(Sources {
        broker: None,
        controller: Some(node.controller()),
        entrances: vec![node.entrance()],
        secured: vec![Arc::clone(&secured)],
        flow: &connections.flow,
        trail: trails.trail(),
        config: &config,
        clock: &machine.clock,
    });
    let mut housekeeping = JoinSet::new();
    metrics.start(&mut housekeeping, log_dirs.cluster_id(), config.node.id);
    Ok(ControllerServer {
        addresses: node.addresses().to_vec(),
        data_dirs: config.log.data_dirs().to_vec(),
        node_id: config.node.id,
        metrics,
        _housekeeping: housekeeping,
        node,
        config,
        secured,
        clock: machine.clock.clone(),
        trails,
        _log_dirs: log_dirs,
    })
}

impl ControllerServer {
    /// Access to this node's HTTP listener.
    pub fn http_access(&self) -> HttpAccess {
        let controller = self.node.controller();
        let of_controller = Arc::clone(controller);
        let images: Images = Arc::new(move || of_controller.image());
        let rights = ClusterRights::of_controller(Arc::clone(controller), self.config.authorizer_rules());
        let rights = rights.with_trail(self.trails.trail());
        HttpAccess::new(&self.config, &self.secured, &images, &self.clock, rights)
    }

    /// Waits until the controller fails: the process must stop then. Returns the reason.
    pub async fn failed(&self) -> String {
        self.node.controller().stopped().await;
        "the controller has ended".to_owned()
    }

    /// Stops the controller. Returns true if its log was closed cleanly.
    pub fn stop(self) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(async move {
            let is_clean = self.node.stop().await;
            self.trails.close().await;
            is_clean
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;
    use tempfile::TempDir;
    use thalweg_config::{MetricsSettings, ServerProperties};
    use thalweg_wire::frame::{LENGTH_LEN, decode_response, encode_request};
    use thalweg_wire::request::IncrementalAlterConfigsRequest;
    use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
    use thalweg_wire::{ErrorCode, Message};

    /// A certificate that expires in January of a year, with its key. Returns the file.
    fn certificate(dir: &TempDir, year: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = key.serialize_pem() + &params.self_signed(&key).expect("a certificate").pem();
        let path = dir.path().join(format!("{year}.pem"));
        std::fs::write(&path, pem).expect("written");
        path.to_str().expect("a path of letters").to_owned()
    }

    async fn start(data: &Path, keystore: &str) -> ControllerServer {
        let mut properties = ServerProperties::default();
        for (name, value) in [
            ("process.roles", "controller"),
            ("listeners", "CONTROLLER://127.0.0.1:0"),
            ("listener.security.protocol.map", "CONTROLLER:SSL"),
            ("ssl.keystore.location", keystore),
            ("log.dirs", data.to_str().expect("a path of letters")),
        ] {
            properties.set(name, value);
        }
        let config = BrokerConfig::new(&properties).expect("a configuration");
        start_controller(config).await.expect("a controller")
    }

    /// Sets a value at run time, of a node or of all.
    async fn alter(server: &ControllerServer, node: &str, name: &str, value: &str) {
        let config =
            AlterableConfig { name: name.to_owned(), value: Some(value.to_owned()), ..Default::default() };
        let resource =
            AlterConfigsResource { resource_type: 4, resource_name: node.to_owned(), configs: vec![config] };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        let version = IncrementalAlterConfigsRequest::MAX_VERSION;
        let frame = encode_request(&request, version, 1, None).expect("a request").slice(LENGTH_LEN..);
        let answer =
            server.node.controller().handle(frame, &Requester::ThisProcess).await.expect("an answer");
        let (_, answer) =
            decode_response::<IncrementalAlterConfigsRequest>(answer, version).expect("a response");
        assert_eq!(answer.responses[0].error_code, ErrorCode::None.code(), "{answer:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn controller_alone_follows_its_settings() {
        let (data, certificates) = (tempfile::tempdir().expect("a dir"), tempfile::tempdir().expect("a dir"));
        let server = start(data.path(), &certificate(&certificates, 2040)).await;
        let expiry = || server.secured.figures().find_map(|(_, expires_s, _)| expires_s);
        let first = expiry();
        let key = "listener.name.controller.ssl.keystore.location";
        alter(&server, "1", key, &certificate(&certificates, 2041)).await;
        let changed = async {
            while expiry() == first {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), changed).await.expect("the new certificate is used");

        assert_ne!(server.metrics.settings().series_max, 7);
        alter(&server, "", MetricsSettings::series_max.name(), "7").await;
        assert_eq!(server.metrics.settings().series_max, 7);
        server.stop().await;
    }
}
