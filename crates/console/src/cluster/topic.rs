//! One topic: its partitions, and changes of it.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use thalweg_client::{ClientError, NewTopic, OffsetSpec, Refused, TopicPartition};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::DescribeLogDirsRequest;
use thalweg_wire::request::describe_log_dirs_request::DescribableLogDirTopic;
use utoipa::ToSchema;

use super::{View, ask_each};
use crate::problem::Problem;

/// The most partitions that a form may ask for: a slip of the finger should not make a million.
const PARTITIONS_MAX: i32 = 100_000;

/// A topic.
#[derive(Debug, Serialize, ToSchema)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its id, as Kafka writes it.
    pub id: String,
    /// Whether it is one of the cluster's own.
    pub is_internal: bool,
    /// Records between the start and the end of all partitions; compaction may have removed some.
    pub records: i64,
    /// Bytes over all replicas, if the log directories may be read.
    pub bytes: Option<u64>,
    /// Its partitions.
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Debug, Serialize, ToSchema)]
pub struct Partition {
    /// Its index.
    pub index: i32,
    /// The broker that leads it.
    pub leader: Option<i32>,
    /// The leader's epoch.
    pub leader_epoch: i32,
    /// The brokers that hold it, the preferred leader first.
    pub replicas: Vec<i32>,
    /// Those of them that are in sync.
    pub in_sync: Vec<i32>,
    /// The log start offset.
    pub start: Option<i64>,
    /// The offset of the next record.
    pub end: Option<i64>,
    /// Bytes of the leader's replica.
    pub bytes: Option<u64>,
}

/// A topic to create.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TopicCreation {
    /// Its name.
    pub name: String,
    /// The number of its partitions; the cluster's default if it is left out.
    pub partitions: Option<i32>,
    /// The number of replicas; the cluster's default if it is left out.
    pub replicas: Option<i16>,
    /// Its configuration.
    pub configuration: BTreeMap<String, String>,
}

/// Reads a topic.
pub async fn read(view: &View, name: &str) -> Result<Topic, ClientError> {
    let metadata = view.cluster().refresh(&[name.to_owned()], false).await?;
    let missing = |error_code| Refused { what: format!("Topic {name}"), error_code, message: None };
    let topic = metadata.topics.get(name).ok_or_else(|| missing(ErrorCode::UnknownTopicOrPartition))?;
    if let Some(error_code) = topic.error {
        return Err(missing(error_code).into());
    }
    let all = |spec| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| (TopicPartition::new(name, partition.index), spec)).collect::<Vec<_>>()
    };
    let (earliest, latest) = (all(OffsetSpec::Earliest), all(OffsetSpec::Latest));
    let (starts, ends, sizes) = tokio::join!(
        view.cluster().list_offsets(&earliest, false),
        view.cluster().list_offsets(&latest, false),
        sizes(view, name, metadata.brokers.keys().copied(), topic.partitions.len()),
    );
    let partitions = topic.partitions.iter().map(|partition| {
        let at = TopicPartition::new(name, partition.index);
        let offset = |found: &BTreeMap<TopicPartition, Result<thalweg_client::ListedOffset, ClientError>>| {
            Some(found.get(&at)?.as_ref().ok()?.offset.0)
        };
        Partition {
            index: partition.index,
            leader: partition.leader,
            leader_epoch: partition.leader_epoch.0,
            replicas: partition.replicas.clone(),
            in_sync: partition.isr.clone(),
            start: offset(&starts),
            end: offset(&ends),
            bytes: partition.leader.and_then(|leader| sizes.get(&(partition.index, leader)).copied()),
        }
    });
    let partitions: Vec<Partition> = partitions.collect();
    let records = partitions.iter().filter_map(|partition| Some(partition.end? - partition.start?)).sum();
    Ok(Topic {
        name: name.to_owned(),
        id: topic.id.to_string(),
        is_internal: topic.internal,
        records,
        bytes: (!sizes.is_empty()).then(|| sizes.values().sum()),
        partitions,
    })
}

/// The bytes of each replica, by partition and broker.
async fn sizes(
    view: &View,
    name: &str,
    brokers: impl Iterator<Item = i32>,
    partitions: usize,
) -> HashMap<(i32, i32), u64> {
    let topic = DescribableLogDirTopic {
        topic: name.to_owned(),
        partitions: (0..i32::try_from(partitions).unwrap_or(i32::MAX)).collect(),
    };
    let requests: Vec<_> =
        brokers.map(|id| (id, DescribeLogDirsRequest { topics: Some(vec![topic.clone()]) })).collect();
    let mut sizes = HashMap::new();
    for (broker, answer) in ask_each(view.cluster(), requests).await {
        let Ok(answer) = answer else { continue };
        let topics = answer.results.into_iter().flat_map(|directory| directory.topics);
        for partition in topics.flat_map(|topic| topic.partitions) {
            // A replica that moves to another directory is there twice.
            if !partition.is_future_key {
                let bytes = u64::try_from(partition.partition_size).unwrap_or(0);
                sizes.insert((partition.partition_index, broker), bytes);
            }
        }
    }
    sizes
}

/// Creates a topic.
pub async fn create(view: &View, creation: TopicCreation) -> Result<(), Problem> {
    if creation.name.is_empty() {
        return Err(Problem::wrong("The topic needs a name: letters, digits, dots, underscores and hyphens"));
    }
    if creation.partitions.is_some_and(|partitions| !(1..=PARTITIONS_MAX).contains(&partitions)) {
        return Err(Problem::wrong(format!("A topic has from 1 to {PARTITIONS_MAX} partitions")));
    }
    if creation.replicas.is_some_and(|replicas| replicas < 1) {
        return Err(Problem::wrong("A topic has at least one replica"));
    }
    let topic = NewTopic {
        name: creation.name,
        partitions: creation.partitions,
        replication_factor: creation.replicas,
        replicas: Vec::new(),
        configs: creation.configuration,
    };
    let outcomes = view.admin().create_topics(&[topic], false).await?;
    outcomes.into_values().collect::<Result<Vec<_>, ClientError>>()?;
    view.forget().await;
    Ok(())
}

/// Deletes a topic.
pub async fn delete(view: &View, name: &str) -> Result<(), ClientError> {
    let outcomes = view.admin().delete_topics(&[name.to_owned()]).await?;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    view.forget().await;
    Ok(())
}

/// Adds partitions, up to this number.
pub async fn grow(view: &View, name: &str, partitions: i32) -> Result<(), Problem> {
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        return Err(Problem::wrong(format!("A topic has from 1 to {PARTITIONS_MAX} partitions")));
    }
    let outcomes = view.admin().create_partitions(&BTreeMap::from([(name.to_owned(), partitions)])).await?;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    view.forget().await;
    Ok(())
}
