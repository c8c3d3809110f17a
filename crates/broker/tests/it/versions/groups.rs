//! Requests of group members and administrators: coordinator, membership, offsets, descriptions.

use super::Trial;
use crate::records::Topic;
use bytes::Bytes;
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::leave_group_request::MemberIdentity;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use thalweg_wire::request::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use thalweg_wire::request::sync_group_request::SyncGroupRequestAssignment;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Message};

const UNKNOWN_MEMBER: i16 = ErrorCode::UnknownMemberId as i16;
const GROUP_NOT_FOUND: i16 = ErrorCode::GroupIdNotFound as i16;

pub async fn ask(trial: &mut Trial) {
    coordinator(trial).await;
    join(trial).await;
    sync(trial).await;
    heartbeat(trial).await;
    offsets(trial).await;
    described(trial).await;
    consumers(trial).await;
    leave(trial).await;
    deleted(trial).await;
}

async fn coordinator(trial: &mut Trial) {
    let make = |version, key_type| FindCoordinatorRequest {
        key: if version < 4 { "group".to_owned() } else { String::new() },
        coordinator_keys: if version < 4 { Vec::new() } else { vec!["group".to_owned(), "other".to_owned()] },
        key_type: if version == 0 { 0 } else { key_type },
    };
    let good = |version, answer: &FindCoordinatorResponse| match version {
        0..4 => answer.error_code == 0 && answer.node_id == 1,
        _ => {
            answer.coordinators.len() == 2
                && answer.coordinators.iter().all(|c| c.error_code == 0 && c.node_id == 1)
        }
    };
    // Their topics are created with the first.
    for key_type in [0, 1] {
        trial.find_coordinator(key_type, vec!["group".to_owned()]).await;
    }
    trial.each("of a group", |version| make(version, 0), good).await;
    // Of a group at version 0, which knows nothing else.
    trial.each("of a transaction", |version| make(version, 1), good).await;
    for (what, key_type) in [("of a share group", 2), ("of nothing", 77)] {
        let refused = |version, answer: &FindCoordinatorResponse| match version {
            0 => true,
            1..4 => answer.error_code != 0,
            _ => answer.coordinators.iter().all(|c| c.error_code != 0),
        };
        trial.each(what, |version| make(version, key_type), refused).await;
    }
}

/// A request to join a separate group for each version.
fn joining(group: &str, version: i16, member: &str, instance: Option<&str>) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: format!("{group}-{version}"),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: if version >= 1 { 30_000 } else { -1 },
        member_id: member.to_owned(),
        group_instance_id: instance.filter(|_| version >= 5).map(str::to_owned),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".to_owned(),
            metadata: Bytes::from_static(b"m"),
        }],
        reason: None,
    }
}

/// Joins at the newest version a group that is named after `version`: the member and the generation.
async fn member(trial: &mut Trial, group: &str, version: i16) -> (String, i32) {
    let newest = JoinGroupRequest::MAX_VERSION;
    let mut request = joining(group, version, "", None);
    request.rebalance_timeout_ms = 30_000;
    let first = trial.ask("a member", newest, &request).await.expect("an answer");
    request.member_id = first.member_id;
    let joined = trial.ask("a member", newest, &request).await.expect("an answer");
    assert_eq!(joined.error_code, 0, "{joined:?}");
    (joined.member_id, joined.generation_id)
}

/// As [`member`], with an assignment, so that the group is stable.
async fn stable(trial: &mut Trial, group: &str, version: i16) -> (String, i32) {
    let (member_id, generation_id) = member(trial, group, version).await;
    let assigned =
        SyncGroupRequestAssignment { member_id: member_id.clone(), assignment: Bytes::from_static(b"a") };
    let request = SyncGroupRequest {
        group_id: format!("{group}-{version}"),
        generation_id,
        member_id: member_id.clone(),
        protocol_type: Some("consumer".to_owned()),
        protocol_name: Some("range".to_owned()),
        assignments: vec![assigned],
        ..Default::default()
    };
    let synced = trial.ask("a member", SyncGroupRequest::MAX_VERSION, &request).await.expect("an answer");
    assert_eq!(synced.error_code, 0, "{synced:?}");
    (member_id, generation_id)
}

async fn join(trial: &mut Trial) {
    for version in Trial::versions::<JoinGroupRequest>() {
        let what = "a new member";
        let Some(first) = trial.ask(what, version, &joining("join", version, "", None)).await else {
            continue;
        };
        let id_first = version >= 4;
        let expected = if id_first { ErrorCode::MemberIdRequired.code() } else { 0 };
        trial.judge::<JoinGroupRequest>(what, version, first.error_code == expected, &first);
        if id_first {
            let request = joining("join", version, &first.member_id, None);
            let Some(joined) = trial.ask(what, version, &request).await else { continue };
            let told = (version >= 7) == joined.protocol_type.is_some() && joined.members.len() == 1;
            trial.judge::<JoinGroupRequest>(what, version, joined.error_code == 0 && told, &joined);
        }
        let what = "a static member that comes back";
        let fixed = joining("static", version, "", Some("instance"));
        let come = trial.ask(what, version, &fixed).await.map(|answer| answer.error_code);
        if version >= 5 && come == Some(0) {
            let Some(back) = trial.ask(what, version, &fixed).await else { continue };
            trial.judge::<JoinGroupRequest>(what, version, back.error_code == 0, &back);
        }
    }
    let stranger = |version| joining("join", version, "stranger", None);
    trial.each("a stranger", stranger, |_, answer| answer.error_code == UNKNOWN_MEMBER).await;
    let nameless = |version| JoinGroupRequest { group_id: String::new(), ..joining("", version, "", None) };
    let invalid = ErrorCode::InvalidGroupId.code();
    trial.each("no name", nameless, |_, answer| answer.error_code == invalid).await;
    let other = |version| JoinGroupRequest {
        protocol_type: "connect".to_owned(),
        ..joining("join", version, "", None)
    };
    let refused = ErrorCode::InconsistentGroupProtocol.code();
    trial.each("another protocol", other, |_, answer| answer.error_code == refused).await;
}

async fn sync(trial: &mut Trial) {
    let make = |version: i16, member_id: &str, generation_id: i32| SyncGroupRequest {
        group_id: format!("sync-{version}"),
        generation_id,
        member_id: member_id.to_owned(),
        protocol_type: (version >= 5).then(|| "consumer".to_owned()),
        protocol_name: (version >= 5).then(|| "range".to_owned()),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: member_id.to_owned(),
            assignment: Bytes::from_static(b"a"),
        }],
        ..Default::default()
    };
    for version in Trial::versions::<SyncGroupRequest>() {
        let (member_id, generation) = member(trial, "sync", version).await;
        let Some(synced) = trial.ask("the leader", version, &make(version, &member_id, generation)).await
        else {
            continue;
        };
        let told = (version >= 5) == synced.protocol_name.is_some() && synced.assignment == "a";
        trial.judge::<SyncGroupRequest>("the leader", version, synced.error_code == 0 && told, &synced);
    }
    let unknown = |_, answer: &SyncGroupResponse| answer.error_code == UNKNOWN_MEMBER;
    trial.each("a stranger", |version| make(version, "stranger", 1), unknown).await;
    let nowhere =
        |version| SyncGroupRequest { group_id: "nowhere".to_owned(), ..make(version, "stranger", 1) };
    trial.each("no group", nowhere, unknown).await;
}

async fn heartbeat(trial: &mut Trial) {
    let make = |version: i16, member_id: &str, generation_id: i32| HeartbeatRequest {
        group_id: format!("heart-{version}"),
        generation_id,
        member_id: member_id.to_owned(),
        ..Default::default()
    };
    for version in Trial::versions::<HeartbeatRequest>() {
        let (member_id, generation) = stable(trial, "heart", version).await;
        for (what, generation, code) in
            [("a member", generation, 0), ("of before", generation - 1, ErrorCode::IllegalGeneration.code())]
        {
            let Some(answer) = trial.ask(what, version, &make(version, &member_id, generation)).await else {
                continue;
            };
            trial.judge::<HeartbeatRequest>(what, version, answer.error_code == code, &answer);
        }
    }
    let unknown = |_, answer: &HeartbeatResponse| answer.error_code == UNKNOWN_MEMBER;
    trial.each("a stranger", |version| make(version, "stranger", 1), unknown).await;
    trial.each("no group", |_| make(-1, "stranger", 1), unknown).await;
}

async fn leave(trial: &mut Trial) {
    let make = |version: i16, member_id: &str| LeaveGroupRequest {
        group_id: format!("leave-{version}"),
        member_id: if version < 3 { member_id.to_owned() } else { String::new() },
        members: if version < 3 {
            Vec::new()
        } else {
            vec![MemberIdentity { member_id: member_id.to_owned(), ..Default::default() }]
        },
    };
    for version in Trial::versions::<LeaveGroupRequest>() {
        let (member_id, _) = stable(trial, "leave", version).await;
        for (what, expected) in [("a member", 0), ("once more", UNKNOWN_MEMBER)] {
            let Some(answer) = trial.ask(what, version, &make(version, &member_id)).await else { continue };
            let code = if version < 3 { answer.error_code } else { answer.members[0].error_code };
            trial.judge::<LeaveGroupRequest>(what, version, code == expected, &answer);
        }
    }
    let unknown = |version, answer: &LeaveGroupResponse| match version {
        0..3 => answer.error_code == UNKNOWN_MEMBER,
        _ => answer.members.iter().all(|member| member.error_code == UNKNOWN_MEMBER),
    };
    trial
        .each(
            "no group",
            |version| LeaveGroupRequest { group_id: "nowhere".to_owned(), ..make(version, "x") },
            unknown,
        )
        .await;
}

fn commit(
    version: i16,
    group: &str,
    generation: i32,
    member: &str,
    topic: &Topic,
    partition: i32,
) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition {
        partition_index: partition,
        committed_offset: 2,
        committed_leader_epoch: if version >= 6 { 0 } else { -1 },
        committed_metadata: Some("note".to_owned()),
    };
    let topic = OffsetCommitRequestTopic {
        name: topic.name_until(9, version),
        topic_id: topic.id_after(9, version),
        partitions: vec![partition],
    };
    OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: generation,
        member_id: member.to_owned(),
        topics: vec![topic],
        ..Default::default()
    }
}

fn committed(version: i16, group: &str, topics: Option<&Topic>) -> OffsetFetchRequest {
    if version < 8 {
        let one = |topic: &Topic| {
            vec![OffsetFetchRequestTopic { name: topic.name.clone(), partition_indexes: vec![0, 9] }]
        };
        // Version 1 cannot ask for all.
        let topics = topics.map(one).or((version < 2).then(Vec::new));
        return OffsetFetchRequest {
            group_id: group.to_owned(),
            topics,
            require_stable: version >= 7,
            ..Default::default()
        };
    }
    let one = |topic: &Topic| {
        let (name, topic_id) = (topic.name_until(9, version), topic.id_after(9, version));
        vec![OffsetFetchRequestTopics { name, topic_id, partition_indexes: vec![0, 9] }]
    };
    let of_group = |id: &str| OffsetFetchRequestGroup {
        group_id: id.to_owned(),
        topics: topics.map(one),
        ..Default::default()
    };
    let groups = vec![of_group(group), of_group("nowhere")];
    OffsetFetchRequest {
        topics: OffsetFetchRequest::default().topics,
        groups,
        require_stable: true,
        ..Default::default()
    }
}

/// The offsets of partitions 0 and 9 of the first topic of an answer, where there is one, and its worst code.
fn found(version: i16, answer: &OffsetFetchResponse) -> (Vec<i64>, i16) {
    if version < 8 {
        let all = || answer.topics.iter().flat_map(|topic| &topic.partitions);
        let code = all().map(|partition| partition.error_code).find(|code| *code != 0);
        return (
            all().map(|partition| partition.committed_offset).collect(),
            code.unwrap_or(answer.error_code),
        );
    }
    let group = &answer.groups[0];
    let all = || group.topics.iter().flat_map(|topic| &topic.partitions);
    let code = all().map(|partition| partition.error_code).find(|code| *code != 0);
    (all().map(|partition| partition.committed_offset).collect(), code.unwrap_or(group.error_code))
}

async fn offsets(trial: &mut Trial) {
    let (known, nowhere) = (trial.known.clone(), trial.unknown.clone());
    let code = |answer: &OffsetCommitResponse| answer.topics[0].partitions[0].error_code;
    trial
        .each("without members", |v| commit(v, "offsets", -1, "", &known, 0), |_, answer| code(answer) == 0)
        .await;
    for version in Trial::versions::<OffsetCommitRequest>() {
        let (member_id, generation) = stable(trial, "offsets", version).await;
        let group = format!("offsets-{version}");
        let request = commit(version, &group, generation, &member_id, &known, 0);
        let Some(answer) = trial.ask("a member", version, &request).await else { continue };
        trial.judge::<OffsetCommitRequest>("a member", version, code(&answer) == 0, &answer);
        let Some(answer) =
            trial.ask("a stranger", version, &commit(version, &group, 1, "x", &known, 0)).await
        else {
            continue;
        };
        trial.judge::<OffsetCommitRequest>("a stranger", version, code(&answer) == UNKNOWN_MEMBER, &answer);
    }
    let unknown = |version, answer: &OffsetCommitResponse| {
        let by_name = version < 10;
        let expected = if by_name { ErrorCode::UnknownTopicOrPartition } else { ErrorCode::UnknownTopicId };
        code(answer) == expected.code()
    };
    trial.each("no topic", |version| commit(version, "offsets", -1, "", &nowhere, 0), unknown).await;
    let no_group = |version, answer: &OffsetCommitResponse| {
        let expected = if version < 9 { ErrorCode::IllegalGeneration.code() } else { GROUP_NOT_FOUND };
        code(answer) == expected
    };
    trial.each("no group", |version| commit(version, "no-group", 5, "x", &known, 0), no_group).await;

    let good = |version, answer: &OffsetFetchResponse| found(version, answer) == (vec![2, -1], 0);
    trial.each("one topic", |version| committed(version, "offsets", Some(&known)), good).await;
    let all = |version, answer: &OffsetFetchResponse| version < 2 || found(version, answer) == (vec![2], 0);
    trial.each("all topics", |version| committed(version, "offsets", None), all).await;
    let nothing = |version, answer: &OffsetFetchResponse| found(version, answer) == (vec![-1, -1], 0);
    trial.each("no group", |version| committed(version, "no-group", Some(&known)), nothing).await;
    let no_topic = |version, answer: &OffsetFetchResponse| {
        let expected = if version < 10 { 0 } else { ErrorCode::UnknownTopicId.code() };
        found(version, answer) == (vec![-1, -1], expected)
    };
    trial.each("no topic", |version| committed(version, "offsets", Some(&nowhere)), no_topic).await;
}

async fn described(trial: &mut Trial) {
    let (member_id, _) = stable(trial, "described", 0).await;
    let make = |version, group: &str| DescribeGroupsRequest {
        groups: vec![group.to_owned()],
        include_authorized_operations: version >= 3,
    };
    let good = |version, answer: &DescribeGroupsResponse| {
        let group = &answer.groups[0];
        let operations = (version >= 3) == (group.authorized_operations != i32::MIN);
        group.error_code == 0
            && group.group_state == "Stable"
            && group.members[0].member_id == member_id
            && operations
    };
    trial.each("a group", |version| make(version, "described-0"), good).await;
    let dead = |version, answer: &DescribeGroupsResponse| {
        let group = &answer.groups[0];
        let expected = if version < 6 { 0 } else { GROUP_NOT_FOUND };
        group.error_code == expected
            && group.group_state == "Dead"
            && (version >= 6) == group.error_message.is_some()
    };
    trial.each("no group", |version| make(version, "nowhere"), dead).await;
    let make = |version| ListGroupsRequest {
        states_filter: if version >= 4 { vec!["Stable".to_owned()] } else { Vec::new() },
        types_filter: if version >= 5 { vec!["Classic".to_owned()] } else { Vec::new() },
    };
    let good = |version, answer: &ListGroupsResponse| {
        let found = answer.groups.iter().find(|group| group.group_id == "described-0");
        found.is_some_and(|group| (version >= 4) == (group.group_state == "Stable"))
    };
    trial.each("groups", make, good).await;
}

/// Groups of the consumer protocol.
async fn consumers(trial: &mut Trial) {
    // From version 1 on members make their own ids, and may subscribe by a regular expression.
    let make = |version| ConsumerGroupHeartbeatRequest {
        group_id: format!("consumers-{version}"),
        member_id: if version == 0 { String::new() } else { "member".to_owned() },
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some(Vec::new()),
        subscribed_topic_regex: (version >= 1).then(|| "absent.*".to_owned()),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let good = |_, answer: &ConsumerGroupHeartbeatResponse| {
        let has_id = answer.member_id.as_ref().is_some_and(|id| !id.is_empty());
        answer.error_code == 0 && has_id && answer.member_epoch > 0 && answer.assignment.is_some()
    };
    trial.each("a member", make, good).await;
    let make = |version, group: &str| ConsumerGroupDescribeRequest {
        group_ids: vec![group.to_owned()],
        include_authorized_operations: version == 0,
    };
    let good = |version, answer: &ConsumerGroupDescribeResponse| {
        let group = &answer.groups[0];
        let operations = (version == 0) == (group.authorized_operations != i32::MIN);
        let kind = if version == 0 { -1 } else { 1 };
        group.error_code == 0 && operations && group.members[0].member_type == kind
    };
    trial.each("a group", |version| make(version, &format!("consumers-{version}")), good).await;
    let none = |_, answer: &ConsumerGroupDescribeResponse| answer.groups[0].error_code == GROUP_NOT_FOUND;
    trial.each("no group", |version| make(version, "nowhere"), none).await;
}

async fn deleted(trial: &mut Trial) {
    let known = trial.known.clone();
    for version in Trial::versions::<DeleteGroupsRequest>() {
        let (empty, full) = (format!("empty-{version}"), format!("full-{version}"));
        let newest = OffsetCommitRequest::MAX_VERSION;
        trial.ask("offsets", newest, &commit(newest, &empty, -1, "", &known, 0)).await;
        stable(trial, "full", version).await;
        let groups_names = vec![empty, full, "nowhere".to_owned()];
        let Some(answer) = trial.ask("groups", version, &DeleteGroupsRequest { groups_names }).await else {
            continue;
        };
        let mut codes: Vec<i16> = answer.results.iter().map(|group| group.error_code).collect();
        codes.sort_unstable();
        let expected = [0, ErrorCode::NonEmptyGroup.code(), GROUP_NOT_FOUND];
        trial.judge::<DeleteGroupsRequest>("groups", version, codes == expected, &answer);
    }
    let make = |group: &str, topic: &Topic| {
        let partitions = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
        let topics = vec![OffsetDeleteRequestTopic { name: topic.name.clone(), partitions }];
        OffsetDeleteRequest { group_id: group.to_owned(), topics }
    };
    let good = |_, answer: &OffsetDeleteResponse| {
        answer.error_code == 0 && answer.topics[0].partitions[0].error_code == 0
    };
    trial.each("offsets", |_| make("offsets", &known), good).await;
    let missing = |_, answer: &OffsetDeleteResponse| answer.error_code == GROUP_NOT_FOUND;
    trial.each("no group", |_| make("nowhere", &known), missing).await;
    let nowhere = trial.unknown.clone();
    let no_topic = |_, answer: &OffsetDeleteResponse| {
        answer.topics[0].partitions[0].error_code == ErrorCode::UnknownTopicOrPartition.code()
    };
    trial.each("no topic", |_| make("offsets", &nowhere), no_topic).await;
}
