//! The topics of stages' state: their creation, the format of their records, and reading them back. `store`
//! has the state of an instance of a stream.
//!
//! The topic of a stage has a partition for each partition of the source's topics; several topics share it by
//! number. A record's key is the length of the source topic's name (two bytes, big-endian), the name, and the
//! key of the entry, whose meaning is the stage's. The empty key has the checkpoint, a line of JSON:
//!
//! ```json
//! {"version":1,"position":4711,"options":"window=60000 ..."}
//! ```
//!
//! `position` is the offset committed in the same transaction. If the committed offset is another one, it was
//! set by hand, and the state is not that of the messages before it. A null value removes an entry.

mod store;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thalweg_client::{
    Chunk, ChunkError, Cluster, Consumer, ConsumerConfig, ConsumerError, NewTopic, OffsetSpec, PollEvent,
    StartAt, TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset};
use thalweg_wire::ErrorCode;

use crate::kafka::{self, CreationFailed};
use crate::stage::StageError;
use crate::state::Entries;

pub use store::{StateStore, StoreSettings};

/// The version of the records.
const VERSION: u32 = 1;
/// Interval at which the position is compared with the end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The settings of the topics. Segments are small, because a segment is compacted after its end. Removed
/// entries stay visible for longer than it takes to read a topic.
const CONFIGS: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("segment.bytes", "52428800"), ("delete.retention.ms", "3600000")];

/// The position of the source that a partition's state belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    version: u32,
    /// The committed offset, if there is one.
    pub position: Option<i64>,
    pub options: String,
}

impl Checkpoint {
    pub fn new(position: Option<i64>, options: String) -> Checkpoint {
        Checkpoint { version: VERSION, position, options }
    }

    /// The checkpoint among the entries of a partition, which is removed from them.
    pub fn take(entries: &mut Entries) -> Result<Option<Checkpoint>, String> {
        let Some(text) = entries.remove(&[][..]) else { return Ok(None) };
        let checkpoint: Checkpoint = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        match checkpoint.version {
            VERSION => Ok(Some(checkpoint)),
            version => Err(format!("it has version {version} and not {VERSION}")),
        }
    }

    /// The value of the record.
    pub fn to_value(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a checkpoint has only numbers and texts")
    }
}

/// The key of an entry's record.
pub fn record_key(source: &str, entry: &[u8]) -> Vec<u8> {
    let length = u16::try_from(source.len()).expect("names of topics have at most 249 bytes");
    [&length.to_be_bytes(), source.as_bytes(), entry].concat()
}

/// The source topic and the entry of a record's key.
fn read_key(key: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = key.split_first_chunk::<2>()?;
    let (source, entry) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some((std::str::from_utf8(source).ok()?, entry))
}

/// Creates missing topics, and missing partitions of existing ones.
pub async fn create(cluster: &Cluster, topics: &[Arc<str>], sources: &[String]) -> Result<(), StageError> {
    let names: Vec<String> = topics.iter().map(ToString::to_string).chain(sources.iter().cloned()).collect();
    let unreachable = |error| kafka::failed("Finding the topics of state", error);
    let metadata = cluster.refresh(&names, false).await.map_err(unreachable)?;
    let count = |topic: &str| {
        let known = metadata.topics.get(topic).filter(|known| known.error.is_none());
        known.map_or(0, |known| i32::try_from(known.partitions.len()).unwrap_or(i32::MAX))
    };
    let needed = sources.iter().map(|source| count(source)).max().unwrap_or(0);
    let (mut missing, mut small) = (Vec::new(), BTreeMap::new());
    for topic in topics {
        match count(topic) {
            0 => missing.push(NewTopic {
                partitions: Some(needed),
                configs: CONFIGS.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                ..NewTopic::new(topic.as_ref())
            }),
            count if count < needed => drop(small.insert(topic.to_string(), needed)),
            _ => {}
        }
    }
    if needed == 0 || (missing.is_empty() && small.is_empty()) {
        return Ok(());
    }
    let refused = |topic: &str, error: thalweg_client::ClientError| {
        let right = format!("--topic {topic} --allow create,alter,read,write");
        let reason = kafka::with_grant(error, cluster, &right);
        kafka::failed(format!("Creating {topic}, the topic of a stage's state"), reason)
    };
    if !missing.is_empty() {
        let failed = |CreationFailed { topic, error }| match topic {
            Some(topic) => refused(&topic, error),
            None => unreachable(error),
        };
        kafka::create_topics(cluster, &missing).await.map_err(failed)?;
    }
    if !small.is_empty() {
        for (topic, grown) in kafka::admin(cluster).create_partitions(&small).await.map_err(unreachable)? {
            // Another instance was first.
            if let Err(error) = grown
                && error.error_code() != Some(ErrorCode::InvalidPartitions)
            {
                return Err(refused(&topic, error));
            }
        }
    }
    for topic in topics {
        kafka::wait_for_topic(cluster, topic).await.map_err(|error| refused(topic, error))?;
    }
    Ok(())
}

/// State was not read back.
#[derive(Debug, thiserror::Error)]
pub enum ReadFailed {
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// Records are unreadable.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
}

impl ReadFailed {
    /// True if the same call may succeed later.
    pub fn is_retriable(&self) -> bool {
        matches!(self, ReadFailed::Consumer(error) if error.is_retriable())
    }
}

/// The state of partitions, as read back.
pub struct ReadState {
    /// The committed offsets.
    pub committed: BTreeMap<TopicPartition, Offset>,
    /// The entries by topic of state and partition of the source, with their checkpoints.
    pub entries: BTreeMap<(Arc<str>, TopicPartition), Entries>,
}

/// Reads back the entries of partitions of the source.
///
/// The order of the requests matters. A member that was thought dead may still have an open transaction: the
/// committed offsets are known only when it has ended, and no later transaction of that member is accepted.
/// After that, the end of the topic is behind all its records, although the marker that ends the transaction
/// may be missing there yet. So committed records are read up to the end of all records.
pub async fn read(
    cluster: Cluster,
    config: ConsumerConfig,
    topics: &[Arc<str>],
    of: &[TopicPartition],
) -> Result<ReadState, ReadFailed> {
    let mut consumer = Consumer::new(cluster.clone(), config);
    let committed = consumer.committed(of).await?;
    let committed = committed.into_iter().map(|(at, committed)| (at, committed.offset)).collect();
    let mut partitions: Vec<i32> = of.iter().map(|at| at.partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    let all = topics.iter().flat_map(|topic| {
        partitions.iter().map(|partition| TopicPartition::new(Arc::clone(topic), *partition))
    });
    let all: Vec<TopicPartition> = all.collect();
    let latest: Vec<_> = all.iter().map(|at| (at.clone(), OffsetSpec::Latest)).collect();
    let names: Vec<String> = topics.iter().map(ToString::to_string).collect();
    cluster.refresh(&names, false).await.map_err(ConsumerError::from)?;
    let mut ends = BTreeMap::new();
    for (at, end) in cluster.list_offsets(&latest, false).await {
        ends.insert(at, end.map_err(ConsumerError::from)?.offset);
    }
    consumer.assign(all.into_iter().map(|at| (at, StartAt::Spec(OffsetSpec::Earliest))).collect()).await?;
    let mut entries: BTreeMap<(Arc<str>, TopicPartition), Entries> = BTreeMap::new();
    let mut buffer = DecompressBuffer::default();
    loop {
        ends.retain(|at, end| consumer.position(at).is_none_or(|position| position < *end));
        if ends.is_empty() {
            return Ok(ReadState { committed, entries });
        }
        if let PollEvent::Chunk(chunk) = consumer.poll(LOOK_EVERY).await? {
            take(&chunk, &mut buffer, of, &mut entries)?;
        }
    }
}

/// Applies the records of a chunk.
fn take(
    chunk: &Chunk,
    buffer: &mut DecompressBuffer,
    of: &[TopicPartition],
    entries: &mut BTreeMap<(Arc<str>, TopicPartition), Entries>,
) -> Result<(), ChunkError> {
    chunk.for_each(buffer, |record| {
        let Some((source, entry)) = record.key.and_then(read_key) else { return ControlFlow::Continue(()) };
        let is_of = |at: &&TopicPartition| *at.topic == *source && at.partition == chunk.at.partition;
        if let Some(at) = of.iter().find(is_of) {
            let known = entries.entry((Arc::clone(&chunk.at.topic), at.clone())).or_default();
            match record.value {
                Some(value) => drop(known.insert(entry.to_vec(), Bytes::copy_from_slice(value))),
                None => drop(known.remove(entry)),
            }
        }
        ControlFlow::Continue(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_the_source_and_the_entry() {
        let key = record_key("orders", b"x1");
        assert_eq!(key, b"\x00\x06ordersx1");
        assert_eq!(read_key(&key), Some(("orders", &b"x1"[..])));
        assert_eq!(read_key(&record_key("orders", b"")), Some(("orders", &b""[..])));
        for wrong in [&b""[..], b"\x00", b"\x00\x07orders"] {
            assert_eq!(read_key(wrong), None);
        }
    }

    #[test]
    fn checkpoints_of_later_versions_are_not_read() {
        let mut entries = Entries::new();
        assert_eq!(Checkpoint::take(&mut entries), Ok(None));
        let checkpoint = Checkpoint::new(Some(7), "by=text".to_owned());
        entries.insert(Vec::new(), checkpoint.to_value().into());
        assert_eq!((Checkpoint::take(&mut entries), entries.len()), (Ok(Some(checkpoint)), 0));
        let later = r#"{"version":2,"position":7,"options":""}"#;
        entries.insert(Vec::new(), Bytes::from_static(later.as_bytes()));
        let error = Checkpoint::take(&mut entries).expect_err("a later version");
        assert!(error.contains("version 2"), "{error}");
    }
}
