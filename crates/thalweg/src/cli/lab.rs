//! `lab`: the performance laboratory. One file per subcommand.

mod arguments;
mod calibrate;
mod compare;
mod doctor;
mod interrupt;
mod list;
mod output;
mod report;
mod rerun;
mod run;
mod show;
mod targets;
mod tune;

use clap::Subcommand;

use crate::cli::failure::Failed;

/// Measure how many events a cluster carries, how it scales, and what limits it.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab list                                             the workloads that are built in
  thalweg lab run quick                                        a first look, on a broker of this binary
  thalweg lab run ibm-fast --target embedded --target apache-kafka
  thalweg lab run my-workload.toml --bootstrap broker-1:9092,broker-2:9092
  thalweg lab compare before/result.json after/result.json
  thalweg lab doctor                                           what of this machine would matter

A run writes result.json and report.html to ./thalweg-results/<time>-<workloads>/.
Exit codes: 0 when all was measured and nothing contradicts it, 1 when something failed or faults were found, 2 when it was
asked for the wrong thing.")]
pub enum Lab {
    /// List the workloads that are built in.
    List(list::List),
    /// Show what a workload does: its points, settings and published figures.
    Show(show::Show),
    /// Run workloads on targets, and report.
    Run(run::Run),
    /// Measure the lab itself, against a server with a known service time.
    Calibrate(calibrate::Calibrate),
    /// Tune broker and client step by step, and keep what helps beyond the noise.
    Tune(tune::Tune),
    /// Say what of this machine and of a cluster's brokers would matter for the figures, and why.
    Doctor(doctor::Doctor),
    /// Compare two results: ratios with their confidence.
    Compare(compare::Compare),
    /// Write the report of a result anew.
    Report(report::Report),
    /// Run what a result holds again: the same workloads, settings and seed.
    Rerun(rerun::Rerun),
    /// Be a worker of a run: started by the lab, not by hand.
    #[command(hide = true)]
    Worker,
}

impl Lab {
    /// Does what was asked, where that needs no runtime of the command line's; none where it does.
    pub fn run_without_runtime(&self) -> Option<anyhow::Result<()>> {
        match self {
            // A worker makes the threads and runtimes that it needs. What went wrong it has told the lab.
            Lab::Worker => {
                Some(thalweg_lab::worker::serve().map_err(|error| Failed(error.to_string()).into()))
            }
            _ => None,
        }
    }

    /// Does what was asked.
    pub async fn run(&self) -> anyhow::Result<()> {
        match self {
            Lab::List(list) => list.run(),
            Lab::Show(show) => show.run(),
            Lab::Run(run) => run.run().await,
            Lab::Calibrate(calibrate) => calibrate.run().await,
            Lab::Tune(tune) => tune.run().await,
            Lab::Doctor(doctor) => doctor.run().await,
            Lab::Compare(compare) => compare.run(),
            Lab::Report(report) => report.run(),
            Lab::Rerun(rerun) => rerun.run().await,
            Lab::Worker => Ok(()),
        }
    }
}
