//! `pulsar-perf produce`: sends messages at a rate, and prints rates and latencies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::Local;
use clap::Args;
use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use thalweg_pulsar::{Client, Compression, OutgoingMessage, Producer, ProducerOptions, SendError};
use thalweg_timer::Timer;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Interrupts, Test, lines, partitions, positive, print_intervals, sleep_until};
use crate::pacer::Pacer;
use crate::perf::{PerfError, PerfOutput};
use crate::worker::pulsar::{InFlight, Router, SentRecord};

const CLASS: &str = "PerformanceProducer";
/// Time for answers after the last message.
const ANSWERS_TIMEOUT: Duration = Duration::from_secs(30);
/// After a stall, the messages of this time are sent at once, as by the rate limiter of Pulsar's tool.
const CATCH_UP_MAX: Duration = Duration::from_secs(1);
/// Messages between two turns of the tasks that send and count.
const RUN: u64 = 64;

/// Measure how fast messages can be produced.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Output and names of options are those of Pulsar's pulsar-perf produce; its short options of several letters, such as \
-bm, are understood, too. Latencies of the first second (--warmup-time) are left out. Without --num-messages and --test-duration \
it goes on until Ctrl-C or SIGTERM; answers are then awaited for 30 s, or until the second signal.

Examples:
  thalweg pulsar-perf produce persistent://public/default/test1 -s 1000 -r 200000
  thalweg pulsar-perf produce -u pulsar://broker:6650 -m 1000000 -r 50000 -bm 500 test1")]
pub struct PulsarProduce {
    #[command(flatten)]
    test: Test,
    /// Messages per second, of all topics.
    #[arg(short = 'r', long, value_name = "RATE", default_value_t = 100.0)]
    rate: f64,
    /// Message size in bytes.
    #[arg(short = 's', long, value_name = "BYTES", default_value_t = 1024)]
    size: u32,
    /// Number of producers of each topic.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    num_producers: u32,
    /// Text between the name of a topic and its number.
    #[arg(long, value_name = "TEXT", default_value = "-")]
    separator: String,
    /// Time that a batch waits for more messages, in milliseconds.
    #[arg(short = 'b', long, value_name = "MS", default_value_t = 1.0)]
    batch_time_window: f64,
    /// [short: -bm] Most messages of a batch; 0 or less for 1000, or for no batches if the time is 0, too.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, allow_negative_numbers = true)]
    batch_max_messages: i64,
    /// [short: -bb] Most bytes of a batch; 0 or less for 131072.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 20, allow_negative_numbers = true)]
    batch_max_bytes: i64,
    /// [short: -db] Send each message alone.
    #[arg(long)]
    disable_batching: bool,
    /// Most messages of a producer without an answer; 0 for no limit.
    #[arg(short = 'o', long, value_name = "COUNT", default_value_t = 0)]
    max_outstanding: usize,
    /// [short: -ml] Most bytes of messages of a producer without an answer, such as 64M; 0 for no limit.
    /// (Pulsar's limit is that of all producers together.)
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = byte_count)]
    memory_limit: usize,
    /// Codec: NONE, LZ4 or ZSTD.
    #[arg(short = 'z', long, value_name = "CODEC", default_value = "NONE")]
    compression: String,
    /// Time limit of an answer in seconds; 0 for none.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    send_timeout: u64,
    /// Seconds at the start whose latencies are left out.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup_time: f64,
    /// Accepted for Pulsar's command lines: this client has one thread and a connection to each broker.
    #[arg(short = 'c', long, value_name = "COUNT", hide = true)]
    max_connections: Option<u32>,
    #[arg(long, value_name = "COUNT", hide = true)]
    num_test_threads: Option<u32>,
    #[arg(long, value_name = "COUNT", hide = true)]
    num_io_threads: Option<u32>,
    #[arg(long, value_name = "COUNT", hide = true)]
    num_listener_threads: Option<u32>,
}

/// The counts of all producers.
#[derive(Debug)]
struct Totals {
    /// Answered messages and their bytes.
    sent: u64,
    bytes: u64,
    failed: u64,
    first_failure: Option<SendError>,
    latencies: Histogram<u64>,
    interval_latencies: Histogram<u64>,
    /// Answers before this do not count for latencies.
    warm_at: Instant,
}

impl Totals {
    /// Fails if not all of the messages that were handed over are stored.
    fn judge(&self, handed_over: u64) -> Result<(), PerfError> {
        if let Some(first) = &self.first_failure {
            return Err(PerfError::NotStoredByPulsar {
                failed: self.failed,
                records: self.failed + self.sent,
                first: Box::new(first.clone()),
            });
        }
        match handed_over.saturating_sub(self.sent) {
            0 => Ok(()),
            unanswered => Err(PerfError::UnansweredByPulsar { unanswered, records: handed_over }),
        }
    }
}

type SharedTotals = Arc<Mutex<Totals>>;

fn lock(totals: &SharedTotals) -> MutexGuard<'_, Totals> {
    totals.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A producer of Pulsar, for a partition.
struct Lane {
    producer: Producer,
    in_flight: Arc<InFlight>,
    counting: JoinHandle<()>,
}

/// A producer of the tool.
struct Sender {
    lanes: Vec<Lane>,
    router: Router,
}

impl PulsarProduce {
    pub(super) async fn perform(&self, output: &PerfOutput) -> Result<(), PerfError> {
        let options = self.options()?;
        let topics = self.test.topics(&self.separator)?;
        let client = self.test.connect().await?;
        let warm_up = Duration::try_from_secs_f64(self.warmup_time.max(0.0)).unwrap_or_default();
        let totals = Arc::new(Mutex::new(Totals {
            sent: 0,
            bytes: 0,
            failed: 0,
            first_failure: None,
            latencies: lines::recorder(lines::PRODUCED_MAX),
            interval_latencies: lines::recorder(lines::PRODUCED_MAX),
            warm_at: Instant::now() + warm_up,
        }));
        let mut senders = self.senders(&client, &topics, &options, &totals).await?;
        let began = Instant::now();
        lock(&totals).warm_at = began + warm_up;
        let say = |thread: &str, text: &str| output.result(&lines::logged(Local::now(), thread, CLASS, text));
        say("main", &format!("Created {} producers", senders.len()))?;
        let (mut since, mut before) = (began, (0, 0, 0));
        let line = || interval(&totals, &mut since, &mut before);
        let printing = print_intervals(began, line, |line| say("main", line));
        let mut interrupts = Interrupts::listen()?;
        let mut handed_over = 0;
        let done = tokio::select! {
            sent = self.send_all(&mut senders, &mut handed_over) => sent,
            failed = printing => return Err(failed),
            () = interrupts.next() => Ok(None),
        };
        if let Ok(Some(done)) = &done {
            say("pulsar-perf-producer-exec-1-1", done)?;
        }
        tokio::select! {
            () = answers(&mut senders) => {}
            () = tokio::time::sleep(ANSWERS_TIMEOUT) => {}
            () = interrupts.next() => {}
        }
        let elapsed_s = began.elapsed().as_secs_f64();
        let totals = lock(&totals);
        say("perf-client-shutdown", &lines::all_produced(totals.sent, totals.bytes, elapsed_s))?;
        let latencies = lines::all_latencies(&totals.latencies, lines::Unit::Fractions);
        say("perf-client-shutdown", &latencies)?;
        totals.judge(handed_over).and(done.map(|_| ()))
    }

    /// Opens all producers.
    async fn senders(
        &self,
        client: &Client,
        topics: &[String],
        options: &ProducerOptions,
        totals: &SharedTotals,
    ) -> Result<Vec<Sender>, PerfError> {
        let mut senders = Vec::new();
        for (number, places) in (0_u32..).zip(partitions(client, topics).await?) {
            for _ in 0..self.num_producers {
                let mut lanes = Vec::new();
                for place in &places {
                    let opened = Producer::open(client, place.as_str(), options.clone()).await;
                    let producer = opened.map_err(Box::new)?;
                    let in_flight = Arc::new(InFlight::default());
                    let counting = tokio::spawn(count(Arc::clone(&in_flight), Arc::clone(totals)));
                    lanes.push(Lane { producer, in_flight, counting });
                }
                let delay = (options.batch_messages_max > 1).then_some(options.batch_delay);
                let router = Router::new(places.len(), number, delay, Instant::now());
                senders.push(Sender { lanes, router });
            }
        }
        Ok(senders)
    }

    fn options(&self) -> Result<ProducerOptions, PerfError> {
        let codecs = [Compression::None, Compression::Lz4, Compression::Zstd];
        let codec = codecs.into_iter().find(|codec| codec.name().eq_ignore_ascii_case(&self.compression));
        let Some(compression) = codec else {
            let given = &self.compression;
            return Err(PerfError::Usage(format!(
                "--compression {given}: this client has NONE, LZ4 and ZSTD"
            )));
        };
        let window = Duration::try_from_secs_f64(self.batch_time_window / 1000.0);
        let Ok(batch_delay) = window else {
            return Err(PerfError::Usage("--batch-time-window must be a time in milliseconds".to_owned()));
        };
        let defaults = ProducerOptions::default();
        let limit = |limit: i64, default: usize| {
            positive(limit).map_or(default, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
        };
        let has_no_limit = batch_delay.is_zero() && self.batch_max_messages <= 0;
        let messages = match self.disable_batching || has_no_limit {
            true => 1,
            false => limit(self.batch_max_messages, defaults.batch_messages_max),
        };
        Ok(ProducerOptions {
            batch_messages_max: messages,
            batch_bytes_max: limit(self.batch_max_bytes, defaults.batch_bytes_max),
            batch_delay,
            compression,
            send_timeout: (self.send_timeout > 0).then(|| Duration::from_secs(self.send_timeout)),
            pending_messages_max: (self.max_outstanding > 0).then_some(self.max_outstanding),
            pending_bytes_max: if self.memory_limit > 0 { self.memory_limit } else { usize::MAX },
            ..defaults
        })
    }

    /// Sends until the end of the test, and counts; returns the line that names the end.
    async fn send_all(&self, senders: &mut [Sender], sent: &mut u64) -> Result<Option<String>, PerfError> {
        let mut payload = vec![0; self.size as usize];
        let mut random = SmallRng::seed_from_u64(1);
        payload.iter_mut().for_each(|byte| *byte = random.random_range(b'A'..=b'Z'));
        let until = self.test.until();
        let mut pacer = Pacer::new(self.rate, Instant::now());
        // Pulsar's tool sends each message at its own time, too.
        let mut timer = Timer::new();
        let count = senders.len() as u64;
        loop {
            if self.test.has_all(*sent) {
                let most = self.test.num_messages;
                return Ok(Some(format!(
                    "------------- DONE (reached the maximum number: {most} of production) --------------"
                )));
            }
            let now = tokio::select! {
                now = pacer.wait_precisely(*sent, &mut timer) => now,
                () = sleep_until(until) => {
                    let most = self.test.test_duration;
                    return Ok(Some(format!(
                        "------------- DONE (reached the maximum duration: [{most} seconds] of production) --------------"
                    )));
                }
            };
            pacer.limit_delay(*sent, now, CATCH_UP_MAX);
            let sender = &mut senders[(*sent % count) as usize];
            let lane = &sender.lanes[sender.router.next(None, now)];
            let message = OutgoingMessage { payload: &payload, ..OutgoingMessage::default() };
            let receipt = match lane.producer.try_send(message).map_err(Box::new)? {
                Some(receipt) => receipt,
                None => lane.producer.send(message).await.map_err(Box::new)?,
            };
            let bytes = payload.len() as u64;
            lane.in_flight.push(SentRecord { receipt, number: *sent, intended: now, bytes });
            *sent += 1;
            if sent.is_multiple_of(RUN) {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Bytes with Pulsar's units, such as `64M` for 64 times 2^20.
fn byte_count(text: &str) -> Result<usize, String> {
    let unit = text.chars().last().filter(char::is_ascii_alphabetic);
    let shift = match unit.map(|unit| unit.to_ascii_uppercase()) {
        None => Some(0),
        Some('K') => Some(10),
        Some('M') => Some(20),
        Some('G') => Some(30),
        Some('T') => Some(40),
        Some(_) => None,
    };
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number = digits.parse::<usize>().ok().filter(|_| text.len() - digits.len() <= 1);
    let bytes = number.zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "use a number of bytes, or one with K, M, G or T, such as 64M".to_owned())
}

/// Waits until all messages are answered and counted.
async fn answers(senders: &mut [Sender]) {
    for lane in senders.iter_mut().flat_map(|sender| &mut sender.lanes) {
        lane.producer.flush().await;
        lane.in_flight.end();
        // The task counts, and does not fail.
        let _counted = (&mut lane.counting).await;
    }
}

/// Counts the answers of a producer.
async fn count(in_flight: Arc<InFlight>, totals: SharedTotals) {
    while let Some(mut first) = in_flight.next().await {
        let mut outcome = (&mut first.receipt).await;
        let now = Instant::now();
        let mut totals = lock(&totals);
        loop {
            match outcome {
                Ok(_) => {
                    totals.sent += 1;
                    totals.bytes += first.bytes;
                    if now > totals.warm_at {
                        let latency = now.saturating_duration_since(first.intended).as_micros();
                        let latency = u64::try_from(latency).unwrap_or(u64::MAX).max(1);
                        totals.latencies.saturating_record(latency);
                        totals.interval_latencies.saturating_record(latency);
                    }
                }
                Err(error) => {
                    totals.failed += 1;
                    totals.first_failure.get_or_insert(error);
                }
            }
            let Some(next) = in_flight.take_known() else { break };
            (first, outcome) = next;
        }
    }
}

/// The line of an interval.
fn interval(totals: &SharedTotals, since: &mut Instant, before: &mut (u64, u64, u64)) -> String {
    let mut totals = lock(totals);
    let elapsed_s = since.elapsed().as_secs_f64();
    let (sent, bytes, failed) = (totals.sent, totals.bytes, totals.failed);
    let delta = (sent - before.0, bytes - before.1, failed - before.2);
    let line = lines::produced(sent, delta, elapsed_s, &totals.interval_latencies);
    totals.interval_latencies.reset();
    (*since, *before) = (Instant::now(), (sent, bytes, failed));
    line
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        produce: PulsarProduce,
    }

    fn produce(options: &str) -> PulsarProduce {
        let words = format!("pulsar-perf {options} t");
        let words = crate::perf::pulsar::with_long_names(words.split(' ').map(Into::into));
        Line::try_parse_from(words).expect("options of Pulsar's tool").produce
    }

    #[test]
    fn limits_that_are_not_positive_are_none() {
        let test = produce("-m -1 -time -1").test;
        assert!(test.most().is_none() && test.until().is_none() && !test.has_all(u64::MAX));
        assert!(produce("-m 5 -time 9").test.has_all(5));
        let batch = |options: &str| {
            let options = produce(options).options().expect("options");
            (options.batch_messages_max, options.batch_bytes_max)
        };
        assert_eq!(batch("-s 10"), (1000, 4 << 20));
        assert_eq!(batch("-bm 0 -bb 0"), (1000, 128 << 10));
        assert_eq!(batch("-bm -1 -b 0"), (1, 4 << 20));
        assert_eq!(batch("-db"), (1, 4 << 20));
    }

    #[test]
    fn memory_is_unlimited_without_an_option() {
        let limit = |options: &str| produce(options).options().expect("options").pending_bytes_max;
        assert_eq!(limit("-s 10"), usize::MAX);
        assert_eq!([limit("-ml 64M"), limit("-ml 1g"), limit("-ml 7")], [64 << 20, 1 << 30, 7]);
        for text in ["", "M", "64MB", "-1", "1.5M", "99999999T"] {
            assert!(byte_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn messages_without_an_answer_are_a_failure() {
        let mut totals = Totals {
            sent: 7,
            bytes: 0,
            failed: 0,
            first_failure: None,
            latencies: lines::recorder(lines::PRODUCED_MAX),
            interval_latencies: lines::recorder(lines::PRODUCED_MAX),
            warm_at: Instant::now(),
        };
        totals.judge(7).expect("all are stored");
        let text = totals.judge(10).expect_err("three are missing").to_string();
        assert_eq!(text, "3 of 10 messages had no answer at the end, and may be stored");
        (totals.failed, totals.first_failure) = (1, Some(thalweg_pulsar::ProducerClosed.into()));
        let text = totals.judge(10).expect_err("one has failed").to_string();
        assert_eq!(text, "1 of 8 messages were not stored; first error: The producer is closed");
    }
}
