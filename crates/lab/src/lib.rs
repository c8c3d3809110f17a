//! The performance laboratory. A black-box user of the protocol: it never depends on the broker, so every number can be
//! taken against any cluster.
//!
//! For now it holds the three tools that Kafka's users know, in [`perf`].

pub mod perf;
