//! Checks the integrity of the transaction indexes.
//!
//! ```text
//! transaction-index-checkpoint    text like the checkpoints, of version 1:
//!   <end> <leader epoch>          below `end`, whose last record has this epoch, no index lacks an entry; left out
//!                                 while that is not known
//!   <base> <length> <crc>         for each segment with a .txnindex
//! ```
//! A `.txnindex` has neither a length nor a checksum, and a segment without aborted transactions has none. So a
//! missing, truncated or damaged index would show aborted records as committed. The checkpoint records the indexes
//! when segments are rolled, replaced, truncated or closed; an index that differs is rebuilt from the batches. Apache
//! Kafka ignores the file. An earlier version of Thalweg takes version 1 for damage, and rebuilds the indexes; its own
//! version 0 has no line with an end.
//!
//! So the file shows whether Apache Kafka or an earlier version has written to the directory since: segments that they
//! have added end above `end`, a log that they have truncated and continued has another epoch there, and an index that
//! they have changed differs. What they have compacted is unverified (see `txn_rebuild`).
//!
//! Owns: the checkpoint, and rebuilding an index. Refuses: judging an index without a checkpoint, as in a directory
//! written by Apache Kafka.

use std::collections::BTreeMap;
use std::io;

use thalweg_record::{LeaderEpoch, Offset};

use super::PartitionLog;
use super::error::LogError;
use super::load::Loading;
use super::replay::{aborted_in, replay_segments};
use crate::checkpoint::{self, TXN_INDEX_FILE, TxnIndexes};
use crate::config::LogConfig;
use crate::producers::{Producers, snapshot};
use crate::segment::{Home, SNAPSHOT_SUFFIX};
use crate::topic_partition::TopicPartition;

/// The part of a log whose transaction indexes lack no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Complete {
    /// None is known to be complete.
    #[default]
    Unknown,
    /// Up to an offset, the last record before which has this leader epoch.
    Below(Offset, LeaderEpoch),
    /// All were rebuilt.
    All,
}

/// The transaction indexes of a log that is being opened.
#[derive(Debug, Default)]
pub(super) struct FoundTxnIndexes {
    /// Whether there is a checkpoint of them.
    pub(super) has_checkpoint: bool,
    pub(super) complete: Complete,
    /// Whether the checkpoint must be written again.
    pub(super) is_stale: bool,
}

impl PartitionLog {
    /// Records the current transaction indexes. A log that has none, and was never compacted, gets no file.
    pub(super) fn write_txn_checkpoint(&mut self) -> io::Result<()> {
        let path = self.home.dir.join(TXN_INDEX_FILE);
        let mut sums = BTreeMap::new();
        for segment in &mut self.segments {
            if let Some(sum) = segment.txn_index_sum(&self.home)? {
                sums.insert(segment.base_offset, sum);
            }
        }
        let is_compacted = self.cleaning.cleaned_to > Offset::ZERO;
        if sums.is_empty() && !is_compacted && !self.home.disk.exists(&path) {
            return Ok(());
        }
        let last_epoch = self.epochs.at(self.log_end - 1).unwrap_or(LeaderEpoch::NONE);
        let is_verified = self.unverified.end == Offset::ZERO;
        let complete = is_verified.then_some((self.log_end, last_epoch));
        checkpoint::write_txn_indexes(&self.home.disk, &path, &TxnIndexes { complete, sums })
    }

    /// As [`PartitionLog::write_txn_checkpoint`], where a failure costs no more than an index that is made again.
    pub(super) fn note_txn_indexes(&mut self) {
        if let Err(error) = self.write_txn_checkpoint() {
            tracing::warn!(partition = %self.name, %error, "Failed to write the transaction index checkpoint, retrying later");
        }
    }
}

impl Loading {
    /// Compares the transaction indexes of the first `count` segments with the checkpoint, and makes those again that differ.
    pub(super) fn check_txn_indexes(
        &mut self,
        count: usize,
        name: &TopicPartition,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let path = self.home.dir.join(TXN_INDEX_FILE);
        let read =
            self.txn_indexes.has_checkpoint.then(|| checkpoint::read_txn_indexes(&self.home.disk, &path));
        let known = match read {
            None => None,
            Some(Ok(known)) => Some(known),
            Some(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "Ignored an invalid transaction index checkpoint");
                self.txn_indexes.complete = Complete::All;
                self.txn_indexes.is_stale = true;
                return (0..count).try_for_each(|index| self.remake_txn_index(index, name, config, now_ms));
            }
        };
        let complete = known.as_ref().and_then(|known| known.complete);
        if let Some((end, epoch)) = complete {
            self.txn_indexes.complete = Complete::Below(end, epoch);
        }
        for index in 0..count {
            let segment = &mut self.segments[index];
            if let Some(known) = &known
                && known.sums.get(&segment.base_offset) != segment.txn_index_sum(&self.home)?.as_ref()
            {
                self.remake_txn_index(index, name, config, now_ms)?;
            } else if complete.is_none() && segment.txn_index(&self.home).is_some() {
                let corrected = segment.correct_aborted(&self.home);
                self.home.disk.unless_full(corrected)?;
                self.txn_indexes.is_stale = true;
            }
        }
        Ok(())
    }

    fn remake_txn_index(
        &mut self,
        index: usize,
        name: &TopicPartition,
        config: &LogConfig,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let base = self.segments[index].base_offset;
        tracing::warn!(
            partition = %name, segment = base.0,
            "Transaction index does not match its checkpoint; rebuilding it from the batches"
        );
        self.txn_indexes.is_stale = true;
        let first = self.segments[0].base_offset;
        let expiration_ms = config.producer_id_expiration_ms;
        let mut producers = producers_at(&self.home, &self.snapshots, first, base, expiration_ms, now_ms);
        replay_segments(&self.home, &mut self.segments[..index], &mut producers, base)?;
        let segment = &mut self.segments[index];
        let file = segment.file(&self.home)?;
        let found = aborted_in(&self.home, base, &file, segment.size_bytes(), &mut producers)?;
        segment.replace_aborted(&self.home, &found.aborted)?;
        Ok(())
    }

    /// The end of the part whose transaction indexes may lack entries: the compacted part, unless the checkpoint covers it.
    pub(super) fn unverified_txn_indexes_to(&self, cleaned_to: Offset) -> Offset {
        let cleaned_to = cleaned_to.min(self.log_end);
        let count = self.segments.partition_point(|segment| segment.base_offset < cleaned_to);
        let end = self.segments.get(count).map_or(self.log_end, |next| next.base_offset);
        let is_complete = match self.txn_indexes.complete {
            Complete::Unknown => false,
            Complete::Below(known, epoch) => {
                known >= end && self.epochs.at(known - 1).unwrap_or(LeaderEpoch::NONE) == epoch
            }
            Complete::All => true,
        };
        if count == 0 || is_complete { Offset::ZERO } else { cleaned_to }
    }
}

/// The producers as of `offset` or before, from the newest snapshot that is whole, in a log that begins with `first`.
pub(super) fn producers_at(
    home: &Home,
    snapshots: &[Offset],
    first: Offset,
    offset: Offset,
    expiration_ms: i64,
    now_ms: i64,
) -> Producers {
    let mut older: Vec<_> = snapshots.iter().copied().filter(|&snapshot| snapshot <= offset).collect();
    older.sort_unstable();
    for snapshot in older.into_iter().rev() {
        let path = home.file(snapshot, SNAPSHOT_SUFFIX);
        let mut producers = Producers::starting_at(snapshot.0);
        if snapshot::load(&home.disk, &path, &mut producers, now_ms, expiration_ms).is_ok() {
            return producers;
        }
    }
    Producers::starting_at(first.0)
}
