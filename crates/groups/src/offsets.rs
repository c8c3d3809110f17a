//! The committed offsets of a shard's groups (`OffsetMetadataManager`): the latest offsets, the offsets
//! visible to readers, and the offsets of open transactions.

mod transactions;

pub use transactions::TransactionOutcome;

use super::record::CoordinatorRecord;
use super::timed::TimelineObject;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_wire::Uuid;
use thalweg_wire::group::{OffsetCommitKey, OffsetCommitValue};
use transactions::Transactions;

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAndMetadata {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the last record read, or -1.
    pub leader_epoch: i32,
    /// The committer's metadata, unchanged.
    pub metadata: String,
    /// Time of the commit.
    pub commit_timestamp_ms: i64,
    /// Expiry time, if the committer set it (before version 5 of the request).
    pub expire_timestamp_ms: Option<i64>,
    /// The topic's id at the time of the commit; zero if unknown.
    pub topic_id: Uuid,
    /// Offset of the commit's record in `__consumer_offsets`.
    pub record_offset: i64,
}

impl OffsetAndMetadata {
    pub(super) fn from_record(value: OffsetCommitValue, record_offset: i64) -> OffsetAndMetadata {
        OffsetAndMetadata {
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata,
            commit_timestamp_ms: value.commit_timestamp,
            expire_timestamp_ms: Some(value.expire_timestamp).filter(|&at| at != -1),
            topic_id: value.topic_id,
            record_offset,
        }
    }

    /// The record of this commit.
    pub(super) fn to_record(&self, group: &str, topic: &str, partition: PartitionIndex) -> CoordinatorRecord {
        let key =
            OffsetCommitKey { group: group.to_owned(), topic: topic.to_owned(), partition: partition.0 };
        let value = OffsetCommitValue {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: self.metadata.clone(),
            commit_timestamp: self.commit_timestamp_ms,
            expire_timestamp: self.expire_timestamp_ms.unwrap_or(-1),
            topic_id: self.topic_id,
        };
        CoordinatorRecord::OffsetCommit(key, Some(value))
    }

    /// True if the offset was committed for a deleted topic. `id` is the id of the topic that has the name
    /// now.
    ///
    /// The topic existed at the time of the commit, in the coordinator's metadata of that time. A coordinator
    /// that has loaded the offset has the same metadata or a later version, because its own election came
    /// later.
    pub(super) fn outlives_its_topic(&self, id: Option<Uuid>) -> bool {
        if self.topic_id.is_zero() { id.is_none() } else { id != Some(self.topic_id) }
    }

    /// True if the offset has outlived its retention, which counts from `starts_ms`.
    fn is_expired(&self, starts_ms: i64, now_ms: i64, retention_ms: i64) -> bool {
        match self.expire_timestamp_ms {
            Some(at_ms) => now_ms >= at_ms,
            None => now_ms.saturating_sub(starts_ms) >= retention_ms,
        }
    }
}

/// The version of the committed offsets that a reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetsVersion {
    /// The decided state.
    Latest,
    /// The acknowledged state.
    Acknowledged,
}

type PartitionOffsets = BTreeMap<PartitionIndex, TimelineObject<OffsetAndMetadata>>;
type TopicOffsets = BTreeMap<String, PartitionOffsets>;

/// A change without an acknowledgement from the log.
#[derive(Debug)]
struct Change {
    at: i64,
    group: Arc<str>,
    topic: String,
    partition: PartitionIndex,
}

/// All committed offsets of a shard.
#[derive(Debug, Default)]
pub(super) struct OffsetStore {
    groups: HashMap<Arc<str>, TopicOffsets>,
    /// In the order of the log.
    unacknowledged: VecDeque<Change>,
    transactions: Transactions,
}

impl OffsetStore {
    /// The offset committed for a partition.
    pub(super) fn get(
        &self,
        version: OffsetsVersion,
        group: &str,
        topic: &str,
        partition: PartitionIndex,
    ) -> Option<&OffsetAndMetadata> {
        let value = self.groups.get(group)?.get(topic)?.get(&partition)?;
        match version {
            OffsetsVersion::Latest => value.latest(),
            OffsetsVersion::Acknowledged => value.acknowledged(),
        }
    }

    /// All offsets that a group committed, by topic and partition.
    pub(super) fn of_group(
        &self,
        version: OffsetsVersion,
        group: &str,
    ) -> impl Iterator<Item = (&str, PartitionIndex, &OffsetAndMetadata)> {
        self.groups.get(group).into_iter().flatten().flat_map(move |(topic, partitions)| {
            partitions.iter().filter_map(move |(&partition, value)| {
                let value = match version {
                    OffsetsVersion::Latest => value.latest(),
                    OffsetsVersion::Acknowledged => value.acknowledged(),
                };
                value.map(|value| (topic.as_str(), partition, value))
            })
        })
    }

    /// True if an open transaction commits an offset for the partition.
    pub(super) fn is_unstable(&self, group: &str, topic: &str, partition: PartitionIndex) -> bool {
        self.transactions.is_open_for(group, topic, partition)
    }

    /// Sets or removes an offset. `at` is the offset of its record, if readers must wait for the record's
    /// acknowledgement.
    pub(super) fn put(
        &mut self,
        group: &Arc<str>,
        topic: &str,
        partition: PartitionIndex,
        value: Option<OffsetAndMetadata>,
        at: Option<i64>,
    ) {
        if value.is_none() && self.get(OffsetsVersion::Latest, group, topic, partition).is_none() {
            return;
        }
        let topics = self.groups.entry(group.clone()).or_default();
        if !topics.contains_key(topic) {
            topics.insert(topic.to_owned(), PartitionOffsets::new());
        }
        let partitions = topics.get_mut(topic).expect("it was just put there");
        let slot = partitions.entry(partition).or_default();
        match at {
            Some(at) => {
                slot.change(value);
                let (group, topic) = (group.clone(), topic.to_owned());
                self.unacknowledged.push_back(Change { at, group, topic, partition });
            }
            None => {
                slot.set(value);
                self.drop_if_gone(group, topic, partition);
            }
        }
    }

    /// Makes changes up to this offset of the log visible to readers.
    pub(super) fn acknowledge(&mut self, last_offset: i64) {
        while self.unacknowledged.front().is_some_and(|change| change.at <= last_offset) {
            let Change { group, topic, partition, .. } =
                self.unacknowledged.pop_front().expect("the condition has found it");
            let slot = self.groups.get_mut(&group).and_then(|topics| topics.get_mut(&topic));
            if let Some(slot) = slot.and_then(|partitions| partitions.get_mut(&partition)) {
                slot.acknowledge();
            }
            self.drop_if_gone(&group, &topic, partition);
        }
    }

    fn drop_if_gone(&mut self, group: &Arc<str>, topic: &str, partition: PartitionIndex) {
        let Some(topics) = self.groups.get_mut(group) else { return };
        let Some(partitions) = topics.get_mut(topic) else { return };
        if partitions.get(&partition).is_some_and(TimelineObject::is_gone) {
            partitions.remove(&partition);
        }
        if partitions.is_empty() {
            topics.remove(topic);
        }
        if topics.is_empty() {
            self.groups.remove(group);
        }
    }

    /// Tombstones for all offsets of a group, including those of open transactions.
    pub(super) fn tombstones_of(&self, group: &str) -> Vec<CoordinatorRecord> {
        let mut records: Vec<CoordinatorRecord> = self
            .of_group(OffsetsVersion::Latest, group)
            .map(|(topic, partition, _)| CoordinatorRecord::offset_tombstone(group, topic, partition))
            .collect();
        for (topic, partition) in self.transactions.open_of(group) {
            if self.get(OffsetsVersion::Latest, group, topic, partition).is_none() {
                records.push(CoordinatorRecord::offset_tombstone(group, topic, partition));
            }
        }
        records
    }

    /// Adds tombstones for a group's offsets that are expired or whose topic is deleted. `starts_ms` returns
    /// the start of an offset's retention, or `None` while the offset is needed; `id_of` returns the id of
    /// the topic that has a name now.
    pub(super) fn expire(
        &self,
        group: &str,
        now_ms: i64,
        retention_ms: i64,
        starts_ms: impl Fn(&str, &OffsetAndMetadata) -> Option<i64>,
        id_of: impl Fn(&str) -> Option<Uuid>,
        records: &mut Vec<CoordinatorRecord>,
    ) {
        for (topic, partitions) in self.groups.get(group).into_iter().flatten() {
            let id = id_of(topic);
            for (&partition, value) in partitions {
                let Some(value) = value.latest() else { continue };
                let is_over = value.outlives_its_topic(id)
                    || starts_ms(topic, value)
                        .is_some_and(|starts_ms| value.is_expired(starts_ms, now_ms, retention_ms));
                if is_over && !self.is_unstable(group, topic, partition) {
                    records.push(CoordinatorRecord::offset_tombstone(group, topic, partition));
                }
            }
        }
    }

    /// True if a group has no offsets and no open transaction commits one.
    pub(super) fn is_empty_for(&self, group: &str) -> bool {
        !self.transactions.is_group_open(group)
            && self.of_group(OffsetsVersion::Latest, group).next().is_none()
    }

    /// Tombstones for all offsets of a deleted topic. Offsets of another topic with that name stay.
    pub(super) fn tombstones_of_topic(&self, name: &str, id: Uuid) -> Vec<CoordinatorRecord> {
        let mut groups: Vec<&Arc<str>> = self.groups.keys().collect();
        groups.sort_unstable();
        let is_of_topic = |value: &OffsetAndMetadata| value.topic_id.is_zero() || value.topic_id == id;
        let mut records = Vec::new();
        for group in groups {
            let partitions = self.groups[group].get(name).into_iter().flatten();
            for (&partition, value) in partitions {
                if value.latest().is_some_and(is_of_topic) {
                    records.push(CoordinatorRecord::offset_tombstone(group, name, partition));
                }
            }
        }
        for (group, partition) in self.transactions.open_for_topic(name, is_of_topic) {
            if self
                .get(OffsetsVersion::Latest, group, name, partition)
                .is_none_or(|value| !is_of_topic(value))
            {
                records.push(CoordinatorRecord::offset_tombstone(group, name, partition));
            }
        }
        records
    }

    /// Adds an offset to an open transaction. The offset takes effect when the transaction commits.
    pub(super) fn put_pending(
        &mut self,
        producer_id: i64,
        group: &Arc<str>,
        topic: &str,
        partition: PartitionIndex,
        value: OffsetAndMetadata,
    ) {
        self.transactions.put(producer_id, group, topic, partition, value);
    }

    /// Removes an offset from every open transaction that would commit it.
    pub(super) fn remove_pending(&mut self, group: &str, topic: &str, partition: PartitionIndex) {
        self.transactions.remove(group, topic, partition);
    }

    /// Drops all pending offsets after records of the log were lost. The end of an open transaction may be
    /// among the lost records, and a later marker may belong to the producer's next transaction: it would
    /// commit offsets of an aborted transaction. Dropping is safer: offsets that are too low cause repeated
    /// reads, offsets that are too high cause records that are never read.
    pub(super) fn forget_pending(&mut self) {
        self.transactions.clear();
    }

    /// Ends a transaction. `at` is the offset of the marker, if readers must wait for the marker's
    /// acknowledgement.
    pub(super) fn end_transaction(&mut self, producer_id: i64, outcome: TransactionOutcome, at: Option<i64>) {
        for (group, topic, partition, value) in self.transactions.end(producer_id) {
            let is_newer = self
                .get(OffsetsVersion::Latest, &group, &topic, partition)
                .is_none_or(|current| value.record_offset > current.record_offset);
            if outcome == TransactionOutcome::Commit && is_newer {
                self.put(&group, &topic, partition, Some(value), at);
            }
        }
    }
}
