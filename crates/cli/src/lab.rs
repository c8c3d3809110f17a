//! `lab`: the performance laboratory. One file per subcommand.

mod agent;
mod agent_certificates;
mod agents;
mod arguments;
mod calibrate;
mod compare;
mod control;
mod doctor;
mod interrupt;
mod list;
mod report;
mod rerun;
mod result_directory;
mod run;
mod show;
mod targets;
mod trend;
mod tune;

use clap::Subcommand;

use crate::CommandFuture;
use crate::failure::CommandFailure;

/// Measure how many events a cluster carries, how it scales, and what limits it.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab list                                             built-in workloads
  thalweg lab run quick                                        a first look, on a broker of this binary
  thalweg lab run ibm-fast --target embedded --target apache-kafka
  thalweg lab run my-workload.toml --bootstrap broker-1:9092,broker-2:9092
  thalweg lab run ibm-fast --agents client-1:7000,client-2:7000 --agent-certificates certs --bootstrap broker-1:9092
  thalweg lab compare before/result.json after/result.json
  thalweg lab doctor                                           settings of this machine that matter

A run writes result.json and report.html to ./thalweg-results/<time>-<workloads>/.
Exit codes: 0 if everything was measured and the evidence is clean, 1 after failures or faults, 2 for invalid \
arguments.")]
pub enum Lab {
    List(list::List),
    Show(show::Show),
    Run(run::Run),
    Calibrate(calibrate::Calibrate),
    Tune(tune::Tune),
    Doctor(doctor::Doctor),
    Compare(compare::Compare),
    Trend(trend::TrendCommand),
    Report(report::Report),
    Rerun(rerun::Rerun),
    Agent(agent::Agent),
    AgentCertificates(agent_certificates::AgentCertificates),
    /// Internal: a worker process of a run.
    #[command(hide = true)]
    Worker(Worker),
}

/// The arguments of a worker.
#[derive(clap::Args, Debug)]
pub struct Worker {
    /// Internal: microseconds from the kernel's monotonic clock to the lab's clock.
    #[arg(long, hide = true, allow_negative_numbers = true)]
    clock_ahead_us: Option<i64>,
}

impl Lab {
    /// Runs the command: a worker in this call, any other by `run_tool`.
    pub fn run(&self, run_tool: impl FnOnce(CommandFuture<'_>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let tool: CommandFuture<'_> = match self {
            // A worker creates its own threads and runtimes, and has already reported its errors to the lab.
            Lab::Worker(worker) => {
                return thalweg_lab::worker::serve(worker.clock_ahead_us)
                    .map_err(|error| CommandFailure(error.to_string()).into());
            }
            Lab::List(list) => Box::pin(async { list.run() }),
            Lab::Show(show) => Box::pin(async { show.run() }),
            Lab::Run(run) => Box::pin(run.run()),
            Lab::Calibrate(calibrate) => Box::pin(calibrate.run()),
            Lab::Tune(tune) => Box::pin(tune.run()),
            Lab::Doctor(doctor) => Box::pin(doctor.run()),
            Lab::Compare(compare) => Box::pin(async { compare.run() }),
            Lab::Trend(trend) => Box::pin(async { trend.run() }),
            Lab::Report(report) => Box::pin(async { report.run() }),
            Lab::Rerun(rerun) => Box::pin(rerun.run()),
            Lab::Agent(agent) => Box::pin(agent.run()),
            Lab::AgentCertificates(certificates) => Box::pin(async { certificates.run() }),
        };
        run_tool(tool)
    }
}
