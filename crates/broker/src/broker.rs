//! The broker's parts in one place: what every API may use.

use crate::api::{FetchSessions, LargeRequests};
use crate::auto_topics::AutoTopics;
use crate::group::GroupCoordinator;
use crate::membership::ControllerLink;
use crate::metrics::RequestMetrics;
use crate::net::{AnswerMemory, ConnectionLimits, FrameMemory};
use crate::partition::Partitions;
use crate::producer_ids::ProducerIds;
use crate::reconfigure;
use crate::replication::{DirectoryAssignments, IsrChanges, Moves, Surroundings, Throttle};
use crate::transaction::{TransactionCoordinator, Verifier};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use thalweg_client::Connector;
use thalweg_config::BrokerConfig;
use thalweg_log::{Clock, LogDirs};
use thalweg_metadata::{Image, ImageCell};
use tokio::sync::Semaphore;

/// A broker: its configuration, its view of the cluster, its partitions and coordinators.
pub struct Broker {
    /// `node.id`.
    pub node_id: i32,
    /// The cluster's id.
    pub cluster_id: String,
    /// The wall clock.
    pub clock: Clock,
    /// How connections to other brokers are made.
    pub connector: Connector,
    /// The data directories.
    pub log_dirs: Arc<LogDirs>,
    /// The partitions that are here.
    pub partitions: Arc<Partitions>,
    /// The way to the controller.
    pub controller: ControllerLink,
    /// What requests take of memory.
    pub request_memory: FrameMemory,
    /// What answers take that peers do not take.
    pub answer_memory: AnswerMemory,
    /// How many connections there may be.
    pub connections: Arc<ConnectionLimits>,
    /// Requests as they are answered.
    pub requests: RequestMetrics,
    /// The places for requests that take long.
    pub large_requests: LargeRequests,
    /// Incremental fetch sessions.
    pub fetch_sessions: FetchSessions,
    /// Producer ids to give out.
    pub producer_ids: ProducerIds,
    /// Classic consumer groups.
    pub groups: Arc<GroupCoordinator>,
    /// Transactions.
    pub transactions: Arc<TransactionCoordinator>,
    /// What asks the coordinators of transactions that write to partitions here.
    pub verifier: Verifier,
    /// Permits to look into large batches of producers, away from the tasks of their connections.
    pub openings: Semaphore,
    /// Topics that are being created because somebody asked for them.
    pub auto_topics: AutoTopics,
    /// What partitions see of the broker.
    pub surroundings: Arc<Surroundings>,
    /// In which directories replicas lie, where the controller does not know it.
    pub directories: DirectoryAssignments,
    /// Partitions on their way from one data directory to another.
    pub moves: Moves,
    config: RwLock<Arc<BrokerConfig>>,
    image: Arc<ImageCell>,
    epoch: AtomicI64,
}

/// How many large batches are looked into at a time. Each takes a core for up to half a second, and, in the worst of
/// cases, the 128 MiB of a zstd window.
const OPENINGS_MAX: usize = 2;

/// What a broker is made of; see [`Broker`].
#[allow(missing_docs, reason = "the fields are Broker's")]
pub struct BrokerParts {
    pub cluster_id: String,
    pub config: Arc<BrokerConfig>,
    pub clock: Clock,
    /// How connections to other brokers are made.
    pub connector: Connector,
    pub request_memory: FrameMemory,
    pub answer_memory: AnswerMemory,
    pub log_dirs: Arc<LogDirs>,
    pub partitions: Arc<Partitions>,
    pub controller: ControllerLink,
    pub groups: Arc<GroupCoordinator>,
    pub transactions: Arc<TransactionCoordinator>,
    pub image: Arc<ImageCell>,
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "broker {}", self.node_id)
    }
}

impl Broker {
    /// Puts a broker together. It serves nothing by itself.
    pub fn new(parts: BrokerParts) -> Arc<Broker> {
        let BrokerParts {
            cluster_id, config, clock, connector, log_dirs, partitions, controller, image, ..
        } = parts;
        let replication = &config.replication;
        let throttle = |rate: u64| Throttle::new(rate, replication.quota_samples, replication.quota_sample);
        let surroundings = Arc::new(Surroundings {
            node_id: config.node_id,
            lag_time_max: config.replication.lag_time_max,
            image: Arc::clone(&image),
            isr_changes: IsrChanges::default(),
            leader_throttle: throttle(replication.leader_throttled_rate),
            follower_throttle: throttle(replication.follower_throttled_rate),
        });
        let moves = Moves::new(Throttle::new(
            replication.move_rate,
            replication.move_quota_samples,
            replication.move_quota_sample,
        ));
        let connections = reconfigure::connection_limits(&config.network, log_dirs.disk().descriptors());
        let verifier = Verifier::default();
        verifier.enable(config.transactions.verifies_partitions);
        Arc::new(Broker {
            node_id: config.node_id,
            cluster_id,
            clock,
            connector,
            log_dirs,
            partitions,
            controller,
            request_memory: parts.request_memory,
            answer_memory: parts.answer_memory,
            connections,
            requests: RequestMetrics::default(),
            large_requests: LargeRequests::default(),
            fetch_sessions: FetchSessions::new(config.network.fetch_session_slots),
            producer_ids: ProducerIds::default(),
            groups: parts.groups,
            transactions: parts.transactions,
            verifier,
            openings: Semaphore::new(OPENINGS_MAX),
            auto_topics: AutoTopics::default(),
            surroundings,
            directories: DirectoryAssignments::default(),
            moves,
            config: RwLock::new(config),
            image,
            epoch: AtomicI64::new(-1),
        })
    }

    /// The configuration in force, with its dynamic part.
    pub fn config(&self) -> Arc<BrokerConfig> {
        Arc::clone(&self.config.read())
    }

    /// Puts another configuration in force.
    pub fn set_config(&self, config: Arc<BrokerConfig>) {
        self.verifier.enable(config.transactions.verifies_partitions);
        *self.config.write() = config;
    }

    /// The latest image of the cluster.
    pub fn image(&self) -> Arc<Image> {
        self.image.get()
    }

    /// Makes an image the latest.
    pub fn set_image(&self, image: Arc<Image>) {
        self.image.set(image);
    }

    /// The epoch of this broker's registration; -1 before the first.
    pub fn epoch(&self) -> i64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Takes note of the epoch of a registration.
    pub fn set_epoch(&self, epoch: i64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// A live broker to name as the controller: clients send it what the controller does, and it forwards.
    pub fn some_broker(&self, image: &Image) -> i32 {
        if image.is_alive(self.node_id) {
            return self.node_id;
        }
        image.alive_brokers().next().map_or(-1, |broker| broker.id)
    }
}
