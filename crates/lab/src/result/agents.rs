//! Agents of a run: the client machines, their clocks, their paths, and the use of each. The facts of a
//! broker's machine have the same form.

use serde::{Deserialize, Serialize};

use super::{HostUse, Machine, StorageChain};

/// A machine of clients or of brokers, as its agent describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentInfo {
    /// The agent's address, as given to the lab.
    pub address: String,
    pub machine: Machine,
    /// The kernel's id of this start of the machine; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The network interfaces, without loopback.
    pub interfaces: Vec<Interface>,
    /// The whole disks.
    pub disks: Vec<Disk>,
    /// The path between the lab and the agent.
    pub path: Option<LabPath>,
    /// The paths between the agent and the brokers of each target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<BrokerPath>,
    /// The devices below each data directory of a broker's machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<StorageChain>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The kernel's name.
    pub name: String,
    /// `up`, `down` or `unknown`.
    pub state: String,
    /// Speed in Mbit/s; `None` if unknown, as often in virtual machines.
    pub speed_mbit_per_s: Option<u64>,
    /// The largest packet in bytes.
    pub mtu_bytes: Option<u64>,
}

/// A whole disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// The kernel's name.
    pub name: String,
    /// The maker's name; `None` if unknown.
    pub model: Option<String>,
    pub size_bytes: u64,
    /// True if the disk has a spinning platter, as far as the kernel knows.
    pub is_rotational: bool,
}

/// The path between the lab and an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LabPath {
    /// The fastest round trip of a line, in microseconds.
    pub round_trip_us: u64,
    /// The rate from the lab to the agent, in Mbit/s.
    pub sent_mbit_per_s: f64,
    /// The rate from the agent to the lab, in Mbit/s.
    pub received_mbit_per_s: f64,
}

/// The path between an agent and a broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BrokerPath {
    /// The target's name; set by the lab.
    #[serde(default)]
    pub target: String,
    /// The broker's address.
    pub broker: String,
    /// The fastest TCP connect, in microseconds.
    pub connect_us: Option<u64>,
    /// The fastest round trip of a request that the broker answers without work, in microseconds.
    pub round_trip_us: Option<u64>,
    /// The payload of a full TCP segment, in bytes: the MTU of both ends and of what the kernel knows in
    /// between, without headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u32>,
    /// Why the broker cannot be used from the agent; `None` if it can.
    pub failure: Option<String>,
}

/// The offset of an agent's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// The agent's clock minus the lab's, in microseconds.
    pub offset_us: i64,
    /// The largest error of the offset: half of the round trip it was measured in, in microseconds.
    pub uncertainty_us: u64,
}

/// The use of an agent in a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentUse {
    /// The agent's address.
    pub address: String,
    /// The kernel's id of this start of its machine; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The number of processors of its machine.
    pub cpus: u32,
    /// True if its machine is that of the lab, whose processors it uses.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_on_lab_machine: bool,
    /// The clock before the workers started; their times are corrected by it.
    pub clock_before: ClockOffset,
    /// The clock after they had ended; `None` if the agent did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_after: Option<ClockOffset>,
    /// The usage of its machine during the measurement.
    #[serde(default)]
    pub host: HostUse,
}

impl AgentUse {
    /// The largest error of the agent's times, which the first offset corrects: its uncertainty, or what the
    /// clocks have moved apart until the second one, with the uncertainty of that. The maximum if unknown.
    pub fn clock_error_us(&self) -> u64 {
        let Some(after) = self.clock_after else { return u64::MAX };
        let moved = after.offset_us.abs_diff(self.clock_before.offset_us);
        self.clock_before.uncertainty_us.max(moved.saturating_add(after.uncertainty_us))
    }
}
