//! The broker's interface to the group coordinator. This layer makes no decisions about groups: it passes
//! requests to the groups' shards, and formats answers for each version.

mod admin;
mod bounds;
mod classic;
mod consumer;
mod describing;
mod offsets;
mod share;
mod streams;

use super::answer::GroupAnswer;
use super::config::{ConsumerGroupTimes, GroupConfig, ShareGroupTimes, StreamsGroupTimes};
use super::shard::{EndOfTransaction, GroupFigures, GroupShard, SharedState};
use super::topics::{DeletedTopic, TopicsView};
use std::fmt;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_log::Clock;
use thalweg_log::disk::Disk;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{ProducerEpoch, ProducerId};
use thalweg_shard::{
    CoordinatorLog, LoadFigures, Moment, ReplicatedValue, RequestError, Shards, Ticket, Unavailability,
    partition_for,
};
use tokio::runtime::Handle;

/// The group coordinator of this broker: a function for each API, and for elections and deletions.
///
/// Requests are checked for their form and answered here; authorization is left to the caller. Each function
/// formats its answer for the given version.
pub struct GroupCoordinator {
    shards: Shards<GroupShard>,
}

impl fmt::Debug for GroupCoordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCoordinator").field("shards", &self.shards).finish_non_exhaustive()
    }
}

impl GroupCoordinator {
    /// A coordinator that leads no partition yet. Must be called within a tokio runtime.
    pub fn new(
        config: GroupConfig,
        log: Arc<dyn CoordinatorLog>,
        topics: Arc<dyn TopicsView>,
        clock: Clock,
        disk: Disk,
    ) -> GroupCoordinator {
        let shared = SharedState::new(config, topics).with_background(Handle::current(), disk.clone());
        GroupCoordinator { shards: Shards::new(Arc::new(shared), log, clock, disk) }
    }

    /// The partition of `__consumer_offsets` that a group belongs to. The partition count is the topic's; the
    /// setting may have changed since the topic was created.
    pub fn partition_for(&self, group_id: &str) -> PartitionIndex {
        let partitions = self.topics().offsets_partition_count();
        partition_for(group_id, partitions.unwrap_or(self.config().offsets_topic_partitions))
    }

    /// Handles the election of this broker as leader of a partition of `__consumer_offsets`. The partition's
    /// groups are loaded in the background; until then their requests get a retriable error.
    pub fn on_elected(&self, partition: PartitionIndex, leader_epoch: i32) {
        self.shards.elected(partition, leader_epoch);
    }

    /// Handles the loss of leadership of a partition, or of this epoch: waiting requests are redirected.
    /// Without an epoch, the partition is deleted.
    pub fn on_resigned(&self, partition: PartitionIndex, leader_epoch: Option<i32>) {
        self.shards.resigned(partition, leader_epoch);
    }

    /// Deletes the offsets committed for deleted topics.
    pub fn on_topics_deleted(&self, topics: &[DeletedTopic]) {
        for cell in self.shards.all() {
            cell.turn(|shard, _| shard.topics_deleted(topics));
        }
    }

    /// Ends a producer's transaction in a partition: writes the marker, and answers once the marker is
    /// acknowledged.
    pub async fn complete_transaction(
        &self,
        partition: PartitionIndex,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        end: EndOfTransaction,
    ) -> Result<(), RequestError> {
        let answer = self.shards.request(partition, |shard, ticket, _| {
            shard.complete_transaction(producer_id, producer_epoch, end, ticket);
        });
        match answer.await? {
            GroupAnswer::TransactionEnded(result) => Ok(result?),
            _ => Err(RequestError::WrongAnswer),
        }
    }

    /// Handles created and deleted topics and changed partitions or racks: the groups that depend on these
    /// topics read them again. `are_some_new` is true if a topic was created.
    pub fn on_topics_changed(&self, topics: &[String], are_some_new: bool) {
        for cell in self.shards.all() {
            cell.turn(|shard, _| shard.topics_changed(topics, are_some_new));
        }
    }

    /// Sets the times of consumer groups: the broker's defaults, and those of groups with overrides. New
    /// times take effect with the next heartbeat of a member.
    pub fn set_consumer_group_times(
        &self,
        default: ConsumerGroupTimes,
        by_group: HashMap<String, ConsumerGroupTimes>,
    ) {
        self.shards.shared().set_consumer_times(default, by_group);
    }

    /// Sets the times of share groups in the same way.
    pub fn set_share_group_times(
        &self,
        default: ShareGroupTimes,
        by_group: HashMap<String, ShareGroupTimes>,
    ) {
        self.shards.shared().set_share_times(default, by_group);
    }

    /// Sets the times of streams groups in the same way.
    pub fn set_streams_group_times(
        &self,
        default: StreamsGroupTimes,
        by_group: HashMap<String, StreamsGroupTimes>,
    ) {
        self.shards.shared().set_streams_times(default, by_group);
    }

    fn config(&self) -> &GroupConfig {
        &self.shards.shared().config
    }

    /// The cluster's topics.
    pub fn topics(&self) -> &dyn TopicsView {
        &*self.shards.shared().topics
    }

    /// True if the groups of a partition are loaded.
    pub fn is_loaded(&self, partition: PartitionIndex) -> bool {
        self.shards.is_loaded(partition)
    }

    /// Runs due work in all shards. [`GroupCoordinator::run`] calls this function in time.
    pub fn tick(&self) {
        self.shards.tick();
    }

    /// Runs due work in time, as long as the future is polled.
    pub async fn run(&self) {
        loop {
            self.shards.sleep().await;
        }
    }

    /// Closes every shard when the broker stops.
    pub fn shutdown(&self) {
        self.shards.shutdown();
    }

    /// The groups that this broker coordinates, with their committed offsets.
    pub fn figures(&self) -> Vec<GroupFigures> {
        self.shards.all().iter().filter_map(|cell| cell.peek(GroupShard::figures).ok()).flatten().collect()
    }

    /// Passes each committed offset of these groups on without a copy: group, topic, partition, offset. The
    /// offsets of a group come one after another.
    pub fn each_committed(&self, each: &mut dyn FnMut(&str, &str, PartitionIndex, i64)) {
        for cell in self.shards.all() {
            // A partition that is being loaded or given up has no groups here.
            let _ = cell.peek(|shard| shard.each_committed(&mut *each));
        }
    }

    /// The partitions of `__consumer_offsets` that this broker leads.
    pub fn load_figures(&self) -> LoadFigures {
        self.shards.load_figures()
    }

    /// Reads the acknowledged state of a group, without a turn.
    fn read<R>(
        &self,
        group_id: &str,
        read: impl FnOnce(&GroupShard) -> ReplicatedValue<R>,
    ) -> Result<R, Unavailability> {
        self.shards.cell(self.partition_for(group_id))?.read(read)
    }

    /// Passes a request to the shard of its group and waits for the answer.
    async fn request(
        &self,
        group_id: &str,
        request: impl FnOnce(&mut GroupShard, Ticket, Moment),
    ) -> Result<GroupAnswer, Unavailability> {
        self.shards.request(self.partition_for(group_id), request).await
    }
}
