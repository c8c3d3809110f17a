//! Rebuilds transaction indexes that may lack entries, in the background.
//!
//! A compaction that stops at an entry with a last stable offset behind its marker takes the aborted transactions after it
//! for committed ones: it keeps their records, and drops their entries from the index. Apache Kafka does so, and so did
//! earlier versions of Thalweg. The markers stay in the log until they expire, so the batches tell what the index lacks.
//! The compacted part of a log therefore counts as unverified, unless `transaction-index-checkpoint` vouches for it.
//!
//! Owns: the unverified part, and its rebuild: planned under the partition's lock, run without it, installed under it.
//! Refuses: an answer to readers of committed records from the unverified part; they wait.

use std::collections::VecDeque;
use std::sync::Arc;

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::LogError;
use super::replay::aborted_in;
use super::txn_index::producers_at;
use crate::compaction::Source;
use crate::disk::{check_may_wait, is_shortage};
use crate::producers::Producers;
use crate::segment::transactions::AbortedTransaction;
use crate::segment::{Home, LOG_SUFFIX};

/// The part of a log whose transaction indexes may lack entries.
#[derive(Debug, Default)]
pub(super) struct Unverified {
    /// Segments that begin below it are in the part.
    pub(super) end: Offset,
    /// Whether a reader waits for it.
    is_awaited: bool,
}

/// A log whose transaction indexes must be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnverifiedTxnIndexes {
    /// Whether a reader waits for them.
    pub is_awaited: bool,
}

/// The index of one segment, by its batches.
#[derive(Debug)]
struct Rebuilt {
    base_offset: Offset,
    /// Entries at and above it are newer than the plan.
    end: Offset,
    aborted: Vec<AbortedTransaction>,
}

/// A rebuild that was planned. It can be run on any thread. While it exists, the log is neither compacted, nor are segments
/// deleted for their age or size.
#[derive(Debug)]
pub struct TxnIndexRebuild {
    home: Home,
    left: VecDeque<Source>,
    /// Producer snapshots of the log.
    snapshots: Vec<Offset>,
    expiration_ms: i64,
    now_ms: i64,
    /// Those with open transactions at the current position; `None` before the first segment.
    producers: Option<Producers>,
    rebuilt: Vec<Rebuilt>,
    truncations: u64,
    /// Held for as long as segments must stay.
    #[expect(dead_code, reason = "the log counts who holds it")]
    exclusion: Arc<()>,
}

impl TxnIndexRebuild {
    /// Reads the headers of the next segment, and its markers. Returns the size of the segment; `None` if all are read.
    /// Blocks; call it without the partition's lock.
    pub fn step(&mut self) -> Result<Option<u64>, LogError> {
        check_may_wait("A rebuild of transaction indexes", &self.home.dir);
        let Some(Source { base_offset, next_base, size_bytes }) = self.left.pop_front() else {
            return Ok(None);
        };
        let file = self.home.disk.open(&self.home.file(base_offset, LOG_SUFFIX))?;
        let producers = self.producers.get_or_insert_with(|| {
            let (first, expiration_ms, now_ms) = (base_offset, self.expiration_ms, self.now_ms);
            producers_at(&self.home, &self.snapshots, first, first, expiration_ms, now_ms)
        });
        let found = aborted_in(&self.home, base_offset, &file, size_bytes, producers)?;
        // The index of a damaged segment may know markers behind the damage.
        if found.is_whole {
            self.rebuilt.push(Rebuilt { base_offset, end: next_base, aborted: found.aborted });
        }
        // Only open transactions matter to later segments, and there may be many producers.
        producers.on_high_watermark(i64::MAX);
        producers.remove_expired(i64::MAX, 0);
        Ok(Some(size_bytes))
    }
}

impl PartitionLog {
    /// Whether transaction indexes of the log must be rebuilt before committed records can be read.
    pub fn unverified_txn_indexes(&self) -> Option<UnverifiedTxnIndexes> {
        let Unverified { end, is_awaited } = self.unverified;
        (end > Offset::ZERO).then_some(UnverifiedTxnIndexes { is_awaited })
    }

    /// Refuses a reader of committed records in the unverified part.
    pub(super) fn check_txn_indexes_verified(&mut self, segment: Offset) -> Result<(), LogError> {
        let end = self.unverified.end;
        if segment >= end {
            return Ok(());
        }
        self.unverified.is_awaited = true;
        Err(LogError::UnverifiedTxnIndexes { end })
    }

    /// Plans the rebuild of the unverified indexes, unless the log is being compacted or is closed.
    pub fn plan_txn_index_rebuild(&mut self, now_ms: i64) -> Option<TxnIndexRebuild> {
        if self.unverified.end == Offset::ZERO || self.health.poison.is_some() || self.is_being_compacted() {
            return None;
        }
        let ends = self.segments[1..].iter().map(|next| next.base_offset).chain([self.log_end]);
        let of_part = self.segments.iter().zip(ends);
        let of_part = of_part.take_while(|(segment, _)| segment.base_offset < self.unverified.end);
        let left = of_part.map(|(segment, next_base)| Source {
            base_offset: segment.base_offset,
            next_base,
            size_bytes: segment.size_bytes(),
        });
        let left = left.collect();
        Some(TxnIndexRebuild {
            home: self.home.clone(),
            left,
            snapshots: self.snapshots.clone(),
            expiration_ms: self.config.producer_id_expiration_ms,
            now_ms,
            producers: None,
            rebuilt: Vec::new(),
            truncations: self.flushing.truncations,
            exclusion: self.cleaning.begin(),
        })
    }

    /// Installs rebuilt indexes. Returns `false` if the log was truncated, closed or moved meanwhile, so that they must be
    /// rebuilt again.
    pub fn finish_txn_index_rebuild(&mut self, rebuild: TxnIndexRebuild) -> Result<bool, LogError> {
        let is_current = self.health.poison.is_none()
            && rebuild.truncations == self.flushing.truncations
            && rebuild.home.dir == self.home.dir
            && rebuild.left.is_empty();
        if !is_current {
            return Ok(false);
        }
        for rebuilt in rebuild.rebuilt {
            self.install(rebuilt).map_err(|error| {
                if !is_shortage(&error) {
                    self.set_poison(format!("a transaction index cannot be written: {error}"));
                }
                LogError::Io(error)
            })?;
        }
        self.unverified = Unverified::default();
        self.note_txn_indexes();
        Ok(true)
    }

    fn install(&mut self, Rebuilt { base_offset, end, aborted }: Rebuilt) -> std::io::Result<()> {
        let Some(segment) = self.segments.iter_mut().find(|segment| segment.base_offset == base_offset)
        else {
            return Ok(());
        };
        let known = segment.aborted_transactions(&self.home)?;
        let newer = known.iter().filter(|transaction| transaction.last_offset >= end);
        let aborted: Vec<_> = aborted.into_iter().chain(newer.copied()).collect();
        if aborted == known {
            return Ok(());
        }
        let missing = aborted.iter().filter(|transaction| !known.contains(transaction)).count();
        let had_index = segment.txn_index(&self.home).is_some();
        segment.replace_aborted(&self.home, &aborted)?;
        if segment.txn_index(&self.home).is_some() != had_index {
            self.flushing.names.note_change();
        }
        tracing::warn!(
            partition = %self.name, segment = base_offset.0, entries = aborted.len(), missing,
            "Rebuilt a transaction index that a compaction has left without some of its entries"
        );
        Ok(())
    }
}
