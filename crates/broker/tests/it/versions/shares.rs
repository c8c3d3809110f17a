//! Share groups and the state of share partitions, at every version.

use super::Trial;
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Uuid};

pub async fn ask(trial: &mut Trial) {
    states(trial).await;
    groups(trial).await;
}

async fn states(trial: &mut Trial) {
    let (known, unknown) = (trial.known.id, trial.unknown.id);
    let group_id = || "sharers".to_owned();
    // The topic of the states is created with the first.
    let coordinator_keys = vec![format!("sharers:{known}:0")];
    trial.find_coordinator(2, coordinator_keys).await;
    // Until the coordinator is loaded.
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    let missing = ErrorCode::UnknownTopicOrPartition.code();
    let make = |topic_id: Uuid| {
        use initialize_share_group_state_request::{InitializeStateData, PartitionData};
        let partitions = vec![PartitionData { partition: 0, state_epoch: 1, start_offset: 0 }];
        move |_| InitializeShareGroupStateRequest {
            group_id: group_id(),
            topics: vec![InitializeStateData { topic_id, partitions: partitions.clone() }],
        }
    };
    let code = |expected| {
        move |_, answer: &InitializeShareGroupStateResponse| {
            answer.results[0].partitions[0].error_code == expected
        }
    };
    trial.each("a state", make(known), code(0)).await;
    trial.each("no topic", make(unknown), code(missing)).await;
    let make = |topic_id: Uuid| {
        use write_share_group_state_request::{PartitionData, StateBatch, WriteStateData};
        let batch = StateBatch { first_offset: 0, last_offset: 4, delivery_state: 2, delivery_count: 1 };
        move |version| {
            let partition = PartitionData {
                partition: 0,
                state_epoch: 1,
                leader_epoch: 0,
                start_offset: 0,
                delivery_complete_count: if version >= 1 { 5 } else { -1 },
                state_batches: vec![batch.clone()],
            };
            let topics = vec![WriteStateData { topic_id, partitions: vec![partition] }];
            WriteShareGroupStateRequest { group_id: group_id(), topics }
        }
    };
    let invalid = ErrorCode::InvalidRequest.code();
    let code = |expected| {
        move |_, answer: &WriteShareGroupStateResponse| answer.results[0].partitions[0].error_code == expected
    };
    trial.each("a state", make(known), code(0)).await;
    trial.each("no state", make(unknown), code(invalid)).await;
    let make = |topic_id: Uuid| {
        use read_share_group_state_request::{PartitionData, ReadStateData};
        move |_| {
            let partitions = vec![PartitionData { partition: 0, leader_epoch: 0 }];
            let topics = vec![ReadStateData { topic_id, partitions }];
            ReadShareGroupStateRequest { group_id: group_id(), topics }
        }
    };
    let good = |_, answer: &ReadShareGroupStateResponse| {
        let one = &answer.results[0].partitions[0];
        one.error_code == 0 && one.state_batches.len() == 1 && one.state_batches[0].last_offset == 4
    };
    trial.each("a state", make(known), good).await;
    let refused =
        move |_, answer: &ReadShareGroupStateResponse| answer.results[0].partitions[0].error_code == invalid;
    trial.each("no state", make(unknown), refused).await;
    let make = |topic_id: Uuid| {
        use read_share_group_state_summary_request::{PartitionData, ReadStateSummaryData};
        move |_| {
            let partitions = vec![PartitionData { partition: 0, leader_epoch: 0 }];
            let topics = vec![ReadStateSummaryData { topic_id, partitions }];
            ReadShareGroupStateSummaryRequest { group_id: group_id(), topics }
        }
    };
    let good = |version, answer: &ReadShareGroupStateSummaryResponse| {
        let one = &answer.results[0].partitions[0];
        one.error_code == 0 && one.delivery_complete_count == if version >= 1 { 5 } else { -1 }
    };
    trial.each("a state", make(known), good).await;
    let make = |_| {
        use delete_share_group_state_request::{DeleteStateData, PartitionData};
        let topics =
            vec![DeleteStateData { topic_id: known, partitions: vec![PartitionData { partition: 0 }] }];
        DeleteShareGroupStateRequest { group_id: group_id(), topics }
    };
    let good = |_, answer: &DeleteShareGroupStateResponse| answer.results[0].partitions[0].error_code == 0;
    trial.each("a state", make, good).await;
}

async fn groups(trial: &mut Trial) {
    let unknown = ErrorCode::UnknownMemberId.code();
    let group_id = || "members".to_owned();
    let make = |_| ShareGroupHeartbeatRequest {
        group_id: group_id(),
        member_id: "AAAAAAAAAAAAAAAAAAAAAg".to_owned(),
        member_epoch: 0,
        subscribed_topic_names: Some(vec!["known".to_owned()]),
        ..Default::default()
    };
    let good = |_, answer: &ShareGroupHeartbeatResponse| answer.error_code == 0 && answer.member_epoch > 0;
    trial.each("a member", make, good).await;
    let make = |_| ShareGroupHeartbeatRequest { member_id: "other".to_owned(), member_epoch: 3, ..make(0) };
    let refused = |_, answer: &ShareGroupHeartbeatResponse| answer.error_code == unknown;
    trial.each("no member", make, refused).await;
    let make = |_| ShareGroupDescribeRequest { group_ids: vec![group_id()], ..Default::default() };
    let good = |_, answer: &ShareGroupDescribeResponse| answer.groups[0].members.len() == 1;
    trial.each("a group", make, good).await;
    let no_session = ErrorCode::ShareSessionNotFound.code();
    let make = |_| ShareFetchRequest {
        group_id: Some(group_id()),
        member_id: Some("member".to_owned()),
        share_session_epoch: 5,
        ..Default::default()
    };
    let refused = |_, answer: &ShareFetchResponse| answer.error_code == no_session;
    trial.each("no session", make, refused).await;
    let make = |_| ShareAcknowledgeRequest {
        group_id: Some(group_id()),
        member_id: Some("member".to_owned()),
        share_session_epoch: 5,
        ..Default::default()
    };
    let refused = |_, answer: &ShareAcknowledgeResponse| answer.error_code == no_session;
    trial.each("no session", make, refused).await;
    let make = |_| {
        use describe_share_group_offsets_request::DescribeShareGroupOffsetsRequestGroup;
        let group = DescribeShareGroupOffsetsRequestGroup { group_id: group_id(), topics: None };
        DescribeShareGroupOffsetsRequest { groups: vec![group] }
    };
    let good = |_, answer: &DescribeShareGroupOffsetsResponse| answer.groups[0].error_code == 0;
    trial.each("offsets", make, good).await;
    let not_empty = ErrorCode::NonEmptyGroup.code();
    let make = |_| AlterShareGroupOffsetsRequest { group_id: group_id(), topics: Vec::new() };
    let refused = |_, answer: &AlterShareGroupOffsetsResponse| answer.error_code == not_empty;
    trial.each("a group with members", make, refused).await;
    let make = |_| DeleteShareGroupOffsetsRequest { group_id: group_id(), topics: Vec::new() };
    let refused = |_, answer: &DeleteShareGroupOffsetsResponse| answer.error_code == not_empty;
    trial.each("a group with members", make, refused).await;
}
