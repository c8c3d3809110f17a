//! Permission to commit and read offsets of a group whose coordinator assigns (KIP-848, KIP-1071, KIP-1251).

use super::error::MembershipError;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::Uuid;

/// The membership fields of an offset commit.
pub(super) struct Commit<'a> {
    pub(super) member_id: &'a str,
    pub(super) instance_id: Option<&'a str>,
    pub(super) epoch: i32,
    pub(super) version: i16,
    pub(super) is_transactional: bool,
}

impl Commit<'_> {
    /// The member that commits; `None` if the commit names no member.
    pub(super) fn sender<'m, M>(
        &self,
        members: &'m BTreeMap<Arc<str>, M>,
    ) -> Result<Option<&'m M>, MembershipError> {
        if self.is_of_no_member(members.is_empty()) {
            return Ok(None);
        }
        members.get(self.member_id).map(Some).ok_or(MembershipError::UnknownMember)
    }

    /// Checks that the version of the request has member epochs. Classic members commit by any version.
    pub(super) fn validate_version(&self) -> Result<(), MembershipError> {
        if self.is_transactional || self.version >= 9 { Ok(()) } else { Err(MembershipError::OldCommit) }
    }

    /// True if the commit names no member: it comes from an administrator, a consumer that uses the group for
    /// its offsets only, or a producer without group metadata.
    fn is_of_no_member(&self, is_empty: bool) -> bool {
        let names_none = self.epoch == -1 && self.member_id.is_empty() && self.instance_id.is_none();
        (self.epoch < 0 && is_empty) || (self.is_transactional && names_none)
    }

    /// The partitions that a member at this epoch may commit. `stale` is the error for another epoch.
    /// `assigned_at` returns the epoch at which a partition was assigned to the member, by topic name and
    /// topic id (zero if unknown).
    pub(super) fn by_member<'g>(
        &self,
        epoch: i32,
        stale: MembershipError,
        assigned_at: impl Fn(&str, Uuid, i32) -> Option<i32> + 'g,
    ) -> Result<CommitPermission<'g>, MembershipError> {
        match self.epoch.cmp(&epoch) {
            Ordering::Equal => Ok(CommitPermission::Any),
            Ordering::Greater => Err(stale),
            Ordering::Less => {
                let assigned_at = Box::new(assigned_at);
                Ok(CommitPermission::AssignedBy { epoch: self.epoch, stale, assigned_at })
            }
        }
    }
}

/// The epoch at which a partition was assigned to a member, by name and id of the topic.
type EpochLookup<'a> = dyn Fn(&str, Uuid, i32) -> Option<i32> + 'a;

/// The partitions that a member may commit.
pub(super) enum CommitPermission<'a> {
    /// All partitions: the member is at its epoch, or the commit names no member.
    Any,
    /// Partitions that were assigned at or before the epoch in the request.
    AssignedBy { epoch: i32, stale: MembershipError, assigned_at: Box<EpochLookup<'a>> },
}

impl CommitPermission<'_> {
    /// Checks that the member may commit this partition.
    pub(super) fn check(&self, topic: &str, id: Uuid, partition: i32) -> Result<(), MembershipError> {
        match self {
            CommitPermission::Any => Ok(()),
            CommitPermission::AssignedBy { epoch, stale, assigned_at } => {
                match assigned_at(topic, id, partition) {
                    Some(at) if *epoch >= at => Ok(()),
                    _ => Err(*stale),
                }
            }
        }
    }
}

/// Checks that a member may read offsets. `member` looks up a member id and returns its epoch and the error
/// for another epoch.
pub(super) fn validate_fetch(
    member_id: Option<&str>,
    epoch: i32,
    member: impl FnOnce(&str) -> Option<(i32, MembershipError)>,
) -> Result<(), MembershipError> {
    let Some(member_id) = member_id else {
        // The request comes from an administrator, or from a client before version 9.
        return if epoch < 0 { Ok(()) } else { Err(MembershipError::UnknownMember) };
    };
    let (actual, stale) = member(member_id).ok_or(MembershipError::UnknownMember)?;
    if epoch == actual { Ok(()) } else { Err(stale) }
}
