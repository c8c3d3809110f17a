//! The performance laboratory. The lab uses clusters only through the protocol and never depends on the
//! broker, so it can measure any cluster.
//!
//! Modules are in layers, and each imports only from lower ones (`tests/it/floors.rs` has the list).
//!
//! - [`agent`] runs workers on other machines.
//! - [`perf`] has Kafka's three performance tools.
//! - [`workload`] defines the measurements, [`target`] the systems, [`worker`] the clients.
//! - [`run`] combines them: interleaved repetitions, search for saturation, verdict.
//! - [`tune`] tries settings step by step and keeps improvements.
//! - [`result`] is the output; [`report`] shows it in a browser, [`terminal`] on a terminal.
//! - `cgroup` reads the limits on this process, and sets those of its children.
//! - [`sample`] observes processes and machine, [`machine`] describes it, [`warm`] reserves memory. `profile`
//!   looks inside processes. [`live`] is all of these from moment to moment, for `thalweg top`.
//! - [`doctor`] examines a host and its brokers.
//! - [`null_server`] is the reference for calibrating the lab.
//! - [`evidence`] proves that acknowledged records are in the log.

pub mod agent;
pub mod calibrate;
mod cgroup;
pub mod doctor;
pub mod evidence;
pub mod figures;
pub mod histogram;
pub mod live;
pub mod machine;
pub mod null_server;
mod pacer;
mod payload;
pub mod perf;
mod proc;
mod profile;
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

/// A boxed future, which this crate compiles. The body of an `async fn`, with all that it awaits, is compiled
/// in the crate that awaits it: for large ones that would be the program, whose build is the last and waits
/// for all others.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + 'a>>;
