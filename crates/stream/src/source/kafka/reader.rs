//! The thread that polls: finds the partitions, reads them from where it is to begin, and hands over batches of their
//! records, until the source is closed or, where that is wanted, the ends are reached. It sleeps until librdkafka or
//! the source ring its bell: a host may have a thousand of these threads, with nothing to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message};
use rdkafka::metadata::Metadata;
use rdkafka::{Offset, TopicPartitionList};
use thalweg_client::ClientError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::ends::Ends;
use super::membership::{Context, Membership};
use super::runs::{Offsets, Runs};
use crate::clock;
use crate::kafka::{self, Begin, Cluster};
use crate::message::{Batch, Gather, Header};
use crate::module::Settings;
use crate::stage::StageError;

/// How long it sleeps at the most: a group expects its members to poll now and then.
const SLEEP_MAX: Duration = Duration::from_secs(30);
/// How long a poll waits for the first record, once the bell has rung.
const POLL: Duration = Duration::from_millis(1);
/// How long a cluster may take to say which topics it has.
const METADATA_TIMEOUT: Duration = Duration::from_secs(15);
/// How long it is asked for that before it is looked whether the source was closed meanwhile.
const METADATA_ASKED: Duration = Duration::from_secs(1);
/// How long the group may take to say what was committed, before it is asked again.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before that.
const ASKED_AGAIN: Duration = Duration::from_millis(200);

/// The consumer of a source.
pub type GroupConsumer = BaseConsumer<Context>;

/// Wakes the thread that polls.
#[derive(Default)]
pub struct Bell {
    has_rung: Mutex<bool>,
    rings: Condvar,
}

impl Bell {
    /// There is something to do. If nobody listens at the moment, the next who does hears it.
    pub fn ring(&self) {
        *self.has_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rings.notify_one();
    }

    /// Sleeps until it rings, if it has not since the last time.
    fn wait(&self) {
        let has_rung = self.has_rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.rings.wait_timeout_while(has_rung, SLEEP_MAX, |has_rung| !*has_rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// Messages, and which records they are.
pub struct Polled {
    /// The messages.
    pub batch: Batch,
    /// Their records.
    pub runs: Runs,
}

/// What is to be read.
pub struct Wanted {
    topics: Vec<String>,
    /// As a member of a consumer group, which says which partitions, and where to begin.
    pub in_group: bool,
    /// Where to begin otherwise.
    pub begin: Begin,
    /// The partitions, if not all.
    chosen: Option<Vec<i32>>,
    /// Up to where they end when reading begins.
    pub until_end: bool,
    with_headers: bool,
}

impl Wanted {
    /// What the options say.
    pub fn of(settings: &Settings) -> Wanted {
        Wanted {
            topics: settings.text("topics").split(',').map(|topic| topic.trim().to_owned()).collect(),
            in_group: settings.optional_text("group").is_some(),
            begin: Begin::read(settings.text("from")).unwrap_or(Begin::Earliest),
            chosen: settings.optional_text("partitions").and_then(kafka::partitions),
            until_end: settings.flag("untilEnd"),
            with_headers: kafka::with_headers(settings),
        }
    }
}

/// Polls, on a thread of its own.
pub struct Reader {
    consumer: Arc<GroupConsumer>,
    /// The same, for finding out why it does not answer.
    cluster: Cluster,
    wanted: Wanted,
    ends: Ends,
    bell: Arc<Bell>,
    is_closed: Arc<AtomicBool>,
    sequence: u64,
    membership: Arc<Membership>,
    /// Of each partition, the first record that was read since it was given.
    first: Offsets,
    /// How often partitions had been given then.
    assignments: u64,
    /// No record has come since the cluster could not be reached.
    is_troubled: bool,
}

impl Reader {
    /// Reads with this consumer, which rings the bell when it has anything, until `is_closed` says so.
    pub fn new(
        consumer: Arc<GroupConsumer>,
        cluster: Cluster,
        wanted: Wanted,
        membership: Arc<Membership>,
        bell: Arc<Bell>,
        is_closed: Arc<AtomicBool>,
    ) -> Reader {
        Reader {
            consumer,
            cluster,
            wanted,
            ends: Ends::default(),
            bell,
            is_closed,
            sequence: 0,
            membership,
            first: Offsets::new(),
            assignments: 0,
            is_troubled: false,
        }
    }

    /// Hands over what it reads; an error is the last.
    pub fn run(mut self, batches: &mpsc::Sender<Result<Polled, StageError>>) {
        if let Err(error) = self.read(batches) {
            // Nobody waits for what a stream reads that has ended.
            let _ = batches.blocking_send(Err(error));
        }
    }

    fn read(&mut self, batches: &mpsc::Sender<Result<Polled, StageError>>) -> Result<(), StageError> {
        let Some(partitions) = self.find_partitions()? else { return Ok(()) };
        if self.wanted.until_end {
            self.find_ends(&partitions)?;
        }
        if self.wanted.in_group {
            let topics: Vec<&str> = self.wanted.topics.iter().map(String::as_str).collect();
            let subscribed = self.consumer.subscribe(&topics);
            subscribed.map_err(|error| kafka::failed("Subscribing", error))?;
        } else {
            let assigned = self.consumer.assign(&partitions);
            assigned.map_err(|error| kafka::failed("Taking partitions", error))?;
        }
        while !self.is_closed.load(Ordering::Relaxed) {
            if self.membership.wants_rewind() {
                self.rewind()?;
            }
            let polled = self.poll()?;
            if self.wanted.until_end && self.ends.are_reached() {
                // What was polled is the last.
                let _ = batches.blocking_send(Ok(polled));
                return Ok(());
            }
            if polled.batch.is_empty() {
                self.bell.wait();
            } else if batches.blocking_send(Ok(polled)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What the cluster says of a topic; nothing if the source is closed before it says anything.
    fn ask(&self, topic: &str) -> Result<Option<Metadata>, StageError> {
        let until = Instant::now() + METADATA_TIMEOUT;
        loop {
            let error = match self.consumer.fetch_metadata(Some(topic), METADATA_ASKED) {
                Ok(metadata) => return Ok(Some(metadata)),
                Err(error) => error,
            };
            let trouble = self.cluster.trouble_now();
            if self.is_closed.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let may_mend = mends_itself(&error) && trouble.as_ref().is_none_or(ClientError::is_retriable);
            if !may_mend || Instant::now() >= until {
                let reason = match trouble {
                    Some(trouble) => trouble.to_string(),
                    None => format!("no broker at {} answers ({error})", self.cluster.bootstrap),
                };
                return Err(kafka::failed(format!("Topic {topic}"), reason));
            }
        }
    }

    /// The partitions to read, each with where to begin; that all topics are there is found out on the way. None, if the source
    /// is closed meanwhile.
    fn find_partitions(&self) -> Result<Option<TopicPartitionList>, StageError> {
        let mut list = TopicPartitionList::new();
        for topic in &self.wanted.topics {
            let Some(metadata) = self.ask(topic)? else { return Ok(None) };
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            let indexes: Vec<i32> = found
                .filter(|found| found.error().is_none())
                .map(|found| found.partitions().iter().map(|partition| partition.id()).collect())
                .unwrap_or_default();
            if indexes.is_empty() {
                return Err(kafka::failed(format!("Topic {topic}"), "there is no such topic"));
            }
            for &index in self.wanted.chosen.as_ref().unwrap_or(&indexes) {
                if !indexes.contains(&index) {
                    let reason =
                        format!("it has no partition {index}: 0 to {} would be right", indexes.len() - 1);
                    return Err(kafka::failed(format!("Topic {topic}"), reason));
                }
                let offset = match &self.wanted.begin {
                    Begin::Earliest => Offset::Beginning,
                    Begin::Latest => Offset::End,
                    Begin::Offset(offset) | Begin::Timestamp(offset) => Offset::Offset(*offset),
                    Begin::Offsets(offsets) => {
                        offsets.get(&index).map_or(Offset::Beginning, |&at| Offset::Offset(at))
                    }
                };
                let added = list.add_partition_offset(topic, index, offset);
                added.map_err(|error| kafka::failed(format!("Topic {topic}"), error))?;
            }
        }
        if matches!(self.wanted.begin, Begin::Timestamp(_)) {
            let found = self.consumer.offsets_for_times(list, METADATA_TIMEOUT);
            list = found.map_err(|error| kafka::failed("Finding offsets by time", error))?;
        }
        Ok(Some(list))
    }

    /// Where the partitions end at the moment.
    fn find_ends(&mut self, partitions: &TopicPartitionList) -> Result<(), StageError> {
        for element in partitions.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            let found = self.consumer.fetch_watermarks(topic, partition, METADATA_TIMEOUT);
            let (low, high) = found.map_err(|error| kafka::failed(format!("Topic {topic}"), error))?;
            let from = match element.offset() {
                Offset::Offset(offset) => offset,
                Offset::Beginning => low,
                _ => high,
            };
            self.ends.add(topic, partition, from, high);
        }
        Ok(())
    }

    /// What is there.
    fn poll(&mut self) -> Result<Polled, StageError> {
        let consumer = self.consumer.clone();
        let mut gather = Gather::default();
        let mut runs = Runs::default();
        let mut wait = POLL;
        while !gather.is_full() {
            let changes = self.membership.changes();
            let record = match consumer.poll(wait) {
                // It was a change of the partitions that was polled, and there may be more.
                None if self.membership.changes() != changes => continue,
                None => break,
                Some(Ok(record)) => record,
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.ends.told(partition);
                    continue;
                }
                Some(Err(error)) => {
                    self.wait_out(error)?;
                    continue;
                }
            };
            (wait, self.is_troubled) = (Duration::ZERO, false);
            let time_ms = record.timestamp().to_millis().unwrap_or_else(clock::time_ms);
            let headers = if self.wanted.with_headers { record.headers() } else { None };
            let headers = headers.into_iter().flat_map(|headers| headers.iter());
            let headers = headers.map(|header| Header { name: header.key, value: header.value });
            gather.push(record.payload(), record.key(), headers, time_ms, self.sequence);
            // Asked after the poll, in which it may have changed.
            let generation = self.membership.generation();
            let (topic, partition) = (record.topic(), record.partition());
            if runs.add(topic, partition, record.offset(), generation, self.sequence) && self.wanted.in_group
            {
                self.note_first(topic, partition, record.offset());
            }
            self.sequence += 1;
        }
        if self.wanted.until_end {
            for ((topic, partition), next) in runs.offsets() {
                self.ends.read(&topic, partition, next);
            }
        }
        Ok(Polled { batch: gather.take(), runs })
    }

    /// Goes on after an error that mends itself. It is told once: librdkafka tells it at every try.
    fn wait_out(&mut self, error: KafkaError) -> Result<(), StageError> {
        if !mends_itself(&error) {
            let reason = match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL) => self.cluster.trouble_now(),
                _ => None,
            };
            let reason = reason.map_or_else(|| error.to_string(), |reason| reason.to_string());
            return Err(kafka::failed("Reading", reason));
        }
        if !std::mem::replace(&mut self.is_troubled, true) {
            tracing::warn!(error = %error, "The cluster cannot be reached; it is tried again");
        }
        Ok(())
    }

    fn note_first(&mut self, topic: &str, partition: i32, offset: i64) {
        let assignments = self.membership.assignments();
        if self.assignments != assignments {
            self.assignments = assignments;
            self.first.clear();
        }
        self.first.entry((topic.into(), partition)).or_insert(offset);
    }

    /// Goes back to where the group has committed: in a partition without a commit, to the first record that was read of it.
    fn rewind(&mut self) -> Result<(), StageError> {
        while self.membership.wants_rewind() && !self.is_closed.load(Ordering::Relaxed) {
            match self.seek_committed() {
                Ok(()) => self.membership.has_rewound(),
                Err(error) => {
                    self.wait_out(error)?;
                    // The partitions may be lost meanwhile, which librdkafka tells in a poll, and only then goes on: those that
                    // are given next begin where the group has committed. A record that comes is void.
                    if let Some(Err(error)) = self.consumer.poll(ASKED_AGAIN) {
                        self.wait_out(error)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn seek_committed(&self) -> Result<(), KafkaError> {
        let assigned = self.consumer.assignment()?;
        let mut read = TopicPartitionList::new();
        for element in assigned.elements() {
            if self.first.contains_key(&(element.topic().into(), element.partition())) {
                read.add_partition(element.topic(), element.partition());
            }
        }
        if read.count() == 0 || self.assignments != self.membership.assignments() {
            return Ok(());
        }
        let mut places = TopicPartitionList::new();
        for element in self.consumer.committed_offsets(read, COMMITTED_TIMEOUT)?.elements() {
            element.error()?;
            let offset = match element.offset() {
                Offset::Offset(offset) => offset,
                _ => self.first[&(element.topic().into(), element.partition())],
            };
            places.add_partition_offset(element.topic(), element.partition(), Offset::Offset(offset))?;
        }
        for element in self.consumer.seek_partitions(places, METADATA_TIMEOUT)?.elements() {
            element.error()?;
        }
        Ok(())
    }
}

/// Whether librdkafka mends an error by itself.
fn mends_itself(error: &KafkaError) -> bool {
    let mending = [
        RDKafkaErrorCode::BrokerTransportFailure,
        RDKafkaErrorCode::AllBrokersDown,
        RDKafkaErrorCode::OperationTimedOut,
        RDKafkaErrorCode::Resolve,
        RDKafkaErrorCode::WaitingForCoordinator,
        RDKafkaErrorCode::CoordinatorLoadInProgress,
        RDKafkaErrorCode::CoordinatorNotAvailable,
        RDKafkaErrorCode::NotCoordinator,
        RDKafkaErrorCode::UnstableOffsetCommit,
    ];
    error.rdkafka_error_code().is_some_and(|code| mending.contains(&code))
}
