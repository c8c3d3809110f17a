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
    /// Offsets between start and end of all partitions; none if those of one are unknown. Compaction may have
    /// removed some of the records.
    pub records: Option<i64>,
    /// Bytes of all replicas; none if those of one are unknown.
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
    Ok(Topic {
        name: name.to_owned(),
        id: topic.id.to_string(),
        is_internal: topic.internal,
        records: records(&partitions),
        bytes: bytes(name, &partitions, &sizes),
        partitions,
    })
}

fn records(partitions: &[Partition]) -> Option<i64> {
    partitions.iter().map(|partition| Some(partition.end? - partition.start?)).sum()
}

fn bytes(name: &str, partitions: &[Partition], sizes: &ReplicaBytes) -> Option<u64> {
    let name: Arc<str> = name.into();
    let replicas = partitions.iter().flat_map(|partition| {
        let at = TopicPartition::new(Arc::clone(&name), partition.index);
        partition.replicas.iter().map(move |broker| (at.clone(), *broker))
    });
    replicas.map(|replica| sizes.get(&replica).map(|bytes| bytes.unsigned_abs())).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_topic_is_not_the_topic() {
        let partition = |index, offsets: Option<(i64, i64)>| Partition {
            index,
            leader: offsets.map(|_| 1),
            leader_epoch: 0,
            replicas: vec![1, 2],
            in_sync: vec![1],
            start: offsets.map(|(start, _)| start),
            end: offsets.map(|(_, end)| end),
            bytes: None,
        };
        let whole = [partition(0, Some((5, 12))), partition(1, Some((0, 3)))];
        assert_eq!(records(&whole), Some(10));
        assert_eq!(records(&[partition(0, Some((5, 12))), partition(1, None)]), None);
        let size = |index, broker, bytes| ((TopicPartition::new("t", index), broker), bytes);
        let mut sizes = ReplicaBytes::from([size(0, 1, 7), size(0, 2, 7), size(1, 1, 3)]);
        assert_eq!(bytes("t", &whole, &sizes), None, "broker 2 has not reported partition 1");
        sizes.extend([size(1, 2, 4)]);
        assert_eq!(bytes("t", &whole, &sizes), Some(21));
    }
}
