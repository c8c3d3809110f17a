//! Calibration: measures systems with known results, and reports the error.
//!
//! Real workers, here or on agents, drive a [null server](crate::null_server) at fixed rates. The true
//! latencies of each scenario follow from its script alone ([`Scenario::true_us`]): service times, stalls,
//! and a growing queue, all counted from the intended send time. So calibration detects a lab that omits the
//! delay of late sends (coordinated omission), and one that does not correct the clocks of agents. The
//! search for saturation must find the server's rate.
//!
//! Loopback, wake-ups and scheduling lie between the server's clock and the worker's. This floor is measured
//! first, with a server that answers immediately, and never subtracted. Instead the scripted times are long
//! enough that a usual floor stays below the limits; if the floor is higher, the machine is too noisy, and
//! calibration fails with that reason. A fault of the lab shows every time, a disturbance by other programs
//! does not. So a scenario beyond the limits is repeated a few times, and the best attempt counts; the number
//! of attempts is reported.
//!
//! Finally the generator's own maximum is measured, against a server that only counts: a faster system cannot
//! be measured with one thread. This figure describes the machine, and has no limit.

mod measure;
mod scenario;
mod table;

pub use measure::CalibrateError;
pub use scenario::{LatencyKind, Scenario};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::agent::Agents;
use crate::null_server::Settings;
use crate::result::AgentUse;
use crate::run::saturation::{Search, SearchStep};
use crate::worker::Driver;
use crate::workload::Load;

/// The compared percentiles.
pub const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The batch sizes for the generator: Kafka's default, and sizes of fast producers.
const GENERATOR_BATCH_BYTES: [u32; 3] = [16 << 10, 256 << 10, 1 << 20];

/// Maximum attempts for a scenario beyond the limits.
const TRIES_MAX: u32 = 3;

/// The size of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// Enough records for 99.9 %: some minutes.
    Full,
    /// For tests: fewer records, about a minute and a half.
    Reduced,
}

/// Options of a calibration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The binary whose `lab worker` is calibrated.
    pub binary: PathBuf,
    /// The agents that run the workers; `None` on this machine.
    pub agents: Option<Agents>,
    /// The client driver.
    pub driver: Driver,
    /// The size of the calibration.
    pub extent: Extent,
    /// The allowed errors.
    pub limits: ErrorTolerance,
}

impl Plan {
    /// The number of agents; 1 on this machine.
    fn agent_count(&self) -> u32 {
        self.agents.as_ref().map_or(1, |agents| u32::try_from(agents.count()).unwrap_or(u32::MAX))
    }
}

/// Allowed errors, relative to the true values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorTolerance {
    /// Maximum relative error of a percentile.
    pub percentile: f64,
    /// Maximum relative error of the knee.
    pub knee: f64,
}

impl Default for ErrorTolerance {
    fn default() -> ErrorTolerance {
        ErrorTolerance { percentile: 0.02, knee: 0.05 }
    }
}

/// The result of a calibration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The client driver.
    pub driver: Driver,
    /// The client's name and version.
    pub client: String,
    /// The size of the calibration.
    pub extent: Extent,
    /// The allowed errors.
    pub limits: ErrorTolerance,
    /// The floor: latencies with a server that answers immediately, by percentile of [`QUANTILES`].
    pub floor_us: Vec<f64>,
    /// Scenarios with known latencies.
    pub scenarios: Vec<ScenarioResult>,
    /// The search for a known rate.
    pub knee: FoundKnee,
    /// The maximum rate of one producer on one thread, by batch size.
    pub generator: Vec<Generator>,
    /// The clocks of the agents in the scenarios.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentClock>,
}

/// The clock of an agent in a calibration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentClock {
    /// The agent's address.
    pub address: String,
    /// The agent's clock minus the lab's, at the beginning.
    pub offset_us: i64,
    /// The largest error of the agent's times in any scenario; the maximum if unknown.
    pub error_us_max: u64,
}

/// Adds the clocks of a scenario.
fn note_clocks(clocks: &mut Vec<AgentClock>, uses: &[AgentUse]) {
    for used in uses {
        let error_us = used.clock_error_us();
        match clocks.iter_mut().find(|clock| clock.address == used.address) {
            Some(clock) => clock.error_us_max = clock.error_us_max.max(error_us),
            None => clocks.push(AgentClock {
                address: used.address.clone(),
                offset_us: used.clock_before.offset_us,
                error_us_max: error_us,
            }),
        }
    }
}

/// A measured scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScenarioResult {
    pub scenario: Scenario,
    /// Records with a latency.
    pub records: u64,
    /// Percentiles of the best attempt.
    pub percentiles: Vec<Percentile>,
    /// Number of attempts.
    pub tries: u32,
}

impl ScenarioResult {
    /// The largest absolute error.
    fn error_max(&self) -> f64 {
        self.percentiles.iter().map(|percentile| percentile.error.abs()).fold(0.0, f64::max)
    }
}

/// A percentile: true and measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// The quantile, such as 0.99.
    pub quantile: f64,
    /// The true value.
    pub true_us: f64,
    /// The measured value.
    pub measured_us: f64,
    /// The relative error.
    pub error: f64,
}

/// A knee: true and found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundKnee {
    /// The server's rate.
    pub true_records_per_s: f64,
    /// The found rate.
    pub found_records_per_s: f64,
    /// The relative error.
    pub error: f64,
    /// Number of trials.
    pub trials: u32,
}

/// The maximum of one producer on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Bytes of a value.
    pub value_bytes: u32,
    /// `batch.size`.
    pub batch_bytes: u32,
    /// Records acknowledged per second.
    pub records_per_s: f64,
    /// The worker's processor time per record; `None` if the machine does not report it.
    pub cpu_us_per_record: Option<f64>,
}

impl Calibration {
    /// Errors beyond the limits, as text; empty if there are none.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for measured in &self.scenarios {
            for percentile in &measured.percentiles {
                if percentile.error.abs() > self.limits.percentile {
                    faults.push(format!(
                        "{}: p{} is {:.0} us but was measured as {:.0} us, {:+.1} %; the limit is {:.1} %",
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
                "knee: the server sustains {:.0} records/s but the search found {:.0}, {:+.1} %; the limit is {:.1} %",
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

    /// The reason why this machine cannot be calibrated, as text: its floor alone exceeds the limits. `None`
    /// if it can.
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
            "this machine alone adds {floor_us:.0} us at p{}, which exceeds the limit: it is too busy or too \
             slow to calibrate",
            QUANTILES[at] * 100.0
        ))
    }
}

/// Runs a calibration and reports each step to `progress`.
pub async fn run(plan: &Plan, mut progress: impl FnMut(&str)) -> Result<Calibration, CalibrateError> {
    progress("floor: a server that answers immediately");
    measure::check_paths(plan).await?;
    let floor = measure::latencies(plan, &Scenario::floor(plan.extent)).await?;
    let (mut scenarios, mut agents) = (Vec::new(), Vec::new());
    let clock_error_us = measure::clock_error_us(plan).await?;
    for scenario in Scenario::all(plan.extent, floor.quantile_us(QUANTILES[2]), clock_error_us) {
        progress(&format!("{}: {}", scenario.name, scenario.about));
        scenarios.push(best_of_tries(plan, &scenario, &mut agents, &mut progress).await?);
    }
    let knee = find_knee(plan, &mut progress).await?;
    let mut generator = Vec::new();
    for batch_bytes in GENERATOR_BATCH_BYTES {
        progress(&format!("generator: maximum rate, in batches of {batch_bytes} bytes"));
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
        agents,
    })
}

/// Measures a scenario until it is within the limits, or the attempts are used up.
async fn best_of_tries(
    plan: &Plan,
    scenario: &Scenario,
    clocks: &mut Vec<AgentClock>,
    progress: &mut impl FnMut(&str),
) -> Result<ScenarioResult, CalibrateError> {
    let mut best: Option<ScenarioResult> = None;
    for tries in 1..=TRIES_MAX {
        let latencies = measure::latencies(plan, scenario).await?;
        note_clocks(clocks, &latencies.agents);
        let measured = latencies.of(scenario.clone());
        let error_max = measured.error_max();
        if best.as_ref().is_none_or(|best| error_max < best.error_max()) {
            best = Some(measured);
        }
        let best = best.as_mut().expect("one was measured");
        best.tries = tries;
        if best.error_max() <= plan.limits.percentile {
            break;
        }
        progress(&format!("{}: off by {:.1} % in attempt {tries}", scenario.name, error_max * 100.0));
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
            SearchStep::Try(trial) => trial,
            SearchStep::NotFound(why) => return Err(CalibrateError::NoKnee { why }),
            SearchStep::Found(knee) => {
                let found_records_per_s = knee.records_per_s;
                let error = found_records_per_s / true_records_per_s - 1.0;
                return Ok(FoundKnee { true_records_per_s, found_records_per_s, error, trials });
            }
        };
        let requested = trial.records_per_s.unwrap_or(first_records_per_s);
        // Each trial has its own server, because a queue must not carry over.
        let server = Settings { records_per_s_max: Some(true_records_per_s), ..Settings::default() };
        let outcome = measure::carried(plan, &server, requested).await?;
        trials += 1;
        let fell = if outcome.fell_behind { "fell behind" } else { "carried" };
        progress(&format!(
            "knee: {requested:.0} records/s asked, {:.0} taken: {fell}",
            outcome.records_per_s
        ));
        search.observe(trial, outcome);
    }
}
