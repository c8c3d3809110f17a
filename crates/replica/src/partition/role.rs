//! The role of this broker for a partition, and its state in that role.

use super::acks::AckWaiters;
use super::{RoleError, State};
use crate::followers::Followers;
use thalweg_log::OffsetsMissing;
use thalweg_record::{LeaderEpoch, Offset};
use tokio::time::Instant;

/// The role of this broker, by the last applied registration.
pub(super) enum Role {
    Leader(Leader),
    /// Another broker leads, or the partition has no leader.
    Follower(Follower),
    /// The partition was deleted with its topic, or removed from this broker: all requests are refused.
    Retired {
        /// True if the topic was deleted.
        with_topic: bool,
    },
}

/// The leader in one epoch.
pub(super) struct Leader {
    /// The other replicas; `None` without any.
    pub(super) followers: Option<Box<Followers>>,
    /// The start offset of the epoch.
    pub(super) epoch_start: Offset,
    /// The first of the consecutive epochs that this broker has led: the log was not cut since.
    pub(super) led_since: LeaderEpoch,
    /// Appended bytes not known to be below the high watermark.
    pub(super) unreplicated_bytes: u64,
    /// Produce requests that wait for the high watermark.
    pub(super) acks: AckWaiters,
    /// Deletions that wait for the low watermark.
    pub(super) deletions: AckWaiters,
    /// Deadline for waiting for a leader epoch above that of the last batch: see [`State::stale_epoch`].
    pub(super) awaits_epoch: Option<Instant>,
}

/// A follower in one epoch.
pub(super) struct Follower {
    /// The leader's high watermark from its last answer; -1 before the first.
    pub(super) leader_high_watermark: Offset,
    /// The last refused gap in the leader's log, and the number of refusals.
    pub(super) refused_gap: Option<(OffsetsMissing, u32)>,
    /// The first offset received from this leader: all records from there on are its own.
    pub(super) first_sent: Option<Offset>,
    /// True if acknowledged records from this leader were set aside when it had them truncated.
    pub(super) keeps_taken_back: bool,
}

impl Leader {
    pub(super) fn new(epoch_start: Offset, led_since: LeaderEpoch) -> Leader {
        Leader {
            followers: None,
            epoch_start,
            led_since,
            unreplicated_bytes: 0,
            acks: AckWaiters::default(),
            deletions: AckWaiters::default(),
            awaits_epoch: None,
        }
    }

    /// True if the high watermark depends only on the leader's own log end.
    pub(super) fn replicates_alone(&self) -> bool {
        self.followers.as_ref().is_none_or(|followers| followers.is_alone())
    }

    /// Number of appended bytes between the old and the new high watermark, estimated by their share of the
    /// offsets.
    pub(super) fn replicated_bytes(&mut self, before: Offset, now: Offset, end: Offset) -> usize {
        let bytes = if now >= end {
            self.unreplicated_bytes
        } else {
            let (moved, behind) = (now.0.abs_diff(before.0), end.0.abs_diff(before.0).max(1));
            u64::try_from(u128::from(self.unreplicated_bytes) * u128::from(moved) / u128::from(behind))
                .unwrap_or(u64::MAX)
        };
        self.unreplicated_bytes -= bytes;
        // Earlier bytes are not counted, but become readable too.
        usize::try_from(bytes.max(1)).unwrap_or(usize::MAX)
    }
}

impl Follower {
    pub(super) fn new() -> Follower {
        Follower {
            leader_high_watermark: Offset::NONE,
            refused_gap: None,
            first_sent: None,
            keeps_taken_back: false,
        }
    }
}

impl State {
    pub(super) fn is_retired(&self) -> bool {
        matches!(self.role, Role::Retired { .. })
    }

    /// The leader's state, if this broker leads.
    pub(super) fn leader(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) | Role::Retired { .. } => None,
        }
    }

    /// The leader's state, mutable, if this broker leads.
    pub(super) fn leader_mut(&mut self) -> Option<&mut Leader> {
        match &mut self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) | Role::Retired { .. } => None,
        }
    }

    /// The follower's state, if this broker does not lead.
    pub(super) fn follower_mut(&mut self) -> Option<&mut Follower> {
        match &mut self.role {
            Role::Follower(follower) => Some(follower),
            Role::Leader(_) | Role::Retired { .. } => None,
        }
    }

    /// The leader's view of the other replicas, if this broker leads and there are any.
    pub(super) fn followers(&self) -> Option<&Followers> {
        self.leader()?.followers.as_deref()
    }

    /// The error of a broker that does not lead.
    pub(super) fn not_led(&self) -> RoleError {
        match self.role {
            Role::Retired { with_topic: true } => RoleError::Deleted,
            Role::Leader(_) | Role::Follower(_) | Role::Retired { .. } => RoleError::NotLeader,
        }
    }

    /// Rejects a request with another leader epoch, if the topic still exists.
    fn check_epoch(&self, current: Option<LeaderEpoch>) -> Result<(), RoleError> {
        if matches!(self.role, Role::Retired { with_topic: true }) {
            return Err(RoleError::Deleted);
        }
        if let Some(epoch) = current {
            if epoch < self.leader_epoch() {
                return Err(RoleError::FencedEpoch);
            }
            if epoch > self.leader_epoch() {
                return Err(RoleError::UnknownEpoch);
            }
        }
        Ok(())
    }

    /// Rejects a request that only the leader serves, or one with another leader epoch.
    pub(super) fn check_leader(&self, current: Option<LeaderEpoch>) -> Result<&Leader, RoleError> {
        self.check_epoch(current)?;
        self.leader().ok_or_else(|| self.not_led())
    }

    /// Rejects a request that only a replica serves, or one with another leader epoch.
    pub(super) fn check_replica(&self, current: Option<LeaderEpoch>) -> Result<(), RoleError> {
        self.check_epoch(current)?;
        if self.is_retired() { Err(RoleError::NotReplica) } else { Ok(()) }
    }
}
