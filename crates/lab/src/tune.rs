//! Tuning step by step: starting at a base, each setting is tried on top of the best so far, alternating with
//! it, and kept if the gain exceeds the noise. Each step records the limit of the best point.
//!
//! [`decision`] judges gains, `steps` lists the settings, `manual` the changes of machines, which an operator
//! makes; `page` shows the result.

pub mod decision;
mod manual;
mod page;
mod steps;

pub use manual::{Operator, OperatorReply};
pub use page::{html, table};

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::BoxFuture;
use crate::result::{Machine, Objection, PointResult, Spread, State, TargetInfo};
use crate::run::{Duel, Interrupt, Options, now_rfc_3339};
use crate::target::TargetSpec;
use crate::terminal::Progress;
use crate::workload::Point;
use decision::{Gain, gain, gain_after};
use manual::{MachineSettings, ManualStep};
use steps::{Change, Conditions, Setting};

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
    /// Mean of the repetitions' 99th percentile of the time to an acknowledgement.
    #[serde(default)]
    pub acknowledge_p99_us: Option<f64>,
    /// The point's limit.
    pub limit: String,
    /// The reasons for the limit.
    pub reasons: Vec<String>,
    /// Other uses of processors meanwhile.
    #[serde(default)]
    pub disturbances: Vec<String>,
    /// The losses of acknowledged records, by the evidence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
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
    /// The command that undoes a change by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
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
    /// Mean of the repetitions' 99th percentile of the time to an acknowledgement, with the value.
    #[serde(default)]
    pub acknowledge_p99_us: Option<f64>,
    /// The value's gain; `None` if unknown.
    pub gain: Option<Gain>,
    /// True if the value was kept.
    pub kept: bool,
    /// The limit with the value.
    pub limit: String,
    /// Why the value was not measured.
    pub failure: Option<String>,
    /// Other uses of processors meanwhile.
    #[serde(default)]
    pub disturbances: Vec<String>,
    /// The losses of acknowledged records on either side, by the evidence: there is no gain then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

impl Study {
    /// The number of measurements that lost acknowledged records.
    pub fn losses(&self) -> usize {
        let tried = self.steps.iter().flat_map(|step| &step.tried);
        let base = self.measured_base.iter().filter(|base| !base.faults.is_empty()).count();
        base + tried.filter(|tried| !tried.faults.is_empty()).count()
    }
}

/// The means of a study, besides setting the lab's own brokers and clients.
#[derive(Clone, Copy, Default)]
pub struct Means<'a> {
    /// Directories for the data of the lab's brokers, on different disks.
    pub log_dirs: &'a [PathBuf],
    /// The names of the settings to try; empty for all.
    pub settings: &'a [String],
    /// The operator who changes the machines; `None` for no such steps.
    pub operator: Option<&'a dyn Operator>,
}

/// The maximum number of repetitions of a study, including warm-ups.
pub fn repetitions(base: &Point, cpus: u32, target: &TargetSpec, means: &Means<'_>) -> u64 {
    let conditions = Conditions { target, cpus, log_dirs: means.log_dirs, java_version: None };
    let settings = chosen(steps::all(base, &conditions), means);
    let tried: usize = settings.iter().map(|setting| setting.changes.len()).sum();
    // Each against the best so far, at the end the remainder, and the manual steps.
    let measured = 2 * (tried + 1 + manual_steps(target, means).len());
    (u64::from(base.repetitions.max(1)) + 1) * (1 + measured as u64)
}

/// The names of all settings that a study of this target can try.
pub fn settings(base: &Point, target: &TargetSpec) -> Vec<&'static str> {
    let conditions = Conditions { target, cpus: 1, log_dirs: &[], java_version: None };
    steps::all(base, &conditions).iter().map(|setting| setting.name).collect()
}

fn chosen(mut settings: Vec<Setting>, means: &Means<'_>) -> Vec<Setting> {
    settings.retain(|setting| {
        means.settings.is_empty() || means.settings.iter().any(|name| name == setting.name)
    });
    settings
}

/// The steps for the operator, if there is one.
fn manual_steps(target: &TargetSpec, means: &Means<'_>) -> Vec<ManualStep> {
    match means.operator {
        Some(_) => manual::steps(&MachineSettings::read(), !target.is_started_by_lab()),
        None => Vec::new(),
    }
}

/// Performs a study of the options' only target, starting at a base point.
///
/// `keep` receives the state after each value, marked partial, so that an aborted study loses little.
pub fn study<'a>(
    options: &'a Options,
    base: &'a Point,
    means: Means<'a>,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
    keep: &'a dyn Fn(&Study),
) -> BoxFuture<'a, Study> {
    Box::pin(perform(options, base, means, interrupt, progress, keep))
}

async fn perform(
    options: &Options,
    base: &Point,
    means: Means<'_>,
    interrupt: &Interrupt,
    progress: &Progress,
    keep: &dyn Fn(&Study),
) -> Study {
    let duel = Duel::new(options, interrupt, progress);
    let study = Study {
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
    let mut course = Course { study, duel, means, interrupt, progress, keep, now: None, small: Vec::new() };
    let state = match course.take().await {
        Ok(()) => State::Complete,
        Err(why) => State::Partial { why },
    };
    let Course { mut study, duel, .. } = course;
    study.state = state;
    study.targets = duel.end();
    study.ended_at = now_rfc_3339();
    study
}

/// A study in progress.
struct Course<'a> {
    study: Study,
    duel: Duel<'a>,
    means: Means<'a>,
    interrupt: &'a Interrupt,
    progress: &'a Progress,
    keep: &'a dyn Fn(&Study),
    /// The last measurement of the best so far.
    now: Option<BestPoint>,
    /// For each setting, the change with the largest gain that was not kept, and its gain.
    small: Vec<(f64, Change)>,
}

impl Course<'_> {
    /// Performs the steps. An error is the reason to stop.
    async fn take(&mut self) -> Result<(), String> {
        let base = self.duel.measure(&[&self.study.base]).await?.remove(0);
        if let Some(failure) = &base.failure {
            return Err(format!("the base measurement failed: {failure}"));
        }
        self.warn("the base", &disturbances(&base));
        self.now = Some(best(&base));
        self.study.measured_base.clone_from(&self.now);
        self.interim();
        let conditions = Conditions {
            target: self.duel.target()?,
            cpus: self.study.machine.cpus,
            log_dirs: self.means.log_dirs,
            java_version: self.duel.fact("java_version"),
        };
        for setting in chosen(steps::all(&self.study.base, &conditions), &self.means) {
            self.try_setting(setting).await?;
        }
        if let Some(remainder) = steps::remainder(std::mem::take(&mut self.small)) {
            self.try_setting(remainder).await?;
        }
        for step in manual_steps(self.duel.target()?, &self.means) {
            self.try_by_hand(step).await?;
        }
        Ok(())
    }

    fn begin_step(&mut self, setting: String, why: &str, note: Option<&str>) -> usize {
        self.study.steps.push(Step {
            setting,
            why: why.to_owned(),
            note: note.map(str::to_owned),
            undo: None,
            tried: Vec::new(),
            best: self.now.clone(),
        });
        self.study.steps.len() - 1
    }

    /// Tries the values of a setting, in turns with the best so far.
    async fn try_setting(&mut self, setting: Setting) -> Result<(), String> {
        let place = self.begin_step(setting.name.to_owned(), setting.why, setting.note);
        let mut largest: Option<(f64, Change)> = None;
        let mut is_kept = false;
        for change in setting.changes {
            let Some(point) = change.of(&self.study.best) else { continue };
            let results = self.duel.measure(&[&self.study.best, &point]).await?;
            let (before, with) = (&results[0], &results[1]);
            let tried = compare(&change.label, before, with, gain);
            if tried.kept {
                self.study.best = point;
                self.now = Some(best(with));
                is_kept = true;
            } else if before.failure.is_none() {
                self.now = Some(best(before));
            }
            let gained = tried.gain.filter(|gain| gain.gain > 0.0 && !gain.is_noise).map(|gain| gain.gain);
            if let Some(gained) =
                gained.filter(|gained| largest.as_ref().is_none_or(|(most, _)| most < gained))
            {
                largest = Some((gained, change));
            }
            self.end_value(place, tried);
        }
        self.small.extend(largest.filter(|_| !is_kept));
        Ok(())
    }

    /// Measures before and after a change of the machine, which cannot take turns.
    async fn try_by_hand(&mut self, step: ManualStep) -> Result<(), String> {
        let Some(operator) = self.means.operator else { return Ok(()) };
        let note = "made by hand; measured before and after, not in turns";
        let place = self.begin_step(step.name.clone(), step.why, Some(note));
        let before = self.duel.measure(&[&self.study.best]).await?.remove(0);
        let ManualStep { name, why, apply, undo } = &step;
        let request = format!("{name}: {why}. As root, on each machine of the cluster:\n\n    {apply}\n");
        // An interrupted study has the command, too: the change may be made already.
        self.study.steps[place].undo = Some(undo.clone());
        self.interim();
        if self.ask(operator, &request).await? == OperatorReply::Skip {
            self.study.steps.truncate(place);
            return Ok(());
        }
        let after = self.duel.measure(&[&self.study.best]).await?.remove(0);
        let tried = compare(apply, &before, &after, gain_after);
        let is_kept = tried.kept;
        self.now = Some(best(if is_kept { &after } else { &before }));
        self.end_value(place, tried);
        if !is_kept {
            let request = format!(
                "{name}: no gain beyond the noise. To undo it, where it was made (the values are those of this machine):\n\n    {undo}\n"
            );
            let reply = self.ask(operator, &request).await?;
            let note = match reply {
                OperatorReply::Done => format!("{note}; undone"),
                OperatorReply::Skip => {
                    format!("{note}; not undone, so that later steps were measured with it")
                }
            };
            let step = &mut self.study.steps[place];
            step.note = Some(note);
            if reply == OperatorReply::Done {
                step.undo = None;
            }
        }
        Ok(())
    }

    async fn ask(&self, operator: &dyn Operator, text: &str) -> Result<OperatorReply, String> {
        tokio::select! {
            biased;
            why = self.interrupt.wait() => Err(why),
            reply = operator.ask(text) => Ok(reply),
        }
    }

    fn end_value(&mut self, place: usize, tried: TriedValue) {
        self.warn(&tried.label, &tried.disturbances);
        self.study.steps[place].best.clone_from(&self.now);
        self.study.steps[place].tried.push(tried);
        self.interim();
    }

    fn interim(&mut self) {
        self.study.ended_at = now_rfc_3339();
        (self.keep)(&self.study);
    }

    fn warn(&self, what: &str, disturbances: &[String]) {
        for why in disturbances {
            self.progress.log(&format!("Disturbed while measuring {what}: {why}"));
        }
    }
}

/// Other uses of processors during a measurement.
fn disturbances(of: &PointResult) -> Vec<String> {
    let found = of.verdict.no_headline.iter().filter(|text| Objection::of(text) == Objection::Disturbed);
    found.cloned().collect()
}

fn rates(of: &PointResult) -> Vec<f64> {
    of.repetitions.iter().filter_map(|repetition| repetition.figures.records_per_s()).collect()
}

fn acknowledge_p99_us(of: &PointResult) -> Option<f64> {
    let values = of.repetitions.iter().filter_map(|repetition| repetition.figures.acknowledge_p99_us);
    let spread = Spread::of(&values.collect::<Vec<f64>>());
    (spread.count > 0).then_some(spread.mean)
}

fn best(of: &PointResult) -> BestPoint {
    let spread = Spread::of(&rates(of));
    BestPoint {
        records_per_s: spread.mean,
        half_interval_records_per_s: spread.half_interval(),
        acknowledge_p99_us: acknowledge_p99_us(of),
        limit: of.verdict.limit.clone(),
        reasons: of.verdict.reasons.clone(),
        disturbances: disturbances(of),
        faults: faults(of),
    }
}

/// The losses of acknowledged records.
fn faults(of: &PointResult) -> Vec<String> {
    of.repetitions.iter().flat_map(|taken| taken.evidence.faults.iter().cloned()).collect()
}

/// Compares measurements by `gain`, which knows how they were taken.
fn compare(
    label: &str,
    before: &PointResult,
    with: &PointResult,
    gain: fn(&[f64], &[f64]) -> Option<Gain>,
) -> TriedValue {
    let (before_rates, with_rates) = (rates(before), rates(with));
    let failure = with.failure.clone().or_else(|| before.failure.clone());
    let mut disturbances = disturbances(with);
    disturbances.extend(self::disturbances(before));
    let mut lost = faults(with);
    lost.extend(faults(before));
    // Lost records cost nothing: a rate beside them says nothing.
    let gain = gain(&before_rates, &with_rates).filter(|_| failure.is_none() && lost.is_empty());
    TriedValue {
        label: label.to_owned(),
        kept: gain.is_some_and(|gain| gain.helps),
        gain,
        before_records_per_s: before_rates,
        records_per_s: with_rates,
        acknowledge_p99_us: acknowledge_p99_us(with),
        limit: with.verdict.limit.clone(),
        failure,
        disturbances,
        faults: lost,
    }
}
