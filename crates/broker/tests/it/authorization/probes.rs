//! A request or several for each API, about resources that may or may not exist, and answers in a form that
//! can be compared.

use crate::records::{Topic, batch_at};
use bytes::Bytes;
use regex::Regex;
use std::fmt::Debug;
use std::sync::LazyLock;
use thalweg_record::{BatchOptions, ProducerEpoch, ProducerId};
use thalweg_wire::frame::{decode_response, encode_request};
use thalweg_wire::request::*;
use thalweg_wire::{ApiKey, Records, Request, Uuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The resources that requests name.
#[derive(Clone, Debug)]
pub struct Names {
    pub topic: Topic,
    pub group: String,
    pub id: String,
}

/// A request at a version, and how its answer is read.
#[derive(Clone)]
pub struct Probe {
    pub key: ApiKey,
    pub version: i16,
    frame: Bytes,
    read: fn(Bytes, i16) -> String,
}

fn probe<R: Request>(version: i16, request: R) -> Probe
where
    R::Response: Debug,
{
    let frame = encode_request(&request, version, 7, Some("probe"));
    let frame = frame.unwrap_or_else(|error| panic!("{} version {version}: {error}", R::NAME));
    let read = |frame: Bytes, version: i16| {
        let decoded = decode_response::<R>(frame, version);
        let (_, response) = decoded.unwrap_or_else(|error| panic!("{} version {version}: {error}", R::NAME));
        format!("{response:#?}")
    };
    Probe { key: R::KEY, version, frame, read }
}

impl Probe {
    /// The answer; `closed` if there is none.
    pub async fn ask(&self, address: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("a server");
        stream.write_all(&self.frame).await.expect("it reads");
        let Ok(length) = stream.read_i32().await else { return "closed".to_owned() };
        let mut frame = vec![0; usize::try_from(length).expect("a length")];
        stream.read_exact(&mut frame).await.expect("the whole answer");
        canonical(&(self.read)(frame.into(), self.version))
    }
}

/// What differs from one server to another, and what stands in its place. Compiled once: that takes a debug
/// build long.
static REPLACED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"probe-[0-9a-f-]{36}", "MEMBER"),
        // Kafka's message shows the insides of its request.
        (
            r#""Request Request.* (is not authorized|needs \w+ permission)\.""#,
            "\"Cluster authorization failed.\"",
        ),
        (r"topic_id: A{22}", "topic_id: NONE"),
        (r"topic_id: [\w-]{22}", "topic_id: SOME"),
        (r#""NONE""#, "\"\""),
        (r"(producer_id|port|throttle_time_ms|node_id|broker_id|controller_id): \d+", "$1: N"),
        (r#"cluster_id: Some\(\s*"[^"]*""#, "cluster_id: Some(X"),
        (r#"(log_dir|cluster_id|host|client_host): .*"#, "$1: X"),
        (r"(total_bytes|usable_bytes): \d+", "$1: N"),
        (r"\s+", " "),
    ];
    patterns.map(|(pattern, by)| (Regex::new(pattern).expect("a pattern"), by)).into()
});

/// The text of an answer with the entries of its lists in one order, and without what differs from one server
/// to another.
fn canonical(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let sorted = block(&mut lines);
    REPLACED.iter().fold(sorted, |text, (pattern, by)| pattern.replace_all(&text, *by).into_owned())
}

/// The lines up to the end of a block.
fn block<'a>(lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> String {
    let mut text = String::new();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        if line.ends_with('[') {
            let mut entries = Vec::new();
            while lines.peek().is_some_and(|next| !next.trim_start().starts_with(']')) {
                entries.push(entry(lines));
            }
            entries.sort();
            text.extend(entries);
        }
    }
    text
}

/// One entry of a list: a line, or all lines to its closing bracket.
fn entry<'a>(lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> String {
    let first = lines.next().expect("an entry");
    if !first.ends_with(['{', '(', '[']) {
        return format!("{first}\n");
    }
    let indent = first.len() - first.trim_start().len();
    let mut inner = vec![first];
    for line in lines.by_ref() {
        inner.push(line);
        if line.len() - line.trim_start().len() == indent {
            break;
        }
    }
    let last = inner.pop().expect("the closing bracket");
    format!("{first}\n{}{last}\n", block(&mut inner.into_iter().skip(1).peekable()))
}

/// The requests of an API. None means that an API has no probe, which its test reports.
pub fn probes(key: ApiKey, names: &Names) -> Vec<Probe> {
    match key {
        ApiKey::Produce => produce(names),
        ApiKey::Fetch => fetch(names),
        ApiKey::ListOffsets | ApiKey::OffsetForLeaderEpoch | ApiKey::DeleteRecords => offsets(key, names),
        ApiKey::Metadata | ApiKey::DescribeTopicPartitions | ApiKey::DescribeProducers => topics(key, names),
        ApiKey::OffsetCommit | ApiKey::OffsetFetch | ApiKey::OffsetDelete => committed(key, names),
        ApiKey::InitProducerId
        | ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::EndTxn
        | ApiKey::TxnOffsetCommit
        | ApiKey::WriteTxnMarkers
        | ApiKey::DescribeTransactions
        | ApiKey::ListTransactions => transactions(key, names),
        ApiKey::DescribeConfigs | ApiKey::AlterConfigs | ApiKey::IncrementalAlterConfigs => {
            configs(key, names)
        }
        ApiKey::FindCoordinator
        | ApiKey::JoinGroup
        | ApiKey::Heartbeat
        | ApiKey::LeaveGroup
        | ApiKey::SyncGroup
        | ApiKey::DescribeGroups
        | ApiKey::ListGroups
        | ApiKey::DeleteGroups
        | ApiKey::ConsumerGroupHeartbeat
        | ApiKey::ConsumerGroupDescribe
        | ApiKey::StreamsGroupHeartbeat
        | ApiKey::StreamsGroupDescribe => groups(key, names),
        ApiKey::ShareGroupHeartbeat
        | ApiKey::ShareGroupDescribe
        | ApiKey::ShareFetch
        | ApiKey::ShareAcknowledge
        | ApiKey::DescribeShareGroupOffsets
        | ApiKey::AlterShareGroupOffsets
        | ApiKey::DeleteShareGroupOffsets
        | ApiKey::InitializeShareGroupState
        | ApiKey::ReadShareGroupState
        | ApiKey::WriteShareGroupState
        | ApiKey::DeleteShareGroupState
        | ApiKey::ReadShareGroupStateSummary => shares(key, names),
        key => cluster(key, names),
    }
}

fn produce(names: &Names) -> Vec<Probe> {
    use produce_request::{PartitionProduceData, TopicProduceData};
    let transactional = BatchOptions {
        producer_id: ProducerId(1 << 40),
        producer_epoch: ProducerEpoch(3),
        base_sequence: 0,
        transactional: true,
        ..BatchOptions::default()
    };
    let request = |version: i16, transactional_id: Option<String>, options| ProduceRequest {
        transactional_id,
        acks: -1,
        timeout_ms: 5000,
        topic_data: vec![TopicProduceData {
            name: names.topic.name_until(12, version),
            topic_id: names.topic.id_after(12, version),
            partition_data: vec![PartitionProduceData {
                index: 0,
                records: Some(Records::Inline(batch_at(0, &[b"value"], options))),
            }],
        }],
    };
    let plain = |version| probe(version, request(version, None, BatchOptions::default()));
    let id = Some(names.id.clone());
    vec![
        plain(9),
        plain(12),
        plain(13),
        probe(11, request(11, id, transactional)),
        probe(11, request(11, None, transactional)),
    ]
}

fn fetch(names: &Names) -> Vec<Probe> {
    use fetch_request::{FetchPartition, FetchTopic, ReplicaState};
    let request = |version: i16, replica_id| FetchRequest {
        max_bytes: 1 << 20,
        replica_id: if version < 15 { replica_id } else { -1 },
        replica_state: if version < 15 {
            ReplicaState::default()
        } else {
            ReplicaState { replica_id, ..ReplicaState::default() }
        },
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: names.topic.name_until(12, version),
            topic_id: names.topic.id_after(12, version),
            partitions: vec![FetchPartition {
                partition_max_bytes: 1 << 20,
                // Whatever is there now: an offset far behind it.
                fetch_offset: 1 << 40,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let versions = [(5, -1), (12, -1), (13, -1), (17, -1), (12, 5), (17, 5)];
    versions.into_iter().map(|(version, replica)| probe(version, request(version, replica))).collect()
}

fn offsets(key: ApiKey, names: &Names) -> Vec<Probe> {
    use delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
    use list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
    use offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic};
    let name = names.topic.name.clone();
    match key {
        ApiKey::ListOffsets => {
            let partitions = vec![ListOffsetsPartition { timestamp: -2, ..Default::default() }];
            let topics = vec![ListOffsetsTopic { name, partitions }];
            let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
            vec![probe(1, request.clone()), probe(10, request)]
        }
        ApiKey::OffsetForLeaderEpoch => {
            let partitions =
                vec![OffsetForLeaderPartition { current_leader_epoch: -1, ..Default::default() }];
            let topics = vec![OffsetForLeaderTopic { topic: name, partitions }];
            vec![probe(4, OffsetForLeaderEpochRequest { replica_id: -1, topics })]
        }
        _ => {
            let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: 0 }];
            let topics = vec![DeleteRecordsTopic { name, partitions }];
            vec![probe(2, DeleteRecordsRequest { topics, timeout_ms: 5000 })]
        }
    }
}

fn topics(key: ApiKey, names: &Names) -> Vec<Probe> {
    use metadata_request::MetadataRequestTopic;
    let name = names.topic.name.clone();
    match key {
        ApiKey::Metadata => {
            let by_name = MetadataRequestTopic { name: Some(name), ..Default::default() };
            let by_id = MetadataRequestTopic { topic_id: names.topic.id, name: None };
            let request = |topics, cluster| MetadataRequest {
                topics,
                allow_auto_topic_creation: false,
                include_cluster_authorized_operations: cluster,
                include_topic_authorized_operations: true,
            };
            let old = MetadataRequest { topics: Some(Vec::new()), ..request(None, false) };
            let old = MetadataRequest { include_topic_authorized_operations: false, ..old };
            vec![
                probe(0, MetadataRequest { allow_auto_topic_creation: true, ..old }),
                probe(9, request(Some(vec![by_name.clone()]), true)),
                probe(12, request(Some(vec![by_name]), false)),
                probe(12, request(Some(vec![by_id]), false)),
                probe(13, request(None, false)),
            ]
        }
        ApiKey::DescribeTopicPartitions => {
            use describe_topic_partitions_request::TopicRequest;
            let request = |topics| DescribeTopicPartitionsRequest {
                topics,
                response_partition_limit: 100,
                cursor: None,
            };
            vec![probe(0, request(vec![TopicRequest { name }])), probe(0, request(Vec::new()))]
        }
        _ => {
            let topics = vec![describe_producers_request::TopicRequest { name, partition_indexes: vec![0] }];
            vec![probe(0, DescribeProducersRequest { topics })]
        }
    }
}

fn committed(key: ApiKey, names: &Names) -> Vec<Probe> {
    use offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    use offset_delete_request::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
    use offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics};
    let (topic, group_id) = (&names.topic, names.group.clone());
    match key {
        ApiKey::OffsetCommit => {
            let request = |version: i16| OffsetCommitRequest {
                group_id: group_id.clone(),
                generation_id_or_member_epoch: -1,
                topics: vec![OffsetCommitRequestTopic {
                    name: topic.name_until(9, version),
                    topic_id: topic.id_after(9, version),
                    partitions: vec![OffsetCommitRequestPartition {
                        committed_offset: 5,
                        ..Default::default()
                    }],
                }],
                ..Default::default()
            };
            [8, 9, 10].into_iter().map(|version| probe(version, request(version))).collect()
        }
        ApiKey::OffsetFetch => {
            let several = |version: i16, is_whole: bool| {
                let topics = vec![OffsetFetchRequestTopics {
                    name: topic.name_until(9, version),
                    topic_id: topic.id_after(9, version),
                    partition_indexes: vec![0],
                }];
                let group = OffsetFetchRequestGroup {
                    group_id: group_id.clone(),
                    member_epoch: -1,
                    topics: (!is_whole).then_some(topics),
                    ..Default::default()
                };
                probe(version, OffsetFetchRequest { groups: vec![group], ..Default::default() })
            };
            let single = |version, is_whole: bool| {
                let topics =
                    vec![OffsetFetchRequestTopic { name: topic.name.clone(), partition_indexes: vec![0] }];
                let topics = (!is_whole).then_some(topics);
                probe(
                    version,
                    OffsetFetchRequest { group_id: group_id.clone(), topics, ..Default::default() },
                )
            };
            vec![
                single(1, false),
                single(5, false),
                single(7, true),
                several(9, false),
                several(9, true),
                several(10, false),
                several(10, true),
            ]
        }
        _ => {
            let partitions = vec![OffsetDeleteRequestPartition { partition_index: 0 }];
            let topics = vec![OffsetDeleteRequestTopic { name: topic.name.clone(), partitions }];
            vec![probe(0, OffsetDeleteRequest { group_id, topics })]
        }
    }
}

fn transactions(key: ApiKey, names: &Names) -> Vec<Probe> {
    use add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
    use txn_offset_commit_request::{TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic};
    use write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
    let (name, group_id, transactional_id) =
        (names.topic.name.clone(), names.group.clone(), names.id.clone());
    // A producer that no transaction knows.
    let (producer_id, producer_epoch) = (1 << 40, 3);
    match key {
        ApiKey::InitProducerId => {
            let request = |transactional_id| InitProducerIdRequest {
                transactional_id,
                transaction_timeout_ms: 60_000,
                producer_id: -1,
                producer_epoch: -1,
                ..Default::default()
            };
            vec![probe(4, request(None)), probe(4, request(Some(transactional_id)))]
        }
        ApiKey::AddPartitionsToTxn => {
            let topics = vec![AddPartitionsToTxnTopic { name, partitions: vec![0] }];
            let internal =
                vec![AddPartitionsToTxnTopic { name: "__consumer_offsets".to_owned(), partitions: vec![0] }];
            let of_client = |topics| AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: transactional_id.clone(),
                v3_and_below_producer_id: producer_id,
                v3_and_below_producer_epoch: producer_epoch,
                v3_and_below_topics: topics,
                ..Default::default()
            };
            let transactions = vec![AddPartitionsToTxnTransaction {
                transactional_id: transactional_id.clone(),
                producer_id,
                producer_epoch,
                verify_only: true,
                topics: topics.clone(),
            }];
            vec![
                probe(3, of_client(topics)),
                probe(3, of_client(internal)),
                probe(4, AddPartitionsToTxnRequest { transactions, ..Default::default() }),
            ]
        }
        ApiKey::AddOffsetsToTxn => {
            vec![probe(3, AddOffsetsToTxnRequest { transactional_id, producer_id, producer_epoch, group_id })]
        }
        ApiKey::EndTxn => {
            vec![probe(4, EndTxnRequest { transactional_id, producer_id, producer_epoch, committed: false })]
        }
        ApiKey::TxnOffsetCommit => {
            let partitions =
                vec![TxnOffsetCommitRequestPartition { committed_offset: 5, ..Default::default() }];
            let request = TxnOffsetCommitRequest {
                transactional_id,
                group_id,
                producer_id,
                producer_epoch,
                generation_id: -1,
                topics: vec![TxnOffsetCommitRequestTopic { name, partitions }],
                ..Default::default()
            };
            vec![probe(3, request)]
        }
        ApiKey::WriteTxnMarkers => {
            let topics = vec![WritableTxnMarkerTopic { name, partition_indexes: vec![0] }];
            let markers = vec![WritableTxnMarker { producer_id: 9, topics, ..Default::default() }];
            vec![probe(1, WriteTxnMarkersRequest { markers })]
        }
        ApiKey::DescribeTransactions => {
            vec![probe(0, DescribeTransactionsRequest { transactional_ids: vec![transactional_id] })]
        }
        _ => vec![probe(1, ListTransactionsRequest { duration_filter: -1, ..Default::default() })],
    }
}

fn configs(key: ApiKey, names: &Names) -> Vec<Probe> {
    let (topic, broker, logger, group) = (2, 4, 8, 32);
    let named = [(topic, names.topic.name.clone()), (broker, String::new()), (group, names.group.clone())];
    match key {
        ApiKey::DescribeConfigs => {
            use describe_configs_request::DescribeConfigsResource;
            let some = |kind| match kind {
                2 => "cleanup.policy",
                4 => "log.cleaner.threads",
                _ => "consumer.session.timeout.ms",
            };
            let each = named.into_iter().map(|(resource_type, resource_name)| {
                let configuration_keys = Some(vec![some(resource_type).to_owned()]);
                let resource = DescribeConfigsResource { resource_type, resource_name, configuration_keys };
                probe(4, DescribeConfigsRequest { resources: vec![resource], ..Default::default() })
            });
            each.collect()
        }
        ApiKey::AlterConfigs => {
            use alter_configs_request::AlterConfigsResource;
            let each = named.into_iter().take(1).map(|(resource_type, resource_name)| {
                let resource = AlterConfigsResource { resource_type, resource_name, configs: Vec::new() };
                probe(2, AlterConfigsRequest { resources: vec![resource], validate_only: true })
            });
            each.collect()
        }
        _ => {
            use incremental_alter_configs_request::AlterConfigsResource;
            let each =
                named.into_iter().take(1).chain([(logger, "1".to_owned())]).map(|(kind, resource_name)| {
                    let resource =
                        AlterConfigsResource { resource_type: kind, resource_name, configs: Vec::new() };
                    probe(
                        1,
                        IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: true },
                    )
                });
            each.collect()
        }
    }
}

fn groups(key: ApiKey, names: &Names) -> Vec<Probe> {
    use join_group_request::JoinGroupRequestProtocol;
    use leave_group_request::MemberIdentity;
    let group_id = names.group.clone();
    let member_id = "someone".to_owned();
    match key {
        ApiKey::FindCoordinator => {
            let several = |key_type, key: &str| {
                let coordinator_keys = vec![key.to_owned()];
                probe(5, FindCoordinatorRequest { key_type, coordinator_keys, ..Default::default() })
            };
            let one = |key_type, key: &str| {
                probe(3, FindCoordinatorRequest { key_type, key: key.to_owned(), ..Default::default() })
            };
            let shared = FindCoordinatorRequest {
                key_type: 2,
                coordinator_keys: vec![format!("{group_id}:{}:0", Uuid(0x0123_4567))],
                ..Default::default()
            };
            let shared = probe(6, shared);
            vec![several(0, &group_id), several(1, &names.id), one(0, &group_id), one(1, &names.id), shared]
        }
        ApiKey::JoinGroup => {
            let request = JoinGroupRequest {
                group_id,
                session_timeout_ms: 10_000,
                rebalance_timeout_ms: 10_000,
                protocol_type: "consumer".to_owned(),
                protocols: vec![JoinGroupRequestProtocol {
                    name: "range".to_owned(),
                    metadata: Bytes::new(),
                }],
                ..Default::default()
            };
            vec![probe(5, request.clone()), probe(9, request)]
        }
        ApiKey::Heartbeat => {
            vec![probe(4, HeartbeatRequest { group_id, member_id, ..Default::default() })]
        }
        ApiKey::LeaveGroup => {
            let one = LeaveGroupRequest { group_id, member_id: member_id.clone(), ..Default::default() };
            let members = vec![MemberIdentity { member_id, ..Default::default() }];
            let several = LeaveGroupRequest { member_id: String::new(), members, ..one.clone() };
            vec![probe(2, one), probe(5, several)]
        }
        ApiKey::SyncGroup => {
            let request = SyncGroupRequest {
                group_id,
                member_id,
                protocol_type: Some("consumer".to_owned()),
                protocol_name: Some("range".to_owned()),
                ..Default::default()
            };
            let malformed = SyncGroupRequest { protocol_name: None, ..request.clone() };
            vec![probe(5, request), probe(5, malformed)]
        }
        ApiKey::DescribeGroups => {
            let request =
                DescribeGroupsRequest { groups: vec![group_id], include_authorized_operations: true };
            vec![probe(5, request.clone()), probe(6, request)]
        }
        ApiKey::ListGroups => vec![probe(5, ListGroupsRequest::default())],
        ApiKey::ConsumerGroupHeartbeat => {
            let member_id = "a-member".to_owned();
            vec![probe(1, ConsumerGroupHeartbeatRequest { group_id, member_id, ..Default::default() })]
        }
        ApiKey::ConsumerGroupDescribe => {
            let group_ids = vec![group_id];
            vec![probe(1, ConsumerGroupDescribeRequest { group_ids, include_authorized_operations: true })]
        }
        ApiKey::StreamsGroupHeartbeat => {
            use streams_group_heartbeat_request::{Subtopology, Topology};
            let source_topics = vec![names.topic.name.clone()];
            let subtopologies =
                vec![Subtopology { subtopology_id: "0".to_owned(), source_topics, ..Default::default() }];
            let request = StreamsGroupHeartbeatRequest {
                group_id,
                member_id: "a-member".to_owned(),
                member_epoch: 7,
                topology: Some(Topology { epoch: 0, subtopologies }),
                ..Default::default()
            };
            vec![probe(0, request)]
        }
        ApiKey::StreamsGroupDescribe => {
            let group_ids = vec![group_id];
            vec![probe(0, StreamsGroupDescribeRequest { group_ids, include_authorized_operations: true })]
        }
        _ => vec![probe(2, DeleteGroupsRequest { groups_names: vec![group_id] })],
    }
}

fn shares(key: ApiKey, names: &Names) -> Vec<Probe> {
    let (group_id, topic_id) = (names.group.clone(), names.topic.id);
    let topic_name = names.topic.name.clone();
    let member_id = "a-member".to_owned();
    match key {
        ApiKey::ShareGroupHeartbeat => {
            let subscribed_topic_names = Some(vec![topic_name]);
            let request = ShareGroupHeartbeatRequest {
                group_id,
                member_id,
                subscribed_topic_names,
                member_epoch: 7,
                ..Default::default()
            };
            vec![probe(1, request)]
        }
        ApiKey::ShareGroupDescribe => {
            let group_ids = vec![group_id];
            vec![probe(1, ShareGroupDescribeRequest { group_ids, include_authorized_operations: true })]
        }
        ApiKey::ShareFetch => {
            use share_fetch_request::{FetchPartition, FetchTopic};
            let topics = vec![FetchTopic { topic_id, partitions: vec![FetchPartition::default()] }];
            let (group_id, member_id) = (Some(group_id), Some(member_id));
            vec![probe(2, ShareFetchRequest { group_id, member_id, topics, ..Default::default() })]
        }
        ApiKey::ShareAcknowledge => {
            use share_acknowledge_request::{AcknowledgePartition, AcknowledgeTopic};
            let topics =
                vec![AcknowledgeTopic { topic_id, partitions: vec![AcknowledgePartition::default()] }];
            let (group_id, member_id) = (Some(group_id), Some(member_id));
            vec![probe(2, ShareAcknowledgeRequest { group_id, member_id, topics, ..Default::default() })]
        }
        ApiKey::DescribeShareGroupOffsets => {
            use describe_share_group_offsets_request::{
                DescribeShareGroupOffsetsRequestGroup as Group,
                DescribeShareGroupOffsetsRequestTopic as Topic,
            };
            let topics = [None, Some(vec![Topic { topic_name, partitions: vec![0] }])];
            let request = |topics| DescribeShareGroupOffsetsRequest {
                groups: vec![Group { group_id: group_id.clone(), topics }],
            };
            topics.into_iter().map(|topics| probe(1, request(topics))).collect()
        }
        ApiKey::AlterShareGroupOffsets => {
            use alter_share_group_offsets_request::{
                AlterShareGroupOffsetsRequestPartition as Partition,
                AlterShareGroupOffsetsRequestTopic as Topic,
            };
            // A partition that there is not: nothing is changed.
            let partitions = vec![Partition { partition_index: 77, start_offset: 0 }];
            vec![probe(
                0,
                AlterShareGroupOffsetsRequest { group_id, topics: vec![Topic { topic_name, partitions }] },
            )]
        }
        ApiKey::DeleteShareGroupOffsets => {
            use delete_share_group_offsets_request::DeleteShareGroupOffsetsRequestTopic as Topic;
            vec![probe(0, DeleteShareGroupOffsetsRequest { group_id, topics: vec![Topic { topic_name }] })]
        }
        ApiKey::InitializeShareGroupState => {
            use initialize_share_group_state_request::{InitializeStateData, PartitionData};
            let partitions = vec![PartitionData { partition: 0, state_epoch: 0, start_offset: 0 }];
            let topics = vec![InitializeStateData { topic_id, partitions }];
            vec![probe(0, InitializeShareGroupStateRequest { group_id, topics })]
        }
        ApiKey::ReadShareGroupState => {
            use read_share_group_state_request::{PartitionData, ReadStateData};
            let partitions = vec![PartitionData { partition: 0, leader_epoch: 0 }];
            vec![probe(
                0,
                ReadShareGroupStateRequest { group_id, topics: vec![ReadStateData { topic_id, partitions }] },
            )]
        }
        ApiKey::WriteShareGroupState => {
            use write_share_group_state_request::{PartitionData, WriteStateData};
            let partitions = vec![PartitionData { partition: 0, ..Default::default() }];
            let topics = vec![WriteStateData { topic_id, partitions }];
            vec![probe(1, WriteShareGroupStateRequest { group_id, topics })]
        }
        ApiKey::DeleteShareGroupState => {
            use delete_share_group_state_request::{DeleteStateData, PartitionData};
            let partitions = vec![PartitionData { partition: 0 }];
            vec![probe(
                0,
                DeleteShareGroupStateRequest {
                    group_id,
                    topics: vec![DeleteStateData { topic_id, partitions }],
                },
            )]
        }
        _ => {
            use read_share_group_state_summary_request::{PartitionData, ReadStateSummaryData};
            let partitions = vec![PartitionData { partition: 0, leader_epoch: 0 }];
            let topics = vec![ReadStateSummaryData { topic_id, partitions }];
            vec![probe(1, ReadShareGroupStateSummaryRequest { group_id, topics })]
        }
    }
}

fn cluster(key: ApiKey, names: &Names) -> Vec<Probe> {
    use create_acls_request::AclCreation;
    use delete_acls_request::DeleteAclsFilter;
    let name = names.topic.name.clone();
    match key {
        ApiKey::DescribeAcls => {
            let request = DescribeAclsRequest {
                resource_type_filter: 1,
                pattern_type_filter: 1,
                operation: 1,
                permission_type: 1,
                ..Default::default()
            };
            vec![probe(3, request)]
        }
        ApiKey::CreateAcls => {
            let creation = AclCreation {
                resource_type: 2,
                resource_name: name,
                resource_pattern_type: 3,
                principal: "User:nobody".to_owned(),
                host: "*".to_owned(),
                operation: 3,
                permission_type: 3,
            };
            vec![probe(3, CreateAclsRequest { creations: vec![creation] })]
        }
        ApiKey::DeleteAcls => {
            let filter = DeleteAclsFilter {
                resource_type_filter: 2,
                resource_name_filter: Some(name),
                pattern_type_filter: 3,
                operation: 1,
                permission_type: 1,
                ..Default::default()
            };
            vec![probe(3, DeleteAclsRequest { filters: vec![filter] })]
        }
        ApiKey::AlterReplicaLogDirs => {
            use alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
            let topics = vec![AlterReplicaLogDirTopic { name, partitions: vec![0] }];
            let dirs = vec![AlterReplicaLogDir { path: "/nowhere".to_owned(), topics }];
            vec![probe(2, AlterReplicaLogDirsRequest { dirs })]
        }
        ApiKey::DescribeLogDirs => {
            use describe_log_dirs_request::DescribableLogDirTopic;
            let topics = Some(vec![DescribableLogDirTopic { topic: name, partitions: vec![5] }]);
            let request = DescribeLogDirsRequest { topics };
            vec![probe(1, request.clone()), probe(4, request)]
        }
        ApiKey::CreateTopics => {
            use create_topics_request::CreatableTopic;
            let topic =
                CreatableTopic { name, num_partitions: 1, replication_factor: 1, ..Default::default() };
            vec![probe(7, CreateTopicsRequest { topics: vec![topic], timeout_ms: 5000, validate_only: true })]
        }
        ApiKey::CreatePartitions => {
            use create_partitions_request::CreatePartitionsTopic;
            let topics = vec![CreatePartitionsTopic { name, count: 3, assignments: None }];
            vec![probe(3, CreatePartitionsRequest { topics, timeout_ms: 5000, validate_only: true })]
        }
        ApiKey::DeleteTopics => {
            use delete_topics_request::DeleteTopicState;
            let topics = vec![DeleteTopicState { name: Some(name), ..Default::default() }];
            vec![probe(6, DeleteTopicsRequest { topics, timeout_ms: 5000, ..Default::default() })]
        }
        ApiKey::ElectLeaders => {
            use elect_leaders_request::TopicPartitions;
            let topic_partitions = Some(vec![TopicPartitions { topic: name, partitions: vec![0] }]);
            vec![probe(2, ElectLeadersRequest { topic_partitions, timeout_ms: 5000, ..Default::default() })]
        }
        ApiKey::AlterPartitionReassignments => {
            use alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
            let partitions = vec![ReassignablePartition { partition_index: 0, replicas: None }];
            let topics = vec![ReassignableTopic { name, partitions }];
            vec![probe(0, AlterPartitionReassignmentsRequest { topics, ..Default::default() })]
        }
        ApiKey::ListPartitionReassignments => {
            vec![probe(0, ListPartitionReassignmentsRequest { topics: None, timeout_ms: 5000 })]
        }
        ApiKey::DescribeClientQuotas => vec![probe(1, DescribeClientQuotasRequest::default())],
        ApiKey::AlterClientQuotas => {
            use alter_client_quotas_request::{EntityData, EntryData, OpData};
            let user = EntityData { entity_type: "user".to_owned(), entity_name: Some("ann".to_owned()) };
            let op = OpData { key: "producer_byte_rate".to_owned(), value: 1.0, remove: false };
            let entries = vec![EntryData { entity: vec![user], ops: vec![op] }];
            vec![probe(1, AlterClientQuotasRequest { entries, validate_only: true })]
        }
        ApiKey::DescribeUserScramCredentials => {
            use describe_user_scram_credentials_request::UserName;
            let users = Some(vec![UserName { name: "ann".to_owned() }]);
            vec![probe(0, DescribeUserScramCredentialsRequest { users })]
        }
        ApiKey::AlterUserScramCredentials => {
            use alter_user_scram_credentials_request::ScramCredentialDeletion;
            let deletions = vec![ScramCredentialDeletion { name: "ann".to_owned(), mechanism: 1 }];
            vec![probe(0, AlterUserScramCredentialsRequest { deletions, ..Default::default() })]
        }
        // On a listener without a login nobody has tokens; `apache::tokens` compares the rest.
        ApiKey::CreateDelegationToken => vec![probe(3, CreateDelegationTokenRequest::default())],
        ApiKey::RenewDelegationToken => vec![probe(2, RenewDelegationTokenRequest::default())],
        ApiKey::ExpireDelegationToken => vec![probe(2, ExpireDelegationTokenRequest::default())],
        ApiKey::DescribeDelegationToken => vec![probe(3, DescribeDelegationTokenRequest::default())],
        ApiKey::DescribeQuorum => vec![probe(1, DescribeQuorumRequest::default())],
        ApiKey::UpdateFeatures => {
            vec![probe(1, UpdateFeaturesRequest { validate_only: true, ..Default::default() })]
        }
        ApiKey::DescribeCluster => {
            let request = DescribeClusterRequest {
                include_cluster_authorized_operations: true,
                endpoint_type: 1,
                ..Default::default()
            };
            vec![probe(1, request)]
        }
        ApiKey::UnregisterBroker => vec![probe(0, UnregisterBrokerRequest { broker_id: 77 })],
        ApiKey::ListConfigResources => vec![probe(1, ListConfigResourcesRequest::default())],
        ApiKey::AddRaftVoter => {
            vec![probe(0, AddRaftVoterRequest { voter_id: 77, ..Default::default() })]
        }
        ApiKey::RemoveRaftVoter => {
            vec![probe(0, RemoveRaftVoterRequest { voter_id: 77, ..Default::default() })]
        }
        _ => Vec::new(),
    }
}
