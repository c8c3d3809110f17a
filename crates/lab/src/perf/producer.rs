//! `producer-perf-test`: sends records at the maximum or a fixed rate, and prints latencies.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_client::{
    AppendOutcome, Cluster, Delivery, LockedProducer, Producer, ProducerConfig, ProducerRecord, TopicRef,
};
use tokio::runtime::{Builder, EnterGuard, Runtime};
use tokio::time::Instant;

use super::bar::DoneCount;
use super::counts::{Counts, lock, print_metrics};
use super::output::PerfOutput;
use super::payload::Payloads;
use super::stats::Stats;
use super::transactions::{self, Transactions};
use super::{PerfError, settings, wall_clock_ms};
use crate::BoxFuture;
use crate::pacer::Pacer;

/// Timeout for creating a missing topic. Shorter than `max.block.ms`, because a person waits.
const TOPIC_WAIT: Duration = Duration::from_secs(10);
/// From this `batch.size` on, and without a rate, a separate thread sends the batches, because that takes
/// much longer than filling them. Smaller batches are sent by the thread that fills them, while they are in
/// its cache.
const OWN_THREAD_BATCH_BYTES: usize = 128 * 1024;
/// Without a rate, the clock is read once per this many records: an error of a microsecond at ten million per
/// second.
const RECORDS_PER_CLOCK: u64 = 16;

/// Measure how fast records can be produced.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Options and output are those of Kafka's kafka-producer-perf-test.

Examples:
  # At the maximum rate, with requests of 256 KB:
  thalweg producer-perf-test --topic t --num-records 50000000 \\
      --record-size 128 --throughput -1 --bootstrap-server localhost:9092 \\
      --command-property acks=1 batch.size=262144

  # 50,000 per second; the last line excludes the first 100,000:
  thalweg producer-perf-test --topic t --num-records 1000000 \\
      --warmup-records 100000 --record-size 128 --throughput 50000 \\
      --bootstrap-server localhost:9092")]
#[command(group = clap::ArgGroup::new("payload").required(true).multiple(false)
    .args(["record_size", "payload_file", "payload_monotonic"]))]
pub struct ProducerPerformance {
    /// The bootstrap servers [default: $THALWEG_BOOTSTRAP_SERVER, or localhost:9092]. Overrides
    /// bootstrap.servers in the settings.
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: Option<String>,
    /// Produce records to this topic.
    #[arg(long)]
    topic: String,
    /// Number of records to produce.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    num_records: u64,
    /// Records per second; -1 for the maximum rate.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    throughput: f64,
    /// Record size in bytes.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    record_size: Option<u32>,
    /// Choose the payloads at random from this file.
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Send the numbers 0, 1, 2 and so on as payloads.
    #[arg(long)]
    payload_monotonic: bool,
    /// The separator of the payloads in --payload-file.
    #[arg(long, value_name = "TEXT", default_value = "\\n")]
    payload_delimiter: String,
    /// Producer settings, for example linger.ms=10 batch.size=32768. Overrides those of --command-config.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    command_property: Vec<String>,
    /// A properties file with producer settings.
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// (DEPRECATED) Use --command-property.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1.., conflicts_with = "command_property")]
    producer_props: Vec<String>,
    /// (DEPRECATED) Use --command-config.
    #[arg(long = "producer.config", value_name = "FILE", conflicts_with = "command_config")]
    producer_config: Option<PathBuf>,
    /// Print the producer's counters at the end.
    #[arg(long)]
    print_metrics: bool,
    /// Write in transactions under this id. Overrides transactional.id in the settings. With
    /// --transaction-duration-ms alone, a random id is taken.
    #[arg(long, value_name = "ID")]
    transactional_id: Option<String>,
    /// Commit a transaction when it is this old [default with a transactional id: 3000].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    transaction_duration_ms: Option<u64>,
    /// Number of initial records to exclude from a second summary line, for the steady state.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    warmup_records: u64,
    /// Milliseconds between the lines printed during the test.
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    reporting_interval: u64,
    /// Print one JSON object at the end instead of lines.
    #[arg(long)]
    json: bool,
}

/// A runtime for the senders of a producer created in its context.
struct SenderThread(Option<Runtime>);

impl SenderThread {
    fn enter(&self) -> EnterGuard<'_> {
        self.0.as_ref().expect("it ends when it is dropped").enter()
    }
}

impl Drop for SenderThread {
    fn drop(&mut self) {
        // Dropping a runtime inside another one must not block.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl ProducerPerformance {
    /// True if to print JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Runs the test on the caller's thread, and with large batches on another one.
    pub fn run<'a>(&'a self, output: &'a PerfOutput) -> BoxFuture<'a, Result<(), PerfError>> {
        Box::pin(self.perform(output))
    }

    async fn perform(&self, output: &PerfOutput) -> Result<(), PerfError> {
        self.check()?;
        let (producer_config, bootstrap) = self.settings(output)?;
        let mut payloads = self.payloads(producer_config.batch_bytes, output)?;
        let interval = Duration::from_millis(self.reporting_interval);
        if self.warmup_records > 0 {
            let warmup = self.warmup_records;
            output.progress(&format!(
                "Warmup first {warmup} records. Steady state results will print after the complete test summary."
            ))?;
        }
        let done = DoneCount::default();
        let counts = Arc::new(Mutex::new(Counts {
            total: Stats::new(Instant::now(), interval, false),
            steady: None,
            batches: 0,
            failed: 0,
            first_failure: None,
            transactions: None,
            done: done.clone(),
            output: output.clone(),
        }));
        let reported = Arc::clone(&counts);
        let report = move |delivery: &Delivery<'_>| lock(&reported).delivered(delivery);
        let is_transactional = producer_config.transactional_id.is_some();
        let cluster = Cluster::connect(&bootstrap, &producer_config.connection).await?;
        cluster.wait_for_topic(&self.topic, true, TOPIC_WAIT.min(producer_config.max_block)).await?;
        let senders = self.own_thread(&producer_config)?;
        let mut producer = {
            let _entered = senders.as_ref().map(SenderThread::enter);
            Producer::new(cluster, producer_config, report)
        };
        let topic = producer.topic(&self.topic).await?;
        let duration =
            Duration::from_millis(self.transaction_duration_ms.unwrap_or(transactions::DEFAULT_DURATION_MS));
        let mut transactions = match is_transactional {
            true => Some(Transactions::init(&mut producer, duration).await?),
            false => None,
        };
        let bar = output.bar(self.num_records, &done);
        let sent = self.send_all(&mut producer, topic, &mut payloads, &counts, transactions.as_mut()).await;
        producer.close().await;
        drop(bar);
        sent?;
        let mut counts = lock(&counts);
        counts.transactions = transactions.map(|transactions| transactions.committed());
        self.print(&counts, Instant::now(), output)
    }

    /// A thread for the senders, if they benefit from one.
    fn own_thread(&self, config: &ProducerConfig) -> Result<Option<SenderThread>, PerfError> {
        if self.throughput > 0.0 || config.batch_bytes < OWN_THREAD_BATCH_BYTES {
            return Ok(None);
        }
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Ok(Some(SenderThread(Some(runtime.map_err(PerfError::Thread)?))))
    }

    fn check(&self) -> Result<(), PerfError> {
        if self.warmup_records >= self.num_records {
            return Err(PerfError::Usage(
                "The value for --warmup-records must be strictly fewer than the number of records in the test, \
                 --num-records."
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn settings(&self, output: &PerfOutput) -> Result<(ProducerConfig, Vec<String>), PerfError> {
        for (given, option, instead) in [
            (!self.producer_props.is_empty(), "--producer-props", "--command-property"),
            (self.producer_config.is_some(), "--producer.config", "--command-config"),
        ] {
            if given {
                output.progress(&format!(
                    "Option {option} has been deprecated and will be removed in a future version. Use {instead} instead."
                ))?;
            }
        }
        let file = self.command_config.as_deref().or(self.producer_config.as_deref());
        let properties: Vec<String> =
            self.command_property.iter().chain(&self.producer_props).cloned().collect();
        let mut properties = settings::gather(file, &properties, self.bootstrap_server.as_deref())?;
        properties.set_default("client.id", "perf-producer-client");
        if let Some(id) = &self.transactional_id {
            properties.set("transactional.id", id);
        } else if self.transaction_duration_ms.is_some() {
            properties.set_default("transactional.id", &random_id());
        }
        let bootstrap = properties.take_bootstrap_servers()?;
        let config = ProducerConfig::take(&mut properties)?;
        settings::warn_about_rest(&properties);
        Ok((config, bootstrap))
    }

    fn payloads(&self, batch_bytes: usize, output: &PerfOutput) -> Result<Payloads, PerfError> {
        match (self.record_size, &self.payload_file) {
            (Some(size), _) => Ok(Payloads::random(size as usize, batch_bytes)),
            (None, Some(file)) => {
                let delimiter =
                    if self.payload_delimiter == "\\n" { "\n" } else { self.payload_delimiter.as_str() };
                Payloads::file(file, delimiter, output)
            }
            (None, None) => Ok(Payloads::monotonic()),
        }
    }

    async fn send_all(
        &self,
        producer: &mut Producer,
        topic: TopicRef,
        payloads: &mut Payloads,
        counts: &Mutex<Counts>,
        mut transactions: Option<&mut Transactions>,
    ) -> Result<(), PerfError> {
        let start = Instant::now();
        let start_ms = wall_clock_ms();
        {
            let mut counts = lock(counts);
            let interval = Duration::from_millis(self.reporting_interval);
            counts.total = Stats::new(start, interval, false);
        }
        let pacer = Pacer::new(self.throughput, start);
        // Records of a run are handed over together, with one reading of the clock.
        let run = if pacer.is_unlimited() { RECORDS_PER_CLOCK } else { 1 };
        let mut n = 0;
        while n < self.num_records {
            let now = if pacer.is_unlimited() { Instant::now() } else { pacer.wait(n).await };
            let timestamp = start_ms + elapsed_ms(start, now);
            if n == self.warmup_records && n > 0 {
                lock(counts).enter_steady_state(now, Duration::from_millis(self.reporting_interval))?;
            }
            if let Some(transactions) = &mut transactions {
                transactions.begin(producer, now)?;
            }
            let end = if n < self.warmup_records { self.warmup_records } else { self.num_records };
            let first = ProducerRecord {
                topic,
                partition: None,
                timestamp,
                key: None,
                value: None,
                headers: &[],
                sent_at: now,
                number: n,
            };
            let (taken, left_over) = send_run(&mut producer.sending(), first, end.min(n + run), payloads)?;
            n += taken;
            match left_over {
                LeftOver::Nothing => {}
                // The senders share this thread: a full batch is sent while it is in the cache, and does not
                // wait for a pause, which never comes if the rate exceeds the cluster's.
                LeftOver::Batch => tokio::task::yield_now().await,
                LeftOver::Record => {
                    let record = ProducerRecord { number: n, value: Some(payloads.drawn()), ..first };
                    producer.send(&record).await?;
                    n += 1;
                }
            }
            if let Some(transactions) = &mut transactions {
                transactions.commit_old(producer).await?;
            }
        }
        if let Some(transactions) = &mut transactions {
            transactions.commit(producer).await?;
        }
        Ok(())
    }

    fn print(&self, counts: &Counts, now: Instant, output: &PerfOutput) -> Result<(), PerfError> {
        if self.json {
            output.result(&self.result(counts, now).to_string())?;
        } else {
            output.result(&counts.total.total_line(now))?;
            if let Some(steady) = &counts.steady {
                output.result(&steady.total_line(now))?;
            }
            if self.print_metrics {
                print_metrics(counts, output)?;
            }
        }
        match &counts.first_failure {
            Some(first) => Err(PerfError::NotStored {
                failed: counts.failed,
                records: self.num_records,
                first: first.clone(),
            }),
            None => Ok(()),
        }
    }

    fn result(&self, counts: &Counts, now: Instant) -> serde_json::Value {
        json!({
            "tool": "producer-perf-test",
            "topic": self.topic,
            "num_records": self.num_records,
            "record_size": self.record_size,
            "throughput": self.throughput,
            "settings": self.command_property.iter().chain(&self.producer_props).collect::<Vec<_>>(),
            "failed": counts.failed,
            "batches": counts.batches,
            "transactions": counts.transactions,
            "total": counts.total.json(now),
            "steady_state": counts.steady.as_ref().map(|steady| steady.json(now)),
        })
    }
}

/// The remainder after a run of records.
enum LeftOver {
    Nothing,
    /// A batch is full.
    Batch,
    /// The last record did not fit.
    Record,
}

/// Hands over records up to number `end` without waiting; returns how many.
fn send_run(
    sending: &mut LockedProducer<'_>,
    first: ProducerRecord<'_>,
    end: u64,
    payloads: &mut Payloads,
) -> Result<(u64, LeftOver), PerfError> {
    for number in first.number..end {
        payloads.draw();
        let record = ProducerRecord { number, value: Some(payloads.drawn()), ..first };
        match sending.try_send(&record)? {
            AppendOutcome::Joined => {}
            AppendOutcome::Filled => return Ok((number + 1 - first.number, LeftOver::Batch)),
            AppendOutcome::Full => return Ok((number - first.number, LeftOver::Record)),
        }
    }
    Ok((end - first.number, LeftOver::Nothing))
}

fn random_id() -> String {
    let random = getrandom::u64().expect("the kernel gives random bytes");
    format!("performance-producer-{random:016x}")
}

fn elapsed_ms(start: Instant, now: Instant) -> i64 {
    i64::try_from(now.saturating_duration_since(start).as_millis()).unwrap_or(i64::MAX)
}
