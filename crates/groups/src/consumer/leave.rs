//! Members that leave, and the removal of members that leave or have missed a deadline.

use super::error::ConsumerGroupError;
use super::member::{ConsumerGroupMember, PartitionEpochs};
use super::migration::Downgrade;
use super::{ConsumerContext, ConsumerGroup};
use crate::member_epoch::LEAVING_FOR_A_WHILE;
use crate::record::CoordinatorRecord;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_wire::request::{ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse};

/// The outcome of the removal of members.
pub(in super::super) struct Removal {
    pub(in super::super) records: Vec<CoordinatorRecord>,
    /// The remaining group, if it becomes a classic one.
    pub(in super::super) downgrade: Option<Downgrade>,
}

impl ConsumerGroup {
    /// Handles the heartbeat of a leaving member: for good, or as a static member for a while.
    pub(in super::super) fn leave(
        &self,
        cx: &mut ConsumerContext<'_>,
        request: &ConsumerGroupHeartbeatRequest,
    ) -> Result<(Removal, ConsumerGroupHeartbeatResponse), ConsumerGroupError> {
        let member = match request.instance_id.as_deref() {
            None => self.member(&request.member_id)?,
            Some(instance_id) => {
                let instance = instance_id.to_owned();
                let member = self.static_member(instance_id);
                let member = member.ok_or_else(|| ConsumerGroupError::UnknownInstance(instance.clone()))?;
                if *member.id != *request.member_id {
                    return Err(ConsumerGroupError::FencedInstance {
                        instance,
                        owner: member.id.to_string(),
                    });
                }
                member
            }
        };
        let response = ConsumerGroupHeartbeatResponse {
            member_id: Some(request.member_id.clone()),
            member_epoch: request.member_epoch,
            ..ConsumerGroupHeartbeatResponse::default()
        };
        let epoch = request.member_epoch;
        tracing::info!(group = %self.modern.id, member = %member.id, epoch, "Member left");
        if request.member_epoch == LEAVING_FOR_A_WHILE && request.instance_id.is_some() {
            let record = away(member).to_current_record(&self.modern.id);
            return Ok((Removal { records: vec![record], downgrade: None }, response));
        }
        Ok((self.remove_members(cx, &[member]), response))
    }

    /// Removes members. The other members get their partitions, and the group may become a classic one if all
    /// remaining members use the classic protocol.
    pub(super) fn remove_members(
        &self,
        cx: &mut ConsumerContext<'_>,
        members: &[&ConsumerGroupMember],
    ) -> Removal {
        if members.is_empty() {
            return Removal { records: Vec::new(), downgrade: None };
        }
        let mut records = Vec::new();
        if self.is_classic_without(cx, members) {
            let downgrade = self.downgrade_without(cx, members, &mut records);
            return Removal { records, downgrade: Some(downgrade) };
        }
        let mut regexes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in members {
            self.push_member_tombstones(&member.id, &mut records);
            if let Some(regex) = member.regex() {
                *regexes.entry(regex).or_default() += 1;
            }
        }
        for (regex, count) in regexes {
            if self.regexes.get(regex) == Some(&count) {
                records.push(self.regex_record(regex, None));
            }
        }
        let hash = cx.hashes.of_group(self.topics_with(members, None).into_iter(), cx.topics);
        self.raise_epoch(hash, &mut records);
        Removal { records, downgrade: None }
    }
}

/// An absent static member. It keeps its partitions, and may commit them with any epoch.
fn away(member: &ConsumerGroupMember) -> ConsumerGroupMember {
    let mut assigned = PartitionEpochs::clone(&member.assigned);
    for epoch in assigned.values_mut().flat_map(|partitions| partitions.values_mut()) {
        *epoch = 0;
    }
    ConsumerGroupMember {
        epoch: LEAVING_FOR_A_WHILE,
        assigned: Arc::new(assigned),
        revoking: Arc::default(),
        ..member.clone()
    }
}
