//! Requests leader epochs above those in the logs, if the cluster's metadata has lower ones.
//!
//! A leader whose epoch is below its log's last epoch is of no use: followers with a last batch of a later
//! epoch cannot compare their logs with it, and never join the ISR. The request is AlterPartition with the
//! epoch of the log. The embedded controller then elects in a higher epoch; Apache Kafka's controllers answer
//! NOT_CONTROLLER, and change nothing.

use super::Replication;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use thalweg_metadata::{BrokerId, PartitionIndex, TopicIdPartition};
use thalweg_wire::Message;
use thalweg_wire::request::AlterPartitionRequest;
use thalweg_wire::request::alter_partition_request::{BrokerState, PartitionData, TopicData};

/// Time for collecting partitions into one request.
const COLLECT: Duration = Duration::from_millis(100);
/// Interval of the requests, and their number.
const AGAIN: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 5;
/// Maximum number of partitions per request.
const REQUEST_PARTITIONS_MAX: usize = 2000;

/// Runs as long as the broker.
pub async fn run(replication: Arc<Replication>) {
    loop {
        let mut stale = replication.context.stale_epochs.next().await;
        tokio::time::sleep(COLLECT).await;
        let mut is_logged = false;
        for attempt in 0..ATTEMPTS {
            let next = request(&replication, &mut stale, attempt > 0);
            if stale.is_empty() {
                break;
            }
            let Some((request, first)) = next else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            if !std::mem::replace(&mut is_logged, true) {
                tracing::warn!(
                    partitions = stale.len(),
                    first,
                    "Leader epochs in the cluster's metadata are below those in the logs: the metadata is older than the data, as \
                     after an older copy of a controller's directory was restored. Asking the controller for later epochs"
                );
            }
            let version = AlterPartitionRequest::MAX_VERSION;
            if let Err(error) = replication.broker.controller.send(request, version).await {
                tracing::warn!(%error, "Failed to ask for later leader epochs, retrying");
            }
            tokio::time::sleep(AGAIN).await;
        }
        if let Some((_, first)) = request(&replication, &mut stale, true) {
            tracing::error!(
                partitions = stale.len(),
                first,
                "The controller did not raise leader epochs that are below those in the logs: these replicas cannot get in sync. \
                 Restore the newest copy of the controllers' metadata, or move each partition's leadership until its epoch is higher"
            );
        }
    }
}

/// The request, and the name of its first partition; keeps partitions in `stale` that still need a request. A
/// replica outside the ISR of a leader follows those in the ISR, so that the controller has compared all logs
/// first: the replica must not unseat such a leader.
fn request(
    replication: &Replication,
    stale: &mut BTreeSet<TopicIdPartition>,
    with_outsiders: bool,
) -> Option<(AlterPartitionRequest, String)> {
    let mut topics: Vec<TopicData> = Vec::new();
    let (mut first, mut count) = (None, 0);
    stale.retain(|(topic_id, index)| {
        let topic = replication.partitions.topic_by_id(*topic_id);
        let Some(partition) = topic.and_then(|topic| topic.partition(*index)) else { return false };
        let Some((data, is_outside)) = data(*index, &partition, replication.broker.node_id) else {
            return false;
        };
        if is_outside && !with_outsiders {
            return true;
        }
        first.get_or_insert_with(|| format!("{partition:?}"));
        count += 1;
        if count > REQUEST_PARTITIONS_MAX {
            return true;
        }
        match topics.last_mut().filter(|topic| topic.topic_id == *topic_id) {
            Some(topic) => topic.partitions.push(data),
            None => topics.push(TopicData { topic_id: *topic_id, partitions: vec![data] }),
        }
        true
    });
    let (broker_id, broker_epoch) = (replication.broker.node_id.0, replication.broker.epoch());
    Some((AlterPartitionRequest { broker_id, broker_epoch, topics }, first?))
}

/// The reported data of a partition, and true if the partition has a leader whose ISR excludes this replica.
fn data(
    index: PartitionIndex,
    partition: &crate::partition::Partition,
    node_id: BrokerId,
) -> Option<(PartitionData, bool)> {
    let (epoch, registration) = partition.stale_epoch()?;
    let is_outside = registration.has_leader() && !registration.isr.contains(&node_id);
    let members = registration.isr.iter().map(|id| BrokerState { broker_id: id.0, broker_epoch: -1 });
    let data = PartitionData {
        partition_index: index.0,
        leader_epoch: epoch.0,
        new_isr_with_epochs: members.collect(),
        leader_recovery_state: registration.leader_recovery_state.id(),
        partition_epoch: registration.partition_epoch.0,
        ..PartitionData::default()
    };
    Some((data, is_outside))
}
