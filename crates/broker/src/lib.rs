//! The server: listeners, Kafka's APIs, partitions, groups, configuration.
//!
//! [`start`] turns a configuration into a [`Server`]. A request arrives through `thalweg_net`, is served by
//! its file in [`api`], and works on a partition (`thalweg_replica`), a coordinator of groups or transactions
//! (`thalweg_groups`, `thalweg_share_groups`, `thalweg_transactions`), or the cluster's image, which
//! `thalweg_membership` keeps by KRaft's requests and [`publisher`] acts on.

pub mod api;
pub mod audit;
pub mod authentication;
pub mod authorization;
mod auto_topics;
pub mod broker;
mod config_rules;
mod connection_limits;
mod controller_node;
mod coordinators_view;
mod directory_watch;
mod embedded_controller;
mod fetch_sessions;
mod history;
mod http_access;
mod https;
mod internal_log;
mod joining;
mod loading;
mod log_ends;
pub mod metrics;
mod opening;
pub mod publisher;
mod quotas;
mod reconfigure;
mod request_metrics;
mod secured;
mod server;
mod telemetry;
mod trails;

pub use authorization::ClusterRights;
pub use controller_node::{ControllerServer, start_controller, start_controller_on};
pub use http_access::{HttpAccess, HttpAction, HttpChange, HttpFailure};
pub use loading::Loading;
pub use opening::StartError;
pub use server::{Server, start, start_on, start_watched};
pub use thalweg_net::Machine;

#[cfg(test)]
#[path = "../../wire/tests/support/page.rs"]
mod page;
