//! `man`: a manual page for each command, from the same definitions as its help.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use serde_json::json;

use super::output::CommandOutput;

/// Write the manual pages of all commands to a directory.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg man --out /usr/local/share/man/man1
  thalweg man --out man && man -l man/thalweg-topic-create.1")]
pub struct Man {
    /// The directory, which is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    output: CommandOutput,
}

impl Man {
    /// Writes the pages of the root command and its subcommands.
    pub fn run(&self, whole: Command) -> anyhow::Result<()> {
        let failed = || format!("Cannot write manual pages to {}", self.out.display());
        std::fs::create_dir_all(&self.out).with_context(failed)?;
        clap_mangen::generate_to(whole, &self.out).with_context(failed)?;
        let document = json!({ "directory": self.out });
        self.output.show(&document, |_| Ok(format!("The pages are in {}.\n", self.out.display())))
    }
}
