//! Findings and results of the cleaner, for metrics (Kafka's `LogCleaner` and `LogCleanerManager`).

use parking_lot::Mutex;
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use tokio::time::Instant;

/// Maximum number of uncleanable logs listed by name. Other logs are only counted.
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
    uncleanable: Vec<UncleanableLog>,
}

/// A log that cannot be compacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncleanableLog {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's index.
    pub partition: PartitionIndex,
    /// The reason, in one word.
    pub reason: &'static str,
}

/// A snapshot of the cleaner.
#[derive(Clone, Debug)]
pub struct CleanerFigures {
    /// Time of the last survey; `None` before the first, or if the cleaner is off.
    pub surveyed_at: Option<Instant>,
    /// The largest dirty ratio of the logs with enough to compact.
    pub max_dirty_ratio: f64,
    /// Logs with enough to compact, at the last survey.
    pub waiting: usize,
    /// Number of compacted logs.
    pub passes: u64,
    /// Bytes of those logs before compaction.
    pub bytes_before: u64,
    /// Bytes of those logs after compaction.
    pub bytes_after: u64,
    /// Number of logs that cannot be compacted.
    pub uncleanable_count: usize,
    /// The uncleanable logs listed by name.
    pub uncleanable: Vec<UncleanableLog>,
}

impl Cleaner {
    /// The current figures.
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

    /// Notes a survey of all logs.
    pub(super) fn surveyed(&self, waiting: usize, max_dirty_ratio: f64) {
        let mut state = self.0.lock();
        state.surveyed_at = Some(Instant::now());
        (state.waiting, state.max_dirty_ratio) = (waiting, max_dirty_ratio);
    }

    /// Notes a compacted log.
    pub(super) fn compacted(&self, bytes_before: u64, bytes_after: u64) {
        let mut state = self.0.lock();
        state.passes += 1;
        state.bytes_before += bytes_before;
        state.bytes_after += bytes_after;
    }

    /// Notes a log that cannot be compacted.
    pub(super) fn gave_up(&self, topic: &Arc<str>, partition: PartitionIndex, reason: &'static str) {
        let mut state = self.0.lock();
        let given_up = UncleanableLog { topic: Arc::clone(topic), partition, reason };
        let is_known = |known: &UncleanableLog| known.topic == given_up.topic && known.partition == partition;
        if state.uncleanable.iter().any(is_known) {
            return;
        }
        state.uncleanable_count += 1;
        if state.uncleanable.len() < NAMED_MAX {
            state.uncleanable.push(given_up);
        }
    }

    /// Forgets an uncleanable log that was repaired or removed.
    pub(super) fn forgets(&self, topic: &Arc<str>, partition: PartitionIndex) {
        let mut state = self.0.lock();
        state.uncleanable_count = state.uncleanable_count.saturating_sub(1);
        state.uncleanable.retain(|known| known.topic != *topic || known.partition != partition);
    }

    /// Forgets all uncleanable logs, because all are tried again.
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
