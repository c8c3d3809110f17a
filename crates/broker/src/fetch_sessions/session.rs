//! One session: its partitions, and the partitions for the next fetch to read.
//!
//! A partition is read to its end after a read without records. Such a partition is read again after news, if
//! the client requests another offset, or after [`WHOLE_EVERY_MS`]. All other partitions are read by the next
//! fetch.

use super::{FetchPartitionKey, PartitionAnswer};
use std::collections::hash_map::Entry;
use std::sync::Arc;
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_replica::partition::{News, Subscription};
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};

/// Number of partitions from which on a request is checked for repetitions.
const MANY: usize = 1_000;
/// Interval of reading all partitions. Some changes make no news, such as a log start moved by retention.
const WHOLE_EVERY_MS: i64 = 1_000;

/// A partition for a fetch to read.
#[derive(Clone, Debug)]
pub struct WantedPartition {
    pub key: FetchPartitionKey,
    pub partition: FetchPartition,
    /// The partition's slot in the session, if there is a session.
    pub slot: Option<u32>,
    /// The partition's entry in the session's news; `None` without a session.
    pub subscription: Option<Arc<Subscription>>,
}

/// The partitions of a session for a fetch to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Whole,
    /// Partitions that are not read to their end.
    Unread,
}

/// The result of a partition in an answer.
#[derive(Clone, Debug)]
pub struct PartitionResult {
    pub key: FetchPartitionKey,
    pub slot: Option<u32>,
    pub answered: PartitionAnswer,
    /// True if there are records or other news for the client.
    pub has_news: bool,
    /// True if there was nothing to read.
    pub is_read_to_end: bool,
}

/// The state of a partition in a session.
#[derive(Clone, Debug)]
struct CachedPartition {
    key: FetchPartitionKey,
    wanted: FetchPartition,
    /// The values in the last answer.
    answered: Option<PartitionAnswer>,
    subscription: Arc<Subscription>,
    is_read_to_end: bool,
    /// Number of the last answer with news of the partition. Partitions with recent news are read last, so
    /// that none starves behind a full one.
    served: u64,
}

#[derive(Debug, Default)]
pub(super) struct FetchSession {
    pub(super) epoch: i32,
    pub(super) by_id: bool,
    partitions: Vec<CachedPartition>,
    /// The index of each partition in `partitions`.
    index: HashMap<FetchPartitionKey, u32>,
    pub(super) news: Arc<News>,
    /// The indexes of partitions that are not read to their end.
    unread: Vec<u32>,
    /// Number of answers.
    answers: u64,
    /// Time of the last read of all partitions.
    whole_ms: i64,
}

impl FetchSession {
    pub(super) fn open(by_id: bool, wanted: Vec<WantedPartition>, now_ms: i64) -> FetchSession {
        let mut session = FetchSession { epoch: 1, by_id, whole_ms: now_ms, ..FetchSession::default() };
        session.update(wanted, Vec::new());
        session
    }

    pub(super) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Applies a request: new, changed and forgotten partitions.
    pub(super) fn update(&mut self, wanted: Vec<WantedPartition>, forgotten: Vec<ForgottenTopic>) {
        for WantedPartition { key, partition, .. } in wanted {
            match self.index.get(&key) {
                Some(&slot) => {
                    self.partitions[slot as usize].wanted = partition;
                    self.mark_unread(slot);
                }
                None => self.add(key, partition),
            }
        }
        if !forgotten.is_empty() {
            self.forget(forgotten);
        }
    }

    fn add(&mut self, key: FetchPartitionKey, wanted: FetchPartition) {
        let slot =
            u32::try_from(self.partitions.len()).expect("a request names fewer partitions than it has bytes");
        let subscription = News::subscription(&self.news, slot);
        self.index.insert(key.clone(), slot);
        self.partitions.push(CachedPartition {
            key,
            wanted,
            answered: None,
            subscription,
            is_read_to_end: true,
            served: 0,
        });
        self.mark_unread(slot);
    }

    /// Removes partitions. The remaining ones get new slots in the same order, with new subscriptions.
    fn forget(&mut self, forgotten: Vec<ForgottenTopic>) {
        for topic in forgotten {
            let name: Arc<str> = topic.topic.into();
            for partition in topic.partitions.into_iter().map(PartitionIndex) {
                self.index.remove(&FetchPartitionKey {
                    topic: Arc::clone(&name),
                    topic_id: topic.topic_id,
                    partition,
                });
            }
        }
        let still = std::mem::take(&mut self.index);
        (self.news, self.unread) = (Arc::default(), Vec::new());
        for cached in std::mem::take(&mut self.partitions) {
            if still.contains_key(&cached.key) {
                self.add(cached.key, cached.wanted);
                let added = self.partitions.last_mut().expect("it was just added");
                (added.answered, added.served) = (cached.answered, cached.served);
            }
        }
    }

    fn mark_unread(&mut self, slot: u32) {
        let cached = &mut self.partitions[slot as usize];
        if std::mem::replace(&mut cached.is_read_to_end, false) {
            self.unread.push(slot);
        }
    }

    /// The partitions for the next fetch to read, in order.
    pub(super) fn wanted(&mut self, scope: Scope, now_ms: i64) -> Vec<WantedPartition> {
        self.take_news();
        let mut slots = if scope == Scope::Whole || now_ms.abs_diff(self.whole_ms) >= WHOLE_EVERY_MS as u64 {
            self.whole_ms = now_ms;
            (0..u32::try_from(self.partitions.len()).expect("slots are numbers of 32 bits")).collect()
        } else {
            self.unread.clone()
        };
        slots.sort_unstable_by_key(|slot| (self.partitions[*slot as usize].served, *slot));
        slots.into_iter().map(|slot| self.wanted_at(slot)).collect()
    }

    /// The partitions with news since the last call, for a fetch that waits.
    pub(super) fn with_news(&mut self) -> Vec<WantedPartition> {
        self.take_news().into_iter().map(|slot| self.wanted_at(slot)).collect()
    }

    fn take_news(&mut self) -> Vec<u32> {
        let slots = self.news.take();
        for slot in &slots {
            self.mark_unread(*slot);
        }
        slots
    }

    fn wanted_at(&self, slot: u32) -> WantedPartition {
        let CachedPartition { key, wanted, subscription, .. } = &self.partitions[slot as usize];
        WantedPartition {
            key: key.clone(),
            partition: wanted.clone(),
            slot: Some(slot),
            subscription: Some(Arc::clone(subscription)),
        }
    }

    /// Records an answer, and returns which of its partitions must be included: all of a full answer.
    pub(super) fn answered(&mut self, reads: &[PartitionResult], is_full: bool) -> Vec<bool> {
        self.answers += 1;
        let mentioned = reads.iter().map(|read| {
            let is_at = |slot: &u32| self.partitions.get(*slot as usize).is_some_and(|at| at.key == read.key);
            // A concurrent fetch may have removed partitions.
            let Some(slot) = read.slot.filter(is_at).or_else(|| self.index.get(&read.key).copied()) else {
                return true;
            };
            let cached = &mut self.partitions[slot as usize];
            let is_error = read.answered.error_code != 0;
            let changed = read.has_news || cached.answered != Some(read.answered) || is_error;
            // An error is repeated in each answer, and the recovery is reported.
            cached.answered = (!is_error).then_some(read.answered);
            if read.has_news {
                cached.served = self.answers;
            }
            match read.is_read_to_end {
                // Removed from `unread` below.
                true => cached.is_read_to_end = true,
                false => self.mark_unread(slot),
            }
            is_full || changed
        });
        let mentioned = mentioned.collect();
        self.unread.retain(|slot| !self.partitions[*slot as usize].is_read_to_end);
        mentioned
    }
}

/// The partitions of a request. In a long request, repeated partitions are merged, as in Kafka, and the last
/// one counts. Short requests are not checked: no client repeats partitions, and the limits of the fetch
/// apply to the sum.
pub(super) fn flatten(topics: Vec<FetchTopic>) -> Vec<WantedPartition> {
    let count: usize = topics.iter().map(|t| t.partitions.len()).sum();
    let mut wanted: Vec<WantedPartition> = Vec::with_capacity(count);
    let mut indexes: HashMap<FetchPartitionKey, usize> = HashMap::default();
    for topic in topics {
        let name: Arc<str> = topic.topic.into();
        for partition in topic.partitions {
            let key = FetchPartitionKey {
                topic: Arc::clone(&name),
                topic_id: topic.topic_id,
                partition: PartitionIndex(partition.partition),
            };
            if count >= MANY {
                match indexes.entry(key.clone()) {
                    Entry::Occupied(index) => {
                        wanted[*index.get()].partition = partition;
                        continue;
                    }
                    Entry::Vacant(free) => _ = free.insert(wanted.len()),
                }
            }
            wanted.push(WantedPartition { key, partition, slot: None, subscription: None });
        }
    }
    wanted
}
