//! DeleteRecords (key 21), versions 0 to 2 (2 is flexible): moves the start of partitions forward, so that what lies
//! before it is gone.
//!
//! An offset of -1 stands for the high watermark. The answer is the low watermark: the lowest start among the replicas.
//! Refused: internal topics (INVALID_TOPIC_EXCEPTION), topics that are compacted and not deleted (POLICY_VIOLATION), and
//! offsets beyond the high watermark (OFFSET_OUT_OF_RANGE).
//!
//! Departure: the new starts are on the medium before the answer; in Kafka a crash within a minute brings deleted records
//! back. Replicas elsewhere are not waited for, since replication is not served yet: the low watermark is this log's start.

use super::Call;
use crate::broker::Broker;
use std::sync::Arc;
use thalweg_metadata::topic_name;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::delete_records_request::DeleteRecordsPartition;
use thalweg_wire::request::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use thalweg_wire::request::{DeleteRecordsRequest, DeleteRecordsResponse};

/// The low watermark of a partition that was refused.
const NO_LOW_WATERMARK: i64 = -1;

/// Deletes, where blocking is welcome: files are renamed and a checkpoint is written.
pub async fn handle(
    broker: Arc<Broker>,
    _: Arc<Call>,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let deleted = tokio::task::spawn_blocking(move || delete(&broker, request));
    deleted.await.expect("deleting records does not panic")
}

fn delete(broker: &Broker, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
    let topics = request.topics.into_iter().map(|topic| DeleteRecordsTopicResult {
        partitions: topic.partitions.iter().map(|partition| answer(broker, &topic.name, partition)).collect(),
        name: topic.name,
    });
    let response = DeleteRecordsResponse { throttle_time_ms: 0, topics: topics.collect() };
    let moved = |partition: &DeleteRecordsPartitionResult| partition.error_code == ErrorCode::None.code();
    if response.topics.iter().flat_map(|topic| &topic.partitions).any(moved) {
        broker.log_dirs.checkpoint_log_starts();
    }
    response
}

fn answer(broker: &Broker, topic: &str, asked: &DeleteRecordsPartition) -> DeleteRecordsPartitionResult {
    let index = asked.partition_index;
    let (error, low_watermark) = match delete_before(broker, topic, index, asked.offset) {
        Ok(low_watermark) => (ErrorCode::None, low_watermark),
        Err(error) => (error, NO_LOW_WATERMARK),
    };
    DeleteRecordsPartitionResult { partition_index: index, low_watermark, error_code: error.code() }
}

fn delete_before(broker: &Broker, topic: &str, index: i32, offset: i64) -> Result<i64, ErrorCode> {
    if broker.image().partition(topic, index).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    if topic_name::is_internal(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = broker.partitions.get(topic, index).ok_or(ErrorCode::NotLeaderOrFollower)?;
    let start = partition.delete_records(offset)?;
    tracing::debug!(?partition, log_start_offset = start.0, "Records are deleted");
    Ok(start.0)
}
