//! Moves a member towards its target assignment, one step with each heartbeat (`CurrentAssignmentBuilder`).
//!
//! ```text
//!             to be revoked                   revoked, all others free
//!   STABLE ─────────────────► UNREVOKED ─────────────────────────────────► STABLE at the target's epoch
//!     │                           │ revoked, some still owned by others       ▲
//!     │ some owned by others      ▼                                           │ released
//!     └───────────────────► UNRELEASED ───────────────────────────────────────┘
//! ```
//!
//! A partition has one owner: the member that has it assigned, or has not revoked it yet.

use super::error::ConsumerGroupError;
use super::member::{ConsumerGroupMember, MemberState, PartitionEpochs};
use crate::assignor::Assignment;
use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_wire::Uuid;
use thalweg_wire::request::consumer_group_heartbeat_request::TopicPartitions;

/// Inputs of a member's step.
pub(super) struct Reconciliation<'a> {
    pub(super) target_epoch: i32,
    pub(super) target: &'a Assignment,
    /// True if the member subscribes to a topic.
    pub(super) subscribes: &'a dyn Fn(Uuid) -> bool,
    /// True if the member's subscription has just changed.
    pub(super) subscription_changed: bool,
    /// True if any member owns a partition.
    pub(super) is_owned: &'a dyn Fn(Uuid, i32) -> bool,
    /// The partitions that the member reports, if the request has them.
    pub(super) reported: Option<&'a [TopicPartitions]>,
}

impl Reconciliation<'_> {
    /// The member after its step; `None` if nothing changes.
    pub(super) fn step(
        &self,
        member: &ConsumerGroupMember,
    ) -> Result<Option<ConsumerGroupMember>, ConsumerGroupError> {
        Ok(match member.state {
            MemberState::Stable if member.epoch != self.target_epoch => self.next(member, member.epoch),
            MemberState::Stable if self.subscription_changed => self.without_unsubscribed(member),
            MemberState::Stable => None,
            MemberState::UnrevokedPartitions if self.still_has(&member.revoking) => {
                if self.subscription_changed { self.without_unsubscribed(member) } else { None }
            }
            MemberState::UnrevokedPartitions | MemberState::UnreleasedPartitions => {
                self.next(member, member.epoch)
            }
            MemberState::Unknown if self.reported.is_none_or(|reported| !reported.is_empty()) => {
                return Err(ConsumerGroupError::UnknownState);
            }
            MemberState::Unknown => self.next(member, self.target_epoch),
        })
    }

    /// True if the member reports one of these partitions. Without a report, the member may have all of them.
    fn still_has(&self, revoking: &PartitionEpochs) -> bool {
        let Some(reported) = self.reported else { return true };
        reported.iter().any(|topic| {
            let revoking = revoking.get(&topic.topic_id);
            revoking.is_some_and(|revoking| topic.partitions.iter().any(|p| revoking.contains_key(p)))
        })
    }

    /// Takes away the partitions of topics to which the member no longer subscribes.
    fn without_unsubscribed(&self, member: &ConsumerGroupMember) -> Option<ConsumerGroupMember> {
        let (kept, dropped): (PartitionEpochs, PartitionEpochs) = member
            .assigned
            .iter()
            .map(|(topic, partitions)| (*topic, partitions.clone()))
            .partition(|(topic, _)| (self.subscribes)(*topic));
        if dropped.is_empty() {
            return None;
        }
        let mut revoking = PartitionEpochs::clone(&member.revoking);
        for (topic, partitions) in dropped {
            revoking.entry(topic).or_default().extend(partitions);
        }
        let mut next = member.clone();
        next.move_to_epoch(member.epoch);
        next.assigned = Arc::new(kept);
        if self.still_has(&revoking) {
            next.state = MemberState::UnrevokedPartitions;
            next.revoking = Arc::new(revoking);
        }
        Some(next)
    }

    /// The next step towards the target. A member that has to revoke first stays at `epoch`.
    fn next(&self, member: &ConsumerGroupMember, epoch: i32) -> Option<ConsumerGroupMember> {
        let (mut assigned, mut revoking, mut added) =
            (PartitionEpochs::new(), PartitionEpochs::new(), Assignment::new());
        let mut waits = false;
        let topics: BTreeSet<Uuid> = self.target.keys().chain(member.assigned.keys()).copied().collect();
        let nothing = BTreeSet::new();
        for topic in topics {
            let target = self.target.get(&topic).filter(|_| (self.subscribes)(topic)).unwrap_or(&nothing);
            for (&partition, &at) in member.assigned.get(&topic).into_iter().flatten() {
                let to = if target.contains(&partition) { &mut assigned } else { &mut revoking };
                to.entry(topic).or_default().insert(partition, at);
            }
            for &partition in target {
                if member.assigned.get(&topic).is_some_and(|assigned| assigned.contains_key(&partition)) {
                    continue;
                }
                // The member still owns the partitions that it is revoking, so they are free for it.
                let is_own = member.revoking.get(&topic).is_some_and(|own| own.contains_key(&partition));
                if (self.is_owned)(topic, partition) && !is_own {
                    waits = true;
                } else {
                    added.entry(topic).or_default().insert(partition);
                }
            }
        }
        let mut next = member.clone();
        if !revoking.is_empty() && self.still_has(&revoking) {
            next.state = MemberState::UnrevokedPartitions;
            next.move_to_epoch(epoch);
            next.revoking = Arc::new(revoking);
        } else {
            for (topic, partitions) in added {
                let epochs = partitions.into_iter().map(|partition| (partition, self.target_epoch));
                assigned.entry(topic).or_default().extend(epochs);
            }
            next.state = if waits { MemberState::UnreleasedPartitions } else { MemberState::Stable };
            next.move_to_epoch(self.target_epoch);
            next.revoking = Arc::default();
        }
        next.assigned = Arc::new(assigned);
        // Without a change there is nothing to write: a waiting member repeats the same step.
        (next != *member).then_some(next)
    }
}
