//! Kafka's perf tools on Thalweg's client: the options and output lines of Kafka 4.3's
//! `kafka-producer-perf-test`, `kafka-consumer-perf-test`, `kafka-share-consumer-perf-test` and
//! `kafka-e2e-latency`, at a fraction of their cost, so that the broker is the bottleneck.
//!
//! [`PulsarPerf`] is Apache Pulsar's tool.
//!
//! In addition, `--json` replaces the lines on standard output by one JSON object at the end, and standard
//! error shows a progress bar if it is a terminal.

mod arguments;
mod bar;
mod consumer;
mod counts;
mod date;
mod e2e;
mod error;
mod members;
mod output;
mod payload;
mod producer;
mod pulsar;
mod settings;
mod share;
mod stats;
mod transactions;

pub use consumer::ConsumerPerformance;
pub use e2e::EndToEndLatency;
pub use error::PerfError;
pub use output::PerfOutput;
pub use producer::ProducerPerformance;
pub use pulsar::{PulsarConsume, PulsarPerf, PulsarProduce};
pub use share::ShareConsumerPerformance;

use std::ffi::OsString;

/// Arguments of a process, as other tools take them, in the form that ours take.
pub fn understood(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    arguments::with_options(pulsar::with_long_names(arguments))
}

/// Milliseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "measurements need wall-clock time")]
pub(crate) fn wall_clock_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
