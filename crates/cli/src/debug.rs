//! `debug`: archives for bug reports.

mod archive;
mod bundle;
mod layout;
mod parts;
mod secrets;

use clap::Subcommand;

use crate::CommandFuture;

/// Gather what a bug report needs.
#[derive(Subcommand, Debug)]
pub enum DebugCommand {
    Bundle(bundle::Bundle),
}

impl DebugCommand {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(async move {
            match self {
                DebugCommand::Bundle(bundle) => bundle.run().await,
            }
        })
    }
}
