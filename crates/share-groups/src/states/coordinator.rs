//! The broker's interface to the share coordinator. This layer makes no decisions: it passes requests to the
//! shards of their share partitions, and deletes the records that the shards no longer need.

use super::config::ShareCoordinatorConfig;
use super::error::StateError;
use super::request::{ShareStateAnswer, StateOutcomes, StateRequest};
use super::shard::{ShareShard, ShareStatesView, SharedState};
use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use thalweg_hash::{HashMap, HashSet};
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::{CoordinatorLog, LoadFigures, RequestError, Shards, partition_for};
use thalweg_share::SharePartitionKey;
use thalweg_wire::Uuid;

/// The share coordinator of this broker.
pub struct ShareCoordinator {
    shards: Shards<ShareShard>,
    /// Offset of the last pruning of each partition.
    pruned: Mutex<HashMap<PartitionIndex, i64>>,
}

impl fmt::Debug for ShareCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareCoordinator").field("shards", &self.shards).finish_non_exhaustive()
    }
}

/// The key that places a share partition, also for FindCoordinator: `group:topic id:partition`.
pub fn coordinator_key(key: &SharePartitionKey) -> String {
    format!("{}:{}:{}", key.group, key.topic, key.partition)
}

/// True if a key has the form of a share partition's.
pub fn is_coordinator_key(name: &str) -> bool {
    let mut parts = name.rsplitn(3, ':');
    let (partition, topic, group) = (parts.next(), parts.next(), parts.next());
    partition.is_some_and(|partition| partition.parse::<i32>().is_ok())
        && topic.is_some_and(|topic| topic.parse::<Uuid>().is_ok())
        && group.is_some_and(|group| !group.trim().is_empty())
}

impl ShareCoordinator {
    /// A coordinator that leads no partition yet. Must be called within a tokio runtime.
    pub fn new(
        config: ShareCoordinatorConfig,
        log: Arc<dyn CoordinatorLog>,
        cluster: Arc<dyn ShareStatesView>,
        clock: Clock,
        disk: Disk,
    ) -> ShareCoordinator {
        let shared = Arc::new(SharedState { config, cluster });
        ShareCoordinator { shards: Shards::new(shared, log, clock, disk), pruned: Mutex::default() }
    }

    /// The partition of `__share_group_state` that a share partition belongs to.
    pub fn partition_for(&self, key: &SharePartitionKey) -> PartitionIndex {
        let SharedState { config, cluster } = &**self.shards.shared();
        let partitions = cluster.share_partition_count().unwrap_or(config.state_topic_partitions);
        partition_for(&coordinator_key(key), partitions)
    }

    /// Handles the election of this broker as leader of a partition of `__share_group_state`. The partition
    /// is loaded in the background; until then requests get a retriable error.
    pub fn on_elected(&self, partition: PartitionIndex, leader_epoch: i32) {
        self.shards.elected(partition, leader_epoch);
    }

    /// Handles the loss of leadership of a partition, or of this epoch: waiting requests are redirected.
    /// Without an epoch, the partition is deleted.
    pub fn on_resigned(&self, partition: PartitionIndex, leader_epoch: Option<i32>) {
        self.pruned.lock().remove(&partition);
        self.shards.resigned(partition, leader_epoch);
    }

    /// Deletes the state of the partitions of deleted topics.
    pub fn on_topics_deleted(&self, topics: &HashSet<Uuid>) {
        for (_, cell) in self.shards.by_partition() {
            cell.turn(|shard, _| shard.topics_deleted(topics));
        }
    }

    /// True if a partition is loaded.
    pub fn is_loaded(&self, partition: PartitionIndex) -> bool {
        self.shards.is_loaded(partition)
    }

    /// The partitions of `__share_group_state` that this broker leads.
    pub fn load_figures(&self) -> LoadFigures {
        self.shards.load_figures()
    }

    /// Runs due work in time, as long as the future is polled.
    pub async fn run(&self) {
        let interval = self.shards.shared().config.prune_interval;
        let pruning = async {
            loop {
                tokio::time::sleep(interval).await;
                self.prune().await;
            }
        };
        // Timers run separately, because pruning waits for the shards.
        let keeping_time = async {
            loop {
                self.shards.sleep().await;
            }
        };
        join::<_, _>(pruning, keeping_time).await;
    }

    /// Closes every shard when the broker stops.
    pub fn shutdown(&self) {
        self.shards.shutdown();
    }

    /// Deletes the records that no shard needs.
    pub async fn prune(&self) {
        for (partition, _) in self.shards.by_partition() {
            let answer = self.shards.request(partition, |shard, ticket, _| shard.find_redundant(ticket));
            let Ok(ShareStateAnswer::RedundantBefore(Some(offset))) = answer.await else { continue };
            if self.pruned.lock().get(&partition) == Some(&offset) {
                continue;
            }
            match self.shards.delete_before(partition, offset).await {
                Ok(()) => drop(self.pruned.lock().insert(partition, offset)),
                // A later interval retries: often the replicas do not have the newest records yet.
                Err(error) => {
                    tracing::debug!(%partition, offset, %error, "Failed to prune __share_group_state")
                }
            }
        }
    }

    /// Serves requests for share partitions. The answers have the order of the requests.
    pub async fn serve(&self, requests: &[(SharePartitionKey, StateRequest)]) -> StateOutcomes {
        let mut answers: Vec<Option<_>> = vec![None; requests.len()];
        // A repeated share partition is served after its first request.
        let mut rounds: Vec<BTreeMap<PartitionIndex, Vec<usize>>> = Vec::new();
        let mut seen: HashMap<&SharePartitionKey, usize> = HashMap::default();
        for (place, (key, _)) in requests.iter().enumerate() {
            let round = seen.entry(key).or_default();
            if rounds.len() == *round {
                rounds.push(BTreeMap::new());
            }
            rounds[*round].entry(self.partition_for(key)).or_default().push(place);
            *round += 1;
        }
        for round in rounds {
            let served = round.into_iter().map(|(partition, places)| async move {
                let some: Vec<&(SharePartitionKey, StateRequest)> =
                    places.iter().map(|place| &requests[*place]).collect();
                let answer =
                    self.shards.request(partition, |shard, ticket, now| shard.serve(&some, ticket, now));
                let outcomes = match answer.await {
                    Ok(ShareStateAnswer::Outcomes(outcomes)) => outcomes,
                    Ok(_) => vec![Err(StateError::from(RequestError::WrongAnswer)); places.len()],
                    Err(error) => vec![Err(error.into()); places.len()],
                };
                (places, outcomes)
            });
            for (places, answer) in join_all(served).await {
                for (place, one) in places.into_iter().zip(answer) {
                    answers[place] = Some(one);
                }
            }
        }
        answers.into_iter().map(|answer| answer.expect("every place is in a round")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_share_partitions_are_checked_as_kafka_checks_them() {
        let topic = Uuid(0x1234_5678);
        let key = SharePartitionKey { group: "a:b".into(), topic, partition: PartitionIndex(7) };
        assert!(is_coordinator_key(&coordinator_key(&key)));
        let named = |group: &str, partition: &str| format!("{group}:{topic}:{partition}");
        assert!(is_coordinator_key(&named("g", "-1")));
        for name in ["", "g", "g:0", &named("", "0"), &named(" ", "0"), &named("g", "x"), "g:!:0"] {
            assert!(!is_coordinator_key(name), "{name}");
        }
    }
}
