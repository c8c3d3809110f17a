//! Producing with librdkafka.
//!
//! A thread sends for its clients in turn, each record at its intended time, or as fast as possible. The
//! record's intended time and number travel through librdkafka in the one word that its delivery report
//! returns.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rdkafka::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, PurgeConfig, ThreadedProducer};
use tokio::sync::watch;

use super::{ClientFailure, LastError, UnconfigurableClient, UnreachableCluster, translate};
use crate::payload::Pool;
use crate::worker::budget::Budget;
use crate::worker::clock::Clock;
use crate::worker::counts::{self, SharedCounts, Window, lock};
use crate::worker::link::Link;
use crate::worker::stamp::{self, Stamp};
use crate::worker::threads::{self, Crew, Word};
use crate::worker::{Assignment, Order, Report, WorkerError};
use crate::workload::Verification;

/// Timeout for the cluster's answer before the run.
const METADATA_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for messages in flight at the end; librdkafka's own timeouts are shorter.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause while a client's queue is full.
const FULL_PAUSE: Duration = Duration::from_micros(200);
/// The longest pause without checking the lab's commands.
const PAUSE_MAX: Duration = Duration::from_millis(50);
/// Without a rate, the clock and the lab's commands are checked once per this many records.
const RECORDS_PER_CLOCK: u64 = 16;
/// Bits of the word for the end of a record's number; the queue has less than half as many records.
const NUMBER_BITS: u32 = 24;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Size of a key.
const KEY_BYTES: usize = 8;

/// Runs a producer assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    stamp::check_assignment(assignment).map_err(WorkerError::driver)?;
    let pool = Pool::new(&assignment.records, assignment.seed).map_err(WorkerError::driver)?;
    let budget = Budget::new(assignment);
    let work = async |crew: Crew| produce(crew, assignment, &pool, &budget).await;
    let (counts, orders) = threads::run(assignment, link, super::client(), work)?;
    let mut report = counts::produced(&counts, orders);
    report.notes = translate(assignment, 0).map_err(WorkerError::driver)?.notes;
    Ok(report)
}

/// The clients of one thread, which sending blocks.
async fn produce(
    mut crew: Crew,
    assignment: &Assignment,
    pool: &Pool,
    budget: &Budget,
) -> Result<Vec<Order>, WorkerError> {
    let connect = |&number: &u32| Client::connect(number, assignment, &crew);
    let mut clients = crew.clients.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
    crew.ready().await;
    if let Some(window) = crew.begin().await {
        for client in &clients {
            client.producer.context().start_us.store(window.start_us, Ordering::Relaxed);
        }
        let mut pool = pool.clone();
        let turn = Turn { assignment, budget, window, clock: crew.clock, word: crew.word.clone() };
        turn.send_all(&mut clients, &mut pool)?;
    }
    Ok(clients.iter().map(Client::finish).collect())
}

struct Client {
    number: u32,
    sent: u64,
    random: SmallRng,
    producer: ThreadedProducer<Deliveries>,
}

impl Client {
    fn connect(number: u32, assignment: &Assignment, crew: &Crew) -> Result<Client, WorkerError> {
        let config = translate(assignment, number).map_err(WorkerError::driver)?.config;
        let deliveries = Deliveries::new(crew.counts.clone(), crew.clock);
        let producer = ThreadedProducer::from_config_and_context(&config, deliveries)
            .map_err(|error| WorkerError::driver(UnconfigurableClient(error)))?;
        for topic in &assignment.topics {
            if let Err(source) = producer.client().fetch_metadata(Some(topic), METADATA_TIMEOUT) {
                let last = producer.context().last_error.get();
                let (what, bootstrap) = (format!("topic {topic}"), assignment.bootstrap.clone());
                return Err(WorkerError::driver(UnreachableCluster { what, bootstrap, source, last }));
            }
        }
        let random = SmallRng::seed_from_u64(assignment.seed ^ u64::from(number).rotate_left(32));
        Ok(Client { number, sent: 0, random, producer })
    }

    /// Waits for messages in flight, and reports unacknowledged records.
    fn finish(&self) -> Order {
        let _ = self.producer.flush(FLUSH_TIMEOUT);
        if self.producer.in_flight_count() > 0 {
            self.producer.purge(PurgeConfig::default().queue().inflight());
            let _ = self.producer.flush(Duration::from_secs(10));
        }
        let failed = self.producer.context().failed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &number in failed.iter() {
            match ranges.last_mut() {
                Some(last) if last.1 == number => last.1 = number + 1,
                _ => ranges.push((number, number + 1)),
            }
        }
        Order { producer: self.number, sent: self.sent, ranges }
    }
}

/// Shared state of a thread's clients.
struct Turn<'a> {
    assignment: &'a Assignment,
    budget: &'a Budget,
    window: Window,
    clock: Clock,
    word: watch::Receiver<Word>,
}

impl Turn<'_> {
    fn send_all(&self, clients: &mut [Client], pool: &mut Pool) -> Result<(), WorkerError> {
        let (mut share, mut now_us) = (0, 0);
        let count = clients.len() as u64;
        for n in 0u64.. {
            let client = &mut clients[(n % count) as usize];
            let intended_us = match self.due_us(n, count, client.number) {
                Some(due_us) => due_us,
                None => {
                    if n.is_multiple_of(RECORDS_PER_CLOCK) {
                        now_us = self.clock.now_us();
                    }
                    now_us
                }
            };
            if intended_us >= self.window.to_us || !self.wait(n, intended_us) {
                return Ok(());
            }
            if intended_us >= self.window.from_us {
                if share == 0 {
                    share = self.budget.take();
                }
                match share.checked_sub(1) {
                    Some(left) => share = left,
                    None => return Ok(()),
                }
            }
            if !self.send(client, pool, n, intended_us)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The time when record `n` of this thread is due; `None` without a rate. Clients are staggered by their
    /// numbers.
    fn due_us(&self, n: u64, count: u64, number: u32) -> Option<u64> {
        let rate = self.assignment.records_per_s?;
        let clients = f64::from(self.assignment.clients.max(1));
        let of_client = rate / clients;
        let phase = f64::from(number - self.assignment.first_client) / clients;
        let due_s = ((n / count) as f64 + phase) / of_client;
        Some(self.window.start_us + (due_s * 1e6) as u64)
    }

    /// Waits until a record is due; false if the lab has stopped the run.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread belongs to its clients, and a sleep is exact to some 50 µs"
    )]
    fn wait(&self, n: u64, due_us: u64) -> bool {
        loop {
            let left_us = due_us.saturating_sub(self.clock.now_us());
            if (left_us > 0 || n.is_multiple_of(RECORDS_PER_CLOCK)) && *self.word.borrow() == Word::Stop {
                return false;
            }
            if left_us == 0 {
                return true;
            }
            std::thread::sleep(Duration::from_micros(left_us).min(PAUSE_MAX));
        }
    }

    /// Hands over a record, waiting while the client's queue is full; false if the lab has stopped the run.
    fn send(
        &self,
        client: &mut Client,
        pool: &mut Pool,
        n: u64,
        intended_us: u64,
    ) -> Result<bool, WorkerError> {
        let sequence = client.sent;
        let topics = &self.assignment.topics;
        let topic = &topics[(n % topics.len() as u64) as usize];
        let value: &[u8] = if self.assignment.verify != Verification::Off {
            let value = pool.value_mut(sequence);
            let magic = stamp::magic(self.assignment.seed);
            Stamp { magic, producer: client.number, sequence, intended_us }.write(value);
            value
        } else {
            pool.value(n)
        };
        let key: Option<[u8; KEY_BYTES]> = self
            .assignment
            .records
            .keys
            .map(|keys| client.random.random_range(0..keys.distinct.max(1)).to_be_bytes());
        let word = pack(intended_us.saturating_sub(self.window.start_us), sequence);
        let mut record: BaseRecord<'_, [u8], [u8], usize> =
            BaseRecord::with_opaque_to(topic, word).payload(value).timestamp((intended_us / 1000) as i64);
        if let Some(key) = &key {
            record = record.key(&key[..]);
        }
        client.sent += 1;
        client.producer.context().sent.store(client.sent, Ordering::Relaxed);
        loop {
            match client.producer.send(record) {
                Ok(()) => return Ok(true),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    self.pause();
                    if *self.word.borrow() == Word::Stop {
                        client.sent -= 1;
                        return Ok(false);
                    }
                }
                Err((error, _)) => return Err(WorkerError::driver(ClientFailure(error))),
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the thread belongs to its clients")]
    fn pause(&self) {
        std::thread::sleep(FULL_PAUSE);
    }
}

/// Packs the microseconds since the start and the end of the record's number into a word.
fn pack(after_us: u64, number: u64) -> usize {
    ((after_us << NUMBER_BITS) | (number & NUMBER_MASK)) as usize
}

/// Unpacks a word of [`pack`], given that `sent` records have been sent.
fn unpack(word: usize, sent: u64) -> (u64, u64) {
    let word = word as u64;
    let low = word & NUMBER_MASK;
    let number = (sent & !NUMBER_MASK) | low;
    let number = if number > sent { number.saturating_sub(1 << NUMBER_BITS) } else { number };
    (word >> NUMBER_BITS, number)
}

/// Handles the delivery reports of a client.
struct Deliveries {
    counts: SharedCounts,
    clock: Clock,
    start_us: AtomicU64,
    sent: AtomicU64,
    failed: Mutex<BTreeSet<u64>>,
    last_error: LastError,
}

impl Deliveries {
    fn new(counts: SharedCounts, clock: Clock) -> Deliveries {
        Deliveries {
            counts,
            clock,
            start_us: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            failed: Mutex::default(),
            last_error: LastError::default(),
        }
    }
}

impl ClientContext for Deliveries {
    fn error(&self, error: KafkaError, reason: &str) {
        self.last_error.set(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, word: usize) {
        let sent = self.sent.load(Ordering::Relaxed);
        let (after_us, number) = unpack(word, sent);
        match result {
            Ok(message) => {
                let now_us = self.clock.now_us();
                let bytes = message.payload().map_or(0, <[u8]>::len) + message.key().map_or(0, <[u8]>::len);
                let intended_us = self.start_us.load(Ordering::Relaxed) + after_us;
                let mut counts = lock(&self.counts);
                counts.took(1, now_us.saturating_sub(intended_us), intended_us);
                counts.done(1, bytes as u64, now_us);
            }
            Err((error, _)) => {
                let why = || match self.last_error.get() {
                    Some(last) => format!("{error} (last: {last})"),
                    None => error.to_string(),
                };
                lock(&self.counts).failed(1, why);
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_brings_time_and_number_back() {
        for (after_us, number, sent) in [
            (0, 0, 1),
            (5, 7, 7),
            (3_600_000_000, NUMBER_MASK, NUMBER_MASK + 1),
            (1 << 39, NUMBER_MASK + 3, NUMBER_MASK + 4),
            (9, (5 << NUMBER_BITS) - 1, (5 << NUMBER_BITS) + 9_000_000),
            (9, (5 << NUMBER_BITS) + 1, (5 << NUMBER_BITS) + 9_000_000),
        ] {
            assert_eq!(unpack(pack(after_us, number), sent), (after_us, number), "{sent}");
        }
    }
}
