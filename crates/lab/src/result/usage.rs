//! Resource usage of processes and machine.

use serde::{Deserialize, Serialize};

use super::devices::{DeviceUse, PacketUse, StorageChain};

/// Resource usage of a process, with its known children, during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// `broker-1`, `producer-0`, `consumer-0`.
    pub name: String,
    /// The process id.
    pub pid: u32,
    /// The agent on whose machine the process runs; `None` on the lab's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Processor time in user mode, in seconds.
    pub user_s: f64,
    /// Processor time in the kernel, in seconds.
    pub system_s: f64,
    /// The maximum sampled resident memory in bytes.
    pub memory_bytes_max: u64,
    /// Bytes read from disks by the process; `None` if unknown.
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to disks by the process; `None` if unknown.
    pub disk_written_bytes: Option<u64>,
    /// The busy share of the busiest thread, 0 to 1.
    pub busiest_thread: f64,
    /// The part of the processor time that a JVM spent on garbage, in seconds; `None` for other programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector_s: Option<f64>,
}

/// Resource usage of the machine during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostUse {
    /// Busy share of all processor time, 0 to 1.
    pub cpu_busy: f64,
    /// The part of the busy share spent on interrupts, including loopback interrupts.
    #[serde(default)]
    pub cpu_interrupts: f64,
    /// Share of processor time taken by the hypervisor (steal), 0 to 1.
    pub cpu_steal: f64,
    /// Share of processor time spent idle waiting for disks, 0 to 1.
    pub cpu_io_wait: f64,
    /// Bytes through the loopback interface.
    pub loopback_bytes: u64,
    /// Bytes received by all other interfaces; those of a bond are also those of its members.
    #[serde(default)]
    pub received_bytes: u64,
    /// Bytes sent by all other interfaces.
    #[serde(default)]
    pub sent_bytes: u64,
    /// The traffic of each interface that has any, loopback included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<InterfaceUse>,
    /// The disks in use.
    pub disks: Vec<DiskUse>,
    /// The block devices in use: disks, partitions, and devices composed of others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceUse>,
    /// The devices below the brokers' data; empty for brokers elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<StorageChain>,
    /// The maximum sampled dirty memory in bytes.
    pub dirty_bytes_max: u64,
}

impl HostUse {
    /// Whether nothing is known: the sampler saw nothing, or a condensed result left it out.
    pub fn is_unknown(&self) -> bool {
        *self == HostUse::default()
    }
}

/// Traffic of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceUse {
    /// The kernel's name.
    pub name: String,
    /// Speed in Mbit/s; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit_per_s: Option<u64>,
    /// Limit of traffic control (`tc`) on what the interface sends, in bits per second; `None` if none is
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_limit_bit_per_s: Option<u64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Packets received; `None` if unknown, as in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<PacketUse>,
    /// Packets sent; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<PacketUse>,
}

/// Usage of a disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// The kernel's name of the disk.
    pub name: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Share of time with a request in flight, 0 to 1.
    pub busy: f64,
}

/// A sample of processes and machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the sample, in microseconds since the Unix epoch.
    pub at_us: u64,
    /// Processors used since the previous sample, by process name; 1.0 is one processor.
    pub process_cpus: Vec<(String, f64)>,
    /// Resident memory, by process name.
    pub process_memory_bytes: Vec<(String, u64)>,
    /// Processors in use on the whole machine.
    pub host_cpus: f64,
    /// Processors taken by the hypervisor.
    pub steal_cpus: f64,
    /// Bytes written to all disks since the previous sample.
    pub disk_written_bytes: u64,
    /// The smallest number of in-sync replicas of any partition of the run; `None` if not observed.
    pub in_sync_replicas_min: Option<u32>,
}
