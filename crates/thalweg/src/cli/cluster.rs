//! `cluster`: a local cluster to try, and how any cluster is.

mod health;
mod json;
mod report;
mod status;
mod up;
mod views;

use clap::Subcommand;

/// Start a local cluster of several brokers, or look at how a cluster is.
#[derive(Subcommand, Debug)]
pub enum Cluster {
    /// Start a cluster of brokers on this machine, until Ctrl-C.
    Up(up::Up),
    /// Ask every broker: who answers, partitions without a leader or replicas, the quorum. The exit code is the health.
    Status(status::Show),
}

impl Cluster {
    /// Runs the command.
    pub async fn run(&self) -> anyhow::Result<()> {
        match self {
            Cluster::Up(up) => up.run().await,
            Cluster::Status(status) => status.run().await,
        }
    }
}
