//! A topic as a table in memory: the last value of each key. A task reads all partitions from their
//! beginning, and goes on with the changes. The table is whole once it has the records that were there at the
//! start. A null value (a tombstone) removes its key.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use thalweg_client::{Chunk, Consumer, ConsumerError, OffsetSpec, PollEvent, StartAt, TopicPartition};
use thalweg_record::{DecompressBuffer, Offset};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Ends, consumer, failed, partitions_of, with_grant};
use crate::declaration::Settings;
use crate::json;
use crate::stage::StageError;

/// Maximum wait of a poll, practically unlimited.
const POLL: Duration = Duration::from_secs(3600);
/// Pause before a retry.
const ASKED_AGAIN: Duration = Duration::from_millis(200);
/// The size of an answer, which is also memory of the reading task.
const FETCH_BYTES_MAX: &str = "16777216";
/// Memory of a row besides its key and value.
const ROW_BYTES: u64 = 96;

/// The rows of a topic.
pub struct Table {
    topic: Arc<str>,
    shared: Arc<SharedRows>,
    /// The reading task ends with the table.
    _reader: JoinSet<()>,
}

/// The rows, and the notice of changes of their state.
#[derive(Default)]
struct SharedRows {
    rows: RwLock<Rows>,
    count: Arc<AtomicU64>,
    changed: Notify,
}

/// The values by key, as JSON.
#[derive(Default)]
pub struct Rows {
    values: HashMap<Box<[u8]>, Bytes>,
    bytes: u64,
    is_whole: bool,
    failed: Option<String>,
}

impl Rows {
    /// The value of a key as JSON: what is no JSON is a text, what is no text is in base64.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.values.get(key)
    }

    fn set(&mut self, key: &[u8], value: Option<&[u8]>) {
        let size = |key: &[u8], value: &Bytes| ROW_BYTES + key.len() as u64 + value.len() as u64;
        let before = match value {
            Some(value) => {
                let value = as_json(value);
                self.bytes += size(key, &value);
                self.values.insert(key.into(), value)
            }
            None => self.values.remove(key),
        };
        if let Some(before) = before {
            self.bytes -= size(key, &before);
        }
    }
}

fn as_json(value: &[u8]) -> Bytes {
    if json::parse(value).is_ok() {
        return Bytes::copy_from_slice(value.trim_ascii());
    }
    let mut out = BytesMut::new();
    match std::str::from_utf8(value) {
        Ok(text) => json::write_string(text, &mut out),
        Err(_) => json::write_string(&STANDARD.encode(value), &mut out),
    }
    out.freeze()
}

impl Table {
    /// Starts reading a topic. The table fails when it needs more memory than allowed. Call on a runtime.
    pub fn open(settings: &Settings, topic: &str, bytes_max: u64) -> Result<Table, StageError> {
        let needed = [
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
            ("allow.auto.create.topics", "false"),
            ("fetch.max.bytes", FETCH_BYTES_MAX),
        ];
        let client = consumer(settings, &[], &needed, &[])?;
        let consumer = Consumer::new(client.cluster(), client.config);
        let shared = Arc::<SharedRows>::default();
        let topic: Arc<str> = topic.into();
        let reader = TableReader {
            consumer,
            topic: Arc::clone(&topic),
            shared: Arc::clone(&shared),
            bytes_max,
            ends: Ends::default(),
            buffer: DecompressBuffer::default(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(reader.run());
        Ok(Table { topic, shared, _reader: tasks })
    }

    /// The number of rows.
    pub fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.shared.count)
    }

    /// True if the table has the records that were in the topic at the start.
    pub fn is_whole(&self) -> bool {
        self.shared.read().is_whole
    }

    /// The rows, unless reading the topic has failed.
    pub fn rows(&self) -> Result<RwLockReadGuard<'_, Rows>, StageError> {
        let rows = self.shared.read();
        match &rows.failed {
            Some(reason) => Err(failed(format!("Table of the topic {}", self.topic), reason)),
            None => Ok(rows),
        }
    }

    /// Waits until the table is whole, if `knows_whole` is false, or reading fails. Cancel safe.
    pub async fn changed(&self, knows_whole: bool) {
        loop {
            let changed = self.shared.changed.notified();
            if self.shared.has_news(knows_whole) {
                return;
            }
            changed.await;
        }
    }
}

impl SharedRows {
    fn read(&self) -> RwLockReadGuard<'_, Rows> {
        self.rows.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_news(&self, knows_whole: bool) -> bool {
        let rows = self.read();
        rows.failed.is_some() || rows.is_whole && !knows_whole
    }

    fn change(&self, change: impl FnOnce(&mut Rows)) {
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut rows);
        self.count.store(rows.values.len() as u64, Ordering::Release);
    }
}

/// The reading task.
struct TableReader {
    consumer: Consumer,
    topic: Arc<str>,
    shared: Arc<SharedRows>,
    bytes_max: u64,
    /// The partitions that the whole table still lacks.
    ends: Ends,
    buffer: DecompressBuffer,
}

impl TableReader {
    async fn run(mut self) {
        let reason = match self.begin().await {
            Ok(()) => self.follow().await,
            Err(error) => error.to_string(),
        };
        self.shared.change(|rows| rows.failed = Some(reason));
        self.shared.changed.notify_one();
    }

    /// Finds the partitions and their ends.
    async fn begin(&mut self) -> Result<(), StageError> {
        let indexes = partitions_of(self.consumer.cluster(), &self.topic).await?;
        let all: Vec<_> = indexes.iter().map(|index| TopicPartition::new(&*self.topic, *index)).collect();
        let reading = |error: ConsumerError| failed("Reading", error);
        let latest: Vec<_> = all.iter().map(|at| (at.clone(), OffsetSpec::Latest)).collect();
        let ends = loop {
            match self.consumer.list_offsets(&latest).await {
                Err(error) if error.is_retriable() => sleep(ASKED_AGAIN).await,
                ends => break ends.map_err(reading)?,
            }
        };
        let earliest = all.into_iter().map(|at| (at, StartAt::Spec(OffsetSpec::Earliest))).collect();
        self.consumer.assign(earliest).await.map_err(reading)?;
        for (at, end) in ends {
            let from = self.consumer.position(&at).unwrap_or(Offset(0));
            self.ends.add(&at, from, end.offset);
        }
        self.note_end();
        Ok(())
    }

    /// Reads until it fails. Returns the reason.
    async fn follow(&mut self) -> String {
        let mut is_troubled = false;
        loop {
            match self.consumer.poll(POLL).await {
                Ok(PollEvent::Chunk(chunk)) => {
                    is_troubled = false;
                    if let Err(reason) = self.take(&chunk) {
                        return reason;
                    }
                }
                Ok(_) => {}
                Err(error) if error.is_retriable() => {
                    if !std::mem::replace(&mut is_troubled, true) {
                        tracing::warn!(topic = &*self.topic, %error, "Failed to read a table, retrying");
                    }
                    sleep(ASKED_AGAIN).await;
                }
                Err(error) => {
                    let right = format!("--topic {} --allow read", self.topic);
                    return with_grant(error, self.consumer.cluster(), &right);
                }
            }
        }
    }

    fn take(&mut self, chunk: &Chunk) -> Result<(), String> {
        let TableReader { shared, buffer, bytes_max, .. } = self;
        let mut walked = Ok(());
        let mut size = (0, 0);
        shared.change(|rows| {
            walked = chunk.for_each(buffer, |record| {
                // A record without a key is no row.
                if let Some(key) = record.key {
                    rows.set(key, record.value);
                }
                if rows.bytes > *bytes_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            size = (rows.bytes, rows.values.len());
        });
        walked.map_err(|error| error.to_string())?;
        if size.0 > self.bytes_max {
            let mib = self.bytes_max >> 20;
            return Err(format!(
                "it has more than {mib} MiB, in {} rows: raise --memory, or make a topic with fewer fields",
                size.1
            ));
        }
        self.ends.read(&chunk.at, chunk.next);
        self.note_end();
        Ok(())
    }

    fn note_end(&self) {
        if self.ends.are_reached() && !self.shared.read().is_whole {
            self.shared.change(|rows| rows.is_whole = true);
            self.shared.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_json_and_their_memory_is_counted() {
        let mut rows = Rows::default();
        for (key, value, expected) in [
            (&b"a"[..], &b" {\"n\": 1.50} "[..], &br#"{"n": 1.50}"#[..]),
            (b"b", b"no \"JSON\"", br#""no \"JSON\"""#),
            (b"c", b"\xff\x00", br#""/wA=""#),
        ] {
            rows.set(key, Some(value));
            assert_eq!(rows.get(key).map(|value| &value[..]), Some(expected));
        }
        let before = rows.bytes;
        rows.set(b"d", Some(b"12345"));
        assert_eq!(rows.bytes, before + ROW_BYTES + 1 + 5);
        rows.set(b"d", Some(b"1"));
        assert_eq!(rows.bytes, before + ROW_BYTES + 1 + 1);
        rows.set(b"d", None);
        rows.set(b"d", None);
        assert_eq!((rows.bytes, rows.get(b"d")), (before, None));
    }
}
