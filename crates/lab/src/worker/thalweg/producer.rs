//! Producing: clients that send at a rate or as fast as possible, and track the outcome of each record.
//!
//! A client's records are numbered from 0. In verified records the number is the stamp's sequence; in any
//! case the client reports unacknowledged numbers at the end. The producer's partitioner places records
//! without keys; a client alternates between topics by record.

use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_client::{
    Acks, AppendOutcome, Delivery, Producer, ProducerConfig, ProducerRecord, SendError, TopicRef,
};
use thalweg_record::Compression;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{NotProducible, settings};
use crate::payload::Pool;
use crate::worker::budget::Budget;
use crate::worker::clock::{Clock, micros};
use crate::worker::counts::{self, Counts, SharedCounts, Window, lock};
use crate::worker::link::Link;
use crate::worker::pace::{Pace, PaceAction, RECORDS_PER_CLOCK};
use crate::worker::stamp::{Stamp, magic};
use crate::worker::threads::{self, Crew, Word, stopped};
use crate::worker::turn::Turn;
use crate::worker::{Assignment, BatchCounts, Order, Report, WorkerError};
use crate::workload::Verification;

/// Size of a key.
const KEY_BYTES: usize = 8;
/// Maximum size of values for which a copy costs less than a pool per client.
const SMALL_BYTES: usize = 2048;
/// Runs a producer assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    let mut properties = settings::properties(assignment, "producer", 0);
    let config = ProducerConfig::take(&mut properties).map_err(WorkerError::driver)?;
    let mut notes: Vec<String> = settings::note_rest(&properties).into_iter().collect();
    notes.extend(notes_of(assignment, &config));
    let pool = Pool::new(&assignment.records, assignment.seed).map_err(WorkerError::driver)?;
    let job = Arc::new(Job { assignment: assignment.clone(), pool, budget: Budget::new(assignment) });
    let work = async |crew: Crew| produce(crew, &job).await;
    let (counts, orders) = threads::run(assignment, link, super::client(), work)?;
    let mut report = counts::produced(&counts, orders);
    report.notes = notes;
    Ok(report)
}

/// Notes for readers.
fn notes_of(assignment: &Assignment, config: &ProducerConfig) -> Vec<String> {
    let mut notes = Vec::new();
    if config.acks == Acks::None {
        notes.push("acks=0: a record counts as acknowledged when it is written to the socket".to_owned());
    }
    if assignment.records_per_s.is_none() {
        notes.push(
            "Maximum rate: a record's time is when it was handed to the client, read once per 16 records"
                .to_owned(),
        );
    }
    if config.compression == Compression::Zstd {
        notes.push(
            "Payloads repeat after 1 MiB or more; zstd finds such repetitions in larger batches".to_owned(),
        );
    }
    notes
}

/// Shared state of the worker's clients.
#[derive(Debug)]
struct Job {
    assignment: Assignment,
    pool: Pool,
    budget: Budget,
}

/// The clients of one thread.
async fn produce(mut crew: Crew, job: &Arc<Job>) -> Result<Vec<Order>, WorkerError> {
    let mut clients = Vec::with_capacity(crew.clients.len());
    for number in std::mem::take(&mut crew.clients) {
        clients.push(Client::connect(number, job, &crew).await?);
    }
    crew.ready().await;
    let Some(window) = crew.begin().await else {
        return Ok(clients.iter().map(Client::order).collect());
    };
    let turn = Turn::new(window, clients.len(), &crew);
    let mut sending = tokio::task::JoinSet::new();
    for client in clients {
        sending.spawn(client.run(turn.clone()));
    }
    threads::ended(sending).await
}

/// The failed numbers of a client, as growing ranges.
type GivenUp = Arc<Mutex<Vec<(u64, u64)>>>;

struct Client {
    number: u32,
    job: Arc<Job>,
    counts: SharedCounts,
    producer: Producer,
    topics: Vec<TopicRef>,
    given_up: GivenUp,
    /// Number of records handed over, or attempted.
    sent: u64,
}

impl Client {
    async fn connect(number: u32, job: &Arc<Job>, crew: &Crew) -> Result<Client, WorkerError> {
        let assignment = &job.assignment;
        let mut properties = settings::properties(assignment, "producer", number);
        let config = ProducerConfig::take(&mut properties).map_err(WorkerError::driver)?;
        let given_up = GivenUp::default();
        let key_bytes = if assignment.records.keys.is_some() { KEY_BYTES as u64 } else { 0 };
        let report = deliveries(crew.clock, crew.counts.clone(), Arc::clone(&given_up), key_bytes);
        let mut producer =
            Producer::connect(&assignment.bootstrap, config, report).await.map_err(WorkerError::driver)?;
        let mut topics = Vec::with_capacity(assignment.topics.len());
        for name in &assignment.topics {
            let topic = producer.topic(name).await;
            topics.push(
                topic.map_err(|source| WorkerError::driver(NotProducible { topic: name.clone(), source }))?,
            );
        }
        // Clients start with different topics, so that all topics are busy from the start.
        let begin = number as usize % topics.len();
        topics.rotate_left(begin);
        let (job, counts) = (Arc::clone(job), crew.counts.clone());
        Ok(Client { number, job, counts, producer, topics, given_up, sent: 0 })
    }

    /// The sent and the failed records.
    fn order(&self) -> Order {
        let mut ranges = self.given_up.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ranges.sort_unstable();
        let mut apart: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
        for (begin, end) in ranges {
            match apart.last_mut() {
                Some(last) if last.1 >= begin => last.1 = last.1.max(end),
                _ => apart.push((begin, end)),
            }
        }
        Order { producer: self.number, sent: self.sent, ranges: apart }
    }

    /// Sends, waits for all deliveries, and reports.
    async fn run(mut self, mut turn: Turn) -> Result<Order, WorkerError> {
        if self.job.assignment.verify != Verification::Off {
            let magic = magic(self.job.assignment.seed);
            if self.job.assignment.records.size_bytes as usize <= SMALL_BYTES {
                let (job, producer) = (Arc::clone(&self.job), self.number);
                let values = StampingCopies { job, magic, producer, value: Vec::with_capacity(SMALL_BYTES) };
                self.send_all(&mut turn, values).await?;
            } else {
                let pool = self.job.pool.clone();
                self.send_all(&mut turn, StampedValues { pool, magic, producer: self.number }).await?;
            }
        } else {
            let values = PlainValues(Arc::clone(&self.job));
            self.send_all(&mut turn, values).await?;
        }
        self.producer.flush().await;
        Ok(self.order())
    }

    async fn send_all(&mut self, turn: &mut Turn, mut values: impl Values) -> Result<(), WorkerError> {
        let mut flow = Flow::new(self.number, &self.job.assignment, turn);
        loop {
            let pause = self.send_run(turn, &mut flow, &mut values)?;
            self.sent = flow.n;
            match pause {
                Pause::None => {}
                Pause::End => break,
                // The senders share this thread: a full batch is sent while it is in the cache. Partial
                // batches are not hurried: with a record or two, they would cost as much as full ones.
                Pause::Batch => tokio::task::yield_now().await,
                Pause::Until(until) => tokio::select! {
                    () = flow.pace.wait(until) => {}
                    () = stopped(&mut turn.word) => break,
                },
                Pause::Room => {
                    let topic = self.topics[flow.topic];
                    let record = flow.record(topic, &mut values);
                    tokio::select! {
                        sent = self.producer.send(&record) => {
                            refused(sent, flow.n, &self.counts, &self.given_up)?;
                        }
                        () = stopped(&mut turn.word) => break,
                    }
                    flow.sent_one(self.topics.len());
                    self.sent = flow.n;
                    // Read the clock again: the wait must not count for the following records.
                    flow.now = Instant::now();
                }
            }
        }
        Ok(())
    }

    /// Hands over records without waiting, up to a limit: the producer's lock is taken once for all.
    fn send_run(
        &mut self,
        turn: &Turn,
        flow: &mut Flow,
        values: &mut impl Values,
    ) -> Result<Pause, WorkerError> {
        if is_stopped(&turn.word) {
            return Ok(Pause::End);
        }
        let mut sending = self.producer.sending();
        for _ in 0..RECORDS_PER_CLOCK {
            match flow.pace.next(flow.n, &mut flow.now) {
                PaceAction::Send(intended) => flow.intended = intended,
                PaceAction::Wait(until) => return Ok(Pause::Until(until)),
            }
            flow.time.set(flow.intended, &turn.clock);
            if flow.time.us >= turn.window.to_us || !flow.may_send(&turn.window, &self.job.budget) {
                return Ok(Pause::End);
            }
            flow.keys.draw();
            let record = flow.record(self.topics[flow.topic], values);
            let taken = sending.try_send(&record).map_err(WorkerError::driver)?;
            if taken == AppendOutcome::Full {
                return Ok(Pause::Room);
            }
            flow.sent_one(self.topics.len());
            if taken == AppendOutcome::Filled {
                return Ok(Pause::Batch);
            }
        }
        Ok(Pause::None)
    }
}

/// The event that a run of records waits for.
enum Pause {
    None,
    /// The time of the next record.
    Until(Instant),
    /// The senders, which have a full batch to send.
    Batch,
    /// Buffer space for the next record.
    Room,
    /// No event: all records are sent, or the time is over.
    End,
}

/// The progress of a client.
struct Flow {
    pace: Pace,
    keys: Keys,
    /// The last reading of the clock.
    now: Instant,
    /// The intended time of the record.
    intended: Instant,
    /// The intended time, as stored in the record.
    time: Time,
    /// The number of the record.
    n: u64,
    /// The rest of the client's share of the budget.
    share: u64,
    /// The index of the topic.
    topic: usize,
}

impl Flow {
    fn new(client: u32, assignment: &Assignment, turn: &Turn) -> Flow {
        let (pace, keys) = (turn.pace(client, assignment), Keys::new(assignment, client));
        let now = Instant::now();
        Flow { pace, keys, now, intended: now, time: Time::default(), n: 0, share: 0, topic: 0 }
    }

    /// True if the budget has a record for this client. Records before the window do not count.
    #[inline]
    fn may_send(&mut self, window: &Window, budget: &Budget) -> bool {
        if self.time.us >= window.from_us {
            if self.share == 0 {
                self.share = budget.take();
                if self.share == 0 {
                    return false;
                }
            }
            self.share -= 1;
        }
        true
    }

    #[inline]
    fn record<'a>(&'a self, topic: TopicRef, values: &'a mut impl Values) -> ProducerRecord<'a> {
        ProducerRecord {
            topic,
            partition: None,
            timestamp: self.time.ms,
            key: self.keys.drawn(),
            value: Some(values.value(self.n, self.time.us)),
            headers: &[],
            sent_at: self.intended,
            number: self.n,
        }
    }

    #[inline]
    fn sent_one(&mut self, topics: usize) {
        self.n += 1;
        self.topic = if self.topic + 1 == topics { 0 } else { self.topic + 1 };
    }
}

fn is_stopped(word: &watch::Receiver<Word>) -> bool {
    word.has_changed().unwrap_or(true) && *word.borrow() == Word::Stop
}

/// Handles a refusal. A record that found no buffer space within `max.block.ms` is counted as failed, as in
/// an application. A record that can never be sent ends the worker.
fn refused(
    sent: Result<AppendOutcome, SendError>,
    n: u64,
    counts: &SharedCounts,
    given_up: &GivenUp,
) -> Result<(), WorkerError> {
    match sent {
        Ok(_) => Ok(()),
        Err(SendError::BufferFull(full)) => {
            lock(counts).failed(1, || full.to_string());
            give_up(given_up, n, n + 1);
            Ok(())
        }
        Err(error) => Err(WorkerError::driver(error)),
    }
}

fn give_up(given_up: &GivenUp, begin: u64, end: u64) {
    let mut ranges = given_up.lock().unwrap_or_else(PoisonError::into_inner);
    match ranges.last_mut() {
        Some(last) if last.1 == begin => last.1 = end,
        _ => ranges.push((begin, end)),
    }
}

/// Counts the delivered and failed batches of a client.
fn deliveries(
    clock: Clock,
    counts: SharedCounts,
    given_up: GivenUp,
    key_bytes: u64,
) -> impl FnMut(&Delivery<'_>) + Send + 'static {
    move |delivery| {
        let records = u64::from(delivery.records);
        if let Err(error) = delivery.result {
            lock(&counts).failed(records, || error.to_string());
            for run in delivery.sent {
                give_up(&given_up, run.number, run.number + u64::from(run.records));
            }
            return;
        }
        let mut counts: std::sync::MutexGuard<'_, Counts> = lock(&counts);
        for run in delivery.sent {
            let latency = delivery.ended_at.saturating_duration_since(run.at);
            counts.took(u64::from(run.records), micros(latency), clock.us(run.at));
        }
        let ended_us = clock.us(delivery.ended_at);
        counts.done(records, delivery.value_bytes + records * key_bytes, ended_us);
        counts.batches(BatchCounts { batches: 1, bytes: delivery.batch_bytes }, ended_us);
    }
}

/// A time as stored in records, cached, because the conversion costs more than a record.
#[derive(Debug, Default)]
struct Time {
    of: Option<Instant>,
    us: u64,
    ms: i64,
}

impl Time {
    #[inline]
    fn set(&mut self, intended: Instant, clock: &Clock) {
        if self.of != Some(intended) {
            self.of = Some(intended);
            self.us = clock.us(intended);
            self.ms = (self.us / 1000) as i64;
        }
    }
}

/// The source of values.
trait Values: Send {
    /// The value of record `n`, intended at `intended_us`.
    fn value(&mut self, n: u64, intended_us: u64) -> &[u8];
}

/// Unchanged values of the pool.
struct PlainValues(Arc<Job>);

impl Values for PlainValues {
    #[inline]
    fn value(&mut self, n: u64, _: u64) -> &[u8] {
        self.0.pool.value(n)
    }
}

/// Small values with a stamp, written over a copy. Clients share one pool, which stays in the cache.
struct StampingCopies {
    job: Arc<Job>,
    magic: u32,
    producer: u32,
    value: Vec<u8>,
}

impl Values for StampingCopies {
    #[inline]
    fn value(&mut self, n: u64, intended_us: u64) -> &[u8] {
        self.value.clear();
        self.value.extend_from_slice(self.job.pool.value(n));
        Stamp { magic: self.magic, producer: self.producer, sequence: n, intended_us }.write(&mut self.value);
        &self.value
    }
}

/// Large values with a stamp, written in place: each client has its own pool.
struct StampedValues {
    pool: Pool,
    magic: u32,
    producer: u32,
}

impl Values for StampedValues {
    #[inline]
    fn value(&mut self, n: u64, intended_us: u64) -> &[u8] {
        let value = self.pool.value_mut(n);
        Stamp { magic: self.magic, producer: self.producer, sequence: n, intended_us }.write(value);
        value
    }
}

/// Uniformly drawn keys: eight bytes, the number of the key.
struct Keys {
    random: SmallRng,
    distinct: Option<u64>,
    key: [u8; KEY_BYTES],
}

impl Keys {
    fn new(assignment: &Assignment, client: u32) -> Keys {
        let seed = assignment.seed.wrapping_add(u64::from(client).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let distinct = assignment.records.keys.map(|keys| keys.distinct.max(1));
        Keys { random: SmallRng::seed_from_u64(seed), distinct, key: [0; KEY_BYTES] }
    }

    #[inline]
    fn draw(&mut self) {
        if let Some(distinct) = self.distinct {
            self.key = self.random.random_range(0..distinct).to_be_bytes();
        }
    }

    /// The current key.
    #[inline]
    fn drawn(&self) -> Option<&[u8]> {
        self.distinct.map(|_| self.key.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Driver, Role, StopWhen, testing};

    fn assignment(stop: StopWhen, clients: u32) -> Assignment {
        let mut assignment = testing::assignment(Role::Producer, Driver::Thalweg);
        assignment.records.keys = Some(crate::workload::Keys { distinct: 4 });
        Assignment { stop, clients, seed: 3, ..assignment }
    }

    #[test]
    fn a_budget_is_spent_to_the_last_record() {
        for (records, clients) in [(0, 1), (1, 8), (1000, 3), (1_000_000, 2)] {
            let budget = Budget::new(&assignment(StopWhen::Records(records), clients));
            let shares: Vec<u64> =
                std::iter::repeat_with(|| budget.take()).take_while(|&share| share > 0).collect();
            assert_eq!(shares.iter().sum::<u64>(), records);
            assert_eq!(budget.take(), 0);
        }
        assert_eq!(Budget::new(&assignment(StopWhen::OnCommand, 1)).take(), u64::MAX);
    }

    #[test]
    fn keys_are_drawn_evenly_and_the_same_with_the_same_seed() {
        let assignment = assignment(StopWhen::OnCommand, 1);
        let draw = |client| {
            let mut keys = Keys::new(&assignment, client);
            let mut drawn = [0; 4];
            let mut order = Vec::new();
            for _ in 0..4000 {
                keys.draw();
                let key = keys.drawn().expect("there are keys");
                drawn[usize::from(key[7])] += 1;
                order.push(key[7]);
            }
            assert!(drawn.iter().all(|count| (900..1100).contains(count)), "{drawn:?}");
            order
        };
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1), "clients draw differently");
    }
}
