//! `lab run`.

use std::path::{Path, PathBuf};

use clap::Args;
use thalweg_lab::run::{Options, repetitions, run};
use thalweg_lab::target::TargetSpec;
use thalweg_lab::terminal::Progress;
use thalweg_lab::worker::Driver;
use thalweg_lab::workload::{self, STAMP_BYTES, Workload};

use super::output::{Output, WorkDir};
use super::targets::{Drivers, Targets};
use super::{arguments, interrupt};
use crate::cli::failure::Usage;

/// Run workloads on targets, and report.
///
/// Targets and drivers take turns, repetition by repetition, so that what the machine does over time falls on all alike.
/// Each is warmed up once before anything counts. A point that a target cannot run is noted, and the run goes on.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab run ibm-payload                                   on a broker of this binary
  thalweg lab run ibm-fast queue-kafka --target embedded --target apache-kafka
  thalweg lab run ibm-fast --points '1 broker' --repetitions 5
  thalweg lab run xd-kafka --target apache-kafka --scale 0.1    a tenth of the records, said in the report
  thalweg lab run ibm-fast --verify                             reads everything back and checks it
  thalweg lab run mine.toml --bootstrap b1:9092,b2:9092 --property security.protocol=PLAINTEXT
  thalweg lab run ibm-fast --driver thalweg --driver librdkafka --target apache-kafka

`thalweg lab list` names the workloads, `thalweg lab show NAME --toml` is a start for one's own.")]
pub struct Run {
    /// Workloads: names of those that are built in, or files (.toml, or OpenMessaging's .yaml).
    #[arg(required = true, value_name = "NAME|FILE")]
    workloads: Vec<String>,
    #[command(flatten)]
    pub targets: Targets,
    #[command(flatten)]
    pub drivers: Drivers,
    /// Multiplies records, seconds and rates: a smaller machine, or a longer look.
    #[arg(long, value_name = "FACTOR")]
    scale: Option<f64>,
    /// Repetitions of each point [default: as the workload says].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// The seed of payloads and keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Reads all records back and checks that each is there once, whole, and in order.
    #[arg(long)]
    verify: bool,
    /// Only points whose label holds this text; given again, those of any.
    #[arg(long, value_name = "TEXT")]
    points: Vec<String>,
    #[command(flatten)]
    pub place: Place,
}

/// Where results and brokers go.
#[derive(Args, Debug, Clone)]
pub struct Place {
    /// Where result.json and report.html go [default: ./thalweg-results/TIME-WORKLOADS].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where brokers have their data: the disk that is measured [default: in the folder of the result].
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
    /// The result on standard output, as JSON in place of a table.
    #[arg(long)]
    pub json: bool,
}

impl Run {
    /// Does it.
    pub async fn run(&self) -> anyhow::Result<()> {
        let mut workloads = Vec::new();
        for name in &self.workloads {
            workloads.push(self.load(name)?);
        }
        measure(
            workloads,
            self.targets.specs()?,
            self.drivers.all(),
            self.seed,
            &self.place,
            arguments::of_process(),
        )
        .await
    }

    fn load(&self, name: &str) -> anyhow::Result<Workload> {
        let mut loaded = workload::load(name, self.scale)?;
        for warning in workload::warnings(&loaded) {
            tracing::warn!("{name}: {warning}");
        }
        let labels: Vec<String> = loaded.points.iter().map(|point| point.label.clone()).collect();
        if !self.points.is_empty() {
            loaded.points.retain(|point| self.points.iter().any(|text| point.label.contains(text.as_str())));
        }
        if loaded.points.is_empty() {
            let message = format!("--points leaves nothing of {name}: its points are {}", labels.join(", "));
            return Err(Usage(message).into());
        }
        for point in &mut loaded.points {
            point.repetitions = self.repetitions.unwrap_or(point.repetitions);
            point.verify |= self.verify;
            if point.verify && (point.records.size_bytes as usize) < STAMP_BYTES as usize {
                let message = format!(
                    "--verify needs values of {STAMP_BYTES} bytes at the least: {name}, {}, has {}",
                    point.label, point.records.size_bytes
                );
                return Err(Usage(message).into());
            }
        }
        Ok(loaded)
    }
}

/// Takes a run from its beginning to its report.
pub async fn measure(
    workloads: Vec<Workload>,
    targets: Vec<TargetSpec>,
    drivers: Vec<Driver>,
    seed: u64,
    place: &Place,
    arguments: Vec<String>,
) -> anyhow::Result<()> {
    let names: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    let output = Output::make(place.out.as_deref(), &names)?;
    let work_dir: WorkDir = output.work_dir(place.work_dir.as_deref())?;
    let heard = interrupt::listen()?;
    let options = Options {
        workloads,
        targets,
        drivers,
        seed,
        work_dir: work_dir.path().to_owned(),
        binary: binary()?,
        partial: Some(output.result()),
        arguments,
        lab_version: lab_version(),
    };
    let progress = Progress::new(repetitions(&options));
    let result = run(&options, &heard, &progress).await;
    progress.finish();
    drop(work_dir);
    output.tell(&result, place.json)
}

/// This program: it is worker and embedded broker too.
pub fn binary() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    // A binary that was built anew while it runs has this behind its name; the new one would be another.
    match binary.to_str().and_then(|path| path.strip_suffix(" (deleted)")) {
        Some(path) => {
            anyhow::bail!("{} was replaced while it ran: start the lab again", Path::new(path).display())
        }
        None => Ok(binary),
    }
}

/// Version of this program, with the commit where the build was told it.
pub fn lab_version() -> String {
    match option_env!("THALWEG_COMMIT") {
        Some(commit) => format!("thalweg {} ({commit})", env!("CARGO_PKG_VERSION")),
        None => format!("thalweg {}", env!("CARGO_PKG_VERSION")),
    }
}
