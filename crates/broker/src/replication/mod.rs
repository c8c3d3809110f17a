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
mod directories;
mod fetcher;
mod fetchers;
mod isr_changes;
mod leadership;
mod moves;
mod session;
mod surroundings;
mod throttle;

pub use answer::truncation;
pub use directories::{DirectoryAssignments, give_up_lost};
pub use fetchers::Fetchers;
pub use isr_changes::{IsrChanges, IsrCounters};
pub use leadership::{ChangeOutcome, FollowerLag, IsrChange, Leadership};
pub use moves::Moves;
pub use surroundings::Surroundings;
pub use throttle::Throttle;

use crate::broker::Broker;
use std::sync::Arc;
use std::time::Duration;
use thalweg_wire::Uuid;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// A partition, whatever its topic is called: the topic's id, and the index.
pub type PartitionKey = (Uuid, i32);

/// Starts what goes on beside fetches: proposals and reports to the controller, and the look for followers that lag. It
/// ends when the set is dropped.
pub fn start(broker: &Arc<Broker>, tasks: &mut JoinSet<()>) {
    tasks.spawn(isr_changes::run(Arc::clone(broker)));
    tasks.spawn(directories::run(Arc::clone(broker)));
    tasks.spawn(moves::run(Arc::clone(broker)));
    let broker = Arc::clone(broker);
    tasks.spawn(async move {
        // Half the time that a follower has, so that it leaves after one and a half times that at the latest.
        let period = (broker.surroundings.lag_time_max / 2).max(Duration::from_millis(1));
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            for partition in broker.partitions.all() {
                partition.shrink_isr();
            }
        }
    });
}
