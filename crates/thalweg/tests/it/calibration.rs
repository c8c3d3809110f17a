//! The lab is calibrated, in a reduced form: percentiles and knee of real workers against true values. In the
//! nightly form of `scripts/test`, which builds an optimised binary, and runs nothing else meanwhile.
#![expect(
    clippy::print_stderr,
    reason = "an attempt that failed is shown, and a test that is skipped says so"
)]

use thalweg_lab::calibrate::{Calibration, ErrorTolerance, Extent, LatencyKind, Plan, run};
use thalweg_lab::worker::Driver;

use crate::lab::{LabDirectory, alone, ran, text};
use crate::lab_agents::{Agent, list, slow_path};

/// Large, because a busy machine of two processors is imprecise. Coordinated omission would still show: it
/// removes four fifths of the overload's median, and the stall from the stalls' p99.
const LIMITS: ErrorTolerance = ErrorTolerance { percentile: 0.1, knee: 0.1 };
/// Maximum number of measurements: another program may have disturbed one.
const ATTEMPTS: u32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "it measures, two minutes long: alone, in the nightly form of scripts/test"]
async fn measured_percentiles_and_knee_are_true() {
    let binary = env!("CARGO_BIN_EXE_thalweg").into();
    let plan =
        Plan { binary, agents: None, driver: Driver::Thalweg, extent: Extent::Reduced, limits: LIMITS };
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

/// Measures through two agents, of which the second has a wrong clock and is behind a slow path. The error
/// that both leave is far beyond the limits, if it is not corrected: a scenario end to end has both clocks.
fn calibrated_through_agents(more: &[&str]) -> Calibration {
    let lab = LabDirectory::with("");
    let right = Agent::insecure(&lab);
    let ahead = Agent::start(&lab, &["--insecure", "--clock-offset-ms", "50"]);
    let agents = format!("{},{}", list(&[&right]), slow_path(&ahead.address));
    let output = ran(
        lab.command(&[&["calibrate", "--json", "--agents", &agents, "--agents-insecure"], more].concat())
    );
    // Beyond the limits it fails, with the calibration.
    let calibration: Calibration = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)));
    drop((right, ahead));
    lab.assert_nothing_is_left();
    calibration
}

#[test]
#[ignore = "it measures, two minutes long: alone, in the nightly form of scripts/test"]
fn percentiles_are_true_through_agents_with_a_wrong_clock_on_a_slow_path() {
    let _alone = alone();
    let (mut faults, mut noises) = (Vec::new(), Vec::new());
    for attempt in 1..=ATTEMPTS {
        let calibration = calibrated_through_agents(&["--reduced"]);
        let [right, ahead] = &calibration.agents[..] else { panic!("{:?}", calibration.agents) };
        assert!(right.offset_us.abs() < 5_000, "{right:?}");
        assert!((ahead.offset_us - 50_000).abs() < 10_000, "{ahead:?}");
        let both = |measured| calibration.scenarios.iter().any(|one| one.scenario.measured == measured);
        assert!(both(LatencyKind::Acknowledged) && both(LatencyKind::EndToEnd));
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
