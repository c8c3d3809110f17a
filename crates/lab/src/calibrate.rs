//! Calibration: the lab measures what is known beforehand, and shows how far off it is.
//!
//! Real workers drive a [null server](crate::null_server) at fixed rates. What each scenario's latencies must be follows
//! from its script alone ([`Scenario::true_us`]): times of service, stalls, and a queue that grows, all counted from when
//! records were meant to be sent, so that a lab that forgets the waiting of what it sent late (coordinated omission) is
//! found out. The search for saturation must find the server's rate.
//!
//! Between the server's moment and the worker's lies the machine: loopback, wake-ups, scheduling. That floor is measured
//! first, with a server that answers at once, and nothing is taken off for it. Instead the scripted times are so long that
//! a floor that is usual is below the limits; where it is not, the machine is too noisy to tell, and calibration fails and
//! says so. A fault of the lab is there each time, a disturbance by something else that runs is not: a scenario that is
//! beyond the limits is measured again, a few times at the most, and the best of its tries counts. How many there were is
//! shown.
//!
//! At last comes what the generator itself can send, to a server that only counts: a system that takes more than that
//! cannot be measured from one thread of it. That is a figure of the machine, and has no limit.

mod measure;
mod scenario;
mod table;

pub use measure::CalibrateError;
pub use scenario::Scenario;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::null_server::Settings;
use crate::run::saturation::{Next, Search};
use crate::worker::Driver;
use crate::workload::Load;

/// The percentiles that are compared.
pub const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The sizes of batches that the generator is measured with: Kafka's default, and what fast producers use.
const GENERATOR_BATCH_BYTES: [u32; 3] = [16 << 10, 256 << 10, 1 << 20];

/// How often a scenario that is beyond the limits is measured at the most.
const TRIES_MAX: u32 = 3;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// So many records that 99.9 % is more than a handful: some minutes.
    Full,
    /// For tests: fewer records, about a minute and a half.
    Reduced,
}

/// How a calibration is made.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The binary whose `lab worker` is calibrated.
    pub binary: PathBuf,
    /// Who drives.
    pub driver: Driver,
    /// How much is measured.
    pub extent: Extent,
    /// What may be wrong.
    pub limits: Limits,
}

/// What may be wrong, as parts of what is true.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Of each percentile.
    pub percentile: f64,
    /// Of the knee.
    pub knee: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { percentile: 0.02, knee: 0.05 }
    }
}

/// What a calibration found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Who drove.
    pub driver: Driver,
    /// The client's name and version.
    pub client: String,
    /// How much was measured.
    pub extent: Extent,
    /// What may be wrong.
    pub limits: Limits,
    /// What network and scheduling take: a server that answers at once, by percentile of [`QUANTILES`].
    pub floor_us: Vec<f64>,
    /// What was measured of known latencies.
    pub scenarios: Vec<Measured>,
    /// What was found of a known rate.
    pub knee: FoundKnee,
    /// What one producer on one thread sends at the most, by size of batches.
    pub generator: Vec<Generator>,
}

/// A scenario, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was measured.
    pub scenario: Scenario,
    /// Records whose latencies count.
    pub records: u64,
    /// Its percentiles, of the best try.
    pub percentiles: Vec<Percentile>,
    /// How often it was measured.
    pub tries: u32,
}

impl Measured {
    /// The largest error, whichever way.
    fn error_max(&self) -> f64 {
        self.percentiles.iter().map(|percentile| percentile.error.abs()).fold(0.0, f64::max)
    }
}

/// A percentile, as it is and as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// Which, such as 0.99.
    pub quantile: f64,
    /// What it is.
    pub true_us: f64,
    /// What was measured.
    pub measured_us: f64,
    /// The difference, as a part of what is true.
    pub error: f64,
}

/// A knee, as it is and as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundKnee {
    /// The rate that the server carries.
    pub true_records_per_s: f64,
    /// What was found.
    pub found_records_per_s: f64,
    /// The difference, as a part of what is true.
    pub error: f64,
    /// Rates that were tried.
    pub trials: u32,
}

/// What one producer on one thread can send.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Bytes of a value.
    pub value_bytes: u32,
    /// `batch.size`.
    pub batch_bytes: u32,
    /// Records acknowledged in a second.
    pub records_per_s: f64,
    /// Processor time of the worker's process, by record; none where the machine does not tell.
    pub cpu_us_per_record: Option<f64>,
}

impl Calibration {
    /// What is off by more than the limits allow, in words; empty when nothing is.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for measured in &self.scenarios {
            for percentile in &measured.percentiles {
                if percentile.error.abs() > self.limits.percentile {
                    faults.push(format!(
                        "{}: p{} is {:.0} us and was measured as {:.0} us, {:+.1} %; {:.1} % is allowed",
                        measured.scenario.name,
                        percentile.quantile * 100.0,
                        percentile.true_us,
                        percentile.measured_us,
                        percentile.error * 100.0,
                        self.limits.percentile * 100.0,
                    ));
                }
            }
        }
        if self.knee.error.abs() > self.limits.knee {
            faults.push(format!(
                "knee: the server carries {:.0} records/s and {:.0} were found, {:+.1} %; {:.1} % is allowed",
                self.knee.true_records_per_s,
                self.knee.found_records_per_s,
                self.knee.error * 100.0,
                self.limits.knee * 100.0,
            ));
        }
        if !faults.is_empty() {
            faults.extend(self.noise());
        }
        faults
    }

    /// Why nothing can be told on this machine now, in words: its floor alone is beyond the limits. None where it is not.
    pub fn noise(&self) -> Option<String> {
        let least = |at: usize| {
            let trues = self.scenarios.iter().filter_map(|measured| measured.percentiles.get(at));
            trues.map(|percentile| percentile.true_us).fold(f64::INFINITY, f64::min)
        };
        let (at, floor_us) = self
            .floor_us
            .iter()
            .enumerate()
            .find(|&(at, &floor_us)| floor_us > least(at) * self.limits.percentile)?;
        Some(format!(
            "this machine alone takes {floor_us:.0} us at p{}, which is more than the limit allows: it is too busy or too \
             slow to tell",
            QUANTILES[at] * 100.0
        ))
    }
}

/// Makes a calibration; `progress` hears what is being done.
pub async fn run(plan: &Plan, mut progress: impl FnMut(&str)) -> Result<Calibration, CalibrateError> {
    progress("floor: a server that answers at once");
    let floor = measure::latencies(plan, &Scenario::floor(plan.extent)).await?;
    let mut scenarios = Vec::new();
    for scenario in Scenario::all(plan.extent, floor.quantile_us(QUANTILES[2])) {
        progress(&format!("{}: {}", scenario.name, scenario.about));
        scenarios.push(best_of_tries(plan, &scenario, &mut progress).await?);
    }
    let knee = find_knee(plan, &mut progress).await?;
    let mut generator = Vec::new();
    for batch_bytes in GENERATOR_BATCH_BYTES {
        progress(&format!("generator: as many records as go, in batches of {batch_bytes} bytes"));
        generator.push(measure::generator(plan, batch_bytes).await?);
    }
    Ok(Calibration {
        driver: plan.driver,
        client: floor.client.clone(),
        extent: plan.extent,
        limits: plan.limits,
        floor_us: QUANTILES.iter().map(|&quantile| floor.quantile_us(quantile)).collect(),
        scenarios,
        knee,
        generator,
    })
}

/// Measures a scenario until it is within the limits, or often enough.
async fn best_of_tries(
    plan: &Plan,
    scenario: &Scenario,
    progress: &mut impl FnMut(&str),
) -> Result<Measured, CalibrateError> {
    let mut best: Option<Measured> = None;
    for tries in 1..=TRIES_MAX {
        let measured = measure::latencies(plan, scenario).await?.of(scenario.clone());
        let error_max = measured.error_max();
        if best.as_ref().is_none_or(|best| error_max < best.error_max()) {
            best = Some(measured);
        }
        let best = best.as_mut().expect("one was measured");
        best.tries = tries;
        if best.error_max() <= plan.limits.percentile {
            break;
        }
        progress(&format!("{}: off by {:.1} % in try {tries}", scenario.name, error_max * 100.0));
    }
    Ok(best.expect("at least one try"))
}

async fn find_knee(plan: &Plan, progress: &mut impl FnMut(&str)) -> Result<FoundKnee, CalibrateError> {
    let true_records_per_s = 20_000.0;
    let first_records_per_s = 3_000.0;
    let load = Load::RaiseRate { first_records_per_s, factor: 2.0, precision: 0.02 };
    let mut search = Search::new(&load, 1).expect("a rate is searched for");
    let mut trials = 0;
    loop {
        let trial = match search.next() {
            Next::Try(trial) => trial,
            Next::NotFound(why) => return Err(CalibrateError::NoKnee { why }),
            Next::Found(knee) => {
                let found_records_per_s = knee.records_per_s;
                let error = found_records_per_s / true_records_per_s - 1.0;
                return Ok(FoundKnee { true_records_per_s, found_records_per_s, error, trials });
            }
        };
        let asked = trial.records_per_s.unwrap_or(first_records_per_s);
        // Each trial has a server of its own: a queue that grew is not the next trial's.
        let server = Settings { records_per_s_max: Some(true_records_per_s), ..Settings::default() };
        let outcome = measure::carried(plan, &server, asked).await?;
        trials += 1;
        let fell = if outcome.fell_behind { "fell behind" } else { "carried" };
        progress(&format!("knee: {asked:.0} records/s asked, {:.0} taken: {fell}", outcome.records_per_s));
        search.observe(trial, outcome);
    }
}
