//! The protocol between lab and worker: a line of JSON per message.
//!
//! Times are microseconds since the Unix epoch, on the clock of one machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::workload::{Driver, RecordSpec, Verification};

/// The role of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    Producer,
    /// Consumes, as members of a group.
    Consumer,
}

/// The first line that a worker reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The worker's role.
    pub role: Role,
    /// The client driver.
    pub driver: Driver,
    /// The bootstrap servers, `host:port`.
    pub bootstrap: Vec<String>,
    /// Client properties, with Kafka's names.
    pub properties: BTreeMap<String, String>,
    /// The topics, which exist. Producers write to them in turn.
    pub topics: Vec<String>,
    /// Number of clients in this worker.
    pub clients: u32,
    /// The number of the worker's first client, unique over all workers of the role.
    pub first_client: u32,
    /// Number of threads.
    pub threads: u32,
    /// The specification of records.
    pub records: RecordSpec,
    /// Unless off, records have stamps, and consumers read the time from them. With whole verification,
    /// consumers also check the records.
    pub verify: Verification,
    /// Records per second of all clients of this worker; `None` for the maximum.
    pub records_per_s: Option<f64>,
    /// The stop condition. A [`Command::Stop`] stops the worker earlier.
    pub stop: StopWhen,
    /// The consumers' groups, which they join in turn by their numbers.
    pub groups: Vec<String>,
    /// True if consumers drain a backlog: records that exist before the start, whose end is measured.
    pub drains: bool,
    /// Number of clients of this role in all workers.
    pub all_clients: u32,
    /// The seed of payloads and keys.
    pub seed: u64,
}

/// The scheme of a service URL of Apache Pulsar.
const PULSAR_SCHEME: &str = "pulsar://";

impl Assignment {
    /// The service URL, if the cluster is one of Apache Pulsar.
    pub fn pulsar_service_url(&self) -> Option<&str> {
        self.bootstrap.first().map(String::as_str).filter(|url| url.starts_with(PULSAR_SCHEME))
    }

    /// The group of a client; `None` for producers.
    pub fn group_of(&self, client: u32) -> Option<&str> {
        let at = (client as usize).checked_rem(self.groups.len())?;
        Some(&self.groups[at])
    }

    /// True if consumers tell the records of a backlog from later ones: by stamps, or the lab's own client by
    /// timestamps.
    pub fn reports_backlog(&self) -> bool {
        let tells = match self.driver {
            Driver::Thalweg => true,
            Driver::Librdkafka => self.verify != Verification::Off,
            Driver::Java | Driver::Stream => false,
        };
        self.drains && tells
    }
}

/// Stop condition of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopWhen {
    /// This many seconds after the start of the measurement.
    Seconds(f64),
    /// After this many records of all clients of the worker, without the warm-up.
    Records(u64),
    /// On the command to stop.
    OnCommand,
}

/// A line to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "command")]
pub enum Command {
    /// Start at `at_us`; everything before `measure_from_us` is warm-up.
    Start {
        /// The start time.
        at_us: u64,
        /// Start of the measurement.
        measure_from_us: u64,
    },
    /// Stop sending, wait for messages in flight, report.
    Stop,
}

/// A line from a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// All clients are connected, payloads created, partitions assigned.
    Ready {
        /// Name and version of the client, such as `librdkafka 2.10.0`.
        client: String,
        /// Other processes that do the work, such as JVMs: their usage counts, too.
        children: Vec<u32>,
    },
    /// An interval of about a second.
    Interval(Interval),
    /// The last line: the report.
    Done(Box<Report>),
    /// The last line: an error.
    Failed { error: String },
}

/// An interval of about a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// End time, in microseconds.
    pub at_us: u64,
    /// Length in microseconds.
    pub length_us: u64,
    /// Records acknowledged, or consumed.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// Number of these records that belong to a backlog; zero if the driver does not report it.
    #[serde(default)]
    pub backlog: u64,
    /// Median latency of these records; `None` without latencies.
    pub p50_us: Option<u64>,
    /// 99th percentile of these records' latency.
    pub p99_us: Option<u64>,
    /// Maximum latency of these records.
    pub max_us: Option<u64>,
    /// Mean latency of these records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_us: Option<u64>,
    /// 75th percentile of these records' latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p75_us: Option<u64>,
    /// 95th percentile of these records' latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_us: Option<u64>,
    /// 99.9th percentile of these records' latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<u64>,
    /// 99.99th percentile of these records' latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p9999_us: Option<u64>,
}

/// The totals of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The measured interval.
    pub measured: Span,
    /// Records handed to the client since the start; for a consumer equal to `acknowledged`.
    pub sent: u64,
    /// True if more may have been sent than the driver knows: a tool was stopped between two of its lines.
    #[serde(default)]
    pub sent_more: bool,
    /// Records acknowledged by the cluster, or consumed, since the start.
    pub acknowledged: u64,
    /// Records failed since the start.
    pub failed: u64,
    /// The first error.
    pub first_failure: Option<String>,
    /// Latency from the intended send time to the acknowledgement, for records intended within the
    /// measurement.
    pub acknowledge_latency: Option<Histogram>,
    /// Latency from the intended send time to the consumer, for records intended within the measurement.
    pub end_to_end_latency: Option<Histogram>,
    /// The percentiles of a tool without a histogram, of the same latency.
    #[serde(default)]
    pub tool_percentiles: Option<ToolPercentiles>,
    /// The records consumed of a backlog, from the start to the last one, if the driver reports them.
    #[serde(default)]
    pub drained: Option<Span>,
    /// Latency of these records, from their intended send time.
    #[serde(default)]
    pub drained_latency: Option<Histogram>,
    /// Records that reached a consumer before their intended send time.
    #[serde(default)]
    pub negative: NegativeLatencies,
    /// Microseconds from the start to its command, if that came too late.
    #[serde(default)]
    pub late_us: u64,
    /// The acknowledged batches of a producer within the measurement; `None` if the driver does not report
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchCounts>,
    /// Limits of the measured latencies, as text.
    pub notes: Vec<String>,
    /// Results of a checking consumer, per producer.
    pub seen: Vec<SeenRecords>,
    /// Per producer of this worker, the unacknowledged sequences; all others below `sent` were acknowledged.
    pub unacknowledged: Vec<Order>,
    /// Where a cluster of Apache Pulsar has acknowledged the records: the entries of ledgers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledgers: Vec<AcknowledgedLedger>,
}

/// Latencies below zero, which clocks that differ cause. They are counted as a microsecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NegativeLatencies {
    /// Number of records.
    pub records: u64,
    /// The largest one, without its sign.
    pub us_max: u64,
}

impl NegativeLatencies {
    pub(crate) fn add(&mut self, other: NegativeLatencies) {
        self.records += other.records;
        self.us_max = self.us_max.max(other.us_max);
    }
}

/// Batches of producers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCounts {
    pub batches: u64,
    /// Their total size as sent: compressed, with the header of a batch of Kafka.
    pub bytes: u64,
}

impl BatchCounts {
    /// Adds a batch of this size.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.batches += 1;
        self.bytes += bytes;
    }

    /// The sum of both.
    pub(crate) fn plus(self, other: BatchCounts) -> BatchCounts {
        BatchCounts { batches: self.batches + other.batches, bytes: self.bytes + other.bytes }
    }
}

/// Entries of a ledger of Apache Pulsar that were acknowledged to a producer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcknowledgedLedger {
    pub topic: String,
    pub partition: i32,
    pub ledger: i64,
    /// Number of distinct entries: batches, or single records.
    pub entries: u64,
    /// Number of records in them.
    pub records: u64,
    /// The last entry.
    pub last_entry: i64,
}

/// Percentiles that a tool prints, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolPercentiles {
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
}

impl ToolPercentiles {
    /// Those of the slower tool, percentile by percentile: without histograms there are no common ones.
    pub fn slower(self, other: ToolPercentiles) -> ToolPercentiles {
        ToolPercentiles {
            p50_us: self.p50_us.max(other.p50_us),
            p99_us: self.p99_us.max(other.p99_us),
            p999_us: self.p999_us.max(other.p999_us),
            max_us: self.max_us.max(other.max_us),
        }
    }
}

/// From the start of the measurement to the last acknowledged or consumed record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Start time, in microseconds.
    pub from_us: u64,
    /// End time, in microseconds.
    pub to_us: u64,
    /// Number of records in the span.
    pub records: u64,
    /// Bytes of the records' values and keys.
    pub bytes: u64,
}

/// The records of one producer seen by a checking consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenRecords {
    /// The producer's number; `u32::MAX` for records without a stamp of this run, which are damaged.
    pub producer: u32,
    /// Sequences seen at least once: ranges with exclusive ends, sorted and disjoint.
    pub ranges: Vec<(u64, u64)>,
    /// Number of duplicates.
    pub duplicates: u64,
    /// Records after one with a later sequence in their partition.
    pub reordered: u64,
    /// Records without a stamp of this run, or with a wrong value.
    pub damaged: u64,
}

/// The records sent by one producer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The producer's number.
    pub producer: u32,
    /// Number of sequences handed to the client: 0 to below this.
    pub sent: u64,
    /// Unacknowledged sequences: ranges with exclusive ends, sorted.
    pub ranges: Vec<(u64, u64)>,
}
