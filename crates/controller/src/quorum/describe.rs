//! DescribeQuorum: the voter and the observers.

use thalweg_wire::request::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use thalweg_wire::request::{DescribeQuorumRequest, DescribeQuorumResponse};
use thalweg_wire::{ErrorCode, Uuid};

use super::MetadataLog;
use super::fetch::{Leader, Observers};
use crate::state::CLUSTER_METADATA_TOPIC;

pub(crate) fn describe_quorum(
    request: &DescribeQuorumRequest,
    log: &MetadataLog,
    observers: &mut Observers,
    leader: &Leader,
    version: i16,
    now_ms: i64,
) -> DescribeQuorumResponse {
    let is_of_the_log = match request.topics.as_slice() {
        [topic] if topic.topic_name == CLUSTER_METADATA_TOPIC => {
            matches!(topic.partitions.as_slice(), [partition] if partition.partition_index == 0)
        }
        _ => false,
    };
    if !is_of_the_log {
        return unknown(request);
    }
    let directory = |id: Uuid| if version >= 2 { id } else { Uuid::ZERO };
    let times = |ms: i64| if version >= 1 { ms } else { -1 };
    let voter = ReplicaState {
        replica_id: leader.node_id,
        replica_directory_id: directory(leader.directory_id),
        log_end_offset: log.end_offset(),
        last_fetch_timestamp: times(now_ms),
        last_caught_up_timestamp: times(now_ms),
    };
    let observers = observers.live(now_ms).map(|(replica_id, observer)| ReplicaState {
        replica_id,
        replica_directory_id: directory(observer.directory_id),
        log_end_offset: observer.log_end_offset,
        last_fetch_timestamp: times(observer.last_fetch_ms),
        last_caught_up_timestamp: times(observer.last_caught_up_ms),
    });
    let partition = PartitionData {
        partition_index: 0,
        leader_id: leader.node_id,
        leader_epoch: leader.epoch,
        high_watermark: log.high_watermark(),
        current_voters: vec![voter],
        observers: observers.collect(),
        ..PartitionData::default()
    };
    let listeners = leader.endpoints.iter().map(|endpoint| Listener {
        name: endpoint.listener.clone(),
        host: endpoint.host.clone(),
        port: endpoint.port,
    });
    let nodes = match version {
        2.. => vec![Node { node_id: leader.node_id, listeners: listeners.collect() }],
        _ => Vec::new(),
    };
    let topics =
        vec![TopicData { topic_name: CLUSTER_METADATA_TOPIC.to_owned(), partitions: vec![partition] }];
    DescribeQuorumResponse { topics, nodes, ..DescribeQuorumResponse::default() }
}

fn unknown(request: &DescribeQuorumRequest) -> DescribeQuorumResponse {
    let topics = request.topics.iter().map(|topic| TopicData {
        topic_name: topic.topic_name.clone(),
        partitions: topic
            .partitions
            .iter()
            .map(|partition| PartitionData {
                partition_index: partition.partition_index,
                error_code: ErrorCode::UnknownTopicOrPartition.code(),
                error_message: Some("This server does not host this topic-partition.".to_owned()),
                ..PartitionData::default()
            })
            .collect(),
    });
    DescribeQuorumResponse { topics: topics.collect(), ..DescribeQuorumResponse::default() }
}
