//! What was measured of one point on one target.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Evidence, Figures, Histogram, HostUse, ProcessUse, Sample};
use crate::worker::{Driver, Interval};
use crate::workload::Point;

/// One point on one target, with one driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    /// The point, as it was run.
    pub point: Point,
    /// The target's name.
    pub target: String,
    /// Who spoke to it.
    pub driver: Driver,
    /// The client's name and version.
    pub client: String,
    /// Each repetition: of the point itself, or of its knee where saturation was searched.
    pub repetitions: Vec<Repetition>,
    /// Over the repetitions.
    pub summary: Summary,
    /// The search for saturation, in order; empty where there was none.
    pub steps: Vec<Step>,
    /// What the search found.
    pub knee: Option<Knee>,
    /// What limited the point, and whether its figures may be quoted.
    pub verdict: Verdict,
    /// Why it was not measured, or not to the end.
    pub failure: Option<String>,
}

/// One repetition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// From 0.
    pub number: u32,
    /// When its measurement began, since the Unix epoch.
    pub began_at_us: u64,
    /// How long it was.
    pub measured_s: f64,
    /// Its figures.
    pub figures: Figures,
    /// From the intended time of sending to the acknowledgement.
    pub acknowledge_latency: Option<Histogram>,
    /// From the intended time of sending to the consumer.
    pub end_to_end_latency: Option<Histogram>,
    /// The intervals of all producers together.
    pub produced: Vec<Interval>,
    /// The intervals of all consumers together.
    pub consumed: Vec<Interval>,
    /// What each process used.
    pub processes: Vec<ProcessUse>,
    /// What the machine did.
    pub host: HostUse,
    /// The samples of processes and machine, over time.
    pub samples: Vec<Sample>,
    /// Proof that the records are there.
    pub evidence: Evidence,
    /// Records that producers gave up, warm-up included.
    #[serde(default)]
    pub given_up: u64,
    /// What else a reader must know of this repetition, for people: what a driver cannot tell, why records were given up.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Over the repetitions of a point: each figure of [`Figures`] under its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// By the figure's name.
    pub figures: BTreeMap<String, Spread>,
    /// The histograms of all repetitions, merged.
    pub acknowledge_latency: Option<Histogram>,
    /// The histograms of all repetitions, merged.
    pub end_to_end_latency: Option<Histogram>,
}

/// A figure over the repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many repetitions have it.
    pub count: u32,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Standard deviation (of a sample) by mean; 0 for one repetition.
    pub variation: f64,
}

/// One step of a search for saturation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Producers at this step.
    pub producers: u32,
    /// What was asked for, where a rate was.
    pub asked_records_per_s: Option<f64>,
    /// What the cluster took.
    pub records_per_s: f64,
    /// Intended time to acknowledgement.
    pub p99_us: Option<f64>,
    /// Whether it fell behind what was asked for.
    pub fell_behind: bool,
    /// The brokers' processor time by that of the whole machine, 0 to 1.
    pub broker_cpu_share: f64,
    /// The producers' processor time by that of the whole machine, 0 to 1.
    pub producer_cpu_share: f64,
}

/// The most that a cluster carries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    /// Records per second.
    pub records_per_s: f64,
    /// The rate that was still carried.
    pub low_records_per_s: f64,
    /// The rate that was not, or the most that was seen.
    pub high_records_per_s: f64,
    /// Producers at the knee.
    pub producers: u32,
}

/// What limited a point, and whether its figures may stand as a headline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// `generator CPU`, `broker CPU`, `disk`, `network`, `one partition`, `asked rate`, `machine CPU` or `unknown`.
    pub limit: String,
    /// What it was concluded from: figures, for people.
    pub reasons: Vec<String>,
    /// Why no headline may be printed; empty when one may.
    pub no_headline: Vec<String>,
}
