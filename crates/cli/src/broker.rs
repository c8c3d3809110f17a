//! `broker`: list, clients, settings, log levels, log directories, decommissioning and unregistering.

mod api_versions;
mod clients;
mod decommission;
mod list;
mod log_dirs;
mod log_level;

use clap::Subcommand;

use super::CommandFuture;
use super::config::BrokerConfig;

/// List brokers and their clients; change their settings, log levels and directories; take them out of the
/// cluster.
#[derive(Subcommand, Debug)]
pub enum Broker {
    List(list::List),
    ApiVersions(api_versions::ApiVersions),
    Clients(clients::Clients),
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
                Broker::Clients(clients) => clients.run().await,
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
