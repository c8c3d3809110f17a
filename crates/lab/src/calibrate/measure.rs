//! Drives a null server with workers, and reads latencies and rates.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram as Recorded;

use super::{Extent, Generator, LatencyKind, Percentile, Plan, QUANTILES, Scenario, ScenarioResult};
use crate::agent::AgentError;
use crate::null_server::{NullServer, NullServerError, Settings};
use crate::result::{AgentUse, HistogramUnreadable};
use crate::run::saturation::{self, Outcome};
use crate::run::{Failure, Trial, TrialOutcome};
use crate::worker::{Assignment, Role, StopWhen};
use crate::workload::{Payload, RecordSpec, Verification};

/// Maximum time until the last record is delivered to the consumers: the longest service and stall are
/// shorter.
const DELIVERED_WITHIN: Duration = Duration::from_secs(5);
/// Time beyond the run's duration after which a worker counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const TOPIC: &str = "calibration";

/// Why a calibration failed.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The null server did not start.
    #[error(transparent)]
    Server(#[from] NullServerError),
    /// A worker or an agent failed.
    #[error(transparent)]
    Trial(#[from] Failure),
    /// An agent cannot be used.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The worker did not end.
    #[error("The calibration worker did not end within {seconds:.0} s of its deadline")]
    Stuck {
        /// The time limit.
        seconds: f64,
    },
    /// The worker reported no latencies, or failed to send records.
    #[error("The calibration worker acknowledged {acknowledged} records and failed to send {failed}{}",
        first_failure.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Nothing {
        acknowledged: u64,
        /// Records that failed.
        failed: u64,
        /// The first reason.
        first_failure: Option<String>,
    },
    /// The worker's report is unreadable.
    #[error(transparent)]
    Histogram(#[from] HistogramUnreadable),
    /// The search did not end.
    #[error("The search for saturation found no knee: {why}")]
    NoKnee {
        /// Why the search did not end.
        why: String,
    },
}

impl CalibrateError {
    fn nothing(outcome: TrialOutcome) -> CalibrateError {
        let (produced, consumed) = (outcome.produced, outcome.consumed);
        CalibrateError::Nothing {
            acknowledged: produced.acknowledged,
            failed: produced.failed + consumed.failed,
            first_failure: produced.first_failure.or(consumed.first_failure),
        }
    }
}

/// The latencies measured by workers.
pub(super) struct Latencies {
    pub(super) client: String,
    recorded: Recorded<u64>,
    /// The agents of the workers.
    pub(super) agents: Vec<AgentUse>,
}

impl Latencies {
    pub(super) fn quantile_us(&self, quantile: f64) -> f64 {
        self.recorded.value_at_quantile(quantile) as f64
    }

    /// Compares the latencies with the true values.
    pub(super) fn of(&self, scenario: Scenario) -> ScenarioResult {
        let percentile = |quantile| {
            let (true_us, measured_us) = (scenario.true_us(quantile), self.quantile_us(quantile));
            Percentile { quantile, true_us, measured_us, error: measured_us / true_us - 1.0 }
        };
        let percentiles = QUANTILES.map(percentile).to_vec();
        ScenarioResult { scenario, records: self.recorded.len(), percentiles, tries: 1 }
    }
}

/// Measures a scenario.
pub(super) async fn latencies(plan: &Plan, scenario: &Scenario) -> Result<Latencies, CalibrateError> {
    let server = start(plan, &scenario.server)?;
    let producers = Assignment {
        clients: scenario.clients,
        properties: properties(&[("linger.ms", "0")]),
        ..assignment(plan, &server, Some(scenario.records_per_s), scenario.measured_s)
    };
    let (producers, consumers) = match scenario.measured {
        LatencyKind::Acknowledged => (producers, None),
        // Stamps have the time in microseconds.
        LatencyKind::EndToEnd => {
            let producers = Assignment { verify: Verification::Bounded, ..producers };
            let consumers = Assignment {
                role: Role::Consumer,
                properties: BTreeMap::new(),
                clients: plan.agent_count(),
                all_clients: plan.agent_count(),
                records_per_s: None,
                stop: StopWhen::OnCommand,
                ..producers.clone()
            };
            (producers, Some(consumers))
        }
    };
    let outcome = drive(plan, producers, consumers, scenario.warm_up_s).await?;
    let measured = match scenario.measured {
        LatencyKind::Acknowledged => &outcome.produced.acknowledge_latency,
        LatencyKind::EndToEnd => &outcome.consumed.end_to_end_latency,
    };
    match measured {
        Some(latency) if outcome.produced.failed + outcome.consumed.failed == 0 => {
            let recorded = latency.recorded()?;
            Ok(Latencies { client: outcome.client, recorded, agents: outcome.agents })
        }
        _ => Err(CalibrateError::nothing(outcome)),
    }
}

/// The sum of the uncertainties of two agents' clocks, which a latency between them may be wrong by.
pub(super) async fn clock_error_us(plan: &Plan) -> Result<u64, CalibrateError> {
    let mut uncertainties_us = Vec::new();
    for agent in 0..plan.agents.as_ref().map_or(0, crate::agent::Agents::count) {
        let agents = plan.agents.as_ref().expect("there are some");
        uncertainties_us.push(agents.clock(agent).await?.uncertainty_us);
    }
    uncertainties_us.sort_unstable_by(|a, b| b.cmp(a));
    Ok(uncertainties_us.into_iter().take(2).sum())
}

/// A null server where the workers reach it.
fn start(plan: &Plan, settings: &Settings) -> Result<NullServer, NullServerError> {
    match &plan.agents {
        Some(agents) => NullServer::start_on(agents.own_address(), settings),
        None => NullServer::start(settings),
    }
}

/// Checks that every agent reaches a null server.
pub(super) async fn check_paths(plan: &Plan) -> Result<(), CalibrateError> {
    if let Some(agents) = &plan.agents {
        let server = start(plan, &Settings::default())?;
        agents.check_paths(TOPIC, &[server.address()], &BTreeMap::new()).await?;
    }
    Ok(())
}

/// Runs a trial: the outcome shows if a server sustains a rate.
pub(super) async fn carried(
    plan: &Plan,
    server: &Settings,
    records_per_s: f64,
) -> Result<Outcome, CalibrateError> {
    let (warm_up_s, measured_s) = match plan.extent {
        Extent::Full => (1.0, 5.0),
        Extent::Reduced => (0.5, 3.0),
    };
    let server = start(plan, server)?;
    let assignment = Assignment {
        properties: properties(&[("linger.ms", "5"), ("batch.size", "65536")]),
        clients: plan.agent_count(),
        ..assignment(plan, &server, Some(records_per_s), measured_s)
    };
    let ran = drive(plan, assignment, None, warm_up_s).await?;
    let taken = per_s(&ran);
    let fell_behind = saturation::fell_behind(records_per_s, taken, &ran.intervals);
    Ok(Outcome { records_per_s: taken, fell_behind: fell_behind.is_some() })
}

/// The maximum rate of one producer on one thread, in batches of a size.
pub(super) async fn generator(plan: &Plan, batch_bytes: u32) -> Result<Generator, CalibrateError> {
    let (warm_up_s, measured_s) = match plan.extent {
        Extent::Full => (2.0, 8.0),
        Extent::Reduced => (0.5, 2.0),
    };
    let server = start(plan, &Settings::default())?;
    let batch = batch_bytes.to_string();
    let request = (batch_bytes + (64 << 10)).max(1 << 20).to_string();
    let assignment = Assignment {
        properties: [
            ("acks", "1"),
            ("linger.ms", "5"),
            ("batch.size", &batch),
            ("max.request.size", &request),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        ..assignment(plan, &server, None, measured_s)
    };
    let value_bytes = assignment.records.size_bytes;
    let ran = drive(plan, assignment, None, warm_up_s).await?;
    if ran.produced.failed > 0 || ran.produced.span.records == 0 {
        return Err(CalibrateError::nothing(ran));
    }
    let cpu_s = ran.producers_cpu_s;
    let cpu_us_per_record = (cpu_s > 0.0).then(|| cpu_s * 1e6 / ran.produced.span.records as f64);
    Ok(Generator { value_bytes, batch_bytes, records_per_s: per_s(&ran), cpu_us_per_record })
}

fn properties(own: &[(&str, &str)]) -> BTreeMap<String, String> {
    // The client does not limit requests in flight: a record waits only for the server.
    let all = [("acks", "1"), ("max.in.flight.requests.per.connection", "1000")];
    all.iter().chain(own).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn assignment(plan: &Plan, server: &NullServer, records_per_s: Option<f64>, measured_s: f64) -> Assignment {
    Assignment {
        role: Role::Producer,
        driver: plan.driver,
        bootstrap: vec![server.address()],
        properties: BTreeMap::new(),
        topics: vec![TOPIC.to_owned()],
        clients: 1,
        first_client: 0,
        threads: 1,
        records: RecordSpec { size_bytes: 128, payload: Payload::Random, keys: None },
        verify: Verification::Off,
        records_per_s,
        stop: StopWhen::Seconds(measured_s),
        groups: Vec::new(),
        drains: false,
        all_clients: 1,
        seed: 42,
    }
}

/// Records acknowledged per second of the measurement.
fn per_s(outcome: &TrialOutcome) -> f64 {
    let span = &outcome.produced.span;
    span.records as f64 * 1e6 / span.to_us.saturating_sub(span.from_us).max(1) as f64
}

async fn drive(
    plan: &Plan,
    producers: Assignment,
    consumers: Option<Assignment>,
    warm_up_s: f64,
) -> Result<TrialOutcome, CalibrateError> {
    let measured_s = match producers.stop {
        StopWhen::Seconds(seconds) => seconds,
        StopWhen::Records(_) | StopWhen::OnCommand => 0.0,
    };
    let patience = PATIENCE + Duration::from_secs_f64(2.0 * (warm_up_s + measured_s));
    let trial = Trial {
        binary: &plan.binary,
        agents: plan.agents.as_ref(),
        producers,
        consumers,
        warm_up_s,
        delivered_within: DELIVERED_WITHIN,
    };
    match tokio::time::timeout(patience, trial.run()).await {
        Ok(outcome) => Ok(outcome?),
        Err(_) => Err(CalibrateError::Stuck { seconds: patience.as_secs_f64() }),
    }
}
