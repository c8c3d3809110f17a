//! `lab run`: runs workloads against targets.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use thalweg_lab::agent::Agents;
use thalweg_lab::quantity;
use thalweg_lab::run::estimate::estimate;
use thalweg_lab::run::{Options, Precision, drivers_of, repetitions, run, spread_producers};
use thalweg_lab::target::{KafkaOptions, reach};
use thalweg_lab::terminal::Progress;
use thalweg_lab::worker::Driver;
use thalweg_lab::workload::{self, STAMP_BYTES, Verification, Workload};

use super::agents::{AgentArguments, BrokerAgentArguments, in_a_line};
use super::result_directory::{ResultDirectory, WorkDir};
use super::targets::{Drivers, NodeArguments, RunTargets, SecurityArguments, Targets};
use super::{arguments, control, interrupt};
use crate::failure::Usage;
use crate::output::CommandOutput;
use crate::program::{binary, fingerprint};

/// Run workloads on targets, and write a report.
///
/// Targets and drivers take turns after each repetition, so that changes of the machine affect all alike.
/// Each is warmed up once before the first counted repetition. A point that a target cannot run is marked as
/// failed, and the run continues.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab run ibm-payload                                   on a broker of this binary
  thalweg lab run ibm-fast ibm-payload --target embedded --target apache-kafka
  thalweg lab run queue                                         Apache Kafka, Thalweg and Apache Pulsar in turns
  thalweg lab run ibm-payload --target pulsar                   Apache Pulsar, from PULSAR_HOME
  thalweg lab run ibm-fast --points '1 broker' --repetitions 5
  thalweg lab run xd-kafka --target apache-kafka --scale 0.1    a tenth of the records, noted in the report
  thalweg lab run ibm-fast --verify whole                       reads everything back, without a time limit
  thalweg lab run mine.toml --bootstrap b1:9092,b2:9092 --property security.protocol=PLAINTEXT
  thalweg lab run ibm-fast --security-protocol SASL_SSL         over TLS, with a login
  thalweg lab run ibm-fast --driver thalweg --driver java --target apache-kafka
  thalweg lab run ibm-fast --target apache-kafka --look-inside  threads, contended locks, flame graphs
  thalweg lab run ibm-fast --agents c1:7000,c2:7000 --agent-certificates certs --bootstrap b1:9092    clients elsewhere
  thalweg lab run ibm-fast --bootstrap b1:9092 --broker-agents b1:7000 --agent-certificates certs     watches the broker's machine
  thalweg lab run 1-topic.yaml --omb-driver kafka.yaml --omb-result --bootstrap b1:9092     OpenMessaging Benchmark's files

`thalweg lab list` names the workloads, `thalweg lab show NAME --toml` is a template for your own.")]
pub struct Run {
    /// Workloads: built-in names, or files (.toml, or .yaml of the OpenMessaging Benchmark).
    #[arg(required = true, value_name = "NAME|FILE")]
    workloads: Vec<String>,
    #[command(flatten)]
    pub(crate) targets: Targets,
    #[command(flatten)]
    pub(crate) drivers: Drivers,
    /// Multiply records, seconds and rates by this factor.
    #[arg(long, value_name = "FACTOR")]
    scale: Option<f64>,
    /// Repetitions of each point [default: set by the workload].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    #[command(flatten)]
    precision: PrecisionArguments,
    /// The random seed of payloads and keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Records that are read back and checked after a measurement: none, as many as fit into about the time
    /// of the measurement, or all [default: set by the workload, or else bounded].
    #[arg(long, value_name = "HOW")]
    verify: Option<Verification>,
    /// Run only points whose label contains this text; can be repeated, for any of several texts.
    #[arg(long, value_name = "TEXT")]
    points: Vec<String>,
    #[command(flatten)]
    security: SecurityArguments,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    pub(crate) agents: AgentArguments,
    #[command(flatten)]
    pub(crate) broker_agents: BrokerAgentArguments,
    /// Look inside the processes on this machine: threads and their context switches, the locks of brokers
    /// that are JVMs, the waits in brokers of Thalweg, and flame graphs of brokers, which need `perf` or a
    /// JDK.
    #[arg(long)]
    pub(crate) look_inside: bool,
    #[command(flatten)]
    omb: OmbDriver,
    #[command(flatten)]
    pub(crate) omb_result: OmbResult,
    /// Form of progress on standard error: for people, animated on a terminal; or as one JSON object a
    /// line.
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    progress: ProgressForm,
    /// Internal: standard input has a line of client settings in JSON, and the run ends when it closes.
    #[arg(long, hide = true)]
    controlled: bool,
    #[command(flatten)]
    pub(crate) directories: RunDirectories,
}

/// The form of progress output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// Bars on a terminal, lines elsewhere.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The number of repetitions.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct PrecisionArguments {
    /// With several targets: repetitions go on until the 95 % interval of their paired ratio is within this
    /// many percent of it, or --repetitions-max is reached.
    #[arg(long, value_name = "PERCENT", default_value_t = Precision::DEFAULT.half_width * 100.0, value_parser = percent)]
    precision: f64,
    /// The most repetitions of each point [default: 10, or --repetitions if it is given].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions_max: Option<u32>,
}

impl PrecisionArguments {
    /// The precision, for a given number of repetitions.
    fn of(&self, repetitions: Option<u32>) -> Precision {
        let most = self.repetitions_max.or(repetitions).unwrap_or(Precision::DEFAULT.repetitions_max);
        Precision { half_width: self.precision / 100.0, repetitions_max: most }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse().ok();
    percent
        .filter(|percent| (0.1..=100.0).contains(percent))
        .ok_or_else(|| "use a number from 0.1 to 100".to_owned())
}

/// The driver file of the OpenMessaging Benchmark.
#[derive(Args, Debug, Clone)]
pub(crate) struct OmbDriver {
    /// The Kafka driver file of the OpenMessaging Benchmark, for its workloads (.yaml): replicas, and
    /// settings of topics and clients. Its bootstrap.servers is ignored; use --bootstrap.
    #[arg(long, value_name = "FILE.yaml")]
    omb_driver: Option<PathBuf>,
}

impl OmbDriver {
    /// A workload, by name or file.
    pub fn load(&self, name: &str, scale: Option<f64>) -> anyhow::Result<Workload> {
        Ok(workload::load_with(name, self.omb_driver.as_deref(), scale)?)
    }

    /// Rejects a driver file if no workload uses it.
    pub fn check(&self, names: &[&str]) -> anyhow::Result<()> {
        if let Some(path) = &self.omb_driver
            && !names.iter().any(|name| workload::is_openmessaging(name))
        {
            let message = format!(
                "--omb-driver {} has no effect: it needs a .yaml workload of the OpenMessaging Benchmark",
                path.display()
            );
            return Err(Usage(message).into());
        }
        Ok(())
    }
}

/// Results for the tools of the OpenMessaging Benchmark.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct OmbResult {
    /// Also write a result in the OpenMessaging Benchmark's format for each point: omb-*.json beside
    /// result.json.
    #[arg(long)]
    pub omb_result: bool,
}

/// Directories of results and brokers, and the form of the printed summary.
#[derive(Args, Debug, Clone)]
pub(crate) struct RunDirectories {
    /// The directory for result.json and report.html [default: ./thalweg-results/TIME-WORKLOADS].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The directory for the brokers' data, on the disk to measure [default: below --out].
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: CommandOutput,
}

impl Run {
    /// Runs the workloads, and writes result and report.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        self.omb.check(&names)?;
        let mut workloads = Vec::new();
        for name in names {
            workloads.push(self.load(name)?);
        }
        let mut targets = self.targets.of(&workloads)?;
        let control = self.controlled.then(control::take).transpose()?;
        let control = control.map(|(settings, end)| {
            settings.apply(&mut targets.specs);
            end
        });
        self.security.check(&targets.specs)?;
        self.node.check(&targets.specs)?;
        let kafka = self.targets.kafka(&targets.specs)?;
        measure(
            workloads,
            targets,
            self.drivers.all(),
            self.seed,
            MeasureOptions {
                kafka,
                agents: self.agents.clone(),
                broker_agents: self.broker_agents.clone(),
                look_inside: self.look_inside,
                directories: &self.directories,
                omb_result: self.omb_result.omb_result,
                precision: self.precision(),
                progress: self.progress,
                control,
            },
            arguments::of_process(),
        )
        .await
    }

    /// The wanted precision of the ratios of targets.
    pub(crate) fn precision(&self) -> Precision {
        self.precision.of(self.repetitions)
    }

    fn load(&self, name: &str) -> anyhow::Result<Workload> {
        let mut loaded = self.omb.load(name, self.scale)?;
        // Oddities of a built-in workload are part of its publication; `lab show` prints them.
        if !workload::names().contains(&name) {
            for warning in workload::warnings(&loaded) {
                tracing::warn!("{name}: {warning}");
            }
        }
        // --points selects by the labels that `lab show` prints, not by those of the scaled points.
        let labels: Vec<String> = match self.scale {
            Some(_) => self.omb.load(name, None)?.points,
            None => loaded.points.clone(),
        }
        .into_iter()
        .map(|point| point.label)
        .collect();
        if !self.points.is_empty() {
            let is_chosen = |label: &String| self.points.iter().any(|text| label.contains(text.as_str()));
            let mut chosen = labels.iter().map(is_chosen);
            loaded.points.retain(|_| chosen.next().unwrap_or_default());
        }
        if loaded.points.is_empty() {
            let message = format!("--points selects nothing of {name}: its points are {}", labels.join(", "));
            return Err(Usage(message).into());
        }
        for point in &mut loaded.points {
            point.repetitions = self.repetitions.unwrap_or(point.repetitions);
            point.verify = self.verify.unwrap_or(point.verify);
            self.security.apply(point)?;
            self.node.apply(point);
            if point.verify == Verification::Whole && point.records.size_bytes < STAMP_BYTES {
                let message = format!(
                    "--verify whole needs values of at least {STAMP_BYTES} bytes: {name}, {}, has {}",
                    point.label, point.records.size_bytes
                );
                return Err(Usage(message).into());
            }
        }
        Ok(loaded)
    }
}

/// The wanted output of a run, and its control.
#[derive(Debug)]
pub(crate) struct MeasureOptions<'a> {
    /// How the target apache-kafka is started.
    pub kafka: KafkaOptions,
    /// The agents that run the clients.
    pub agents: AgentArguments,
    /// The agents that watch the machines of a running cluster's brokers.
    pub broker_agents: BrokerAgentArguments,
    /// True to look inside processes.
    pub look_inside: bool,
    /// The directories of results and brokers.
    pub directories: &'a RunDirectories,
    /// True to also write results for the tools of the OpenMessaging Benchmark.
    pub omb_result: bool,
    /// The wanted precision of the ratios of targets.
    pub precision: Precision,
    /// The form of progress output.
    pub progress: ProgressForm,
    /// The end of the controlling process, if any.
    pub control: Option<control::End>,
}

/// Runs the workloads and writes the report.
pub(crate) async fn measure(
    mut workloads: Vec<Workload>,
    mut targets: RunTargets,
    drivers: Vec<Driver>,
    seed: u64,
    mut wanted: MeasureOptions<'_>,
    arguments: Vec<String>,
) -> anyhow::Result<()> {
    for driver in workloads.iter().flat_map(|workload| drivers_of(&drivers, workload)) {
        driver.check()?;
    }
    wanted.broker_agents.check(&targets.specs, &wanted.agents)?;
    targets.leave_out_missing(&wanted.kafka).await?;
    for target in &targets.specs {
        reach(target).await?;
    }
    let agents = wanted.agents.connect(&targets.specs, &workloads).await?;
    let broker_agents = wanted.broker_agents.connect(&wanted.agents).await?;
    if agents.is_some() {
        workloads.iter_mut().for_each(spread_producers);
    }
    let directories = wanted.directories;
    let names: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    let result_dir = ResultDirectory::make(directories.out.as_deref(), &names)?;
    let work_dir: WorkDir = result_dir.work_dir(directories.work_dir.as_deref())?;
    let heard = interrupt::listen(wanted.control.take())?;
    let options = Options {
        workloads,
        targets: targets.specs,
        by_workload: targets.by_workload,
        drivers,
        precision: Some(wanted.precision),
        seed,
        work_dir: work_dir.path().to_owned(),
        kafka: wanted.kafka.clone(),
        binary: binary()?,
        agents,
        broker_agents,
        look_inside: wanted.look_inside,
        partial: Some(result_dir.result()),
        arguments,
        lab_version: lab_version(),
    };
    let all = repetitions(&options);
    let progress = match wanted.progress {
        ProgressForm::Text => Progress::new(all),
        ProgressForm::Json => Progress::events(all, std::io::stderr()),
    };
    let more = match options.targets.len() {
        0 | 1 => String::new(),
        _ => format!(
            "; repetitions go on, up to {}, until ratios are known to ± {} %",
            wanted.precision.repetitions_max,
            quantity::round(wanted.precision.half_width * 100.0)
        ),
    };
    log_agents(&options, &progress);
    progress.log(&format!("Estimated run: {}{more}", estimate(&options)));
    let result = run(&options, &heard, &progress).await;
    progress.finish();
    drop(work_dir);
    result_dir.finish(&result, &directories.output, wanted.omb_result)
}

/// Logs the agents of a run.
fn log_agents(options: &Options, progress: &Progress) {
    for (kind, agents) in [("Agent", &options.agents), ("Broker agent", &options.broker_agents)] {
        for agent in agents.iter().flat_map(Agents::infos) {
            progress.log(&in_a_line(kind, &agent));
        }
    }
    if options.look_inside && (options.agents.is_some() || options.broker_agents.is_some()) {
        progress.log(
            "--look-inside sees the processes of this machine only: agents do not look inside theirs yet",
        );
    }
}

/// The version of this program, with the commit if known at build time.
pub(crate) fn lab_version() -> String {
    match option_env!("THALWEG_COMMIT") {
        Some(commit) => format!("thalweg {} ({commit})", env!("CARGO_PKG_VERSION")),
        None => format!("thalweg {}", env!("CARGO_PKG_VERSION")),
    }
}

/// The version that lab and agents have in common: the assignments of workers have no versions, so that
/// builds without a commit must be the same file.
pub(crate) fn exact_version() -> anyhow::Result<String> {
    match option_env!("THALWEG_COMMIT").filter(|commit| !commit.ends_with("-dirty")) {
        Some(_) => Ok(lab_version()),
        None => Ok(format!("{}, build {}", lab_version(), fingerprint()?)),
    }
}
