//! A sample: reads `/proc` now.

use std::path::Path;

use crate::proc::{self, CpuTicks, Disk, Interface, Stat};

/// A sample of the machine. All but `dirty_bytes` are counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostReading {
    pub cpu: CpuTicks,
    pub loopback_bytes: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub interfaces: Vec<Interface>,
    /// The block devices that have had a request; in a series, since its first sample.
    pub disks: Vec<Disk>,
    pub dirty_bytes: u64,
}

/// A sample of a process. All but `resident_bytes` are counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessReading {
    pub stat: Stat,
    /// Bytes read from and written to disks; `None` if unknown.
    pub disk: Option<(u64, u64)>,
}

/// A sample of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ThreadReading {
    pub id: u32,
    pub ticks: u64,
    /// True for a thread that collects garbage for a JVM.
    pub is_collector: bool,
}

/// The block devices that are whole physical disks: not partitions, not composed of others, neither files nor
/// memory.
pub(crate) fn whole_disks() -> Vec<String> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let mut names: Vec<String> = devices
        .filter_map(|device| device.ok()?.file_name().into_string().ok())
        .filter(|name| !is_in_memory(name) && !name.starts_with("loop"))
        .filter(|name| is_empty(&Path::new("/sys/block").join(name).join("slaves")))
        .collect();
    names.sort();
    names
}

/// True for block devices in memory.
fn is_in_memory(name: &str) -> bool {
    ["ram", "zram"].iter().any(|memory| name.starts_with(memory))
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none())
}

/// Samples the machine.
pub(crate) fn host() -> HostReading {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let interfaces = proc::interfaces(&text("/proc/net/dev"));
    let network = proc::network(&interfaces);
    let mut all = proc::disks(&text("/proc/diskstats"));
    all.retain(|disk| {
        let requests = disk.reads + disk.writes + disk.flushes.unwrap_or_default().0;
        requests > 0 && !is_in_memory(&disk.name)
    });
    HostReading {
        cpu: proc::cpu(&text("/proc/stat"), &text("/proc/self/status")).unwrap_or_default(),
        loopback_bytes: network.loopback,
        received_bytes: network.received,
        sent_bytes: network.sent,
        interfaces,
        disks: all,
        dirty_bytes: proc::memory(&text("/proc/meminfo"), "Dirty").unwrap_or_default(),
    }
}

/// Samples a process; `None` if it has exited.
pub(crate) fn process(pid: u32) -> Option<ProcessReading> {
    let stat = proc::stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let disk = std::fs::read_to_string(format!("/proc/{pid}/io")).ok().and_then(|text| proc::io(&text));
    Some(ProcessReading { stat, disk })
}

/// Samples the threads of a process.
pub(super) fn threads(pid: u32) -> Vec<ThreadReading> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let named = tasks.filter_map(|task| {
        let task = task.ok()?;
        let text = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, stat) = (proc::name(&text)?, proc::stat(&text)?);
        let reading = ThreadReading {
            id: task.file_name().to_str()?.parse().ok()?,
            ticks: stat.user_ticks + stat.system_ticks,
            is_collector: proc::is_collector(name),
        };
        Some((name == proc::SERIAL_COLLECTOR, reading))
    });
    let mut named: Vec<(bool, ThreadReading)> = named.collect();
    if !named.iter().any(|(_, thread)| thread.is_collector) {
        named.iter_mut().for_each(|(is_serial, thread)| thread.is_collector = *is_serial);
    }
    named.into_iter().map(|(_, thread)| thread).collect()
}
