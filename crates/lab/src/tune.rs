//! Tuning step by step: starting at a base, each setting is tried on top of the best so far, alternating with
//! it, and kept if the gain exceeds the noise. Each step records the limit of the best point.
//!
//! [`decision`] judges gains, `steps` lists the settings; `page` shows the result.

pub mod decision;
mod page;
mod steps;

pub use page::{html, table};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::result::{Machine, Objection, PointResult, State, TargetInfo};
use crate::run::{Duel, Interrupt, Options, now_rfc_3339};
use crate::target::TargetSpec;
use crate::terminal::Progress;
use crate::workload::Point;
use decision::{Gain, gain, half_interval};

/// The version of the document.
pub const SCHEMA: &str = "thalweg-lab-tune/1";

/// The result of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// The schema version, [`SCHEMA`].
    pub schema: String,
    /// Start time, RFC 3339.
    pub began_at: String,
    /// End time, RFC 3339.
    pub ended_at: String,
    /// The completeness of the study: all steps were taken, or the reason.
    pub state: State,
    /// The arguments of the lab.
    pub arguments: Vec<String>,
    /// The seed of payloads and keys.
    pub seed: u64,
    /// Version and commit of the lab.
    pub lab_version: String,
    pub machine: Machine,
    /// The tuned system, by name.
    pub targets: BTreeMap<String, TargetInfo>,
    /// The base point.
    pub base: Point,
    /// The measurement of the base; `None` if it failed.
    pub measured_base: Option<BestPoint>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The final point.
    pub best: Point,
}

/// The best point so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestPoint {
    /// Mean of records per second.
    pub records_per_s: f64,
    /// Half of the 95 % interval of the mean.
    pub half_interval_records_per_s: f64,
    /// The point's limit.
    pub limit: String,
    /// The reasons for the limit.
    pub reasons: Vec<String>,
    /// What took processors meanwhile, besides the study.
    #[serde(default)]
    pub disturbances: Vec<String>,
}

/// A setting that was tried, with its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The setting's name.
    pub setting: String,
    /// The reason why the setting may help.
    pub why: String,
    /// A note for readers.
    pub note: Option<String>,
    /// The tried values, in order.
    pub tried: Vec<TriedValue>,
    /// The best point after the step.
    pub best: Option<BestPoint>,
}

/// One value of a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TriedValue {
    /// The value, as text.
    pub label: String,
    /// Records per second of the best so far, per repetition, alternating with the value.
    pub before_records_per_s: Vec<f64>,
    /// Records per second with the value.
    pub records_per_s: Vec<f64>,
    /// The value's gain; `None` if unknown.
    pub gain: Option<Gain>,
    /// True if the value was kept.
    pub kept: bool,
    /// The limit with the value.
    pub limit: String,
    /// Why the value was not measured.
    pub failure: Option<String>,
    /// What took processors meanwhile, besides the study.
    #[serde(default)]
    pub disturbances: Vec<String>,
}

/// The maximum number of repetitions of a study, including warm-ups.
pub fn repetitions(base: &Point, cpus: u32, target: &TargetSpec) -> u64 {
    let tried: usize = steps::all(base, cpus, target).iter().map(|setting| setting.changes.len()).sum();
    (u64::from(base.repetitions.max(1)) + 1) * (1 + 2 * tried as u64)
}

/// Performs a study of the options' only target, starting at a base point.
///
/// `keep` receives the state after each value, marked partial, so that an aborted study loses little.
pub fn study<'a>(
    options: &'a Options,
    base: &'a Point,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
    keep: &'a dyn Fn(&Study),
) -> BoxFuture<'a, Study> {
    Box::pin(perform(options, base, interrupt, progress, keep))
}

async fn perform(
    options: &Options,
    base: &Point,
    interrupt: &Interrupt,
    progress: &Progress,
    keep: &dyn Fn(&Study),
) -> Study {
    let mut duel = Duel::new(options, interrupt, progress);
    let mut study = Study {
        schema: SCHEMA.to_owned(),
        began_at: now_rfc_3339(),
        ended_at: String::new(),
        state: State::Partial { why: "the study was in progress".to_owned() },
        arguments: options.arguments.clone(),
        seed: options.seed,
        lab_version: options.lab_version.clone(),
        machine: duel.machine().clone(),
        targets: BTreeMap::new(),
        base: base.clone(),
        measured_base: None,
        steps: Vec::new(),
        best: base.clone(),
    };
    study.state = match take(&mut study, &mut duel, progress, keep).await {
        Ok(()) => State::Complete,
        Err(why) => State::Partial { why },
    };
    study.targets = duel.end();
    study.ended_at = now_rfc_3339();
    study
}

/// Performs the steps. An error is the reason to stop.
async fn take(
    study: &mut Study,
    duel: &mut Duel<'_>,
    progress: &Progress,
    keep: &dyn Fn(&Study),
) -> Result<(), String> {
    let base = duel.measure(&[&study.base]).await?.remove(0);
    if let Some(failure) = &base.failure {
        return Err(format!("the base measurement failed: {failure}"));
    }
    warn(progress, "the base", &disturbances(&base));
    study.measured_base = Some(best(&base));
    interim(study, keep);
    let settings = steps::all(&study.base, study.machine.cpus, duel.target()?);
    let mut now = best(&base);
    for setting in settings {
        study.steps.push(Step {
            setting: setting.name.to_owned(),
            why: setting.why.to_owned(),
            note: setting.note.map(str::to_owned),
            tried: Vec::new(),
            best: Some(now.clone()),
        });
        let place = study.steps.len() - 1;
        for change in &setting.changes {
            let Some(point) = change.of(&study.best) else { continue };
            let results = duel.measure(&[&study.best, &point]).await?;
            let (before, with) = (&results[0], &results[1]);
            let tried = compare(&change.label, before, with);
            warn(progress, &tried.label, &tried.disturbances);
            if tried.kept {
                study.best = point;
                now = best(with);
            } else if before.failure.is_none() {
                now = best(before);
            }
            study.steps[place].best = Some(now.clone());
            study.steps[place].tried.push(tried);
            interim(study, keep);
        }
    }
    Ok(())
}

fn interim(study: &mut Study, keep: &dyn Fn(&Study)) {
    study.ended_at = now_rfc_3339();
    keep(study);
}

/// What took processors besides a measurement.
fn disturbances(of: &PointResult) -> Vec<String> {
    let found = of.verdict.no_headline.iter().filter(|text| Objection::of(text) == Objection::Disturbed);
    found.cloned().collect()
}

fn warn(progress: &Progress, what: &str, disturbances: &[String]) {
    for why in disturbances {
        progress.log(&format!("Disturbed while measuring {what}: {why}"));
    }
}

fn rates(of: &PointResult) -> Vec<f64> {
    of.repetitions.iter().filter_map(|repetition| repetition.figures.records_per_s()).collect()
}

fn best(of: &PointResult) -> BestPoint {
    let rates = rates(of);
    BestPoint {
        records_per_s: rates.iter().sum::<f64>() / rates.len().max(1) as f64,
        half_interval_records_per_s: half_interval(&rates),
        limit: of.verdict.limit.clone(),
        reasons: of.verdict.reasons.clone(),
        disturbances: disturbances(of),
    }
}

fn compare(label: &str, before: &PointResult, with: &PointResult) -> TriedValue {
    let (before_rates, with_rates) = (rates(before), rates(with));
    let failure = with.failure.clone().or_else(|| before.failure.clone());
    let lost = |of: &PointResult| of.repetitions.iter().any(|taken| !taken.evidence.faults.is_empty());
    let mut disturbances = disturbances(with);
    disturbances.extend(self::disturbances(before));
    let gain = gain(&before_rates, &with_rates).filter(|_| failure.is_none());
    TriedValue {
        label: label.to_owned(),
        kept: gain.is_some_and(|gain| gain.helps) && !lost(with),
        gain,
        before_records_per_s: before_rates,
        records_per_s: with_rates,
        limit: with.verdict.limit.clone(),
        failure,
        disturbances,
    }
}
