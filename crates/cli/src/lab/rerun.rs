//! `lab rerun`: repeats the run of a result.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use thalweg_lab::result;
use thalweg_lab::workload::Workload;

use super::Lab;
use super::arguments::HIDDEN;
use super::run::{MeasureOptions, ProgressForm, RunDirectories, measure};
use crate::failure::Usage;
use crate::global::GlobalOptions;

/// Repeat the run of a result: the same workloads, settings, targets, drivers and seed.
///
/// The workloads are read from the result, not from their files.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab rerun result.json
  thalweg lab rerun result.json --out again && thalweg lab compare result.json again/result.json")]
pub struct Rerun {
    /// The result of the run to repeat.
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// A client setting that the result lacks because it is secret; can be repeated.
    #[arg(long = "property", value_name = "KEY=VALUE")]
    properties: Vec<String>,
    #[command(flatten)]
    directories: RunDirectories,
}

/// The command line of a result.
#[derive(Parser, Debug)]
struct Line {
    #[command(flatten)]
    _global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

/// The commands that write one.
#[derive(Subcommand, Debug)]
enum Command {
    #[command(subcommand)]
    Lab(Lab),
}

impl Rerun {
    /// Repeats the run of a result.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let before = result::read(&self.result)?;
        let arguments = before.arguments.iter().map(|argument| self.with_secret(argument));
        let line = std::iter::once("thalweg".to_owned()).chain(arguments);
        let not_a_run = || Usage(format!("{} was not written by `thalweg lab run`", self.result.display()));
        let parsed = Line::try_parse_from(line).map_err(|_| not_a_run())?;
        let Command::Lab(Lab::Run(run)) = parsed.command else {
            return Err(not_a_run().into());
        };
        let workloads: Vec<Workload> = before.workloads.into_iter().map(|run| run.workload).collect();
        let (targets, drivers) = (run.targets.of(&workloads)?, run.drivers.all());
        // Store the arguments, so that the new result can be repeated, too.
        let wanted = MeasureOptions {
            kafka: run.targets.kafka(&targets.specs)?,
            agents: run.agents.clone(),
            broker_agents: run.broker_agents.clone(),
            look_inside: run.look_inside,
            directories: &self.directories,
            omb_result: run.omb_result.omb_result,
            precision: run.precision(),
            progress: ProgressForm::Text,
            control: None,
        };
        measure(workloads, targets, drivers, before.seed, wanted, before.arguments).await
    }

    /// An argument with its secret restored.
    fn with_secret(&self, argument: &str) -> String {
        let Some(setting) = argument.strip_suffix(HIDDEN) else { return argument.to_owned() };
        let given = self.properties.iter().find_map(|property| {
            let (key, value) = property.split_once('=')?;
            setting
                .strip_prefix("--property=")
                .unwrap_or(setting)
                .strip_suffix('=')
                .filter(|name| *name == key)?;
            Some(format!("{setting}{value}"))
        });
        given.unwrap_or_else(|| argument.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_line_with_a_look_inside_is_read() {
        let line = Line::try_parse_from(["thalweg", "lab", "run", "quick", "--look-inside"]).expect("valid");
        let Command::Lab(Lab::Run(run)) = line.command else { panic!("it is a run") };
        assert!(run.look_inside);
    }
}
