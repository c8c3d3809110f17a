//! Deletion of records by the leaders of partitions, and election of leaders by the controller.

use std::collections::BTreeMap;

use thalweg_dial::{ClientError, RefusedRequest};
use thalweg_record::Offset;
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::{DeleteRecordsRequest, DeleteRecordsResponse, ElectLeadersRequest};

use super::{Admin, Outcomes, by_topic, refused};
use crate::offsets::TopicPartition;

/// The replicas that may become the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// The first replica, if it is in sync.
    Preferred,
    /// Any replica if no in-sync replica is alive. Records may be lost.
    Unclean,
}

impl Admin {
    /// Deletes the records before these offsets; [`Offset::NONE`] deletes all records. Returns the log start
    /// offsets.
    pub async fn delete_records(
        &self,
        before: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<Outcomes<TopicPartition, Offset>, ClientError> {
        let timeout_ms = self.timeout_ms();
        let request = |items: &[(TopicPartition, Offset)]| {
            let mut topics: BTreeMap<&str, Vec<DeleteRecordsPartition>> = BTreeMap::new();
            for (at, offset) in items {
                let partition = DeleteRecordsPartition { partition_index: at.partition, offset: offset.0 };
                topics.entry(&at.topic).or_default().push(partition);
            }
            let topics = topics
                .into_iter()
                .map(|(name, partitions)| DeleteRecordsTopic { name: name.to_owned(), partitions });
            DeleteRecordsRequest { topics: topics.collect(), timeout_ms }
        };
        self.send_to_leaders(before, "Deleting records of", request, deleted).await
    }

    /// Elects leaders of these partitions, or of all. A partition that needs no election results in
    /// ELECTION_NOT_NEEDED.
    pub async fn elect_leaders(
        &self,
        election: Election,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Outcomes<TopicPartition>, ClientError> {
        let topic_partitions = partitions.map(|partitions| {
            let topics = by_topic(partitions.iter()).into_iter();
            topics
                .map(|(topic, partitions)| TopicPartitions { topic: topic.to_owned(), partitions })
                .collect()
        });
        let request = ElectLeadersRequest {
            election_type: match election {
                Election::Preferred => 0,
                Election::Unclean => 1,
            },
            topic_partitions,
            timeout_ms: self.timeout_ms(),
        };
        let check = |code| RefusedRequest::check(code, None, || "Electing leaders".to_owned());
        let response = self.change(&request, |response| check(response.error_code)).await?;
        let mut outcomes = Outcomes::new();
        for topic in response.replica_election_results {
            for partition in topic.partition_result {
                let at = TopicPartition::new(topic.topic.as_str(), partition.partition_id);
                let message = partition.error_message.as_deref();
                let outcome = refused(partition.error_code, message, || format!("Electing a leader of {at}"));
                outcomes.insert(at, outcome);
            }
        }
        Ok(outcomes)
    }
}

fn deleted(response: DeleteRecordsResponse) -> Outcomes<TopicPartition, Offset> {
    let mut outcomes = Outcomes::new();
    for topic in response.topics {
        for partition in topic.partitions {
            let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
            let outcome = refused(partition.error_code, None, || format!("Deleting records of {at}"));
            outcomes.insert(at, outcome.map(|()| Offset(partition.low_watermark)));
        }
    }
    outcomes
}
