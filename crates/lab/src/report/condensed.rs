//! A condensed result: what reports and comparisons read of a result, small enough to be published.
//!
//! Figures, percentiles, rates and latencies of each second, checks, counts and reasons stay as they are.
//! Left out are:
//!
//! - histograms of single repetitions: those of the point are their sum;
//! - from histograms of the point, values between the percentiles that are drawn or printed;
//! - samples that no chart draws, and what no chart draws of the others;
//! - single partitions and replicas, of which the counts stay;
//! - usage of processes and machines, from which figures and verdict were made, and the look inside
//!   processes; the traffic of agents and brokers' machines stays.

use super::{latency, timeline};
use crate::result::{Histogram, HistogramUnreadable, HostUse, Repetition, RunResult, SCHEMA, Sample};

/// The precision of processors in samples: a hundred thousandth. The kernel counts a sample's in hundredths
/// of a second.
const PARTS: f64 = 1e5;

/// The condensed result. What is condensed already stays as it is.
pub fn condensed(mut run: RunResult) -> Result<RunResult, HistogramUnreadable> {
    SCHEMA.clone_into(&mut run.schema);
    run.condensed = true;
    for point in run.workloads.iter_mut().flat_map(|workload| &mut workload.points) {
        let drawn = timeline::typical(point);
        for (index, repetition) in point.repetitions.iter_mut().enumerate() {
            condense(repetition, drawn == Some(index));
        }
        let summary = &mut point.summary;
        for histogram in [&mut summary.acknowledge_latency, &mut summary.end_to_end_latency] {
            *histogram = histogram.as_ref().map(thinned).transpose()?;
        }
    }
    Ok(run)
}

fn thinned(histogram: &Histogram) -> Result<Histogram, HistogramUnreadable> {
    histogram.thinned(latency::quantiles(histogram.count))
}

fn condense(repetition: &mut Repetition, is_drawn: bool) {
    (repetition.acknowledge_latency, repetition.end_to_end_latency) = (None, None);
    for interval in repetition.produced.iter_mut().chain(&mut repetition.consumed) {
        interval.bytes = 0;
    }
    repetition.processes.clear();
    repetition.host = HostUse::default();
    repetition.profile = None;
    for agent in &mut repetition.agents {
        agent.host = HostUse { interfaces: std::mem::take(&mut agent.host.interfaces), ..HostUse::default() };
    }
    for machine in &mut repetition.broker_machines {
        let interfaces = std::mem::take(&mut machine.host.interfaces);
        machine.host = HostUse { interfaces, ..HostUse::default() };
    }
    match is_drawn {
        true => repetition.samples.iter_mut().for_each(condense_sample),
        false => repetition.samples.clear(),
    }
    let evidence = &mut repetition.evidence;
    evidence.replicas = Some(evidence.replicas());
    evidence.partitions.clear();
}

fn condense_sample(sample: &mut Sample) {
    let rounded = |cpus: f64| (cpus * PARTS).round() / PARTS;
    sample.process_cpus.iter_mut().for_each(|(_, cpus)| *cpus = rounded(*cpus));
    sample.process_memory_bytes.clear();
    sample.host_cpus = 0.0;
    sample.steal_cpus = rounded(sample.steal_cpus);
}
