//! A group of any type.

use super::classic::{ClassicGroup, GroupState, WaitingRequests};
use super::commits::{Commit, CommitPermission};
use super::consumer::ConsumerGroup;
use super::deadlines::Deadlines;
use super::error::MembershipError;
use super::record::CoordinatorRecord;
use super::share::ShareGroup;
use super::streams::StreamsGroup;
use super::timers::Timers;
use thalweg_wire::request::list_groups_response::ListedGroup;

/// A group of any type.
#[derive(Debug)]
pub(super) enum Group {
    /// A group whose members agree on an assignment among themselves.
    Classic(Box<ClassicGroup>),
    /// A group whose coordinator assigns (KIP-848).
    Consumer(Box<ConsumerGroup>),
    /// A group whose members share partitions (KIP-932).
    Share(Box<ShareGroup>),
    /// The instances of a Kafka Streams application (KIP-1071).
    Streams(Box<StreamsGroup>),
}

impl From<ClassicGroup> for Group {
    fn from(group: ClassicGroup) -> Group {
        Group::Classic(Box::new(group))
    }
}

impl From<ConsumerGroup> for Group {
    fn from(group: ConsumerGroup) -> Group {
        Group::Consumer(Box::new(group))
    }
}

impl From<ShareGroup> for Group {
    fn from(group: ShareGroup) -> Group {
        Group::Share(Box::new(group))
    }
}

impl From<StreamsGroup> for Group {
    fn from(group: StreamsGroup) -> Group {
        Group::Streams(Box::new(group))
    }
}

impl Group {
    /// The classic group.
    pub(super) fn classic(&self) -> Option<&ClassicGroup> {
        match self {
            Group::Classic(group) => Some(group),
            _ => None,
        }
    }

    /// The classic group, to be changed.
    pub(super) fn classic_mut(&mut self) -> Option<&mut ClassicGroup> {
        match self {
            Group::Classic(group) => Some(group),
            _ => None,
        }
    }

    /// The consumer group.
    pub(super) fn consumer(&self) -> Option<&ConsumerGroup> {
        match self {
            Group::Consumer(group) => Some(group),
            _ => None,
        }
    }

    /// The consumer group, to be changed.
    pub(super) fn consumer_mut(&mut self) -> Option<&mut ConsumerGroup> {
        match self {
            Group::Consumer(group) => Some(group),
            _ => None,
        }
    }

    /// The share group.
    pub(super) fn share(&self) -> Option<&ShareGroup> {
        match self {
            Group::Share(group) => Some(group),
            _ => None,
        }
    }

    /// The share group, to be changed.
    pub(super) fn share_mut(&mut self) -> Option<&mut ShareGroup> {
        match self {
            Group::Share(group) => Some(group),
            _ => None,
        }
    }

    /// The streams group.
    pub(super) fn streams(&self) -> Option<&StreamsGroup> {
        match self {
            Group::Streams(group) => Some(group),
            _ => None,
        }
    }

    /// The streams group, to be changed.
    pub(super) fn streams_mut(&mut self) -> Option<&mut StreamsGroup> {
        match self {
            Group::Streams(group) => Some(group),
            _ => None,
        }
    }

    /// Deadlines of the group's members, for group types that keep several per member.
    pub(super) fn deadlines(&mut self) -> Option<&mut Deadlines> {
        match self {
            Group::Consumer(group) => Some(group.deadlines()),
            Group::Streams(group) => Some(group.deadlines()),
            Group::Classic(_) | Group::Share(_) => None,
        }
    }

    /// The partitions that a member may commit; `None` for classic and share groups.
    pub(super) fn commits<'a>(
        &'a self,
        commit: &Commit<'_>,
    ) -> Option<Result<CommitPermission<'a>, MembershipError>> {
        match self {
            Group::Consumer(group) => Some(group.commits(commit)),
            Group::Streams(group) => Some(group.commits(commit)),
            Group::Classic(_) | Group::Share(_) => None,
        }
    }

    /// Checks that this member may read offsets.
    pub(super) fn validate_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), MembershipError> {
        match self {
            Group::Consumer(group) => group.validate_fetch(member_id, epoch),
            Group::Streams(group) => group.validate_fetch(member_id, epoch),
            Group::Classic(_) | Group::Share(_) => Ok(()),
        }
    }

    /// True if the topic matters for the group's assignment.
    pub(super) fn depends_on(&self, topic: &str) -> bool {
        match self {
            Group::Streams(group) => group.requires(topic),
            other => other.is_subscribed_to(topic),
        }
    }

    /// Marks the topics as changed: the next heartbeat reads them.
    pub(super) fn refresh_topics(&mut self) {
        match self {
            Group::Classic(_) => {}
            Group::Consumer(group) => group.refresh_topics(),
            Group::Share(group) => group.refresh_topics(),
            Group::Streams(group) => group.refresh_topics(),
        }
    }

    /// Kafka's name of the group's state.
    pub(super) fn state_name(&self) -> &'static str {
        match self {
            Group::Classic(group) => group.state().name(),
            Group::Consumer(group) => group.state_name(),
            Group::Share(group) => group.state_name(),
            Group::Streams(group) => group.state_name(),
        }
    }

    /// Kafka's name of the group type.
    pub(super) fn kind_name(&self) -> &'static str {
        match self {
            Group::Classic(_) => "classic",
            Group::Consumer(_) => "consumer",
            Group::Share(_) => "share",
            Group::Streams(_) => "streams",
        }
    }

    /// Number of members.
    pub(super) fn size(&self) -> usize {
        match self {
            Group::Classic(group) => group.size(),
            Group::Consumer(group) => group.size(),
            Group::Share(group) => group.size(),
            Group::Streams(group) => group.size(),
        }
    }

    /// True if the group has no members.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Group::Classic(group) => group.state() == GroupState::Empty,
            Group::Consumer(group) => group.size() == 0,
            Group::Share(group) => group.size() == 0,
            Group::Streams(group) => group.size() == 0,
        }
    }

    /// True if the group can be deleted once it has no offsets: it has no members, and none are joining.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Group::Classic(group) => group.is_abandoned(),
            Group::Consumer(group) => group.size() == 0,
            Group::Streams(group) => group.size() == 0,
            // The offsets of a share group are kept by the share coordinator until the group is deleted.
            Group::Share(_) => false,
        }
    }

    /// True if the topics of the group's members are known.
    pub(super) fn is_of_consumers(&self) -> bool {
        match self {
            Group::Classic(group) => group.is_of_consumers(),
            Group::Consumer(_) | Group::Streams(_) => true,
            Group::Share(_) => false,
        }
    }

    /// True if the group's members read the topic.
    pub(super) fn is_subscribed_to(&self, topic: &str) -> bool {
        match self {
            Group::Classic(group) => group.is_subscribed_to(topic),
            Group::Consumer(group) => group.is_subscribed_to(topic),
            Group::Share(group) => group.is_subscribed_to(topic),
            Group::Streams(group) => group.is_subscribed_to(topic),
        }
    }

    /// The time from which an offset's retention counts; `None` while offsets of the group do not expire.
    pub(super) fn retention_starts_ms(&self, commit_timestamp_ms: i64) -> Option<i64> {
        match self {
            Group::Classic(group) => group.retention_starts_ms(commit_timestamp_ms),
            Group::Consumer(_) | Group::Streams(_) => Some(commit_timestamp_ms),
            Group::Share(_) => None,
        }
    }

    /// The group's entry in ListGroups.
    pub(super) fn list(&self) -> ListedGroup {
        match self {
            Group::Classic(group) => group.list(),
            Group::Consumer(group) => group.list(),
            Group::Share(group) => group.list(),
            Group::Streams(group) => group.list(),
        }
    }

    /// Pushes the records that delete the group.
    pub(super) fn push_tombstones(&self, id: &str, records: &mut Vec<CoordinatorRecord>) {
        match self {
            Group::Classic(_) => records.push(CoordinatorRecord::group_tombstone(id)),
            Group::Consumer(group) => group.push_tombstones(records),
            Group::Share(group) => group.push_tombstones(records),
            Group::Streams(group) => group.push_tombstones(records),
        }
    }

    /// Tombstones for the targets of members whose own records are lost.
    pub(super) fn stray_target_tombstones(&self) -> Vec<CoordinatorRecord> {
        match self {
            // A classic group has a single record.
            Group::Classic(_) => Vec::new(),
            Group::Consumer(group) => group.stray_target_tombstones(),
            Group::Share(group) => group.stray_target_tombstones(),
            Group::Streams(group) => group.stray_target_tombstones(),
        }
    }

    /// Members without any deadline, which would never be removed if they fell silent.
    #[cfg(test)]
    pub(super) fn without_deadline(&mut self) -> Vec<std::sync::Arc<str>> {
        match self {
            Group::Classic(group) => group.without_deadline(),
            Group::Share(group) => group.without_session(),
            Group::Consumer(group) => group.deadlines().without_session(),
            Group::Streams(group) => group.deadlines().without_session(),
        }
    }

    /// Drops the group's deadlines, and returns waiting requests, joins first.
    pub(super) fn dissolve(&mut self, timers: &mut Timers) -> WaitingRequests {
        match self {
            Group::Classic(group) => group.dissolve(timers),
            Group::Consumer(group) => {
                group.deadlines().clear(timers);
                WaitingRequests::default()
            }
            Group::Share(group) => {
                group.cancel_sessions(timers);
                WaitingRequests::default()
            }
            Group::Streams(group) => {
                group.cancel_deadlines(timers);
                WaitingRequests::default()
            }
        }
    }
}
