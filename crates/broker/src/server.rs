//! A running broker: from a configuration to served listeners, and back down in order.
//!
//! Up: sockets are bound, so that a taken port is told before anything else happens; the data directories are opened and
//! recovered; the controller is started or found; the metadata log is observed until it is caught up and the
//! partitions are open; the controller unfences the broker; connections are accepted. Down: the controller
//! moves leadership away, listeners close, requests end, coordinators stop, logs are flushed and marked clean.

use crate::api::ApiHandler;
use crate::broker::{Broker, BrokerParts};
use crate::controller_node::ControllerNode;
use crate::directory_watch::watch_directories;
use crate::joining::{self, Joined};
use crate::loading::Loading;
use crate::metrics::Metrics;
use crate::publisher::Publisher;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thalweg_client::InvalidSetting;
use thalweg_config::{BrokerConfig, Listener};
use thalweg_coordinator::group::{GroupConfig, GroupCoordinator};
use thalweg_coordinator::internal_log::{ImageTopics, InternalLog};
use thalweg_coordinator::transaction::{TransactionConfig, TransactionCoordinator};
use thalweg_log::{LogDirs, LogDirsOptions, TopicPartition};
use thalweg_membership::features;
use thalweg_membership::{
    ControllerLink, JoinError, LinkError, Membership, MembershipOptions, PeerOptions, Peers, RegisteredBroker,
};
use thalweg_metadata::ImageCell;
use thalweg_net::Machine;
use thalweg_net::{BindError, ConnectionSettings, Listening, SocketOptions};
use thalweg_replica::partition::Partitions;
use thalweg_replica::replication::{self, Fetchers};
use thalweg_watch as watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long connections may take to finish what they have begun when the broker stops. By then it leads nothing, and
/// whoever goes on sending without a pause is refused again and again.
pub(crate) const DRAIN: Duration = Duration::from_secs(2);
/// How often partitions that could not be opened are tried again.
const OPEN_AGAIN: Duration = Duration::from_secs(5);

/// A broker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's address cannot be had.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The data directories cannot be used.
    #[error(transparent)]
    LogDirs(#[from] thalweg_log::OpenError),
    /// The embedded controller cannot be started.
    #[error(transparent)]
    Controller(#[from] thalweg_controller::StartError),
    /// The controllers cannot be spoken to as the configuration says.
    #[error("Connections to controllers: {0}")]
    Security(InvalidSetting),
    /// The cluster does not take the broker in.
    #[error(transparent)]
    Membership(#[from] JoinError),
    /// No controller told the id of its cluster, which empty data directories are to belong to.
    #[error("the id of the cluster could not be learned from its controllers at {servers} within {} ms: {last}", after.as_millis())]
    NoClusterId {
        /// Where was asked.
        servers: String,
        /// How long was tried.
        after: Duration,
        /// How the last attempt ended.
        last: LinkError,
    },
    /// The data directories belong to another cluster than the controllers.
    #[error(
        "the data directories belong to cluster {ours}, and the controllers at {servers} to cluster {theirs}: name the \
             controllers of {ours} in controller.quorum.bootstrap.servers, or use other directories (log.dirs)"
    )]
    OtherCluster {
        /// The directories' cluster.
        ours: String,
        /// The controllers that were asked.
        servers: String,
        /// Their cluster.
        theirs: String,
    },
    /// The configuration wants something that this version does not do.
    #[error("{0}")]
    Unsupported(String),
}

/// A broker that serves.
pub struct Server {
    /// The broker.
    pub broker: Arc<Broker>,
    /// What is listened on: the listener's name and its addresses.
    pub addresses: Vec<(String, Vec<SocketAddr>)>,
    /// Where the data lies.
    pub data_dirs: Vec<PathBuf>,
    /// What can be measured.
    pub metrics: Metrics,
    /// The ids of the data directories that were online at the start.
    directories: Vec<thalweg_log::Uuid>,
    membership: Membership,
    /// The embedded controller, when this process has one.
    controller: Option<ControllerNode>,
    fetchers: Arc<Fetchers>,
    stopping: watch::Sender<bool>,
    listeners: JoinSet<()>,
    housekeeping: JoinSet<()>,
}

/// Starts a broker: with an embedded controller, or as a member of a quorum of controllers elsewhere.
pub async fn start(config: BrokerConfig) -> Result<Server, StartError> {
    start_watched(config, &Loading::default()).await
}

/// Starts a broker as [`start`] does; meanwhile `loading` tells others how far it is.
pub async fn start_watched(config: BrokerConfig, loading: &Loading) -> Result<Server, StartError> {
    start_on(&Machine::real(), config, loading).await
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
    let listening = bind_all(machine, &config.listeners.broker, &config)?;
    let connections = connection_settings(machine, &config);
    let Joined { controller, link, log_dirs, found } =
        joining::find_controller(machine, &config, loading, &connections).await?;

    let broker = assemble(machine, &config, &log_dirs, link, &connections);
    let fetchers = Arc::new(Fetchers::new(Arc::clone(&broker.replication)));
    let publisher = Arc::new(Publisher::new(Arc::clone(&broker), Arc::clone(&fetchers), found));
    let options = membership_options(&config, &log_dirs, &listening);
    let membership = match join(&broker, options, publisher.clone()).await {
        Ok(membership) => membership,
        Err(error) => {
            let error = joining::refusal(&broker, error).await;
            close_unused(&broker, &publisher);
            if let Some(controller) = controller {
                controller.stop().await;
            }
            return Err(error);
        }
    };
    let mut addresses: Vec<_> = listening.iter().map(|l| (l.name.clone(), l.addresses())).collect();
    addresses.extend(controller.iter().flat_map(|node| node.addresses().to_vec()));
    let (stopping, listeners) = serve(&broker, listening, &connections);
    let mut housekeeping = JoinSet::new();
    broker.upkeep.start(&mut housekeeping);
    broker.replication.start(&mut housekeeping);
    let groups = Arc::clone(&broker.groups);
    housekeeping.spawn(async move { groups.run().await });
    let coordinator = Arc::clone(&broker);
    housekeeping.spawn(async move {
        coordinator.transactions.run(|| coordinator.producer_ids.next()).await;
    });
    housekeeping.spawn(Arc::clone(&broker.marker_sender).run());
    housekeeping.spawn(retry_failed_opens(publisher));
    housekeeping.spawn(note_epochs(Arc::clone(&broker), membership.epochs()));
    let of_controller = controller.as_ref().map(|node| Arc::clone(node.controller()));
    Ok(Server {
        directories: log_dirs.online_ids(),
        addresses,
        data_dirs: config.log.data_dirs().to_vec(),
        metrics: Metrics::new(Some(Arc::clone(&broker)), of_controller, broker.clock.clone()),
        broker,
        membership,
        controller,
        fetchers,
        stopping,
        listeners,
        housekeeping,
    })
}

/// A broker that has no partitions and no image yet.
fn assemble(
    machine: &Machine,
    config: &Arc<BrokerConfig>,
    log_dirs: &Arc<LogDirs>,
    controller: ControllerLink,
    connections: &ConnectionSettings,
) -> Arc<Broker> {
    let (partitions, image) = (Arc::new(Partitions::default()), ImageCell::new());
    let (groups, transactions) = coordinators(config, &partitions, &image, machine);
    let options = PeerOptions {
        node_id: config.node.id,
        listener: config.listeners.inter_broker.clone(),
        security: config.towards_brokers(),
        request_timeout: config.network.request_timeout,
    };
    let peers = Peers::new(options, machine.network.connector().clone(), Arc::clone(&image));
    Broker::new(BrokerParts {
        cluster_id: log_dirs.cluster_id().to_owned(),
        config: Arc::clone(config),
        clock: machine.clock.clone(),
        request_memory: connections.memory.clone(),
        answer_memory: connections.answers.clone(),
        log_dirs: Arc::clone(log_dirs),
        partitions,
        registered: Arc::new(RegisteredBroker::new(config.node.id, controller)),
        peers: Arc::new(peers),
        groups,
        transactions,
        image,
    })
}

/// Joins the cluster, and waits until the image shows the broker unfenced. Connections wait in the kernel until then: a
/// client that asked before would be told of a cluster without brokers, and some do not ask again for minutes.
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

/// Takes note of each new registration: a process that was held up may have had to register anew.
async fn note_epochs(broker: Arc<Broker>, mut epochs: watch::Receiver<i64>) {
    while epochs.changed().await.is_ok() {
        broker.registered.set_epoch(*epochs.borrow_and_update());
    }
}

/// Tries again and again to open what could not be opened when the cluster named it.
async fn retry_failed_opens(publisher: Arc<Publisher>) {
    loop {
        tokio::time::sleep(OPEN_AGAIN).await;
        let (publisher, disk) = (Arc::clone(&publisher), publisher.disk().clone());
        if disk.spawn(move || publisher.retry_failed_opens()).await.is_err() {
            tracing::error!("Opening partitions again has panicked; it goes on at its next turn");
        }
    }
}

/// Leaves the directories of a broker that was not taken in as they were found, so that its next start reads no more
/// than this one.
fn close_unused(broker: &Broker, publisher: &Publisher) {
    let epoch = broker.log_dirs.previous_broker_epoch().unwrap_or(-1);
    broker.log_dirs.disk().work_in_place(|| {
        publisher.close_found();
        close_logs(broker, epoch);
    });
}

/// Closes the logs of all partitions, then the directories, which are marked as left by the broker of this epoch. Whether all
/// of them are left in order.
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
    // One line: on a full disk none of many thousands can be closed.
    if let Some((partition, error)) = &first_failure {
        tracing::error!(
            logs = failed,
            first = ?partition,
            %error,
            "Logs cannot be closed: producer states, leader epochs or indexes are not written, records are"
        );
    }
    broker.log_dirs.close(epoch) && first_failure.is_none()
}

/// Opens the sockets of listeners.
pub(crate) fn bind_all(
    machine: &Machine,
    listeners: &[Listener],
    config: &BrokerConfig,
) -> Result<Vec<Listening>, BindError> {
    let network = &config.network;
    let options =
        SocketOptions { backlog: network.listen_backlog, receive_buffer_bytes: network.receive_buffer_bytes };
    let bind =
        |l: &Listener| machine.network.bind(&l.name, l.host.as_deref().unwrap_or_default(), l.port, options);
    listeners.iter().map(bind).collect()
}

/// Opens the log directories, as those of this cluster if that is known, and the partitions in them.
pub(crate) fn open_logs(
    machine: &Machine,
    config: &BrokerConfig,
    cluster_id: Option<String>,
    loading: &Loading,
) -> Result<(Arc<LogDirs>, Vec<thalweg_log::PartitionLog>), StartError> {
    let mut options = LogDirsOptions::new(config.log.data_dirs().to_vec(), config.node.id);
    options.threads = config.log.recovery_threads_per_dir * config.log.data_dirs().len();
    options.clock = machine.clock.clone();
    options.disk = machine.disk.clone();
    options.cluster_id = cluster_id;
    // The settings of topics become known with the first image; until then the broker's defaults apply.
    let defaults = Arc::new(config.log_config(&config.topic(&std::collections::BTreeMap::new())));
    let settings_of = |_: &TopicPartition| {
        loading.open_one();
        Arc::clone(&defaults)
    };
    let opened = machine.disk.work_in_place(|| {
        loading.begin(&options);
        LogDirs::open(options, settings_of)
    });
    loading.end();
    let (dirs, found) = opened?;
    Ok((Arc::new(dirs), found))
}

/// The coordinators of groups and transactions. They lead nothing yet.
fn coordinators(
    config: &BrokerConfig,
    partitions: &Arc<Partitions>,
    image: &Arc<ImageCell>,
    machine: &Machine,
) -> (Arc<GroupCoordinator>, Arc<TransactionCoordinator>) {
    let (groups, transactions) = (&config.groups, &config.transactions);
    let offsets = InternalLog::offsets(
        Arc::clone(partitions),
        groups.offsets_commit_timeout,
        groups.offsets_load_buffer_bytes,
    );
    let states = InternalLog::transactions(
        Arc::clone(partitions),
        config.network.request_timeout,
        transactions.load_buffer_bytes,
    );
    let cluster = Arc::new(ImageTopics::new(Arc::clone(image)));
    let (clock, disk) = (machine.clock.clone(), machine.disk.clone());
    let groups = GroupCoordinator::new(
        GroupConfig::from(groups),
        Arc::new(offsets),
        cluster.clone(),
        clock.clone(),
        disk.clone(),
    );
    let transactions = TransactionCoordinator::new(
        TransactionConfig::from(transactions),
        Arc::new(states),
        cluster,
        clock,
        disk,
    );
    (Arc::new(groups), Arc::new(transactions))
}

fn membership_options(
    config: &BrokerConfig,
    log_dirs: &LogDirs,
    listening: &[Listening],
) -> MembershipOptions {
    let port = |name: &str| listening.iter().find(|l| l.name == name).map(Listening::port);
    let advertised = config.listeners.advertised_as(&host_name(), port);
    MembershipOptions {
        node_id: config.node.id,
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

pub(crate) fn endpoint(listener: &Listener) -> thalweg_metadata::Endpoint {
    thalweg_metadata::Endpoint {
        listener: listener.name.clone(),
        host: listener.host.clone().unwrap_or_default(),
        port: listener.port,
        security_protocol: listener.protocol.code(),
    }
}

/// What this machine calls itself, for listeners on all interfaces that advertise nothing else.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The settings of all connections of the process, which share its memory and its descriptors.
pub(crate) fn connection_settings(machine: &Machine, config: &BrokerConfig) -> ConnectionSettings {
    let descriptors = machine.disk.descriptors();
    if let Some((open_files_max, connections_max)) = descriptors.max().zip(descriptors.connections_max())
        && connections_max < config.network.max_connections
    {
        tracing::info!(open_files_max, connections_max, "Connections leave open files to logs");
    }
    ConnectionSettings::of(&config.network)
}

fn serve(
    broker: &Arc<Broker>,
    listening: Vec<Listening>,
    settings: &ConnectionSettings,
) -> (watch::Sender<bool>, JoinSet<()>) {
    let (stopping, stop) = watch::channel(false);
    let mut listeners = JoinSet::new();
    for listening in listening {
        let handler = ApiHandler::new(Arc::clone(broker));
        listeners.spawn(listening.serve(
            handler,
            settings.clone(),
            Arc::clone(&broker.connections),
            stop.clone(),
        ));
    }
    (stopping, listeners)
}

impl Server {
    /// Waits until the cluster's metadata cannot be followed any more, the embedded controller has ended, or the last
    /// data directory has failed: the broker must not go on then. Says why.
    pub async fn failed(&self) -> String {
        tokio::select! {
            biased;
            () = watch_directories(&self.broker, &self.membership, &self.directories) => "every data directory has failed".to_owned(),
            error = self.membership.failed() => error.to_string(),
            () = self.controller_ended() => "the embedded controller has ended".to_owned(),
        }
    }

    async fn controller_ended(&self) {
        match &self.controller {
            Some(node) => node.controller().stopped().await,
            None => std::future::pending().await,
        }
    }

    /// Stops. Whether all was left in order: nothing needs recovery then. Else the next start checks the logs.
    pub async fn stop(mut self) -> bool {
        if self.broker.config().controller.controlled_shutdown {
            self.membership.controlled_shutdown().await;
        }
        self.stopping.send_replace(true);
        self.broker.groups.shutdown();
        self.broker.transactions.shutdown();
        for partition in self.broker.partitions.all() {
            partition.wake();
        }
        let drained = async { while self.listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::warn!("Some connections did not end in time and are cut");
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
        is_clean
    }
}
