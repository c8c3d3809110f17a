//! Drivers beside each other: the figure with one client, divided by that with another, on the same target.

use super::obstacles::obstacles;
use super::text::{escape, table};
use crate::result::{Figure, PAIRS_MIN, PointResult, Subject, WorkloadResult, ratio_of, system, values};
use crate::worker::Driver;

/// A table of the drivers of a workload, each divided by the first one; empty for a workload with one driver.
pub(super) fn markup(workload: &WorkloadResult) -> String {
    let mut drivers: Vec<Driver> = Vec::new();
    for point in &workload.points {
        if !drivers.contains(&point.driver) {
            drivers.push(point.driver);
        }
    }
    // The order of the workload says which one the others are compared with.
    drivers.sort_by_key(|driver| workload.workload.drivers.iter().position(|known| known == driver));
    let [first, others @ ..] = &drivers[..] else { return String::new() };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for point in workload.points.iter().filter(|point| point.driver == *first) {
        for driver in others {
            let is_same = |other: &&PointResult| {
                other.driver == *driver
                    && other.target == point.target
                    && other.point.label == point.point.label
            };
            rows.extend(workload.points.iter().find(is_same).and_then(|other| row(point, other)));
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["point", "target", "figure", "driver", "divided by", "ratio", "95 % interval", ""];
    table(&heads, 5, &rows)
}

fn row(first: &PointResult, other: &PointResult) -> Option<Vec<String>> {
    let name = Subject::of(&first.point).figure(&first.summary);
    let figure = Figure::named(name)?;
    let ratio = ratio_of(figure, &values(&first.repetitions, &other.repetitions, name))?;
    let interval = ratio.interval.map_or_else(String::new, |(low, high)| format!("{low:.2} to {high:.2}"));
    let objection = match ratio.interval {
        None => Some(format!("needs {PAIRS_MIN} repetitions of each, in turns")),
        Some(_) => [first, other].iter().find_map(|point| {
            let why = obstacles(point).into_iter().next()?;
            Some(format!("{}: {why}", point.driver.words()))
        }),
    };
    Some(vec![
        escape(&first.point.label),
        escape(system(&first.target)),
        escape(figure.title),
        other.driver.words().to_owned(),
        first.driver.words().to_owned(),
        format!("{:.2}", ratio.ratio),
        interval,
        objection.map_or_else(String::new, |why| format!("not quotable: {}", escape(&why))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{measured, run_of};
    use crate::result::testing::point;

    /// A plain client and a stream on Thalweg, in turns.
    fn workload(stream: &[f64]) -> WorkloadResult {
        let plain = measured(&point(), "embedded", 0, &[100.0, 101.0, 99.0]);
        let mut streamed = measured(&point(), "embedded", 1, stream);
        streamed.driver = Driver::Stream;
        run_of(vec![streamed, plain]).workloads.remove(0)
    }

    #[test]
    fn a_driver_is_divided_by_the_first_of_the_workload() {
        let mut of_both = workload(&[97.0, 98.0, 96.0]);
        of_both.workload.drivers = vec![Driver::Thalweg, Driver::Stream];
        let table = markup(&of_both);
        assert!(table.contains("<td>stream</td><td>thalweg</td><td class=\"n\">0.97</td>"), "{table}");
        assert!(!table.contains("not quotable"), "{table}");
    }

    #[test]
    fn a_ratio_that_may_not_be_quoted_has_its_reason() {
        let mut of_both = workload(&[97.0]);
        of_both.workload.drivers = vec![Driver::Thalweg, Driver::Stream];
        assert!(markup(&of_both).contains("not quotable: needs"), "{}", markup(&of_both));
        let mut one = workload(&[97.0, 98.0, 96.0]);
        one.points.retain(|point| point.driver == Driver::Thalweg);
        assert_eq!(markup(&one), "");
    }
}
