//! The deterministic simulation: three brokers, a controller and clients in one thread, from a seed.
//!
//! The product itself runs: brokers and controller are started as by `thalweg serve`, and the clients are
//! those of `thalweg-client`. Only time, disk and network are replaced: clocks that the simulation advances,
//! in-memory disks that lose unsynced data at a power failure, a network that delays, holds and resets. The
//! same seed always gives the same run, so every finding is reproducible.
//!
//! [`run`] runs a seed; `cargo run --release -p thalweg-sim -- --seeds 0..1000` runs many.

mod chance;
mod check;
mod clients;
mod consumer_members;
mod disk_trial;
mod history;
mod isolation;
mod ledger;
mod machine;
mod members;
mod network;
mod operator;
mod pace;
mod panics;
mod plan;
mod share_ledger;
mod share_members;
mod simulation;
mod streams_ledger;
mod streams_members;
mod streams_topology;
mod transactions;

pub use disk_trial::{Ending, FailedCall, MadeCall, Trial, TrialOutcome};
pub use network::Delays;
pub use plan::{FaultKind, Plan};
pub use simulation::{Outcome, run, run_plan};
