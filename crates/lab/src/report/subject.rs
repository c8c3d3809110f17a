//! Title, value and text of a point's headline figure.

use crate::quantity;
use crate::result::{PointResult, Subject};

impl Subject {
    pub(super) fn title(self, point: &PointResult) -> &'static str {
        match self {
            Subject::Knee => "Maximum sustained records per second",
            Subject::Produce if self.figure(&point.summary) == "carried_records_per_s" => {
                "Records per second, produced and consumed"
            }
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

    /// The reach of the value of [`Subject::value`]: of the repetitions, or of the search for a knee.
    pub(super) fn reach(self, point: &PointResult) -> Option<(f64, f64)> {
        if let (Subject::Knee, Some(knee)) = (self, &point.knee) {
            let (low, high) = (knee.low_records_per_s, knee.high_records_per_s);
            return Some((low.min(knee.records_per_s), high.max(knee.records_per_s)));
        }
        let spread = point.summary.figures.get(self.figure(&point.summary))?;
        (spread.count > 1).then_some((spread.min, spread.max))
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
