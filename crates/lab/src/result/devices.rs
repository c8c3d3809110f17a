//! Use of block devices and network interfaces: rates over the measurement, and their peaks. A peak is the
//! second with the highest value, as seen in the lines of `iostat 1`; each figure has its own second.

use serde::{Deserialize, Serialize};

/// Use of a block device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The kernel's name, such as `vda1` or `dm-0`.
    pub name: String,
    /// The name given by an administrator, such as `vg-data`, or the level of an array, such as `raid1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Rates over the measurement.
    pub mean: DeviceRates,
    /// The highest of each second.
    pub peak: DeviceRates,
}

/// The columns of `iostat -x`. A kB has 1024 bytes, as there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceRates {
    /// r/s: reads that reached the device.
    pub reads_per_s: f64,
    /// w/s: writes that reached the device.
    pub writes_per_s: f64,
    /// rkB/s: kilobytes read.
    pub read_kb_per_s: f64,
    /// wkB/s: kilobytes written.
    pub written_kb_per_s: f64,
    /// rrqm/s: reads merged with others before they reached the device.
    pub reads_merged_per_s: f64,
    /// wrqm/s: writes merged with others before they reached the device.
    pub writes_merged_per_s: f64,
    /// r_await: time of a read, with its time in the queue; 0 without reads.
    pub read_await_ms: f64,
    /// w_await: time of a write, with its time in the queue; 0 without writes.
    pub write_await_ms: f64,
    /// aqu-sz: requests in queue and device.
    pub queue_length: f64,
    /// rareq-sz: size of a read; 0 without reads.
    pub read_size_kb: f64,
    /// wareq-sz: size of a write; 0 without writes.
    pub write_size_kb: f64,
    /// f/s: flushes of the device's cache; `None` if the kernel does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes_per_s: Option<f64>,
    /// f_await: time of a flush; 0 without flushes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_await_ms: Option<f64>,
    /// %util: share of time with a request in flight, 0 to 1.
    pub busy: f64,
}

/// Packets of a network interface in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketUse {
    pub packets: u64,
    /// Packets that the kernel or the device dropped.
    pub dropped: u64,
    /// Packets with errors.
    pub errors: u64,
    /// The highest of each second.
    pub packets_per_s_max: u64,
    /// The highest of each second.
    pub bytes_per_s_max: u64,
}

/// The devices below a data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageChain {
    pub directory: String,
    /// The file system's type, such as `ext4`.
    pub filesystem: String,
    /// The devices from the mounted one down to disks, a layer of names after the other; empty for file
    /// systems without a block device, and for those whose devices are unknown, such as overlay and zfs.
    pub layers: Vec<Vec<String>>,
}

impl StorageChain {
    /// True if the data is on this device, directly or through others.
    pub fn contains(&self, device: &str) -> bool {
        self.layers.iter().flatten().any(|name| name == device)
    }

    /// True if these are all devices of the data: none for data in memory.
    pub fn is_known(&self) -> bool {
        // Those of pools, and copies on other machines.
        const OTHER: [&str; 2] = ["zd", "drbd"];
        let is_other = |name: &String| OTHER.iter().any(|other| name.starts_with(other));
        let Some(last) = self.layers.last() else { return self.is_in_memory() };
        // Below a loop device are the devices of its file, if they are known.
        let has_file = |name: &String| name.starts_with("loop");
        !self.layers.iter().flatten().any(is_other) && !last.iter().any(has_file)
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.filesystem.as_str(), "tmpfs" | "ramfs")
    }
}

/// The layers, such as `dm-0 → vda2 + vdb1 → vda + vdb`.
impl std::fmt::Display for StorageChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.layers.is_empty() {
            let what = if self.is_in_memory() { "without a block device" } else { "with unknown devices" };
            return write!(f, "{} {what}", self.filesystem);
        }
        let layers: Vec<String> = self.layers.iter().map(|names| names.join(" + ")).collect();
        f.write_str(&layers.join(" → "))
    }
}
