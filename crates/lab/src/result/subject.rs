//! The main figure of a point, for verdicts and reports.

use super::Summary;
use crate::workload::{Load, Measure, Point};

/// The subject of a point, which determines its main figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The maximum that the cluster sustains.
    Knee,
    /// Producing at the maximum rate.
    Produce,
    /// Consuming at the maximum rate.
    Consume,
    /// Consuming a backlog.
    Drain,
    /// Latency, at a fixed rate.
    Latency,
}

impl Subject {
    /// All subjects, in report order.
    pub const ALL: [Subject; 5] =
        [Subject::Knee, Subject::Produce, Subject::Consume, Subject::Drain, Subject::Latency];

    /// The subject of a point.
    pub fn of(point: &Point) -> Subject {
        match (&point.load, point.measure) {
            (_, Measure::Drain) => Subject::Drain,
            (_, Measure::Consume) => Subject::Consume,
            (Load::Rate { .. }, Measure::Produce) => Subject::Latency,
            (Load::AddProducers { .. } | Load::RaiseRate { .. }, Measure::Produce) => Subject::Knee,
            (Load::Maximum, Measure::Produce) => Subject::Produce,
        }
    }

    /// The name of the main figure. A latency is end to end if consumers were measured.
    pub fn figure(self, summary: &Summary) -> &'static str {
        self.figure_if(|name| summary.figures.contains_key(name))
    }

    /// The name of the main figure, given the measured figures by `has`.
    pub fn figure_if(self, has: impl Fn(&str) -> bool) -> &'static str {
        match self {
            Subject::Knee | Subject::Produce => "produced_records_per_s",
            Subject::Consume => "consumed_records_per_s",
            Subject::Drain => "drain_s",
            Subject::Latency if has("end_to_end_p99_us") => "end_to_end_p99_us",
            Subject::Latency => "acknowledge_p99_us",
        }
    }
}
