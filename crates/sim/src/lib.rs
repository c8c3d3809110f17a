//! The deterministic simulation: three brokers, a controller and clients in one thread, from a seed.
//!
//! What runs is the product: brokers and controller are started as `thalweg serve` starts them, and the clients are
//! those of `thalweg-client`. Only where time, disk and network enter is there something else: clocks that the
//! simulation moves, disks in memory that lose at a power failure what was not synced, a network that delays, holds and
//! resets. The same seed goes the same way each time, so what one run finds is found again.
//!
//! [`run`] runs a seed; `cargo run --release -p thalweg-sim -- --seeds 0..1000` runs many.

mod chance;
mod check;
mod clients;
mod faults;
mod history;
mod ledger;
mod machine;
mod members;
mod network;
mod operator;
mod panics;
mod plan;
mod simulation;
mod transactions;

pub use network::Delays;
pub use plan::{Kind, Plan};
pub use simulation::{Outcome, run, run_plan};
