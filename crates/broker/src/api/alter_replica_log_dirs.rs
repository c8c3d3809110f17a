//! AlterReplicaLogDirs (key 34), versions 1 and 2 (2 is flexible): moves replicas of this broker to other
//! data directories (KIP-113).
//!
//! The answer confirms the start of a move; DescribeLogDirs shows its progress. A request for the replica's
//! current directory cancels a move, a request for a third directory replaces the move. A replica that is not
//! here yet is refused (REPLICA_NOT_AVAILABLE), and later created in that directory. Also refused: unknown
//! partitions (UNKNOWN_TOPIC_OR_PARTITION), directories that are not in `log.dirs` (LOG_DIR_NOT_FOUND) or
//! offline (KAFKA_STORAGE_ERROR, also while another directory is: a second copy may lie in it), and topics
//! whose names are too long for the directory of a copy (INVALID_TOPIC_EXCEPTION). If a request names a
//! partition twice, the last directory counts.

use super::Call;
use super::entry::{Api, cluster, later};
use crate::audit::{Changes, ClusterChange, by_name, numbers, worst};
use crate::broker::Broker;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use thalweg_audit::Action;
use thalweg_log::{TopicPartition, Uuid};
use thalweg_metadata::PartitionIndex;
use thalweg_metadata::topic_name;
use thalweg_security::acl::Operation;
use thalweg_wire::request::alter_replica_log_dirs_request::AlterReplicaLogDir;
use thalweg_wire::request::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use thalweg_wire::request::{AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(
    ApiKey::AlterReplicaLogDirs,
    1..=2,
    cluster::<AlterReplicaLogDirsRequest>(&[Operation::Alter]),
    |b, c, d| later(b, c, d, handle),
)
.changing::<AlterReplicaLogDirsRequest>();

/// Starts the moves.
pub async fn handle(
    broker: Arc<Broker>,
    _: Arc<Call>,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    // Directories are created, and abandoned copies renamed.
    let disk = broker.log_dirs.disk().clone();
    let work = disk.spawn(move || begin_all(&broker, request.dirs));
    let result = |(index, outcome): (PartitionIndex, Result<(), ErrorCode>)| {
        let error_code = outcome.err().unwrap_or(ErrorCode::None).code();
        AlterReplicaLogDirPartitionResult { partition_index: index.0, error_code }
    };
    let begun = work.await.expect("beginning moves does not panic").into_iter();
    let results = begun.map(|(topic_name, outcomes)| AlterReplicaLogDirTopicResult {
        topic_name,
        partitions: outcomes.into_iter().map(result).collect(),
    });
    let results = results.collect();
    AlterReplicaLogDirsResponse { throttle_time_ms: 0, results }
}

type Outcome = (String, Vec<(PartitionIndex, Result<(), ErrorCode>)>);

fn begin_all(broker: &Broker, dirs: Vec<AlterReplicaLogDir>) -> Vec<Outcome> {
    let mut requested: BTreeMap<String, BTreeMap<PartitionIndex, Arc<str>>> = BTreeMap::new();
    for dir in dirs {
        let path: Arc<str> = dir.path.into();
        for topic in dir.topics {
            let partitions =
                topic.partitions.into_iter().map(|index| (PartitionIndex(index), Arc::clone(&path)));
            requested.entry(topic.name).or_default().extend(partitions);
        }
    }
    let begin_topic = |(topic, partitions): (String, BTreeMap<PartitionIndex, Arc<str>>)| {
        // A name that is too long for a topic is not copied for each partition.
        let has_room = |index: PartitionIndex| {
            topic.len() <= topic_name::LENGTH_MAX && TopicPartition::new(&topic, index.0).can_move()
        };
        let outcome = |(index, path): (PartitionIndex, Arc<str>)| match has_room(index) {
            true => (index, begin(broker, &topic, index, Path::new(&*path))),
            false => (index, Err(ErrorCode::InvalidTopicException)),
        };
        let outcomes = partitions.into_iter().map(outcome).collect();
        (topic, outcomes)
    };
    requested.into_iter().map(begin_topic).collect()
}

fn begin(broker: &Broker, topic: &str, index: PartitionIndex, path: &Path) -> Result<(), ErrorCode> {
    let directory = match broker.log_dirs.directory_at(path) {
        None => return Err(ErrorCode::LogDirNotFound),
        Some((Some(directory), true)) => directory,
        Some(_) => return Err(ErrorCode::KafkaStorageError),
    };
    let Some(partition) = broker.partitions.get(topic, index) else {
        return Err(not_here(broker, topic, index, directory));
    };
    let lies_there = partition.with_log(|log| log.directory_id()) == Some(directory);
    if !lies_there && !broker.log_dirs.are_complete() {
        return Err(ErrorCode::KafkaStorageError);
    }
    broker.replication.begin_move(&partition, directory).map_err(|error| {
        tracing::error!(?partition, path = %path.display(), %error, "Failed to start moving a partition to another log directory");
        ErrorCode::KafkaStorageError
    })
}

fn not_here(broker: &Broker, topic: &str, index: PartitionIndex, directory: Uuid) -> ErrorCode {
    let image = broker.image();
    let (Some(known), Some(registered)) = (image.topic(topic), image.partition(topic, index)) else {
        return ErrorCode::UnknownTopicOrPartition;
    };
    if registered.replicas.contains(&broker.node_id) && !broker.log_dirs.are_complete() {
        // The replica may be in the offline directory.
        return ErrorCode::KafkaStorageError;
    }
    broker.replication.moves.prefer(known.id, index, directory, &image);
    ErrorCode::ReplicaNotAvailable
}

impl ClusterChange for AlterReplicaLogDirsRequest {
    fn describe(&self, answer: &AlterReplicaLogDirsResponse, changes: &mut Changes<'_>) {
        let ended = by_name(&answer.results, |topic| &topic.topic_name);
        for dir in &self.dirs {
            for topic in &dir.topics {
                let detail =
                    format!("log.dir={} partitions={}", dir.path, numbers(topic.partitions.iter().copied()));
                let ended = ended.get(&*topic.name).into_iter().flat_map(|topic| &topic.partitions);
                let codes: BTreeMap<i32, i16> = ended.map(|p| (p.partition_index, p.error_code)).collect();
                let ending = worst(
                    topic.partitions.iter().map(|index| (codes.get(index).copied().unwrap_or(0), None)),
                );
                changes.note(Action::Update, "Topic", &topic.name, detail, ending);
            }
        }
    }
}
