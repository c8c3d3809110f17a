//! `broker`: list, settings, log levels, log directories, decommissioning and unregistering.

mod api_versions;
mod decommission;
mod log_dirs;
mod log_level;

use clap::{Args, Subcommand};
use serde_json::json;
use thalweg_client::Admin;

use super::CommandFuture;
use super::config::BrokerConfig;
use super::connect::Connect;
use super::output::{Column, Output};

/// List brokers; change their settings, log levels and directories; take them out of the cluster.
#[derive(Subcommand, Debug)]
pub enum Broker {
    List(List),
    ApiVersions(api_versions::ApiVersions),
    #[command(subcommand)]
    Config(BrokerConfig),
    #[command(subcommand)]
    LogLevel(log_level::LogLevel),
    LogDirs(log_dirs::LogDirs),
    MoveReplica(log_dirs::MoveReplica),
    Decommission(decommission::Decommission),
    Unregister(decommission::Unregister),
}

impl Broker {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Broker::List(list) => list.run().await,
                Broker::ApiVersions(versions) => versions.run().await,
                Broker::Config(config) => config.run().await,
                Broker::LogLevel(level) => level.run().await,
                Broker::LogDirs(dirs) => dirs.run().await,
                Broker::MoveReplica(replica) => replica.run().await,
                Broker::Decommission(decommission) => decommission.run().await,
                Broker::Unregister(unregister) => unregister.run().await,
            }
        })
    }
}

/// List the brokers that are registered.
#[derive(Args, Debug)]
pub struct List {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: Output,
}

const COLUMNS: [Column<'_>; 5] =
    [("ID", "id"), ("ADDRESS", "address"), ("RACK", "rack"), ("STATE", "state"), ("ROLE", "role")];

impl List {
    async fn run(&self) -> anyhow::Result<()> {
        let cluster = Admin::new(self.connect.cluster().await?).describe_cluster().await?;
        let rows: Vec<serde_json::Value> = cluster
            .brokers
            .iter()
            .map(|broker| {
                json!({
                    "id": broker.id,
                    "address": broker.address(),
                    "rack": broker.rack,
                    "state": if cluster.fenced.contains(&broker.id) { "fenced" } else { "active" },
                    "role": if cluster.controller_id == Some(broker.id) { "controller" } else { "broker" },
                })
            })
            .collect();
        self.output.rows(&COLUMNS, &rows)
    }
}
