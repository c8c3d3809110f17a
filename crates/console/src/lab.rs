//! The lab in the console: starts a workload, shows the progress, and reads the results.
//!
//! The lab is a separate process of the same program (`thalweg lab`), because a measurement takes memory and
//! threads that a broker should not share, and must be killable. This module owns that process, one at a
//! time, and the directory of results, but does not parse results: `thalweg lab` itself writes reports and
//! comparisons.

mod program;
mod results;
mod run;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cluster::fresh::CachedReading;
use crate::cluster::now_ms;
use crate::problem::Problem;
use crate::settings::LabSettings;
use program::Program;
use run::{Order, Run};

pub use results::ResultLine;
pub use run::{Phase, RatePoint, RunState, Second};

/// The built-in workloads do not change while the program runs.
const WORKLOADS_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// Valid scale factors of a workload.
const SCALE: std::ops::RangeInclusive<f64> = 0.001..=10.0;
const REPETITIONS_MAX: u32 = 20;

/// The lab of a console: at most one run at a time, and its results.
pub struct Lab {
    settings: LabSettings,
    program: Program,
    workloads: CachedReading<Vec<Workload>>,
    run: tokio::sync::Mutex<Option<Arc<Run>>>,
}

/// The system under test.
pub enum Target {
    /// Brokers of this program, started for the run.
    Embedded,
    /// A running cluster.
    Cluster {
        /// Bootstrap servers of the cluster.
        bootstrap: String,
        /// Client settings for the cluster, with the login of the person who starts the run.
        settings: BTreeMap<String, String>,
    },
}

/// A built-in workload.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Workload {
    /// The workload name.
    pub name: String,
    /// A sentence that describes the measurement.
    pub title: String,
    /// Number of points.
    pub points: usize,
}

/// The state of the lab.
#[derive(Debug, Serialize, ToSchema)]
pub struct LabOverview {
    /// The built-in workloads.
    pub workloads: Vec<Workload>,
    /// The current run, or the last one since the start.
    pub run: Option<RunState>,
    /// Results, newest first; at most 200.
    pub results: Vec<ResultLine>,
}

/// A run to start.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRun {
    /// Name of the built-in workload.
    pub workload: String,
    /// `embedded`: brokers of this program, started for the run on this machine. `cluster`: the cluster of
    /// this console.
    #[serde(default)]
    pub target: String,
    /// Multiplies records, seconds and rates: 0.001 to 10.
    #[serde(default)]
    #[schema(required = false)]
    pub scale: Option<f64>,
    /// Repetitions of each point, 1 to 20. Default: set by the workload.
    #[serde(default)]
    #[schema(required = false)]
    pub repetitions: Option<u32>,
    /// For `cluster` if the console has logins: the password of the caller, whose rights the run uses.
    #[serde(default)]
    #[schema(required = false, format = Password)]
    pub password: String,
}

/// A comparison of two results, as written by `thalweg lab compare`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Comparison {
    /// Points present and comparable in both results.
    pub pairs: Vec<ComparedPair>,
    /// Points present in both results, but not comparable.
    pub refused: Vec<RefusedPair>,
    /// Other differences, which may explain a ratio.
    pub differences: Vec<Difference>,
    /// The method of computation.
    pub method: String,
}

/// The identity of a point.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct PointName {
    /// The workload name.
    pub workload: String,
    /// The label of the point.
    pub label: String,
    /// The target of the run.
    pub target: String,
}

/// A point in both results.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ComparedPair {
    /// The point in the first result.
    pub a: PointName,
    /// The point in the second result.
    pub b: PointName,
    /// Ratios of the figures.
    pub ratios: Vec<Ratio>,
}

/// A figure in both results.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Ratio {
    /// Name of the figure.
    pub figure: String,
    /// Value in the first result.
    pub a: f64,
    /// Value in the second result.
    pub b: f64,
    /// The second value divided by the first.
    pub ratio: f64,
    /// Bounds of the 95 % interval of the ratio; none without enough repetitions.
    #[schema(value_type = Option<Vec<f64>>)]
    pub interval: Option<(f64, f64)>,
    /// `faster`, `slower`, `cheaper`, `dearer`, `no-difference`, or `not-judged` with too few repetitions.
    pub judgement: String,
}

/// A point that cannot be compared.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RefusedPair {
    /// The point in the first result.
    pub a: PointName,
    /// The differences that prevent the comparison.
    pub differences: Vec<Difference>,
}

/// A field that differs between two results.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Name of the field.
    pub field: String,
    /// Value in the first result.
    pub a: String,
    /// Value in the second result.
    pub b: String,
}

impl Lab {
    /// Creates the lab; nothing starts yet.
    pub fn new(settings: LabSettings) -> Lab {
        Lab {
            settings,
            program: Program::default(),
            workloads: CachedReading::default(),
            run: tokio::sync::Mutex::default(),
        }
    }

    /// Reads the state of the lab.
    pub async fn overview(&self) -> Result<LabOverview, Problem> {
        let workloads = self.workloads().await?;
        let run = self.run.lock().await.as_ref().map(|run| run.state());
        let mut results = self.results().await?;
        // A result that is still being written is not listed.
        let running = run.as_ref().filter(|run| run.ended_ms.is_none()).map(|run| run.name.as_str());
        results.retain(|result| Some(result.name.as_str()) != running);
        Ok(LabOverview { workloads: workloads.to_vec(), run, results })
    }

    async fn workloads(&self) -> Result<Arc<Vec<Workload>>, Problem> {
        let read = || async {
            let output = self.run_lab(&["list".as_ref(), "--format=json".as_ref()]).await?;
            serde_json::from_slice(&output).map_err(|error| unreadable(&error))
        };
        self.workloads.get(WORKLOADS_AGE, read).await
    }

    async fn results(&self) -> Result<Vec<ResultLine>, Problem> {
        let directory = self.settings.directory.clone();
        let listed = blocking(move || results::list(&directory)).await;
        let place = self.settings.directory.display();
        listed.map_err(|error| Problem::wrong(format!("{place} cannot be read: {error}")))
    }

    async fn file(&self, name: &str) -> Result<PathBuf, Problem> {
        let (directory, name) = (self.settings.directory.clone(), name.to_owned());
        blocking(move || results::file(&directory, &name)).await
    }

    async fn run_lab(&self, arguments: &[&OsStr]) -> Result<Vec<u8>, Problem> {
        self.program.output(&self.settings.program, arguments).await
    }

    /// The HTML report of a result.
    pub async fn report(&self, name: &str) -> Result<Vec<u8>, Problem> {
        let file = self.file(name).await?;
        self.run_lab(&["report".as_ref(), "--output=-".as_ref(), file.as_ref()]).await
    }

    /// Compares two results.
    pub async fn compare(&self, a: &str, b: &str) -> Result<Comparison, Problem> {
        let (a, b) = (self.file(a).await?, self.file(b).await?);
        let output =
            self.run_lab(&["compare".as_ref(), "--format=json".as_ref(), a.as_ref(), b.as_ref()]).await?;
        serde_json::from_slice(&output).map_err(|error| unreadable(&error))
    }

    /// Deletes a result.
    pub async fn delete(&self, name: &str) -> Result<(), Problem> {
        let running = self.run.lock().await;
        if running.as_ref().is_some_and(|run| run.is_running() && run.state().name == name) {
            return Err(Problem::wrong(format!("{name} is being measured: stop it first")));
        }
        let (directory, name) = (self.settings.directory.clone(), name.to_owned());
        blocking(move || results::delete(&directory, &name)).await
    }

    /// Starts a run on behalf of `by`, and returns the run name.
    pub async fn start(&self, new: &NewRun, target: Target, by: Option<String>) -> Result<String, Problem> {
        let workloads = self.workloads().await?;
        let Some(workload) = workloads.iter().find(|known| known.name == new.workload) else {
            let names: Vec<&str> = workloads.iter().map(|known| known.name.as_str()).collect();
            let message = format!("There is no workload {:?}: use {}", new.workload, names.join(", "));
            return Err(Problem::wrong(message));
        };
        let mut arguments = arguments(new)?;
        // Locked to the end, so that concurrent requests start only one run.
        let mut running = self.run.lock().await;
        if running.as_ref().is_some_and(|run| run.is_running()) {
            return Err(conflict(
                "A run takes place already: they would disturb each other. Stop it, or wait for its end",
            ));
        }
        if self.results().await?.len() >= results::LISTED_MAX {
            let message = format!("There are {} results already: delete some first", results::LISTED_MAX);
            return Err(conflict(&message));
        }
        let (target, settings) = match target {
            Target::Embedded => {
                arguments.push("--target=embedded".to_owned());
                ("embedded".to_owned(), BTreeMap::new())
            }
            Target::Cluster { bootstrap, settings } => {
                arguments.push(format!("--bootstrap={bootstrap}"));
                (bootstrap, settings)
            }
        };
        let name = results::name(now_ms(), &workload.name, &new.target);
        arguments.push(format!("--out={}", self.settings.directory.join(&name).display()));
        let order = Order {
            arguments,
            settings: serde_json::to_string(&settings).expect("texts are JSON"),
            name: name.clone(),
            workload: &workload.name,
            target: &target,
            by,
        };
        *running = Some(Run::start(&self.settings.program, order).await?);
        Ok(name)
    }

    /// Stops the current run, and returns its name.
    pub async fn stop(&self) -> Result<String, Problem> {
        let running = self.run.lock().await;
        let run = running.as_ref().filter(|run| run.is_running()).ok_or_else(|| conflict("Nothing runs"))?;
        run.stop();
        Ok(run.state().name)
    }
}

fn arguments(new: &NewRun) -> Result<Vec<String>, Problem> {
    let mut arguments = vec![new.workload.clone(), "--progress=json".to_owned(), "--controlled".to_owned()];
    if let Some(scale) = new.scale {
        if !SCALE.contains(&scale) {
            let (least, most) = (SCALE.start(), SCALE.end());
            return Err(Problem::wrong(format!("The scale {scale} is not {least} to {most}")));
        }
        arguments.push(format!("--scale={scale}"));
    }
    if let Some(repetitions) = new.repetitions {
        if !(1..=REPETITIONS_MAX).contains(&repetitions) {
            return Err(Problem::wrong(format!("{repetitions} repetitions are not 1 to {REPETITIONS_MAX}")));
        }
        arguments.push(format!("--repetitions={repetitions}"));
    }
    Ok(arguments)
}

fn conflict(message: &str) -> Problem {
    Problem { status: StatusCode::CONFLICT, kind: "conflict".to_owned(), message: message.to_owned() }
}

fn unreadable(error: &serde_json::Error) -> Problem {
    Problem {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        kind: "lab failed".to_owned(),
        message: format!("The answer of the lab cannot be read: {error}"),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
