//! The commands of `thalweg` that need no server in their process: one subcommand per file. The program adds
//! those that serve, and the root command.
//!
//! - [`connect`] gathers client settings from options, the environment and the [`profile`]; [`output`] prints
//!   results in every format; [`failure`] decides exit codes.
//! - [`global`] are the options before or after any command.
//! - [`completion`] and [`man`] take the whole command, and know nothing of it.

pub mod broker;
pub mod cluster;
pub mod completion;
pub mod config;
pub mod connect;
pub mod consume;
pub mod debug;
pub mod failure;
pub mod feature;
mod format;
pub mod global;
pub mod group;
pub mod kafka_names;
pub mod lab;
pub mod man;
mod moment;
mod moving;
pub mod notice;
mod outcomes;
pub mod output;
mod partitions;
pub mod perf;
mod probe;
pub mod produce;
pub mod profile;
pub mod profile_command;
pub mod program;
pub mod quorum;
pub mod quota;
pub mod schema_registry;
pub mod secure;
pub mod security;
pub mod signals;
pub mod stream;
mod table;
pub mod top;
pub mod topic;
pub mod transaction;
mod yaml;

/// A future of a command, compiled by this crate, not by the program.
pub type CommandFuture<'a> = thalweg_lab::BoxFuture<'a, anyhow::Result<()>>;
