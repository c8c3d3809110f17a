//! Compares two results: pairs points, refuses incomparable pairs with the differing field and values, and
//! calculates each figure's ratio with its confidence. Figures of different machines stand beside each other,
//! without ratios. Single results are judged by their verdicts instead.

mod difference;
mod ratio;
mod student;

pub(crate) use ratio::RESOLUTION;
pub(crate) use student::two_sided_95;

pub use difference::{Difference, NotComparable};
pub use ratio::{Judgement, METHOD, PAIRS_MIN, Ratio, Values, ratio_of};

use serde::{Deserialize, Serialize};

use super::{Objection, PointResult, Repetition, RunResult, Spread, WorkloadResult};
use crate::figures::{FIGURES, Figure};
use crate::worker::Driver;

/// The pairing of points, in addition to workload, label and driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Points of the same target.
    SameTarget,
    /// A target of the first result with another of the second, which may be the same result.
    Targets {
        /// The target in the first result.
        a: String,
        /// The target in the second result.
        b: String,
    },
}

/// The comparison of two results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Points in both results, in the order of the first.
    pub pairs: Vec<Pair>,
    /// Points in both results that cannot be compared.
    pub refused: Vec<IncomparablePoint>,
    /// Points only in the first result.
    pub only_in_a: Vec<PointName>,
    /// Points only in the second result.
    pub only_in_b: Vec<PointName>,
    /// Differences of the machines, such as a kernel update: with any, there are figures, but no ratios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<Difference>,
    /// Other differences, such as versions, commands and seeds, which may explain a ratio.
    pub differences: Vec<Difference>,
    /// The statistical method.
    pub method: String,
}

/// The identity of a point in a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointName {
    pub workload: String,
    /// The point's label.
    pub label: String,
    pub target: String,
    pub driver: Driver,
}

/// A point in both results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The point in the first result.
    pub a: PointName,
    /// The point in the second result.
    pub b: PointName,
    /// The ratio of each figure in both results; empty for results of different machines.
    pub ratios: Vec<Ratio>,
    /// Each figure in both results, for results of different machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigurePair>,
}

/// A figure in two results that have no ratio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigurePair {
    /// The figure's name.
    pub figure: String,
    /// The figure in the first result.
    pub a: Spread,
    /// The figure in the second result.
    pub b: Spread,
}

/// A point in both results that cannot be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncomparablePoint {
    /// The point in the first result.
    pub a: PointName,
    /// The point in the second result.
    pub b: PointName,
    /// The differences that forbid the comparison.
    pub differences: Vec<Difference>,
}

impl std::fmt::Display for PointName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} · {} · {} · {}", self.workload, self.label, self.target, self.driver.words())
    }
}

/// Compares two results. Results without a common point are refused as a whole; points with different
/// settings or incomplete measurements are refused one by one. Results from different machines, or from a
/// machine that has changed, have no ratios.
pub fn compare(a: &RunResult, b: &RunResult, pairing: &Pairing) -> Result<Comparison, NotComparable> {
    let mut comparison = Comparison {
        machines: difference::between_runs(a, b),
        pairs: Vec::new(),
        refused: Vec::new(),
        only_in_a: Vec::new(),
        only_in_b: Vec::new(),
        differences: difference::beside(a, b, pairing),
        method: METHOD.to_owned(),
    };
    let (points_a, mut points_b) = (chosen(a, pairing, Side::A), chosen(b, pairing, Side::B));
    for (workload_a, point_a) in points_a {
        let place = points_b.iter().position(|(workload_b, point_b)| {
            workload_a.workload.name == workload_b.workload.name && same_point(point_a, point_b, pairing)
        });
        match place {
            Some(place) => {
                let other = points_b.remove(place);
                pair_up(&mut comparison, (workload_a, point_a), other);
            }
            None => comparison.only_in_a.push(name(workload_a, point_a)),
        }
    }
    comparison.only_in_b = points_b.into_iter().map(|(workload, point)| name(workload, point)).collect();
    match comparison.pairs.is_empty() {
        true => Err(difference::nothing_in_common(comparison, a, b)),
        false => Ok(comparison),
    }
}

enum Side {
    A,
    B,
}

fn chosen<'a>(
    run: &'a RunResult,
    pairing: &Pairing,
    side: Side,
) -> Vec<(&'a WorkloadResult, &'a PointResult)> {
    let wanted = |point: &PointResult| match (pairing, &side) {
        (Pairing::SameTarget, _) => true,
        (Pairing::Targets { a, .. }, Side::A) => point.target == *a,
        (Pairing::Targets { b, .. }, Side::B) => point.target == *b,
    };
    let points = run.workloads.iter().flat_map(|workload| {
        workload.points.iter().filter(|point| wanted(point)).map(move |point| (workload, point))
    });
    points.collect()
}

fn same_point(a: &PointResult, b: &PointResult, pairing: &Pairing) -> bool {
    let target = match pairing {
        Pairing::SameTarget => a.target == b.target,
        // Each side has only points of the requested target.
        Pairing::Targets { .. } => true,
    };
    target && a.point.label == b.point.label && a.driver == b.driver
}

fn pair_up(
    comparison: &mut Comparison,
    (workload_a, a): (&WorkloadResult, &PointResult),
    (workload_b, b): (&WorkloadResult, &PointResult),
) {
    let (name_a, name_b) = (name(workload_a, a), name(workload_b, b));
    let differences = difference::between_points((workload_a, a), (workload_b, b));
    if !differences.is_empty() {
        comparison.refused.push(IncomparablePoint { a: name_a, b: name_b, differences });
        return;
    }
    let mut pair = Pair { a: name_a, b: name_b, ratios: Vec::new(), figures: Vec::new() };
    match comparison.machines.is_empty() {
        true => pair.ratios.extend(
            FIGURES
                .iter()
                .filter(|figure| [a, b].iter().all(|point| clocks_suffice(point, figure)))
                .filter_map(|figure| ratio_of(figure, &values(&a.repetitions, &b.repetitions, figure.name))),
        ),
        false => pair.figures.extend(FIGURES.iter().filter_map(|figure| {
            let (of_a, of_b) = (a.summary.figures.get(figure.name)?, b.summary.figures.get(figure.name)?);
            Some(FigurePair { figure: figure.name.to_owned(), a: *of_a, b: *of_b })
        })),
    }
    comparison.pairs.push(pair);
}

/// True unless the figure is a time between clocks that are not known well enough: noise of clocks would look
/// like a difference.
fn clocks_suffice(point: &PointResult, figure: &Figure) -> bool {
    let mut kinds = point.verdict.no_headline.iter().map(|text| Objection::of(text));
    !kinds.any(|kind| kind == Objection::Clocks && kind.is_to(figure.name))
}

/// The values of a figure in two series of repetitions, paired if the series took turns.
pub fn values(a: &[Repetition], b: &[Repetition], figure: &str) -> Values {
    let value = |repetition: &Repetition| repetition.figures.value(figure);
    match took_turns(a, b) {
        true => Values::Paired(a.iter().zip(b).filter_map(|(a, b)| Some((value(a)?, value(b)?))).collect()),
        false => Values::Apart(a.iter().filter_map(value).collect(), b.iter().filter_map(value).collect()),
    }
}

/// True if both repetitions of each pair began before those of the next.
fn took_turns(a: &[Repetition], b: &[Repetition]) -> bool {
    let turns: Vec<(u64, u64)> = a.iter().zip(b).map(|(a, b)| (a.began_at_us, b.began_at_us)).collect();
    turns.len() > 1 && turns.windows(2).all(|turn| turn[0].0.max(turn[0].1) < turn[1].0.min(turn[1].1))
}

fn name(workload: &WorkloadResult, point: &PointResult) -> PointName {
    PointName {
        workload: workload.workload.name.clone(),
        label: point.point.label.clone(),
        target: point.target.clone(),
        driver: point.driver,
    }
}
