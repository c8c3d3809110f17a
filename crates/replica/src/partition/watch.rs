//! Waiting for readable records: a partition is read again only after a change.

use super::{Partition, Reader, State, Subscription, Waiter};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thalweg_record::Offset;

/// Offsets and generation of a partition at a read. Another read returns something new only if they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    log_start: Offset,
    high_watermark: Offset,
    log_end: Offset,
    generation: u64,
}

impl Partition {
    /// The present offsets and generation. Consistent under the lock; without it, good enough to notice a
    /// change.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            log_start: self.published.log_start_offset(),
            high_watermark: self.published.high_watermark(),
            log_end: self.published.log_end_offset(),
            generation: self.generation.load(Ordering::Relaxed),
        }
    }

    /// The log start offset.
    pub fn log_start_offset(&self) -> Offset {
        self.published.log_start_offset()
    }

    /// Adds a waiter, which counts bytes appended from now on. Returns true if the partition is unchanged
    /// since `seen`.
    pub fn watch(&self, reader: Reader, seen: Snapshot, waiter: &Arc<Waiter>) -> bool {
        let mut state = self.state.lock();
        match reader {
            Reader::Client => state.consumers.add(waiter),
            Reader::Follower { .. } | Reader::Internal => state.replicas.add(waiter),
        }
        self.snapshot() == seen
    }

    /// Subscribes a session to the news for consumers.
    pub fn subscribe(&self, subscription: &Arc<Subscription>) {
        self.state.lock().sessions.add(subscription);
    }
}

impl State {
    /// Counts bytes that have become readable for consumers.
    pub(super) fn tell_consumers(&mut self, bytes: usize) {
        self.consumers.count(bytes, &mut self.woken);
        self.sessions.note(bytes, &mut self.woken.sessions);
    }
}
