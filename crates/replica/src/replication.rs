//! Replication between brokers: tasks that follow other brokers and propose changes of in-sync replicas.
//!
//! The leading side is driven by the followers' fetches: [`crate::followers`] decides the high watermark and
//! the in-sync replicas under the partition's lock, and `alter_partition` sends its proposals to the
//! controller. The following side is a few tasks per leader broker (`fetcher`): each fetches many partitions
//! over one connection, with an incremental session (`session`), and appends the batches unchanged. `answer`
//! interprets answers.
//!
//! Refuses: elections, placement, and any source of metadata but the image. A partition rejects answers that
//! are older than its leader epoch (`crate::partition`).

mod alter_partition;
mod answer;
mod damaged;
mod directories;
mod durability;
mod fetcher;
mod fetchers;
mod leaving;
mod log_starts;
mod moves;
mod session;
mod stale_epochs;
mod stuck_readers;

pub use directories::{DirectoryAssignments, give_up_lost};
pub use fetchers::Fetchers;
pub use leaving::LeavingReplicas;
pub use moves::Moves;

use crate::context::ReplicaContext;
use crate::isr_changes::IsrChanges;
use crate::partition::Partitions;
use crate::reports::PartitionReports;
use crate::throttle::ReplicationThrottle;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::{LogSettings, ReplicationSettings};
use thalweg_log::LogDirs;
use thalweg_membership::{Peers, RegisteredBroker};
use thalweg_metadata::ImageCell;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// The replicas of this broker: shared by fetchers, proposals to the controller and moves.
#[derive(Debug)]
pub struct Replication {
    /// The context of partitions.
    pub context: Arc<ReplicaContext>,
    /// Directories of replicas that the controller does not know yet.
    pub directories: DirectoryAssignments,
    /// Damaged replicas that leave the in-sync replicas.
    pub leaving: LeavingReplicas,
    /// Partitions on their way from one data directory to another.
    pub moves: Moves,
    /// Notified when a follower must report a log start that is not synced.
    log_starts_owed: Notify,
    broker: Arc<RegisteredBroker>,
    image: Arc<ImageCell>,
    partitions: Arc<Partitions>,
    log_dirs: Arc<LogDirs>,
    peers: Arc<Peers>,
    settings: RwLock<ReplicationSettings>,
}

impl Replication {
    /// A replication state without followed partitions.
    pub fn new(
        broker: Arc<RegisteredBroker>,
        image: Arc<ImageCell>,
        partitions: Arc<Partitions>,
        log_dirs: Arc<LogDirs>,
        peers: Arc<Peers>,
        settings: &ReplicationSettings,
        log: &LogSettings,
    ) -> Replication {
        let throttle =
            |rate: u64| ReplicationThrottle::new(rate, settings.quota_samples, settings.quota_sample);
        let context = Arc::new(ReplicaContext {
            node_id: broker.node_id,
            lag_time_max: settings.lag_time_max,
            image: Arc::clone(&image),
            isr_changes: IsrChanges::default(),
            leader_throttle: throttle(settings.leader_throttled_rate),
            follower_throttle: throttle(settings.follower_throttled_rate),
            flushes: thalweg_histogram::Histogram::of_times(),
            lock_waits: thalweg_histogram::Histogram::of_times(),
            stale_epochs: PartitionReports::default(),
            stuck_readers: PartitionReports::default(),
            damage_found: Notify::new(),
        });
        let moves = Moves::new(
            log.move_threads.unwrap_or(log.data_dirs().len()).max(1),
            ReplicationThrottle::new(
                settings.move_rate,
                settings.move_quota_samples,
                settings.move_quota_sample,
            ),
        );
        let (directories, leaving) = (DirectoryAssignments::default(), LeavingReplicas::default());
        let settings = RwLock::new(settings.clone());
        Replication {
            context,
            directories,
            leaving,
            moves,
            log_starts_owed: Notify::new(),
            broker,
            image,
            partitions,
            log_dirs,
            peers,
            settings,
        }
    }

    /// Applies new settings.
    pub fn configure(&self, settings: &ReplicationSettings) {
        self.context.leader_throttle.set_limit(settings.leader_throttled_rate);
        self.context.follower_throttle.set_limit(settings.follower_throttled_rate);
        self.moves.throttle.set_limit(settings.move_rate);
        *self.settings.write() = settings.clone();
    }

    fn settings(&self) -> ReplicationSettings {
        self.settings.read().clone()
    }

    /// Starts background tasks: proposals and reports to the controller, the checkpoints of log starts, and
    /// checks for damaged replicas, lagging followers and stuck followers. The tasks end when the set is
    /// dropped.
    pub fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        tasks.spawn(alter_partition::run(Arc::clone(self)));
        tasks.spawn(directories::run(Arc::clone(self)));
        tasks.spawn(moves::run(Arc::clone(self)));
        tasks.spawn(log_starts::run(Arc::clone(self)));
        tasks.spawn(damaged::run(Arc::clone(self)));
        tasks.spawn(stale_epochs::run(Arc::clone(self)));
        tasks.spawn(stuck_readers::run(Arc::clone(self)));
        let partitions = Arc::clone(&self.partitions);
        // Half of `replica.lag.time.max.ms`, so that a lagging follower leaves after one and a half times
        // that at the latest.
        let period = (self.context.lag_time_max / 2).max(Duration::from_millis(1));
        tasks.spawn(async move {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                for partition in partitions.all() {
                    partition.shrink_isr();
                }
            }
        });
    }
}
