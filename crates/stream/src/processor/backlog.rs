//! Batches that a stage processes in parts: what does not fit into one batch of output waits for the next.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::message::Batch;

/// Batches that wait in a stage, in order.
#[derive(Default)]
pub struct Backlog(VecDeque<Batch>);

impl Backlog {
    /// Puts a batch behind the waiting ones, and takes the first of them all.
    pub fn enter(&mut self, batch: &mut Batch) {
        if let Some(first) = self.0.pop_front() {
            self.0.push_back(std::mem::replace(batch, first));
        }
    }

    /// Takes the first waiting batch. Returns false if there is none.
    pub fn next(&mut self, batch: &mut Batch) -> bool {
        self.0.pop_front().map(|first| *batch = first).is_some()
    }

    /// Puts the rest of a batch before the waiting ones.
    pub fn put_back(&mut self, rest: Option<Batch>) {
        if let Some(rest) = rest {
            self.0.push_front(rest);
        }
    }

    /// True if no batch waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The time at which the next batch is due: now, if one waits.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.is_empty()).then(Instant::now)
    }

    /// The first waiting message.
    pub fn held_since(&self) -> Option<u64> {
        self.0.iter().filter_map(Batch::lowest_sequence).min()
    }

    /// Drops all waiting batches.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
