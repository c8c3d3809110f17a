//! Who may commit and read the offsets of a group whose coordinator assigns (KIP-848, KIP-1071, KIP-1251).

use super::error::MembershipError;
use std::cmp::Ordering;
use thalweg_wire::Uuid;

/// A commit of offsets, as far as membership matters.
pub(super) struct Commit<'a> {
    pub(super) member_id: &'a str,
    pub(super) instance_id: Option<&'a str>,
    pub(super) epoch: i32,
    pub(super) version: i16,
    pub(super) is_transactional: bool,
}

impl Commit<'_> {
    /// Whether no member commits, but an administrator, a consumer that uses the group for its offsets only, or a
    /// producer that names no member.
    pub(super) fn is_of_no_member(&self, is_empty: bool) -> bool {
        let names_none = self.epoch == -1 && self.member_id.is_empty() && self.instance_id.is_none();
        (self.epoch < 0 && is_empty) || (self.is_transactional && names_none)
    }

    /// What a member at this epoch may commit. `stale` is the refusal of another epoch. `assigned_at` returns the epoch
    /// at which the member got a partition that it has: by the name of the topic, and its id, which is zero if it is not
    /// known.
    pub(super) fn by_member<'g>(
        &self,
        epoch: i32,
        stale: MembershipError,
        assigned_at: impl Fn(&str, Uuid, i32) -> Option<i32> + 'g,
    ) -> Result<MayCommit<'g>, MembershipError> {
        match self.epoch.cmp(&epoch) {
            Ordering::Equal => Ok(MayCommit::Any),
            Ordering::Greater => Err(stale),
            Ordering::Less => {
                let assigned_at = Box::new(assigned_at);
                Ok(MayCommit::AssignedBy { epoch: self.epoch, stale, assigned_at })
            }
        }
    }
}

/// The epoch at which a member got a partition: by the name and id of the topic.
type AssignedAt<'a> = dyn Fn(&str, Uuid, i32) -> Option<i32> + 'a;

/// Which partitions a member may commit.
pub(super) enum MayCommit<'a> {
    /// All: it is at its epoch, or no member is meant.
    Any,
    /// Those that were assigned at or before the epoch that it still thinks to be at.
    AssignedBy { epoch: i32, stale: MembershipError, assigned_at: Box<AssignedAt<'a>> },
}

impl MayCommit<'_> {
    /// Whether it may commit this partition.
    pub(super) fn check(&self, topic: &str, id: Uuid, partition: i32) -> Result<(), MembershipError> {
        match self {
            MayCommit::Any => Ok(()),
            MayCommit::AssignedBy { epoch, stale, assigned_at } => match assigned_at(topic, id, partition) {
                Some(at) if *epoch >= at => Ok(()),
                _ => Err(*stale),
            },
        }
    }
}

/// Whether a member may read offsets. `member` finds it: its epoch, and the refusal of another.
pub(super) fn validate_fetch(
    member_id: Option<&str>,
    epoch: i32,
    member: impl FnOnce(&str) -> Option<(i32, MembershipError)>,
) -> Result<(), MembershipError> {
    let Some(member_id) = member_id else {
        // An administrator, or a client before version 9.
        return if epoch < 0 { Ok(()) } else { Err(MembershipError::UnknownMember) };
    };
    let (actual, stale) = member(member_id).ok_or(MembershipError::UnknownMember)?;
    if epoch == actual { Ok(()) } else { Err(stale) }
}
