//! Workloads of another length: for a small machine, or for a longer look. What is measured stays the same: brokers,
//! topics, clients and records' sizes are not touched.

use super::mistake::InvalidScale;
use super::{Load, Unit, Workload};

/// The least and the most that a workload is scaled by.
const SCALE_MIN: f64 = 0.001;
const SCALE_MAX: f64 = 1000.0;

/// Under these, a time is not scaled down: what is shorter measures the start.
const SECONDS_MIN: f64 = 1.0;
const WARM_UP_SECONDS_MIN: f64 = 0.5;

/// The workload with records, seconds and rates times `factor`. A measurement stays 1 s long and a warm-up 0.5 s, where
/// they were not shorter before.
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
