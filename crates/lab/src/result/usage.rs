//! What processes and machine used.

use serde::{Deserialize, Serialize};

/// What one process, with its children that the lab was told of, used within the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// `broker-1`, `producer-0`, `consumer-0`.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Processor time in user mode.
    pub user_s: f64,
    /// Processor time in the kernel.
    pub system_s: f64,
    /// The most resident memory that was sampled.
    pub memory_bytes_max: u64,
    /// Bytes that it caused to be read from disks; none where the kernel does not tell.
    pub disk_read_bytes: Option<u64>,
    /// Bytes that it caused to be written to disks.
    pub disk_written_bytes: Option<u64>,
    /// The busiest of its threads: processor time by time, 0 to 1.
    pub busiest_thread: f64,
}

/// What the machine did within the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostUse {
    /// Busy processor time by that of all processors, 0 to 1.
    pub cpu_busy: f64,
    /// The part of that which went to interrupts, those of the loopback network among them.
    #[serde(default)]
    pub cpu_interrupts: f64,
    /// Time that the host took from this virtual machine, by that of all processors, 0 to 1.
    pub cpu_steal: f64,
    /// Time that processors were idle for want of a disk, by that of all processors, 0 to 1.
    pub cpu_io_wait: f64,
    /// Bytes through the loopback interface.
    pub loopback_bytes: u64,
    /// Bytes received by all other interfaces.
    #[serde(default)]
    pub received_bytes: u64,
    /// Bytes sent by all other interfaces.
    #[serde(default)]
    pub sent_bytes: u64,
    /// The disks that were used.
    pub disks: Vec<DiskUse>,
    /// The most dirty memory that was sampled.
    pub dirty_bytes_max: u64,
}

/// What one disk did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// The kernel's name of it.
    pub name: String,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time with a request under way, by time, 0 to 1.
    pub busy: f64,
}

/// One look at processes and machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the Unix epoch.
    pub at_us: u64,
    /// Processors' worth of time since the sample before, by process name; 1.0 is one processor.
    pub process_cpus: Vec<(String, f64)>,
    /// Resident memory, by process name.
    pub process_memory_bytes: Vec<(String, u64)>,
    /// Processors' worth of time that the whole machine was busy.
    pub host_cpus: f64,
    /// Processors' worth of time that the host took.
    pub steal_cpus: f64,
    /// Written to all disks since the sample before.
    pub disk_written_bytes: u64,
    /// The least number of in-sync replicas of any partition of the run; none while it was not asked.
    pub in_sync_replicas_min: Option<u32>,
}
