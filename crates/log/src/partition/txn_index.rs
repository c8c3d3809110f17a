//! Checks the integrity of the transaction indexes.
//!
//! ```text
//! transaction-index-checkpoint    text like the checkpoints, of version 1: "base length crc"
//!                                 for each segment with a .txnindex
//! ```
//! A `.txnindex` has neither a length nor a checksum, and a segment without aborted transactions has none. So
//! a missing, truncated or damaged index would show aborted records as committed. The checkpoint records the
//! indexes when segments are rolled, replaced, truncated or closed; an index that differs is rebuilt from the
//! batches. Apache Kafka ignores the file, so an index that Kafka has written to or added differs.
//!
//! Version 0 was written by earlier versions of Thalweg, whose indexes may have last stable offsets after
//! their markers (see `segment::transactions`). Such indexes, and those of a directory without the file, are
//! corrected. Earlier versions treat version 1 as damage, and rebuild the indexes.
//!
//! The index of a missing segment between others may still exist. Its entries are added to the index of the
//! previous segment, for the remaining records of those transactions, which a reader of committed records
//! must not get. If the segment is restored, its index is rebuilt, and its entries are removed from the other
//! index. If the index is missing, too, the checkpoint still lists it: the start then knows that records are
//! missing there (see `suspects`), unless the log is compacted there. So the checkpoint is synced before
//! replaced or cut-off segments are removed.
//!
//! For a segment without an `.index`, a missing `.txnindex` is rebuilt regardless of the checkpoint, as in
//! Apache Kafka.
//!
//! Owns: the checkpoint, and rebuilding an index. Refuses: judging an index without a checkpoint, as in a
//! directory written by Apache Kafka.

use std::io;
use std::path::Path;

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use super::loading::LoadingPartition;
use super::replay::{aborted_in, replay_segments};
use crate::checkpoint::{self, TXN_INDEX_FILE, TxnIndexes};
use crate::config::LogConfig;
use crate::disk::Disk;
use crate::producers::{Producers, snapshot};
use crate::segment::transactions::{self, AbortedTransaction};
use crate::segment::{Home, SNAPSHOT_SUFFIX, Segment, TXN_INDEX_SUFFIX};
use crate::topic_partition::TopicPartition;

impl PartitionLog {
    /// Records the current transaction indexes. If there are none, no file is created.
    pub(super) fn write_txn_checkpoint(&mut self) -> io::Result<()> {
        write(&self.home, &mut self.segments)
    }

    /// Adds the entries of the transaction indexes of missing segments with these base offsets to those of
    /// the previous segments, and removes the files.
    pub(super) fn adopt_txn_indexes(&mut self, bases: &[Offset]) -> io::Result<()> {
        for &base in bases {
            let path = self.home.file(base, TXN_INDEX_SUFFIX);
            let index = self.segments.partition_point(|segment| segment.base_offset < base);
            let next_base = self.segments.get(index).map(|next| next.base_offset);
            if let (Some(before), Some(next_base)) = (index.checked_sub(1), next_base)
                && base < next_base
            {
                let found = transactions::read(&self.home.disk, &path)?;
                let of_segment =
                    |aborted: &AbortedTransaction| (base..next_base).contains(&aborted.last_offset);
                let segment = &mut self.segments[before];
                let mut known = segment.aborted_transactions(&self.home)?;
                known.retain(|aborted| aborted.last_offset < base);
                known.extend(found.into_iter().filter(of_segment));
                segment.replace_aborted(&self.home, &known)?;
                if let Some(index) = segment.txn_index(&self.home) {
                    // The entries are lost once the file is removed, unless synced here.
                    self.home.disk.open(&index)?.sync_data()?;
                }
                write(&self.home, &mut self.segments)?;
                sync(&self.home.disk, &self.home.dir)?;
                self.home.disk.sync_dir(&self.home.dir)?;
                tracing::warn!(
                    partition = %self.name, segment = base.0,
                    "Kept the aborted transactions of a missing segment"
                );
            }
            if next_base != Some(base) {
                self.home.disk.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Records the current transaction indexes, durably: segments listed in an older checkpoint would count
    /// as missing.
    pub(super) fn renew_txn_checkpoint(&mut self) -> io::Result<()> {
        let written = self.write_txn_checkpoint().and_then(|()| sync(&self.home.disk, &self.home.dir));
        self.home.disk.unless_full(written)
    }

    /// Records the indexes like [`PartitionLog::write_txn_checkpoint`]. A failure costs no more than a
    /// rebuilt index.
    pub(super) fn note_txn_indexes(&mut self) {
        let written = self.write_txn_checkpoint();
        self.log_unwritten_txn_checkpoint(written);
    }

    /// Records the indexes like [`PartitionLog::renew_txn_checkpoint`]. A failure costs no more than a
    /// rebuilt index.
    pub(super) fn note_txn_indexes_durably(&mut self) {
        let written = self.renew_txn_checkpoint();
        self.log_unwritten_txn_checkpoint(written);
    }

    fn log_unwritten_txn_checkpoint(&self, written: io::Result<()>) {
        if let Err(error) = written {
            tracing::warn!(partition = %self.name, %error, "Failed to write the transaction index checkpoint, retrying later");
        }
    }
}

/// Syncs the checkpoint, if there is one, before the files of segments that it no longer lists are removed.
pub(super) fn sync(disk: &Disk, dir: &Path) -> io::Result<()> {
    let path = dir.join(TXN_INDEX_FILE);
    if disk.exists(&path) { disk.open(&path)?.sync_data() } else { Ok(()) }
}

fn write(home: &Home, segments: &mut [Segment]) -> io::Result<()> {
    let path = home.dir.join(TXN_INDEX_FILE);
    let mut indexes = TxnIndexes { is_current: true, ..TxnIndexes::default() };
    for segment in segments {
        if let Some(sum) = segment.txn_index_sum(home)? {
            indexes.sums.insert(segment.base_offset, sum);
        }
    }
    if indexes.sums.is_empty() && !home.disk.exists(&path) {
        return Ok(());
    }
    checkpoint::write_txn_indexes(&home.disk, &path, &indexes)
}

impl LoadingPartition {
    /// Compares the transaction indexes of the first `count` segments with the checkpoint, and rebuilds those
    /// that differ.
    pub(super) fn check_txn_indexes(
        &mut self,
        count: usize,
        name: &TopicPartition,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let mut remade = self.remake_beside_missing_index(count, name, config, now_ms)?;
        if !self.has_txn_checkpoint {
            return self.correct_txn_indexes(count);
        }
        let path = self.home.dir.join(TXN_INDEX_FILE);
        let expected = match checkpoint::read_txn_indexes(&self.home.disk, &path) {
            Ok(expected) => Some(expected),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "Ignored an invalid transaction index checkpoint");
                None
            }
        };
        if let Some(expected) = &expected {
            self.note_lost_markers(expected);
        }
        let mut behind = None;
        for index in 0..count {
            let segment = &mut self.segments[index];
            let base = segment.base_offset;
            let found = segment.txn_index_sum(&self.home)?;
            if expected.as_ref().is_some_and(|expected| expected.sums.get(&base) == found.as_ref()) {
                continue;
            }
            tracing::warn!(
                partition = %name, segment = base.0,
                "Transaction index does not match its checkpoint; rebuilding it from the batches"
            );
            self.remake_txn_index(index, config, now_ms, &mut behind)?;
            remade = true;
        }
        remade |= self.remake_returned(count, config, now_ms)?;
        if expected.is_some_and(|expected| !expected.is_current) {
            return self.correct_txn_indexes(count);
        }
        if remade {
            self.home.disk.unless_full(write(&self.home, &mut self.segments))?;
        }
        Ok(())
    }

    /// Rebuilds the transaction indexes of segments without any index: the cause that removed the other
    /// indexes may have removed these and the checkpoint, too. Returns true if there are any.
    fn remake_beside_missing_index(
        &mut self,
        count: usize,
        name: &TopicPartition,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<bool, LogError> {
        let (mut remade, mut behind) = (0, None);
        for index in 0..count {
            let segment = &mut self.segments[index];
            let is_unindexed = self.unindexed.contains(&segment.base_offset) && !segment.is_empty();
            if !is_unindexed || segment.txn_index_sum(&self.home)?.is_some() {
                continue;
            }
            self.remake_txn_index(index, config, now_ms, &mut behind)?;
            remade += 1;
        }
        if remade > 0 {
            tracing::warn!(
                partition = %name, segments = remade,
                "Rebuilt the transaction indexes of segments whose indexes are missing"
            );
        }
        Ok(remade > 0)
    }

    /// Notes the segments between others that had a transaction index and are missing with all their files.
    fn note_lost_markers(&mut self, expected: &TxnIndexes) {
        let [first, .., last] = &self.segments[..] else { return };
        let is_lost = |base: &Offset| {
            (first.base_offset..last.base_offset).contains(base)
                && self.segments.binary_search_by_key(base, |segment| segment.base_offset).is_err()
                && !self.oddities.deleted.contains(base)
        };
        self.lost_markers = expected.sums.keys().filter(|base| is_lost(base)).copied().collect();
    }

    /// Rebuilds the transaction indexes of restored segments, whose entries are in the indexes of the
    /// previous segments. Returns true if there are any.
    fn remake_returned(&mut self, count: usize, config: &LogConfig, now_ms: i64) -> Result<bool, LogError> {
        let mut remade = false;
        for index in 0..count {
            let Some(next) = self.segments.get(index + 1).map(|next| next.base_offset) else { break };
            let known = self.segments[index].aborted_transactions(&self.home)?;
            if known.last().is_none_or(|aborted| aborted.last_offset < next) {
                continue;
            }
            for aborted in known.iter().filter(|aborted| aborted.last_offset >= next) {
                let behind =
                    self.segments.partition_point(|segment| segment.base_offset <= aborted.last_offset);
                if behind <= count {
                    self.remake_txn_index(behind - 1, config, now_ms, &mut None)?;
                }
            }
            self.segments[index].truncate_transactions(&self.home, next)?;
            remade = true;
        }
        Ok(remade)
    }

    /// Corrects last stable offsets that earlier versions or Apache Kafka have written after their markers,
    /// and notes that the indexes are right. The files keep their length, so that a full disk does not
    /// matter.
    fn correct_txn_indexes(&mut self, count: usize) -> Result<(), LogError> {
        for segment in &mut self.segments[..count] {
            segment.correct_aborted(&self.home)?;
        }
        self.home.disk.unless_full(write(&self.home, &mut self.segments))?;
        Ok(())
    }

    /// Rebuilds the transaction index of a segment. `behind` are the producers after the previously rebuilt
    /// segment, so that a log without any index is read once.
    fn remake_txn_index(
        &mut self,
        index: usize,
        config: &LogConfig,
        now_ms: i64,
        behind: &mut Option<Producers>,
    ) -> Result<(), LogError> {
        let base = self.segments[index].base_offset;
        let is_near = |producers: &Producers| {
            let snapshots = self.snapshots.iter().filter(|&&snapshot| snapshot <= base);
            producers.map_end() <= base.0
                && snapshots.max().is_none_or(|newest| newest.0 <= producers.map_end())
        };
        let mut producers =
            behind.take().filter(is_near).unwrap_or_else(|| self.producers_at(base, config, now_ms));
        replay_segments(&self.home, &mut self.segments[..index], &mut producers, base)?;
        let segment = &mut self.segments[index];
        let aborted = aborted_in(&self.home, segment, &mut producers)?;
        segment.replace_aborted(&self.home, &aborted)?;
        *behind = Some(producers);
        Ok(())
    }

    /// The producers as of `offset` or before, from the newest complete snapshot.
    fn producers_at(&self, offset: Offset, config: &LogConfig, now_ms: i64) -> Producers {
        let mut older: Vec<_> =
            self.snapshots.iter().copied().filter(|&snapshot| snapshot <= offset).collect();
        older.sort_unstable();
        for snapshot in older.into_iter().rev() {
            let path = self.home.file(snapshot, SNAPSHOT_SUFFIX);
            let mut producers = Producers::starting_at(snapshot.0);
            let expiration_ms = config.producer_id_expiration_ms;
            if snapshot::load(&self.home.disk, &path, &mut producers, now_ms, expiration_ms).is_ok() {
                return producers;
            }
        }
        Producers::starting_at(self.segments[0].base_offset.0)
    }
}
