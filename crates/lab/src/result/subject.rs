//! Which figure stands for a point: the one that a verdict and a report look at.

use super::Summary;
use crate::workload::{Load, Measure, Point};

/// What a point is about: which of its figures stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The most that the cluster carries.
    Knee,
    /// Producing as fast as it goes.
    Produce,
    /// Consuming as fast as it goes.
    Consume,
    /// Consuming a backlog.
    Drain,
    /// Waiting, at a given rate.
    Latency,
}

impl Subject {
    /// All, in the order of a report.
    pub const ALL: [Subject; 5] =
        [Subject::Knee, Subject::Produce, Subject::Consume, Subject::Drain, Subject::Latency];

    /// What a point is about.
    pub fn of(point: &Point) -> Subject {
        match (&point.load, point.measure) {
            (_, Measure::Drain) => Subject::Drain,
            (_, Measure::Consume) => Subject::Consume,
            (Load::Rate { .. }, Measure::Produce) => Subject::Latency,
            (Load::AddProducers { .. } | Load::RaiseRate { .. }, Measure::Produce) => Subject::Knee,
            (Load::Maximum, Measure::Produce) => Subject::Produce,
        }
    }

    /// The name of the figure that tells it. A latency is that from end to end where consumers were measured.
    pub fn figure(self, summary: &Summary) -> &'static str {
        match self {
            Subject::Knee | Subject::Produce => "produced_records_per_s",
            Subject::Consume => "consumed_records_per_s",
            Subject::Drain => "drain_s",
            Subject::Latency if summary.figures.contains_key("end_to_end_p99_us") => "end_to_end_p99_us",
            Subject::Latency => "acknowledge_p99_us",
        }
    }
}
