//! Results of a run, as one versioned JSON document with units in the names.
//!
//! A result has all data for judging or repeating the run: machine, versions, all settings, seed, histograms,
//! evidence, and the limit of each point. These types are the schema of the file.

mod agents;
mod broker_machines;
mod columns;
mod compare;
mod devices;
mod evidence;
mod file;
mod layout;
mod measured;
mod objection;
pub mod openmessaging;
mod profile;
mod subject;
mod system;
#[cfg(test)]
pub(crate) mod testing;
mod upgrade;
mod usage;

pub use agents::{AgentInfo, AgentUse, BrokerPath, ClockOffset, Disk, Interface, LabPath};
pub use broker_machines::{BrokerMachineUse, DataDirectory, PartitionFiles, WatchedBroker};
pub(crate) use compare::RESOLUTION;
pub use compare::{
    Comparison, Difference, FigurePair, IncomparablePoint, Judgement, METHOD, NotComparable, PAIRS_MIN, Pair,
    Pairing, PointName, Ratio, Values, compare, ratio_of, values,
};
pub use devices::{DeviceRates, DeviceUse, PacketUse, StorageChain};
pub use evidence::{Check, Evidence, LedgerEvidence, PartitionEvidence, ReplicaCount, ReplicaEvidence};
pub use file::{ReadError, WriteError, read, to_json, write, write_whole};
pub use measured::{Knee, PointResult, Repetition, Spread, Step, Summary, Verdict};
pub use objection::Objection;
pub(crate) use objection::{
    GENERATOR, ONCE, VARIATION_MAX, clock_unknown, clocks_unknown, consumers_fell_behind, varies,
};
pub use profile::{CpuProfile, Holder, Lock, LockUse, ProcessProfile, Profile, ThreadUse, Wait, Waits};
pub use subject::Subject;
pub use system::system;
pub use usage::{DiskUse, HostUse, InterfaceUse, ProcessUse, Sample};

pub use crate::figures::{FIGURES, Figure, FigureUnit, Figures};
pub use crate::histogram::{Histogram, HistogramUnreadable};
pub use crate::target::{NegotiatedSecurity, TargetInfo};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::workload::Workload;

/// The version of the document, increased if readers of the old version would misread the new one.
pub const SCHEMA: &str = "thalweg-lab-result/4";

/// A run: workloads on targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The schema version, [`SCHEMA`].
    pub schema: String,
    /// True if only the parts are left that reports and comparisons read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub condensed: bool,
    /// Start time, RFC 3339.
    pub began_at: String,
    /// End time, RFC 3339.
    pub ended_at: String,
    /// The completeness of the run: all points were measured, or the reason.
    pub state: State,
    /// The program's arguments, for a rerun: `lab`, `run` and so on.
    pub arguments: Vec<String>,
    /// The seed of payloads, keys and order.
    pub seed: u64,
    /// Version and commit of the lab.
    pub lab_version: String,
    pub machine: Machine,
    /// The client machines; empty if clients run on the lab's machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentInfo>,
    /// The rule that placed clients on agents: `both`, `balanced` or `apart`; `None` without agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_place: Option<String>,
    /// The machines of a running cluster's brokers, as agents there describe them; empty if none was watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub broker_machines: Vec<AgentInfo>,
    /// The measured systems, by name.
    pub targets: BTreeMap<String, TargetInfo>,
    /// The workloads, in order.
    pub workloads: Vec<WorkloadResult>,
}

/// The completeness of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// All points were measured.
    Complete,
    /// Some points were measured.
    Partial {
        /// Why the run ended.
        why: String,
    },
}

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Number of logical processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The kernel release.
    pub kernel: String,
    /// The operating system's name.
    pub os: String,
    /// The file system of the data.
    pub filesystem: String,
    /// The hypervisor, if any.
    pub hypervisor: Option<String>,
    /// Further relevant facts by name, such as the clock source.
    pub facts: BTreeMap<String, String>,
}

/// A workload and its results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadResult {
    /// The workload, as it was run.
    pub workload: Workload,
    /// A result per point, target and driver.
    pub points: Vec<PointResult>,
}
