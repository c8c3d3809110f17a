//! Looking at a partition again, after a first read that found too little: only where something has changed is it read again.

use super::{Partition, Reader, Waiter};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_record::Offset;

/// What a fetch found a partition to be. Where it is the same later, a read would find the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    log_start: Offset,
    high_watermark: Offset,
    log_end: Offset,
    turns: u64,
}

impl Partition {
    /// How it stands. Under the lock it is one moment; without it, each part is of its own, which does to see that one of
    /// them has changed.
    pub fn standing(&self) -> Standing {
        Standing {
            log_start: self.published.log_start_offset(),
            high_watermark: self.published.high_watermark(),
            log_end: self.published.log_end_offset(),
            turns: self.turns.load(Ordering::Relaxed),
        }
    }

    /// Counts for a waiter what is appended from now on. Says whether nothing has changed since the reader looked.
    pub fn watch(&self, reader: Reader, seen: Standing, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state.lock();
        match reader {
            Reader::Client => state.consumers.add(waiter),
            Reader::Follower { .. } | Reader::Internal => state.replicas.add(waiter),
        }
        self.standing() == seen
    }
}
