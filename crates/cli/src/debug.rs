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
