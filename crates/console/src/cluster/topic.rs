//! One topic: its partitions, and changes to the topic.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thalweg_client::{
    ClientError, Election, NewTopic, OffsetSpec, RefusedRequest, ReplicaBytes, TopicPartition,
};
use thalweg_wire::ErrorCode;
use utoipa::ToSchema;

use super::{BROKER_RETRY, BROKER_WAIT, View};
use crate::problem::Problem;

/// Maximum partitions in a form, as a guard against typing errors.
const PARTITIONS_MAX: i32 = 100_000;

/// The details of one topic.
#[derive(Debug, Serialize, ToSchema)]
pub struct Topic {
    /// The topic name.
    pub name: String,
    /// The topic id in Kafka's base64 form.
    pub id: String,
    /// True for an internal topic of the cluster.
    pub is_internal: bool,
    /// Offsets between start and end of all partitions. Compaction may have removed some of the records.
    pub records: i64,
    /// Bytes of all replicas, if the login may read the log directories.
    pub bytes: Option<u64>,
    /// The partitions of the topic.
    pub partitions: Vec<Partition>,
}

/// The details of one partition.
#[derive(Debug, Serialize, ToSchema)]
pub struct Partition {
    /// The partition index.
    pub index: i32,
    /// Node id of the leader, if any.
    pub leader: Option<i32>,
    /// The leader epoch.
    pub leader_epoch: i32,
    /// Node ids of the replicas, preferred leader first.
    pub replicas: Vec<i32>,
    /// Node ids of the in-sync replicas.
    pub in_sync: Vec<i32>,
    /// The log start offset.
    pub start: Option<i64>,
    /// The log end offset.
    pub end: Option<i64>,
    /// Bytes of the replica on the leader.
    pub bytes: Option<u64>,
}

/// A topic to create.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TopicCreation {
    /// The topic name.
    pub name: String,
    /// Number of partitions. Default: the cluster's.
    pub partitions: Option<i32>,
    /// Replication factor. Default: the cluster's.
    pub replicas: Option<i16>,
    /// Topic configuration, by property name.
    pub configuration: BTreeMap<String, String>,
}

/// Reads the partitions, offsets and sizes of a topic.
pub async fn read(view: &View, name: &str) -> Result<Topic, ClientError> {
    let metadata = view.cluster().refresh(&[name.to_owned()], false).await?;
    let missing = |error_code| RefusedRequest { what: format!("Topic {name}"), error_code, message: None };
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
        view.list_offsets(&earliest),
        view.list_offsets(&latest),
        sizes(view, name, topic.partitions.len()),
    );
    let partitions = topic.partitions.iter().map(|partition| {
        let at = TopicPartition::new(name, partition.index);
        let offset = |found: &BTreeMap<TopicPartition, Result<thalweg_client::ListedOffset, ClientError>>| {
            Some(found.get(&at)?.as_ref().ok()?.offset.0)
        };
        let (start, end) = (offset(&starts), offset(&ends));
        Partition {
            index: partition.index,
            leader: partition.leader,
            leader_epoch: partition.leader_epoch.0,
            replicas: partition.replicas.clone(),
            in_sync: partition.isr.clone(),
            start,
            end,
            bytes: partition
                .leader
                .and_then(|leader| sizes.get(&(at, leader)).map(|bytes| bytes.unsigned_abs())),
        }
    });
    let partitions: Vec<Partition> = partitions.collect();
    let records = partitions.iter().filter_map(|partition| Some(partition.end? - partition.start?)).sum();
    Ok(Topic {
        name: name.to_owned(),
        id: topic.id.to_string(),
        is_internal: topic.internal,
        records,
        bytes: (!sizes.is_empty()).then(|| sizes.values().map(|bytes| bytes.unsigned_abs()).sum()),
        partitions,
    })
}

/// Bytes of each replica, by partition and broker. Empty if the login may not read the log directories.
async fn sizes(view: &View, name: &str, partitions: usize) -> ReplicaBytes {
    let topic: Arc<str> = name.into();
    let partitions = 0..i32::try_from(partitions).unwrap_or(i32::MAX);
    let partitions: Vec<_> = partitions.map(|index| TopicPartition::new(Arc::clone(&topic), index)).collect();
    let admin = view.admin().clone().with_timeout(BROKER_RETRY).with_answer_limit(BROKER_WAIT);
    admin.replica_bytes(Some(&partitions)).await.unwrap_or_default()
}

/// A leader election.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeaderElection {
    /// Partition indexes; all if empty.
    pub partitions: Vec<i32>,
    /// Elects out-of-sync replicas if all in-sync replicas are gone. Acknowledged records may be lost.
    pub unclean: bool,
}

/// Elects leaders. Returns the number of partitions with a new leader; other partitions needed no election.
pub async fn elect(view: &View, name: &str, election: &LeaderElection) -> Result<usize, Problem> {
    let found = view.topic_metadata(name).await?;
    let wanted = |index: &i32| election.partitions.is_empty() || election.partitions.contains(index);
    let partitions: Vec<TopicPartition> = found
        .partitions
        .iter()
        .filter(|partition| wanted(&partition.index))
        .map(|partition| TopicPartition::new(name, partition.index))
        .collect();
    if let Some(missing) =
        election.partitions.iter().find(|index| !partitions.iter().any(|at| at.partition == **index))
    {
        return Err(Problem::missing(format!("{name} has no partition {missing}")));
    }
    let kind = if election.unclean { Election::Unclean } else { Election::Preferred };
    let (mut elected, mut refused) = (0, None);
    for outcome in view.admin().elect_leaders(kind, Some(&partitions)).await?.into_values() {
        match outcome {
            Ok(()) => elected += 1,
            Err(error) if error.error_code() == Some(ErrorCode::ElectionNotNeeded) => {}
            Err(error) => refused = Some(error),
        }
    }
    view.forget().await;
    match refused {
        Some(error) if elected == 0 => Err(error.into()),
        Some(error) => {
            let problem = Problem::from(error);
            let message = format!("{elected} leaders were elected, but not all: {}", problem.message);
            Err(Problem { message, ..problem })
        }
        None => Ok(elected),
    }
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

/// Adds partitions up to this total.
pub async fn grow(view: &View, name: &str, partitions: i32) -> Result<(), Problem> {
    if !(1..=PARTITIONS_MAX).contains(&partitions) {
        return Err(Problem::wrong(format!("A topic has from 1 to {PARTITIONS_MAX} partitions")));
    }
    let outcomes = view.admin().create_partitions(&BTreeMap::from([(name.to_owned(), partitions)])).await?;
    outcomes.into_values().collect::<Result<(), ClientError>>()?;
    view.forget().await;
    Ok(())
}
