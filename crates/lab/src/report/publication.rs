//! The points of a workload that its published report has. Others, such as one broker's share of the work,
//! say nothing about the report: they do not lead.

use crate::result::{PointResult, WorkloadResult};
use crate::workload::Point;

impl WorkloadResult {
    /// True unless the workload reproduces a report that does not have the point: one without published
    /// figures, whose label says so, or whose cluster is that of no point with such figures.
    pub(super) fn reports(&self, point: &PointResult) -> bool {
        let published = &self.workload.published;
        let has_figures = |label: &str| published.iter().any(|figure| figure.point == label);
        if published.is_empty() || has_figures(&point.point.label) {
            return true;
        }
        let same = |other: &&Point| other.cluster == point.point.cluster && has_figures(&other.label);
        !point.point.label.contains("not published") && self.workload.points.iter().any(|other| same(&other))
    }
}

#[cfg(test)]
mod tests {
    use crate::report::testing;
    use crate::workload::load;

    /// The points of a built-in workload that its report does not have.
    fn unreported(name: &str) -> Vec<String> {
        let mut run = testing::run(&[]);
        let mut made = run.workloads.remove(0);
        made.workload = load(name, None).expect("built in");
        let points = made.workload.points.iter();
        made.points = points.map(|point| testing::measured(point, "embedded", 1, &[1.0])).collect();
        let others = made.points.iter().filter(|point| !made.reports(point));
        others.map(|point| point.point.label.clone()).collect()
    }

    #[test]
    fn points_that_were_added_to_a_report_are_not_of_it() {
        assert_eq!(unreported("ibm-fast"), ["1 broker (a broker's share, not published)"]);
        assert_eq!(unreported("ibm-payload"), [""; 0]);
        assert_eq!(unreported("aiven-plans").len(), 4, "nodes of a tenth");
        assert!(unreported("xd-direct").iter().all(|label| label.contains("by reference")));
        assert_eq!(unreported("xd-direct").len(), 4);
        assert_eq!(unreported("growth"), [""; 0], "it reproduces no report");
    }
}
