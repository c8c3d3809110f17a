//! The server: listeners, Kafka's APIs, partitions, groups, configuration.
//!
//! [`start`] turns a configuration into a [`Server`]. Inside, a request comes in through [`net`], is served by its file
//! in [`api`], and works on a [`partition`], the [`coordinator`]s of [`group`]s and of [`transaction`]s, or the cluster's image,
//! which [`membership`] keeps by KRaft's requests and [`publisher`] acts on. [`replication`] follows other brokers.

pub mod api;
pub mod auto_topics;
pub mod broker;
mod compaction;
mod config_rules;
mod controller_node;
pub mod coordinator;
mod coordinator_log;
mod directory_watch;
mod features;
pub mod group;
mod housekeeping;
mod joining;
mod loading;
mod machine;
pub mod membership;
pub mod metrics;
pub mod net;
pub mod partition;
pub mod publisher;
mod reconfigure;
pub mod replication;
mod server;
pub mod transaction;

pub use controller_node::{ControllerServer, start_controller, start_controller_on};
pub use loading::Loading;
pub use machine::Machine;
pub use server::{Server, StartError, start, start_on, start_watched};

#[cfg(test)]
#[path = "../../wire/tests/support/page.rs"]
mod page;
