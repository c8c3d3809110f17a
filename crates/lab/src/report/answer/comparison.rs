//! The pairs of figures of a run: of each point, the first system beside each other one.

use super::tails::ComparedLatency;
use crate::report::obstacles::obstacles;
use crate::report::palette::Palette;
use crate::result::{
    Figure, Objection, PAIRS_MIN, PointResult, Ratio, RunResult, Subject, WorkloadResult, ratio_of, values,
};
use crate::worker::Driver;

/// A figure of two systems.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct ComparedFigure {
    pub workload: String,
    pub label: String,
    pub driver: Driver,
    pub subject: Subject,
    /// The name of the figure.
    pub figure: &'static str,
    /// The target whose figure is divided.
    pub ours: String,
    /// The target whose figure divides.
    pub theirs: String,
    pub ratio: f64,
    /// The 95 % interval of the ratio; the ratio itself, twice, if there is no interval.
    pub interval: (f64, f64),
    /// Number of pairs behind the ratio; 0 for independent repetitions.
    pub pairs: usize,
    /// The interval of the ratio of broker processor time per record.
    pub cpu: Option<(f64, f64)>,
    /// Why the ratio is not quotable; empty if it is.
    pub obstacles: Vec<String>,
    /// Why either figure is not quotable; empty if both are. A ratio may hold all the same.
    pub figure_obstacles: Vec<String>,
    /// Latencies that differ beyond the noise.
    pub latencies: Vec<ComparedLatency>,
}

impl ComparedFigure {
    /// True if a headline may rest on the pair: ratio and both figures are quotable.
    pub fn is_quotable(&self) -> bool {
        self.obstacles.is_empty() && self.figure_obstacles.is_empty()
    }

    /// The first reason against a headline.
    pub fn first_obstacle(&self) -> Option<String> {
        self.figure_obstacles.first().or(self.obstacles.first()).cloned()
    }

    /// True if less is better.
    pub fn is_time(&self) -> bool {
        matches!(self.subject, Subject::Latency | Subject::Drain)
    }
}

/// All pairs of a run.
pub(in crate::report) fn compared(run: &RunResult) -> Vec<ComparedFigure> {
    let palette = Palette::of(run);
    let targets = palette.targets();
    let mut all = Vec::new();
    for (place, ours) in targets.iter().enumerate() {
        for theirs in &targets[place + 1..] {
            for workload in &run.workloads {
                all.extend(of_workload(workload, ours, theirs));
            }
        }
    }
    all
}

fn of_workload(workload: &WorkloadResult, ours: &str, theirs: &str) -> Vec<ComparedFigure> {
    let points = || workload.points.iter();
    let pairs = points().filter(|point| point.target == ours).filter_map(|a| {
        let same =
            |b: &&PointResult| b.target == theirs && b.point.label == a.point.label && b.driver == a.driver;
        Some((a, points().find(same)?))
    });
    pairs.filter_map(|(a, b)| of_points(workload, a, b)).collect()
}

fn of_points(workload: &WorkloadResult, a: &PointResult, b: &PointResult) -> Option<ComparedFigure> {
    let subject = Subject::of(&a.point);
    let of = |name: &str| -> Option<Ratio> {
        ratio_of(Figure::named(name)?, &values(&b.repetitions, &a.repetitions, name))
    };
    let main = of(subject.figure(&a.summary))?;
    let cpu = of("broker_cpu_us_per_record").and_then(|ratio| ratio.interval);
    let figure = Figure::named(&main.figure)?;
    let is_ours_better = (main.ratio > 1.0) == figure.unit.more_is_better();
    let mut obstacles = Vec::new();
    if main.interval.is_none() {
        let found = a.repetitions.len().min(b.repetitions.len());
        obstacles.push(format!("a ratio needs {PAIRS_MIN} repetitions of each, in turns; there are {found}"));
    }
    let mut figure_obstacles = Vec::new();
    for (point, is_better) in [(a, is_ours_better), (b, !is_ours_better)] {
        let named = |why: String| format!("{}: {why}", crate::result::system(&point.target));
        figure_obstacles.extend(self::obstacles(point).into_iter().map(named));
        obstacles.extend(against(point, is_better).into_iter().map(named));
    }
    Some(ComparedFigure {
        workload: workload.workload.name.clone(),
        label: a.point.label.clone(),
        driver: a.driver,
        subject,
        figure: figure.name,
        ours: a.target.clone(),
        theirs: b.target.clone(),
        ratio: main.ratio,
        interval: main.interval.unwrap_or((main.ratio, main.ratio)),
        pairs: main.pairs,
        cpu,
        obstacles,
        figure_obstacles,
        latencies: ComparedLatency::all(a, b),
    })
}

/// The objections to a figure that also forbid a ratio. An interval accounts for variation. If clients
/// limited the better system, its true ratio is at least this.
fn against(point: &PointResult, is_better: bool) -> Vec<String> {
    let counts = |text: &String| match Objection::of(text) {
        Objection::Varies | Objection::Once => false,
        Objection::Generator => !is_better,
        Objection::Disturbed | Objection::DrainInSteps | Objection::Clocks | Objection::Other => true,
    };
    obstacles(point).into_iter().filter(counts).collect()
}
