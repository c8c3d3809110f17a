//! Title, value and text of a point's headline figure.

use crate::quantity;
use crate::result::{PointResult, Subject};

impl Subject {
    pub(super) fn title(self, point: &PointResult) -> &'static str {
        match self {
            Subject::Knee => "Maximum sustained records per second",
            Subject::Produce => "Records produced per second",
            Subject::Consume => "Records consumed per second",
            Subject::Drain => "Seconds until the backlog is drained",
            Subject::Latency if self.figure(&point.summary) == "end_to_end_p99_us" => "p99 end to end",
            Subject::Latency => "p99 until acknowledged",
        }
    }

    /// The headline value.
    pub(super) fn value(self, point: &PointResult) -> Option<f64> {
        match (self, &point.knee) {
            (Subject::Knee, Some(knee)) => Some(knee.records_per_s),
            _ => point.summary.figures.get(self.figure(&point.summary)).map(|spread| spread.mean),
        }
    }

    /// A value, in large print.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Subject::Latency => quantity::time_us(value),
            Subject::Drain => format!("{} s", quantity::number(value)),
            _ => quantity::short(value),
        }
    }
}
