//! The performance laboratory. A black-box user of the protocol: it never depends on the broker, so every number can be
//! taken against any cluster.
//!
//! - [`perf`] holds the three tools that Kafka's users know.
//! - [`workload`] says what is measured, [`target`] what it is measured on, [`worker`] who produces and consumes.
//! - [`sample`] watches processes and machine meanwhile, [`machine`] tells what it is, [`warm`] makes memory ready.
//! - [`doctor`] says what in a host and its brokers would matter.
//! - [`evidence`] proves that what was acknowledged is there.
//! - [`result`] is what comes out.

pub mod doctor;
pub mod evidence;
pub mod machine;
mod pacer;
mod payload;
pub mod perf;
pub mod result;
pub mod sample;
pub mod target;
pub mod warm;
pub mod worker;
pub mod workload;
