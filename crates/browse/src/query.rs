//! What to read, from where to where, and how much at most.

use std::time::Duration;

use thalweg_record::Offset;

use crate::filter::Filter;

/// The most matches of a bounded search.
pub const MATCHES_MAX: usize = 1_000_000;
/// The most bytes that are kept of one message.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Where reading starts, in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first record.
    Earliest,
    /// The next new record.
    Latest,
    /// An offset.
    At(Offset),
    /// The first record at or after a time, in milliseconds since 1970.
    Time(i64),
    /// So many offsets before the end. Transaction markers and compacted records take offsets, too.
    Last(u64),
}

/// Where reading ends, in each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the end that the partition has when the search starts.
    Now,
    /// Never: new records are read as they arrive.
    Never,
    /// Before an offset.
    Before(Offset),
    /// Before the first record at or after a time, in milliseconds since 1970.
    Time(i64),
}

/// Bounds of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Matches; none for no limit.
    pub matches: Option<usize>,
    /// Bytes of all matches; none for no limit.
    pub bytes: Option<u64>,
    /// Bytes that are kept of a key or value; the rest is counted.
    pub message_bytes: usize,
    /// Time; none for no limit.
    pub time: Option<Duration>,
    /// Threads that scan.
    pub threads: usize,
}

impl Default for Limits {
    /// 100 matches of 64 KiB each, 16 MiB together, within a minute, by as many threads as there are processors, at most 4.
    fn default() -> Limits {
        Limits {
            matches: Some(100),
            bytes: Some(16 << 20),
            message_bytes: 64 << 10,
            time: Some(Duration::from_secs(60)),
            threads: std::thread::available_parallelism().map_or(1, |count| count.get().min(4)),
        }
    }
}

/// A search.
#[derive(Clone, Debug)]
pub struct Query {
    /// The topic.
    pub topic: String,
    /// Its partitions; empty for all.
    pub partitions: Vec<i32>,
    /// Where to start.
    pub start: Start,
    /// Where to end.
    pub end: End,
    /// Which messages.
    pub filter: Filter,
    /// Whether records of open and aborted transactions are hidden.
    pub read_committed: bool,
    /// Whether control records (transaction markers) are shown. They have no content, so that a filter of content hides them.
    pub control: bool,
    /// Bounds.
    pub limits: Limits,
}

/// A search that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidQuery {
    /// The part of the query, by its name.
    pub field: &'static str,
    /// The fault, and how to correct it.
    pub reason: String,
}

impl Query {
    /// All messages of a topic so far, up to the default limits.
    pub fn new(topic: impl Into<String>) -> Query {
        Query {
            topic: topic.into(),
            partitions: Vec::new(),
            start: Start::Earliest,
            end: End::Now,
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
        let start = if let Start::At(Offset(offset)) = self.start { offset } else { 0 };
        let end = if let End::Before(Offset(offset)) = self.end { offset } else { 0 };
        if let Some(offset) = [start, end].into_iter().find(|offset| *offset < 0) {
            return wrong("offset", format!("{offset} is invalid: expected 0 or more"));
        }
        Ok(())
    }
}
