//! The brokers' view of the partitions: offsets of leaders and replicas, bytes on disk, in-sync replicas.
//!
//! The leader reports log start offset and high watermark. Each replica's broker reports the end of its log,
//! as to Kafka's debugging consumer (ListOffsets with replica id -2), and its size (DescribeLogDirs).

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_client::{Cluster, Metadata, OffsetSpec, TopicPartition};
use thalweg_wire::ErrorCode;
use thalweg_wire::list_offsets::LATEST_TIMESTAMP;
use thalweg_wire::request::describe_log_dirs_request::DescribableLogDirTopic;
use thalweg_wire::request::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use thalweg_wire::request::{DescribeLogDirsRequest, ListOffsetsRequest};
use tokio::time::Instant;

use super::{Claim, EvidenceError};
use crate::result::{PartitionEvidence, ReplicaEvidence};

/// Maximum time for replicas to reach the leader's end.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time without a change after which waiting is pointless.
const STILL: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(200);
/// Kafka's replica id for asking any replica for its own end offset.
const DEBUGGING_CONSUMER: i32 = -2;
/// A value that the broker does not report.
pub(super) const UNKNOWN: i64 = -1;

/// Records of a partition.
pub(super) fn records(partition: &PartitionEvidence) -> u64 {
    u64::try_from(partition.end_offset - partition.start_offset).unwrap_or(0)
}

/// The smallest number of in-sync replicas.
pub(super) fn in_sync_min(partitions: &[PartitionEvidence]) -> u32 {
    let in_sync = |partition: &PartitionEvidence| partition.replicas.iter().filter(|r| r.in_sync).count();
    u32::try_from(partitions.iter().map(in_sync).min().unwrap_or(0)).unwrap_or(u32::MAX)
}

/// True if all replicas of each partition are equal.
pub(super) fn agree(partition: &PartitionEvidence) -> bool {
    partition.replicas.iter().all(|replica| {
        replica.in_sync
            && replica.end_offset == partition.end_offset
            && replica.bytes == partition.replicas[0].bytes
    })
}

/// The partitions, once all replicas agree and contain the acknowledged records, or their state at the time
/// limit.
pub(super) async fn await_agreement(claim: &Claim<'_>) -> Result<Vec<PartitionEvidence>, EvidenceError> {
    let begun = Instant::now();
    let mut last = look(claim.cluster, claim.topics).await;
    let mut changed_at = begun;
    loop {
        let is_complete = last.as_ref().is_ok_and(|found| {
            found.iter().all(agree) && found.iter().map(records).sum::<u64>() >= claim.acknowledged()
        });
        if is_complete
            || begun.elapsed() >= AGREEMENT_TIMEOUT
            || (last.is_ok() && changed_at.elapsed() >= STILL)
        {
            return last;
        }
        tokio::time::sleep(PAUSE).await;
        let found = look(claim.cluster, claim.topics).await;
        if !matches!((&last, &found), (Ok(last), Ok(found)) if last == found) {
            changed_at = Instant::now();
        }
        last = found;
    }
}

async fn look(cluster: &Cluster, topics: &[String]) -> Result<Vec<PartitionEvidence>, EvidenceError> {
    let metadata = cluster.refresh(topics, false).await?;
    let known: Vec<TopicPartition> = partitions(&metadata, topics);
    let wanted = |spec| known.iter().map(|at| (at.clone(), spec)).collect::<Vec<_>>();
    let mut starts = cluster.list_offsets(&wanted(OffsetSpec::Earliest), false).await;
    let mut ends = cluster.list_offsets(&wanted(OffsetSpec::Latest), false).await;
    let mut replicas = BTreeMap::new();
    for broker in hosts(&metadata, topics) {
        // A broker that does not answer leaves its replicas unknown, which is reported.
        match of_broker(cluster, &metadata, topics, broker).await {
            Ok(found) => drop(replicas.insert(broker, found)),
            Err(error) => tracing::debug!(broker, %error, "Failed to describe a broker's replicas"),
        }
    }
    let mut found = Vec::with_capacity(known.len());
    for at in known {
        let Some(partition) = metadata.topics.get(&*at.topic).and_then(|topic| topic.partition(at.partition))
        else {
            continue;
        };
        let of_partition = partition.replicas.iter().map(|broker| {
            let (end_offset, bytes) = replicas
                .get(broker)
                .and_then(|of_broker: &OfBroker| of_broker.get(&at))
                .copied()
                .unwrap_or((UNKNOWN, 0));
            let in_sync = partition.isr.contains(broker);
            ReplicaEvidence { broker: *broker, end_offset, bytes, file_bytes: None, in_sync }
        });
        let offset = |found: Option<Result<thalweg_client::ListedOffset, thalweg_client::ClientError>>| {
            found.map_or(Ok(UNKNOWN), |listed| listed.map(|listed| listed.offset.0))
        };
        found.push(PartitionEvidence {
            topic: at.topic.to_string(),
            partition: at.partition,
            start_offset: offset(starts.remove(&at))?,
            end_offset: offset(ends.remove(&at))?,
            replicas: of_partition.collect(),
            ledgers: Vec::new(),
        });
    }
    Ok(found)
}

fn partitions(metadata: &Metadata, topics: &[String]) -> Vec<TopicPartition> {
    let of_topic = |name: &String| {
        let topic = metadata.topics.get(name)?;
        Some(topic.partitions.iter().map(|at| TopicPartition::new(topic.name.clone(), at.index)))
    };
    topics.iter().filter_map(of_topic).flatten().collect()
}

/// The live brokers with replicas of the topics.
fn hosts(metadata: &Metadata, topics: &[String]) -> Vec<i32> {
    let partitions = topics.iter().filter_map(|name| metadata.topics.get(name)).flat_map(|t| &t.partitions);
    let mut hosts: Vec<i32> = partitions.flat_map(|partition| partition.replicas.iter().copied()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts.retain(|broker| metadata.brokers.contains_key(broker));
    hosts
}

/// The size of each replica as its broker reports it now, by broker. Brokers that do not answer are left out.
pub(crate) async fn replica_bytes(
    cluster: &Cluster,
    topics: &[String],
) -> BTreeMap<i32, BTreeMap<TopicPartition, u64>> {
    let metadata = cluster.metadata();
    let mut found = BTreeMap::new();
    for broker in hosts(&metadata, topics) {
        let asked =
            async { sizes(&cluster.broker(broker).await?, &on_broker(&metadata, topics, broker)).await };
        match asked.await {
            Ok(of_broker) => drop(found.insert(broker, of_broker)),
            Err(error) => tracing::debug!(broker, %error, "Failed to describe a broker's log directories"),
        }
    }
    found
}

/// The partitions of each topic with a replica on a broker.
fn on_broker<'a>(metadata: &'a Metadata, topics: &[String], broker: i32) -> BTreeMap<&'a str, Vec<i32>> {
    let mut here: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for topic in topics.iter().filter_map(|name| metadata.topics.get(name)) {
        let indexes = topic.partitions.iter().filter(|partition| partition.replicas.contains(&broker));
        here.entry(&*topic.name).or_default().extend(indexes.map(|partition| partition.index));
    }
    here
}

/// The sizes of replicas on a broker.
async fn sizes(
    connection: &thalweg_client::Connection,
    here: &BTreeMap<&str, Vec<i32>>,
) -> Result<BTreeMap<TopicPartition, u64>, thalweg_client::ClientError> {
    let request = DescribeLogDirsRequest {
        topics: Some(
            here.iter()
                .map(|(topic, partitions)| DescribableLogDirTopic {
                    topic: (*topic).to_owned(),
                    partitions: partitions.clone(),
                })
                .collect(),
        ),
    };
    let mut found = BTreeMap::new();
    for dir in connection.send(&request).await?.results {
        for topic in dir.topics {
            for partition in topic.partitions.iter().filter(|partition| !partition.is_future_key) {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                found.insert(at, u64::try_from(partition.partition_size).unwrap_or(0));
            }
        }
    }
    Ok(found)
}

/// End offset and bytes of each replica on a broker.
type OfBroker = BTreeMap<TopicPartition, (i64, u64)>;

async fn of_broker(
    cluster: &Cluster,
    metadata: &Metadata,
    topics: &[String],
    broker: i32,
) -> Result<OfBroker, thalweg_client::ClientError> {
    let connection = cluster.broker(broker).await?;
    let here = on_broker(metadata, topics, broker);
    let sizes = sizes(&connection, &here).await?;
    let mut found: OfBroker = sizes.into_iter().map(|(at, bytes)| (at, (UNKNOWN, bytes))).collect();
    let request = ListOffsetsRequest {
        replica_id: DEBUGGING_CONSUMER,
        topics: here
            .into_iter()
            .map(|(name, partitions)| ListOffsetsTopic {
                name: name.to_owned(),
                partitions: partitions
                    .into_iter()
                    .map(|partition_index| ListOffsetsPartition {
                        partition_index,
                        timestamp: LATEST_TIMESTAMP,
                        ..ListOffsetsPartition::default()
                    })
                    .collect(),
            })
            .collect(),
        ..ListOffsetsRequest::default()
    };
    for topic in connection.send(&request).await?.topics {
        for partition in topic.partitions {
            if partition.error_code == ErrorCode::None.code() {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                found.entry(at).or_insert((UNKNOWN, 0)).0 = partition.offset;
            }
        }
    }
    Ok(found)
}
