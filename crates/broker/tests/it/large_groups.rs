//! Groups whose record does not fit into `__consumer_offsets`: they get an error, and the previous state
//! stays.

use crate::records::Topic;
use crate::running::RunningBroker;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::sync_group_request::SyncGroupRequestAssignment;
use thalweg_wire::request::*;

/// More than `max.message.bytes` of `__consumer_offsets`.
const TOO_LARGE: usize = 1_100_000;
const PARTITIONS: i32 = 300;

async fn start(dir: &tempfile::TempDir) -> RunningBroker {
    let broker = RunningBroker::start(dir.path(), &[("group.initial.rebalance.delay.ms", "0")]).await;
    let keys = vec!["group".to_owned()];
    broker.ask(&FindCoordinatorRequest { coordinator_keys: keys, ..Default::default() }).await;
    broker
}

/// The only member of a group joins, with metadata of this size.
async fn join(broker: &RunningBroker, member_id: &str, bytes: usize) -> JoinGroupResponse {
    let metadata = Bytes::from(vec![0; bytes]);
    let request = JoinGroupRequest {
        group_id: "group".to_owned(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        member_id: member_id.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".to_owned(), metadata }],
        ..Default::default()
    };
    loop {
        let answer = broker.ask_at(&request, 3).await;
        if answer.error_code != ErrorCode::CoordinatorLoadInProgress.code()
            && answer.error_code != ErrorCode::NotCoordinator.code()
        {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn sync(broker: &RunningBroker, joined: &JoinGroupResponse, bytes: usize) -> SyncGroupResponse {
    let assignment = Bytes::from(vec![0; bytes]);
    let request = SyncGroupRequest {
        group_id: "group".to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        assignments: vec![SyncGroupRequestAssignment { member_id: joined.member_id.clone(), assignment }],
        ..Default::default()
    };
    broker.ask_at(&request, 3).await
}

async fn heartbeat(broker: &RunningBroker, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest {
        group_id: "group".to_owned(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    broker.ask_at(&request, 3).await.error_code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_that_is_too_large_to_be_written_fails_and_the_members_join_again() {
    for (metadata, assignment) in [(TOO_LARGE, 10), (10, TOO_LARGE)] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let broker = start(&dir).await;
        let joined = join(&broker, "", metadata).await;
        assert_eq!(joined.error_code, 0);
        let synced = sync(&broker, &joined, assignment).await;
        assert_eq!(synced.error_code, ErrorCode::UnknownServerError.code());
        assert_eq!(heartbeat(&broker, &joined).await, ErrorCode::RebalanceInProgress.code());
        // Of a size that fits, it works.
        let joined = join(&broker, &joined.member_id, 10).await;
        assert_eq!(joined.error_code, 0);
        let synced = sync(&broker, &joined, 10).await;
        assert_eq!((synced.error_code, synced.assignment.len()), (0, 10));
        assert_eq!(heartbeat(&broker, &joined).await, 0);
        broker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_too_large_to_be_written_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let broker = start(&dir).await;
    let topic = Topic::create(&broker, "topic", PARTITIONS, &[]).await;
    join(&broker, "", 10).await;
    // Each within `offset.metadata.max.bytes`.
    let commit = |count: i32, offset: i64| {
        let partition = |partition_index| OffsetCommitRequestPartition {
            partition_index,
            committed_offset: offset,
            committed_metadata: Some("x".repeat(4096)),
            ..Default::default()
        };
        let partitions = (0..count).map(partition).collect();
        let topics =
            vec![OffsetCommitRequestTopic { name: topic.name.clone(), partitions, ..Default::default() }];
        OffsetCommitRequest { group_id: "alone".to_owned(), topics, ..Default::default() }
    };
    let codes = |answer: OffsetCommitResponse| -> BTreeSet<i16> {
        answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect()
    };
    assert_eq!(codes(broker.ask_at(&commit(200, 5), 8).await), BTreeSet::from([0]));
    let too_large = broker.ask_at(&commit(PARTITIONS, 6), 8).await;
    assert_eq!(codes(too_large), BTreeSet::from([ErrorCode::UnknownServerError.code()]));
    let request = OffsetFetchRequest { group_id: "alone".to_owned(), topics: None, ..Default::default() };
    let fetched = broker.ask_at(&request, 7).await;
    let offsets: Vec<i64> = fetched.topics[0].partitions.iter().map(|p| p.committed_offset).collect();
    assert_eq!(offsets, [5; 200]);
    broker.stop().await;
}
