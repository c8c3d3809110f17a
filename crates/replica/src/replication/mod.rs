//! Replication between brokers: a leader's view of its followers, and the fetchers by which this broker follows others.
//!
//! The leading side is driven by the followers' fetches: [`Leadership`] decides under the partition's lock how far records
//! are replicated and who is in sync, and `isr_changes` carries its proposals to the controller. The following side
//! is a few tasks for each leader broker (`fetcher`): each fetches for many partitions over one connection, by an
//! incremental session (`session`), and appends the batches as they come. What an answer means for a partition is
//! decided in `answer`.
//!
//! Refuses: electing, placing, and knowing about anything but the image. A partition guards itself against answers that are
//! older than its leader epoch (`crate::partition`).

mod answer;
mod context;
mod directories;
mod fetcher;
mod fetchers;
mod isr_changes;
mod leadership;
mod moves;
mod session;
mod throttle;

pub use answer::truncation;
pub use context::ReplicaContext;
pub use directories::{DirectoryAssignments, give_up_lost};
pub use fetchers::Fetchers;
pub use isr_changes::{IsrChanges, IsrCounters};
pub use leadership::{ChangeOutcome, FollowerLag, IsrChange, Leadership};
pub use moves::Moves;
pub use throttle::Throttle;

use crate::partition::Partitions;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::{LogSettings, ReplicationSettings};
use thalweg_log::LogDirs;
use thalweg_membership::{Peers, RegisteredBroker};
use thalweg_metadata::ImageCell;
use thalweg_wire::Uuid;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// A partition, whatever its topic is called: the topic's id, and the index.
pub type PartitionKey = (Uuid, i32);

/// The replicas of this broker: what its fetchers, its proposals to the controller and its moves work with.
#[derive(Debug)]
pub struct Replication {
    /// What partitions see of it.
    pub context: Arc<ReplicaContext>,
    /// In which directories replicas lie, where the controller does not know it.
    pub directories: DirectoryAssignments,
    /// Partitions on their way from one data directory to another.
    pub moves: Moves,
    broker: Arc<RegisteredBroker>,
    image: Arc<ImageCell>,
    partitions: Arc<Partitions>,
    log_dirs: Arc<LogDirs>,
    peers: Arc<Peers>,
    settings: RwLock<ReplicationSettings>,
}

impl Replication {
    /// Nothing is followed yet.
    pub fn new(
        broker: Arc<RegisteredBroker>,
        image: Arc<ImageCell>,
        partitions: Arc<Partitions>,
        log_dirs: Arc<LogDirs>,
        peers: Arc<Peers>,
        settings: &ReplicationSettings,
        log: &LogSettings,
    ) -> Replication {
        let throttle = |rate: u64| Throttle::new(rate, settings.quota_samples, settings.quota_sample);
        let context = Arc::new(ReplicaContext {
            node_id: broker.node_id,
            lag_time_max: settings.lag_time_max,
            image: Arc::clone(&image),
            isr_changes: IsrChanges::default(),
            leader_throttle: throttle(settings.leader_throttled_rate),
            follower_throttle: throttle(settings.follower_throttled_rate),
        });
        let moves = Moves::new(
            log.move_threads.unwrap_or(log.data_dirs().len()).max(1),
            Throttle::new(settings.move_rate, settings.move_quota_samples, settings.move_quota_sample),
        );
        let directories = DirectoryAssignments::default();
        let settings = RwLock::new(settings.clone());
        Replication { context, directories, moves, broker, image, partitions, log_dirs, peers, settings }
    }

    /// Puts other settings in force.
    pub fn configure(&self, settings: &ReplicationSettings) {
        self.context.leader_throttle.set_limit(settings.leader_throttled_rate);
        self.context.follower_throttle.set_limit(settings.follower_throttled_rate);
        self.moves.throttle.set_limit(settings.move_rate);
        *self.settings.write() = settings.clone();
    }

    fn settings(&self) -> ReplicationSettings {
        self.settings.read().clone()
    }

    /// Starts what goes on beside fetches: proposals and reports to the controller, and the look for followers that lag. It
    /// ends when the set is dropped.
    pub fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        tasks.spawn(isr_changes::run(Arc::clone(self)));
        tasks.spawn(directories::run(Arc::clone(self)));
        tasks.spawn(moves::run(Arc::clone(self)));
        let partitions = Arc::clone(&self.partitions);
        // Half the time that a follower has, so that it leaves after one and a half times that at the latest.
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
