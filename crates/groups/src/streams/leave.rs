//! Members of a streams group that leave, and the removal of a member that left or has missed a deadline.

use super::StreamsGroup;
use super::error::StreamsGroupError;
use super::member::StreamsGroupMember;
use crate::member_epoch::LEAVING;
use crate::record::{CoordinatorRecord, StreamsGroupRecord};
use thalweg_wire::request::{StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse};

impl StreamsGroup {
    /// Handles the heartbeat of a leaving member.
    pub(in super::super) fn leave(
        &self,
        request: &StreamsGroupHeartbeatRequest,
    ) -> Result<(Vec<CoordinatorRecord>, StreamsGroupHeartbeatResponse), StreamsGroupError> {
        if request.shutdown_application {
            let id = || request.member_id.as_str().into();
            self.shutdown.borrow_mut().get_or_insert_with(id);
        }
        let member = self.member(&request.member_id)?;
        tracing::info!(group = %self.modern.id, member = %member.id, "Member left the streams group");
        let response = StreamsGroupHeartbeatResponse {
            member_id: request.member_id.clone(),
            member_epoch: LEAVING,
            ..StreamsGroupHeartbeatResponse::default()
        };
        Ok((self.without(member), response))
    }

    /// The records that remove a member.
    pub(super) fn without(&self, member: &StreamsGroupMember) -> Vec<CoordinatorRecord> {
        let mut records = Vec::new();
        self.modern.push_member_tombstones::<StreamsGroupRecord>(std::iter::once(&*member.id), &mut records);
        let (hash, validated) = (self.modern.metadata_hash, self.validated_epoch);
        self.raise_epoch(hash, validated, &self.assignment_configs, &mut records);
        records
    }
}
