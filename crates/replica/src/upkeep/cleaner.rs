//! What the cleaner has found and done, for metrics (Kafka's `LogCleaner` and `LogCleanerManager`).

use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use tokio::time::Instant;

/// Uncleanable logs that are named. More of them are counted only.
const NAMED_MAX: usize = 1_000;

/// The state of compaction. Changes with each survey and each pass, never with a record.
#[derive(Debug, Default)]
pub struct Cleaner(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    surveyed_at: Option<Instant>,
    max_dirty_ratio: f64,
    waiting: usize,
    passes: u64,
    bytes_before: u64,
    bytes_after: u64,
    uncleanable_count: usize,
    uncleanable: Vec<Uncleanable>,
}

/// A log that cannot be compacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uncleanable {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its partition.
    pub partition: PartitionIndex,
    /// Why, in a word.
    pub reason: &'static str,
}

/// The cleaner at one moment.
#[derive(Clone, Debug)]
pub struct CleanerFigures {
    /// When logs were last looked at; none before the first time, or where the cleaner is off.
    pub surveyed_at: Option<Instant>,
    /// The largest dirty share of the logs that have enough to compact.
    pub max_dirty_ratio: f64,
    /// Logs with enough to compact, when they were last looked at.
    pub waiting: usize,
    /// Logs that were compacted.
    pub passes: u64,
    /// Their bytes before.
    pub bytes_before: u64,
    /// Their bytes after.
    pub bytes_after: u64,
    /// Logs that cannot be compacted.
    pub uncleanable_count: usize,
    /// Those of them that are named.
    pub uncleanable: Vec<Uncleanable>,
}

impl Cleaner {
    /// Its current state.
    pub fn figures(&self) -> CleanerFigures {
        let state = self.0.lock();
        CleanerFigures {
            surveyed_at: state.surveyed_at,
            max_dirty_ratio: state.max_dirty_ratio,
            waiting: state.waiting,
            passes: state.passes,
            bytes_before: state.bytes_before,
            bytes_after: state.bytes_after,
            uncleanable_count: state.uncleanable_count,
            uncleanable: state.uncleanable.clone(),
        }
    }

    /// All logs were looked at.
    pub(super) fn surveyed(&self, waiting: usize, max_dirty_ratio: f64) {
        let mut state = self.0.lock();
        state.surveyed_at = Some(Instant::now());
        (state.waiting, state.max_dirty_ratio) = (waiting, max_dirty_ratio);
    }

    /// A log was compacted.
    pub(super) fn compacted(&self, bytes_before: u64, bytes_after: u64) {
        let mut state = self.0.lock();
        state.passes += 1;
        state.bytes_before += bytes_before;
        state.bytes_after += bytes_after;
    }

    /// A log cannot be compacted.
    pub(super) fn gave_up(&self, topic: &Arc<str>, partition: PartitionIndex, reason: &'static str) {
        let mut state = self.0.lock();
        let given_up = Uncleanable { topic: Arc::clone(topic), partition, reason };
        let is_known = |known: &Uncleanable| known.topic == given_up.topic && known.partition == partition;
        if state.uncleanable.iter().any(is_known) {
            return;
        }
        state.uncleanable_count += 1;
        if state.uncleanable.len() < NAMED_MAX {
            state.uncleanable.push(given_up);
        }
    }

    /// A log that could not be compacted is mended, or gone.
    pub(super) fn forgets(&self, topic: &Arc<str>, partition: PartitionIndex) {
        let mut state = self.0.lock();
        state.uncleanable_count = state.uncleanable_count.saturating_sub(1);
        state.uncleanable.retain(|known| known.topic != *topic || known.partition != partition);
    }

    /// All logs are tried again.
    pub(super) fn hopes_again(&self) {
        let mut state = self.0.lock();
        state.uncleanable_count = 0;
        state.uncleanable.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_be_compacted_is_named_once() {
        let (cleaner, topic) = (Cleaner::default(), Arc::from("orders"));
        cleaner.gave_up(&topic, PartitionIndex(1), "corrupt");
        cleaner.gave_up(&topic, PartitionIndex(1), "too many keys");
        cleaner.compacted(100, 40);
        let figures = cleaner.figures();
        assert_eq!((figures.uncleanable_count, figures.passes, figures.bytes_after), (1, 1, 40));
        assert_eq!(figures.uncleanable[0].reason, "corrupt");
        cleaner.hopes_again();
        assert_eq!(cleaner.figures().uncleanable_count, 0);
    }
}
