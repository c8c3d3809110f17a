//! `stream`: its subcommands that run no stream in this process. One file per subcommand.

mod check;
mod modules;
mod remote;
mod rows;
pub mod text;
mod top;
mod verbs;

pub use check::Check;
use clap::Subcommand;
pub use modules::Modules;
pub(crate) use remote::{Http, RemoteHost};

use crate::CommandFuture;

/// Commands for the streams of a broker that hosts them.
#[derive(Subcommand, Debug)]
pub enum HostedCommand {
    Create(verbs::Create),
    Deploy(verbs::Deploy),
    /// Stop a stream cleanly, wherever it runs: messages in flight are delivered.
    Undeploy(verbs::NamedStream),
    /// Stop a stream cleanly, and delete it.
    Destroy(verbs::NamedStream),
    List(verbs::List),
    /// Show the state of a stream and the figures of its stages.
    Status(verbs::NamedStream),
    Top(top::Top),
}

impl HostedCommand {
    /// Runs the command, which contacts the host.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                HostedCommand::Create(create) => create.run().await,
                HostedCommand::Deploy(deploy) => deploy.run().await,
                HostedCommand::Undeploy(named) => named.undeploy().await,
                HostedCommand::Destroy(named) => named.destroy().await,
                HostedCommand::List(list) => list.run().await,
                HostedCommand::Status(named) => named.status().await,
                HostedCommand::Top(top) => top.run().await,
            }
        })
    }
}
