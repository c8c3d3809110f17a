//! Reassignment of partitions to other brokers (KIP-455).

use std::collections::BTreeMap;

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::list_partition_reassignments_request::ListPartitionReassignmentsTopics;
use thalweg_wire::request::{AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest};

use super::{Admin, Outcomes, by_topic, refused};
use crate::offsets::TopicPartition;

/// An ongoing reassignment of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionReassignment {
    /// All current replicas, including added and removed ones.
    pub replicas: Vec<i32>,
    /// The replicas being added.
    pub adding: Vec<i32>,
    /// The replicas being removed.
    pub removing: Vec<i32>,
}

impl PartitionReassignment {
    /// The replicas after the reassignment.
    pub fn target(&self) -> Vec<i32> {
        self.replicas.iter().copied().filter(|id| !self.removing.contains(id)).collect()
    }
}

impl Admin {
    /// Moves partitions to these replicas; `None` cancels their reassignment. The first replica is the
    /// preferred leader. [`Admin::list_reassignments`] shows the progress.
    pub async fn alter_reassignments(
        &self,
        targets: &BTreeMap<TopicPartition, Option<Vec<i32>>>,
    ) -> Result<Outcomes<TopicPartition>, ClientError> {
        let mut topics: BTreeMap<&str, Vec<ReassignablePartition>> = BTreeMap::new();
        for (at, replicas) in targets {
            let partition =
                ReassignablePartition { partition_index: at.partition, replicas: replicas.clone() };
            topics.entry(&at.topic).or_default().push(partition);
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| ReassignableTopic { name: name.to_owned(), partitions });
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: self.timeout_ms(),
            topics: topics.collect(),
            ..AlterPartitionReassignmentsRequest::default()
        };
        let what = || "Reassigning partitions".to_owned();
        let check = |code: i16, message: Option<&str>| RefusedRequest::check(code, message, what);
        let response = self
            .change(&request, |response| check(response.error_code, response.error_message.as_deref()))
            .await?;
        let mut outcomes = Outcomes::new();
        for topic in response.responses {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let what = || match targets.get(&at) {
                    Some(None) => format!("Cancelling the reassignment of {at}"),
                    _ => format!("Reassigning {at}"),
                };
                let outcome = refused(partition.error_code, partition.error_message.as_deref(), what);
                outcomes.insert(at, outcome);
            }
        }
        Ok(outcomes)
    }

    /// The ongoing reassignments of these partitions, or of all.
    pub async fn list_reassignments(
        &self,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, PartitionReassignment>, ClientError> {
        let topics = partitions.map(|partitions| {
            let topics = by_topic(partitions.iter()).into_iter();
            let topics = topics.map(|(name, partition_indexes)| ListPartitionReassignmentsTopics {
                name: name.to_owned(),
                partition_indexes,
            });
            topics.collect()
        });
        let request = ListPartitionReassignmentsRequest { timeout_ms: self.timeout_ms(), topics };
        let check = |code: i16, message: Option<&str>| {
            RefusedRequest::check(code, message, || "Listing reassignments".to_owned())
        };
        let response = self
            .change(&request, |response| check(response.error_code, response.error_message.as_deref()))
            .await?;
        let mut found = BTreeMap::new();
        for topic in response.topics {
            for partition in topic.partitions {
                let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
                let reassignment = PartitionReassignment {
                    replicas: partition.replicas,
                    adding: partition.adding_replicas,
                    removing: partition.removing_replicas,
                };
                found.insert(at, reassignment);
            }
        }
        Ok(found)
    }
}
