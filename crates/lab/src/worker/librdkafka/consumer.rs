//! Consuming with librdkafka, as members of a group.
//!
//! Members join before the run and pause their partitions until it starts, so that a backlog is not read
//! early.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use thalweg_client::TopicPartition;

use super::{ClientFailure, LastError, UnconfigurableClient, UnreachableCluster, translate};
use crate::worker::counts::{self, Window, lock};
use crate::worker::inspections::{Inspection, Inspections};
use crate::worker::link::Link;
use crate::worker::threads::{self, Crew, Word};
use crate::worker::{Assignment, Report, StopWhen, WorkerError};

/// Timeout for a group's first rebalance.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Poll timeout, after which the lab's commands are checked.
const POLL: Duration = Duration::from_millis(50);
/// Records consumed between two checks of the lab's commands.
const RECORDS_PER_LOOK: u32 = 1024;

/// Runs a consumer assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    let inspections = Inspections::new(assignment).map_err(WorkerError::driver)?;
    let left = match assignment.stop {
        StopWhen::Records(records) => AtomicU64::new(records),
        StopWhen::Seconds(_) | StopWhen::OnCommand => AtomicU64::new(u64::MAX),
    };
    let work = async |crew: Crew| consume(crew, assignment, &inspections, &left).await;
    let (counts, looked) = threads::run(assignment, link, super::client(), work)?;
    let (mut report, latency) = counts::report(&counts);
    report.end_to_end_latency = latency;
    report.sent = report.acknowledged;
    report.seen = Inspection::seen(looked.into_iter().flatten().collect());
    report.notes = translate(assignment, 0).map_err(WorkerError::driver)?.notes;
    Ok(report)
}

/// The clients of one thread, which polling blocks.
async fn consume(
    mut crew: Crew,
    assignment: &Assignment,
    inspections: &Inspections,
    left: &AtomicU64,
) -> Result<Vec<Inspection>, WorkerError> {
    let mut members = Vec::with_capacity(crew.clients.len());
    for &number in &crew.clients {
        members.push(Member::subscribe(number, assignment, inspections)?);
    }
    join(&members, assignment, &crew)?;
    crew.ready().await;
    let Some(window) = hold(&mut crew, &members).await else {
        return Ok(members.into_iter().map(|member| member.inspection).collect());
    };
    for member in &members {
        member.consumer.context().begun.store(true, Ordering::Relaxed);
        let held = member.consumer.assignment().map_err(broken)?;
        member.consumer.resume(&held).map_err(broken)?;
    }
    let limited = matches!(assignment.stop, StopWhen::Records(_));
    let turn = Turn { crew: &crew, window, left: limited.then_some(left), wait: POLL / count(&members) };
    turn.take_all(&mut members)?;
    Ok(members.into_iter().map(|member| member.inspection).collect())
}

/// A member of the group.
struct Member {
    number: u32,
    consumer: BaseConsumer<Membership>,
    inspection: Inspection,
    /// The partition of the last record.
    at: Option<TopicPartition>,
}

impl Member {
    fn subscribe(
        number: u32,
        assignment: &Assignment,
        inspections: &Inspections,
    ) -> Result<Member, WorkerError> {
        let config = translate(assignment, number).map_err(WorkerError::driver)?.config;
        let consumer = BaseConsumer::from_config_and_context(&config, Membership::default())
            .map_err(|error| WorkerError::driver(UnconfigurableClient(error)))?;
        let topics: Vec<&str> = assignment.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| WorkerError::driver(UnconfigurableClient(error)))?;
        Ok(Member { number, consumer, inspection: inspections.inspection(), at: None })
    }
}

/// Group events of a member.
#[derive(Default)]
struct Membership {
    assigned: AtomicBool,
    begun: AtomicBool,
    last_error: LastError,
}

impl ClientContext for Membership {
    fn error(&self, error: KafkaError, reason: &str) {
        self.last_error.set(&error, reason);
    }
}

impl ConsumerContext for Membership {
    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) = rebalance {
            self.assigned.store(true, Ordering::Relaxed);
            if !self.begun.load(Ordering::Relaxed) {
                // A member that cannot pause reads early: its warm-up starts sooner.
                let _ = consumer.pause(partitions);
            }
        }
    }
}

/// Polls until each member has its partitions.
fn join(members: &[Member], assignment: &Assignment, crew: &Crew) -> Result<(), WorkerError> {
    let until = tokio::time::Instant::now() + JOIN_TIMEOUT;
    while members.iter().any(|member| !member.consumer.context().assigned.load(Ordering::Relaxed)) {
        if *crew.word.borrow() == Word::Stop {
            return Ok(());
        }
        for member in members {
            let polled = member.consumer.poll(POLL / count(members));
            let source = match polled {
                Some(Err(error)) if !is_passing(&error) => error,
                _ if tokio::time::Instant::now() > until => {
                    KafkaError::Global(RDKafkaErrorCode::OperationTimedOut)
                }
                _ => continue,
            };
            let last = member.consumer.context().last_error.get();
            let group = assignment.group_of(member.number).unwrap_or_default();
            let what = format!("a share of {} in the group {group}", assignment.topics.join(","));
            let bootstrap = assignment.bootstrap.clone();
            return Err(WorkerError::driver(UnreachableCluster { what, bootstrap, source, last }));
        }
    }
    Ok(())
}

/// Polls, to stay in the group, until the start command.
async fn hold(crew: &mut Crew, members: &[Member]) -> Option<Window> {
    while *crew.word.borrow() == Word::Wait {
        for member in members {
            // The partitions are paused: only group events arrive.
            let _ = member.consumer.poll(POLL / count(members));
        }
    }
    crew.begin().await
}

/// Shared state of a thread's members.
struct Turn<'a> {
    crew: &'a Crew,
    window: Window,
    /// Records left for the worker within the measurement.
    left: Option<&'a AtomicU64>,
    wait: Duration,
}

impl Turn<'_> {
    fn take_all(&self, members: &mut [Member]) -> Result<(), WorkerError> {
        loop {
            for member in members.iter_mut() {
                let now_us = self.crew.clock.now_us();
                if now_us >= self.window.to_us || *self.crew.word.borrow() == Word::Stop {
                    return Ok(());
                }
                if !self.take(member)? {
                    return Ok(());
                }
            }
        }
    }

    /// Consumes available records, up to a limit; false when the measurement is complete.
    fn take(&self, member: &mut Member) -> Result<bool, WorkerError> {
        let Member { consumer, inspection, at, .. } = member;
        let mut wait = self.wait;
        for _ in 0..RECORDS_PER_LOOK {
            let message = match consumer.poll(wait) {
                None => break,
                Some(Ok(message)) => message,
                Some(Err(error)) if is_passing(&error) => break,
                Some(Err(error)) => return Err(broken(error)),
            };
            wait = Duration::ZERO;
            let now_us = self.crew.clock.now_us();
            let value = message.payload().unwrap_or_default();
            let bytes = value.len() + message.key().map_or(0, <[u8]>::len);
            let mut counts = lock(&self.crew.counts);
            if inspection.has_times() {
                let here = (message.topic(), message.partition());
                if at.as_ref().is_none_or(|at| (&*at.topic, at.partition) != here) {
                    inspection.enter(at.insert(TopicPartition::new(here.0, here.1)));
                }
                if let Some(intended_us) = inspection.see(value) {
                    counts.arrived(1, now_us, intended_us);
                }
            }
            counts.done(1, bytes as u64, now_us);
            drop(counts);
            if now_us >= self.window.from_us
                && let Some(left) = self.left
                && left.fetch_sub(1, Ordering::Relaxed) <= 1
            {
                left.store(0, Ordering::Relaxed);
                return Ok(false);
            }
        }
        Ok(self.left.is_none_or(|left| left.load(Ordering::Relaxed) > 0))
    }
}

/// Errors that librdkafka reports but recovers from.
fn is_passing(error: &KafkaError) -> bool {
    let KafkaError::MessageConsumption(code) = error else {
        return matches!(error, KafkaError::PartitionEOF(_));
    };
    matches!(
        code,
        RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::NotLeaderForPartition
            | RDKafkaErrorCode::LeaderNotAvailable
    )
}

fn broken(error: KafkaError) -> WorkerError {
    WorkerError::driver(ClientFailure(error))
}

fn count(members: &[Member]) -> u32 {
    u32::try_from(members.len()).unwrap_or(u32::MAX).max(1)
}
