//! The driver: shards are found, loaded and unloaded; requests are formatted by version.

use super::harness::error;
use crate::client::ClientInfo;
use crate::config::GroupConfig;
use crate::coordinator::GroupCoordinator;
use crate::topics::{DeletedTopic, TopicPlacement, TopicsView};
use bytes::Bytes;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::Unavailability;
use thalweg_shard::testing::MemoryLog;
use thalweg_wire::request::join_group_request::JoinGroupRequestProtocol;
use thalweg_wire::request::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use thalweg_wire::request::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use thalweg_wire::request::*;
use thalweg_wire::{ErrorCode, Message, Uuid};

/// Topic `t` with id 7 and two partitions.
struct OneTopic;

impl TopicsView for OneTopic {
    fn id(&self, name: &str) -> Option<Uuid> {
        (name == "t").then_some(Uuid(7))
    }
    fn name(&self, id: Uuid) -> Option<String> {
        (id == Uuid(7)).then(|| "t".to_owned())
    }
    fn offsets_partition_count(&self) -> Option<i32> {
        Some(1)
    }
    fn names(&self) -> Vec<String> {
        vec!["t".to_owned()]
    }
    fn version(&self) -> i64 {
        0
    }
    fn partition_count(&self, id: Uuid) -> Option<i32> {
        (id == Uuid(7)).then_some(2)
    }
    fn placement(&self, name: &str) -> Option<TopicPlacement> {
        (name == "t").then(|| TopicPlacement { id: Uuid(7), racks: vec![Vec::new(); 2] })
    }
    fn has_partition(&self, name: &str, partition: PartitionIndex) -> bool {
        name == "t" && (0..2).contains(&partition.0)
    }
}

pub(super) fn coordinator(log: &Arc<MemoryLog>) -> Arc<GroupCoordinator> {
    let config =
        GroupConfig { offsets_topic_partitions: 1, initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
    configured(config, log)
}

fn configured(config: GroupConfig, log: &Arc<MemoryLog>) -> Arc<GroupCoordinator> {
    Arc::new(GroupCoordinator::new(config, log.clone(), Arc::new(OneTopic), Clock::system(), Disk::real()))
}

pub(super) async fn elected(log: &Arc<MemoryLog>) -> Arc<GroupCoordinator> {
    elect(coordinator(log)).await
}

async fn elect(groups: Arc<GroupCoordinator>) -> Arc<GroupCoordinator> {
    groups.on_elected(PartitionIndex(0), 5);
    while !groups.is_loaded(PartitionIndex(0)) {
        tokio::task::yield_now().await;
    }
    groups
}

pub(super) fn client() -> ClientInfo {
    ClientInfo::new(Some("app"), IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn join_request(member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: "g".to_owned(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id: member_id.to_owned(),
        protocol_type: "consumer".to_owned(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".to_owned(), metadata: Bytes::new() }],
        ..JoinGroupRequest::default()
    }
}

pub(super) fn commit_request(names: &[(&str, u128, i32)]) -> OffsetCommitRequest {
    let topic = |&(name, id, partition_index): &(&str, u128, i32)| OffsetCommitRequestTopic {
        name: name.to_owned(),
        topic_id: Uuid(id),
        partitions: vec![OffsetCommitRequestPartition {
            partition_index,
            committed_offset: 9,
            ..OffsetCommitRequestPartition::default()
        }],
    };
    OffsetCommitRequest {
        group_id: "g".to_owned(),
        topics: names.iter().map(topic).collect(),
        ..OffsetCommitRequest::default()
    }
}

pub(super) fn commit_errors(response: &OffsetCommitResponse) -> Vec<(String, u128, ErrorCode)> {
    let topics = response.topics.iter();
    topics.map(|t| (t.name.clone(), t.topic_id.0, error(t.partitions[0].error_code))).collect()
}

#[tokio::test]
async fn a_member_joins_syncs_and_commits() {
    let groups = elected(&MemoryLog::new()).await;
    let first = groups.join_group(&client(), join_request(""), 9).await;
    assert_eq!(error(first.error_code), ErrorCode::MemberIdRequired);
    assert_eq!(first.protocol_name, None);
    let joined = groups.join_group(&client(), join_request(&first.member_id), 9).await;
    assert_eq!((error(joined.error_code), joined.generation_id), (ErrorCode::None, 1));
    let sync = SyncGroupRequest {
        group_id: "g".to_owned(),
        generation_id: 1,
        member_id: joined.member_id.clone(),
        ..SyncGroupRequest::default()
    };
    let synced = groups.sync_group(sync, 5).await;
    assert_eq!((error(synced.error_code), synced.protocol_name.as_deref()), (ErrorCode::None, Some("range")));
    let commit = OffsetCommitRequest {
        generation_id_or_member_epoch: 1,
        member_id: joined.member_id.clone(),
        ..commit_request(&[("t", 0, 0)])
    };
    let committed = groups.offset_commit(commit, 9).await;
    assert_eq!(commit_errors(&committed), [("t".to_owned(), 0, ErrorCode::None)]);
    let leave =
        LeaveGroupRequest { group_id: "g".to_owned(), member_id: joined.member_id, ..Default::default() };
    let left = groups.leave_group(leave, 1).await;
    assert_eq!((error(left.error_code), left.members.len()), (ErrorCode::None, 0));
    let listed = groups.list_groups(ListGroupsRequest::default()).await;
    assert_eq!(
        (listed.groups[0].group_state.as_str(), listed.groups[0].group_type.as_str()),
        ("Empty", "classic")
    );
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused_before_they_get_to_a_group() {
    let groups = elected(&MemoryLog::new()).await;
    let short = JoinGroupRequest { session_timeout_ms: 5_999, ..join_request("m") };
    let refused = groups.join_group(&client(), short, 9).await;
    assert_eq!(
        (error(refused.error_code), refused.member_id.as_str()),
        (ErrorCode::InvalidSessionTimeout, "m")
    );
    let long = JoinGroupRequest { session_timeout_ms: 1_800_001, ..join_request("") };
    let refused = groups.join_group(&client(), long, 6).await;
    assert_eq!(error(refused.error_code), ErrorCode::InvalidSessionTimeout);
    assert_eq!(refused.protocol_name.as_deref(), Some(""), "before version 7 it is not null");
    let nameless = JoinGroupRequest { group_id: String::new(), ..join_request("") };
    assert_eq!(error(groups.join_group(&client(), nameless, 9).await.error_code), ErrorCode::InvalidGroupId);
    let beat = groups.heartbeat(HeartbeatRequest::default()).await;
    assert_eq!(error(beat.error_code), ErrorCode::InvalidGroupId);
}

#[tokio::test]
async fn a_group_of_another_broker_is_not_served() {
    let log = MemoryLog::new();
    let groups = coordinator(&log);
    let joined = groups.join_group(&client(), join_request(""), 9).await;
    assert_eq!(error(joined.error_code), ErrorCode::NotCoordinator);
    let groups = elected(&log).await;
    groups.on_resigned(PartitionIndex(0), Some(4));
    assert!(groups.is_loaded(PartitionIndex(0)), "that was an earlier epoch");
    groups.on_resigned(PartitionIndex(0), Some(5));
    let beat = HeartbeatRequest { group_id: "g".to_owned(), ..HeartbeatRequest::default() };
    assert_eq!(error(groups.heartbeat(beat).await.error_code), ErrorCode::NotCoordinator);
    assert_eq!(groups.list_groups(ListGroupsRequest::default()).await.groups, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_being_loaded_is_served_later() {
    let log = MemoryLog::new();
    log.loads.send_replace(false);
    let groups = coordinator(&log);
    groups.on_elected(PartitionIndex(0), 1);
    let joined = groups.join_group(&client(), join_request(""), 9).await;
    assert_eq!(error(joined.error_code), ErrorCode::CoordinatorLoadInProgress);
    let beat = HeartbeatRequest { group_id: "g".to_owned(), ..HeartbeatRequest::default() };
    assert_eq!(error(groups.heartbeat(beat).await.error_code), ErrorCode::None, "members must not give up");
    let listed = groups.list_groups(ListGroupsRequest::default()).await;
    assert_eq!(error(listed.error_code), ErrorCode::CoordinatorLoadInProgress);
    assert_eq!(
        groups.is_share_group("g"),
        Err(Unavailability::Loading),
        "a share group's states go before it"
    );
    log.loads.send_replace(true);
    while !groups.is_loaded(PartitionIndex(0)) {
        tokio::task::yield_now().await;
    }
    let joined = groups.join_group(&client(), join_request(""), 9).await;
    assert_eq!(error(joined.error_code), ErrorCode::MemberIdRequired);
    assert_eq!(groups.is_share_group("g"), Ok(false));
}

#[tokio::test]
async fn a_log_that_cannot_be_read_is_not_served() {
    let log = MemoryLog::new();
    log.batches.lock().push(Bytes::from_static(
        b"this is no batch, and long enough to look like one, if not for its magic",
    ));
    assert_is_not_served(&log).await;
}

#[tokio::test]
async fn an_offset_of_which_a_bit_has_changed_is_not_served() {
    let log = MemoryLog::new();
    let groups = elected(&log).await;
    groups.offset_commit(commit_request(&[("t", 0, 1)]), 9).await;
    groups.shutdown();
    let mut batch = log.batches.lock()[0].to_vec();
    let last = batch.len() - 10;
    batch[last] ^= 4;
    log.batches.lock()[0] = Bytes::from(batch);
    assert_is_not_served(&log).await;
}

async fn assert_is_not_served(log: &Arc<MemoryLog>) {
    let groups = coordinator(log);
    groups.on_elected(PartitionIndex(0), 1);
    let request = || OffsetFetchRequest { group_id: "g".to_owned(), topics: None, ..Default::default() };
    loop {
        let fetched = groups.offset_fetch(request(), 7).await;
        match error(fetched.error_code) {
            ErrorCode::CoordinatorLoadInProgress => tokio::task::yield_now().await,
            told => break assert_eq!(told, ErrorCode::NotCoordinator),
        }
    }
}

#[tokio::test]
async fn an_answer_waits_for_the_acknowledgement_of_the_log() {
    let log = MemoryLog::new();
    log.acknowledges.send_replace(false);
    let groups = elected(&log).await;
    let committing = {
        let groups = groups.clone();
        tokio::spawn(async move { groups.offset_commit(commit_request(&[("t", 0, 1)]), 9).await })
    };
    while log.batches.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!committing.is_finished());
    assert_eq!(groups.list_groups(ListGroupsRequest::default()).await.groups, []);
    log.acknowledges.send_replace(true);
    let committed = committing.await.expect("it does not panic");
    assert_eq!(commit_errors(&committed), [("t".to_owned(), 0, ErrorCode::None)]);
    assert_eq!(groups.list_groups(ListGroupsRequest::default()).await.groups.len(), 1);
}

#[tokio::test]
async fn what_is_loaded_and_not_acknowledged_is_not_shown() {
    let log = MemoryLog::new();
    let groups = elected(&log).await;
    groups.offset_commit(commit_request(&[("t", 0, 1)]), 9).await;
    groups.shutdown();
    log.acknowledges.send_replace(false);
    let groups = elected(&log).await;
    let fetch = || async {
        let request = OffsetFetchRequest { group_id: "g".to_owned(), topics: None, ..Default::default() };
        groups.offset_fetch(request, 7).await.topics.len()
    };
    assert_eq!(fetch().await, 0, "the replicas may not have it");
    log.acknowledges.send_replace(true);
    while fetch().await == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn writes_that_wait_for_the_replicas_have_a_limit() {
    const MAX: usize = 1 << 16;
    let log = MemoryLog::new();
    log.acknowledges.send_replace(false);
    let config =
        GroupConfig { offsets_topic_partitions: 1, commit_timeout_ms: 600_000, ..GroupConfig::default() };
    let groups = elect(configured(config, &log)).await;
    let commit = || {
        let groups = groups.clone();
        tokio::spawn(async move { groups.offset_commit(commit_request(&[("t", 0, 1)]), 9).await })
    };
    let waiting: Vec<_> = (0..MAX).map(|_| commit()).collect();
    while log.batches.lock().len() < MAX {
        tokio::task::yield_now().await;
    }
    let refused = commit().await.expect("it does not panic");
    assert_eq!(commit_errors(&refused), [("t".to_owned(), 0, ErrorCode::CoordinatorNotAvailable)]);
    log.acknowledges.send_replace(true);
    for committed in waiting {
        let committed = committed.await.expect("it does not panic");
        assert_eq!(commit_errors(&committed), [("t".to_owned(), 0, ErrorCode::None)]);
    }
    assert_eq!(commit_errors(&commit().await.expect("it does not panic"))[0].2, ErrorCode::None);
}

#[tokio::test]
async fn topics_are_named_by_their_ids_from_version_10_on() {
    let groups = elected(&MemoryLog::new()).await;
    let by_name = groups.offset_commit(commit_request(&[("t", 0, 0), ("u", 0, 0), ("t", 0, 2)]), 9).await;
    assert_eq!(
        commit_errors(&by_name),
        [
            ("u".to_owned(), 0, ErrorCode::UnknownTopicOrPartition),
            ("t".to_owned(), 0, ErrorCode::UnknownTopicOrPartition),
        ]
    );
    let t = by_name.topics.iter().find(|topic| topic.name == "t").expect("it was asked for");
    let errors: Vec<_> = t.partitions.iter().map(|p| (p.partition_index, error(p.error_code))).collect();
    assert_eq!(errors, [(2, ErrorCode::UnknownTopicOrPartition), (0, ErrorCode::None)]);
    let by_id = groups.offset_commit(commit_request(&[("", 7, 1), ("", 8, 0)]), 10).await;
    let none = String::new();
    assert_eq!(
        commit_errors(&by_id),
        [(none.clone(), 8, ErrorCode::UnknownTopicId), (none.clone(), 7, ErrorCode::None)]
    );
    let topic = |id| OffsetFetchRequestTopics {
        topic_id: Uuid(id),
        partition_indexes: vec![1],
        ..Default::default()
    };
    let group = |topics| OffsetFetchRequestGroup { group_id: "g".to_owned(), topics, ..Default::default() };
    let groups_asked = vec![group(Some(vec![topic(7), topic(8)])), group(None)];
    let request = OffsetFetchRequest { groups: groups_asked, ..Default::default() };
    let fetched = groups.offset_fetch(request, 10).await;
    let [named, all] = &fetched.groups[..] else { panic!("two groups were asked for") };
    assert_eq!(named.topics[0].partitions[0].committed_offset, 9);
    assert_eq!(error(named.topics[1].partitions[0].error_code), ErrorCode::UnknownTopicId);
    assert_eq!((all.topics[0].topic_id, all.topics[0].partitions.len()), (Uuid(7), 2));
    groups.on_topics_deleted(&[DeletedTopic { name: "t".to_owned(), id: Uuid(7) }]);
    let request = OffsetFetchRequest { groups: vec![group(None)], ..Default::default() };
    assert_eq!(groups.offset_fetch(request, 10).await.groups[0].topics, []);
}

#[tokio::test]
async fn a_fetch_of_version_1_has_errors_in_its_partitions() {
    let groups = coordinator(&MemoryLog::new());
    let topic = OffsetFetchRequestTopic { name: "t".to_owned(), partition_indexes: vec![0, 1] };
    let request = || OffsetFetchRequest {
        group_id: "g".to_owned(),
        topics: Some(vec![topic.clone()]),
        ..Default::default()
    };
    let first = groups.offset_fetch(request(), 1).await;
    let errors: Vec<_> = first.topics[0].partitions.iter().map(|p| error(p.error_code)).collect();
    assert_eq!((first.error_code, errors), (0, vec![ErrorCode::NotCoordinator; 2]));
    let later = groups.offset_fetch(request(), 2).await;
    assert_eq!((error(later.error_code), later.topics.len()), (ErrorCode::NotCoordinator, 0));
}

#[tokio::test]
async fn groups_survive_the_broker() {
    let log = MemoryLog::new();
    let groups = elected(&log).await;
    groups.offset_commit(commit_request(&[("t", 0, 1)]), 9).await;
    groups.shutdown();
    let groups = elected(&log).await;
    let request = OffsetFetchRequest { group_id: "g".to_owned(), topics: None, ..Default::default() };
    let fetched = groups.offset_fetch(request, 7).await;
    assert_eq!(fetched.topics[0].partitions[0].committed_offset, 9);
    let deleted = groups.delete_groups(DeleteGroupsRequest { groups_names: vec!["g".to_owned()] }).await;
    assert_eq!(error(deleted.results[0].error_code), ErrorCode::None);
    let request =
        DescribeGroupsRequest { groups: vec!["g".to_owned()], include_authorized_operations: false };
    let dead = groups.describe_groups(request.clone(), 5).await;
    assert_eq!((dead.groups[0].group_state.as_str(), dead.groups[0].error_code), ("Dead", 0));
    let unknown = groups.describe_groups(request, 6).await;
    assert_eq!(error(unknown.groups[0].error_code), ErrorCode::GroupIdNotFound);
    assert_eq!(unknown.groups[0].error_message.as_deref(), Some("Group g not found."));
}

#[tokio::test]
async fn timers_run_by_themselves() {
    let log = MemoryLog::new();
    let config =
        GroupConfig { initial_rebalance_delay_ms: 30, session_timeout_ms_min: 1, ..GroupConfig::default() };
    let groups =
        Arc::new(GroupCoordinator::new(config, log, Arc::new(OneTopic), Clock::system(), Disk::real()));
    let running = tokio::spawn({
        let groups = groups.clone();
        async move { groups.run().await }
    });
    tokio::task::yield_now().await;
    groups.on_elected(PartitionIndex(0), 1);
    while !groups.is_loaded(PartitionIndex(0)) {
        tokio::task::yield_now().await;
    }
    let request = JoinGroupRequest { session_timeout_ms: 40, ..join_request("") };
    let joined =
        tokio::time::timeout(Duration::from_secs(20), groups.join_group(&client(), request, 3)).await;
    assert_eq!(joined.expect("the delay ends by itself").generation_id, 1);
    let describe = || DescribeGroupsRequest { groups: vec!["g".to_owned()], ..Default::default() };
    while groups.describe_groups(describe(), 5).await.groups[0].group_state != "Empty" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.abort();
}

#[tokio::test]
async fn every_answer_can_be_sent_at_every_version() {
    fn sends<M: Message>(response: &M, version: i16) {
        response.to_bytes(version).unwrap_or_else(|error| panic!("{} {version}: {error}", M::NAME));
    }
    let groups = elected(&MemoryLog::new()).await;
    for version in 0..=9 {
        let joined = groups.join_group(&client(), join_request(""), version).await;
        sends(&joined, version);
        sends(&groups.join_group(&client(), join_request("nobody"), version).await, version);
        let sync = SyncGroupRequest {
            group_id: "g".to_owned(),
            generation_id: 1,
            member_id: joined.member_id.clone(),
            ..Default::default()
        };
        if version <= 5 {
            sends(&groups.sync_group(sync, version).await, version);
            sends(&groups.list_groups(ListGroupsRequest::default()).await, version);
        }
        if version <= 6 {
            let request =
                DescribeGroupsRequest { groups: vec!["g".to_owned(), "h".to_owned()], ..Default::default() };
            sends(&groups.describe_groups(request, version).await, version);
        }
        if version <= 5 {
            let members = vec![leave_group_request::MemberIdentity {
                member_id: joined.member_id.clone(),
                ..Default::default()
            }];
            let leave = LeaveGroupRequest { group_id: "g".to_owned(), member_id: joined.member_id, members };
            sends(&groups.leave_group(leave, version).await, version);
        }
    }
    for version in 1..=10 {
        let group = OffsetFetchRequestGroup { group_id: "g".to_owned(), topics: None, ..Default::default() };
        let request = OffsetFetchRequest {
            group_id: "g".to_owned(),
            topics: None,
            groups: vec![group],
            require_stable: true,
        };
        sends(&groups.offset_fetch(request, version).await, version);
        let names = [("t", 7, 0), ("u", 8, 0)];
        sends(&groups.offset_commit(commit_request(&names), version.max(2)).await, version.max(2));
    }
}

#[test]
fn addresses_are_written_as_java_writes_them() {
    let host = |address| ClientInfo::new(None, address).client_host;
    assert_eq!(host(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))), "/192.0.2.1");
    assert_eq!(host(IpAddr::V6(Ipv6Addr::LOCALHOST)), "/0:0:0:0:0:0:0:1");
    assert_eq!(host(IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped())), "/127.0.0.1");
}
