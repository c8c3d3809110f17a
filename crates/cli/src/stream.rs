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
pub use remote::Http;

use crate::Boxed;

/// Commands for the streams of a broker that hosts them.
#[derive(Subcommand, Debug)]
pub enum Hosted {
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

impl Hosted {
    /// Runs the command, which contacts the host.
    pub fn run(&self) -> Boxed<'_> {
        Box::pin(async move {
            match self {
                Hosted::Create(create) => create.run().await,
                Hosted::Deploy(deploy) => deploy.run().await,
                Hosted::Undeploy(named) => named.undeploy().await,
                Hosted::Destroy(named) => named.destroy().await,
                Hosted::List(list) => list.run().await,
                Hosted::Status(named) => named.status().await,
                Hosted::Top(top) => top.run().await,
            }
        })
    }
}
