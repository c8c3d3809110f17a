//! `consumer-perf-test`: reads records as fast as possible, and prints their number and size.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use thalweg_client::{Consumer, ConsumerConfig, PollEvent};
use thalweg_record::DecompressBuffer;
use tokio::time::Instant;

use super::bar::DoneCount;
use super::date::DateFormat;
use super::members::{Members, SharedCounts};
use super::output::PerfOutput;
use super::{PerfError, settings, wall_clock_ms};
use crate::BoxFuture;

/// The poll timeout, as in Kafka's tool.
const POLL: Duration = Duration::from_millis(100);
/// Maximum time for leaving the group, as in Kafka's consumer.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);
const MB: f64 = 1024.0 * 1024.0;

/// Measure how fast records can be consumed.
#[derive(Args, Debug, Clone)]
#[command(after_help = "\
Options and output are those of Kafka's kafka-consumer-perf-test.

Examples:
  # The first ten million records of a topic:
  thalweg consumer-perf-test --topic t --num-records 10000000 \\
      --bootstrap-server localhost:9092

  # By ten consumers in one group:
  thalweg consumer-perf-test --topic t --num-records 10000000 --threads 10 \\
      --bootstrap-server localhost:9092

  # The ten figures below each other:
  thalweg consumer-perf-test --topic t --num-records 10000000 --list

  # A line every second:
  thalweg consumer-perf-test --topic t --num-records 10000000 \\
      --bootstrap-server localhost:9092 \\
      --show-detailed-stats --reporting-interval 1000")]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false).args(["topic", "include"]))]
#[command(group = clap::ArgGroup::new("count").required(true).multiple(false).args(["num_records", "messages"]))]
pub struct ConsumerPerformance {
    /// The bootstrap servers [default: $THALWEG_BOOTSTRAP_SERVER, or localhost:9092]. --broker-list is the
    /// name of Kafka's tools before 3.0.
    #[arg(long, value_name = "HOST:PORT,...", alias = "broker-list")]
    bootstrap_server: Option<String>,
    /// The topic to consume from.
    #[arg(long)]
    topic: Option<String>,
    /// Consume from the topics whose full names match this regular expression.
    #[arg(long, value_name = "REGEX")]
    include: Option<String>,
    /// The number of records to consume.
    #[arg(long, value_name = "COUNT")]
    num_records: Option<u64>,
    /// (DEPRECATED) Use --num-records.
    #[arg(long, value_name = "COUNT")]
    messages: Option<u64>,
    /// The group to consume in [default: perf-consumer- plus a random number].
    #[arg(long, value_name = "ID")]
    group: Option<String>,
    /// The number of consumers in the group, with connections each. Kafka's tool has accepted the option
    /// without effect since 2.0. Several may read a few records more.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    threads: u32,
    /// The maximum number of bytes to fetch from a partition per request.
    #[arg(long, value_name = "BYTES", default_value_t = 1_048_576)]
    fetch_size: u32,
    /// Start at the end, instead of the beginning, if the group has no offset.
    #[arg(long)]
    from_latest: bool,
    /// Accepted for compatibility; the system sizes socket buffers.
    #[arg(long, value_name = "BYTES", default_value_t = 2_097_152)]
    socket_buffer_size: u32,
    /// Consumer settings, for example check.crcs=true. Overrides those of --command-config.
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    command_property: Vec<String>,
    /// A properties file with consumer settings.
    #[arg(long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// (DEPRECATED) Use --command-config.
    #[arg(long = "consumer.config", value_name = "FILE", conflicts_with = "command_config")]
    consumer_config: Option<PathBuf>,
    /// Print the consumer's counters at the end.
    #[arg(long)]
    print_metrics: bool,
    /// Print a line per reporting interval instead of one at the end.
    #[arg(long)]
    show_detailed_stats: bool,
    /// Give up after this many milliseconds without a record.
    #[arg(long, value_name = "MS", default_value_t = 10_000, num_args = 0..=1, default_missing_value = "10000")]
    timeout: u64,
    /// Milliseconds between the lines of --show-detailed-stats.
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    reporting_interval: u64,
    /// The format of times, as in java.text.SimpleDateFormat.
    #[arg(long, value_name = "FORMAT", default_value = "yyyy-MM-dd HH:mm:ss:SSS")]
    date_format: DateFormat,
    /// Omit the header line.
    #[arg(long)]
    hide_header: bool,
    /// Print the figures as a list, one a line with its name, instead of one line with commas.
    #[arg(long, conflicts_with_all = ["json", "show_detailed_stats", "hide_header"])]
    list: bool,
    /// Print one JSON object at the end instead of lines. A run that timed out has "timed_out": true, is
    /// measured until its last record, and fails with exit code 1.
    #[arg(long)]
    json: bool,
}

/// Counts, and time spent joining.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    records: u64,
    bytes: u64,
}

struct Run<'a> {
    options: &'a ConsumerPerformance,
    output: &'a PerfOutput,
    /// The counts of all members.
    shared: Arc<SharedCounts>,
    /// The totals of the whole run as last seen, and those at the start of the interval.
    total: Counts,
    reported: Counts,
    rebalance: Duration,
    rebalance_in_interval: Duration,
    join_start: Instant,
    /// The arrival of the last record.
    last_record: Instant,
    interval_start_ms: i64,
}

impl ConsumerPerformance {
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
        if self.consumer_config.is_some() {
            output.progress("Warning: --consumer.config is deprecated. Use --command-config instead.")?;
        }
        let (config, bootstrap) = self.settings()?;
        if !self.hide_header && !self.json && !self.list {
            output.result(self.header())?;
        }
        let mut consumer = Consumer::connect(&bootstrap, config.clone()).await?;
        let topics = self.topics(&consumer).await?;
        let (start, start_ms) = (Instant::now(), wall_clock_ms());
        consumer.subscribe(topics.clone())?;
        let shared = SharedCounts::new(self.count());
        let mut members =
            Members::join(self.threads - 1, &bootstrap, &config, &topics, &shared, POLL).await?;
        let mut run = Run {
            options: self,
            output,
            shared,
            total: Counts::default(),
            reported: Counts::default(),
            rebalance: Duration::ZERO,
            rebalance_in_interval: Duration::ZERO,
            join_start: start,
            last_record: start,
            interval_start_ms: start_ms,
        };
        run.consume(&mut consumer, &mut members).await?;
        let elapsed = start.elapsed();
        let end_ms = wall_clock_ms();
        if self.json {
            let measured = if run.timed_out() { run.last_record - start } else { elapsed };
            output.result(&run.json(start_ms, end_ms, measured).to_string())?;
        } else if !self.show_detailed_stats {
            let figures = run.total_figures(start_ms, end_ms, elapsed);
            match self.list {
                true => output.result(&listed(self.header(), &figures))?,
                false => output.result(&figures.join(", "))?,
            }
        }
        if self.print_metrics && !self.json {
            run.print_metrics()?;
        }
        run.shared.end();
        leave(consumer, members).await;
        // The lines of Kafka's tool have a warning, and the tool succeeds.
        match run.timed_out() && self.json {
            true => Err(PerfError::TimedOut {
                read: run.total.records,
                wanted: self.count(),
                timeout_ms: self.timeout,
            }),
            false => Ok(()),
        }
    }

    fn settings(&self) -> Result<(ConsumerConfig, Vec<String>), PerfError> {
        let file = self.command_config.as_deref().or(self.consumer_config.as_deref());
        let mut properties =
            settings::gather(file, &self.command_property, self.bootstrap_server.as_deref())?;
        let group = self.group.clone().unwrap_or_else(|| {
            let random = getrandom::u32().expect("the kernel gives random bytes");
            format!("perf-consumer-{}", random % 100_000)
        });
        if self.threads > 1 && properties.get("group.instance.id").is_some() {
            let message = "--threads: group.instance.id is of one member; leave one of both out";
            return Err(PerfError::Usage(message.to_owned()));
        }
        properties.set("group.id", &group);
        properties.set("max.partition.fetch.bytes", &self.fetch_size.to_string());
        properties.set("auto.offset.reset", if self.from_latest { "latest" } else { "earliest" });
        properties.set_default("check.crcs", "false");
        properties.set_default("client.id", "perf-consumer-client");
        let bootstrap = properties.take_bootstrap_servers()?;
        let config = ConsumerConfig::take(&mut properties)?;
        settings::warn_about_rest(&properties);
        Ok((config, bootstrap))
    }

    async fn topics(&self, consumer: &Consumer) -> Result<Vec<String>, PerfError> {
        let Some(pattern) = &self.include else {
            let topics: Vec<String> = self.topic.iter().cloned().collect();
            let metadata = consumer.cluster().refresh(&topics, false).await?;
            for topic in &topics {
                if metadata.topics.get(topic).is_none_or(|topic| topic.error.is_some()) {
                    tracing::warn!("Topic {topic} does not exist; waiting for it, like Kafka's tool");
                }
            }
            return Ok(topics);
        };
        let regex = regex::Regex::new(&format!("^(?:{pattern})$"))
            .map_err(|error| PerfError::Usage(format!("--include {pattern}: {error}")))?;
        let metadata = consumer.cluster().refresh_all().await?;
        let matching =
            metadata.topics.values().filter(|topic| !topic.internal && regex.is_match(&topic.name));
        let topics: Vec<String> = matching.map(|topic| topic.name.to_string()).collect();
        if topics.is_empty() {
            return Err(PerfError::Usage(format!("--include {pattern}: no topic matches")));
        }
        Ok(topics)
    }

    fn count(&self) -> u64 {
        self.num_records.or(self.messages).unwrap_or(0)
    }

    fn header(&self) -> &'static str {
        if self.show_detailed_stats {
            "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
        } else {
            "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
        }
    }
}

/// The figures below each other, behind the names of the header.
fn listed(header: &str, figures: &[String]) -> String {
    let names: Vec<&str> = header.split(", ").collect();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let lines = names.iter().zip(figures).map(|(name, figure)| format!("{name:<width$}  {figure}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Leaves the group, so that the next test need not wait for the end of sessions. The results are printed
/// already: brokers that do not answer any more only cost a warning.
async fn leave(consumer: Consumer, members: Members) {
    let all = async {
        consumer.close().await?;
        members.leave().await
    };
    match tokio::time::timeout(LEAVE_TIMEOUT, all).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("The group was not left: {error}"),
        Err(_) => tracing::warn!("The group was not left within {} s", LEAVE_TIMEOUT.as_secs()),
    }
}

impl Run<'_> {
    /// True if the run ended before it had read all wanted records.
    fn timed_out(&self) -> bool {
        self.total.records < self.options.count()
    }

    async fn consume(&mut self, consumer: &mut Consumer, members: &mut Members) -> Result<(), PerfError> {
        let wanted = self.options.count();
        let timeout = Duration::from_millis(self.options.timeout);
        let interval = i64::try_from(self.options.reporting_interval).unwrap_or(i64::MAX);
        let mut buffer = DecompressBuffer::default();
        let mut last = Instant::now();
        let done = DoneCount::default();
        let bar = self.output.bar(wanted, &done);
        while self.total.records < wanted && last.elapsed() <= timeout {
            match consumer.poll(POLL).await? {
                PollEvent::Chunk(chunk) => self.shared.add(&chunk, &mut buffer)?,
                PollEvent::Assigned(_) => {
                    let took = self.join_start.elapsed();
                    self.rebalance += took;
                    self.rebalance_in_interval += took;
                }
                PollEvent::Revoked(_) | PollEvent::Lost(_) => self.join_start = Instant::now(),
                PollEvent::Nothing => {}
            }
            members.check()?;
            if self.shared.records() > self.total.records {
                self.total = Counts { records: self.shared.records(), bytes: self.shared.bytes() };
                done.set(self.total.records);
                last = Instant::now();
                self.last_record = last;
            }
            let now_ms = wall_clock_ms();
            if now_ms - self.interval_start_ms >= interval && self.total.records > self.reported.records {
                if self.options.show_detailed_stats {
                    self.output.progress(&self.interval_line(now_ms))?;
                }
                self.interval_start_ms = now_ms;
                self.reported = self.total;
                self.rebalance_in_interval = Duration::ZERO;
            }
        }
        drop(bar);
        if self.timed_out() {
            self.output.progress(&format!(
                "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) exceeded. You can \
                 use the --timeout option to increase the timeout.",
                self.options.timeout
            ))?;
        }
        Ok(())
    }

    fn interval_line(&self, now_ms: i64) -> String {
        let elapsed_ms = (now_ms - self.interval_start_ms) as f64;
        let records = (self.total.records - self.reported.records) as f64;
        let mb = (self.total.bytes - self.reported.bytes) as f64 / MB;
        let rebalance_ms = self.rebalance_in_interval.as_millis();
        let fetch_ms = (elapsed_ms - rebalance_ms as f64).max(0.0);
        let per_fetch_second = |value: f64| if fetch_ms > 0.0 { 1000.0 * value / fetch_ms } else { 0.0 };
        format!(
            "{}, 0, {:.4}, {:.4}, {}, {:.4}, {rebalance_ms}, {fetch_ms:.0}, {:.4}, {:.4}",
            self.options.date_format.format(now_ms),
            self.total.bytes as f64 / MB,
            1000.0 * mb / elapsed_ms,
            self.total.records,
            1000.0 * records / elapsed_ms,
            per_fetch_second(mb),
            per_fetch_second(records),
        )
    }

    /// The figures of the whole run, in the order of the header.
    fn total_figures(&self, start_ms: i64, end_ms: i64, elapsed: Duration) -> [String; 10] {
        let (mb, records) = (self.total.bytes as f64 / MB, self.total.records);
        let seconds = elapsed.as_secs_f64();
        let fetch = elapsed.saturating_sub(self.rebalance);
        let fetch_seconds = fetch.as_secs_f64().max(1e-6);
        let number = |value: f64| format!("{value:.4}");
        [
            self.options.date_format.format(start_ms),
            self.options.date_format.format(end_ms),
            number(mb),
            number(mb / seconds),
            records.to_string(),
            number(records as f64 / seconds),
            self.rebalance.as_millis().to_string(),
            fetch.as_millis().to_string(),
            number(mb / fetch_seconds),
            number(records as f64 / fetch_seconds),
        ]
    }

    fn json(&self, start_ms: i64, end_ms: i64, elapsed: Duration) -> serde_json::Value {
        let seconds = elapsed.as_secs_f64().max(1e-6);
        let fetch = elapsed.saturating_sub(self.rebalance);
        let fetch_seconds = fetch.as_secs_f64().max(1e-6);
        let (records, mb) = (self.total.records as f64, self.total.bytes as f64 / MB);
        json!({
            "tool": "consumer-perf-test",
            "topic": self.options.topic,
            "members": self.options.threads,
            "start_ms": start_ms,
            "end_ms": end_ms,
            "records": self.total.records,
            "timed_out": self.timed_out(),
            "bytes": self.total.bytes,
            "mb": mb,
            "elapsed_s": elapsed.as_secs_f64(),
            "mb_per_second": mb / seconds,
            "records_per_second": records / seconds,
            "rebalance_s": self.rebalance.as_secs_f64(),
            "fetch_s": fetch.as_secs_f64(),
            "fetch_records_per_second": records / fetch_seconds,
            "fetch_mb_per_second": mb / fetch_seconds,
        })
    }

    fn print_metrics(&self) -> Result<(), PerfError> {
        let rows =
            [("records-consumed-total", self.total.records), ("bytes-consumed-total", self.total.bytes)];
        let name = |metric: &str| {
            format!("consumer-fetch-manager-metrics:{metric}:{{client-id=perf-consumer-client}}")
        };
        let width = rows.iter().map(|(metric, _)| name(metric).len()).max().unwrap_or(0);
        self.output.result("")?;
        self.output.result(&format!("{:<width$}   Value", "Metric Name"))?;
        for (metric, value) in rows {
            self.output.result(&format!("{:<width$} : {value}.000", name(metric)))?;
        }
        Ok(())
    }
}
