//! Groups with one member each: assignment and committed offsets.
//!
//! A second member is refused with GROUP_MAX_SIZE_REACHED: the lab's reference need not rebalance.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::{Bytes, BytesMut};
use thalweg_wire::request::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    SyncGroupRequest, SyncGroupResponse, join_group_response, leave_group_response, offset_commit_response,
    offset_fetch_response,
};
use thalweg_wire::{ApiKey, Decoder, ErrorCode};

use super::lock;
use super::request::{Request, UnanswerableRequest};

const GROUPS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Groups(Mutex<BTreeMap<String, Group>>);

#[derive(Debug, Default)]
struct Group {
    generation: i32,
    member: Option<String>,
    assignment: Bytes,
    committed: BTreeMap<(String, i32), i64>,
}

impl Group {
    fn check(&self, member: &str) -> ErrorCode {
        if self.member.as_deref() == Some(member) { ErrorCode::None } else { ErrorCode::UnknownMemberId }
    }
}

/// Answers the requests of group members.
pub(super) fn answer(
    request: &Request<'_>,
    key: ApiKey,
    d: &mut Decoder,
) -> Result<BytesMut, UnanswerableRequest> {
    let mut groups = lock(&request.shared.groups.0);
    let groups = &mut *groups;
    match key {
        ApiKey::JoinGroup => request.encode(&join(groups, request.decode(d)?, request.version)),
        ApiKey::SyncGroup => request.encode(&sync(groups, request.decode(d)?)),
        ApiKey::Heartbeat => request.encode(&heartbeat(groups, &request.decode(d)?)),
        ApiKey::LeaveGroup => request.encode(&leave(groups, request.decode(d)?, request.version)),
        ApiKey::OffsetCommit => request.encode(&commit(groups, request.decode(d)?)),
        ApiKey::OffsetFetch => request.encode(&committed(groups, request.decode(d)?)),
        other => Err(UnanswerableRequest::NotServed { key: other as i16, version: request.version }),
    }
}

fn join(groups: &mut BTreeMap<String, Group>, request: JoinGroupRequest, version: i16) -> JoinGroupResponse {
    let refuse = |error: ErrorCode| JoinGroupResponse {
        error_code: error.code(),
        generation_id: -1,
        protocol_name: (version < 7).then(String::new),
        ..JoinGroupResponse::default()
    };
    let Some(protocol) = request.protocols.into_iter().next() else {
        return refuse(ErrorCode::InconsistentGroupProtocol);
    };
    if groups.len() >= GROUPS_MAX && !groups.contains_key(&request.group_id) {
        return refuse(ErrorCode::CoordinatorNotAvailable);
    }
    let group = groups.entry(request.group_id).or_default();
    if group.member.as_ref().is_some_and(|member| *member != request.member_id) {
        return refuse(ErrorCode::GroupMaxSizeReached);
    }
    group.generation += 1;
    let fresh = format!("member-{}", group.generation);
    let member = group.member.get_or_insert(fresh).clone();
    JoinGroupResponse {
        generation_id: group.generation,
        protocol_type: (version >= 7).then_some(request.protocol_type),
        protocol_name: Some(protocol.name),
        leader: member.clone(),
        member_id: member.clone(),
        members: vec![join_group_response::JoinGroupResponseMember {
            member_id: member,
            group_instance_id: None,
            metadata: protocol.metadata,
        }],
        ..JoinGroupResponse::default()
    }
}

fn sync(groups: &mut BTreeMap<String, Group>, request: SyncGroupRequest) -> SyncGroupResponse {
    let group = groups.entry(request.group_id).or_default();
    let error = group.check(&request.member_id);
    if error == ErrorCode::None
        && let Some(own) = request.assignments.into_iter().find(|own| own.member_id == request.member_id)
    {
        // A copy, because the slice would retain the frame's memory.
        group.assignment = Bytes::copy_from_slice(&own.assignment);
    }
    SyncGroupResponse {
        error_code: error.code(),
        protocol_type: request.protocol_type,
        protocol_name: request.protocol_name,
        assignment: if error == ErrorCode::None { group.assignment.clone() } else { Bytes::new() },
        ..SyncGroupResponse::default()
    }
}

fn heartbeat(groups: &BTreeMap<String, Group>, request: &HeartbeatRequest) -> HeartbeatResponse {
    let group = groups.get(&request.group_id);
    let error = group.map_or(ErrorCode::UnknownMemberId, |group| group.check(&request.member_id));
    HeartbeatResponse { error_code: error.code(), ..HeartbeatResponse::default() }
}

fn leave(
    groups: &mut BTreeMap<String, Group>,
    request: LeaveGroupRequest,
    version: i16,
) -> LeaveGroupResponse {
    let Some(group) = groups.get_mut(&request.group_id) else {
        return LeaveGroupResponse {
            error_code: ErrorCode::UnknownMemberId.code(),
            ..LeaveGroupResponse::default()
        };
    };
    let mut leave = |member: &str| {
        let error = group.check(member);
        if error == ErrorCode::None {
            group.member = None;
        }
        error.code()
    };
    if version < 3 {
        let error_code = leave(&request.member_id);
        return LeaveGroupResponse { error_code, ..LeaveGroupResponse::default() };
    }
    let members = request.members.into_iter().map(|member| leave_group_response::MemberResponse {
        error_code: leave(&member.member_id),
        member_id: member.member_id,
        group_instance_id: member.group_instance_id,
    });
    LeaveGroupResponse { members: members.collect(), ..LeaveGroupResponse::default() }
}

fn commit(groups: &mut BTreeMap<String, Group>, request: OffsetCommitRequest) -> OffsetCommitResponse {
    let group = groups.entry(request.group_id).or_default();
    // A commit without a generation comes from a tool, for an empty group.
    let error = if request.generation_id_or_member_epoch < 0 {
        ErrorCode::None
    } else {
        group.check(&request.member_id)
    };
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            if error == ErrorCode::None {
                let key = (topic.name.clone(), partition.partition_index);
                group.committed.insert(key, partition.committed_offset);
            }
            offset_commit_response::OffsetCommitResponsePartition {
                partition_index: partition.partition_index,
                error_code: error.code(),
            }
        });
        let partitions = partitions.collect();
        offset_commit_response::OffsetCommitResponseTopic {
            name: topic.name.clone(),
            partitions,
            ..Default::default()
        }
    });
    OffsetCommitResponse { topics: topics.collect(), ..OffsetCommitResponse::default() }
}

fn committed(groups: &BTreeMap<String, Group>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let group = groups.get(&request.group_id);
    let offset_of = |name: &str, index: i32| {
        let committed = group.and_then(|group| group.committed.get(&(name.to_owned(), index)));
        offset_fetch_response::OffsetFetchResponsePartition {
            partition_index: index,
            committed_offset: committed.copied().unwrap_or(-1),
            committed_leader_epoch: -1,
            metadata: Some(String::new()),
            error_code: 0,
        }
    };
    let requested: Vec<(String, Vec<i32>)> = match request.topics {
        Some(topics) => topics.into_iter().map(|topic| (topic.name, topic.partition_indexes)).collect(),
        None => {
            let mut all: BTreeMap<String, Vec<i32>> = BTreeMap::new();
            for (name, index) in group.iter().flat_map(|group| group.committed.keys()) {
                all.entry(name.clone()).or_default().push(*index);
            }
            all.into_iter().collect()
        }
    };
    let topics = requested.into_iter().map(|(name, indexes)| {
        let partitions = indexes.into_iter().map(|index| offset_of(&name, index)).collect();
        offset_fetch_response::OffsetFetchResponseTopic { name, partitions }
    });
    OffsetFetchResponse { topics: topics.collect(), ..OffsetFetchResponse::default() }
}
