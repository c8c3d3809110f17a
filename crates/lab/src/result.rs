//! Results: what a run has found, as one JSON document of a stated version, with units in the names.
//!
//! A result holds all that a reader needs to judge a figure or to take it again: machine, versions, every setting, seed,
//! histograms, evidence, and what limited the point. What these types say is what the file says.

mod compare;
mod evidence;
mod file;
mod measured;
pub mod openmessaging;
mod subject;
mod usage;

pub(crate) use compare::two_sided_95;
pub use compare::{
    Comparison, Difference, Judgement, METHOD, NotComparable, Pair, Pairing, PointName, Ratio, Refused,
    compare,
};
pub use evidence::{Check, Evidence, PartitionEvidence, ReplicaEvidence};
pub use file::{ReadError, WriteError, read, write, write_whole};
pub use measured::{Knee, PointResult, Repetition, Spread, Step, Summary, Verdict};
pub use subject::Subject;
pub use usage::{DiskUse, HostUse, ProcessUse, Sample};

pub use crate::figures::{FIGURES, Figure, FigureUnit, Figures};
pub use crate::histogram::{Histogram, HistogramUnreadable};
pub use crate::target::TargetInfo;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// The version of the document. It grows when a reader of the old one would misread the new one.
pub const SCHEMA: &str = "thalweg-lab-result/1";

/// One run: workloads on targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it began, RFC 3339.
    pub began_at: String,
    /// When it ended, RFC 3339.
    pub ended_at: String,
    /// Whether all points were measured; if not, why.
    pub state: State,
    /// The arguments behind the name of the program, for another run: `lab`, `run` and so on.
    pub arguments: Vec<String>,
    /// The seed of payloads, keys and order.
    pub seed: u64,
    /// Version and commit of the lab.
    pub lab_version: String,
    /// The machine.
    pub machine: Machine,
    /// The systems that were measured, by name.
    pub targets: BTreeMap<String, TargetInfo>,
    /// What was measured, in the order of the run.
    pub workloads: Vec<WorkloadResult>,
}

/// Whether a run is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// All points were measured.
    Complete,
    /// Some were.
    Partial {
        /// What ended the run.
        why: String,
    },
}

/// The machine that a run was taken on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's own name.
    pub cpu: String,
    /// Logical processors.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The operating system's name.
    pub os: String,
    /// The file system that the data was on.
    pub filesystem: String,
    /// The virtual machine monitor, if there is one.
    pub hypervisor: Option<String>,
    /// Other facts that bear on the figures, such as the clock source, by name.
    pub facts: BTreeMap<String, String>,
}

/// A workload and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// The workload, as it was run.
    pub workload: Workload,
    /// A result for each point, target and driver.
    pub points: Vec<PointResult>,
}
