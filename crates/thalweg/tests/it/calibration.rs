//! The lab is calibrated, in a reduced form: percentiles and knee of real workers against true values. In the
//! nightly form of `scripts/test`, which builds an optimised binary, and runs nothing else meanwhile.
#![expect(
    clippy::print_stderr,
    reason = "an attempt that failed is shown, and a test that is skipped says so"
)]

use thalweg_lab::calibrate::{ErrorTolerance, Extent, Plan, run};
use thalweg_lab::worker::Driver;

/// Large, because a busy machine of two processors is imprecise. Coordinated omission would still show: it
/// removes four fifths of the overload's median, and the stall from the stalls' p99.
const LIMITS: ErrorTolerance = ErrorTolerance { percentile: 0.1, knee: 0.1 };
/// Maximum number of measurements: another program may have disturbed one.
const ATTEMPTS: u32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "it measures, two minutes long: alone, in the nightly form of scripts/test"]
async fn measured_percentiles_and_knee_are_true() {
    let binary = env!("CARGO_BIN_EXE_thalweg").into();
    let plan = Plan { binary, driver: Driver::Thalweg, extent: Extent::Reduced, limits: LIMITS };
    let mut faults = Vec::new();
    let mut noises = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let calibration = run(&plan, |_| {}).await.expect("a calibration");
        faults = calibration.faults();
        if faults.is_empty() {
            return;
        }
        noises.extend(calibration.noise());
        eprintln!("attempt {attempt} of {ATTEMPTS} is beyond the limits:\n{calibration}");
    }
    if noises.len() == ATTEMPTS as usize {
        eprintln!("SKIPPED: calibration: {}: run it when nothing else runs", noises.join("; "));
        return;
    }
    panic!("{ATTEMPTS} calibrations were beyond the limits: {}", faults.join("; "));
}
