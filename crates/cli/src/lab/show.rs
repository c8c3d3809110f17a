//! `lab show`: prints a workload.

use std::io::Write;

use clap::Args;
use thalweg_lab::workload;

use super::run::OmbDriver;
use crate::output::CommandOutput;

/// Show what a workload does: its points, settings and published figures.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab show ibm-fast
  thalweg lab show ibm-fast --toml > mine.toml      a template for your own workload
  thalweg lab show my-workload.toml --json")]
pub struct Show {
    /// A built-in workload, or a file.
    #[arg(value_name = "NAME|FILE")]
    workload: String,
    /// Print the file of a built-in workload.
    #[arg(long, conflicts_with_all = ["json", "format"])]
    toml: bool,
    #[command(flatten)]
    output: CommandOutput,
    #[command(flatten)]
    omb: OmbDriver,
}

impl Show {
    /// Prints the workload, with warnings about oddities.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        self.omb.check(&[&self.workload])?;
        let loaded = self.omb.load(&self.workload, None)?;
        if self.toml {
            let source = match workload::source(&self.workload) {
                Some(source) => source.to_owned(),
                None => std::fs::read_to_string(&self.workload)?,
            };
            return Ok(std::io::stdout().lock().write_all(source.as_bytes())?);
        }
        self.output.show(&loaded, |_| Ok(workload::describe(&loaded)))
    }
}
