//! The age of unread records: the time since the first record behind a committed offset, for the lag of
//! groups in seconds.
//!
//! Logs on this broker are searched when metrics are read: at most [`SEARCHES_MAX`] times and for
//! [`SEARCH_TIME`] in all, and again after [`FRESH`], because the cleaner may have removed a record. Ages of
//! other partitions come from their leaders, from the task that also requests high watermarks (`lag`).

use parking_lot::Mutex;
use std::mem;
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_metadata::PartitionIndex;
use thalweg_replica::partition::{Isolation, Partition, Reader};
use thalweg_wire::list_offsets::{age_ms, record_from};
use tokio::time::Instant;

/// Maximum number of searches when metrics are read. Most read one header of a batch.
const SEARCHES_MAX: usize = 10_000;
/// Time after which no further search begins.
const SEARCH_TIME: Duration = Duration::from_millis(250);

/// Time for which the outcome of a search counts, also of a failed one.
const FRESH: Duration = Duration::from_secs(60);

/// The outcome of a search: the time of the record, if the log could be read.
#[derive(Clone, Copy, Debug)]
struct FoundTime {
    timestamp: Option<i64>,
    until: Instant,
}

/// Times of records, by topic, partition and the offset of the search.
type Times = HashMap<String, HashMap<(PartitionIndex, i64), FoundTime>>;

/// The times of first unread records in logs on this broker, as last read.
#[derive(Debug, Default)]
pub(super) struct LocalTimes(Mutex<Times>);

/// One reading of metrics. Drops the times of offsets that are no longer committed.
pub(super) struct LocalReading<'a> {
    times: &'a LocalTimes,
    last: Times,
    current: Times,
    searches: usize,
    until: Instant,
}

impl LocalTimes {
    pub fn begin(&self) -> LocalReading<'_> {
        LocalReading {
            times: self,
            last: mem::take(&mut self.0.lock()),
            current: Times::default(),
            searches: 0,
            until: Instant::now() + SEARCH_TIME,
        }
    }
}

impl LocalReading<'_> {
    /// The age of the first record that a group with this committed offset has not read; `None` if unknown.
    /// Blocks for a search.
    pub fn age_ms(
        &mut self,
        replica: &Partition,
        (topic, partition): (&str, PartitionIndex),
        committed: i64,
        now_ms: i64,
    ) -> Option<i64> {
        // The records below the log start are gone.
        let from = committed.max(replica.published_offsets().log_start_offset().0);
        let key = (partition, from);
        let known = [&self.current, &self.last].into_iter().find_map(|times| times.get(topic)?.get(&key));
        let now = Instant::now();
        let found = match known.filter(|found| now < found.until) {
            Some(found) => *found,
            None if self.searches >= SEARCHES_MAX || now >= self.until => return None,
            None => {
                self.searches += 1;
                let found = search(replica, from);
                // The next record may come at any time.
                if let Some((offset @ ..0, timestamp)) = found {
                    return age_ms(offset, timestamp, now_ms);
                }
                FoundTime { timestamp: found.map(|(_, timestamp)| timestamp), until: now + FRESH }
            }
        };
        match self.current.get_mut(topic) {
            Some(times) => drop(times.insert(key, found)),
            None => self.current.entry(topic.to_owned()).or_default().extend([(key, found)]),
        }
        age_ms(from, found.timestamp?, now_ms)
    }

    /// Keeps the times for the next reading.
    pub fn end(self) {
        *self.times.0.lock() = self.current;
    }
}

/// The offset and the time of the first record at or after an offset; `None` if the log cannot be read.
fn search(replica: &Partition, from: i64) -> Option<(i64, i64)> {
    let timestamp = record_from(from)?;
    let found = replica.offset_for_timestamp(timestamp, Reader::Internal, Isolation::ReadUncommitted, None);
    found.ok().map(|found| (found.offset, found.timestamp))
}
