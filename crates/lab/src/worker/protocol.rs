//! What lab and worker say to each other: a line of JSON each.
//!
//! Times are microseconds since the Unix epoch: lab and workers share one machine's clock.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::workload::{Driver, RecordSpec, Verify};

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It produces.
    Producer,
    /// It consumes, as members of a group.
    Consumer,
}

/// The first line that a worker reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// What it does.
    pub role: Role,
    /// With what.
    pub driver: Driver,
    /// The brokers to connect to first, `host:port`.
    pub bootstrap: Vec<String>,
    /// Client properties, under Kafka's names.
    pub properties: BTreeMap<String, String>,
    /// The topics; they exist. Producers go round them.
    pub topics: Vec<String>,
    /// Clients in this worker.
    pub clients: u32,
    /// The number of its first client; numbers are unique over all workers of the role.
    pub first_client: u32,
    /// Threads to run them on.
    pub threads: u32,
    /// What is produced.
    pub records: RecordSpec,
    /// Unless off, records carry a stamp, and consumers take the time from it; where the whole is verified, they check the
    /// records, too.
    pub verify: Verify,
    /// Records per second of all clients of this worker; none for as many as go.
    pub records_per_s: Option<f64>,
    /// When it ends by itself. A [`Command::Stop`] ends it before.
    pub stop: StopWhen,
    /// The consumers' group.
    pub group: Option<String>,
    /// The seed of payloads and keys.
    pub seed: u64,
}

/// When a worker is done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopWhen {
    /// So many seconds after the measurement began.
    Seconds(f64),
    /// After so many records of all its clients, beside those of the warm-up.
    Records(u64),
    /// When it is told.
    Told,
}

/// A line to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "command")]
pub enum Command {
    /// Begin at `at_us`; what happens before `measure_from_us` is warm-up.
    Start {
        /// When to begin.
        at_us: u64,
        /// When the measurement begins.
        measure_from_us: u64,
    },
    /// Send no more, wait for what is under way, report.
    Stop,
}

/// A line from a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// All clients are connected, payloads are made, groups have their partitions.
    Ready {
        /// Name and version of the client, such as `librdkafka 2.10.0`.
        client: String,
        /// Processes that do the work beside the worker itself, such as a JVM: their use counts too.
        children: Vec<u32>,
    },
    /// What the last second did.
    Interval(Interval),
    /// The last line: all is told.
    Done(Box<Report>),
    /// The last line: it could not go on.
    Failed {
        /// Why, for people.
        error: String,
    },
}

/// What about a second did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its end.
    pub at_us: u64,
    /// Its length.
    pub length_us: u64,
    /// Records acknowledged, or consumed.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of the latencies of these records; none where there are none.
    pub p50_us: Option<u64>,
    /// Of the latencies of these records.
    pub p99_us: Option<u64>,
    /// Of the latencies of these records.
    pub max_us: Option<u64>,
}

/// All that a worker did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// In the time that is measured.
    pub measured: Span,
    /// Handed to the client, from the start on; for a consumer as `acknowledged`.
    pub sent: u64,
    /// Whether more may have been sent than the driver can tell: a tool that was ended between two of its lines.
    #[serde(default)]
    pub sent_more: bool,
    /// Acknowledged by the cluster, or consumed, from the start on.
    pub acknowledged: u64,
    /// Given up by the client, from the start on.
    pub failed: u64,
    /// The first reason for giving up.
    pub first_failure: Option<String>,
    /// From the intended time of sending to the acknowledgement, of records intended within the measurement.
    pub acknowledge_latency: Option<Histogram>,
    /// From the intended time of sending to the consumer, of records intended within the measurement.
    pub end_to_end_latency: Option<Histogram>,
    /// What a latency does not hold, where a driver cannot tell all: for people.
    pub notes: Vec<String>,
    /// Per producer, what a checking consumer has seen.
    pub seen: Vec<Seen>,
    /// Per producer of this worker, the sequences that were not acknowledged; all others below `sent` were.
    pub unacknowledged: Vec<Order>,
}

/// The stretch from the start of the measurement to the last acknowledgement, or the last record consumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Its first moment.
    pub from_us: u64,
    /// Its last moment.
    pub to_us: u64,
    /// Records within it.
    pub records: u64,
    /// Bytes of their values and keys.
    pub bytes: u64,
}

/// What a checking consumer has seen of one producer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The producer's number; `u32::MAX` for records whose stamp is none of this run, which are damaged.
    pub producer: u32,
    /// Sequences seen at least once: ranges from the first to one behind the last, in order, apart from each other.
    pub ranges: Vec<(u64, u64)>,
    /// Records seen again.
    pub duplicates: u64,
    /// Records behind one of a later sequence, in their partition.
    pub reordered: u64,
    /// Records whose stamp was not one of this run, or whose value was not what was sent.
    pub damaged: u64,
}

/// What one producer sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The producer's number.
    pub producer: u32,
    /// Sequences handed to the client: 0 to one below this.
    pub sent: u64,
    /// Those that were not acknowledged: ranges from the first to one behind the last, in order.
    pub ranges: Vec<(u64, u64)>,
}
