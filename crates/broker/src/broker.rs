//! The broker's parts, as available to every API.

use crate::auto_topics::AutoTopics;
use crate::connection_limits;
use crate::fetch_sessions::FetchSessions;
use crate::quotas::ClientQuotas;
use crate::request_metrics::RequestMetrics;
use crate::secured::SecuredListeners;
use crate::telemetry::Telemetry;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use thalweg_audit::Trail;
use thalweg_config::{BrokerConfig, Loggers};
use thalweg_groups::GroupCoordinator;
use thalweg_log::{Clock, LogDirs};
use thalweg_membership::{Peers, RegisteredBroker};
use thalweg_metadata::{BrokerId, Delta, Image, ImageCell};
use thalweg_net::Holder;
use thalweg_net::{AnswerMemory, Connections, FrameMemory};
use thalweg_places::FairSemaphore;
use thalweg_replica::partition::Partitions;
use thalweg_replica::replication::Replication;
use thalweg_replica::upkeep::{Upkeep, UpkeepSettings};
use thalweg_security::acl::Authorizer;
use thalweg_share_groups::{LedSharePartitions, SettingsOfGroups};
use thalweg_share_groups::{Persister, ShareCoordinator};
use thalweg_share_groups::{ShareGroupParts, ShareGroupService};
use thalweg_transactions::{MarkerSender, MarkerWriter, ProducerIds, TransactionCoordinator, Verifier};
use thalweg_wire::ApiKey;

/// A broker: its configuration, its view of the cluster, its partitions and coordinators.
pub struct Broker {
    pub node_id: BrokerId,
    /// The cluster's id.
    pub cluster_id: String,
    /// The wall clock.
    pub clock: Clock,
    /// The data directories.
    pub log_dirs: Arc<LogDirs>,
    /// The partitions with a replica here.
    pub partitions: Arc<Partitions>,
    /// This broker's registration, and the link to the controller.
    pub registered: Arc<RegisteredBroker>,
    /// The memory budget of requests.
    pub request_memory: FrameMemory,
    /// The memory budget of answers that peers do not read.
    pub answer_memory: AnswerMemory,
    /// The connections of clients and other brokers, and their limits.
    pub connections: Arc<Connections>,
    /// The TLS of the listeners.
    pub secured: Arc<SecuredListeners>,
    /// Counters and times of answered requests.
    pub requests: RequestMetrics,
    /// Client quotas, and the use of them.
    pub quotas: ClientQuotas,
    /// Metrics of clients.
    pub telemetry: Telemetry,
    /// The audit trail, if there is one.
    pub trail: Option<Arc<Trail>>,
    /// The loggers of this process, if their levels can be changed.
    pub loggers: Option<Arc<Loggers>>,
    /// Duration from which on a request is logged as slow; `None` logs none.
    pub slow_request: Option<Duration>,
    /// Connections to other brokers.
    pub peers: Arc<Peers>,
    /// Slots for large requests, which are served outside the runtime's workers.
    pub large_requests: FairSemaphore<Holder>,
    /// Incremental fetch sessions.
    pub fetch_sessions: FetchSessions,
    /// The allocator of producer ids.
    pub producer_ids: ProducerIds,
    /// The coordinator of groups of all protocols.
    pub groups: Arc<GroupCoordinator>,
    pub transactions: Arc<TransactionCoordinator>,
    /// The share coordinator: the state of share partitions that is stored on this broker.
    pub share_states: Arc<ShareCoordinator>,
    /// Access to the state of any share partition, at its share coordinator.
    pub share_persister: Arc<Persister>,
    /// Share groups, with their offsets.
    pub share_groups: ShareGroupService,
    /// The share partitions led here: sessions, and records in flight.
    pub share_partitions: Arc<LedSharePartitions>,
    /// Verifies transactions that write to partitions here.
    pub verifier: Verifier,
    /// Permits to validate large batches outside the tasks of their connections.
    pub decompressions: FairSemaphore<Holder>,
    /// State of automatic topic creation.
    pub auto_topics: AutoTopics,
    /// Writes markers into partitions here.
    pub markers: Arc<MarkerWriter>,
    /// Sends the markers of transactions coordinated here.
    pub marker_sender: Arc<MarkerSender>,
    /// Retention, checkpoints, compaction.
    pub upkeep: Arc<Upkeep>,
    /// Replication, as follower and as leader.
    pub replication: Arc<Replication>,
    config: RwLock<Arc<BrokerConfig>>,
    image: Arc<ImageCell>,
    /// The authorizer with the ACLs of the latest image; `None` allows everything.
    authorizer: Option<RwLock<Arc<Authorizer>>>,
}

/// Number of large batches validated at the same time. Each uses a core for up to half a second, and in the
/// worst case the 128 MiB of a zstd window.
const DECOMPRESSIONS_MAX: usize = 2;

/// Maximum number of concurrent large requests, because each may use much memory.
const LARGE_REQUESTS_MAX: usize = 4;

/// The parts of a broker; see [`Broker`].
pub struct BrokerParts {
    pub cluster_id: String,
    pub config: Arc<BrokerConfig>,
    pub secured: Arc<SecuredListeners>,
    pub trail: Option<Arc<Trail>>,
    pub loggers: Option<Arc<Loggers>>,
    pub clock: Clock,
    pub request_memory: FrameMemory,
    pub answer_memory: AnswerMemory,
    pub log_dirs: Arc<LogDirs>,
    pub partitions: Arc<Partitions>,
    pub registered: Arc<RegisteredBroker>,
    pub peers: Arc<Peers>,
    pub groups: Arc<GroupCoordinator>,
    pub transactions: Arc<TransactionCoordinator>,
    pub share_states: Arc<ShareCoordinator>,
    pub share_persister: Arc<Persister>,
    pub image: Arc<ImageCell>,
    /// The APIs that are served.
    pub served: Vec<ApiKey>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "broker {}", self.node_id)
    }
}

fn replication(parts: &BrokerParts) -> Replication {
    Replication::new(
        Arc::clone(&parts.registered),
        Arc::clone(&parts.image),
        Arc::clone(&parts.partitions),
        Arc::clone(&parts.log_dirs),
        Arc::clone(&parts.peers),
        &parts.config.replication,
        &parts.config.log,
    )
}

fn upkeep(parts: &BrokerParts) -> Upkeep {
    let settings = UpkeepSettings::of(&parts.config);
    Upkeep::new(Arc::clone(&parts.partitions), Arc::clone(&parts.log_dirs), parts.clock.clone(), settings)
}

fn share_groups(parts: &BrokerParts) -> ShareGroupService {
    ShareGroupService::new(ShareGroupParts {
        node_id: BrokerId(parts.config.node.id),
        groups: Arc::clone(&parts.groups),
        persister: Arc::clone(&parts.share_persister),
        partitions: Arc::clone(&parts.partitions),
        image: Arc::clone(&parts.image),
        peers: Arc::clone(&parts.peers),
    })
}

fn share_partitions(parts: &BrokerParts) -> LedSharePartitions {
    LedSharePartitions::new(
        parts.config.share_groups.max_share_sessions,
        SettingsOfGroups::new(&parts.config, &parts.image.get()),
        Arc::clone(&parts.share_persister),
        parts.log_dirs.disk().clone(),
        parts.clock.clone(),
    )
}

impl Broker {
    /// Assembles a broker that does not serve yet.
    pub fn new(parts: BrokerParts) -> Arc<Broker> {
        let (replication, upkeep) = (replication(&parts), upkeep(&parts));
        let (share_groups, share_partitions) = (share_groups(&parts), share_partitions(&parts));
        let BrokerParts {
            config, log_dirs, partitions, registered, peers, groups, transactions, image, ..
        } = parts;
        let node_id = BrokerId(config.node.id);
        let verifier =
            Verifier::new(node_id, Arc::clone(&image), Arc::clone(&transactions), Arc::clone(&peers));
        verifier.enable(config.transactions.verifies_partitions);
        let markers =
            Arc::new(MarkerWriter::new(Arc::clone(&partitions), Arc::clone(&groups), parts.clock.clone()));
        let marker_sender = MarkerSender::new(
            node_id,
            &transactions,
            Arc::clone(&markers),
            Arc::clone(&image),
            Arc::clone(&peers),
        );
        let requests = RequestMetrics::new(&parts.served, parts.clock.clone());
        Arc::new(Broker {
            node_id,
            cluster_id: parts.cluster_id,
            clock: parts.clock,
            secured: parts.secured,
            connections: connection_limits::connections(&config, log_dirs.disk().descriptors()),
            log_dirs,
            partitions,
            producer_ids: ProducerIds::new(Arc::clone(&registered)),
            registered,
            request_memory: parts.request_memory,
            answer_memory: parts.answer_memory,
            requests,
            telemetry: Telemetry::default(),
            trail: parts.trail,
            loggers: parts.loggers,
            slow_request: config.log_lines.slow_request,
            peers,
            quotas: ClientQuotas::new(config.network.quota_samples, config.network.quota_sample),
            large_requests: FairSemaphore::in_turn(LARGE_REQUESTS_MAX),
            fetch_sessions: FetchSessions::new(config.network.fetch_session_slots),
            groups,
            transactions,
            share_states: parts.share_states,
            share_persister: parts.share_persister,
            share_groups,
            share_partitions: Arc::new(share_partitions),
            verifier,
            decompressions: FairSemaphore::in_turn(DECOMPRESSIONS_MAX),
            auto_topics: AutoTopics::default(),
            markers,
            marker_sender: Arc::new(marker_sender),
            upkeep: Arc::new(upkeep),
            replication: Arc::new(replication),
            authorizer: config
                .authorizer_rules()
                .map(|rules| RwLock::new(Arc::new(Authorizer::new(rules, [])))),
            config: RwLock::new(config),
            image,
        })
    }

    /// The configuration in force, with its dynamic part.
    pub fn config(&self) -> Arc<BrokerConfig> {
        Arc::clone(&self.config.read())
    }

    /// Replaces the configuration in force.
    pub fn set_config(&self, config: Arc<BrokerConfig>) {
        self.replication.configure(&config.replication);
        self.upkeep.configure(UpkeepSettings::of(&config));
        self.verifier.enable(config.transactions.verifies_partitions);
        *self.config.write() = config;
    }

    /// The latest image of the cluster.
    pub fn image(&self) -> Arc<Image> {
        self.image.get()
    }

    /// True if every replica here is in sync with its leader; see [`PartitionRegistration::is_behind`].
    ///
    /// [`PartitionRegistration::is_behind`]: thalweg_metadata::PartitionRegistration::is_behind
    pub fn is_in_sync(&self) -> bool {
        let image = self.image();
        let mut partitions = image.topics().iter().flat_map(|topic| topic.partitions.values());
        image.is_alive(self.node_id) && !partitions.any(|partition| partition.is_behind(self.node_id))
    }

    /// The authorizer as of the latest image; `None` if none is configured, which allows everything.
    pub fn authorizer(&self) -> Option<Arc<Authorizer>> {
        self.authorizer.as_ref().map(|authorizer| Arc::clone(&authorizer.read()))
    }

    /// Applies the changed ACLs of the next image.
    pub fn update_authorizer(&self, delta: &Delta, image: &Image) {
        let Some(authorizer) = self.authorizer.as_ref().filter(|_| !delta.changes().acls.is_empty()) else {
            return;
        };
        // Requests use the old rules meanwhile. There is no other writer.
        let mut next = Authorizer::clone(&authorizer.read());
        image.update_authorizer(&mut next, delta.base(), &delta.changes().acls);
        *authorizer.write() = Arc::new(next);
    }

    /// The cell of the latest image: for APIs that take the image late, or only for some requests.
    pub fn images(&self) -> &Arc<ImageCell> {
        &self.image
    }

    /// Makes an image the latest.
    pub fn set_image(&self, image: Arc<Image>) {
        self.image.set(image);
    }
}

/// A live broker to return as the controller: clients send it requests for the controller, which it forwards.
pub fn some_broker(node_id: BrokerId, image: &Image) -> i32 {
    if image.is_alive(node_id) {
        return node_id.0;
    }
    image.alive_brokers().next().map_or(-1, |broker| broker.id.0)
}
