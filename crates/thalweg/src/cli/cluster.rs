//! `cluster`: a local cluster to try, and how any cluster is.

mod report;
mod status;
mod up;

use clap::Subcommand;

/// Start a local cluster of several brokers, or look at how a cluster is.
#[derive(Subcommand, Debug)]
pub enum Cluster {
    /// Start a cluster of brokers on this machine, until Ctrl-C.
    Up(up::Up),
    /// Show brokers, leaders, partitions that lack replicas, reassignments, and the controllers' quorum.
    Status(status::Show),
}

impl Cluster {
    /// Does what was asked.
    pub async fn run(&self) -> anyhow::Result<()> {
        match self {
            Cluster::Up(up) => up.run().await,
            Cluster::Status(status) => status.run().await,
        }
    }
}
