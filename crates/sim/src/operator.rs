//! The operator of a simulated cluster: moves replicas and leaders, changes `min.insync.replicas`, and elects
//! a leader where the controller must not.

use crate::chance::Chance;
use crate::history::TOPIC;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use thalweg_client::{Cluster, ConnectionOptions, Connector};
use thalweg_config::EffectiveTopicConfig;
use thalweg_wire::request::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use thalweg_wire::request::elect_leaders_request::TopicPartitions;
use thalweg_wire::request::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use thalweg_wire::request::{
    AlterPartitionReassignmentsRequest, ElectLeadersRequest, IncrementalAlterConfigsRequest,
};

/// The operator's polling interval.
const LOOK: Duration = Duration::from_millis(100);
/// Kafka's resource type of topics.
const OF_TOPIC: i8 = 2;
/// Kafka's election type that allows replicas outside the in-sync set.
const UNCLEAN: i8 = 1;

/// An operator's task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorTask {
    /// Elects the preferred leaders.
    ElectPreferred,
    /// Reassigns a partition to these replicas, the preferred leader first.
    Reassign(i32, Vec<i32>),
    /// Sets `min.insync.replicas` of the topic.
    MinInsync(u8),
    /// An unclean election in a partition of any topic. First the replicas are put into this order, because
    /// the first live replica is elected: a replica known to be empty is last.
    ElectUnclean(String, i32, Vec<i32>),
}

impl OperatorTask {
    /// A random task, for a topic with this many partitions on brokers 1 to 3.
    pub fn draw(chance: &mut Chance, partitions: i32) -> OperatorTask {
        match chance.below(4) {
            0 => OperatorTask::ElectPreferred,
            1 => OperatorTask::MinInsync(if chance.one_in(2) { 1 } else { 2 }),
            _ => {
                let mut left = vec![1, 2, 3];
                let mut replicas = Vec::new();
                for _ in 0..chance.between(2, 3) {
                    replicas.push(
                        left.swap_remove(usize::try_from(chance.below(left.len() as u64)).unwrap_or(0)),
                    );
                }
                let partition = i32::try_from(chance.below(partitions.unsigned_abs().into())).unwrap_or(0);
                OperatorTask::Reassign(partition, replicas)
            }
        }
    }
}

/// The pending tasks. Clones share them.
#[derive(Clone, Default)]
pub struct OperatorTasks(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<OperatorTask>,
    /// True while a task is running.
    busy: bool,
}

impl OperatorTasks {
    /// Adds a task.
    pub fn add(&self, task: OperatorTask) {
        self.0.lock().waiting.push_back(task);
    }

    /// True if no task is pending or running.
    pub fn are_done(&self) -> bool {
        let queue = self.0.lock();
        queue.waiting.is_empty() && !queue.busy
    }

    fn take(&self) -> Option<OperatorTask> {
        let mut queue = self.0.lock();
        let next = queue.waiting.pop_front();
        queue.busy = next.is_some();
        next
    }

    /// Runs the tasks one at a time, as long as the future is polled. Failed tasks are not retried.
    pub async fn work(self, connector: Connector, bootstrap: Vec<String>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(task) = self.take() else { continue };
            let options = ConnectionOptions {
                connect_timeout: Duration::from_secs(2),
                request_timeout: Duration::from_secs(5),
                ..ConnectionOptions::default()
            };
            let connected = Cluster::connect_by(connector.clone(), &bootstrap, &options).await;
            let done = match connected {
                Ok(cluster) => act(&cluster, &task).await,
                Err(error) => Err(error),
            };
            tracing::info!(?task, ?done, "Operator");
        }
    }
}

async fn act(cluster: &Cluster, task: &OperatorTask) -> Result<(), thalweg_client::ClientError> {
    match task {
        OperatorTask::ElectPreferred => {
            let request = ElectLeadersRequest { election_type: 0, topic_partitions: None, timeout_ms: 3000 };
            cluster.send_any(&request).await.map(drop)
        }
        OperatorTask::Reassign(partition, replicas) => {
            cluster.send_any(&reassignment(TOPIC, *partition, replicas)).await.map(drop)
        }
        OperatorTask::ElectUnclean(topic, partition, replicas) => {
            cluster.send_any(&reassignment(topic, *partition, replicas)).await?;
            let partitions = TopicPartitions { topic: topic.clone(), partitions: vec![*partition] };
            let request = ElectLeadersRequest {
                election_type: UNCLEAN,
                topic_partitions: Some(vec![partitions]),
                timeout_ms: 3000,
            };
            cluster.send_any(&request).await.map(drop)
        }
        OperatorTask::MinInsync(count) => {
            let config = AlterableConfig {
                name: EffectiveTopicConfig::min_insync_replicas.name().to_owned(),
                config_operation: 0,
                value: Some(count.to_string()),
            };
            let resource = AlterConfigsResource {
                resource_type: OF_TOPIC,
                resource_name: TOPIC.to_owned(),
                configs: vec![config],
            };
            let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
            cluster.send_any(&request).await.map(drop)
        }
    }
}

fn reassignment(topic: &str, partition: i32, replicas: &[i32]) -> AlterPartitionReassignmentsRequest {
    let partition = ReassignablePartition { partition_index: partition, replicas: Some(replicas.to_vec()) };
    let topic = ReassignableTopic { name: topic.to_owned(), partitions: vec![partition] };
    AlterPartitionReassignmentsRequest {
        timeout_ms: 3000,
        allow_replication_factor_change: true,
        topics: vec![topic],
    }
}
