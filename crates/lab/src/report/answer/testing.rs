//! Made-up comparisons.

use super::ComparedFigure;
use crate::result::Subject;
use crate::worker::Driver;

/// A quotable comparison of Thalweg with Apache Kafka.
pub(in crate::report) fn compared_figure(
    subject: Subject,
    label: &str,
    interval: (f64, f64),
) -> ComparedFigure {
    ComparedFigure {
        workload: "ibm-fast".to_owned(),
        label: label.to_owned(),
        driver: Driver::Thalweg,
        subject,
        figure: match subject {
            Subject::Latency => "end_to_end_p99_us",
            Subject::Drain => "drain_s",
            _ => "produced_records_per_s",
        },
        ours: "embedded".to_owned(),
        theirs: "apache-kafka".to_owned(),
        ratio: (interval.0 * interval.1).sqrt(),
        interval,
        pairs: 5,
        cpu: Some((0.1, 0.112)),
        obstacles: Vec::new(),
        figure_obstacles: Vec::new(),
        latencies: Vec::new(),
    }
}
