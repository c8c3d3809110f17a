//! Producing to Pulsar: clients that send at a rate or as fast as possible, and track the outcome of each
//! record by its receipt.

use std::sync::{Arc, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_pulsar::{OutgoingMessage, Producer, ProducerOptions};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::in_flight::{self, GivenUp, InFlight, SentRecord};
use super::router::Router;
use super::{Place, connect, places, settings};
use crate::payload::Pool;
use crate::worker::budget::Budget;
use crate::worker::counts::{self, SharedCounts, Window};
use crate::worker::link::Link;
use crate::worker::pace::{Pace, PaceAction, RECORDS_PER_CLOCK};
use crate::worker::stamp::{Stamp, magic};
use crate::worker::threads::{self, Crew, Word, stopped};
use crate::worker::turn::Turn;
use crate::worker::{AcknowledgedLedger, Assignment, Order, Report, WorkerError};
use crate::workload::Verification;

/// Runs a producer assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    let (options, mut notes) = settings::producer(&assignment.properties).map_err(WorkerError::driver)?;
    if assignment.records_per_s.is_none() {
        notes.push(format!(
            "Maximum rate: a record's time is when it was handed to the client, read once per {RECORDS_PER_CLOCK} records"
        ));
    }
    let pool = Pool::new(&assignment.records, assignment.seed).map_err(WorkerError::driver)?;
    let job =
        Arc::new(Job { assignment: assignment.clone(), options, pool, budget: Budget::new(assignment) });
    let work = async |crew: Crew| produce(crew, &job).await;
    let (counts, done) = threads::run(assignment, link, super::client(), work)?;
    let (mut orders, mut ledgers) = (Vec::new(), Vec::new());
    for sent in done.into_iter().flatten() {
        orders.push(vec![sent.order]);
        ledgers.extend(sent.ledgers);
        if sent.reconnects > 0 {
            notes.push(format!(
                "A producer has reconnected {} times: a batch without an answer was sent again and may be stored twice",
                sent.reconnects
            ));
        }
    }
    let mut report = counts::produced(&counts, orders);
    report.ledgers = ledgers;
    report.notes = notes;
    Ok(report)
}

/// Shared state of the worker's clients.
#[derive(Debug)]
struct Job {
    assignment: Assignment,
    options: ProducerOptions,
    pool: Pool,
    budget: Budget,
}

/// The outcome of a client.
struct Outcome {
    order: Order,
    ledgers: Vec<AcknowledgedLedger>,
    reconnects: u64,
}

/// The clients of one thread.
async fn produce(mut crew: Crew, job: &Arc<Job>) -> Result<Vec<Outcome>, WorkerError> {
    let mut clients = Vec::with_capacity(crew.clients.len());
    for number in std::mem::take(&mut crew.clients) {
        clients.push(Client::connect(number, job, &crew).await?);
    }
    crew.ready().await;
    let turn = crew.begin().await.map(|window| Turn::new(window, clients.len(), &crew));
    let mut sending = tokio::task::JoinSet::new();
    for mut client in clients {
        let turn = turn.clone();
        sending.spawn(async move {
            if let Some(turn) = turn {
                client.send_all(turn).await?;
            }
            client.end().await
        });
    }
    threads::ended(sending).await
}

/// A partition of a client.
struct Lane {
    producer: Producer,
    in_flight: Arc<InFlight>,
    counting: JoinHandle<Vec<AcknowledgedLedger>>,
}

impl Lane {
    async fn open(
        client: &thalweg_pulsar::Client,
        place: Place,
        job: &Job,
        crew: &Crew,
        given_up: &GivenUp,
    ) -> Result<Lane, WorkerError> {
        let opened = Producer::open(client, &place.name, job.options.clone()).await;
        let producer = opened.map_err(WorkerError::driver)?;
        let in_flight = Arc::new(InFlight::default());
        let (counts, given_up): (SharedCounts, _) = (crew.counts.clone(), Arc::clone(given_up));
        let counting = in_flight::count(Arc::clone(&in_flight), place, crew.clock, counts, given_up);
        Ok(Lane { producer, in_flight, counting: tokio::spawn(counting) })
    }
}

/// A producer of the lab.
struct Client {
    number: u32,
    job: Arc<Job>,
    lanes: Vec<Lane>,
    given_up: GivenUp,
    sent: u64,
}

/// What a client does next.
enum Pause {
    None,
    /// Waits for the time of the next record.
    Until(Instant),
    /// Waits for room in this lane.
    Room(usize),
    End,
}

impl Client {
    async fn connect(number: u32, job: &Arc<Job>, crew: &Crew) -> Result<Client, WorkerError> {
        let client = connect(&job.assignment).await.map_err(WorkerError::driver)?;
        let given_up = GivenUp::default();
        let mut lanes = Vec::new();
        for place in places(&client, &job.assignment).await.map_err(WorkerError::driver)? {
            lanes.push(Lane::open(&client, place, job, crew, &given_up).await?);
        }
        Ok(Client { number, job: Arc::clone(job), lanes, given_up, sent: 0 })
    }

    /// Sends all records.
    async fn send_all(&mut self, mut turn: Turn) -> Result<(), WorkerError> {
        let mut flow = Flow::new(self.number, &self.job, self.lanes.len(), &turn);
        loop {
            match self.send_run(&turn, &mut flow)? {
                // The tasks of connections and receipts share this thread.
                Pause::None => tokio::task::yield_now().await,
                Pause::End => return Ok(()),
                Pause::Until(until) => tokio::select! {
                    () = flow.pace.wait(until) => {}
                    () = stopped(&mut turn.word) => return Ok(()),
                },
                Pause::Room(lane) => {
                    let lane = &self.lanes[lane];
                    tokio::select! {
                        sent = lane.producer.send(flow.message()) => {
                            let receipt = sent.map_err(WorkerError::driver)?;
                            lane.in_flight.push(flow.record(receipt));
                        }
                        () = stopped(&mut turn.word) => return Ok(()),
                    }
                    flow.sent_one();
                    self.sent = flow.n;
                    // Read the clock again: the wait must not count for the following records.
                    flow.now = Instant::now();
                }
            }
        }
    }

    /// Hands over records without waiting, up to about a batch.
    fn send_run(&mut self, turn: &Turn, flow: &mut Flow) -> Result<Pause, WorkerError> {
        if turn.word.has_changed().unwrap_or(true) && *turn.word.borrow() == Word::Stop {
            return Ok(Pause::End);
        }
        for _ in 0..flow.run {
            match flow.pace.next(flow.n, &mut flow.now) {
                PaceAction::Send(intended) => flow.intended = intended,
                PaceAction::Wait(until) => return Ok(Pause::Until(until)),
            }
            let intended_us = turn.clock.us(flow.intended);
            if intended_us >= turn.window.to_us || !flow.may_send(intended_us, &turn.window, &self.job.budget)
            {
                return Ok(Pause::End);
            }
            flow.prepare(&self.job, intended_us);
            let at = flow.router.next(flow.key.as_deref(), flow.now);
            let lane = &self.lanes[at];
            match lane.producer.try_send(flow.message()).map_err(WorkerError::driver)? {
                Some(receipt) => lane.in_flight.push(flow.record(receipt)),
                None => return Ok(Pause::Room(at)),
            }
            flow.sent_one();
            self.sent = flow.n;
        }
        Ok(Pause::None)
    }

    /// Waits for all receipts.
    async fn end(self) -> Result<Outcome, WorkerError> {
        let (mut ledgers, mut reconnects) = (Vec::new(), 0);
        for lane in self.lanes {
            lane.producer.flush().await;
            lane.in_flight.end();
            ledgers.extend(lane.counting.await.map_err(WorkerError::driver)?);
            reconnects += lane.producer.reconnects();
            // All records have their outcome: a failing close changes nothing.
            if let Err(error) = lane.producer.close().await {
                tracing::debug!(%error, "Failed to close a producer");
            }
        }
        let mut ranges = self.given_up.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ranges.sort_unstable();
        Ok(Outcome { order: Order { producer: self.number, sent: self.sent, ranges }, ledgers, reconnects })
    }
}

/// The progress of a client.
struct Flow {
    pace: Pace,
    router: Router,
    /// Records between two yields.
    run: u64,
    random: SmallRng,
    keys: Option<u64>,
    stamp: Option<u32>,
    producer: u32,
    /// The last reading of the clock.
    now: Instant,
    /// The intended time of the record.
    intended: Instant,
    /// The same, by the clock that all workers share; the wall clocks of their machines differ.
    publish_time_ms: u64,
    /// The number of the record.
    n: u64,
    /// The rest of the client's share of the budget.
    share: u64,
    key: Option<String>,
    value: Vec<u8>,
}

impl Flow {
    fn new(client: u32, job: &Job, partitions: usize, turn: &Turn) -> Flow {
        let assignment = &job.assignment;
        let options = &job.options;
        let by_bytes = options.batch_bytes_max as u64 / u64::from(assignment.records.size_bytes.max(1));
        let batch = by_bytes.clamp(1, options.batch_messages_max.max(1) as u64);
        let batches = options.batch_messages_max > 1;
        let seed = assignment.seed.wrapping_add(u64::from(client).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let now = Instant::now();
        Flow {
            pace: turn.pace(client, assignment),
            router: Router::new(partitions, client, batches.then_some(options.batch_delay), now),
            run: batch.min(256),
            random: SmallRng::seed_from_u64(seed),
            keys: assignment.records.keys.map(|keys| keys.distinct.max(1)),
            stamp: (assignment.verify != Verification::Off).then(|| magic(assignment.seed)),
            producer: client,
            now,
            intended: now,
            publish_time_ms: 0,
            n: 0,
            share: 0,
            key: None,
            value: Vec::with_capacity(assignment.records.size_bytes as usize),
        }
    }

    /// True if the budget has a record for this client. Records before the window do not count.
    fn may_send(&mut self, intended_us: u64, window: &Window, budget: &Budget) -> bool {
        if intended_us >= window.from_us {
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

    /// Makes value and key of the record.
    fn prepare(&mut self, job: &Job, intended_us: u64) {
        self.publish_time_ms = intended_us / 1000;
        self.value.clear();
        self.value.extend_from_slice(job.pool.value(self.n));
        if let Some(magic) = self.stamp {
            Stamp { magic, producer: self.producer, sequence: self.n, intended_us }.write(&mut self.value);
        }
        if let Some(distinct) = self.keys {
            self.key = Some(self.random.random_range(0..distinct).to_string());
        }
    }

    fn message(&self) -> OutgoingMessage<'_> {
        OutgoingMessage {
            payload: &self.value,
            key: self.key.as_deref(),
            publish_time_ms: Some(self.publish_time_ms),
            ..OutgoingMessage::default()
        }
    }

    fn record(&self, receipt: thalweg_pulsar::SendReceipt) -> SentRecord {
        let bytes = (self.value.len() + self.key.as_ref().map_or(0, String::len)) as u64;
        SentRecord { receipt, number: self.n, intended: self.intended, bytes }
    }

    fn sent_one(&mut self) {
        self.n += 1;
    }
}
