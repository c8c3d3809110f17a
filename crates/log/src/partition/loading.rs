//! The state of a partition while it is opened, and the state known before.

use std::collections::BTreeSet;

use thalweg_record::Offset;

use super::examine::Oddities;
use super::replay::EpochReplay;
use crate::epochs::LeaderEpochs;
use crate::producers::Producers;
use crate::segment::{Home, Segment};

/// State of a partition known before it is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// True if the previous process closed the log cleanly.
    pub clean: bool,
    /// From the recovery point checkpoint: all records below are synced.
    pub recovery_point: Offset,
    /// From the high watermark checkpoint.
    pub high_watermark: Offset,
    /// From the log start checkpoint.
    pub log_start: Offset,
    /// From the cleaner checkpoint.
    pub cleaned_to: Offset,
    /// For a log with a single writer, which syncs before it answers and before it begins an epoch: all
    /// records below this offset, and below the start of the latest epoch, were synced. Damage there, or
    /// before sound batches, is not truncated: the log is not opened.
    pub synced_to: Option<Offset>,
}

impl OpenOptions {
    /// Options for a partition without checkpoints.
    pub fn new(clean: bool) -> OpenOptions {
        let zero = Offset::ZERO;
        OpenOptions {
            clean,
            recovery_point: zero,
            high_watermark: zero,
            log_start: zero,
            cleaned_to: zero,
            synced_to: None,
        }
    }
}

/// A partition while it is opened.
pub(super) struct LoadingPartition {
    pub(super) home: Home,
    pub(super) segments: Vec<Segment>,
    pub(super) epochs: LeaderEpochs,
    pub(super) epoch_replay: EpochReplay,
    pub(super) producers: Producers,
    pub(super) snapshots: Vec<Offset>,
    pub(super) log_end: Offset,
    pub(super) oddities: Oddities,
    pub(super) missing: Option<Offset>,
    pub(super) contradicted: Option<Contradiction>,
    /// Base offsets of missing segments, from the checkpoint of the transaction indexes.
    pub(super) lost_markers: Vec<Offset>,
    pub(super) has_txn_checkpoint: bool,
    /// Base offsets of segments that were found without an index.
    pub(super) unindexed: BTreeSet<Offset>,
}

/// A segment set aside by recovery, because the previous segment has the same offsets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Contradiction {
    /// The end offset of the segment's records.
    pub(super) end: Offset,
    /// True if the checkpoint of epochs does not confirm the kept records.
    pub(super) in_doubt: bool,
}

impl Contradiction {
    /// The end of possibly missing records in a log that ends at `log_end`.
    pub(super) fn missing(&self, log_end: Offset) -> Option<Offset> {
        let end = if self.in_doubt { self.end.max(Offset(log_end.0.saturating_add(1))) } else { self.end };
        (end > log_end).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_missing_behind_the_largest_offset() {
        let doubt = Contradiction { end: Offset(7), in_doubt: true };
        assert_eq!(doubt.missing(Offset(7)), Some(Offset(8)));
        assert_eq!(doubt.missing(Offset(i64::MAX)), None);
    }
}
