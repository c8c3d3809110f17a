//! The broker's state that partitions need.

use crate::isr_changes::IsrChanges;
use crate::leadership::IsrMember;
use crate::reports::PartitionReports;
use crate::throttle::Throttle;
use std::sync::Arc;
use std::time::Duration;
use thalweg_histogram::Histogram;
use thalweg_metadata::{BrokerId, ImageCell, PartitionRegistration};
use tokio::sync::Notify;

#[derive(Debug)]
pub struct ReplicaContext {
    /// `node.id`.
    pub node_id: BrokerId,
    /// `replica.lag.time.max.ms`.
    pub lag_time_max: Duration,
    /// The image of the cluster.
    pub image: Arc<ImageCell>,
    /// Where changes of in-sync replicas go.
    pub isr_changes: IsrChanges,
    /// How fast replicas that are copied from here may be sent.
    pub leader_throttle: Throttle,
    /// How fast replicas that are copied to here may be fetched.
    pub follower_throttle: Throttle,
    /// How long syncs of logs take.
    pub flushes: Histogram,
    /// Partitions with leader epochs below those in their logs: the metadata is older than the logs, as after a controller's
    /// directory was replaced by an earlier copy.
    pub stale_epochs: PartitionReports,
    /// Partitions with a reader that fetches the same records again and again.
    pub stuck_readers: PartitionReports,
    /// Notified when damage was found in a log.
    pub damage_found: Notify,
}

impl ReplicaContext {
    /// Whether a follower may be in sync: its broker is registered, neither fenced nor shutting down, the process that
    /// fetched is the registered one, and the controller does not know the replica's directory as offline, lost or full.
    pub fn is_eligible(&self, partition: &PartitionRegistration, member: IsrMember) -> bool {
        let image = self.image.get();
        image.broker(member.id).is_some_and(|broker| {
            broker.is_active()
                && (member.broker_epoch == -1 || member.broker_epoch == broker.epoch.0)
                && broker.has_online_replica(partition)
        })
    }
}
