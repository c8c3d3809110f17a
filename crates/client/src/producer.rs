//! A lean producer, for generating load and for tools.
//!
//! The caller's thread writes records straight into the batch of a partition: into the bytes that will be
//! sent. A sender task per broker takes full and lingered batches, finishes them (header, CRC, compression)
//! and writes them to the socket in place, several requests ahead of the answers. Batches and their buffers
//! are reused, so a record costs varints and a copy, and no allocation. A third task handles the metadata,
//! the producer id and the delivery timeouts.
//!
//! With `transactional.id`, records and the offsets of a consumer group are written in transactions
//! (`transaction` holds the state, `coordination` talks to the coordinators).
//!
//! Features missing compared with Kafka's producer: interceptors, and retries of single records.

mod accumulator;
mod batch;
mod config;
mod coordination;
mod delivery;
mod housekeeper;
mod partition;
mod report;
mod sender;
mod transaction;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use thalweg_dial::ClientError;
use thalweg_hash::HashMap;
use thalweg_record::BatchHeader;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::{Cluster, CoordinatorKind};
use crate::coordinator::Coordinator;
use crate::partitioner::key_partition;
use accumulator::{Accumulator, JoinOutcome, Topic};
use report::fail;
use transaction::Transaction;

pub use batch::{ProducerRecord, SentRun};
pub use config::{Acks, ProducerConfig};
pub use delivery::{
    BatchRefused, Delivery, DeliveryError, DeliveryTimedOut, NoProducerId, ProducerClosed, TransactionAborted,
};
pub use transaction::{InvalidTransactionState, TransactionCause, TransactionError};

/// A registered topic of a producer, so that records need not contain its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicRef(usize);

/// Why a record was not accepted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// The record can never be sent.
    #[error(transparent)]
    TooLarge(#[from] RecordTooLarge),
    /// The topic has no such partition.
    #[error(transparent)]
    NoSuchPartition(#[from] NoSuchPartition),
    /// No memory became free in time.
    #[error(transparent)]
    BufferFull(#[from] BufferFull),
    /// No open transaction can be committed.
    #[error(transparent)]
    Transaction(#[from] Arc<TransactionError>),
}

/// A record exceeds the maximum request size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A record of {record_bytes} bytes is larger than max.request.size={limit_bytes}")]
pub struct RecordTooLarge {
    /// The record's size in its own batch, in bytes.
    pub record_bytes: usize,
    /// The limit in bytes, `max.request.size`.
    pub limit_bytes: usize,
}

/// A record's partition does not exist in its topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Topic {topic} has no partition {partition}: expected 0 to {}", partition_count - 1)]
pub struct NoSuchPartition {
    pub topic: Arc<str>,
    /// The requested partition.
    pub partition: i32,
    /// The topic's number of partitions.
    pub partition_count: usize,
}

/// `buffer.memory` is used up by batches that wait for the brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("No room for a record in buffer.memory={buffer_bytes} for max.block.ms={waited_ms}")]
pub struct BufferFull {
    /// The limit in bytes, `buffer.memory`.
    pub buffer_bytes: usize,
    /// Milliseconds that the caller waited.
    pub waited_ms: u128,
}

/// The outcome of adding a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOutcome {
    /// The record is in a batch that has room for more.
    Joined,
    /// The open batch was full, so the record is in a new batch: a good moment to let the senders work, if
    /// they share the caller's thread.
    Filled,
    /// The buffer has no room until batches complete.
    Full,
}

/// Called with each completed batch.
type Report = Box<dyn FnMut(&Delivery<'_>) + Send>;

/// State shared by the caller, the senders and the housekeeper.
pub(crate) struct ProducerState {
    config: ProducerConfig,
    cluster: Cluster,
    accumulator: Mutex<Accumulator>,
    /// Notified when batches complete.
    progress: Notify,
    /// Notified when metadata or a producer id is needed.
    housekeeper: Notify,
    /// The coordinator of a transactional producer.
    coordinator: Option<Coordinator>,
    report: Mutex<Report>,
}

impl std::fmt::Debug for ProducerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProducerState").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A producer. One caller at a time sends; several producers share nothing.
///
/// Dropping a producer stops it at once: waiting records are reported as not sent, and records in flight are
/// not reported. [`Producer::close`] stops it cleanly.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<ProducerState>,
    topics: HashMap<Arc<str>, RegisteredTopic>,
    /// The current partition for records without a key, by topic.
    sticky: Vec<StickyPartition>,
    /// The housekeeper, which owns the senders, and the task that registers partitions. Both tasks end with
    /// the producer.
    _tasks: JoinSet<()>,
}

/// A topic of a producer.
#[derive(Clone, Copy, Debug)]
struct RegisteredTopic {
    topic: TopicRef,
    /// True if the topic's metadata is known.
    is_found: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct StickyPartition {
    /// The index in the topic's list of partitions.
    at: usize,
    /// The partition at that index.
    partition: usize,
    /// Bytes sent to that partition since the last change.
    bytes: usize,
}

impl Producer {
    /// A producer to the cluster behind `bootstrap`. `report` is called once for each completed batch, on the
    /// sender's task, so it must be fast.
    pub async fn connect(
        bootstrap: &[String],
        config: ProducerConfig,
        report: impl FnMut(&Delivery<'_>) + Send + 'static,
    ) -> Result<Producer, ClientError> {
        let cluster = Cluster::connect(bootstrap, &config.connection).await?;
        Ok(Producer::new(cluster, config, report))
    }

    /// A producer to a cluster, with its metadata.
    pub fn new(
        cluster: Cluster,
        config: ProducerConfig,
        report: impl FnMut(&Delivery<'_>) + Send + 'static,
    ) -> Producer {
        let id = config.transactional_id.as_deref();
        let coordinator = |id| Coordinator::dedicated(cluster.clone(), CoordinatorKind::Transaction, id);
        let coordinator = id.map(coordinator);
        let transaction = id.map(|id| Transaction::new(id.into()));
        let shared = Arc::new(ProducerState {
            config,
            cluster,
            accumulator: Mutex::new(Accumulator::new(transaction)),
            progress: Notify::new(),
            housekeeper: Notify::new(),
            coordinator,
            report: Mutex::new(Box::new(report)),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(housekeeper::run(Arc::clone(&shared)));
        if shared.coordinator.is_some() {
            tasks.spawn(coordination::register_partitions(Arc::clone(&shared)));
        }
        Producer { shared, topics: HashMap::default(), sticky: Vec::new(), _tasks: tasks }
    }

    /// The topic with this name. Waits up to `max.block.ms` for its metadata; brokers that allow it create
    /// the topic.
    pub async fn topic(&mut self, name: &str) -> Result<TopicRef, ClientError> {
        let RegisteredTopic { topic, is_found } = match self.topics.get(name) {
            Some(&known) => known,
            None => self.register(name.into()),
        };
        if !is_found {
            housekeeper::find_topic(&self.shared, name).await?;
            self.topics.insert(name.into(), RegisteredTopic { topic, is_found: true });
            self.switch(topic);
        }
        Ok(topic)
    }

    /// Registers a topic. A topic that is not found keeps its slot, so that indexes do not change.
    fn register(&mut self, name: Arc<str>) -> RegisteredTopic {
        let mut accumulator = self.shared.accumulator.lock();
        let registered = RegisteredTopic { topic: TopicRef(accumulator.topics.len()), is_found: false };
        accumulator.topics.push(Topic { name: Arc::clone(&name), partitions: Vec::new() });
        self.sticky.push(StickyPartition::default());
        self.topics.insert(name, registered);
        registered
    }

    /// Number of partitions of a topic.
    pub fn partition_count(&self, topic: TopicRef) -> usize {
        self.shared.accumulator.lock().topics[topic.0].partitions.len()
    }

    /// Adds a record, if there is room. Never waits.
    #[inline]
    pub fn try_send(&mut self, record: &ProducerRecord<'_>) -> Result<AppendOutcome, SendError> {
        self.sending().try_send(record)
    }

    /// Adds several records with [`LockedProducer::try_send`] while holding the lock shared with the senders.
    /// The lock costs more than a small record, so this pays off from a few records on; the senders are
    /// blocked meanwhile.
    #[inline]
    pub fn sending(&mut self) -> LockedProducer<'_> {
        let shared = &*self.shared;
        let accumulator = shared.accumulator.lock();
        LockedProducer { accumulator, config: &shared.config, sticky: &mut self.sticky }
    }

    /// Adds a record, waiting for room up to `max.block.ms`. The outcome is reported with its batch.
    pub async fn send(&mut self, record: &ProducerRecord<'_>) -> Result<AppendOutcome, SendError> {
        match self.try_send(record)? {
            AppendOutcome::Full => {}
            taken => return Ok(taken),
        }
        let shared = Arc::clone(&self.shared);
        let waited_from = Instant::now();
        let deadline = waited_from + shared.config.max_block;
        loop {
            let progress = shared.progress.notified();
            match self.try_send(record)? {
                AppendOutcome::Full => {}
                taken => return Ok(taken),
            }
            if tokio::time::timeout_at(deadline, progress).await.is_err() {
                let waited_ms = waited_from.elapsed().as_millis();
                return Err(BufferFull { buffer_bytes: shared.config.buffer_bytes, waited_ms }.into());
            }
        }
    }

    /// Sends everything at once, and waits until all batches have completed, stored or failed.
    pub async fn flush(&mut self) {
        let _flushing = FlushGuard::begin(&self.shared);
        loop {
            let progress = self.shared.progress.notified();
            if self.shared.accumulator.lock().incomplete == 0 {
                return;
            }
            progress.await;
        }
    }

    /// Sends all records, waits for their outcomes, and stops the producer.
    pub async fn close(mut self) {
        self.flush().await;
    }

    fn switch(&mut self, topic: TopicRef) {
        let accumulator = self.shared.accumulator.lock();
        let sticky = &mut self.sticky[topic.0];
        sticky.at = accumulator.next_sticky(topic.0, sticky.at);
        sticky.partition = accumulator.topics[topic.0].partitions[sticky.at];
    }
}

/// A guard during which batches are sent without lingering.
struct FlushGuard<'a>(&'a ProducerState);

impl FlushGuard<'_> {
    fn begin(shared: &ProducerState) -> FlushGuard<'_> {
        let mut accumulator = shared.accumulator.lock();
        accumulator.flushing = true;
        accumulator.wake_all();
        FlushGuard(shared)
    }
}

impl Drop for FlushGuard<'_> {
    fn drop(&mut self) {
        self.0.accumulator.lock().flushing = false;
    }
}

/// A producer with its lock held; see [`Producer::sending`].
#[derive(Debug)]
pub struct LockedProducer<'a> {
    accumulator: MutexGuard<'a, Accumulator>,
    config: &'a ProducerConfig,
    sticky: &'a mut Vec<StickyPartition>,
}

impl LockedProducer<'_> {
    /// Adds a record, if there is room. Never waits.
    #[inline]
    pub fn try_send(&mut self, record: &ProducerRecord<'_>) -> Result<AppendOutcome, SendError> {
        let config = self.config;
        let keyed = record.key.is_some() && !config.ignore_keys;
        if record.partition.is_some() || keyed {
            return self.try_send_to_chosen(record);
        }
        let sticky = &mut self.sticky[record.topic.0];
        let joined = self.accumulator.join(sticky.partition, record, config);
        sticky.bytes += record.value.map_or(0, <[u8]>::len);
        if joined == JoinOutcome::Yes {
            return Ok(AppendOutcome::Joined);
        }
        self.begin(joined, record)
    }

    /// Adds a record that did not fit into the open batch, or found none.
    #[cold]
    fn begin(
        &mut self,
        joined: JoinOutcome,
        record: &ProducerRecord<'_>,
    ) -> Result<AppendOutcome, SendError> {
        let (accumulator, config) = (&mut *self.accumulator, self.config);
        accumulator.check_open()?;
        check_size(record, config)?;
        let sticky = &mut self.sticky[record.topic.0];
        // Change the partition after a full batch, or after as many bytes in batches that were sent early.
        if joined == JoinOutcome::Sealed || sticky.bytes >= config.batch_bytes {
            accumulator.wake(sticky.partition);
            sticky.at = accumulator.next_sticky(record.topic.0, sticky.at);
            sticky.partition = accumulator.topics[record.topic.0].partitions[sticky.at];
            sticky.bytes = 0;
            if accumulator.join(sticky.partition, record, config) == JoinOutcome::Yes {
                return Ok(taken(joined));
            }
        }
        Ok(if accumulator.open(sticky.partition, record, config) {
            taken(joined)
        } else {
            AppendOutcome::Full
        })
    }

    fn try_send_to_chosen(&mut self, record: &ProducerRecord<'_>) -> Result<AppendOutcome, SendError> {
        let (accumulator, config) = (&mut *self.accumulator, self.config);
        let topic = &accumulator.topics[record.topic.0];
        let count = topic.partitions.len();
        let at = match (record.partition, record.key) {
            (Some(partition), _) => usize::try_from(partition).unwrap_or(usize::MAX),
            (None, Some(key)) => key_partition(key, count),
            (None, None) => unreachable!("a record without partition and key is sticky"),
        };
        let Some(&partition) = topic.partitions.get(at) else {
            let partition = record.partition.expect("a key's partition is one of the topic's");
            let topic = Arc::clone(&topic.name);
            return Err(NoSuchPartition { topic, partition, partition_count: count }.into());
        };
        let joined = accumulator.join(partition, record, config);
        match joined {
            JoinOutcome::Yes => return Ok(AppendOutcome::Joined),
            JoinOutcome::Sealed => accumulator.wake(partition),
            JoinOutcome::NoneOpen => {}
        }
        accumulator.check_open()?;
        check_size(record, config)?;
        Ok(if accumulator.open(partition, record, config) { taken(joined) } else { AppendOutcome::Full })
    }
}

/// The outcome for a batched record, given the first attempt with the open batch.
fn taken(first_try: JoinOutcome) -> AppendOutcome {
    if first_try == JoinOutcome::Sealed { AppendOutcome::Filled } else { AppendOutcome::Joined }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let left = {
            let mut accumulator = self.shared.accumulator.lock();
            accumulator.closing = true;
            accumulator.take_all()
        };
        fail(&self.shared, left, &DeliveryError::Closed(ProducerClosed));
    }
}

fn check_size(record: &ProducerRecord<'_>, config: &ProducerConfig) -> Result<(), RecordTooLarge> {
    // Upper bound: five varints, each of up to ten bytes, beside the fields.
    const FIELDS_MAX: usize = BatchHeader::LEN + 50;
    let headers =
        record.headers.iter().map(|header| 20 + header.key.len() + header.value.map_or(0, <[u8]>::len));
    let fields = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
    let record_bytes = FIELDS_MAX + fields + headers.sum::<usize>();
    let limit_bytes = config.request_bytes_max;
    if record_bytes > limit_bytes { Err(RecordTooLarge { record_bytes, limit_bytes }) } else { Ok(()) }
}
