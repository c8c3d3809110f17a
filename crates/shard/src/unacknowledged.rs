//! The writes of a shard that are in the log and not acknowledged yet.

use std::collections::VecDeque;

/// A write that is in the log and not acknowledged yet, with the shard's own data about it.
#[derive(Debug)]
pub struct UnacknowledgedWrite<T> {
    /// Offset of the write's last record.
    pub last_offset: i64,
    /// The waiting requests, and the work after the acknowledgement.
    pub content: T,
    expires_ms: i64,
}

/// Unacknowledged writes, in the order of the log.
#[derive(Debug)]
pub struct UnacknowledgedWrites<T>(VecDeque<UnacknowledgedWrite<T>>);

impl<T> Default for UnacknowledgedWrites<T> {
    fn default() -> Self {
        UnacknowledgedWrites(VecDeque::new())
    }
}

impl<T> UnacknowledgedWrites<T> {
    /// Adds a write that ends at `last_offset`, behind all others, and expires at the monotonic time
    /// `expires_ms`.
    pub fn push(&mut self, last_offset: i64, expires_ms: i64, content: T) {
        self.0.push_back(UnacknowledgedWrite { last_offset, content, expires_ms });
    }

    /// Takes the first write, if it ends at `last_offset` or before.
    pub fn pop_to(&mut self, last_offset: i64) -> Option<UnacknowledgedWrite<T>> {
        self.0.pop_front_if(|write| write.last_offset <= last_offset)
    }

    /// Takes the first write, if it has expired at this monotonic time.
    pub fn pop_expired(&mut self, now_ms: i64) -> Option<UnacknowledgedWrite<T>> {
        self.0.pop_front_if(|write| write.expires_ms <= now_ms)
    }

    /// The monotonic time at which the first write expires; the maximum without a write.
    pub fn next_expiry_ms(&self) -> i64 {
        self.0.front().map_or(i64::MAX, |write| write.expires_ms)
    }

    /// Takes all writes.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..).map(|write| write.content)
    }
}
