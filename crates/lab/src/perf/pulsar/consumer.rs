//! `pulsar-perf consume`: reads messages, and prints rates and latencies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::Local;
use clap::{Args, ValueEnum};
use hdrhistogram::Histogram;
use thalweg_pulsar::{
    Client, ConsumeError, Consumer, ConsumerOptions, InitialPosition, Message, SubscriptionType,
    UnreadableEntry,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Interrupts, Test, lines, partitions, print_intervals, sleep_until};
use crate::perf::{PerfError, PerfOutput, wall_clock_ms};

const CLASS: &str = "PerformanceConsumer";
/// Messages read at once.
const RUN: u64 = 256;

/// Measure how fast messages can be consumed.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Output and names of options are those of Pulsar's pulsar-perf consume; its short options of several letters, such as \
-ss, are understood, too. Latency is counted from a message's publish time, in milliseconds. Without --num-messages and \
--test-duration it goes on until Ctrl-C or SIGTERM.

Examples:
  thalweg pulsar-perf consume persistent://public/default/test1
  thalweg pulsar-perf consume -u pulsar://broker:6650 -ss readers -sp Earliest -m 1000000 test1")]
pub struct PulsarConsume {
    #[command(flatten)]
    test: Test,
    /// [short: -ss] A subscription; can be repeated.
    #[arg(long, value_name = "NAME")]
    subscriptions: Vec<String>,
    /// [short: -ns] Number of subscriptions of each topic. With one name, a number is added to it.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    num_subscriptions: u32,
    /// [short: -st] Type of the subscriptions.
    #[arg(long, value_name = "TYPE", default_value = "Exclusive", ignore_case = true)]
    subscription_type: Type,
    /// [short: -sp] First message of a new subscription.
    #[arg(long, value_name = "POSITION", default_value = "Latest", ignore_case = true)]
    subscription_position: Position,
    /// Number of consumers of each subscription.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    num_consumers: u32,
    /// Messages that the broker may send ahead.
    #[arg(short = 'q', long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    receiver_queue_size: u32,
    /// Time for which acknowledgements wait, to be sent together.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    acks_delay_millis: u64,
    /// Accepted for Pulsar's command lines: this client has one thread and a connection to each broker.
    #[arg(short = 'c', long, value_name = "COUNT", hide = true)]
    max_connections: Option<u32>,
    #[arg(long, value_name = "COUNT", hide = true)]
    num_io_threads: Option<u32>,
    #[arg(long, value_name = "COUNT", hide = true)]
    num_listener_threads: Option<u32>,
}

/// Types of subscriptions, by Pulsar's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    #[value(name = "Exclusive")]
    Exclusive,
    #[value(name = "Shared")]
    Shared,
    #[value(name = "Failover")]
    Failover,
    #[value(name = "Key_Shared")]
    KeyShared,
}

/// Positions of subscriptions, by Pulsar's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Position {
    #[value(name = "Latest")]
    Latest,
    #[value(name = "Earliest")]
    Earliest,
}

/// The counts of all consumers.
#[derive(Debug)]
struct Totals {
    read: u64,
    bytes: u64,
    latencies: Histogram<u64>,
    interval_latencies: Histogram<u64>,
    failure: Option<ConsumeError>,
    /// Number of unreadable entries, and the first one.
    unreadable: u64,
    first_unreadable: Option<UnreadableEntry>,
}

impl Totals {
    fn new() -> Totals {
        Totals {
            read: 0,
            bytes: 0,
            latencies: lines::recorder(lines::CONSUMED_MAX),
            interval_latencies: lines::recorder(lines::CONSUMED_MAX),
            failure: None,
            unreadable: 0,
            first_unreadable: None,
        }
    }

    /// Notes an error. True if its consumer cannot go on.
    fn ends_with(&mut self, error: ConsumeError) -> bool {
        match error {
            ConsumeError::Unreadable(entry) => {
                self.unreadable += 1;
                self.first_unreadable.get_or_insert(entry);
                false
            }
            error => {
                self.failure.get_or_insert(error);
                true
            }
        }
    }

    /// Fails if a consumer has failed, or entries could not be read.
    fn judge(&mut self) -> Result<(), PerfError> {
        if let Some(failure) = self.failure.take() {
            return Err(Box::new(failure).into());
        }
        match self.first_unreadable.take() {
            Some(first) => {
                Err(PerfError::UnreadableOfPulsar { entries: self.unreadable, first: Box::new(first) })
            }
            None => Ok(()),
        }
    }

    /// Counts a message. Where the producer's clock is ahead, its latency is unknown.
    fn count(&mut self, payload_bytes: usize, publish_time_ms: u64, now_ms: u64) {
        self.read += 1;
        self.bytes += payload_bytes as u64;
        if let Some(latency_ms) = now_ms.checked_sub(publish_time_ms) {
            let latency = Duration::from_millis(latency_ms).min(lines::CONSUMED_MAX);
            let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            self.latencies.saturating_record(latency_us);
            self.interval_latencies.saturating_record(latency_us);
        }
    }
}

type SharedTotals = Arc<Mutex<Totals>>;

fn lock(totals: &SharedTotals) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PulsarConsume {
    pub(super) async fn perform(&self, output: &PerfOutput) -> Result<(), PerfError> {
        self.subscriptions()?;
        let topics = self.test.topics("-")?;
        let client = self.test.connect().await?;
        let totals = Arc::new(Mutex::new(Totals::new()));
        // Notified when all messages are read, or a consumer has failed.
        let ended = Arc::new(Notify::new());
        let mut readers = JoinSet::new();
        for reader in self.readers(&client, &topics, (&totals, &ended)).await? {
            readers.spawn(reader.run());
        }
        let began = Instant::now();
        let say = |thread: &str, text: &str| output.result(&lines::logged(Local::now(), thread, CLASS, text));
        let (consumers, count) = (self.num_consumers, topics.len());
        say(
            "main",
            &format!("Start receiving from {consumers} consumers per subscription on {count} topics"),
        )?;
        let (mut since, mut before) = (began, (0, 0));
        let line = || interval(&totals, &mut since, &mut before);
        let printing = print_intervals(began, line, |line| say("main", line));
        let mut interrupts = Interrupts::listen()?;
        let is_done = tokio::select! {
            () = ended.notified() => true,
            () = sleep_until(self.test.until()) => true,
            failed = printing => return Err(failed),
            () = interrupts.next() => false,
        };
        let elapsed_s = began.elapsed().as_secs_f64();
        readers.shutdown().await;
        let mut totals = lock(&totals);
        if is_done && totals.failure.is_none() {
            say("main", "------------------- DONE -----------------------")?;
        }
        let rates = lines::all_received(totals.read, totals.bytes, totals.read, elapsed_s);
        say("perf-client-shutdown", &rates)?;
        say("perf-client-shutdown", &lines::all_latencies(&totals.latencies, lines::Unit::Whole))?;
        totals.judge()
    }

    /// Opens all consumers.
    async fn readers(
        &self,
        client: &Client,
        topics: &[String],
        (totals, ended): (&SharedTotals, &Arc<Notify>),
    ) -> Result<Vec<Reader>, PerfError> {
        let subscriptions = self.subscriptions()?;
        let mut readers = Vec::new();
        for places in partitions(client, topics).await? {
            for subscription in &subscriptions {
                for place in (0..self.num_consumers).flat_map(|_| &places) {
                    let subscribed =
                        Consumer::subscribe(client, place.as_str(), subscription, self.options()).await;
                    readers.push(Reader {
                        consumer: subscribed.map_err(Box::new)?,
                        totals: Arc::clone(totals),
                        ended: Arc::clone(ended),
                        most: self.test.most().unwrap_or(0),
                    });
                }
            }
        }
        Ok(readers)
    }

    /// The subscriptions of each topic.
    fn subscriptions(&self) -> Result<Vec<String>, PerfError> {
        if self.subscription_type == Type::Exclusive && self.num_consumers > 1 {
            let message = "Only one consumer is allowed when subscriptionType is Exclusive";
            return Err(PerfError::Usage(message.to_owned()));
        }
        let named =
            if self.subscriptions.is_empty() { vec!["sub".to_owned()] } else { self.subscriptions.clone() };
        let count = self.num_subscriptions as usize;
        match named.len() {
            given if given == count => Ok(named),
            1 => Ok((0..count).map(|number| format!("{}-{number}", named[0])).collect()),
            given => Err(PerfError::Usage(format!(
                "{given} subscriptions are given, but --num-subscriptions is {count}: give one, or as many as that"
            ))),
        }
    }

    fn options(&self) -> ConsumerOptions {
        ConsumerOptions {
            subscription_type: match self.subscription_type {
                Type::Exclusive => SubscriptionType::Exclusive,
                Type::Shared => SubscriptionType::Shared,
                Type::Failover => SubscriptionType::Failover,
                Type::KeyShared => SubscriptionType::KeyShared,
            },
            initial_position: match self.subscription_position {
                Position::Latest => InitialPosition::Latest,
                Position::Earliest => InitialPosition::Earliest,
            },
            receiver_queue_size: self.receiver_queue_size,
            ack_delay: Duration::from_millis(self.acks_delay_millis),
            ..ConsumerOptions::default()
        }
    }
}

/// The consumer of a partition.
struct Reader {
    consumer: Consumer,
    totals: SharedTotals,
    ended: Arc<Notify>,
    /// Number of messages of the whole test; 0 for no limit.
    most: u64,
}

impl Reader {
    async fn run(mut self) {
        loop {
            let first = self.consumer.next().await;
            if self.read(first.map(Some)) {
                self.ended.notify_one();
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Counts a message, and those that have arrived behind it. True if all are read, or the consumer has
    /// failed.
    fn read(&mut self, mut next: Result<Option<Message>, ConsumeError>) -> bool {
        let now_ms = u64::try_from(wall_clock_ms()).unwrap_or_default();
        let mut totals = lock(&self.totals);
        let mut run = 0;
        loop {
            match next {
                Ok(None) => break,
                Ok(Some(_)) if self.most > 0 && totals.read >= self.most => return true,
                Ok(Some(message)) => {
                    totals.count(message.payload().len(), message.publish_time_ms(), now_ms);
                    self.consumer.ack(&message);
                }
                Err(error) => {
                    if totals.ends_with(error) {
                        return true;
                    }
                }
            }
            run += 1;
            if run == RUN {
                break;
            }
            next = self.consumer.try_next();
        }
        self.most > 0 && totals.read >= self.most
    }
}

/// The line of an interval.
fn interval(totals: &SharedTotals, since: &mut Instant, before: &mut (u64, u64)) -> String {
    let mut totals = lock(totals);
    let elapsed_s = since.elapsed().as_secs_f64();
    let (read, bytes) = (totals.read, totals.bytes);
    let line =
        lines::received(read, (read - before.0, bytes - before.1), elapsed_s, &totals.interval_latencies);
    totals.interval_latencies.reset();
    (*since, *before) = (Instant::now(), (read, bytes));
    line
}

#[cfg(test)]
mod tests {
    use thalweg_pulsar::{EntryFault, MessageId};

    use super::*;

    #[test]
    fn latencies_are_those_of_pulsars_tool() {
        let day_ms = 24 * 3600 * 1000;
        let mut totals = Totals::new();
        for published_ms in [day_ms, day_ms / 2, day_ms + 1, 0] {
            totals.count(10, published_ms, day_ms);
        }
        assert_eq!((totals.read, totals.bytes), (4, 40));
        assert_eq!(totals.latencies.len(), 3, "the message of a clock that is ahead has none");
        assert_eq!((totals.latencies.min(), totals.latencies.max() / 1_000_000 / 3600), (0, 24));
        totals.count(10, 0, 100 * day_ms);
        assert_eq!(totals.latencies.max() / 1_000_000 / 3600, 10 * 24);
    }

    #[test]
    fn unreadable_entries_are_counted_and_reading_goes_on() {
        let mut totals = Totals::new();
        totals.judge().expect("nothing is wrong");
        for chunks in [3, 4] {
            let entry = UnreadableEntry { id: MessageId::EARLIEST, fault: EntryFault::Chunked(chunks) };
            assert!(!totals.ends_with(entry.into()));
        }
        let text = totals.judge().expect_err("two entries").to_string();
        assert!(text.starts_with("2 entries could not be read; first: Cannot read the entry"), "{text}");
        assert!(text.contains("3 chunks"), "{text}");
        assert!(totals.ends_with(ConsumeError::Closed));
        assert_eq!(totals.judge().expect_err("an end").to_string(), "The consumer is closed");
    }
}
