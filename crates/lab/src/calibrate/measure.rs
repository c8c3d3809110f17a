//! Drives a null server with a worker process, and reads latencies and rates.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram as Recorded;

use super::{Extent, Generator, Percentile, Plan, QUANTILES, Scenario, ScenarioResult};
use crate::null_server::{NullServer, NullServerError, Settings};
use crate::result::HistogramUnreadable;
use crate::run::now_us;
use crate::run::saturation::{self, Outcome};
use crate::sample::Sampler;
use crate::worker::{Assignment, Event, Handle, HandleError, Interval, Report, Role, StopWhen};
use crate::workload::{Payload, RecordSpec, Verification};

/// Time from the start command to the start.
const LEAD: Duration = Duration::from_millis(300);
/// Time beyond the run's duration after which a worker counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);
const TOPIC: &str = "calibration";

/// Why a calibration failed.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The null server did not start.
    #[error(transparent)]
    Server(#[from] NullServerError),
    /// The worker failed.
    #[error(transparent)]
    Worker(#[from] HandleError),
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
    fn nothing(report: Report) -> CalibrateError {
        CalibrateError::Nothing {
            acknowledged: report.acknowledged,
            failed: report.failed,
            first_failure: report.first_failure,
        }
    }
}

/// The latencies measured by a worker.
pub(super) struct Latencies {
    pub(super) client: String,
    recorded: Recorded<u64>,
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
    let server = NullServer::start(&scenario.server)?;
    let assignment = Assignment {
        clients: scenario.clients,
        properties: properties(&[("linger.ms", "0")]),
        ..assignment(plan, &server, Some(scenario.records_per_s), scenario.measured_s)
    };
    let ran = drive(plan, &assignment, scenario.warm_up_s, scenario.measured_s).await?;
    let report = ran.report;
    match &report.acknowledge_latency {
        Some(latency) if report.failed == 0 => {
            Ok(Latencies { client: ran.client, recorded: latency.recorded()? })
        }
        _ => Err(CalibrateError::nothing(report)),
    }
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
    let server = NullServer::start(server)?;
    let assignment = Assignment {
        properties: properties(&[("linger.ms", "5"), ("batch.size", "65536")]),
        ..assignment(plan, &server, Some(records_per_s), measured_s)
    };
    let ran = drive(plan, &assignment, warm_up_s, measured_s).await?;
    let taken = ran.records_per_s();
    let fell_behind = saturation::fell_behind(records_per_s, taken, &ran.intervals);
    Ok(Outcome { records_per_s: taken, fell_behind: fell_behind.is_some() })
}

/// The maximum rate of one producer on one thread, in batches of a size.
pub(super) async fn generator(plan: &Plan, batch_bytes: u32) -> Result<Generator, CalibrateError> {
    let (warm_up_s, measured_s) = match plan.extent {
        Extent::Full => (2.0, 8.0),
        Extent::Reduced => (0.5, 2.0),
    };
    let server = NullServer::start(&Settings::default())?;
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
    let ran = drive(plan, &assignment, warm_up_s, measured_s).await?;
    if ran.report.failed > 0 || ran.report.measured.records == 0 {
        return Err(CalibrateError::nothing(ran.report));
    }
    let cpu_us_per_record = (ran.cpu_s > 0.0).then(|| ran.cpu_s * 1e6 / ran.report.measured.records as f64);
    Ok(Generator { value_bytes, batch_bytes, records_per_s: ran.records_per_s(), cpu_us_per_record })
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

struct WorkerRun {
    client: String,
    report: Report,
    /// Intervals of the measurement.
    intervals: Vec<Interval>,
    /// Processor time of the worker and its children during the measurement; 0 if unknown.
    cpu_s: f64,
}

impl WorkerRun {
    fn records_per_s(&self) -> f64 {
        let span = &self.report.measured;
        span.records as f64 * 1e6 / span.to_us.saturating_sub(span.from_us).max(1) as f64
    }
}

async fn drive(
    plan: &Plan,
    assignment: &Assignment,
    warm_up_s: f64,
    measured_s: f64,
) -> Result<WorkerRun, CalibrateError> {
    let patience = PATIENCE + Duration::from_secs_f64(2.0 * (warm_up_s + measured_s));
    let driven = tokio::time::timeout(patience, async {
        let mut worker = Handle::spawn("calibration", &plan.binary, assignment)?;
        let (client, children) = worker.ready().await?;
        let processes = std::iter::once(worker.pid()).chain(children);
        let sampler = Sampler::start(processes.map(|pid| ("generator".to_owned(), pid)).collect());
        let at_us = now_us() + u64::try_from(LEAD.as_micros()).expect("a fraction of a second");
        let measure_from_us = at_us + (warm_up_s * 1e6) as u64;
        worker.start(at_us, measure_from_us).await;
        let mut intervals = Vec::new();
        loop {
            match worker.next_event().await? {
                Event::Interval(interval) if interval.at_us > measure_from_us + interval.length_us => {
                    intervals.push(interval);
                }
                Event::Done(report) => {
                    let usage = sampler.finish(report.measured.from_us, report.measured.to_us);
                    let cpu_s = usage.processes.iter().map(|used| used.user_s + used.system_s).sum();
                    return Ok(WorkerRun { client, report: *report, intervals, cpu_s });
                }
                Event::Interval(_) | Event::Ready { .. } | Event::Failed { .. } => {}
            }
        }
    });
    driven.await.unwrap_or(Err(CalibrateError::Stuck { seconds: patience.as_secs_f64() }))
}
