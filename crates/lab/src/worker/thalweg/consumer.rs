//! Consuming: members of a group that read, count and optionally check records.
//!
//! Before the start command, members join and stay in the group; records fetched meanwhile are put back.
//! Records are read in place: they borrow the received bytes, or a reused buffer for decompressed batches.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_client::{Chunk, Consumer, ConsumerConfig, PollEvent};
use thalweg_record::DecompressBuffer;

use super::{NoGroup, settings};
use crate::worker::clock::Clock;
use crate::worker::counts::{self, SharedCounts, Window, lock};
use crate::worker::inspections::{Inspection, Inspections};
use crate::worker::link::Link;
use crate::worker::threads::{self, Crew, Word, stopped};
use crate::worker::{Assignment, Report, SeenRecords, StopWhen, WorkerError};
use crate::workload::Verification;

const POLL: Duration = Duration::from_millis(100);
/// Maximum ranges of sequences in a report. Records with keys, read by several workers, may have too many.
const RANGES_MAX: usize = 1 << 20;

/// Runs a consumer assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    let inspections = Inspections::new(assignment).map_err(WorkerError::driver)?;
    let job = Arc::new(Job { assignment: assignment.clone(), inspections, consumed: AtomicU64::new(0) });
    config(assignment, assignment.first_client)?;
    let work = async |crew: Crew| consume(crew, &job).await;
    let (counts, inspections) = threads::run(assignment, link, super::client(), work)?;
    let (mut report, latency) = counts::report(&counts);
    report.sent = report.acknowledged;
    report.end_to_end_latency = latency;
    report.notes = notes(assignment)?;
    report.seen = seen(inspections.into_iter().flatten().collect(), &mut report.notes);
    Ok(report)
}

fn seen(inspections: Vec<Inspection>, notes: &mut Vec<String>) -> Vec<SeenRecords> {
    let mut seen = Inspection::seen(inspections);
    let ranges: usize = seen.iter().map(|seen| seen.ranges.len()).sum();
    if ranges > RANGES_MAX {
        seen.iter_mut().for_each(|seen| seen.ranges = Vec::new());
        notes.push(format!("The consumed sequences form {ranges} ranges, which are left out"));
    }
    seen
}

fn notes(assignment: &Assignment) -> Result<Vec<String>, WorkerError> {
    let mut notes = Vec::new();
    let (_, note) = config(assignment, assignment.first_client)?;
    notes.extend(note);
    if assignment.verify == Verification::Off {
        notes.push(
            "Records without stamps: end-to-end latency is counted from their timestamps, in whole milliseconds"
                .to_owned(),
        );
    }
    Ok(notes)
}

/// The client's settings, and notes on properties without effect.
fn config(assignment: &Assignment, number: u32) -> Result<(ConsumerConfig, Option<String>), WorkerError> {
    let group = assignment.group_of(number).ok_or_else(|| WorkerError::driver(NoGroup))?;
    let mut properties = settings::properties(assignment, "consumer", number);
    properties.set("group.id", group);
    properties.set_default("auto.offset.reset", "earliest");
    let config = ConsumerConfig::take(&mut properties).map_err(WorkerError::driver)?;
    Ok((config, settings::note_rest(&properties)))
}

/// Shared state of the worker's clients.
#[derive(Debug)]
struct Job {
    assignment: Assignment,
    inspections: Inspections,
    /// Records consumed within the measurement.
    consumed: AtomicU64,
}

/// The clients of one thread.
async fn consume(mut crew: Crew, job: &Arc<Job>) -> Result<Vec<Inspection>, WorkerError> {
    let numbers = std::mem::take(&mut crew.clients);
    // All members join at once: one by one, each would cause a rebalance.
    let (joined, mut all_joined) = tokio::sync::mpsc::channel(numbers.len().max(1));
    let mut members = tokio::task::JoinSet::new();
    for &number in &numbers {
        let (config, _) = config(&job.assignment, number)?;
        let client = Client {
            job: Arc::clone(job),
            counts: crew.counts.clone(),
            clock: crew.clock,
            buffer: DecompressBuffer::default(),
            inspection: job.inspections.inspection(),
        };
        members.spawn(client.run(config, crew.word.clone(), joined.clone()));
    }
    drop(joined);
    for _ in &numbers {
        if all_joined.recv().await.is_none() {
            break;
        }
    }
    crew.ready().await;
    threads::ended(members).await
}

/// A member of the group.
struct Client {
    job: Arc<Job>,
    counts: SharedCounts,
    clock: Clock,
    buffer: DecompressBuffer,
    inspection: Inspection,
}

type Words = tokio::sync::watch::Receiver<Word>;

impl Client {
    async fn run(
        mut self,
        config: ConsumerConfig,
        mut word: Words,
        joined: tokio::sync::mpsc::Sender<()>,
    ) -> Result<Inspection, WorkerError> {
        let assignment = &self.job.assignment;
        let mut consumer =
            Consumer::connect(&assignment.bootstrap, config).await.map_err(WorkerError::driver)?;
        consumer.subscribe(assignment.topics.clone()).map_err(WorkerError::driver)?;
        let mut joined = Some(joined);
        // Do not cancel a poll, which may be joining.
        let window = loop {
            let latest = if word.has_changed().is_ok() { *word.borrow() } else { Word::Stop };
            match latest {
                Word::Begin(window) => break Some(window),
                Word::Stop => break None,
                Word::Wait => {}
            }
            if keep_place(&mut consumer).await?
                && let Some(joined) = joined.take()
            {
                // The receiver was dropped if the worker has failed.
                let _ = joined.send(()).await;
            }
        };
        if let Some(window) = window {
            tokio::select! {
                () = stopped(&mut word) => {}
                consumed = self.consume(&mut consumer, window) => consumed?,
            }
        }
        // Failing to leave has no influence on the records read.
        if let Err(error) = consumer.close().await {
            tracing::warn!(%error, "Failed to leave the consumer group");
        }
        Ok(self.inspection)
    }

    async fn consume(&mut self, consumer: &mut Consumer, window: Window) -> Result<(), WorkerError> {
        let start = self.clock.instant(window.start_us);
        tokio::time::sleep_until(start).await;
        let paused = consumer.paused();
        consumer.resume(&paused);
        let end = match window.to_us {
            u64::MAX => None,
            to_us => Some(self.clock.instant(to_us)),
        };
        loop {
            let now = tokio::time::Instant::now();
            if end.is_some_and(|end| end <= now) {
                return Ok(());
            }
            let wait = end.map_or(POLL, |end| POLL.min(end - now));
            match consumer.poll(wait).await.map_err(WorkerError::driver)? {
                PollEvent::Chunk(chunk) => {
                    let at_us = self.clock.now_us();
                    let records = self.read(&chunk, at_us);
                    let before = match at_us >= window.from_us {
                        true => self.job.consumed.fetch_add(records, Ordering::Relaxed),
                        false => 0,
                    };
                    if let StopWhen::Records(wanted) = self.job.assignment.stop
                        && before + records >= wanted
                    {
                        return Ok(());
                    }
                    // Otherwise available chunks would starve the other clients of this thread.
                    tokio::task::yield_now().await;
                }
                PollEvent::Nothing => {
                    if let StopWhen::Records(wanted) = self.job.assignment.stop
                        && self.job.consumed.load(Ordering::Relaxed) >= wanted
                    {
                        return Ok(());
                    }
                }
                PollEvent::Assigned(_) | PollEvent::Revoked(_) | PollEvent::Lost(_) => {}
            }
        }
    }

    /// Counts and checks the records of a chunk. Returns their number.
    fn read(&mut self, chunk: &Chunk, at_us: u64) -> u64 {
        let Client { counts, buffer, inspection, .. } = self;
        let mut counts = lock(counts);
        inspection.enter(&chunk.at);
        let (mut records, mut bytes) = (0, 0);
        // Records with equal times are consecutive, and counted together.
        let (mut time, mut of_time) = (None, 0);
        let read = chunk.for_each(buffer, |record| {
            let value = record.value.unwrap_or_default();
            records += 1;
            bytes += (value.len() + record.key.map_or(0, <[u8]>::len)) as u64;
            let intended_us = match inspection.has_times() {
                true => inspection.see(value),
                false => u64::try_from(record.timestamp).ok().map(|ms| ms.saturating_mul(1000)),
            };
            if intended_us == time {
                of_time += 1;
            } else {
                if let Some(time) = time {
                    counts.arrived(of_time, at_us, time);
                }
                (time, of_time) = (intended_us, 1);
            }
            ControlFlow::Continue(())
        });
        if let Some(time) = time {
            counts.arrived(of_time, at_us, time);
        }
        counts.done(records, bytes, at_us);
        if let Err(error) = read {
            // The rest of the chunk is unreadable: count at least one record.
            counts.failed(1, || error.to_string());
        }
        records
    }
}

/// Joins the group and handles its rebalances without reading. True once partitions are assigned. These are
/// paused: records of a backlog that were fetched before the start would have taken no time.
async fn keep_place(consumer: &mut Consumer) -> Result<bool, WorkerError> {
    match consumer.poll_rebalance(POLL).await.map_err(WorkerError::driver)? {
        PollEvent::Assigned(partitions) => {
            consumer.pause(&partitions);
            Ok(true)
        }
        PollEvent::Chunk(_) | PollEvent::Revoked(_) | PollEvent::Lost(_) | PollEvent::Nothing => Ok(false),
    }
}
