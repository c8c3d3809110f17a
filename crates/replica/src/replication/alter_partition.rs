//! Sends changes of in-sync replicas to the controller: at most one per partition, all waiting ones in one
//! request, one request at a time (Kafka's `AlterPartitionManager`).

use super::Replication;
use crate::followers::{ChangeOutcome, IsrChange};
use crate::isr_changes::Changes;
use crate::partition::Partition;
use std::sync::Arc;
use std::time::Duration;
use thalweg_metadata::{BrokerId, PartitionEpoch, PartitionIndex};
use thalweg_wire::request::AlterPartitionRequest;
use thalweg_wire::request::alter_partition_request::{BrokerState, PartitionData, TopicData};
use thalweg_wire::request::alter_partition_response::PartitionData as Answer;
use thalweg_wire::{ErrorCode, Message};

/// Pause before retrying a failed request.
const RETRY: Duration = Duration::from_millis(50);

/// Sends changes as long as the broker runs.
pub async fn run(replication: Arc<Replication>) {
    let mut failures = 0u32;
    loop {
        let mut changes = replication.context.isr_changes.next().await;
        // Drop changes that the image has decided meanwhile.
        changes.retain(|(topic, index), change| {
            let topic = replication.partitions.topic_by_id(*topic);
            topic.and_then(|t| t.partition(*index)).is_some_and(|partition| partition.awaits(change))
        });
        if changes.is_empty() {
            continue;
        }
        let failed = send(&replication, &mut changes).await;
        if let Some(reason) = &failed {
            if failures == 0 {
                tracing::warn!(reason, "Failed to change in-sync replicas, retrying");
            }
            failures = failures.saturating_add(1);
        } else {
            failures = 0;
        }
        if !changes.is_empty() {
            tokio::time::sleep(RETRY).await;
            replication.context.isr_changes.resubmit(changes);
        }
    }
}

/// Sends one request. Leaves changes to retry in `changes`, and returns the reason if all failed.
async fn send(replication: &Replication, changes: &mut Changes) -> Option<String> {
    let request = request(replication.broker.node_id, replication.broker.epoch(), changes);
    let response = match replication.broker.controller.send(request, AlterPartitionRequest::MAX_VERSION).await
    {
        Ok(response) => response,
        Err(error) => return Some(error.to_string()),
    };
    if response.error_code != 0 {
        return Some(format!("the controller answers {:?}", ErrorCode::from_i16(response.error_code)));
    }
    for topic in &response.topics {
        for answer in &topic.partitions {
            let key = (topic.topic_id, PartitionIndex(answer.partition_index));
            let Some(change) = changes.get(&key) else { continue };
            let Some(outcome) = outcome(answer) else { continue };
            replication.context.isr_changes.counters().count(change, &outcome);
            let topic = replication.partitions.topic_by_id(key.0);
            if let Some(partition) = topic.and_then(|topic| topic.partition(key.1)) {
                log_outcome(&partition, change, &outcome);
                partition.on_isr_change(change, &outcome);
            }
            changes.remove(&key);
        }
    }
    None
}

fn log_outcome(partition: &Partition, change: &IsrChange, outcome: &ChangeOutcome) {
    let listed = |ids: &[BrokerId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    match outcome {
        ChangeOutcome::Made { isr, .. } if change.grows => {
            tracing::info!(?partition, isr = %listed(isr), "Expanded in-sync replicas");
        }
        ChangeOutcome::Made { isr, .. } => {
            tracing::info!(?partition, isr = %listed(isr), "Shrank in-sync replicas");
        }
        ChangeOutcome::Refused | ChangeOutcome::Outdated => {
            tracing::debug!(?partition, isr = ?change.isr, ?outcome, "In-sync replicas are unchanged");
        }
    }
}

fn request(node_id: BrokerId, broker_epoch: i64, changes: &Changes) -> AlterPartitionRequest {
    let mut topics: Vec<TopicData> = Vec::new();
    for ((topic_id, index), change) in changes {
        let members = change.isr.iter().map(|member| BrokerState {
            broker_id: member.id.0,
            broker_epoch: if member.id == node_id { broker_epoch } else { member.broker_epoch },
        });
        let data = PartitionData {
            partition_index: index.0,
            leader_epoch: change.leader_epoch,
            new_isr_with_epochs: members.collect(),
            // A serving leader has recovered.
            leader_recovery_state: 0,
            partition_epoch: change.partition_epoch.0,
            ..PartitionData::default()
        };
        match topics.last_mut().filter(|topic| topic.topic_id == *topic_id) {
            Some(topic) => topic.partitions.push(data),
            None => topics.push(TopicData { topic_id: *topic_id, partitions: vec![data] }),
        }
    }
    AlterPartitionRequest { broker_id: node_id.0, broker_epoch, topics }
}

/// Interprets an answer; `None` to retry.
fn outcome(answer: &Answer) -> Option<ChangeOutcome> {
    match ErrorCode::from_i16(answer.error_code) {
        Some(ErrorCode::None) => Some(ChangeOutcome::Made {
            leader_epoch: answer.leader_epoch,
            partition_epoch: PartitionEpoch(answer.partition_epoch),
            isr: BrokerId::list(&answer.isr),
        }),
        Some(ErrorCode::IneligibleReplica | ErrorCode::OperationNotAttempted) => Some(ChangeOutcome::Refused),
        Some(
            ErrorCode::InvalidUpdateVersion
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InvalidRequest
            | ErrorCode::NewLeaderElected,
        ) => Some(ChangeOutcome::Outdated),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::followers::IsrMember;
    use crate::isr_changes::IsrChanges;
    use thalweg_wire::Uuid;

    fn change(partition_epoch: i32) -> IsrChange {
        let member = |id, broker_epoch| IsrMember { id: BrokerId(id), broker_epoch };
        let isr = vec![member(1, -1), member(2, 20)];
        IsrChange { leader_epoch: 3, partition_epoch: PartitionEpoch(partition_epoch), isr, grows: true }
    }

    #[tokio::test]
    async fn all_that_waits_goes_in_one_request_and_the_newest_of_a_partition_wins() {
        let changes = IsrChanges::default();
        let (first, second) = (PartitionIndex(0), PartitionIndex(1));
        changes.submit(Uuid(7), first, change(1));
        changes.submit(Uuid(7), second, change(2));
        changes.submit(Uuid(7), first, change(5));
        let next = changes.next().await;
        let request = request(BrokerId(1), 100, &next);
        assert_eq!(request.topics.len(), 1);
        let partitions = &request.topics[0].partitions;
        assert_eq!(partitions.iter().map(|p| p.partition_epoch).collect::<Vec<_>>(), [5, 2]);
        let epochs: Vec<_> = partitions[0].new_isr_with_epochs.iter().map(|m| m.broker_epoch).collect();
        assert_eq!(epochs, [100, 20], "the leader's own epoch is that of its registration");
        // A newer change arrives while the request is in flight.
        changes.submit(Uuid(7), second, change(9));
        changes.resubmit(next);
        let again = changes.next().await;
        assert_eq!(again[&(Uuid(7), first)], change(5));
        assert_eq!(again[&(Uuid(7), second)], change(9));
    }

    #[test]
    fn each_code_has_its_meaning() {
        let of = |code: ErrorCode| outcome(&Answer { error_code: code.code(), ..Answer::default() });
        assert_eq!(of(ErrorCode::IneligibleReplica), Some(ChangeOutcome::Refused));
        assert_eq!(of(ErrorCode::InvalidUpdateVersion), Some(ChangeOutcome::Outdated));
        assert_eq!(of(ErrorCode::NewLeaderElected), Some(ChangeOutcome::Outdated));
        assert_eq!(of(ErrorCode::NotController), None);
        assert!(matches!(of(ErrorCode::None), Some(ChangeOutcome::Made { .. })));
    }
}
