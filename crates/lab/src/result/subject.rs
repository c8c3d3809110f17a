//! The main figure of a point, for verdicts and reports.

use super::Summary;
use crate::workload::{Load, Measure, Point};

/// The subject of a point, which determines its main figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The maximum that the cluster sustains.
    Knee,
    /// Producing at the maximum rate; with consumers, what reaches them.
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

    /// The name of the main figure. With consumers, a rate is the lesser of both sides, and a latency is end
    /// to end.
    pub fn figure(self, summary: &Summary) -> &'static str {
        self.figure_if(|name| summary.figures.contains_key(name))
    }

    /// The name of the main figure, given the measured figures by `has`.
    pub fn figure_if(self, has: impl Fn(&str) -> bool) -> &'static str {
        match self {
            Subject::Knee | Subject::Produce if has("carried_records_per_s") => "carried_records_per_s",
            Subject::Knee | Subject::Produce => "produced_records_per_s",
            Subject::Consume => "consumed_records_per_s",
            Subject::Drain => "drain_s",
            Subject::Latency if has("end_to_end_p99_us") => "end_to_end_p99_us",
            Subject::Latency => "acknowledge_p99_us",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_with_consumers_is_that_which_reaches_them() {
        let figure = |subject: Subject, measured: &[&str]| subject.figure_if(|name| measured.contains(&name));
        let with_consumers = ["produced_records_per_s", "consumed_records_per_s", "carried_records_per_s"];
        for subject in [Subject::Produce, Subject::Knee] {
            assert_eq!(figure(subject, &with_consumers), "carried_records_per_s");
            assert_eq!(figure(subject, &with_consumers[..1]), "produced_records_per_s");
        }
        assert_eq!(figure(Subject::Consume, &with_consumers), "consumed_records_per_s");
    }
}
