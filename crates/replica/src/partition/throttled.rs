//! Decides which replication traffic of a partition is throttled; see
//! [`crate::throttle::ReplicationThrottle`].

use super::role::{Follower, Role};
use super::{Partition, State};
use thalweg_record::Offset;
use tokio::time::Instant;

impl Partition {
    /// Counts bytes sent to a follower, if sending is throttled.
    pub fn sent_to_follower(&self, bytes: usize) {
        self.sent(bytes, true);
        let throttle = &self.context.leader_throttle;
        if throttle.limit().is_some()
            && self.state.lock().settings.leader_throttled.contains(self.index, self.node_id)
        {
            throttle.record(bytes as u64, Instant::now());
        }
    }

    /// True if this replica must wait before the next fetch: it lags, and its throttle is exceeded.
    pub fn is_held_back(&self) -> bool {
        let throttle = &self.context.follower_throttle;
        throttle.limit().is_some() && {
            let state = self.state.lock();
            state.is_copied_throttled(self) && state.lags() && throttle.is_exceeded(Instant::now())
        }
    }
}

impl State {
    /// Counts bytes received from the leader, if fetching is throttled.
    pub(super) fn came_from_leader(&self, partition: &Partition, bytes: u64) {
        let throttle = &partition.context.follower_throttle;
        if throttle.limit().is_some() && self.is_copied_throttled(partition) {
            throttle.record(bytes, Instant::now());
        }
    }

    fn is_copied_throttled(&self, partition: &Partition) -> bool {
        self.settings.follower_throttled.contains(partition.index, partition.node_id)
    }

    /// True if this replica is behind its leader's high watermark, or does not know it yet.
    fn lags(&self) -> bool {
        let Role::Follower(Follower { leader_high_watermark, .. }) = &self.role else { return false };
        *leader_high_watermark == Offset::NONE || self.log.log_end_offset() < *leader_high_watermark
    }
}
