//! The performance laboratory. A black-box user of the protocol: it never depends on the broker, so every number can be
//! taken against any cluster.
//!
//! The modules stand in floors, and each imports from those below it alone (`tests/it/floors.rs` has the list).
//!
//! - [`perf`] holds the three tools that Kafka's users know.
//! - [`workload`] says what is measured, [`target`] what it is measured on, [`worker`] who produces and consumes.
//! - [`run`] joins them: interleaved repetitions, a search for saturation, a verdict.
//! - [`tune`] tries settings step by step and keeps what helps.
//! - [`result`] is what comes out; [`report`] shows it in a browser, [`terminal`] on a terminal.
//! - [`sample`] watches processes and machine meanwhile, [`machine`] tells what it is, [`warm`] makes memory ready.
//! - [`doctor`] says what in a host and its brokers would matter.
//! - [`null_server`] is what the lab itself is measured by.
//! - [`evidence`] proves that what was acknowledged is there.

pub mod calibrate;
pub mod doctor;
pub mod evidence;
pub mod figures;
pub mod histogram;
pub mod machine;
pub mod null_server;
mod pacer;
mod payload;
pub mod perf;
pub mod quantity;
pub mod report;
pub mod result;
pub mod run;
pub mod sample;
pub mod target;
pub mod terminal;
pub mod tune;
pub mod warm;
pub mod worker;
pub mod workload;
