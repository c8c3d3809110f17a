//! DeleteRecords (key 21), versions 0 to 2 (2 is flexible): moves the log start offset of partitions forward,
//! and so deletes earlier records.
//!
//! An offset of -1 means the high watermark. The answer is the low watermark: the lowest start among the
//! replicas. Refused: internal topics (INVALID_TOPIC_EXCEPTION), topics that are compacted and not deleted
//! (POLICY_VIOLATION), and offsets beyond the high watermark (OFFSET_OUT_OF_RANGE). Where the new start
//! cannot be written, as on a full disk, the answer is KAFKA_STORAGE_ERROR.
//!
//! The answer waits until every replica that is alive has dropped the records (REQUEST_TIMED_OUT if that
//! takes too long).
//!
//! Departure: the new starts are on the medium before the answer; in Kafka a crash within a minute brings
//! deleted records back.

use super::Call;
use super::entry::{Api, ByResource, later};
use crate::audit::{Changes, ClusterChange, by_name, worst};
use crate::authorization::Permissions;
use std::sync::Arc;
use std::time::Duration;
use thalweg_audit::Action;
use thalweg_log::LogDirs;
use thalweg_metadata::topic_name;
use thalweg_metadata::{Image, ImageCell, PartitionIndex};
use thalweg_net::answer_parts::merge;
use thalweg_record::{LeaderEpoch, Offset};
use thalweg_replica::partition::{DeleteError, Partition, Partitions};
use thalweg_security::acl::{Operation, ResourceType};
use thalweg_wire::request::delete_records_request::DeleteRecordsTopic;
use thalweg_wire::request::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use thalweg_wire::request::{DeleteRecordsRequest, DeleteRecordsResponse};
use thalweg_wire::{ApiKey, ErrorCode};
use tokio::time::Instant;

pub(super) const API: Api = Api::new(ApiKey::DeleteRecords, 0..=2, ByResource, |b, c, d| {
    later(b, c, d, async |b, c, r| handle(&b.log_dirs, &b.partitions, b.images(), c, r).await)
})
.changing::<DeleteRecordsRequest>();

/// The low watermark of a partition that was refused.
const NO_LOW_WATERMARK: i64 = -1;

/// Deletions done here, which other replicas must complete before the answer.
struct LocalDeletion {
    partition: Arc<Partition>,
    log_start: Offset,
    epoch: LeaderEpoch,
}

/// Deletes, and waits for the followers.
pub async fn handle(
    log_dirs: &Arc<LogDirs>,
    partitions: &Arc<Partitions>,
    images: &Arc<ImageCell>,
    call: Arc<Call>,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let deadline = Instant::now() + Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    // Renaming files and writing a checkpoint may block.
    let disk = log_dirs.disk().clone();
    let (log_dirs, partitions) = (Arc::clone(log_dirs), Arc::clone(partitions));
    let images = Arc::clone(images);
    let deleted =
        disk.spawn(move || delete(&log_dirs, &partitions, &images.get(), &call.permissions, request));
    let mut topics = Vec::new();
    for (name, partitions) in deleted.await.expect("deleting records does not panic") {
        let mut results = Vec::with_capacity(partitions.len());
        for (index, deleted) in partitions {
            results.push(answer(index, deleted, deadline).await);
        }
        topics.push(DeleteRecordsTopicResult { name, partitions: results });
    }
    DeleteRecordsResponse { throttle_time_ms: 0, topics }
}

type Outcomes = Vec<(String, Vec<(PartitionIndex, Result<LocalDeletion, ErrorCode>)>)>;

fn delete(
    log_dirs: &LogDirs,
    partitions: &Partitions,
    image: &Image,
    permissions: &Permissions,
    request: DeleteRecordsRequest,
) -> Outcomes {
    let mut outcomes = Vec::with_capacity(request.topics.len());
    let mut moved = false;
    for topic in each_once(request.topics) {
        let may_delete = permissions.may(Operation::Delete, ResourceType::Topic, &topic.name);
        let deleted: Vec<_> = topic
            .partitions
            .iter()
            .map(|requested| {
                let index = PartitionIndex(requested.partition_index);
                let deleted = match may_delete {
                    true => delete_before(partitions, image, &topic.name, index, requested.offset),
                    false => Err(ErrorCode::TopicAuthorizationFailed),
                };
                (index, deleted)
            })
            .collect();
        moved |= deleted.iter().any(|(_, deleted)| deleted.is_ok());
        outcomes.push((topic.name, deleted));
    }
    if moved {
        // After a crash, deleted records are back unless the new log start is on the medium. The client may
        // retry.
        let written = log_dirs.checkpoint_log_starts();
        outcomes.iter_mut().flat_map(|(_, partitions)| partitions).for_each(|(_, deleted)| {
            if deleted.as_ref().is_ok_and(|deleted| !deleted.partition.lies_in(&written)) {
                *deleted = Err(ErrorCode::KafkaStorageError);
            }
        });
    }
    outcomes
}

/// As in Kafka: a repeated partition is processed once, with the last offset.
fn each_once(named: Vec<DeleteRecordsTopic>) -> Vec<DeleteRecordsTopic> {
    let mut topics = Vec::new();
    let name = |topic: &DeleteRecordsTopic| topic.name.clone();
    merge(&mut topics, named, name, |first, again| first.partitions.extend(again.partitions));
    for topic in &mut topics {
        let partitions = std::mem::take(&mut topic.partitions);
        merge(
            &mut topic.partitions,
            partitions,
            |requested| requested.partition_index,
            |first, again| *first = again,
        );
    }
    topics
}

async fn answer(
    index: PartitionIndex,
    deleted: Result<LocalDeletion, ErrorCode>,
    deadline: Instant,
) -> DeleteRecordsPartitionResult {
    let low_watermark = match deleted {
        Ok(LocalDeletion { partition, log_start, epoch }) => {
            partition.dropped_before(log_start, epoch, deadline).await.map_err(DeleteError::code)
        }
        Err(error) => Err(error),
    };
    let (error, low_watermark) = match low_watermark {
        Ok(low_watermark) => (ErrorCode::None, low_watermark.0),
        Err(error) => (error, NO_LOW_WATERMARK),
    };
    DeleteRecordsPartitionResult { partition_index: index.0, low_watermark, error_code: error.code() }
}

fn delete_before(
    partitions: &Partitions,
    image: &Image,
    topic: &str,
    index: PartitionIndex,
    offset: i64,
) -> Result<LocalDeletion, ErrorCode> {
    if image.partition(topic, index).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    if topic_name::is_internal(topic) {
        return Err(ErrorCode::InvalidTopicException);
    }
    let partition = partitions.get(topic, index).ok_or(ErrorCode::NotLeaderOrFollower)?;
    let (log_start, epoch) = partition.delete_records(offset).map_err(DeleteError::code)?;
    tracing::debug!(?partition, log_start_offset = log_start.0, "Deleted records");
    Ok(LocalDeletion { partition, log_start, epoch })
}

impl ClusterChange for DeleteRecordsRequest {
    fn describe(&self, answer: &DeleteRecordsResponse, changes: &mut Changes<'_>) {
        let ended = by_name(&answer.topics, |topic| &topic.name);
        for topic in &self.topics {
            let partitions = topic.partitions.iter().take(100);
            let before: Vec<_> = partitions.map(|p| format!("{}:{}", p.partition_index, p.offset)).collect();
            let ended = ended.get(&*topic.name).into_iter().flat_map(|topic| &topic.partitions);
            let ending = worst(ended.map(|partition| (partition.error_code, None)));
            changes.note(
                Action::Update,
                "Topic",
                &topic.name,
                format!("delete.records.before={}", before.join(",")),
                ending,
            );
        }
    }
}
