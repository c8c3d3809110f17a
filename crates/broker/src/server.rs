//! A running broker: from a configuration to served listeners, and a clean stop.
//!
//! Up: sockets are bound, so that a port conflict is reported first; the data directories are opened and
//! recovered; the controller is started or found; the metadata log is observed until it is caught up and the
//! partitions are open; the controller unfences the broker; connections are accepted. Down: the controller
//! moves leadership away, listeners close, requests end, coordinators stop, logs are flushed and marked
//! clean.

use crate::api::{ApiHandler, all_served, create_own_topic};
use crate::authentication::{Authenticator, Images, TokenLogins};
use crate::authorization::ClusterRights;
use crate::broker::{Broker, BrokerParts};
use crate::controller_node::ControllerNode;
use crate::coordinators_view::CoordinatorsView;
use crate::directory_watch::watch_directories;
use crate::history;
use crate::http_access::HttpAccess;
use crate::internal_log::InternalLog;
use crate::joining::{self, JoinedCluster};
use crate::loading::Loading;
use crate::metrics::{Entrance, Metrics, Sources};
use crate::opening::{DRAIN, StartError, bind_all, connection_settings, endpoint, host_name};
use crate::publisher::Publisher;
use crate::secured::SecuredListeners;
use crate::trails::Trails;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use thalweg_audit::Trail;
use thalweg_config::{BrokerConfig, Loggers};
use thalweg_groups::{GroupConfig, GroupCoordinator};
use thalweg_history::SharedHistory;
use thalweg_log::LogDirs;
use thalweg_membership::features;
use thalweg_membership::{
    ControllerLink, JoinError, Membership, MembershipOptions, PeerOptions, Peers, RegisteredBroker,
};
use thalweg_metadata::topic_name::SHARE_STATE;
use thalweg_metadata::{BrokerId, ImageCell};
use thalweg_net::{BoundListener, ConnectionSettings, Machine};
use thalweg_replica::partition::Partitions;
use thalweg_replica::replication::{self, Fetchers};
use thalweg_share_groups::{Persister, ShareCoordinator, ShareCoordinatorConfig};
use thalweg_transactions::{TransactionConfig, TransactionCoordinator};
use thalweg_watch as watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Interval of retries for partitions that failed to open.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// A running broker.
pub struct Server {
    /// The parts that serve requests.
    pub broker: Arc<Broker>,
    /// The bound listeners: name and addresses.
    pub addresses: Vec<(String, Vec<SocketAddr>)>,
    /// The data directories.
    pub data_dirs: Vec<PathBuf>,
    /// The metrics of the broker and its controller.
    pub metrics: Metrics,
    /// The last hour, if there is a console that shows it.
    pub history: Option<SharedHistory>,
    /// The ids of the registered data directories. A directory that fails later is reported.
    directories: Vec<thalweg_log::Uuid>,
    membership: Membership,
    trails: Trails,
    /// The embedded controller, if there is one.
    controller: Option<ControllerNode>,
    fetchers: Arc<Fetchers>,
    stopping: watch::Sender<bool>,
    listeners: JoinSet<()>,
    housekeeping: JoinSet<()>,
}

/// Starts a broker, with an embedded controller or with the configured quorum.
pub async fn start(config: BrokerConfig) -> Result<Server, StartError> {
    start_watched(config, &Loading::default(), None).await
}

/// Starts a broker like [`start`]; `loading` shows the progress, `loggers` are the loggers of this process.
/// Boxed, so that the future and its tasks are compiled in this crate: the body of an `async fn` is compiled
/// in the crate that awaits it.
pub fn start_watched(
    config: BrokerConfig,
    loading: &Loading,
    loggers: Option<Arc<Loggers>>,
) -> Pin<Box<dyn Future<Output = Result<Server, StartError>> + Send + '_>> {
    let machine = Machine { loggers, ..Machine::real() };
    Box::pin(async move { start_on(&machine, config, loading).await })
}

/// Starts a broker as [`start_watched`] does, on a machine of the caller's choice.
pub async fn start_on(
    machine: &Machine,
    config: BrokerConfig,
    loading: &Loading,
) -> Result<Server, StartError> {
    if !config.node.roles.broker {
        let text = "process.roles has no broker: a controller alone is started as such";
        return Err(StartError::Unsupported(text.to_owned()));
    }
    let config = Arc::new(config);
    let http = config.http.as_listener();
    let (listening, secured) = bind_all(machine, &config.listeners.broker, http.as_ref(), &config)?;
    let connections = connection_settings(machine, &config);
    let JoinedCluster { controller, link, log_dirs, found, mut trails } =
        joining::find_controller(machine, &config, loading, &connections).await?;

    trails.observe(&secured);
    let broker =
        assemble(machine, &config, &log_dirs, link, &connections, Arc::clone(&secured), trails.trail());
    let fetchers = Arc::new(Fetchers::new(Arc::clone(&broker.replication)));
    let publisher = Arc::new(Publisher::new(Arc::clone(&broker), Arc::clone(&fetchers), found));
    let options = membership_options(&config, &log_dirs, &listening);
    let directories = options.directories.clone();
    let joined = tokio::select! {
        biased;
        // Otherwise the broker would wait forever for a stopped controller.
        () = controller_ended(controller.as_ref()) => Err(StartError::ControllerEnded),
        joined = join(&broker, options, publisher.clone()) => match joined {
            Ok(membership) => Ok(membership),
            Err(error) => Err(joining::refusal(&broker, error).await),
        },
    };
    let membership = match joined {
        Ok(membership) => membership,
        Err(error) => {
            close_unused(&broker, &publisher);
            if let Some(controller) = controller {
                controller.stop().await;
            }
            return Err(error);
        }
    };
    let mut addresses: Vec<_> = listening.iter().map(|l| (l.name.clone(), l.addresses())).collect();
    addresses.extend(controller.iter().flat_map(|node| node.addresses().to_vec()));
    let (stopping, listeners, entrance) = serve(&broker, listening, &connections);
    if let Some(topic) = &config.audit.topic {
        trails.write_topic(&broker, topic);
    }
    let mut housekeeping = keep_house(&broker, publisher);
    housekeeping.spawn(Arc::clone(&secured).watch(stopping.subscribe()));
    housekeeping.spawn(note_epochs(Arc::clone(&broker), membership.epochs()));
    let metrics = metrics(&broker, controller.as_ref(), entrance, &config, &connections);
    metrics.start(&mut housekeeping, log_dirs.cluster_id(), config.node.id);
    let history = history::start(&broker, metrics.lag_sources(), &mut housekeeping);
    Ok(Server {
        directories,
        addresses,
        data_dirs: config.log.data_dirs().to_vec(),
        metrics,
        history,
        broker,
        trails,
        membership,
        controller,
        fetchers,
        stopping,
        listeners,
        housekeeping,
    })
}

/// Starts the tasks of the parts of a broker.
fn keep_house(broker: &Arc<Broker>, publisher: Arc<Publisher>) -> JoinSet<()> {
    let mut housekeeping = JoinSet::new();
    housekeeping.spawn(retry_failed(publisher));
    broker.upkeep.start(&mut housekeeping);
    broker.replication.start(&mut housekeeping);
    let groups = Arc::clone(&broker.groups);
    housekeeping.spawn(async move { groups.run().await });
    let coordinator = Arc::clone(broker);
    housekeeping.spawn(async move {
        coordinator.transactions.run(|| coordinator.producer_ids.next()).await;
    });
    housekeeping.spawn(Arc::clone(&broker.marker_sender).run());
    let share_states = Arc::clone(&broker.share_states);
    housekeeping.spawn(async move { share_states.run().await });
    housekeeping.spawn(Arc::clone(&broker.share_partitions).run());
    housekeeping.spawn(create_share_state_topic(Arc::clone(broker)));
    housekeeping
}

/// The metrics of a broker and of the controller in its process.
fn metrics(
    broker: &Arc<Broker>,
    controller: Option<&ControllerNode>,
    entrance: Entrance,
    config: &Arc<BrokerConfig>,
    connections: &ConnectionSettings,
) -> Metrics {
    let of_controller = controller.map(|node| (node.entrance(), Arc::clone(node.secured())));
    let (entrances, secured) =
        [(entrance, Arc::clone(&broker.secured))].into_iter().chain(of_controller).unzip();
    Metrics::new(Sources {
        broker: Some(broker),
        controller: controller.map(ControllerNode::controller),
        entrances,
        secured,
        flow: &connections.flow,
        trail: broker.trail.as_ref(),
        config,
        clock: &broker.clock,
    })
}

/// A broker without partitions and image.
fn assemble(
    machine: &Machine,
    config: &Arc<BrokerConfig>,
    log_dirs: &Arc<LogDirs>,
    controller: ControllerLink,
    connections: &ConnectionSettings,
    secured: Arc<SecuredListeners>,
    trail: Option<&Arc<Trail>>,
) -> Arc<Broker> {
    let (partitions, image) = (Arc::new(Partitions::default()), ImageCell::new());
    let (groups, transactions) = coordinators(config, &partitions, &image, machine);
    let share_states = Arc::new(share_coordinator(config, &partitions, &image, machine));
    let options = PeerOptions {
        node_id: BrokerId(config.node.id),
        listener: config.listeners.inter_broker.clone(),
        or_any: false,
        security: config.towards_brokers(),
        request_timeout: config.network.request_timeout,
    };
    let peers = Arc::new(Peers::new(options, machine.network.connector().clone(), Arc::clone(&image)));
    let (node_id, states) = (BrokerId(config.node.id), Arc::clone(&share_states));
    let share_persister = Persister::new(node_id, Arc::clone(&image), states, Arc::clone(&peers));
    Broker::new(BrokerParts {
        cluster_id: log_dirs.cluster_id().to_owned(),
        config: Arc::clone(config),
        secured,
        trail: trail.cloned(),
        loggers: machine.loggers.clone(),
        clock: machine.clock.clone(),
        request_memory: connections.memory.clone(),
        answer_memory: connections.answers.clone(),
        log_dirs: Arc::clone(log_dirs),
        partitions,
        registered: Arc::new(RegisteredBroker::new(BrokerId(config.node.id), controller)),
        peers,
        groups,
        transactions,
        share_states,
        share_persister: Arc::new(share_persister),
        image,
        served: all_served().map(|api| api.key).collect(),
    })
}

/// Joins the cluster, and waits until the image shows the broker unfenced. Connections wait in the kernel
/// until then. Earlier, a client would see a cluster without brokers, and some clients do not refresh for
/// minutes.
async fn join(
    broker: &Broker,
    options: MembershipOptions,
    publisher: Arc<Publisher>,
) -> Result<Membership, JoinError> {
    let membership = Membership::start(broker.registered.controller.clone(), options, publisher).await?;
    broker.registered.set_epoch(membership.broker_epoch());
    let patience = broker.config().controller.initial_registration_timeout;
    let given_up = replication::give_up_lost(&broker.replication, Instant::now() + patience).await;
    given_up.map_err(|last| JoinError::Timeout { after: patience, last })?;
    broker.log_dirs.forget_lost();
    membership.unfence().await?;
    Ok(membership)
}

/// Waits until the controller of this process has ended; forever without a controller.
async fn controller_ended(node: Option<&ControllerNode>) {
    match node {
        Some(node) => node.controller().stopped().await,
        None => std::future::pending().await,
    }
}

/// Applies the epoch of each new registration. A paused process may have to register again.
async fn note_epochs(broker: Arc<Broker>, mut epochs: watch::Receiver<i64>) {
    while epochs.changed().await.is_ok() {
        broker.registered.set_epoch(*epochs.borrow_and_update());
    }
}

/// Creates the topic `__share_group_state` at the first request for it.
async fn create_share_state_topic(broker: Arc<Broker>) {
    loop {
        broker.share_persister.state_topic_wanted().await;
        create_own_topic(&broker, SHARE_STATE).await;
    }
}

/// Periodically retries to open and delete partitions after failures.
async fn retry_failed(publisher: Arc<Publisher>) {
    loop {
        tokio::time::sleep(OPEN_AGAIN).await;
        let (publisher, disk) = (Arc::clone(&publisher), publisher.disk().clone());
        if disk.spawn(move || publisher.retry_failed()).await.is_err() {
            tracing::error!("Retrying partitions panicked, retrying later");
        }
    }
}

/// Closes the logs of a broker that failed to join, so that its next start reads no more than this one.
fn close_unused(broker: &Broker, publisher: &Publisher) {
    let epoch = broker.log_dirs.previous_broker_epoch().unwrap_or(-1);
    broker.log_dirs.disk().work_in_place(|| {
        publisher.close_found();
        close_logs(broker, epoch);
    });
}

/// Closes the logs of all partitions, then the directories, which are marked with the broker's epoch. Returns
/// true if all are clean.
fn close_logs(broker: &Broker, epoch: i64) -> bool {
    let mut first_failure = None;
    let mut failed = 0_usize;
    for partition in broker.partitions.all() {
        for closed in [partition.close_future(), partition.with_log(|log| log.close())] {
            let Err(error) = closed else { continue };
            failed += 1;
            first_failure.get_or_insert_with(|| (Arc::clone(&partition), error));
        }
    }
    // One log line: on a full disk, thousands of logs may fail to close.
    if let Some((partition, error)) = &first_failure {
        tracing::error!(
            logs = failed,
            first = ?partition,
            %error,
            "Failed to close logs: records are written, producer states, leader epochs or indexes are not"
        );
    }
    broker.log_dirs.close(epoch) && first_failure.is_none()
}

/// The coordinators of groups and transactions, without partitions yet.
fn coordinators(
    config: &BrokerConfig,
    partitions: &Arc<Partitions>,
    image: &Arc<ImageCell>,
    machine: &Machine,
) -> (Arc<GroupCoordinator>, Arc<TransactionCoordinator>) {
    let (groups, transactions) = (&config.groups, &config.transactions);
    let offsets = InternalLog::offsets(Arc::clone(partitions), groups.offsets_load_buffer_bytes);
    let states = InternalLog::transactions(Arc::clone(partitions), transactions.load_buffer_bytes);
    let cluster = Arc::new(CoordinatorsView::new(Arc::clone(image)));
    let (clock, disk) = (machine.clock.clone(), machine.disk.clone());
    let groups = GroupCoordinator::new(
        GroupConfig::from(config),
        Arc::new(offsets),
        cluster.clone(),
        clock.clone(),
        disk.clone(),
    );
    let transactions =
        TransactionCoordinator::new(TransactionConfig::from(config), Arc::new(states), cluster, clock, disk);
    (Arc::new(groups), Arc::new(transactions))
}

/// The share coordinator, without partitions yet.
fn share_coordinator(
    config: &BrokerConfig,
    partitions: &Arc<Partitions>,
    image: &Arc<ImageCell>,
    machine: &Machine,
) -> ShareCoordinator {
    let settings = &config.share_coordinator;
    let log = InternalLog::share_state(Arc::clone(partitions), settings.load_buffer_bytes);
    let cluster = Arc::new(CoordinatorsView::new(Arc::clone(image)));
    let (clock, disk) = (machine.clock.clone(), machine.disk.clone());
    ShareCoordinator::new(ShareCoordinatorConfig::from(settings), Arc::new(log), cluster, clock, disk)
}

fn membership_options(
    config: &BrokerConfig,
    log_dirs: &LogDirs,
    listening: &[BoundListener],
) -> MembershipOptions {
    let port = |name: &str| listening.iter().find(|l| l.name == name).map(BoundListener::port);
    let advertised = config.listeners.advertised_as(&host_name(), port);
    MembershipOptions {
        node_id: BrokerId(config.node.id),
        cluster_id: log_dirs.cluster_id().to_owned(),
        rack: config.node.rack.clone(),
        endpoints: advertised.iter().map(endpoint).collect(),
        features: features::ranges(),
        directories: log_dirs.online_ids(),
        previous_broker_epoch: log_dirs.previous_broker_epoch(),
        heartbeat_interval: config.controller.heartbeat_interval,
        session_timeout: config.controller.session_timeout,
        registration_timeout: config.controller.initial_registration_timeout,
        ..MembershipOptions::default()
    }
}

fn serve(
    broker: &Arc<Broker>,
    listening: Vec<BoundListener>,
    settings: &ConnectionSettings,
) -> (watch::Sender<bool>, JoinSet<()>, Entrance) {
    let (stopping, stop) = watch::channel(false);
    let (mut listeners, mut logins) = (JoinSet::new(), Vec::new());
    let of_broker = Arc::clone(broker);
    let images: Images = Arc::new(move || of_broker.image());
    let tokens = TokenLogins::of(&broker.config());
    for listening in listening {
        let authenticator =
            Authenticator::of(&broker.config(), &listening.name, &images, &broker.clock, tokens.as_ref());
        logins.extend(authenticator.clone().map(|authenticator| (listening.name.clone(), authenticator)));
        let handler = ApiHandler::authenticating(Arc::clone(broker), authenticator);
        listeners.spawn(listening.serve(
            handler,
            settings.clone(),
            Arc::clone(&broker.connections),
            stop.clone(),
        ));
    }
    (stopping, listeners, Entrance { connections: Arc::clone(&broker.connections), logins })
}

impl Server {
    /// Access to this node's HTTP listener.
    pub fn http_access(&self) -> HttpAccess {
        let broker = &self.broker;
        let of_broker = Arc::clone(broker);
        let images: Images = Arc::new(move || of_broker.image());
        HttpAccess::new(&broker.config(), &broker.secured, &images, &broker.clock, self.rights())
    }

    /// The rights of principals in the cluster.
    pub fn rights(&self) -> ClusterRights {
        ClusterRights::of_broker(Arc::clone(&self.broker)).with_trail(self.broker.trail.as_ref())
    }

    /// Waits until the metadata log cannot be applied, the embedded controller has failed, or the last data
    /// directory has failed: the broker must stop then. Returns the reason.
    pub async fn failed(&self) -> String {
        tokio::select! {
            biased;
            () = watch_directories(&self.broker, &self.membership, &self.directories) => "every data directory has failed".to_owned(),
            error = self.membership.failed() => error.to_string(),
            () = controller_ended(self.controller.as_ref()) => "the embedded controller has ended".to_owned(),
        }
    }

    /// Stops the broker. Returns true if the stop was clean; otherwise the next start checks the logs. Boxed
    /// like [`start_watched`].
    pub fn stop(self) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(self.shut_down())
    }

    async fn shut_down(mut self) -> bool {
        // Closed while there are leaders. Later events go to the file only.
        self.trails.close_topic().await;
        if self.broker.config().controller.controlled_shutdown {
            self.membership.controlled_shutdown().await;
        }
        self.stopping.send_replace(true);
        self.broker.groups.shutdown();
        self.broker.transactions.shutdown();
        self.broker.share_states.shutdown();
        for partition in self.broker.partitions.all() {
            partition.wake();
        }
        let drained = async { while self.listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("Closed connections that did not finish in time");
            self.listeners.abort_all();
        }
        self.housekeeping.shutdown().await;
        self.fetchers.stop().await;
        let epoch = self.membership.broker_epoch();
        self.membership.stop().await;
        let mut is_clean = self.broker.log_dirs.disk().work_in_place(|| close_logs(&self.broker, epoch));
        if let Some(controller) = self.controller {
            is_clean &= controller.stop().await;
        }
        self.trails.close().await;
        is_clean
    }
}
