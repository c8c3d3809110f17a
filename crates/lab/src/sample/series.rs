//! Samples over time, and the usage between two times, interpolated between samples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::counters::growth;
use super::readings::{HostReading, ProcessReading, ThreadReading};
use super::totals::Totals;
use super::{Usage, rates};
use crate::machine::interfaces::{INTERFACES, link_speed};
use crate::proc::Interface;
use crate::result::{DiskUse, HostUse, InterfaceUse, ProcessUse, Sample};

/// Maximum stored samples; beyond that, every second one is dropped and sampling slows down.
pub(super) const LOOKS_MAX: usize = 20_000;

/// Samples in a result, to limit the file size.
const SAMPLES_MAX: usize = 300;

/// The kernel's unit of processor time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    pub ticks_per_s: f64,
    pub page_bytes: u64,
}

impl Units {
    /// The units of this machine's kernel.
    pub(crate) fn of_kernel() -> Units {
        Units {
            ticks_per_s: rustix::param::clock_ticks_per_second() as f64,
            page_bytes: rustix::param::page_size() as u64,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Series {
    units: Units,
    /// The names of whole disks, in order.
    whole_disks: Vec<String>,
    host: Vec<(u64, HostReading)>,
    totals: Totals,
    processes: Vec<Process>,
}

/// The samples of a process.
#[derive(Debug)]
struct Process {
    name: String,
    pid: u32,
    readings: Vec<(u64, ProcessReading)>,
    /// Times and total ticks, by thread. Entries without change may be missing.
    threads: BTreeMap<u32, Vec<(u64, u64)>>,
    /// The threads that collect garbage.
    collectors: BTreeSet<u32>,
    /// The time when the threads were last sampled.
    threads_at_us: u64,
}

impl Series {
    pub(crate) fn new(units: Units, whole_disks: Vec<String>) -> Series {
        Series { units, whole_disks, host: Vec::new(), totals: Totals::default(), processes: Vec::new() }
    }

    pub(crate) fn push_host(&mut self, at_us: u64, mut reading: HostReading) {
        self.totals.apply(&mut reading);
        self.host.push((at_us, reading));
    }

    pub(crate) fn push_process(&mut self, name: &str, pid: u32, at_us: u64, reading: ProcessReading) {
        self.process(name, pid).readings.push((at_us, reading));
    }

    pub(super) fn push_threads(&mut self, name: &str, pid: u32, at_us: u64, threads: Vec<ThreadReading>) {
        let process = self.process(name, pid);
        let before_us = process.threads_at_us;
        for ThreadReading { id, ticks, is_collector } in threads {
            if is_collector {
                process.collectors.insert(id);
            }
            let seen = process.threads.entry(id).or_default();
            match seen.last() {
                Some(&(_, last)) if last == ticks => {}
                Some(&(last_us, last)) if last_us < before_us => {
                    seen.extend([(before_us, last), (at_us, ticks)]);
                }
                // A new thread started at zero.
                None if before_us > 0 => seen.extend([(before_us, 0), (at_us, ticks)]),
                _ => seen.push((at_us, ticks)),
            }
        }
        process.threads_at_us = at_us;
    }

    /// Drops every second sample if there are too many. Returns true if any were dropped.
    pub(super) fn thin(&mut self) -> bool {
        if self.host.len() < LOOKS_MAX {
            return false;
        }
        let mut keep = false;
        self.host.retain(|_| {
            keep = !keep;
            keep
        });
        // Samples of one time are kept or dropped together, because processes start at different times.
        for process in &mut self.processes {
            process
                .readings
                .retain(|(at_us, _)| self.host.binary_search_by_key(at_us, |(at_us, _)| *at_us).is_ok());
        }
        true
    }

    /// Drops all samples before a time, and processes without a later one.
    pub(crate) fn forget_before(&mut self, at_us: u64) {
        self.host.retain(|(seen_us, _)| *seen_us >= at_us);
        for process in &mut self.processes {
            process.readings.retain(|(seen_us, _)| *seen_us >= at_us);
            process.threads.values_mut().for_each(|seen| seen.retain(|(seen_us, _)| *seen_us >= at_us));
        }
        self.processes.retain(|process| !process.readings.is_empty());
    }

    fn process(&mut self, name: &str, pid: u32) -> &mut Process {
        let known = self.processes.iter().position(|known| known.pid == pid && known.name == name);
        let index = known.unwrap_or_else(|| {
            self.processes.push(Process {
                name: name.to_owned(),
                pid,
                readings: Vec::new(),
                threads: BTreeMap::new(),
                collectors: BTreeSet::new(),
                threads_at_us: 0,
            });
            self.processes.len() - 1
        });
        &mut self.processes[index]
    }

    /// The usage between two times, as far as there are samples.
    pub(crate) fn usage(&self, from_us: u64, to_us: u64) -> Usage {
        let seen_us =
            self.host.first().zip(self.host.last()).map_or((0, 0), |(first, last)| (first.0, last.0));
        let from_us = from_us.clamp(seen_us.0, seen_us.1);
        let to_us = to_us.clamp(from_us, seen_us.1);
        Usage {
            processes: self
                .by_name()
                .into_iter()
                .map(|(name, processes)| self.process_use(name, &processes, from_us, to_us))
                .collect(),
            host: self.host_use(from_us, to_us),
            agents: Vec::new(),
            samples: self.samples(from_us, to_us),
            profile: None,
        }
    }

    /// The processes of each name, in order of appearance.
    fn by_name(&self) -> Vec<(&str, Vec<&Process>)> {
        let mut names: Vec<(&str, Vec<&Process>)> = Vec::new();
        for process in &self.processes {
            match names.iter_mut().find(|(name, _)| *name == process.name) {
                Some((_, processes)) => processes.push(process),
                None => names.push((&process.name, vec![process])),
            }
        }
        names
    }

    fn process_use(&self, name: &str, processes: &[&Process], from_us: u64, to_us: u64) -> ProcessUse {
        let seconds = |value: fn(&ProcessReading) -> u64| {
            let ticks: f64 = processes.iter().map(|one| between(&one.readings, from_us, to_us, value)).sum();
            ticks / self.units.ticks_per_s
        };
        let tells_disk =
            processes.iter().any(|one| one.readings.iter().any(|(_, reading)| reading.disk.is_some()));
        let disk = |value: fn(&ProcessReading) -> u64| {
            let bytes: f64 = processes.iter().map(|one| between(&one.readings, from_us, to_us, value)).sum();
            tells_disk.then(|| bytes.round() as u64)
        };
        let moments = self.moments(from_us, to_us).map(|(at_us, _)| self.resident_bytes(processes, *at_us));
        let length_s = (to_us - from_us) as f64 / 1e6;
        let is_jvm = processes.iter().any(|one| !one.collectors.is_empty());
        let (mut busiest_ticks, mut collector_ticks) = (0.0f64, 0.0);
        for process in processes {
            for (id, seen) in &process.threads {
                let ticks = between(seen, from_us, to_us, |ticks| *ticks);
                busiest_ticks = busiest_ticks.max(ticks);
                if process.collectors.contains(id) {
                    collector_ticks += ticks;
                }
            }
        }
        ProcessUse {
            name: name.to_owned(),
            pid: processes.first().map_or(0, |one| one.pid),
            agent: None,
            user_s: seconds(|reading| reading.stat.user_ticks),
            system_s: seconds(|reading| reading.stat.system_ticks),
            memory_bytes_max: moments.max().unwrap_or_default(),
            disk_read_bytes: disk(|reading| reading.disk.unwrap_or_default().0),
            disk_written_bytes: disk(|reading| reading.disk.unwrap_or_default().1),
            collector_s: is_jvm.then(|| collector_ticks / self.units.ticks_per_s),
            busiest_thread: share(busiest_ticks / self.units.ticks_per_s, length_s),
        }
    }

    /// The samples within two times, with one before and one after.
    fn moments(&self, from_us: u64, to_us: u64) -> impl Iterator<Item = &(u64, HostReading)> {
        let first = self.host.partition_point(|(at_us, _)| *at_us <= from_us).saturating_sub(1);
        let end = (self.host.partition_point(|(at_us, _)| *at_us < to_us) + 1).min(self.host.len());
        self.host[first.min(end)..end].iter()
    }

    /// Resident memory at a sample; 0 for a process that did not exist.
    fn resident_bytes(&self, processes: &[&Process], at_us: u64) -> u64 {
        let pages = processes.iter().filter_map(|one| {
            let index = one.readings.binary_search_by_key(&at_us, |(at_us, _)| *at_us).ok()?;
            Some(one.readings[index].1.stat.resident_pages)
        });
        pages.sum::<u64>() * self.units.page_bytes
    }

    fn host_use(&self, from_us: u64, to_us: u64) -> HostUse {
        let used = |value: fn(&HostReading) -> u64| between(&self.host, from_us, to_us, value);
        let total = used(|reading| reading.cpu.total);
        let length_ms = (to_us - from_us) as f64 / 1e3;
        let mut disks: Vec<DiskUse> = Vec::new();
        for name in &self.whole_disks {
            let of = |value: fn(&crate::proc::Disk) -> u64| {
                between(&self.host, from_us, to_us, |reading| {
                    // A new disk has no history.
                    reading.disks.iter().find(|same| same.name == *name).map_or(0, value)
                })
            };
            let (read, written) = (of(|disk| disk.read_bytes), of(|disk| disk.written_bytes));
            if read + written > 0.0 {
                disks.push(DiskUse {
                    name: name.clone(),
                    read_bytes: read.round() as u64,
                    written_bytes: written.round() as u64,
                    busy: share(of(|disk| disk.busy_ms), length_ms),
                });
            }
        }
        let interfaces = self.interfaces_use(Path::new(INTERFACES), from_us, to_us);
        HostUse {
            interfaces,
            cpu_busy: share(used(|reading| reading.cpu.busy), total),
            cpu_interrupts: share(used(|reading| reading.cpu.interrupts), total),
            cpu_steal: share(used(|reading| reading.cpu.steal), total),
            cpu_io_wait: share(used(|reading| reading.cpu.io_wait), total),
            loopback_bytes: used(|reading| reading.loopback_bytes).round() as u64,
            received_bytes: used(|reading| reading.received_bytes).round() as u64,
            sent_bytes: used(|reading| reading.sent_bytes).round() as u64,
            disks,
            devices: rates::devices(&self.host, from_us, to_us),
            storage: Vec::new(),
            dirty_bytes_max: self
                .moments(from_us, to_us)
                .map(|(_, reading)| reading.dirty_bytes)
                .max()
                .unwrap_or_default(),
        }
    }

    /// The use of interfaces, with their speeds below `links`, and without their limits.
    fn interfaces_use(&self, links: &Path, from_us: u64, to_us: u64) -> Vec<InterfaceUse> {
        let of = |name: &str, value: fn(&Interface) -> u64| {
            let counter = |reading: &HostReading| {
                reading.interfaces.iter().find(|one| one.name == name).map_or(0, value)
            };
            between(&self.host, from_us, to_us, counter).round() as u64
        };
        let last = self.host.last().map(|(_, reading)| &reading.interfaces[..]).unwrap_or_default();
        let used = last.iter().map(|one| {
            let (received, sent) = rates::packets(&self.host, &one.name, from_us, to_us);
            InterfaceUse {
                name: one.name.clone(),
                speed_mbit_per_s: link_speed(links, &one.name),
                sent_limit_bit_per_s: None,
                received_bytes: of(&one.name, |one| one.received),
                sent_bytes: of(&one.name, |one| one.sent),
                received: Some(received),
                sent: Some(sent),
            }
        });
        used.filter(|used| used.received_bytes + used.sent_bytes > 0).collect()
    }

    fn samples(&self, from_us: u64, to_us: u64) -> Vec<Sample> {
        let moments: Vec<u64> = self.moments(from_us, to_us).map(|(at_us, _)| *at_us).collect();
        let step = moments.len().div_ceil(SAMPLES_MAX).max(1);
        let mut chosen: Vec<u64> = moments.iter().copied().step_by(step).collect();
        if let Some(last) = moments.last()
            && chosen.last() != Some(last)
        {
            chosen.push(*last);
        }
        let names = self.by_name();
        chosen.windows(2).map(|pair| self.sample(&names, pair[0], pair[1])).collect()
    }

    fn sample(&self, names: &[(&str, Vec<&Process>)], from_us: u64, to_us: u64) -> Sample {
        let ticks_in_length = (to_us - from_us) as f64 / 1e6 * self.units.ticks_per_s;
        let cpus = |ticks: f64| if ticks_in_length > 0.0 { ticks / ticks_in_length } else { 0.0 };
        let host = |value: fn(&HostReading) -> u64| between(&self.host, from_us, to_us, value);
        // Not those of partitions and volumes: their bytes are those of the disks below them.
        let is_whole = |disk: &&crate::proc::Disk| self.whole_disks.contains(&disk.name);
        let written = between(&self.host, from_us, to_us, |reading| {
            reading.disks.iter().filter(is_whole).map(|disk| disk.written_bytes).sum()
        });
        Sample {
            at_us: to_us,
            process_cpus: names
                .iter()
                .map(|(name, processes)| {
                    let ticks =
                        |reading: &ProcessReading| reading.stat.user_ticks + reading.stat.system_ticks;
                    let used =
                        processes.iter().map(|one| between(&one.readings, from_us, to_us, ticks)).sum();
                    ((*name).to_owned(), cpus(used))
                })
                .collect(),
            process_memory_bytes: names
                .iter()
                .map(|(name, processes)| ((*name).to_owned(), self.resident_bytes(processes, to_us)))
                .collect(),
            host_cpus: cpus(host(|reading| reading.cpu.busy)),
            steal_cpus: cpus(host(|reading| reading.cpu.steal)),
            disk_written_bytes: written.round() as u64,
            in_sync_replicas_min: None,
        }
    }
}

/// A ratio, 0 to 1.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// The growth of a counter between two times.
fn between<T>(readings: &[(u64, T)], from_us: u64, to_us: u64, value: impl Fn(&T) -> u64) -> f64 {
    let [grown] = growth(readings, from_us, to_us, |reading| [value(reading)]);
    grown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::{CpuTicks, Disk, Stat};

    const S: u64 = 1_000_000;

    fn series() -> Series {
        Series::new(Units { ticks_per_s: 100.0, page_bytes: 4096 }, vec!["vda".to_owned()])
    }

    fn process(user_ticks: u64, resident_pages: u64) -> ProcessReading {
        let stat = Stat { user_ticks, system_ticks: user_ticks / 10, resident_pages, ..Stat::default() };
        ProcessReading { stat, disk: Some((0, user_ticks * 1000)) }
    }

    fn host(busy: u64, total: u64) -> HostReading {
        let cpu = CpuTicks { busy, total, steal: busy / 10, ..CpuTicks::default() };
        let disk =
            Disk { name: "vda".to_owned(), written_bytes: busy * 100, busy_ms: busy * 5, ..Disk::default() };
        HostReading {
            cpu,
            loopback_bytes: busy,
            disks: vec![disk.clone(), Disk { name: "vda1".to_owned(), ..disk }],
            dirty_bytes: busy,
            ..HostReading::default()
        }
    }

    #[test]
    fn a_moment_between_two_readings_gets_its_share() {
        let mut series = series();
        for second in 0..=10 {
            series.push_host(second * S, host(second * 100, second * 400));
            series.push_process("broker-1", 7, second * S, process(second * 50, 100 + second));
        }
        let usage = series.usage(2 * S + S / 2, 7 * S + S / 2);
        let broker = &usage.processes[0];
        assert_eq!((broker.name.as_str(), broker.pid), ("broker-1", 7));
        assert!((broker.user_s - 2.5).abs() < 1e-9, "{broker:?}");
        assert!((broker.system_s - 0.25).abs() < 1e-9, "{broker:?}");
        assert_eq!(broker.disk_written_bytes, Some(250_000));
        assert_eq!(broker.memory_bytes_max, 108 * 4096, "the reading behind the end counts too");
        assert!((usage.host.cpu_busy - 0.25).abs() < 1e-9 && (usage.host.cpu_steal - 0.025).abs() < 1e-9);
        assert_eq!(usage.host.loopback_bytes, 500);
        assert_eq!(usage.host.disks.len(), 1);
        assert_eq!(usage.host.disks[0].written_bytes, 50_000);
        assert!((usage.host.disks[0].busy - 0.5).abs() < 1e-9);
        assert_eq!(usage.samples.len(), 6);
        assert!((usage.samples[0].process_cpus[0].1 - 0.55).abs() < 1e-9);
        assert!((usage.samples[0].host_cpus - 1.0).abs() < 1e-9);
    }

    #[test]
    fn processes_of_one_name_are_counted_together() {
        let mut series = series();
        for second in 0..=4 {
            series.push_host(second * S, host(second, second));
            series.push_process("producer-0", 7, second * S, process(second * 10, 10));
            // The worker's JVM starts a second later.
            if second >= 1 {
                series.push_process("producer-0", 8, second * S, process(second * 30, 30));
            }
        }
        let usage = series.usage(2 * S, 4 * S);
        assert_eq!(usage.processes.len(), 1);
        assert!((usage.processes[0].user_s - 0.8).abs() < 1e-9);
        assert_eq!(usage.processes[0].memory_bytes_max, 40 * 4096);
    }

    fn thread(id: u32, ticks: u64) -> ThreadReading {
        ThreadReading { id, ticks, is_collector: false }
    }

    fn collector(id: u32, ticks: u64) -> ThreadReading {
        ThreadReading { is_collector: true, ..thread(id, ticks) }
    }

    #[test]
    fn the_busiest_thread_is_found_though_it_slept_before() {
        let mut series = series();
        series.push_host(0, host(0, 0));
        for second in 1..=10 {
            series.push_host(second * S, host(second, second));
            series.push_process("broker-1", 7, second * S, process(0, 1));
            let late = if second <= 8 { 5 } else { 5 + (second - 8) * 90 };
            series.push_threads(
                "broker-1",
                7,
                second * S,
                vec![thread(70, second * 20), collector(71, late)],
            );
        }
        let busiest = |from, to| series.usage(from * S, to * S).processes[0].busiest_thread;
        let collected =
            |from, to| series.usage(from * S, to * S).processes[0].collector_s.expect("it is a JVM");
        assert!(collected(1, 5).abs() < 1e-9 && (collected(8, 10) - 1.8).abs() < 1e-9);
        assert!((busiest(1, 5) - 0.2).abs() < 1e-9);
        assert!((busiest(8, 10) - 0.9).abs() < 1e-9);
        assert!((busiest(8, 1000) - 0.9).abs() < 1e-9, "nobody looked after the tenth second");
    }

    #[test]
    fn an_interface_has_the_speed_of_its_link() {
        let links = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(links.path().join("eth0/device")).expect("made");
        std::fs::write(links.path().join("eth0/speed"), "25000\n").expect("written");
        let mut series = series();
        for second in 0..=2 {
            let of =
                |name: &str| Interface { name: name.to_owned(), sent: second * 10, ..Interface::default() };
            let interfaces = vec![of("eth0"), of("veth1")];
            series.push_host(second * S, HostReading { interfaces, ..host(second, second) });
        }
        let found = series.interfaces_use(links.path(), 0, 2 * S);
        let found: Vec<_> =
            found.iter().map(|one| (&*one.name, one.sent_bytes, one.speed_mbit_per_s)).collect();
        assert_eq!(found, [("eth0", 20, Some(25_000)), ("veth1", 20, None)]);
    }

    #[test]
    fn a_thread_that_began_meanwhile_counts_from_nothing() {
        let mut series = series();
        series.push_host(S, host(0, 0));
        series.push_host(2 * S, host(0, 0));
        series.push_threads("p", 7, S, vec![thread(70, 1000)]);
        series.push_threads("p", 7, 2 * S, vec![thread(70, 1000), thread(71, 60)]);
        assert!((series.usage(S, 2 * S).processes[0].busiest_thread - 0.6).abs() < 1e-9);
    }

    #[test]
    fn the_usage_of_an_exited_process_is_kept() {
        let mut series = series();
        for second in 0..=10 {
            series.push_host(second * S, host(second, second));
            if second <= 3 {
                series.push_process("consumer-0", 9, second * S, process(second * 100, 50));
            }
        }
        let usage = series.usage(S, 10 * S);
        assert!((usage.processes[0].user_s - 2.0).abs() < 1e-9);
        assert_eq!(usage.samples.last().expect("samples").process_memory_bytes[0].1, 0);
    }

    #[test]
    fn long_runs_are_thinned_and_their_samples_are_few() {
        let mut series = series();
        for number in 0..LOOKS_MAX as u64 {
            assert!(!series.thin());
            series.push_host(number * S / 5, host(number, number * 4));
            if number > 0 {
                series.push_process("late", 7, number * S / 5, process(number, 3));
            }
        }
        assert!(series.thin());
        assert_eq!(series.host.len(), LOOKS_MAX / 2);
        let samples = series.usage(0, LOOKS_MAX as u64 * S / 5).samples;
        assert!(samples.len() <= SAMPLES_MAX, "{}", samples.len());
        assert!(samples.iter().all(|sample| sample.process_memory_bytes[0].1 == 3 * 4096));
        assert_eq!(samples.last().map(|last| last.at_us), Some((LOOKS_MAX as u64 - 2) * S / 5));
    }

    #[test]
    fn a_wrap_of_the_disks_times_is_busy_time() {
        let mut series = series();
        for second in 0..=4 {
            let mut reading = host(second * 100, second * 400);
            reading.disks[0].writes = second;
            reading.disks[0].busy_ms = (u64::from(u32::MAX) - 1000 + second * 500) % (1 << 32);
            series.push_host(second * S, reading);
        }
        let usage = series.usage(0, 4 * S);
        assert!((usage.host.disks[0].busy - 0.5).abs() < 1e-9, "{:?}", usage.host);
        assert!((usage.host.devices[0].mean.busy - 0.5).abs() < 1e-9, "{:?}", usage.host);
    }

    #[test]
    fn samples_have_no_idle_devices() {
        let mut series = series();
        for second in 0..=4 {
            let mut reading = host(second, second);
            reading.disks.push(Disk { name: "vdz".to_owned(), reads: 9, ..Disk::default() });
            reading.interfaces =
                vec![Interface { name: "veth7".to_owned(), sent: 9, ..Interface::default() }];
            series.push_host(second * S, reading);
        }
        let last = &series.host.last().expect("a sample").1;
        assert_eq!((last.disks.len(), last.interfaces.len()), (2, 0), "{last:?}");
    }

    #[test]
    fn nothing_seen_is_nothing_used() {
        assert_eq!(series().usage(5, 3), Usage::default());
    }
}
