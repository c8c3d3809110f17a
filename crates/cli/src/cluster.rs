//! `cluster`: a local cluster for trials, and the health of any cluster.

mod health;
mod json;
mod nodes;
mod report;
mod state;
mod status;
mod up;
mod views;

use clap::Subcommand;
pub(crate) use nodes::is_throttled;
pub(crate) use state::Reassignment;
pub(crate) use status::{min_isr, quorum, reassignments, state};

use crate::CommandFuture;

/// Start a local cluster of several brokers, or show the health of a cluster.
#[derive(Subcommand, Debug)]
pub enum Cluster {
    Up(up::UpCommand),
    #[command(visible_alias = "health")]
    Status(status::Show),
}

impl Cluster {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                Cluster::Up(up) => up.run().await,
                Cluster::Status(status) => status.run().await,
            }
        })
    }
}
