//! The offsets of a log, for readers without its lock.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use thalweg_record::Offset;

/// The offsets of a partition, readable without its lock by checkpoint writers and metrics.
#[derive(Debug, Default)]
pub struct PublishedOffsets {
    pub(crate) log_start: AtomicI64,
    pub(crate) start_for_followers: AtomicI64,
    pub(crate) durable_start: AtomicI64,
    pub(crate) first_segment: AtomicI64,
    pub(crate) recovery_point: AtomicI64,
    pub(crate) high_watermark: AtomicI64,
    pub(crate) log_end: AtomicI64,
    pub(crate) cleaned_to: AtomicI64,
    pub(crate) size_bytes: AtomicI64,
    pub(crate) is_damaged: AtomicBool,
}

impl PublishedOffsets {
    /// The first offset that may be read.
    pub fn log_start_offset(&self) -> Offset {
        Offset(self.log_start.load(Ordering::Relaxed))
    }

    /// The log start for followers: below the log start if records in between are lost, not deleted.
    pub fn log_start_for_followers(&self) -> Offset {
        Offset(self.start_for_followers.load(Ordering::Relaxed))
    }

    /// The log start that survives a crash: that of the last synced checkpoint, or the present one if it is
    /// lower.
    pub fn durable_log_start(&self) -> Offset {
        Offset(self.durable_start.load(Ordering::Relaxed)).min(self.log_start_offset())
    }

    /// Notes that the synced checkpoint has this log start, or needs none.
    pub(crate) fn set_durable_start(&self, log_start: Offset) {
        self.durable_start.fetch_max(log_start.0, Ordering::Relaxed);
    }

    /// Notes that the log may start lower than before, so the checkpoint's log start no longer applies.
    pub(crate) fn lower_durable_start(&self) {
        self.durable_start.fetch_min(self.log_start.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The base offset of the first segment on disk: the log start offset if no checkpoint has one.
    pub fn first_segment_offset(&self) -> Offset {
        Offset(self.first_segment.load(Ordering::Relaxed))
    }

    /// The recovery point: all batches below it are, or were, synced.
    pub fn recovery_point(&self) -> Offset {
        Offset(self.recovery_point.load(Ordering::Relaxed))
    }

    /// The offset below which consumers may read.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Relaxed))
    }

    /// The offset of the next record.
    pub fn log_end_offset(&self) -> Offset {
        Offset(self.log_end.load(Ordering::Relaxed))
    }

    /// The end of the compacted part.
    pub fn cleaned_to(&self) -> Offset {
        Offset(self.cleaned_to.load(Ordering::Relaxed))
    }

    /// True if records are known to be missing or unreadable.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Marks all records as synced when the log is closed for appends. A recovery point above the log end
    /// stays: records are missing, and the next start must learn of the loss, too.
    pub(crate) fn set_all_recovered(&self) {
        self.recovery_point.fetch_max(self.log_end.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        u64::try_from(self.size_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }
}
