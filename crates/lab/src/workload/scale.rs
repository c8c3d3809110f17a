//! Scales the length of workloads, for small machines or longer measurements. Brokers, topics, clients and
//! record sizes stay the same.

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
    let seconds = |seconds: f64, min: f64| (seconds * factor).max(seconds.min(min));
    let mut workload = workload.clone();
    workload.scale *= factor;
    for point in &mut workload.points {
        let extent = &mut point.extent;
        extent.warm_up_s = seconds(extent.warm_up_s, WARM_UP_SECONDS_MIN);
        extent.unit = match extent.unit {
            Unit::Seconds(length) => Unit::Seconds(seconds(length, SECONDS_MIN)),
            Unit::Records(records) => Unit::Records(((records as f64 * factor).round() as u64).max(1)),
        };
        match &mut point.load {
            Load::Rate { records_per_s } => *records_per_s *= factor,
            Load::RaiseRate { first_records_per_s, .. } => *first_records_per_s *= factor,
            Load::Maximum | Load::AddProducers { .. } => {}
        }
    }
    Ok(workload)
}
