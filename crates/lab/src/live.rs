//! This machine from moment to moment: processors, block devices, network interfaces, and the processes of
//! brokers with their threads. The last two samples are kept.
//!
//! Samples are read from `/proc` and `/sys`, without rights beyond those of the user. Parts that the kernel
//! does not show are named in [`MachineUse::missing`] and [`BrokerUse::missing`].

mod programs;

use std::collections::BTreeMap;
use std::path::Path;

use crate::profile::threads::Threads;
use crate::result::{HostUse, StorageChain, ThreadUse};
use crate::sample::{Series, Units, readings, whole_disks};
use crate::worker::clock::Clock;
use programs::Program;

pub use programs::BrokerKind;

/// Maximum number of brokers that are sampled.
const BROKERS_MAX: usize = 64;
/// Maximum number of threads of a process that are sampled.
const THREADS_MAX: usize = 1000;

/// Samples this machine.
#[derive(Debug)]
pub struct LiveMachine {
    clock: Clock,
    series: Series,
    /// The times of the last two samples, in microseconds.
    times_us: (Option<u64>, Option<u64>),
    brokers: BTreeMap<u32, SampledBroker>,
    /// Number of brokers beyond the limit.
    more_brokers: usize,
}

/// A process of a broker with its samples.
#[derive(Debug)]
struct SampledBroker {
    program: Program,
    /// The process's start time in ticks: another process with the same id has another one.
    began: u64,
    threads: Threads,
    /// The last two samples of memory, in pages, with their times.
    memory: Vec<(u64, u64)>,
    has_too_many_threads: bool,
}

/// The use of this machine between the last two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineUse {
    /// The time between the samples.
    pub length_s: f64,
    /// Processors that this process may use; its shares of [`HostUse`] are of these.
    pub cpus: usize,
    pub host: HostUse,
    pub brokers: Vec<BrokerUse>,
    /// Parts that are not known, with the reason.
    pub missing: Vec<String>,
}

/// The use of a broker's process between two samples.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerUse {
    pub pid: u32,
    pub kind: BrokerKind,
    /// `node.id` and cluster id in the data directory, if it can be read.
    pub node: Option<(i32, String)>,
    /// Processors used; none for a process that was sampled once.
    pub cpus: Option<f64>,
    pub memory_bytes: u64,
    /// Kinds of threads, the busiest first; empty for a process that was sampled once.
    pub threads: Vec<ThreadUse>,
    /// The devices below each data directory.
    pub storage: Vec<StorageChain>,
    /// Parts that are not known, with the reason.
    pub missing: Vec<String>,
}

impl LiveMachine {
    /// Samples the machine for the first time.
    pub fn begin() -> LiveMachine {
        let mut machine = LiveMachine {
            clock: Clock::of_process(),
            series: Series::new(Units::of_kernel(), whole_disks()),
            times_us: (None, None),
            brokers: BTreeMap::new(),
            more_brokers: 0,
        };
        machine.sample();
        machine
    }

    /// Samples the machine, and finds the brokers that run by now.
    pub fn sample(&mut self) {
        if let Some(last_us) = self.times_us.1 {
            self.series.forget_before(last_us);
            self.brokers.values_mut().for_each(|broker| broker.forget_before(last_us));
        }
        let at_us = self.clock.now_us();
        self.times_us = (self.times_us.1, Some(at_us));
        self.series.push_host(at_us, readings::host());
        let mut found = programs::brokers();
        self.more_brokers = found.len().saturating_sub(BROKERS_MAX);
        found.truncate(BROKERS_MAX);
        self.brokers.retain(|pid, _| found.iter().any(|(known, _)| known == pid));
        for (pid, kind) in found {
            let Some(reading) = readings::process(pid) else {
                self.brokers.remove(&pid);
                continue;
            };
            let began = reading.stat.start_ticks;
            let is_same = |broker: &&mut SampledBroker| broker.began == began;
            if self.brokers.get_mut(&pid).filter(is_same).is_none() {
                self.brokers.insert(pid, SampledBroker::new(pid, kind, began));
            }
            self.series.push_process(&name(pid, began), pid, at_us, reading);
            if let Some(broker) = self.brokers.get_mut(&pid) {
                broker.sample(pid, at_us, reading.stat.resident_pages);
            }
        }
    }

    /// The use between the last two samples; none after the first one.
    pub fn last_use(&self) -> Option<MachineUse> {
        let (Some(from_us), Some(to_us)) = self.times_us else { return None };
        let length_s = (to_us.saturating_sub(from_us) as f64 / 1e6).max(1e-3);
        let usage = self.series.usage(from_us, to_us);
        let page_bytes = rustix::param::page_size() as u64;
        let brokers = self.brokers.iter().map(|(pid, broker)| {
            let name = name(*pid, broker.began);
            let used = usage.processes.iter().find(|process| process.name == name);
            let is_sampled_twice = broker.memory.len() > 1;
            let cpu_s = used.filter(|_| is_sampled_twice).map(|used| used.user_s + used.system_s);
            let storage = broker.program.storage(*pid);
            BrokerUse {
                pid: *pid,
                kind: broker.program.kind,
                node: broker.program.node.clone(),
                cpus: cpu_s.map(|cpu_s| cpu_s / length_s),
                memory_bytes: broker.memory.last().map_or(0, |(_, pages)| pages * page_bytes),
                threads: match is_sampled_twice {
                    true => broker.threads.used(from_us, to_us, &BTreeMap::new()).0,
                    false => Vec::new(),
                },
                missing: broker.missing(storage.len()),
                storage,
            }
        });
        let mut missing = Vec::new();
        if usage.host.is_unknown() {
            missing.push("processors, devices and interfaces: the kernel shows no /proc of Linux".to_owned());
        }
        if self.more_brokers > 0 {
            missing.push(format!("{} more brokers: {BROKERS_MAX} are shown", self.more_brokers));
        }
        Some(MachineUse {
            length_s,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            host: usage.host,
            brokers: brokers.collect(),
            missing,
        })
    }
}

/// The name of a process in the series, which differs from that of a later process with the same id.
fn name(pid: u32, began: u64) -> String {
    format!("{pid}-{began}")
}

impl SampledBroker {
    fn new(pid: u32, kind: BrokerKind, began: u64) -> SampledBroker {
        SampledBroker {
            program: Program::new(pid, kind),
            began,
            threads: Threads::new(pid),
            memory: Vec::new(),
            has_too_many_threads: false,
        }
    }

    fn forget_before(&mut self, at_us: u64) {
        self.threads.forget_before(at_us);
        self.memory.retain(|(seen_us, _)| *seen_us >= at_us);
    }

    fn sample(&mut self, pid: u32, at_us: u64, resident_pages: u64) {
        self.memory.push((at_us, resident_pages));
        let tasks = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"));
        let threads = tasks.map_or(0, |tasks| tasks.take(THREADS_MAX + 1).count());
        self.has_too_many_threads = threads > THREADS_MAX;
        if !self.has_too_many_threads {
            self.threads.sample(at_us, true);
        }
        // A broker opens its directories after the start of its process.
        if self.program.directories.is_empty() {
            self.program.find_directories(pid);
        }
    }

    /// Parts that are not known; `chains` is the number of data directories with known devices.
    fn missing(&self, chains: usize) -> Vec<String> {
        let mut missing = Vec::new();
        if self.has_too_many_threads {
            missing.push(format!("threads: there are more than {THREADS_MAX}"));
        }
        if self.program.directories.is_empty() {
            missing.push(
                "data directories: the process has none open, or its files are not visible to this user"
                    .to_owned(),
            );
        } else if self.program.node.is_none() {
            missing.push(
                "node: no readable meta.properties of the process's user in its data directories".to_owned(),
            );
        }
        if chains < self.program.directories.len() {
            missing.push("devices of data directories: the mounts of the process are not visible".to_owned());
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_is_that_between_the_last_two_samples() {
        let mut machine = LiveMachine::begin();
        assert!(machine.last_use().is_none(), "one sample has no rates");
        for _ in 0..3 {
            machine.sample();
        }
        let used = machine.last_use().expect("two samples");
        assert!(used.length_s > 0.0 && used.length_s < 60.0 && used.cpus > 0, "{used:?}");
        assert!((0.0..=1.0).contains(&used.host.cpu_busy), "{used:?}");
    }

    #[test]
    fn a_process_that_ended_is_left_out() {
        let mut machine = LiveMachine::begin();
        let gone = SampledBroker::new(u32::MAX, BrokerKind::Thalweg, 7);
        machine.brokers.insert(u32::MAX, gone);
        machine.sample();
        assert!(!machine.brokers.contains_key(&u32::MAX));
    }
}
