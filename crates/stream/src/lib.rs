//! Streams: a text from source to sink, run in memory.
//!
//! - [`language`] parses the text, [`plan`] resolves it, and reports every mistake with its position.
//! - [`module`] is the registry of stages: each option is declared once, for checks and documentation.
//! - [`source`], [`processor`] and [`sink`] have a file per stage; [`stage`] is their interface to the
//!   runtime.
//! - [`runtime`] runs a plan: adjacent stages call each other, bounded channels connect streams.
//! - [`transport`] puts topics between stages, as [`deployment`] requires.
//! - [`host`] runs streams as a service: created under a name, deployed, restarted with the process.
//! - `state` is what stages keep of earlier messages, and `changelog` has it in topics, so that it outlives
//!   the process.
//! - [`message`] is the data, [`expression`] the language of filters and transforms.
//! - [`https`] reaches servers outside the cluster. [`Reach`] limits the access of a stream.

mod at_least_once;
mod bad;
mod changelog;
mod clock;
mod columns;
mod declaration;
pub mod deployment;
mod disk;
mod durability;
mod exactly_once;
pub mod expression;
mod figures;
mod guarantee;
pub mod host;
pub mod https;
mod json;
mod kafka;
pub mod language;
pub mod message;
pub mod module;
mod passwords;
pub mod plan;
pub mod processor;
mod reach;
mod retry;
pub mod runtime;
pub mod sink;
pub mod source;
pub mod stage;
mod state;
mod topics;
pub mod transport;

pub use bad::{BadMessages, NoSuchPolicy, OnError};
pub use exactly_once::NotGuaranteed;
pub use guarantee::{Guarantee, NoSuchGuarantee};
pub use kafka::{Cluster, report_waits_to};
pub use passwords::{hidden as without_passwords, percent_encoded};
pub use reach::{EXEC, OUTSIDE, Reach};

/// The stack of a stream thread: expressions may be nested deeply. Untouched pages take no memory.
pub const STACK_BYTES: usize = 8 << 20;
