//! A run: workloads on targets, from start to result.
//!
//! `walk` is the state machine of a run. The modules are in layers, and each uses only those above it in this
//! list:
//!
//! - [`saturation`], [`summary`], [`verdict`], `drain`, `figures` and `plan` decide without side effects. So
//!   do `contender` (one target with one driver at one point, and its next step) and `precision` (the need
//!   for more repetitions).
//! - `agents`, `fleet` and `course` control workers; `broker_machines` watches the machines of brokers;
//!   `admin`, `topics`, `memory` and `clusters` create and remove resources; `idle_brokers` waits for the
//!   brokers of other targets; `repetition` combines them. `trial` is the workers alone, for calibration.
//! - `resources` owns all that a run has created, and the clean-up.
//! - `walk`; above it [`run`], whose plan is the points of workloads, and `duel`, for tuning.
//!
//! Rules of every run:
//!
//! - Targets and drivers of a run are contenders. Their repetitions alternate, A B A B, so that changes of
//!   the machine affect all alike.
//! - A repetition begins once the brokers of the other targets are idle, or after 30 s, with a note.
//! - Before its first counted repetition, each contender has a warm-up, of two seconds or a quarter of its
//!   records at most, with the same settings: JVMs compile and caches fill. Records of a warm-up are not read
//!   back. A cluster that has done the same for another point is warm and needs no warm-up.
//! - If the ratio of two targets is not known precisely enough, both get more repetitions, in turns.
//! - A contender that cannot run a point is marked as failed, and the run continues.
//! - The result so far is written after each point. An interrupted run keeps its complete repetitions and the
//!   reason for its end.

mod admin;
mod agents;
mod broker_machines;
mod clock;
mod clusters;
mod contender;
mod course;
mod drain;
mod duel;
mod error;
pub mod estimate;
mod figures;
mod fleet;
mod idle;
mod idle_brokers;
mod interrupt;
mod memory;
mod plan;
mod precision;
mod reading_back;
mod repetition;
mod resources;
pub mod saturation;
pub mod summary;
mod topic_churn;
mod topics;
mod trial;
pub mod verdict;
mod walk;

pub use agents::spread_producers;
pub use clock::now_rfc_3339;
pub(crate) use duel::Duel;
pub use error::Failure;
pub use interrupt::{Interrupt, Interrupter, interrupt};
pub use plan::{Options, Precision, drivers_of, repetitions, targets_of};
pub(crate) use trial::{Trial, TrialOutcome};

use std::collections::BTreeMap;
use std::path::Path;

use crate::BoxFuture;
use crate::result::{self, Machine, PointResult, RunResult, SCHEMA, State, TargetInfo, WorkloadResult};
use crate::terminal::Progress;
use clusters::name;
use contender::Contender;
use plan::{PlannedPoint, points, seed_of, side_by_side};
use walk::{Round, Walk};

/// Performs a run.
pub fn run<'a>(
    options: &'a Options,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
) -> BoxFuture<'a, RunResult> {
    Box::pin(async move {
        let mut walk = Walk::new(options, interrupt, progress);
        let mut plan = Points::new(options, walk.machine().clone(), progress);
        let interrupted = walk.all(&mut plan).await;
        let targets = walk.tear_down(interrupted.is_some());
        plan.end(targets, interrupted)
    })
}

/// The plan of a run: every point of its workloads is a round, whose results extend the result.
struct Points<'a, P> {
    options: &'a Options,
    progress: &'a Progress,
    planned: P,
    result: RunResult,
}

impl<'a> Points<'a, ()> {
    fn new(
        options: &'a Options,
        machine: Machine,
        progress: &'a Progress,
    ) -> Points<'a, impl Iterator<Item = PlannedPoint<'a>>> {
        let now = now_rfc_3339();
        let result = RunResult {
            schema: SCHEMA.to_owned(),
            condensed: false,
            began_at: now.clone(),
            ended_at: now,
            state: State::Partial { why: "the run was in progress".to_owned() },
            arguments: options.arguments.clone(),
            seed: options.seed,
            lab_version: options.lab_version.clone(),
            machine,
            agents: Vec::new(),
            agents_place: options.agents.as_ref().map(|agents| agents.placement().name().to_owned()),
            broker_machines: Vec::new(),
            targets: BTreeMap::new(),
            workloads: Vec::new(),
        };
        Points { options, progress, planned: points(options), result }
    }
}

impl<'a, P: Iterator<Item = PlannedPoint<'a>>> walk::Plan for Points<'a, P> {
    fn next(&mut self) -> Option<Round> {
        let options = self.options;
        let PlannedPoint { workload, place: (number, place), point, drivers, .. } = self.planned.next()?;
        if self.result.workloads.len() == number {
            let workload = workload.without_secrets();
            self.result.workloads.push(WorkloadResult { workload, points: Vec::new() });
        }
        let seed = seed_of(options.seed, [number as u64, place as u64, 0]);
        let contenders = options.targets_of(workload, point).into_iter().flat_map(|(target, spec)| {
            drivers
                .iter()
                .map(move |driver| Contender::new(target, name(spec), *driver, workload, point, seed))
        });
        let contenders = contenders.collect();
        Some(match side_by_side(&options.targets, &point.cluster, &self.result.machine) {
            true => Round::together(contenders),
            false => Round::apart(contenders),
        })
    }

    fn report(&mut self, results: Vec<PointResult>, targets: &BTreeMap<String, TargetInfo>) {
        if let Some(last) = self.result.workloads.last_mut() {
            last.points.extend(results);
        }
        self.result.targets.clone_from(targets);
        self.note_agents();
        self.result.ended_at = now_rfc_3339();
        write(self.options.partial.as_deref(), &self.result, self.progress);
    }
}

impl<P> Points<'_, P> {
    fn note_agents(&mut self) {
        if let Some(agents) = &self.options.agents {
            self.result.agents = agents.infos();
        }
        if let Some(agents) = &self.options.broker_agents {
            self.result.broker_machines = agents.infos();
        }
    }

    /// Returns the result, after writing it a last time.
    fn end(mut self, targets: BTreeMap<String, TargetInfo>, interrupted: Option<String>) -> RunResult {
        self.note_agents();
        let mut result = self.result;
        result.targets = targets;
        result.ended_at = now_rfc_3339();
        result.state = state(&result, interrupted);
        write(self.options.partial.as_deref(), &result, self.progress);
        result
    }
}

fn state(result: &RunResult, interrupted: Option<String>) -> State {
    if let Some(why) = interrupted {
        return State::Partial { why };
    }
    let points = || result.workloads.iter().flat_map(|workload| &workload.points);
    let failed = points().filter(|point| point.failure.is_some()).count();
    match failed {
        0 => State::Complete,
        _ => State::Partial { why: format!("{failed} of {} points were not measured", points().count()) },
    }
}

fn write(path: Option<&Path>, result: &RunResult, progress: &Progress) {
    if let Some(path) = path
        && let Err(error) = result::write(path, result)
    {
        progress.log(&format!("Failed to save the result so far: {error}"));
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::Options;
    use crate::target::TargetSpec;
    use crate::worker::Driver;
    use crate::workload;

    /// A run of built-in workloads, with Thalweg's driver.
    pub(crate) fn options(names: &[&str], targets: Vec<TargetSpec>) -> Options {
        Options {
            workloads: names.iter().map(|name| workload::load(name, None).expect("built in")).collect(),
            targets,
            by_workload: false,
            drivers: vec![Driver::Thalweg],
            precision: None,
            seed: 1,
            work_dir: "/".into(),
            kafka: Default::default(),
            binary: "/bin/true".into(),
            agents: None,
            broker_agents: None,
            look_inside: false,
            partial: None,
            arguments: Vec::new(),
            lab_version: String::new(),
        }
    }
}
