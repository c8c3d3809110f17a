//! Records of partitions, deleted by their leaders, and the leaders themselves, elected by the controller.

use std::collections::BTreeMap;

use thalweg_record::Offset;
use thalweg_wire::ErrorCode;
use thalweg_wire::request::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::{DeleteRecordsRequest, DeleteRecordsResponse, ElectLeadersRequest};

use super::{Admin, GRACE, Outcomes, refused};
use crate::connection::RequestOptions;
use crate::error::{ClientError, Refused};
use crate::offsets::TopicPartition;

/// Which replicas may become the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Election {
    /// The first replica, if it is in sync.
    Preferred,
    /// Any replica if no in-sync replica is alive. Records may be lost.
    Unclean,
}

impl Admin {
    /// Deletes the records before these offsets; [`Offset::NONE`] deletes all that there are. Gives the log start offsets.
    pub async fn delete_records(
        &self,
        before: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<Outcomes<TopicPartition, Offset>, ClientError> {
        let mut retry = self.retry();
        let mut outcomes: Outcomes<TopicPartition, Offset> = Outcomes::new();
        let mut left: BTreeMap<TopicPartition, Offset> = before.clone();
        loop {
            for (at, outcome) in self.delete_once(&left).await? {
                outcomes.insert(at, outcome);
            }
            // Transient errors, such as a moved leader, are retried.
            let failure = |at: &TopicPartition| outcomes.get(at)?.as_ref().err();
            left.retain(|at, _| failure(at).is_some_and(ClientError::is_retriable));
            let pause = left.keys().find_map(failure).and_then(|error| retry.pause_after(error));
            let Some(pause) = pause else { return Ok(outcomes) };
            tokio::time::sleep(pause).await;
        }
    }

    async fn delete_once(
        &self,
        before: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<Outcomes<TopicPartition, Offset>, ClientError> {
        let mut topics: Vec<String> = before.keys().map(|at| at.topic.to_string()).collect();
        topics.dedup();
        let metadata = self.cluster.refresh(&topics, false).await?;
        let mut outcomes = Outcomes::new();
        let mut by_leader: BTreeMap<i32, Vec<(&TopicPartition, Offset)>> = BTreeMap::new();
        for (at, offset) in before {
            let topic_error = metadata.topics.get(&*at.topic).and_then(|topic| topic.error);
            match metadata.leader(&at.topic, at.partition) {
                Some(leader) => by_leader.entry(leader).or_default().push((at, *offset)),
                None => {
                    let error_code = topic_error.unwrap_or(ErrorCode::LeaderNotAvailable);
                    let what = format!("Deleting records of {at}");
                    outcomes.insert(at.clone(), Err(Refused { what, error_code, message: None }.into()));
                }
            }
        }
        for (leader, wanted) in by_leader {
            match self.delete_at(leader, &wanted).await {
                Ok(response) => outcomes.extend(deleted(response)),
                Err(error) => {
                    outcomes.extend(wanted.into_iter().map(|(at, _)| (at.clone(), Err(error.clone()))));
                }
            }
        }
        Ok(outcomes)
    }

    async fn delete_at(
        &self,
        leader: i32,
        wanted: &[(&TopicPartition, Offset)],
    ) -> Result<DeleteRecordsResponse, ClientError> {
        let mut topics: BTreeMap<&str, Vec<DeleteRecordsPartition>> = BTreeMap::new();
        for (at, offset) in wanted {
            let partition = DeleteRecordsPartition { partition_index: at.partition, offset: offset.0 };
            topics.entry(&at.topic).or_default().push(partition);
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| DeleteRecordsTopic { name: name.to_owned(), partitions });
        let request = DeleteRecordsRequest { topics: topics.collect(), timeout_ms: self.timeout_ms() };
        let options = RequestOptions { version: None, timeout: Some(self.timeout + GRACE) };
        self.cluster.broker(leader).await?.send_with(&request, options).await
    }

    /// Has leaders elected: of these partitions, or of all. One that needs none is ELECTION_NOT_NEEDED.
    pub async fn elect_leaders(
        &self,
        election: Election,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<Outcomes<TopicPartition>, ClientError> {
        let topic_partitions = partitions.map(|partitions| {
            let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
            for at in partitions {
                topics.entry(&at.topic).or_default().push(at.partition);
            }
            let topics = topics.into_iter();
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
        let check = |code| Refused::check(code, None, || "Electing leaders".to_owned());
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
