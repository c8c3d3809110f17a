//! Two results beside each other. Points are paired, what is not comparable is refused with the field and both values, and
//! each figure gets a ratio with its confidence. Nothing here judges a single result: that is its verdict.

mod difference;
mod ratio;
mod student;

pub(crate) use student::two_sided_95;

pub use difference::{Difference, NotComparable};
pub use ratio::{Judgement, METHOD, Ratio};

use serde::{Deserialize, Serialize};

use super::{PointResult, RunResult, WorkloadResult};
use crate::figures::FIGURES;
use crate::worker::Driver;

/// Which points belong together, beside workload, label and driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Those of the same target.
    SameTarget,
    /// Those of one target in the first result with those of another in the second, which may be the same result.
    Targets {
        /// In the first.
        a: String,
        /// In the second.
        b: String,
    },
}

/// Two results beside each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The points that both have, in the order of the first.
    pub pairs: Vec<Pair>,
    /// The points that both have and that cannot be compared.
    pub refused: Vec<Refused>,
    /// The points that only the first has.
    pub only_in_a: Vec<PointName>,
    /// The points that only the second has.
    pub only_in_b: Vec<PointName>,
    /// What differs and does not stand in the way: versions, commands, seeds. It may be the reason for a ratio.
    pub differences: Vec<Difference>,
    /// What intervals and words rest on.
    pub method: String,
}

/// What tells a point from all others of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointName {
    /// The workload.
    pub workload: String,
    /// The point's label.
    pub label: String,
    /// The target.
    pub target: String,
    /// The driver.
    pub driver: Driver,
}

/// A point in both results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// In the first.
    pub a: PointName,
    /// In the second.
    pub b: PointName,
    /// Each figure that both have.
    pub ratios: Vec<Ratio>,
}

/// A point in both results that cannot be compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// In the first.
    pub a: PointName,
    /// In the second.
    pub b: PointName,
    /// Why.
    pub differences: Vec<Difference>,
}

impl std::fmt::Display for PointName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} · {} · {} · {}", self.workload, self.label, self.target, self.driver.words())
    }
}

/// Compares two results. Different machines or schemas are refused as a whole, and so are results without a single pair;
/// points that differ in their settings or were not measured to the end are refused one by one.
pub fn compare(a: &RunResult, b: &RunResult, pairing: &Pairing) -> Result<Comparison, NotComparable> {
    let obstacles = difference::between_runs(a, b);
    if !obstacles.is_empty() {
        return Err(NotComparable { differences: obstacles });
    }
    let mut comparison = Comparison {
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
        // Each side has only points of the target that was asked for.
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
        comparison.refused.push(Refused { a: name_a, b: name_b, differences });
        return;
    }
    let ratios = FIGURES.iter();
    let ratios =
        ratios.filter_map(|figure| ratio::ratio(figure, &values(a, figure.name), &values(b, figure.name)));
    comparison.pairs.push(Pair { a: name_a, b: name_b, ratios: ratios.collect() });
}

fn values(point: &PointResult, figure: &str) -> Vec<f64> {
    point.repetitions.iter().filter_map(|repetition| repetition.figures.value(figure)).collect()
}

fn name(workload: &WorkloadResult, point: &PointResult) -> PointName {
    PointName {
        workload: workload.workload.name.clone(),
        label: point.point.label.clone(),
        target: point.target.clone(),
        driver: point.driver,
    }
}
