//! Scales the length of workloads, for small machines or longer measurements. Brokers, topics, clients and
//! record sizes stay the same.

use super::document::Value;
use super::mistake::InvalidScale;
use super::{Load, Unit, Workload};

/// Minimum and maximum scale.
const SCALE_MIN: f64 = 0.001;
const SCALE_MAX: f64 = 1000.0;

/// Minimum times after scaling: shorter times would measure the start.
const SECONDS_MIN: f64 = 1.0;
const WARM_UP_SECONDS_MIN: f64 = 0.5;

/// Multiplies records, seconds and rates by `factor`. A measurement stays at least 1 s and a warm-up 0.5 s,
/// unless they were shorter before.
pub fn scaled(workload: &Workload, factor: f64) -> Result<Workload, InvalidScale> {
    if !(SCALE_MIN..=SCALE_MAX).contains(&factor) {
        return Err(InvalidScale { scale: factor, min: SCALE_MIN, max: SCALE_MAX });
    }
    let seconds = |seconds: f64, min: f64| scaled_seconds(seconds, min, factor);
    let mut workload = workload.clone();
    workload.scale *= factor;
    for point in &mut workload.points {
        let extent = &mut point.extent;
        extent.warm_up_s = seconds(extent.warm_up_s, WARM_UP_SECONDS_MIN);
        extent.unit = match extent.unit {
            Unit::Seconds(length) => Unit::Seconds(seconds(length, SECONDS_MIN)),
            Unit::Records(records) => Unit::Records(scaled_records(records, factor)),
        };
        match &mut point.load {
            Load::Rate { records_per_s } => *records_per_s *= factor,
            Load::RaiseRate { first_records_per_s, .. } => *first_records_per_s *= factor,
            Load::Maximum | Load::AddProducers { .. } => {}
        }
    }
    Ok(workload)
}

fn scaled_seconds(seconds: f64, min: f64, factor: f64) -> f64 {
    (seconds * factor).max(seconds.min(min))
}

fn scaled_records(records: u64, factor: f64) -> u64 {
    ((records as f64 * factor).round() as u64).max(1)
}

/// A setting of a point after scaling, for its label; `None` if it stays the same.
pub(super) fn scaled_setting(path: &str, value: &Value, factor: f64) -> Option<Value> {
    let number = match value {
        Value::Whole(number) => *number as f64,
        Value::Number(number) => *number,
        _ => return None,
    };
    let scaled = match path {
        "extent.records" => scaled_records(number as u64, factor) as f64,
        "extent.seconds" => scaled_seconds(number, SECONDS_MIN, factor),
        "extent.warm_up_s" => scaled_seconds(number, WARM_UP_SECONDS_MIN, factor),
        "load.records_per_s" | "load.first_records_per_s" => number * factor,
        _ => return None,
    };
    Some(match scaled.fract() == 0.0 && scaled.abs() < i64::MAX as f64 {
        true => Value::Whole(scaled as i64),
        // A label needs no more digits.
        false => Value::Number((scaled * 1e3).round() / 1e3),
    })
}
