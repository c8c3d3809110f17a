//! Consuming from Pulsar: members of groups, which are subscriptions here, that read, count and optionally
//! check records.
//!
//! Before the start a consumer receives as many records of a backlog as its queue takes
//! (`receiverQueueSize`). They are put back at the start: otherwise their way would not be measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thalweg_client::TopicPartition;
use thalweg_pulsar::{ConsumeError, Consumer, ConsumerOptions, Message};
use tokio::sync::watch;

use super::{Place, connect, places, settings};
use crate::worker::clock::Clock;
use crate::worker::counts::{self, Counts, SharedCounts, Window, lock};
use crate::worker::inspections::{Inspection, Inspections};
use crate::worker::link::Link;
use crate::worker::threads::{self, Crew, Word, stopped};
use crate::worker::{Assignment, Report, StopWhen, WorkerError};
use crate::workload::Verification;

const POLL: Duration = Duration::from_millis(100);
/// Records read at once.
const RUN: usize = 512;
/// Time limit of closing a consumer at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The assignment has no group for consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("group is not set: set the name of the consumer group")]
struct NoGroup;

/// Runs a consumer assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    let (options, mut notes) = settings::consumer(&assignment.properties).map_err(WorkerError::driver)?;
    let inspections = Inspections::new(assignment).map_err(WorkerError::driver)?;
    if assignment.verify == Verification::Off {
        notes.push(
            "Records without stamps: end-to-end latency is counted from the publish time of their batch, which is the \
             intended time of its first record, in whole milliseconds"
                .to_owned(),
        );
    }
    let consumed = AtomicU64::new(0);
    let job = Arc::new(Job { assignment: assignment.clone(), options, inspections, consumed });
    let work = async |crew: Crew| consume(crew, &job).await;
    let (counts, inspections) = threads::run(assignment, link, super::client(), work)?;
    let (mut report, latency) = counts::report(&counts);
    report.sent = report.acknowledged;
    report.end_to_end_latency = latency;
    report.notes = notes;
    report.seen = Inspection::seen(inspections.into_iter().flatten().collect());
    Ok(report)
}

/// Shared state of the worker's clients.
#[derive(Debug)]
struct Job {
    assignment: Assignment,
    options: ConsumerOptions,
    inspections: Inspections,
    /// Records consumed within the measurement.
    consumed: AtomicU64,
}

impl Job {
    /// True if as many records as wanted are consumed.
    fn has_all(&self) -> bool {
        match self.assignment.stop {
            StopWhen::Records(wanted) => self.consumed.load(Ordering::Relaxed) >= wanted,
            StopWhen::Seconds(_) | StopWhen::OnCommand => false,
        }
    }
}

/// The partitions of a member of a group: every n-th, as the group has n members.
fn share(all: Vec<Place>, client: u32, assignment: &Assignment) -> Vec<Place> {
    let groups = u32::try_from(assignment.groups.len().max(1)).unwrap_or(u32::MAX);
    let (group, member) = (client % groups, client / groups);
    let members = assignment.all_clients.saturating_sub(group).div_ceil(groups).max(1);
    all.into_iter().skip(member as usize).step_by(members as usize).collect()
}

/// The clients of one thread.
async fn consume(mut crew: Crew, job: &Arc<Job>) -> Result<Vec<Inspection>, WorkerError> {
    let mut readers = Vec::new();
    for number in std::mem::take(&mut crew.clients) {
        let group = job.assignment.group_of(number).ok_or_else(|| WorkerError::driver(NoGroup))?;
        let client = connect(&job.assignment).await.map_err(WorkerError::driver)?;
        let all = places(&client, &job.assignment).await.map_err(WorkerError::driver)?;
        for place in share(all, number, &job.assignment) {
            let options = job.options.clone();
            let subscribed = Consumer::subscribe(&client, &place.name, group, options).await;
            readers.push(Reader {
                job: Arc::clone(job),
                counts: crew.counts.clone(),
                clock: crew.clock,
                inspection: job.inspections.inspection(),
                place: TopicPartition::new(place.topic.as_str(), place.partition),
                consumer: subscribed.map_err(WorkerError::driver)?,
            });
        }
    }
    crew.ready().await;
    let Some(window) = crew.begin().await else { return Ok(Vec::new()) };
    let mut reading = tokio::task::JoinSet::new();
    for reader in readers {
        reading.spawn(reader.run(window, crew.word.clone()));
    }
    threads::ended(reading).await
}

/// The consumer of a partition.
struct Reader {
    job: Arc<Job>,
    counts: SharedCounts,
    clock: Clock,
    inspection: Inspection,
    place: TopicPartition,
    consumer: Consumer,
}

impl Reader {
    async fn run(
        mut self,
        window: Window,
        mut word: watch::Receiver<Word>,
    ) -> Result<Inspection, WorkerError> {
        self.inspection.enter(&self.place);
        if matches!(self.consumer.try_next(), Ok(Some(_))) {
            self.consumer.redeliver_unacknowledged();
        }
        tokio::select! {
            () = stopped(&mut word) => {}
            read = self.read_all(window) => read?,
        }
        // Records that are not acknowledged by then stay in the subscription, which ends with the topic.
        let closed = tokio::time::timeout(CLOSE_TIMEOUT, self.consumer.close()).await;
        if !matches!(closed, Ok(Ok(()))) {
            tracing::debug!("Failed to close a consumer");
        }
        Ok(self.inspection)
    }

    async fn read_all(&mut self, window: Window) -> Result<(), WorkerError> {
        let end = match window.to_us {
            u64::MAX => None,
            to_us => Some(self.clock.instant(to_us)),
        };
        loop {
            let now = tokio::time::Instant::now();
            if end.is_some_and(|end| end <= now) || self.job.has_all() {
                return Ok(());
            }
            let wait = end.map_or(POLL, |end| POLL.min(end - now));
            match tokio::time::timeout(wait, self.consumer.next()).await {
                Err(_) => {}
                Ok(Ok(first)) => {
                    self.read(first, &window)?;
                    // Otherwise available records would starve the other consumers of this thread.
                    tokio::task::yield_now().await;
                }
                Ok(Err(error)) => self.unreadable(error)?,
            }
        }
    }

    /// Counts a record, and those that have arrived behind it.
    fn read(&mut self, first: Message, window: &Window) -> Result<(), WorkerError> {
        let at_us = self.clock.now_us();
        let counts = Arc::clone(&self.counts);
        let mut counts = lock(&counts);
        let (mut records, mut bytes) = (0, 0);
        let (mut time, mut of_time) = (None, 0);
        let mut took = |counts: &mut Counts, next: Option<u64>, more: u64| {
            if next == time {
                of_time += more;
                return;
            }
            if let Some(time) = time {
                counts.arrived(of_time, at_us, time);
            }
            (time, of_time) = (next, more);
        };
        let mut next = Some(first);
        let mut failure = None;
        while let Some(message) = next {
            records += 1;
            bytes += (message.payload().len() + message.key().map_or(0, str::len)) as u64;
            let intended_us = match self.inspection.has_times() {
                true => self.inspection.see(message.payload()),
                false => Some(message.publish_time_ms().saturating_mul(1000)),
            };
            took(&mut counts, intended_us, 1);
            self.consumer.ack(&message);
            next = match records < RUN as u64 {
                true => self.consumer.try_next().unwrap_or_else(|error| {
                    failure = Some(error);
                    None
                }),
                false => None,
            };
        }
        took(&mut counts, None, 0);
        counts.done(records, bytes, at_us);
        drop(counts);
        if at_us >= window.from_us {
            self.job.consumed.fetch_add(records, Ordering::Relaxed);
        }
        failure.map_or(Ok(()), |error| self.unreadable(error))
    }

    /// An unreadable entry counts as a failed record; other errors end the worker.
    fn unreadable(&self, error: ConsumeError) -> Result<(), WorkerError> {
        match error {
            ConsumeError::Unreadable(entry) => {
                lock(&self.counts).failed(1, || entry.to_string());
                Ok(())
            }
            other => Err(WorkerError::driver(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::{Driver, Role, testing};

    #[test]
    fn members_share_all_partitions_of_each_group() {
        let places: Vec<Place> = (0..5)
            .map(|partition| Place {
                topic: "t".to_owned(),
                partition,
                name: format!("t-partition-{partition}"),
            })
            .collect();
        let mut assignment = testing::assignment(Role::Consumer, Driver::Thalweg);
        assignment.groups = vec!["g".to_owned(), "h".to_owned()];
        assignment.all_clients = 5;
        // Three members of the first group, two of the second one.
        let of = |client| -> Vec<i32> {
            share(places.clone(), client, &assignment).iter().map(|place| place.partition).collect()
        };
        assert_eq!([of(0), of(2), of(4)], [vec![0, 3], vec![1, 4], vec![2]]);
        assert_eq!([of(1), of(3)], [vec![0, 2, 4], vec![1, 3]]);
    }
}
