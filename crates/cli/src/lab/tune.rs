//! `lab tune`: searches for the best settings, one after the other.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use thalweg_lab::BoxFuture;
use thalweg_lab::result::{State, write_whole};
use thalweg_lab::run::Options;
use thalweg_lab::target::{TargetSpec, reach};
use thalweg_lab::terminal::Progress;
use thalweg_lab::tune::{self, Means, Operator, OperatorReply};
use thalweg_lab::worker::Driver;
use thalweg_lab::workload::Point;

use super::result_directory::ResultDirectory;
use super::run::{OmbDriver, RunDirectories, lab_version};
use super::targets::{SecurityArguments, Targets};
use super::{arguments, interrupt};
use crate::failure::{CommandFailure, Usage};
use crate::program::binary;

/// Tune broker and client step by step, and keep what helps beyond the noise.
///
/// Starting at the first point of a workload, each setting is tried on top of the best so far, in turns with
/// it: log.dirs, partitions, topics, batch.size, linger.ms, producers, compression.type, threads, socket
/// buffers, JVM options, fsync policy, buffer.memory; at the end all that gained too little alone, at once,
/// and with --manual what only an operator can change. A value is kept if it gains at least 2 % and the 95 %
/// interval of the gain is above zero. The report has the limit of the best and the p99 at each step.
/// tune.json is written after each value, marked partial until the end.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg lab tune                                         a broker of this binary, starting at the defaults
  thalweg lab tune --target apache-kafka --repetitions 5
  thalweg lab tune my-workload.toml --scale 0.5
  thalweg lab tune --log-dirs /disk-1/lab,/disk-2/lab      with the data on two disks
  thalweg lab tune --bootstrap broker-1:9092 --manual      and the MTU and kernel settings, which you change
  thalweg lab tune --bootstrap broker-1:9092               the clients only: a running cluster is not changed")]
pub struct Tune {
    /// A built-in workload, or a file; its first point is the base.
    #[arg(value_name = "NAME|FILE", default_value = "z-tuning")]
    workload: String,
    #[command(flatten)]
    targets: Targets,
    /// The client that produces.
    #[arg(long, value_name = "DRIVER", default_value = "thalweg")]
    driver: Driver,
    /// Multiply seconds and records by this factor.
    #[arg(long, value_name = "FACTOR")]
    scale: Option<f64>,
    /// Repetitions of each value, at least three: fewer have no interval.
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=100))]
    repetitions: u32,
    /// The random seed of payloads and keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Try only these settings, by their names in the report.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    settings: Vec<String>,
    /// Directories on different disks, which exist: tried as log.dirs of the brokers that the lab starts.
    #[arg(long, value_name = "DIR,...", value_delimiter = ',')]
    log_dirs: Vec<PathBuf>,
    /// Ask for changes of the machines, too: MTU, dirty pages, scheduler, huge pages. Each is shown as a
    /// command, and measured before and after; changes without a gain are undone.
    #[arg(long)]
    manual: bool,
    #[command(flatten)]
    security: SecurityArguments,
    #[command(flatten)]
    omb: OmbDriver,
    #[command(flatten)]
    directories: RunDirectories,
}

impl Tune {
    /// Searches for the best settings.
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        self.driver.check()?;
        self.omb.check(&[&self.workload])?;
        let loaded = self.omb.load(&self.workload, self.scale)?;
        let Some(mut base) = loaded.points.first().cloned() else {
            return Err(Usage(format!("{} has no point", self.workload)).into());
        };
        base.repetitions = self.repetitions;
        let targets = self.targets.specs()?.unwrap_or_else(|| vec![TargetSpec::Embedded]);
        self.security.check(&targets)?;
        self.security.apply(&mut base)?;
        let [target] = &targets[..] else {
            return Err(Usage(
                "only one target can be tuned at a time: use one --target, or --bootstrap".to_owned(),
            )
            .into());
        };
        if target.is_pulsar() {
            let message = "lab tune tries settings of Kafka's protocol: it cannot tune Apache Pulsar";
            return Err(Usage(message.to_owned()).into());
        }
        self.check_means(&base, target)?;
        reach(target).await?;
        let result_dir = ResultDirectory::make(self.directories.out.as_deref(), &["tune", &loaded.name])?;
        let work_dir = result_dir.work_dir(self.directories.work_dir.as_deref())?;
        let heard = interrupt::listen(None)?;
        let options = Options {
            workloads: Vec::new(),
            // A change of broker settings needs a second cluster, beside the cluster with the best settings.
            targets: vec![target.clone(), target.clone()],
            by_workload: false,
            drivers: vec![self.driver],
            precision: None,
            seed: self.seed,
            work_dir: work_dir.path().to_owned(),
            kafka: self.targets.kafka(&targets)?,
            binary: binary()?,
            agents: None,
            broker_agents: None,
            look_inside: false,
            partial: None,
            arguments: arguments::of_process(),
            lab_version: lab_version(),
        };
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        let operator: Option<&dyn Operator> = self.manual.then_some(&TerminalOperator);
        let means = Means { log_dirs: &self.log_dirs, settings: &self.settings, operator };
        let progress = Progress::new(tune::repetitions(&base, cpus, target, &means));
        let interim = result_dir.file("tune.json");
        let keep = |study: &tune::Study| {
            let written = serde_json::to_string_pretty(study).map_err(anyhow::Error::from);
            if let Err(error) = written.and_then(|json| write(&interim, &json)) {
                progress.log(&format!("Failed to save the study so far: {error}"));
            }
        };
        let study = tune::study(&options, &base, means, &heard, &progress, &keep).await;
        progress.finish();
        drop(work_dir);
        self.finish(&study, &result_dir)
    }

    /// Refuses what a study of the target cannot use.
    fn check_means(&self, base: &Point, target: &TargetSpec) -> Result<(), Usage> {
        let known = tune::settings(base, target);
        if let Some(unknown) = self.settings.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Usage(format!(
                "--settings {unknown} is no setting of a study: use {}",
                known.join(", ")
            )));
        }
        if !self.log_dirs.is_empty() && !target.is_started_by_lab() {
            let message =
                "--log-dirs is for brokers that the lab starts: the disks of a running cluster are its own";
            return Err(Usage(message.to_owned()));
        }
        for dir in &self.log_dirs {
            if !dir.is_absolute() || !dir.is_dir() {
                let dir = dir.display();
                return Err(Usage(format!(
                    "--log-dirs {dir} is no directory: use absolute paths of directories that exist"
                )));
            }
        }
        if self.manual && !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            let message = "--manual asks you for changes: run it on a terminal";
            return Err(Usage(message.to_owned()));
        }
        Ok(())
    }

    fn finish(&self, study: &tune::Study, result_dir: &ResultDirectory) -> anyhow::Result<()> {
        let result: PathBuf = result_dir.file("tune.json");
        let page = result_dir.file("tune.html");
        let json = serde_json::to_string_pretty(study)?;
        write(&result, &json)?;
        write(&page, &tune::html(study))?;
        self.directories.output.show(study, |style| {
            let table = tune::table(study, style.columns());
            let (page, result) = (page.display(), result.display());
            Ok(format!("\n{table}\nReport: {page}\nResult: {result}\n"))
        })?;
        match &study.state {
            State::Complete if study.losses() > 0 => {
                let message = format!("{} measurements lost acknowledged records", study.losses());
                Err(CommandFailure(message).into())
            }
            State::Complete => Ok(()),
            State::Partial { why } => Err(CommandFailure(format!("the study is incomplete: {why}")).into()),
        }
    }
}

/// The operator at the terminal.
struct TerminalOperator;

impl Operator for TerminalOperator {
    fn ask<'a>(&'a self, text: &'a str) -> BoxFuture<'a, OperatorReply> {
        let prompt = format!("\n{text}\nPress Enter when this is done, or type s to skip it: ");
        Box::pin(async move {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            // An interrupted study does not wait for the terminal, so that this is no task of the runtime.
            std::thread::spawn(move || {
                let mut reply = String::new();
                let _ = write!(std::io::stderr(), "{prompt}");
                let read = std::io::stdin().read_line(&mut reply);
                let is_done = read.is_ok_and(|bytes| bytes > 0) && reply.trim().is_empty();
                let _ = sender.send(if is_done { OperatorReply::Done } else { OperatorReply::Skip });
            });
            receiver.await.unwrap_or(OperatorReply::Skip)
        })
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    Ok(write_whole(path, text.as_bytes())?)
}
