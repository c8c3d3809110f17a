//! `lab calibrate`: measures a server with known latency and rate, to check the lab's own measurements.

use std::io::Write;

use clap::Args;
use thalweg_lab::calibrate::{ErrorTolerance, Extent, Plan, run};
use thalweg_lab::worker::Driver;

use super::agents::AgentArguments;
use crate::failure::CommandFailure;
use crate::output::CommandOutput;
use crate::program::binary;

/// Measure the lab itself, against a server with a known service time.
///
/// A server of the lab answers after known times, at a known rate, with stalls at known moments. The workers'
/// measurements are compared with the true values: percentiles may differ by 2 %, the knee by 5 %. With
/// agents, the workers are theirs, and the clocks of different machines are in the latencies end to end.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab calibrate
  thalweg lab calibrate --reduced                 fewer records: about a minute
  thalweg lab calibrate --agents client-1:7000,client-2:7000 --agent-certificates certs
  thalweg lab calibrate --driver librdkafka --json      if this binary was built with it")]
pub struct Calibrate {
    /// The driver to calibrate.
    #[arg(long, value_name = "DRIVER", default_value = "thalweg")]
    driver: Driver,
    /// Fewer records and longer service times, for a quick check and small machines.
    #[arg(long)]
    reduced: bool,
    #[command(flatten)]
    agents: AgentArguments,
    #[command(flatten)]
    output: CommandOutput,
}

impl Calibrate {
    /// Runs the calibration.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        self.driver.check()?;
        let plan = Plan {
            binary: binary()?,
            agents: self.agents.connect_all().await?,
            driver: self.driver,
            extent: if self.reduced { Extent::Reduced } else { Extent::Full },
            limits: ErrorTolerance::default(),
        };
        let mut stderr = std::io::stderr();
        let calibration = run(&plan, |line| {
            // Unread progress must not end a calibration.
            let _ = writeln!(stderr, "{line}");
        });
        let calibration = calibration.await?;
        self.output.show(&calibration, |_| Ok(format!("{calibration}\n")))?;
        let faults = calibration.faults();
        if faults.is_empty() { Ok(()) } else { Err(CommandFailure(faults.join("; ")).into()) }
    }
}
