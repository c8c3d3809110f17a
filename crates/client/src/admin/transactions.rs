//! Transactions and producers (KIP-664): transactional ids from coordinators, producers from leaders, and the
//! abort of hanging transactions.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_dial::{ClientError, Connection, RefusedRequest};
use thalweg_wire::ErrorCode;
use thalweg_wire::request::describe_producers_request::TopicRequest;
use thalweg_wire::request::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use thalweg_wire::request::{
    DescribeProducersRequest, DescribeProducersResponse, DescribeTransactionsRequest, InitProducerIdRequest,
    ListTransactionsRequest, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};

use super::listed_groups::leaderless;
use super::{Admin, Outcomes, by_topic, refused};
use crate::cluster::CoordinatorKind;
use crate::coordinator::{Coordinator, version_up_to};
use crate::metadata::Metadata;
use crate::offsets::TopicPartition;

/// A filter of listed transactions; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionFilter {
    /// States to list, such as `Ongoing`.
    pub states: Vec<String>,
    /// Producer ids to list.
    pub producer_ids: Vec<i64>,
    /// Minimum running time; from version 1 on.
    pub longer_than: Option<Duration>,
    /// Regular expression for transactional ids; from version 2 on (KIP-1152).
    pub pattern: Option<String>,
}

/// A transactional id, as listed by its coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionListing {
    pub transactional_id: String,
    /// The producer id.
    pub producer_id: i64,
    /// The state, such as `Ongoing` or `Empty`.
    pub state: String,
}

/// The description of a transactional id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionDescription {
    /// The state, such as `Ongoing` or `Empty`.
    pub state: String,
    /// The producer id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// The time after which the coordinator aborts a transaction, in milliseconds.
    pub timeout_ms: i32,
    /// The start of the transaction, in milliseconds since 1970.
    pub started_ms: Option<i64>,
    /// The partitions of the transaction.
    pub partitions: Vec<TopicPartition>,
}

/// A producer known to the leader of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveProducer {
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i32,
    /// The sequence of the last record.
    pub last_sequence: i32,
    /// The time of the last batch, in milliseconds since 1970.
    pub last_timestamp: i64,
    /// The epoch of the coordinator that wrote the last marker; -1 if none.
    pub coordinator_epoch: i32,
    /// The first offset of the open transaction.
    pub transaction_start: Option<i64>,
}

/// A transaction to abort in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbortTransaction {
    pub at: TopicPartition,
    /// The producer id.
    pub producer_id: i64,
    /// The producer's epoch.
    pub producer_epoch: i16,
    /// The coordinator epoch; 0 if no coordinator has written a marker yet.
    pub coordinator_epoch: i32,
}

/// A producer that was fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencedProducer {
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch after the fencing.
    pub producer_epoch: i16,
}

/// The topic whose partitions' leaders coordinate transactions.
pub(super) const STATE_TOPIC: &str = "__transaction_state";

impl Admin {
    /// The error of coordinators out of reach, because their partitions of `__transaction_state` have
    /// no leader: no list has their transactional ids. None also for a login that may not describe the topic.
    pub async fn missing_transaction_coordinators(&self) -> Option<ClientError> {
        match self.cluster.refresh(&[STATE_TOPIC.to_owned()], false).await {
            Ok(metadata) => missing_coordinators(&metadata),
            Err(error) => Some(error),
        }
    }

    /// The transactional ids of each broker's coordinators.
    pub async fn list_transactions(
        &self,
        filter: &TransactionFilter,
    ) -> Result<Outcomes<i32, Vec<TransactionListing>>, ClientError> {
        let duration = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let request = |_| ListTransactionsRequest {
            state_filters: filter.states.clone(),
            producer_id_filters: filter.producer_ids.clone(),
            duration_filter: filter.longer_than.map_or(-1, duration),
            transactional_id_pattern: filter.pattern.clone(),
        };
        self.send_to_brokers(None, request, |broker, response| {
            refused(response.error_code, None, || format!("Transactions of broker {broker}"))?;
            let listings = response.transaction_states.into_iter().map(|state| TransactionListing {
                transactional_id: state.transactional_id,
                producer_id: state.producer_id,
                state: state.transaction_state,
            });
            Ok(listings.collect())
        })
        .await
    }

    /// Describes transactional ids.
    pub async fn describe_transactions(&self, ids: &[String]) -> Outcomes<String, TransactionDescription> {
        let request = |transactional_ids| DescribeTransactionsRequest { transactional_ids };
        self.send_to_coordinators(CoordinatorKind::Transaction, ids, request, |response| {
            let outcomes = response.transaction_states.into_iter().map(|state| {
                let id = state.transactional_id;
                let outcome = refused(state.error_code, None, || format!("Transactional id {id}"));
                let topics = state.topics.into_iter();
                let description = TransactionDescription {
                    state: state.transaction_state,
                    producer_id: state.producer_id,
                    producer_epoch: state.producer_epoch,
                    timeout_ms: state.transaction_timeout_ms,
                    started_ms: Some(state.transaction_start_time_ms).filter(|&ms| ms >= 0),
                    partitions: topics
                        .flat_map(|topic| partitions_of(&topic.topic, topic.partitions))
                        .collect(),
                };
                (id, outcome.map(|()| description))
            });
            outcomes.collect()
        })
        .await
    }

    /// The producers known to the leaders of partitions.
    pub async fn describe_producers(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Outcomes<TopicPartition, Vec<ActiveProducer>>, ClientError> {
        let items = partitions.iter().map(|at| (at.clone(), ())).collect();
        let request = |items: &[(TopicPartition, ())]| describe_producers(items.iter().map(|(at, ())| at));
        self.send_to_leaders(&items, "Producers of", request, read_producers).await
    }

    /// The producers known to a broker, as the leader or a follower of partitions.
    pub async fn describe_producers_at(
        &self,
        broker: i32,
        partitions: &[TopicPartition],
    ) -> Result<Outcomes<TopicPartition, Vec<ActiveProducer>>, ClientError> {
        let request = |_| describe_producers(partitions.iter());
        let read = |_, response| Ok(read_producers(response));
        let mut answers = self.send_to_brokers(Some(&[broker]), request, read).await?;
        answers.remove(&broker).unwrap_or_else(|| Ok(Outcomes::new()))
    }

    /// Aborts a transaction in one partition, without its coordinator, by a marker that the leader writes.
    /// Meant for transactions that their coordinator has forgotten.
    pub async fn abort_transaction(&self, transaction: &AbortTransaction) -> Result<(), ClientError> {
        let at = &transaction.at;
        let items = BTreeMap::from([(at.clone(), ())]);
        let request = |_: &[(TopicPartition, ())]| WriteTxnMarkersRequest {
            markers: vec![WritableTxnMarker {
                producer_id: transaction.producer_id,
                producer_epoch: transaction.producer_epoch,
                transaction_result: false,
                topics: vec![WritableTxnMarkerTopic {
                    name: at.topic.to_string(),
                    partition_indexes: vec![at.partition],
                }],
                coordinator_epoch: transaction.coordinator_epoch,
                ..WritableTxnMarker::default()
            }],
        };
        let mut outcomes =
            self.send_to_leaders(&items, "Aborting a transaction in", request, written).await?;
        outcomes.remove(at).unwrap_or(Ok(()))
    }

    /// Fences the producers of transactional ids: their open transactions are aborted, and the producers
    /// fail.
    pub async fn fence_producers(&self, ids: &[String]) -> Outcomes<String, FencedProducer> {
        let mut outcomes = Outcomes::new();
        for id in ids {
            let request = InitProducerIdRequest {
                transactional_id: Some(id.clone()),
                // As Kafka's Admin; a returning producer sets its own timeout.
                transaction_timeout_ms: self.timeout_ms(),
                producer_id: -1,
                producer_epoch: -1,
                ..InitProducerIdRequest::default()
            };
            let make = |connection: &Connection| {
                let version = version_up_to::<InitProducerIdRequest>(connection, i16::MAX)?;
                Ok((request.clone(), version))
            };
            let coordinator =
                Coordinator::new(self.cluster.clone(), CoordinatorKind::Transaction, id.as_str());
            let fenced = coordinator.request(self.retry(), make, |response, _| {
                refused(response.error_code, None, || format!("Fencing the producers of {id}"))?;
                Ok(FencedProducer {
                    producer_id: response.producer_id,
                    producer_epoch: response.producer_epoch,
                })
            });
            outcomes.insert(id.clone(), fenced.await);
        }
        outcomes
    }
}

fn describe_producers<'a>(partitions: impl Iterator<Item = &'a TopicPartition>) -> DescribeProducersRequest {
    let topics = by_topic(partitions).into_iter();
    let topics =
        topics.map(|(name, partition_indexes)| TopicRequest { name: name.to_owned(), partition_indexes });
    DescribeProducersRequest { topics: topics.collect() }
}

fn partitions_of(topic: &str, partitions: Vec<i32>) -> Vec<TopicPartition> {
    let topic: std::sync::Arc<str> = topic.into();
    partitions.into_iter().map(|partition| TopicPartition::new(topic.clone(), partition)).collect()
}

fn read_producers(response: DescribeProducersResponse) -> Outcomes<TopicPartition, Vec<ActiveProducer>> {
    let mut outcomes = Outcomes::new();
    for topic in response.topics {
        for partition in topic.partitions {
            let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
            let what = || format!("Producers of {at}");
            let outcome = refused(partition.error_code, partition.error_message.as_deref(), what);
            let producers = partition.active_producers.into_iter().map(|producer| ActiveProducer {
                producer_id: producer.producer_id,
                producer_epoch: producer.producer_epoch,
                last_sequence: producer.last_sequence,
                last_timestamp: producer.last_timestamp,
                coordinator_epoch: producer.coordinator_epoch,
                transaction_start: Some(producer.current_txn_start_offset).filter(|&offset| offset >= 0),
            });
            let producers = producers.collect();
            outcomes.insert(at, outcome.map(|()| producers));
        }
    }
    outcomes
}

/// The error of coordinators whose partitions have no leader, if any.
fn missing_coordinators(metadata: &Metadata) -> Option<ClientError> {
    let (leaderless, partitions) = leaderless(metadata, STATE_TOPIC);
    let what = format!("The coordinators of {leaderless} of {partitions} partitions of {STATE_TOPIC}");
    let error_code = ErrorCode::CoordinatorNotAvailable;
    (leaderless > 0).then(|| RefusedRequest { what, error_code, message: None }.into())
}

fn written(response: WriteTxnMarkersResponse) -> Outcomes<TopicPartition> {
    let mut outcomes = Outcomes::new();
    for topic in response.markers.into_iter().flat_map(|marker| marker.topics) {
        for partition in topic.partitions {
            let at = TopicPartition::new(topic.name.as_str(), partition.partition_index);
            let what = || format!("Aborting a transaction in {at}");
            let outcome = refused(partition.error_code, None, what);
            outcomes.insert(at, outcome);
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use thalweg_record::LeaderEpoch;
    use thalweg_wire::Uuid;

    use super::*;
    use crate::metadata::{PartitionMetadata, TopicMetadata};

    #[test]
    fn coordinators_without_a_leader_are_missing() {
        assert!(missing_coordinators(&Metadata::default()).is_none(), "there are no transactions yet");
        let partition = PartitionMetadata {
            index: 0,
            error: None,
            leader: Some(1),
            leader_epoch: LeaderEpoch(0),
            replicas: vec![1],
            isr: vec![1],
            offline: Vec::new(),
        };
        let topic = TopicMetadata {
            name: STATE_TOPIC.into(),
            id: Uuid(0),
            internal: true,
            error: None,
            partitions: vec![partition],
        };
        let topics = BTreeMap::from([(STATE_TOPIC.to_owned(), topic)]);
        let error = missing_coordinators(&Metadata { topics, ..Metadata::default() });
        let text = error.expect("broker 1 is none of the brokers").to_string();
        assert!(text.contains("The coordinators of 1 of 1 partitions of __transaction_state"), "{text}");
    }
}
