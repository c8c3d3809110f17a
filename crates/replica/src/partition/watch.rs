//! Waiting for readable records: a partition is read again only after a change.

use super::{Partition, PartitionSnapshot, Reader, State, Subscription, Waiter};
use std::sync::Arc;
use thalweg_record::Offset;

impl Partition {
    /// The log start offset.
    pub fn log_start_offset(&self) -> Offset {
        self.published.log_start_offset()
    }

    /// Adds a waiter, which counts bytes appended from now on. Returns true if the partition is unchanged
    /// since `seen`.
    pub fn watch(&self, reader: Reader, seen: PartitionSnapshot, waiter: &Arc<Waiter>) -> bool {
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
    pub(super) fn notify_consumers(&mut self, bytes: usize) {
        self.consumers.count(bytes, &mut self.woken);
        self.sessions.note(bytes, &mut self.woken.sessions);
    }
}
