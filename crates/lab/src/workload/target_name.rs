//! Names of the targets that the lab starts.

use serde::{Deserialize, Serialize};

/// A target that the lab starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TargetName {
    /// Brokers of this binary, started for the run and removed after it.
    Embedded,
    /// Apache Kafka, started for the run and removed after it; needs Java and, once, Maven.
    ApacheKafka,
    /// Apache Pulsar, one broker with its bookie, started for the run and removed after it; needs Java 17 and
    /// the distribution in PULSAR_HOME.
    Pulsar,
}
