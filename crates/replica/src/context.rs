//! The broker's state that partitions need.

use crate::followers::IsrMember;
use crate::isr_changes::IsrChanges;
use crate::reports::PartitionReports;
use crate::throttle::ReplicationThrottle;
use std::sync::Arc;
use std::time::Duration;
use thalweg_histogram::Histogram;
use thalweg_metadata::{BrokerId, ImageCell, PartitionRegistration};
use tokio::sync::Notify;

#[derive(Debug)]
pub struct ReplicaContext {
    pub node_id: BrokerId,
    /// `replica.lag.time.max.ms`.
    pub lag_time_max: Duration,
    /// The image of the cluster.
    pub image: Arc<ImageCell>,
    /// Changes of in-sync replicas, on their way to the controller.
    pub isr_changes: IsrChanges,
    /// Rate limit for sending records to throttled followers.
    pub leader_throttle: ReplicationThrottle,
    /// Rate limit for fetching into throttled replicas.
    pub follower_throttle: ReplicationThrottle,
    /// Durations of log syncs.
    pub flushes: Histogram,
    /// Times that threads waited for the lock of a partition that another thread held.
    pub lock_waits: Histogram,
    /// Partitions with leader epochs below those in their logs: the metadata is older than the logs, as after
    /// a controller's directory was replaced by an earlier copy.
    pub stale_epochs: PartitionReports,
    /// Partitions with a reader that fetches the same records again and again.
    pub stuck_readers: PartitionReports,
    /// Notified when a read finds damage in a log.
    pub damage_found: Notify,
}

impl ReplicaContext {
    /// True if a follower may join the in-sync replicas: its broker is registered, neither fenced nor
    /// shutting down, the fetching process is the registered one, and the controller does not list the
    /// replica's directory as offline, lost or full.
    pub fn is_eligible(&self, partition: &PartitionRegistration, member: IsrMember) -> bool {
        let image = self.image.get();
        image.broker(member.id).is_some_and(|broker| {
            broker.is_active()
                && (member.broker_epoch == -1 || member.broker_epoch == broker.epoch.0)
                && broker.has_online_replica(partition)
        })
    }
}
