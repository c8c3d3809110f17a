//! Upkeep of the log: snapshots of idle share partitions, tombstones for share partitions of deleted topics,
//! and the offset before which no record is needed (Kafka's `ShareCoordinatorOffsetsManager`).

use super::{ShareShard, Write, add};
use crate::states::record::ShareRecord;
use crate::states::request::ShareStateAnswer;
use thalweg_hash::HashSet;
use thalweg_shard::{Basis, Moment, Ticket};
use thalweg_share::SharePartitionKey;
use thalweg_wire::Uuid;

impl ShareShard {
    /// Repeats old snapshots, so that the log can be cut before them, unless nothing has changed since the
    /// last repetition. Also removes states of deleted topics whose tombstones could not be written at the
    /// time, or whose topics were deleted while the shard was loading.
    pub(in super::super) fn snapshot_cold(&mut self, now: Moment) {
        let (kept, gone): (Vec<_>, Vec<_>) = self.entries.iter().partition(|(key, _)| self.exists(key));
        let tombstone = |key: &SharePartitionKey| ShareRecord::Snapshot(key.clone(), None);
        let mut records: Vec<ShareRecord> = gone.into_iter().map(|(key, _)| tombstone(key)).collect();
        if !kept.iter().all(|(_, entry)| entry.is_repeated()) {
            let oldest_ms = now.wall_ms.saturating_sub(self.shared.config.cold_snapshot_interval_ms);
            let cold = kept.into_iter().filter(|(_, entry)| entry.written_ms <= oldest_ms);
            records.extend(cold.map(|(key, entry)| {
                ShareRecord::Snapshot(key.clone(), Some(entry.next_snapshot(now.wall_ms)))
            }));
        }
        records.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        self.write_all(records);
    }

    /// Removes the states of the partitions of deleted topics.
    pub(in super::super) fn topics_deleted(&mut self, topics: &HashSet<Uuid>) {
        let gone = self.entries.keys().filter(|key| topics.contains(&key.topic));
        let mut gone: Vec<SharePartitionKey> = gone.cloned().collect();
        gone.sort_unstable();
        self.write_all(gone.into_iter().map(|key| ShareRecord::Snapshot(key, None)).collect());
    }

    fn write_all(&mut self, records: Vec<ShareRecord>) {
        let mut writes: Vec<Write> = Vec::new();
        for record in records {
            let key = record.key().clone();
            if let Err(error) = add(&mut writes, record, None) {
                tracing::error!(?key, %error, "Failed to write the state of a share partition");
            }
        }
        self.writes.extend(writes);
    }

    /// Answers with the offset before which no record is needed. The offset depends on the snapshots after
    /// it.
    pub(in super::super) fn find_redundant(&mut self, ticket: Ticket) {
        self.answers.give(ticket, ShareStateAnswer::RedundantBefore(self.redundant_before()), Basis::LATEST);
    }

    /// The offset before which no record is needed; `None` if every record may be needed.
    pub(in super::super) fn redundant_before(&self) -> Option<i64> {
        let mut oldest = i64::MAX;
        for entry in self.entries.values() {
            oldest = oldest.min(entry.snapshot_at?);
        }
        let oldest = if self.entries.is_empty() { self.deleted_at } else { oldest };
        (oldest > 0).then_some(oldest)
    }
}
