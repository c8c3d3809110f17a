//! Streams: a line of text from source to sink, run in memory.
//!
//! - [`language`] reads the text, [`plan`] makes of it what can be run, with every mistake told at its place.
//! - [`module`] is the registry of stages: options are declared once, and checks and documents come from that.
//! - [`source`], [`processor`] and [`sink`] hold a file for each stage; [`stage`] says what they are to the runtime.
//! - [`runtime`] runs a plan: stages that stand next to each other call each other, streams are joined by bounded channels.
//! - [`transport`] lays topics of a cluster between stages instead, [`deployment`] says around which of them.
//! - [`host`] runs streams as a service: created under a name, deployed, and started again after a restart.
//! - [`message`] is what flows, [`expression`] what filters and transforms say of it.

mod bad;
mod clock;
mod declaration;
pub mod deployment;
mod disk;
mod exactly_once;
pub mod expression;
mod figures;
mod guarantee;
pub mod host;
mod json;
mod kafka;
pub mod language;
pub mod message;
pub mod module;
pub mod plan;
pub mod processor;
mod retry;
pub mod runtime;
pub mod sink;
pub mod source;
pub mod stage;
mod topics;
pub mod transport;

pub use bad::{BadMessages, NoSuchPolicy, OnError};
pub use exactly_once::NotExactlyOnce;
pub use guarantee::{Guarantee, NoSuchGuarantee};
pub use kafka::Cluster;

/// The stack of a thread that runs streams: an expression may be nested deep. Only what is used of it is ever in memory.
pub const STACK_BYTES: usize = 8 << 20;
