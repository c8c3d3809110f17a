//! The performance laboratory. A black-box user of the protocol: it never depends on the broker, so every number can be
//! taken against any cluster.
//!
//! - [`perf`] holds the three tools that Kafka's users know.
//! - [`workload`] says what is measured, [`target`] what it is measured on, [`worker`] who produces and consumes.
//! - [`result`] is what comes out.
//! - [`null_server`] is what the lab itself is measured by.

pub mod calibrate;
pub mod null_server;
mod pacer;
mod payload;
pub mod perf;
pub mod result;
pub mod target;
pub mod worker;
pub mod workload;
