//! The measurements of one point on one target.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::columns::{self, Intervals, Samples};
use super::compare::two_sided_95;
use super::{
    AgentUse, BrokerMachineUse, Evidence, Figures, Histogram, HostUse, NegotiatedSecurity, ProcessUse,
    Profile, Sample,
};
use crate::worker::{Driver, Interval};
use crate::workload::Point;

/// One point on one target, with one driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// The point, as it was run.
    pub point: Point,
    /// The target's name.
    pub target: String,
    /// The client driver.
    pub driver: Driver,
    /// The client's name and version.
    pub client: String,
    /// The security negotiated by the lab's own client.
    #[serde(default)]
    pub security: Option<NegotiatedSecurity>,
    /// The repetitions: of the point, or of its knee after a search for saturation.
    pub repetitions: Vec<Repetition>,
    /// The summary of all repetitions.
    pub summary: Summary,
    /// The steps of the search for saturation; empty if there was none.
    pub steps: Vec<Step>,
    /// The result of the search.
    pub knee: Option<Knee>,
    /// The limit of the point, and whether its figures are quotable.
    pub verdict: Verdict,
    /// Why the point was not measured, or not completely.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// The repetition's number, from 0.
    pub number: u32,
    /// Start of the measurement, in microseconds since the Unix epoch.
    pub began_at_us: u64,
    /// Duration of the measurement in seconds.
    pub measured_s: f64,
    /// The repetition's figures.
    pub figures: Figures,
    /// Latency from the intended send time to the acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledge_latency: Option<Histogram>,
    /// Latency from the intended send time to the consumer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_to_end_latency: Option<Histogram>,
    /// The intervals of all producers combined.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "columns::serialize::<Intervals, _>",
        deserialize_with = "columns::deserialize::<Intervals, _>"
    )]
    pub produced: Vec<Interval>,
    /// The intervals of all consumers combined.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "columns::serialize::<Intervals, _>",
        deserialize_with = "columns::deserialize::<Intervals, _>"
    )]
    pub consumed: Vec<Interval>,
    /// The usage of each process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessUse>,
    /// The usage of the machine.
    #[serde(default, skip_serializing_if = "HostUse::is_unknown")]
    pub host: HostUse,
    /// The use of each agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentUse>,
    /// The use of each broker's machine that an agent watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broker_machines: Vec<BrokerMachineUse>,
    /// With watched machines, the brokers that are on none of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unwatched_brokers: Vec<String>,
    /// Samples of processes and machine over time.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        serialize_with = "columns::serialize::<Samples, _>",
        deserialize_with = "columns::deserialize::<Samples, _>"
    )]
    pub samples: Vec<Sample>,
    /// The look inside processes; `None` without `--look-inside`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The evidence for acknowledged records.
    pub evidence: Evidence,
    /// Records that producers failed to send, warm-up included.
    #[serde(default)]
    pub given_up: u64,
    /// Notes for readers: limits of the driver, reasons of failed records.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The summary of a point's repetitions: each figure of [`Figures`] by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The spread of each figure, by name. If a file leaves them out, they are calculated from the
    /// repetitions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, Spread>,
    /// Acknowledgement latencies of all repetitions, merged.
    pub acknowledge_latency: Option<Histogram>,
    /// End-to-end latencies of all repetitions, merged.
    pub end_to_end_latency: Option<Histogram>,
}

/// The spread of a figure over the repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Number of repetitions with the figure.
    pub count: u32,
    pub mean: f64,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Standard deviation (of a sample) divided by the mean; 0 for one repetition.
    pub variation: f64,
}

impl Spread {
    /// The statistics of values; all zero if there are none.
    pub fn of(values: &[f64]) -> Spread {
        if values.is_empty() {
            return Spread::default();
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let median = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        let deviation = if count < 2 {
            0.0
        } else {
            let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
            (squares / (count - 1) as f64).sqrt()
        };
        Spread {
            count: u32::try_from(count).unwrap_or(u32::MAX),
            mean,
            median,
            min: sorted[0],
            max: sorted[count - 1],
            variation: if mean == 0.0 { 0.0 } else { deviation / mean.abs() },
        }
    }

    /// Half of the 95 % interval of the mean, by Student's distribution; 0 for a single value.
    pub fn half_interval(&self) -> f64 {
        match self.count {
            0 | 1 => 0.0,
            count => {
                let deviation = self.variation * self.mean.abs();
                two_sided_95(f64::from(count - 1)) * deviation / f64::from(count).sqrt()
            }
        }
    }

    /// Each figure over the repetitions, by name.
    pub fn of_figures(repetitions: &[Repetition]) -> BTreeMap<String, Spread> {
        let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for repetition in repetitions {
            for (figure, value) in repetition.figures.each() {
                if let Some(value) = value {
                    values.entry(figure.name).or_default().push(value);
                }
            }
        }
        values.into_iter().map(|(name, values)| (name.to_owned(), Spread::of(&values))).collect()
    }
}

/// A step of a search for saturation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Producers at this step.
    pub producers: u32,
    /// The requested rate, if any.
    pub asked_records_per_s: Option<f64>,
    /// The accepted rate.
    pub records_per_s: f64,
    /// The 99th percentile from the intended send time to the acknowledgement, in microseconds.
    pub p99_us: Option<f64>,
    /// True if the cluster fell behind the requested rate.
    pub fell_behind: bool,
    /// The brokers' share of the machine's processor time, 0 to 1.
    pub broker_cpu_share: f64,
    /// The producers' share of the machine's processor time, 0 to 1.
    pub producer_cpu_share: f64,
}

/// The maximum that a cluster sustains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Records per second at the knee.
    pub records_per_s: f64,
    /// The highest sustained rate.
    pub low_records_per_s: f64,
    /// The lowest unsustained rate, or the highest seen.
    pub high_records_per_s: f64,
    /// Producers at the knee.
    pub producers: u32,
}

/// The limit of a point, and whether its figures are quotable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// `generator CPU`, `broker CPU`, `disk`, `lock`, `network`, `one partition`, `asked rate`, `machine CPU`
    /// or `unknown`.
    pub limit: String,
    /// The reasons, as text with figures.
    pub reasons: Vec<String>,
    /// Why the point is not quotable; empty if it is.
    pub no_headline: Vec<String>,
}
