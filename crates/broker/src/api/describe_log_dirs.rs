//! DescribeLogDirs (key 35), versions 1 to 5: the data directories, their partitions, and the sizes of both.
//!
//! Null topics mean all partitions, an empty list none. Version 2 is flexible, 3 has a separate error, 4 adds
//! the size and the free space of the volume (KIP-827), 5 whether the directory takes no new partitions
//! (KIP-1066): directories cannot be cordoned here. A copy that will replace a partition in another directory
//! is a future log, with its lag.

use super::entry::{Api, Cost, cluster, now};
use std::collections::BTreeMap;
use std::path::Path;
use thalweg_hash::{HashMap, HashSet};
use thalweg_log::{DirDescription, LogDirs, PartitionDescription, PublishedOffsets};
use thalweg_metadata::PartitionIndex;
use thalweg_replica::partition::Partitions;
use thalweg_security::acl::Operation;
use thalweg_wire::request::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use thalweg_wire::request::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use thalweg_wire::{ApiKey, ErrorCode};

pub(super) const API: Api = Api::new(
    ApiKey::DescribeLogDirs,
    1..=5,
    cluster::<DescribeLogDirsRequest>(&[Operation::Describe]),
    |b, c, d| now(b, c, d, |b, _, r| handle(&b.log_dirs, &b.partitions, r)),
)
.cost(Cost::Always);

/// A size that is not known.
const UNKNOWN_BYTES: i64 = -1;
/// The lag of a partition that is not open here.
const UNKNOWN_LAG: i64 = -1;

/// The requested partitions; `None` means all.
type RequestedPartitions = Option<HashMap<String, HashSet<i32>>>;

/// Describes every directory.
pub fn handle(
    log_dirs: &LogDirs,
    partitions: &Partitions,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let requested: RequestedPartitions = request.topics.map(|topics| {
        let mut requested: HashMap<String, HashSet<i32>> = HashMap::default();
        for topic in topics {
            requested.entry(topic.topic).or_default().extend(topic.partitions);
        }
        requested
    });
    let open = log_dirs.describe();
    let failed = log_dirs.failed().iter().map(|dir| offline(&dir.path));
    let results = open.iter().map(|dir| match &dir.offline {
        Some(_) => offline(&dir.path),
        None => online(partitions, dir, &requested),
    });
    DescribeLogDirsResponse { throttle_time_ms: 0, error_code: 0, results: results.chain(failed).collect() }
}

fn offline(path: &Path) -> DescribeLogDirsResult {
    DescribeLogDirsResult {
        error_code: ErrorCode::KafkaStorageError.code(),
        log_dir: absolute(path),
        ..Default::default()
    }
}

fn online(
    partitions: &Partitions,
    dir: &DirDescription,
    requested: &RequestedPartitions,
) -> DescribeLogDirsResult {
    let mut topics: BTreeMap<&str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for found in &dir.partitions {
        let is_requested = |requested: &HashMap<String, HashSet<i32>>| {
            requested
                .get(&*found.name.topic)
                .is_some_and(|requested| requested.contains(&found.name.partition))
        };
        if requested.as_ref().is_none_or(is_requested) {
            topics.entry(&*found.name.topic).or_default().push(describe(partitions, found));
        }
    }
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let (total_bytes, usable_bytes) =
        dir.space.map_or((UNKNOWN_BYTES, UNKNOWN_BYTES), |(total, usable)| (bytes(total), bytes(usable)));
    let topics = topics.into_iter().map(|(name, mut partitions)| {
        partitions.sort_unstable_by_key(|partition| partition.partition_index);
        DescribeLogDirsTopic { name: name.to_owned(), partitions }
    });
    DescribeLogDirsResult {
        error_code: 0,
        log_dir: absolute(&dir.path),
        topics: topics.collect(),
        total_bytes,
        usable_bytes,
        is_cordoned: false,
    }
}

fn describe(partitions: &Partitions, found: &PartitionDescription) -> DescribeLogDirsPartition {
    let PartitionDescription { name, offsets, is_future } = found;
    let open =
        partitions.get(&name.topic, PartitionIndex(name.partition)).map(|open| open.published_offsets());
    let behind = |open: &PublishedOffsets| {
        let end = if *is_future { open.log_end_offset() } else { offsets.high_watermark() };
        end.0.saturating_sub(offsets.log_end_offset().0).max(0)
    };
    DescribeLogDirsPartition {
        partition_index: name.partition,
        partition_size: i64::try_from(offsets.size_bytes()).unwrap_or(i64::MAX),
        offset_lag: open.as_deref().map_or(UNKNOWN_LAG, behind),
        is_future_key: *is_future,
    }
}

/// The path as Kafka shows it: from the root, without links resolved.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}
