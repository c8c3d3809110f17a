//! Estimates the duration of a run from its points. Pure.
//!
//! The speed of the machine is unknown beforehand; the constants are those of a small one, and the progress
//! display corrects the estimate by the duration of finished repetitions.

use std::time::Duration;

use super::plan::{
    Options, PlannedPoint, expected_bytes, is_search, points, repetitions_of, warm_up_s, warm_up_unit,
};
use super::reading_back::{stamps, time_max};
use crate::quantity;
use crate::target::TargetSpec;
use crate::worker::Driver;
use crate::workload::{Extent, Load, Measure, Point, Unit};

/// Time around a measurement: start and end of workers and topics.
const AROUND_S: f64 = 1.8;
/// Start of a JVM.
const JAVA_S: f64 = 3.0;
/// Rate of reserving memory, part of which must come from the hypervisor.
const WARM_BYTES_PER_S: f64 = 1e9;
const WARM_SHARE: f64 = 0.25;
/// Maximum records, and bytes, produced or consumed per second.
const RECORDS_PER_S: f64 = 2e6;
const BYTES_PER_S: f64 = 500e6;
/// Time of reading back, as a share of the measurement: there are several readers, and they are faster than
/// producers.
const READ_BACK_SHARE: f64 = 0.2;
/// Repetitions of a search before its knee is measured.
const SEARCH_STEPS: f64 = 10.0;

/// The estimated duration of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    pub seconds: f64,
    /// Maximum seconds, if reading back uses its whole time limit; `None` without a limit.
    pub seconds_max: Option<f64>,
    /// Points, over all targets and drivers.
    pub points: usize,
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let points = if self.points == 1 { "point" } else { "points" };
        write!(f, "{} {points}, about {}", self.points, quantity::clock(self.seconds))?;
        match self.seconds_max {
            Some(most) if most > self.seconds * 1.1 => {
                write!(f, " (up to {} if reading back is slow)", quantity::clock(most))
            }
            Some(_) => Ok(()),
            None => write!(f, ", plus the time to read everything back"),
        }
    }
}

/// Estimates the duration of a run.
pub fn estimate(options: &Options) -> Estimate {
    let mut sum = Estimate { seconds_max: Some(0.0), ..Estimate::default() };
    let mut add = |seconds: f64, most: Option<f64>| {
        sum.seconds += seconds;
        sum.seconds_max = sum.seconds_max.zip(most).map(|(sum, most)| sum + most);
    };
    for (place, target) in options.targets.iter().enumerate() {
        let mut before = None;
        for planned in points(options) {
            let point = planned.point;
            let targets = options.targets_of(planned.workload, point);
            if targets.iter().all(|(of_point, _)| *of_point != place) {
                continue;
            }
            if before.replace(&point.cluster) != Some(&point.cluster) {
                let start_s = start_s(target, point.cluster.brokers);
                add(start_s, Some(start_s));
            }
            for driver in planned.drivers {
                let counted = repetitions_of(options, planned.workload, point);
                let (seconds, most) = of_point(point, counted, *driver, planned.warms_up);
                add(seconds, most);
            }
        }
    }
    let rows = |planned: PlannedPoint<'_>| {
        options.targets_of(planned.workload, planned.point).len() * planned.drivers.len()
    };
    sum.points = points(options).map(rows).sum();
    sum
}

/// Seconds until the brokers of a target are ready.
fn start_s(target: &TargetSpec, brokers: u32) -> f64 {
    if brokers == 0 {
        return 0.0;
    }
    let brokers = f64::from(brokers);
    match target {
        TargetSpec::Embedded => 0.5 + 0.3 * brokers,
        TargetSpec::ApacheKafka => 6.0 + 3.0 * brokers,
        TargetSpec::Pulsar => 12.0,
        TargetSpec::Bootstrap { .. } | TargetSpec::PulsarCluster { .. } => 0.0,
    }
}

/// Seconds of all repetitions of a point: estimate and maximum.
fn of_point(point: &Point, counted: u32, driver: Driver, warms_up: bool) -> (f64, Option<f64>) {
    let measured_s = measured_s(point);
    let mut around_s = AROUND_S + warm_up_s(point, driver);
    if driver == Driver::Java {
        around_s += JAVA_S;
    }
    if point.measure != Measure::Produce {
        // The backlog is produced first.
        around_s += taken_s(point);
    }
    if point.measure != Measure::Consume {
        around_s += expected_bytes(point) as f64 * WARM_SHARE / WARM_BYTES_PER_S;
    }
    let counted = f64::from(counted);
    let steps = if is_search(&point.load) { SEARCH_STEPS } else { 0.0 };
    let first =
        Point { extent: Extent { unit: warm_up_unit(point, driver), ..point.extent }, ..point.clone() };
    let first_s = self::measured_s(&first);
    let uncounted_s = if warms_up { around_s + first_s } else { 0.0 };
    let without = (around_s + measured_s) * (counted + steps) + uncounted_s;
    let measured = Duration::from_secs_f64(warm_up_s(point, driver) + measured_s);
    let most = time_max(&stamps(point, driver), measured).map(|most| most.as_secs_f64());
    let read_back_s = match most {
        Some(most) => most.min(measured.as_secs_f64() * READ_BACK_SHARE),
        None => measured.as_secs_f64() * READ_BACK_SHARE,
    };
    (without + counted * read_back_s, most.map(|most| without + counted * most))
}

/// Seconds of a point's measurement.
fn measured_s(point: &Point) -> f64 {
    match (point.extent.unit, &point.load) {
        (Unit::Seconds(seconds), _) => seconds,
        (Unit::Records(records), Load::Rate { records_per_s }) if point.measure == Measure::Produce => {
            records as f64 / records_per_s
        }
        (Unit::Records(_), _) => taken_s(point),
    }
}

/// Seconds to produce the point's records at the maximum rate.
fn taken_s(point: &Point) -> f64 {
    match point.extent.unit {
        Unit::Seconds(seconds) => seconds,
        Unit::Records(records) => {
            let bytes = records as f64 * f64::from(point.records.size_bytes);
            (records as f64 / RECORDS_PER_S).max(bytes / BYTES_PER_S)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::testing::options;
    use crate::workload::Verification;

    #[test]
    fn comparing_both_targets_takes_less_than_a_quarter_of_an_hour() {
        let names = ["ibm-fast", "ibm-payload", "queue"];
        let both = estimate(&options(&names, vec![TargetSpec::Embedded, TargetSpec::ApacheKafka]));
        assert!((300.0..900.0).contains(&both.seconds), "{both}");
    }

    #[test]
    fn more_repetitions_targets_and_drivers_take_longer() {
        let one = options(&["quick"], vec![TargetSpec::Embedded]);
        let alone = estimate(&one);
        assert!(alone.seconds_max.is_some_and(|most| most > alone.seconds), "{alone}");
        let mut two = one.clone();
        two.drivers.push(Driver::Librdkafka);
        assert!(estimate(&two).seconds > alone.seconds * 1.8);
        let mut whole = one.clone();
        for point in &mut whole.workloads[0].points {
            point.verify = Verification::Whole;
        }
        let found = estimate(&whole);
        assert_eq!(found.seconds_max, None);
        assert!(found.to_string().ends_with("plus the time to read everything back"), "{found}");
    }
}
