//! The points behind a headline, which charts mark and cards prefer.

use crate::result::{PointResult, WorkloadResult};
use crate::worker::Driver;

/// A point behind a headline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct QuotedPoint {
    pub workload: String,
    pub label: String,
    pub driver: Driver,
    /// The targets whose figures are quoted.
    pub targets: Vec<String>,
    /// True for the point that bounds the sentence.
    pub is_bound: bool,
}

/// The points behind headlines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct QuotedPoints {
    points: Vec<QuotedPoint>,
}

impl QuotedPoints {
    pub fn of(points: Vec<QuotedPoint>) -> QuotedPoints {
        QuotedPoints { points }
    }

    /// These points and those of another headline.
    pub fn and(&self, other: &QuotedPoints) -> QuotedPoints {
        QuotedPoints { points: [self.points.clone(), other.points.clone()].concat() }
    }

    /// True if a headline rests on this point.
    pub fn contain(&self, workload: &WorkloadResult, point: &PointResult) -> bool {
        self.points.iter().any(|one| {
            one.workload == workload.workload.name
                && one.label == point.point.label
                && one.driver == point.driver
                && one.targets.contains(&point.target)
        })
    }

    /// The label of the point of a workload that bounds a headline.
    pub fn bound(&self, workload: &WorkloadResult) -> Option<&str> {
        let own = |one: &&QuotedPoint| one.is_bound && one.workload == workload.workload.name;
        self.points.iter().find(own).map(|one| one.label.as_str())
    }
}
