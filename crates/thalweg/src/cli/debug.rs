//! `debug`: what a bug report needs.

mod archive;
mod bundle;
mod layout;
mod parts;
mod secrets;

use clap::Subcommand;

/// Gather what a bug report needs.
#[derive(Subcommand, Debug)]
pub enum DebugCommand {
    /// Gather configuration, state, metrics and logs in one archive, without secrets.
    Bundle(bundle::Bundle),
}

impl DebugCommand {
    /// Runs the command.
    pub async fn run(&self) -> anyhow::Result<()> {
        match self {
            DebugCommand::Bundle(bundle) => bundle.run().await,
        }
    }
}
