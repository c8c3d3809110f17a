//! `lab show`.

use std::io::Write;

use clap::Args;
use thalweg_lab::workload;

use super::run::OmbDriver;

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
    /// Print all its points as one JSON object, with all defaults.
    #[arg(long, conflicts_with = "toml")]
    json: bool,
    /// Print the file of a built-in workload.
    #[arg(long)]
    toml: bool,
    #[command(flatten)]
    omb: OmbDriver,
}

impl Show {
    /// Shows it.
    pub fn run(&self) -> anyhow::Result<()> {
        self.omb.check(&[&self.workload])?;
        let loaded = self.omb.load(&self.workload, None)?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&loaded)?)?;
        } else if self.toml {
            match workload::source(&self.workload) {
                Some(source) => write!(out, "{source}")?,
                None => write!(out, "{}", std::fs::read_to_string(&self.workload)?)?,
            }
        } else {
            write!(out, "{}", workload::describe(&loaded))?;
        }
        Ok(())
    }
}
