//! The counters of `producer-perf-test`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use thalweg_client::{Delivery, DeliveryError};
use tokio::time::Instant;

use super::PerfError;
use super::bar::DoneCount;
use super::output::PerfOutput;
use super::stats::Stats;

/// The counters updated by the producer's callback.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) total: Stats,
    pub(super) steady: Option<Stats>,
    pub(super) batches: u64,
    pub(super) failed: u64,
    pub(super) first_failure: Option<DeliveryError>,
    /// Committed transactions, if there are any.
    pub(super) transactions: Option<u64>,
    /// Records stored or failed.
    pub(super) done: DoneCount,
    pub(super) output: PerfOutput,
}

impl Counts {
    pub(super) fn enter_steady_state(&mut self, now: Instant, interval: Duration) -> Result<(), PerfError> {
        self.steady = Some(Stats::new(now, interval, true));
        self.output.progress("In steady state.")?;
        Ok(())
    }

    pub(super) fn delivered(&mut self, delivery: &Delivery<'_>) {
        self.done.add(u64::from(delivery.records));
        if let Err(error) = delivery.result {
            self.failed += u64::from(delivery.records);
            self.first_failure.get_or_insert_with(|| error.clone());
            return;
        }
        self.batches += 1;
        let now = delivery.ended_at;
        let per_record = delivery.value_bytes / u64::from(delivery.records.max(1));
        // Payloads of a file differ in size; the remainder of the division belongs to the first run.
        let mut rest = delivery.value_bytes - per_record * u64::from(delivery.records);
        for run in delivery.sent {
            let bytes = per_record * u64::from(run.records) + std::mem::take(&mut rest);
            let latency = now.saturating_duration_since(run.at);
            self.total.record(run.records, bytes, latency);
            if let Some(steady) = &mut self.steady
                && run.at >= steady.start()
            {
                steady.record(run.records, bytes, latency);
            }
        }
        let line = match &mut self.steady {
            Some(steady) => steady.interval_line(now),
            None => self.total.interval_line(now),
        };
        if let Some(line) = line {
            // A closed standard output ends the program elsewhere.
            let _ = self.output.progress(&line);
        }
    }
}

pub(super) fn print_metrics(counts: &Counts, output: &PerfOutput) -> Result<(), PerfError> {
    let total = counts.total.json(Instant::now());
    let records = total["records"].as_f64().unwrap_or(0.0);
    let bytes = total["bytes"].as_f64().unwrap_or(0.0);
    let batches = counts.batches.max(1) as f64;
    let rows = [
        ("record-send-total", records),
        ("record-error-total", counts.failed as f64),
        ("record-size-avg", bytes / records.max(1.0)),
        ("records-per-batch-avg", records / batches),
        ("batch-value-bytes-avg", bytes / batches),
    ];
    let name = |metric: &str| format!("producer-metrics:{metric}:{{client-id=perf-producer-client}}");
    let width = rows.iter().map(|(metric, _)| name(metric).len()).max().unwrap_or(0);
    output.result("")?;
    output.result(&format!("{:<width$}   Value", "Metric Name"))?;
    for (metric, value) in rows {
        output.result(&format!("{:<width$} : {value:.3}", name(metric)))?;
    }
    Ok(())
}

pub(super) fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    // Counters stay correct even if another thread panicked.
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
