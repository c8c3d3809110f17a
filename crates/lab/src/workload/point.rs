//! One measurement, fully said.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thalweg_client::HIDDEN;

/// One measurement. Properties are Kafka's, under Kafka's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What tells it from the other points of its workload, such as `1,024 B` or `3 brokers`.
    pub label: String,
    /// The cluster that it needs.
    pub cluster: ClusterSpec,
    /// The topics that it creates.
    pub topics: Topics,
    /// The records.
    pub records: RecordSpec,
    /// Who produces; `count` 0 for nobody.
    pub producers: Clients,
    /// Who consumes, all in one group, so that each record is consumed once; `count` 0 for nobody.
    pub consumers: Clients,
    /// What is measured.
    pub measure: Measure,
    /// How hard.
    pub load: Load,
    /// How long.
    pub extent: Extent,
    /// How often.
    pub repetitions: u32,
    /// Whether the records are read back and checked.
    pub verify: Verify,
}

impl Point {
    /// The same as a result keeps it: passwords, private keys and the lines that hold them are left out.
    pub fn without_secrets(&self) -> Point {
        let mut point = self.clone();
        let properties = [
            &mut point.cluster.properties,
            &mut point.topics.properties,
            &mut point.producers.properties,
            &mut point.consumers.properties,
        ];
        for (_, value) in properties.into_iter().flatten().filter(|(key, _)| thalweg_client::is_secret(key)) {
            HIDDEN.clone_into(value);
        }
        point
    }
}

/// How far the records of a repetition are read back, and checked against what was sent. Where they are, each record carries
/// producer, sequence and intended time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Not at all: offsets are all the evidence.
    Off,
    /// After the measurement, for about as long as it took.
    #[default]
    Bounded,
    /// To the last record, however long that takes; the run's own consumers check what they read, too.
    Whole,
}

impl Verify {
    /// As files and arguments have it.
    pub fn words(self) -> &'static str {
        match self {
            Verify::Off => "off",
            Verify::Bounded => "bounded",
            Verify::Whole => "whole",
        }
    }
}

/// A cluster of one kind of broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSpec {
    /// How many brokers.
    pub brokers: u32,
    /// Broker properties that differ from the defaults.
    pub properties: BTreeMap<String, String>,
}

/// Topics of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topics {
    /// How many.
    pub count: u32,
    /// Partitions of each.
    pub partitions: u32,
    /// Replicas of each partition.
    pub replication_factor: u16,
    /// Topic properties that differ from the defaults.
    pub properties: BTreeMap<String, String>,
}

/// Producers or consumers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// How many. Each is a client of its own, with its own connections.
    pub count: u32,
    /// Processes that they are spread over.
    pub processes: u32,
    /// Threads of each process.
    pub threads: u32,
    /// Client properties that differ from the defaults.
    pub properties: BTreeMap<String, String>,
}

/// Records of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSpec {
    /// Bytes of the value.
    pub size_bytes: u32,
    /// What the value holds.
    pub payload: Payload,
    /// The keys, if there are any.
    pub keys: Option<Keys>,
}

/// What the values hold. They come from a pool made before the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// Random bytes: no codec gains anything.
    Random,
    /// Zeros.
    Zeros,
    /// Zeros, the same bytes for all records: a stream in memory hands them on by reference.
    Shared,
    /// Text that codecs shrink to about a quarter.
    Compressible,
    /// Objects as services send them.
    Json,
    /// Lines of a file.
    File(String),
}

/// Keys, drawn evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// How many different ones.
    pub distinct: u64,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Producing; consumers, if any, read at the same time, and the time from end to end is measured too.
    Produce,
    /// Consuming what was produced before.
    Consume,
    /// Consuming a backlog while producing goes on: the time until it is gone.
    Drain,
}

/// How hard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Load {
    /// As many records as go.
    Maximum,
    /// So many records a second, all producers together, each at its intended time whatever the cluster does.
    Rate {
        /// Records per second.
        records_per_s: f64,
    },
    /// Producers are added, one by one, until the rate does not rise by more than `gain_min`.
    AddProducers {
        /// The most to try.
        producers_max: u32,
        /// The least gain that counts, such as 0.03.
        gain_min: f64,
    },
    /// The rate is raised by `factor` until the cluster falls behind, then the knee is bisected.
    RaiseRate {
        /// The first rate, records per second.
        first_records_per_s: f64,
        /// Each rate to the one before it, such as 1.5.
        factor: f64,
        /// How close the knee must be enclosed, such as 0.05.
        precision: f64,
    },
}

/// How long a repetition takes. What the warm-up does is measured by nobody.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// Seconds before the measurement begins.
    pub warm_up_s: f64,
    /// How long the measurement is.
    pub unit: Unit,
}

/// The length of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds.
    Seconds(f64),
    /// Records, all producers together.
    Records(u64),
}
