//! Drivers: the client of a measurement, and whether this binary includes it.

use serde::{Deserialize, Serialize};

/// The client of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Thalweg's producer and consumer.
    Thalweg,
    /// librdkafka, the C client. Only in a binary built with it: cargo build --release -p thalweg --features
    /// librdkafka.
    Librdkafka,
    /// Kafka's own perf tools, in Java.
    Java,
    /// Streams of this binary: from `load-generator` to `kafka`, and from `kafka` to `throughput`; without a
    /// cluster, from `load-generator` to `throughput` in memory.
    Stream,
}

impl Driver {
    /// Its name in results and on the command line.
    pub fn words(self) -> &'static str {
        match self {
            Driver::Thalweg => "thalweg",
            Driver::Librdkafka => "librdkafka",
            Driver::Java => "java",
            Driver::Stream => "stream",
        }
    }

    /// Why the driver does not report the batches of its producers; `None` if it does.
    pub fn why_no_batches(self) -> Option<&'static str> {
        match self {
            Driver::Thalweg => None,
            // Its statistics also record the wait of each message, which costs time of the measured client.
            Driver::Librdkafka => Some(
                "librdkafka counts batches only together with the wait of each message, which the lab leaves off",
            ),
            // `--print-metrics` has records of a request, and means over windows that contain the warm-up.
            Driver::Java => Some("Kafka's tool prints no number of batches"),
            Driver::Stream => Some("A stream does not report its batches"),
        }
    }

    /// Refuses a driver that this binary was built without.
    pub fn check(self) -> Result<(), DriverNotBuilt> {
        match self {
            Driver::Librdkafka if cfg!(not(feature = "librdkafka")) => Err(DriverNotBuilt { driver: self }),
            _ => Ok(()),
        }
    }
}

/// The driver needs a cargo feature that this binary was built without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "This binary was built without the driver {0}. To build one with it: cargo build --release -p thalweg --features {0}",
    driver.words()
)]
pub struct DriverNotBuilt {
    /// The driver. The feature has its name.
    pub driver: Driver,
}
