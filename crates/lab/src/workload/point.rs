//! A point: one completely specified measurement.

use std::collections::BTreeMap;

use super::security::ClusterSecurity;
use serde::{Deserialize, Serialize};
use thalweg_client::HIDDEN;

/// One measurement. Properties have Kafka's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The point's label, unique in the workload, such as `1,024 B` or `3 brokers`.
    pub label: String,
    pub cluster: ClusterSpec,
    /// The topics to create.
    pub topics: Topics,
    pub records: RecordSpec,
    /// The producers; `count` may be 0.
    pub producers: Clients,
    /// The consumers; `count` may be 0.
    pub consumers: Clients,
    /// Number of consumer groups, each of which consumes every record.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub consumer_groups: u32,
    /// The kind of measurement.
    pub measure: Measure,
    pub load: Load,
    /// Warm-up and length of a repetition.
    pub extent: Extent,
    /// Number of repetitions.
    pub repetitions: u32,
    /// The extent of reading records back.
    pub verify: Verification,
}

/// The default for results from before there were several groups.
fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

impl Point {
    /// A copy without secrets, for a result: passwords, private keys and lines that contain them are removed.
    pub fn without_secrets(&self) -> Point {
        let mut point = self.clone();
        let properties = [
            &mut point.cluster.properties,
            &mut point.cluster.pulsar,
            &mut point.topics.properties,
            &mut point.producers.properties,
            &mut point.producers.pulsar,
            &mut point.consumers.properties,
            &mut point.consumers.pulsar,
        ];
        for (_, value) in properties.into_iter().flatten().filter(|(key, _)| thalweg_client::is_secret(key)) {
            HIDDEN.clone_into(value);
        }
        point
    }
}

/// The records of a repetition that are read back and compared with the sent records. Checked records carry
/// producer, sequence and intended time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Verification {
    /// None: offsets are the only evidence.
    Off,
    /// Records after the measurement, for about as long as it took.
    #[default]
    Bounded,
    /// All records, without a time limit; the run's own consumers check records, too.
    Whole,
}

impl Verification {
    /// As in files and arguments.
    pub fn words(self) -> &'static str {
        match self {
            Verification::Off => "off",
            Verification::Bounded => "bounded",
            Verification::Whole => "whole",
        }
    }
}

/// A cluster of one kind of broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// Number of brokers.
    pub brokers: u32,
    /// The security of clients and brokers, in a cluster that the lab starts.
    #[serde(default)]
    pub security: ClusterSecurity,
    /// The limits of each node, in a cluster that the lab starts.
    #[serde(default, skip_serializing_if = "NodeLimits::is_none")]
    pub node: NodeLimits,
    /// Idle connections, besides those of producers and consumers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_connections: u32,
    /// Idle partitions, besides those of the load.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_partitions: u32,
    /// The racks of the brokers, in turns; empty for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub racks: Vec<String>,
    /// Options of the brokers' JVMs, after those of the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jvm_options: Vec<String>,
    /// Broker properties that differ from the defaults.
    pub properties: BTreeMap<String, String>,
    /// Settings of Apache Pulsar's broker and bookie that differ from its defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pulsar: BTreeMap<String, String>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl ClusterSpec {
    /// The rack of a broker, by its place.
    pub fn rack(&self, place: usize) -> Option<&str> {
        Some(self.racks.get(place.checked_rem(self.racks.len())?)?.as_str())
    }

    /// A cluster without TLS and logins, whose brokers may use the whole machine.
    pub fn plaintext(brokers: u32, properties: BTreeMap<String, String>) -> ClusterSpec {
        let (security, node) = (ClusterSecurity::default(), NodeLimits::default());
        ClusterSpec {
            brokers,
            security,
            node,
            idle_connections: 0,
            idle_partitions: 0,
            racks: Vec::new(),
            jvm_options: Vec::new(),
            properties,
            pulsar: BTreeMap::new(),
        }
    }
}

/// The limits of each node: a provider's plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLimits {
    /// Thousandths of a processor; `None` for no limit.
    pub cpu_millis: Option<u32>,
    /// Memory in units of 2^20 bytes, including page cache of the node's files; `None` for no limit.
    pub memory_mb: Option<u32>,
}

impl NodeLimits {
    /// True if nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == NodeLimits::default()
    }

    /// The limits as text, such as `0.5 CPU, 1,024 MB`.
    pub fn describe(&self) -> String {
        let cpu = self.cpu_millis.map(|millis| format!("{} CPU", f64::from(millis) / 1000.0));
        let memory = self.memory_mb.map(|mb| format!("{} MB", crate::quantity::count(u64::from(mb))));
        let limits: Vec<String> = cpu.into_iter().chain(memory).collect();
        limits.join(", ")
    }
}

/// Topics of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topics {
    /// Number of topics.
    pub count: u32,
    /// Partitions of each.
    pub partitions: u32,
    /// Replicas of each partition.
    pub replication_factor: u16,
    /// Temporary topics, created and deleted again, per second.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub created_per_s: u32,
    /// Topic properties that differ from the defaults.
    pub properties: BTreeMap<String, String>,
}

/// Producers or consumers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Number of clients. Each has its own connections.
    pub count: u32,
    /// Number of processes.
    pub processes: u32,
    /// Threads per process.
    pub threads: u32,
    /// Client properties that differ from the defaults.
    pub properties: BTreeMap<String, String>,
    /// Properties of Pulsar's clients that differ from the defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pulsar: BTreeMap<String, String>,
}

/// Records of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSpec {
    /// Size of the value in bytes.
    pub size_bytes: u32,
    /// Contents of the value.
    pub payload: Payload,
    /// The keys, if any.
    pub keys: Option<Keys>,
}

/// Contents of the values, from a pool created before the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Random bytes, incompressible.
    Random,
    Zeros,
    /// Zeros, the same bytes for all records, passed by reference in streams in memory.
    Shared,
    /// Text that compresses to about a quarter.
    Compressible,
    /// JSON objects like those of services.
    Json,
    /// Lines of a file.
    File(String),
}

/// Uniformly drawn keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Number of distinct keys.
    pub distinct: u64,
}

/// The kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Producing; consumers, if any, read at the same time, and end-to-end latency is measured, too.
    Produce,
    /// Consuming records produced before.
    Consume,
    /// Consuming a backlog while producing continues: the time until it is drained.
    Drain,
}

/// The rate of producing, fixed or searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Load {
    /// The maximum rate.
    Maximum,
    /// A fixed total rate, each record at its intended time regardless of the cluster.
    Rate {
        /// Records per second.
        records_per_s: f64,
    },
    /// Adds producers one by one, until the rate does not rise by more than `gain_min`.
    AddProducers {
        producers_max: u32,
        /// Minimum gain, such as 0.03.
        gain_min: f64,
    },
    /// Raises the rate by `factor` until the cluster falls behind, then bisects the knee.
    RaiseRate {
        /// The first rate, records per second.
        first_records_per_s: f64,
        /// Ratio of consecutive rates, such as 1.5.
        factor: f64,
        /// Relative precision of the knee, such as 0.05.
        precision: f64,
    },
}

/// The length of a repetition. The warm-up is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// Seconds of warm-up.
    pub warm_up_s: f64,
    /// The length of the measurement.
    pub unit: Unit,
}

/// The length of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    Seconds(f64),
    /// Records of all producers together.
    Records(u64),
}
