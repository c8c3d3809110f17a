//! The embedded controller with the listeners by which other nodes reach it (`controller.listener.names`): in
//! a broker's process, or alone (`process.roles=controller`).
//!
//! A connection to such a listener is served by the controller only, with the same limits as a client's. A
//! quorum of one voter makes the cluster read-only while the process is down, which is logged at the start.

use crate::api::served;
use crate::audit::Watch;
use crate::authentication::{Admission, Authenticator, Images, Session};
use crate::authorization::ClusterRights;
use crate::config_rules::BrokerConfigRules;
use crate::connection_limits;
use crate::http_access::HttpAccess;
use crate::loading::Loading;
use crate::log_ends::LogEnds;
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
        let follow =
            follow_image(Arc::clone(&controller), Arc::clone(config), Arc::clone(&limits), stop.clone());
        listeners.spawn(follow);
        let log_ends = LogEnds::new(Arc::clone(&controller), config, machine.network.connector().clone());
        listeners.spawn(log_ends.run(stop.clone()));
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

    /// The controller.
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

/// Updates the limits of the controller's connections from the image: the settings of this node, and the
/// rates of addresses.
async fn follow_image(
    controller: Arc<Controller>,
    config: Arc<BrokerConfig>,
    connections: Arc<Connections>,
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
        let limited = limited(&frame);
        // Forwarded requests are recorded by the forwarding broker, which knows the client.
        let watch = peek_request(&frame).ok().and_then(|prefix| {
            let (key, version) = (ApiKey::from_i16(prefix.api_key)?, prefix.api_version);
            // The client id is in the header, which the controller decodes.
            let describe = served(key)?.describe;
            Watch::begin(session.audited(None).as_ref(), (key, version), describe, &frame, &self.disk)
        });
        let reply = Reply::Later(Box::pin(async move {
            match controller.handle(frame, &requester).await {
                Ok(answer) => {
                    // The request in an envelope is throttled by the forwarding broker.
                    let asked =
                        limited.and_then(|(key, version)| throttle_time::of_answer(key, version, &answer));
                    asked.into_iter().for_each(|asked| peer.mute.pause(asked));
                    Reply::Now(Frame::with_length(answer))
                }
                Err(HandleError::Stopped) => Reply::Close("the controller is stopping".to_owned()),
                Err(error) => Reply::Close(error.to_string()),
            }
        }));
        match watch {
            None => reply,
            Some(watch) => watch.follow(reply),
        }
    }
}

/// The API and version of a request with a mutation quota.
fn limited(frame: &Bytes) -> Option<(ApiKey, i16)> {
    let prefix = peek_request(frame).ok()?;
    let key = ApiKey::from_i16(prefix.api_key)?;
    matches!(key, ApiKey::CreateTopics | ApiKey::DeleteTopics | ApiKey::CreatePartitions)
        .then_some((key, prefix.api_version))
}

/// A process that is a controller and no broker.
pub struct ControllerServer {
    /// The bound listeners: name and addresses.
    pub addresses: Vec<(String, Vec<SocketAddr>)>,
    /// The data directories.
    pub data_dirs: Vec<PathBuf>,
    /// `node.id`.
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
