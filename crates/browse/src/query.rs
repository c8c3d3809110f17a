//! The range, filter and limits of a search.

use std::collections::BTreeMap;
use std::time::Duration;

use thalweg_record::Offset;

use crate::filter::Filter;

/// Maximum matches of a bounded search.
pub const MATCHES_MAX: usize = 1_000_000;
/// Upper bound for [`Limits::message_bytes`].
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The start of the range in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first record.
    Earliest,
    /// The next new record.
    Latest,
    At(Offset),
    /// The first record at or after a time, in milliseconds since 1970.
    Time(i64),
    /// This number of offsets before the end. Transaction markers and compacted records count too.
    Last(u64),
}

/// The end of the range in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end offset at the start of the search.
    Now,
    /// No end: a live tail of new records.
    Never,
    /// This offset, exclusive.
    Before(Offset),
    /// Before the first record at or after a time, in milliseconds since 1970.
    Time(i64),
}

/// The order of the matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they are read: in order within each partition, and the partitions in any order. The fastest.
    #[default]
    Unordered,
    /// The first matches of the range. Partitions are merged by timestamp, and each keeps its order.
    OldestFirst,
    /// The last matches of the range, which is read backward in steps. Partitions are merged by timestamp,
    /// and each keeps its order, reversed.
    NewestFirst,
}

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum matches; none for no limit.
    pub matches: Option<usize>,
    /// Maximum bytes of all matches; none for no limit.
    pub bytes: Option<u64>,
    /// Maximum bytes to fetch for an ordered search, approximately; none for no limit.
    pub read_bytes: Option<u64>,
    /// Bytes kept of a key or value; the size of the rest is recorded.
    pub message_bytes: usize,
    /// Maximum duration; none for no limit.
    pub time: Option<Duration>,
    /// Number of scanning threads.
    pub threads: usize,
}

impl Default for Limits {
    /// 100 matches of 64 KiB each, 16 MiB in total, one minute, and one thread per processor up to 4.
    fn default() -> Limits {
        Limits {
            matches: Some(100),
            bytes: Some(16 << 20),
            read_bytes: None,
            message_bytes: 64 << 10,
            time: Some(Duration::from_secs(60)),
            threads: std::thread::available_parallelism().map_or(1, |count| count.get().min(4)),
        }
    }
}

/// The range, the filter and the limits of a search.
#[derive(Clone, Debug)]
pub struct Query {
    /// The topic name.
    pub topic: String,
    /// Partition indexes; all if empty.
    pub partitions: Vec<i32>,
    /// The start of the range.
    pub start: Start,
    /// The end of the range.
    pub end: End,
    /// First offsets of single partitions, by index, in place of `start`.
    pub starts: BTreeMap<i32, Offset>,
    /// End offsets of single partitions, exclusive, by index, in place of `end`.
    pub ends: BTreeMap<i32, Offset>,
    /// The order of the matches. A live tail is unordered.
    pub order: Order,
    /// The filter for messages.
    pub filter: Filter,
    /// True to hide records of open and aborted transactions.
    pub read_committed: bool,
    /// True to show control records (transaction markers). A filter on content hides them, because they have
    /// none.
    pub control: bool,
    /// The limits of the search.
    pub limits: Limits,
}

/// A search with an invalid part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidQuery {
    /// The name of the invalid part.
    pub field: &'static str,
    /// The fault, and how to correct it.
    pub reason: String,
}

impl Query {
    /// A query for all current messages of a topic, with default limits.
    pub fn new(topic: impl Into<String>) -> Query {
        Query {
            topic: topic.into(),
            partitions: Vec::new(),
            start: Start::Earliest,
            end: End::Now,
            starts: BTreeMap::new(),
            ends: BTreeMap::new(),
            order: Order::Unordered,
            filter: Filter::default(),
            read_committed: false,
            control: false,
            limits: Limits::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), InvalidQuery> {
        let limits = &self.limits;
        let wrong = |field, reason: String| Err(InvalidQuery { field, reason });
        if self.topic.is_empty() {
            return wrong("topic", "a name is needed".to_owned());
        }
        if let Some(partition) = self.partitions.iter().find(|&&partition| partition < 0) {
            return wrong("partitions", format!("{partition} is invalid: expected 0 or more"));
        }
        if let Some(matches) = limits.matches.filter(|matches| !(1..=MATCHES_MAX).contains(matches)) {
            return wrong("limit", format!("{matches} is invalid: expected 1 to {MATCHES_MAX}"));
        }
        if limits.message_bytes > MESSAGE_BYTES_MAX {
            let given = limits.message_bytes;
            return wrong(
                "message bytes",
                format!("{given} is invalid: expected at most {MESSAGE_BYTES_MAX}"),
            );
        }
        if self.order != Order::Unordered && self.end == End::Never {
            return wrong("order", "a live tail has no order".to_owned());
        }
        let start = if let Start::At(Offset(offset)) = self.start { offset } else { 0 };
        let end = if let End::Before(Offset(offset)) = self.end { offset } else { 0 };
        let positions = self.starts.values().chain(self.ends.values()).map(|offset| offset.0);
        if let Some(offset) = positions.chain([start, end]).find(|offset| *offset < 0) {
            return wrong("offset", format!("{offset} is invalid: expected 0 or more"));
        }
        Ok(())
    }
}
