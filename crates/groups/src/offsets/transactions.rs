//! Offsets in open transactions.

use super::OffsetAndMetadata;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;

/// The outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// The transaction's writes take effect.
    Commit,
    /// The transaction's writes are discarded.
    Abort,
}

type PendingOffsets = BTreeMap<(Arc<str>, String, PartitionIndex), OffsetAndMetadata>;
type Producers = BTreeMap<PartitionIndex, BTreeSet<i64>>;

/// The open transactions of a shard.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// The pending commits of each producer's transaction.
    pending: HashMap<i64, PendingOffsets>,
    /// Producers whose transactions commit an offset for a partition, by group, topic and partition.
    open: HashMap<Arc<str>, BTreeMap<String, Producers>>,
}

impl Transactions {
    pub(super) fn put(
        &mut self,
        producer_id: i64,
        group: &Arc<str>,
        topic: &str,
        partition: PartitionIndex,
        value: OffsetAndMetadata,
    ) {
        let key = (group.clone(), topic.to_owned(), partition);
        self.pending.entry(producer_id).or_default().insert(key, value);
        let topics = self.open.entry(group.clone()).or_default();
        topics.entry(topic.to_owned()).or_default().entry(partition).or_default().insert(producer_id);
    }

    /// True if an open transaction commits an offset of the group.
    pub(super) fn is_group_open(&self, group: &str) -> bool {
        self.open.contains_key(group)
    }

    pub(super) fn is_open_for(&self, group: &str, topic: &str, partition: PartitionIndex) -> bool {
        self.open
            .get(group)
            .and_then(|topics| topics.get(topic))
            .is_some_and(|partitions| partitions.contains_key(&partition))
    }

    /// The partitions of a group with pending offsets.
    pub(super) fn open_of(&self, group: &str) -> impl Iterator<Item = (&str, PartitionIndex)> {
        self.open.get(group).into_iter().flatten().flat_map(|(topic, partitions)| {
            partitions.keys().map(move |&partition| (topic.as_str(), partition))
        })
    }

    /// Groups and partitions with pending offsets of a topic that satisfy `is_wanted`.
    pub(super) fn open_for_topic(
        &self,
        name: &str,
        is_wanted: impl Fn(&OffsetAndMetadata) -> bool,
    ) -> BTreeSet<(&str, PartitionIndex)> {
        let all = self.pending.values().flatten();
        all.filter(|((_, topic, _), value)| topic == name && is_wanted(value))
            .map(|((group, _, partition), _)| (&**group, *partition))
            .collect()
    }

    pub(super) fn remove(&mut self, group: &str, topic: &str, partition: PartitionIndex) {
        let producers = self
            .open
            .get_mut(group)
            .and_then(|topics| topics.get_mut(topic))
            .and_then(|partitions| partitions.remove(&partition));
        let Some(producers) = producers else { return };
        let key = (Arc::from(group), topic.to_owned(), partition);
        for producer_id in producers {
            if let Some(pending) = self.pending.get_mut(&producer_id) {
                pending.remove(&key);
                if pending.is_empty() {
                    self.pending.remove(&producer_id);
                }
            }
        }
        self.drop_empty(group, topic);
    }

    /// Ends a producer's transaction, and returns its pending commits.
    pub(super) fn end(
        &mut self,
        producer_id: i64,
    ) -> impl Iterator<Item = (Arc<str>, String, PartitionIndex, OffsetAndMetadata)> + use<> {
        let pending = self.pending.remove(&producer_id).unwrap_or_default();
        for (group, topic, partition) in pending.keys() {
            let partitions = self.open.get_mut(group).and_then(|topics| topics.get_mut(topic));
            if let Some(partitions) = partitions
                && let Some(producers) = partitions.get_mut(partition)
            {
                producers.remove(&producer_id);
                if producers.is_empty() {
                    partitions.remove(partition);
                }
            }
            self.drop_empty(group, topic);
        }
        pending.into_iter().map(|((group, topic, partition), value)| (group, topic, partition, value))
    }

    /// Drops the pending commits of all transactions.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.open.clear();
    }

    fn drop_empty(&mut self, group: &str, topic: &str) {
        let Some(topics) = self.open.get_mut(group) else { return };
        if topics.get(topic).is_some_and(BTreeMap::is_empty) {
            topics.remove(topic);
        }
        if topics.is_empty() {
            self.open.remove(group);
        }
    }
}
