//! `share-consumer-perf-test`: members of a share group read and acknowledge records as fast as possible;
//! prints their number and size, and the delivery latency of records.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_client::{
    AcknowledgeType, AcknowledgementMode, ClientError, Cluster, ShareChunk, ShareConfig, ShareConsumer,
    SharePollEvent, TopicPartition,
};
use thalweg_record::DecompressBuffer;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::bar::DoneCount;
use super::date::DateFormat;
use super::output::PerfOutput;
use super::{PerfError, settings, wall_clock_ms};
use crate::BoxFuture;

/// The poll timeout, as in Kafka's tool.
const POLL: Duration = Duration::from_millis(100);
const MB: f64 = 1024.0 * 1024.0;

/// Measure how fast a share group consumes records.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Options and output are those of Kafka's kafka-share-consumer-perf-test. A group that has not read the topic
begins where its setting share.auto.offset.reset says, by default at the end.

Examples:
  # The first million records of a topic, by twelve members:
  thalweg config set group:perf share.auto.offset.reset=earliest
  thalweg share-consumer-perf-test --topic t --group perf --num-records 1000000 \\
      --threads 12 --bootstrap-server localhost:9092

  # Each record is accepted alone:
  thalweg share-consumer-perf-test --topic t --group perf --num-records 1000000 \\
      --command-property share.acknowledgement.mode=explicit")]
#[command(group = clap::ArgGroup::new("count").required(true).multiple(false).args(["num_records", "messages"]))]
pub struct ShareConsumerPerformance {
    /// The bootstrap servers [default: $THALWEG_BOOTSTRAP_SERVER, or localhost:9092].
    #[arg(long, value_name = "HOST:PORT,...")]
    bootstrap_server: Option<String>,
    /// The topic to consume from.
    #[arg(long)]
    topic: String,
    /// The number of records to consume.
    #[arg(long, value_name = "COUNT")]
    num_records: Option<u64>,
    /// (DEPRECATED) Use --num-records.
    #[arg(long, value_name = "COUNT")]
    messages: Option<u64>,
    /// The share group to consume in.
    #[arg(long, value_name = "ID", default_value = "perf-share-consumer")]
    group: String,
    /// The number of members.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// The maximum number of bytes to fetch per request.
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_576)]
    fetch_size: u32,
    /// Accepted for compatibility; the system sizes socket buffers.
    #[arg(long, value_name = "BYTES", default_value_t = 2_097_152)]
    socket_buffer_size: u32,
    /// Share consumer settings, for example max.poll.records=500. Overrides those of --command-config.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    command_property: Vec<String>,
    /// A properties file with share consumer settings.
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// Give up after this many milliseconds without a record.
    #[arg(long, value_name = "MS", default_value_t = 10_000, num_args = 0..=1, default_missing_value = "10000")]
    timeout: u64,
    /// The format of times, as in java.text.SimpleDateFormat.
    #[arg(long, value_name = "FORMAT", default_value = "yyyy-MM-dd HH:mm:ss:SSS")]
    date_format: DateFormat,
    /// Omit the header line.
    #[arg(long)]
    hide_header: bool,
    /// Print one JSON object at the end instead of lines, with the times from the timestamps of records to
    /// their delivery. A run that timed out has "timed_out": true, and fails with exit code 1.
    #[arg(long)]
    json: bool,
}

/// The records read by a member.
#[derive(Debug, Default)]
struct Counts {
    records: u64,
    bytes: u64,
    /// Number of redelivered records.
    redelivered: u64,
    /// Number of failed acknowledgements, one per partition.
    not_acknowledged: u64,
    /// Records by the time from their timestamp to their delivery, in milliseconds.
    delivered_ms: BTreeMap<u64, u64>,
}

/// State shared by all members.
struct GroupState {
    wanted: u64,
    timeout: Duration,
    is_explicit: bool,
    done: DoneCount,
    records: AtomicU64,
    /// Released when all members have partitions.
    joined: Barrier,
}

impl ShareConsumerPerformance {
    /// True if to print JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Runs the test.
    pub fn run<'a>(&'a self, output: &'a PerfOutput) -> BoxFuture<'a, Result<(), PerfError>> {
        Box::pin(self.perform(output))
    }

    async fn perform(&self, output: &PerfOutput) -> Result<(), PerfError> {
        if self.messages.is_some() {
            output.progress("Warning: --messages is deprecated. Use --num-records instead.")?;
        }
        let (config, bootstrap) = self.settings()?;
        if !self.hide_header && !self.json {
            output.result(
                "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms",
            )?;
        }
        let shared = Arc::new(GroupState {
            wanted: self.count(),
            timeout: Duration::from_millis(self.timeout),
            is_explicit: config.acknowledgement_mode == AcknowledgementMode::Explicit,
            done: DoneCount::default(),
            records: AtomicU64::new(0),
            joined: Barrier::new(self.threads as usize),
        });
        let bar = output.bar(shared.wanted, &shared.done);
        let (start, start_ms) = (Instant::now(), wall_clock_ms());
        let mut members = JoinSet::new();
        for _ in 0..self.threads {
            let cluster = Cluster::connect(&bootstrap, &config.connection).await?;
            let mut consumer = ShareConsumer::new(cluster, config.clone());
            consumer.subscribe(vec![self.topic.clone()]);
            members.spawn(Arc::clone(&shared).consume(consumer));
        }
        let (mut all, mut began, mut ended) = (Counts::default(), start, start);
        while let Some(member) = members.join_next().await {
            let (counts, from, to) = member.expect("a member does not panic")?;
            all.add(counts);
            (began, ended) = (began.max(from), ended.max(to));
        }
        drop(bar);
        if all.records < shared.wanted {
            output.progress(&format!(
                "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) exceeded. You can \
                 use the --timeout option to increase the timeout.",
                self.timeout
            ))?;
        }
        if all.not_acknowledged > 0 {
            output.progress(&format!(
                "WARNING: Acknowledgements of partitions failed {} times: their records are delivered again",
                all.not_acknowledged
            ))?;
        }
        let line = match self.json {
            true => self.json(&all, began - start, ended - began).to_string(),
            false => self.line(&all, start_ms, ended - start, ended - began),
        };
        output.result(&line)?;
        match all.records < shared.wanted && self.json {
            true => Err(PerfError::TimedOut {
                read: all.records,
                wanted: shared.wanted,
                timeout_ms: self.timeout,
            }),
            false => Ok(()),
        }
    }

    fn count(&self) -> u64 {
        self.num_records.or(self.messages).unwrap_or(0)
    }

    fn settings(&self) -> Result<(ShareConfig, Vec<String>), PerfError> {
        let file = self.command_config.as_deref();
        let mut properties =
            settings::gather(file, &self.command_property, self.bootstrap_server.as_deref())?;
        properties.set("group.id", &self.group);
        properties.set("fetch.max.bytes", &self.fetch_size.to_string());
        properties.set_default("check.crcs", "false");
        properties.set_default("client.id", "perf-share-consumer-client");
        let bootstrap = properties.take_bootstrap_servers()?;
        let config = ShareConfig::take(&mut properties)?;
        settings::warn_about_rest(&properties);
        Ok((config, bootstrap))
    }

    fn line(&self, all: &Counts, start_ms: i64, elapsed: Duration, fetch: Duration) -> String {
        let (mb, seconds) = (all.bytes as f64 / MB, elapsed.as_secs_f64().max(1e-6));
        let (elapsed_ms, fetch_ms) = (elapsed.as_millis(), fetch.as_millis());
        format!(
            "{}, {}, {mb:.4}, {:.4}, {:.4}, {}, {fetch_ms}",
            self.date_format.format(start_ms),
            self.date_format.format(start_ms + i64::try_from(elapsed_ms).unwrap_or(i64::MAX)),
            mb / seconds,
            all.records as f64 / seconds,
            all.records,
        )
    }

    fn json(&self, all: &Counts, join: Duration, fetch: Duration) -> serde_json::Value {
        let seconds = fetch.as_secs_f64().max(1e-6);
        json!({
            "tool": "share-consumer-perf-test",
            "topic": self.topic,
            "members": self.threads,
            "records": all.records,
            "timed_out": all.records < self.count(),
            "bytes": all.bytes,
            "redelivered": all.redelivered,
            "not_acknowledged": all.not_acknowledged,
            "join_s": join.as_secs_f64(),
            "fetch_s": seconds,
            "fetch_records_per_second": all.records as f64 / seconds,
            "fetch_mb_per_second": all.bytes as f64 / MB / seconds,
            "delivery_ms": { "p50": all.delivered_within(0.5), "p99": all.delivered_within(0.99) },
        })
    }
}

impl Counts {
    fn failed(&mut self, at: &TopicPartition, error: &ClientError) {
        tracing::debug!(%at, %error, "Acknowledgement failed");
        self.not_acknowledged += 1;
    }

    fn add(&mut self, other: Counts) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.redelivered += other.redelivered;
        self.not_acknowledged += other.not_acknowledged;
        for (ms, count) in other.delivered_ms {
            *self.delivered_ms.entry(ms).or_default() += count;
        }
    }

    /// The time in milliseconds within which this share of the records was delivered.
    fn delivered_within(&self, part: f64) -> u64 {
        let wanted = (self.records as f64 * part).ceil() as u64;
        let mut seen = 0;
        let found = self.delivered_ms.iter().find(|(_, count)| {
            seen += **count;
            seen >= wanted
        });
        found.map_or(0, |(ms, _)| *ms)
    }
}

impl GroupState {
    /// Runs one member, until all members together have read enough. Returns its counts, the start, and the
    /// time of its last record. The start is after all members have joined: a group takes seconds to become
    /// stable, in which the first member could read all records.
    async fn consume(
        self: Arc<Self>,
        mut consumer: ShareConsumer,
    ) -> Result<(Counts, Instant, Instant), PerfError> {
        let (mut counts, mut buffer) = (Counts::default(), DecompressBuffer::default());
        // A member that waits longer than that reads nothing: without partitions there is nothing to read.
        if let Ok(assigned) = timeout(self.timeout, consumer.wait_for_assignment()).await {
            assigned?;
        }
        let _ = timeout(self.timeout, self.joined.wait()).await;
        let began = Instant::now();
        let mut last = began;
        while self.records.load(Ordering::Relaxed) < self.wanted && last.elapsed() <= self.timeout {
            match consumer.poll(POLL).await? {
                SharePollEvent::Chunk(chunk) => {
                    self.take(&mut consumer, &chunk, &mut counts, &mut buffer)?;
                    last = Instant::now();
                }
                SharePollEvent::NotAcknowledged(at, error) => counts.failed(&at, &error),
                SharePollEvent::Nothing => {}
            }
        }
        for (at, outcome) in consumer.close().await? {
            if let Err(error) = outcome {
                counts.failed(&at, &error);
            }
        }
        Ok((counts, began, last))
    }

    fn take(
        &self,
        consumer: &mut ShareConsumer,
        chunk: &ShareChunk,
        counts: &mut Counts,
        buffer: &mut DecompressBuffer,
    ) -> Result<(), PerfError> {
        let (before, now_ms) = (counts.records, wall_clock_ms());
        chunk.for_each(buffer, |record, deliveries| {
            counts.records += 1;
            counts.bytes += (record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)) as u64;
            counts.redelivered += u64::from(deliveries > 1);
            let took_ms = u64::try_from(now_ms - record.timestamp).unwrap_or(0);
            *counts.delivered_ms.entry(took_ms).or_default() += 1;
            if self.is_explicit {
                // A record whose session has ended is delivered again.
                let _ = consumer.acknowledge(chunk, record.offset, record.offset, AcknowledgeType::Accept);
            }
            ControlFlow::Continue(())
        })?;
        let read = counts.records - before;
        self.records.fetch_add(read, Ordering::Relaxed);
        self.done.add(read);
        Ok(())
    }
}
