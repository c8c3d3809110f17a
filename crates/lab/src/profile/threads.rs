//! The threads of a process over time: processor time, context switches and time in run queues.

use std::collections::BTreeMap;
use std::path::Path;

use super::kind;
use crate::result::ThreadUse;
use crate::sample::growth;

/// Maximum number of kept samples; beyond that, every second one is dropped and sampling slows down.
const SAMPLES_MAX: usize = 512;

/// Counters since the start of a thread: user ticks, system ticks, voluntary and involuntary context
/// switches, nanoseconds in run queues.
type Counters = [u64; 5];

/// The threads of a process.
#[derive(Debug)]
pub(crate) struct Threads {
    pid: u32,
    /// The process's start time in ticks: another process with the same id has another one.
    began: Option<u64>,
    /// Times of all samples.
    times_us: Vec<u64>,
    /// Calls for one sample; doubled whenever samples are dropped, so that the kept ones are evenly spaced.
    every: u32,
    /// Calls since the last sample.
    skipped: u32,
    /// User and system ticks of the process, ended threads included.
    process: Vec<(u64, Counters)>,
    threads: BTreeMap<u32, Thread>,
    has_run_queue: bool,
}

#[derive(Debug)]
struct Thread {
    name: String,
    readings: Vec<(u64, Counters)>,
}

impl Threads {
    pub(crate) fn new(pid: u32) -> Threads {
        Threads {
            pid,
            began: None,
            times_us: Vec::new(),
            every: 1,
            skipped: 0,
            process: Vec::new(),
            threads: BTreeMap::new(),
            has_run_queue: true,
        }
    }

    /// Samples all threads now, unless a long run needs fewer samples; always at the end of a run. A process
    /// that has ended has none.
    pub(crate) fn sample(&mut self, at_us: u64, is_last: bool) {
        self.skipped += 1;
        if self.skipped < self.every && !is_last {
            return;
        }
        self.skipped = 0;
        let dir = Path::new("/proc").join(self.pid.to_string());
        let Some(stat) = read(&dir, "stat").and_then(|text| crate::proc::stat(&text)) else { return };
        if *self.began.get_or_insert(stat.start_ticks) != stat.start_ticks {
            return;
        }
        let Ok(tasks) = std::fs::read_dir(dir.join("task")) else { return };
        let before_us = self.times_us.last().copied();
        self.times_us.push(at_us);
        self.process.push((at_us, [stat.user_ticks, stat.system_ticks, 0, 0, 0]));
        for task in tasks.flatten() {
            let Some(id) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // Threads end at any time.
            let Some((name, counters)) = self.thread(&task.path()) else { continue };
            let thread = self.threads.entry(id).or_insert_with(|| {
                // A new thread counts from zero.
                let start = before_us.map(|before_us| (before_us, [0; 5]));
                Thread { name: String::new(), readings: start.into_iter().collect() }
            });
            // A thread may get its name late.
            thread.name = name;
            thread.readings.push((at_us, counters));
        }
        self.thin();
    }

    fn thread(&mut self, dir: &Path) -> Option<(String, Counters)> {
        let text = read(dir, "stat")?;
        let stat = crate::proc::stat(&text)?;
        let name = text.split_once('(')?.1.rsplit_once(')')?.0.to_owned();
        let (voluntary, involuntary) = switches(&read(dir, "status")?)?;
        let waited_ns = match read(dir, "schedstat").and_then(|text| run_queue_ns(&text)) {
            Some(waited_ns) => waited_ns,
            None => {
                self.has_run_queue = false;
                0
            }
        };
        Some((name, [stat.user_ticks, stat.system_ticks, voluntary, involuntary, waited_ns]))
    }

    /// Drops every second sample if there are too many, and halves the rate of later ones.
    fn thin(&mut self) {
        if self.times_us.len() < SAMPLES_MAX {
            return;
        }
        self.every = self.every.saturating_mul(2);
        let last_us = self.times_us.last().copied();
        let mut keep = false;
        self.times_us.retain(|at_us| {
            keep = !keep;
            keep || Some(*at_us) == last_us
        });
        let times_us = &self.times_us;
        let is_kept = |(at_us, _): &(u64, Counters)| times_us.binary_search(at_us).is_ok();
        self.process.retain(is_kept);
        for thread in self.threads.values_mut() {
            // The last reading of an ended thread is all that tells of its time since the one before.
            let last = thread.readings.last().copied();
            thread.readings.retain(|reading| is_kept(reading) || Some(*reading) == last);
        }
    }

    /// Drops all samples before a time, and threads without a later one.
    pub(crate) fn forget_before(&mut self, at_us: u64) {
        self.times_us.retain(|seen_us| *seen_us >= at_us);
        self.process.retain(|(seen_us, _)| *seen_us >= at_us);
        self.threads.retain(|_, thread| {
            thread.readings.retain(|(seen_us, _)| *seen_us >= at_us);
            !thread.readings.is_empty()
        });
    }

    /// The longest time between two samples of an interval, or without a sample at its start or end.
    pub(super) fn gap_us(&self, from_us: u64, to_us: u64) -> u64 {
        let mut times_us = self.times_us.clone();
        // The edges without a sample beyond them, between which counters would be interpolated.
        if times_us.first().is_none_or(|first_us| *first_us > from_us) {
            times_us.insert(0, from_us);
        }
        if times_us.last().is_none_or(|last_us| *last_us < to_us) {
            times_us.push(to_us);
        }
        let pairs = times_us.windows(2).filter(|pair| pair[1] > from_us && pair[0] < to_us);
        pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// The use between two times by kind of thread, the busiest first, and the processor seconds of the
    /// process beyond those of its threads. `names` are better names of threads, by id.
    pub(crate) fn used(
        &self,
        from_us: u64,
        to_us: u64,
        names: &BTreeMap<u32, &str>,
    ) -> (Vec<ThreadUse>, f64) {
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        let length_s = (to_us.saturating_sub(from_us) as f64 / 1e6).max(0.001);
        let mut kinds: BTreeMap<String, ThreadUse> = BTreeMap::new();
        for (id, thread) in &self.threads {
            let [user, system, voluntary, involuntary, waited_ns] =
                growth(&thread.readings, from_us, to_us, Counters::clone);
            let is_there = thread.readings.last().is_some_and(|(last_us, _)| *last_us >= from_us);
            if !is_there {
                continue;
            }
            let name = kind(names.get(id).copied().unwrap_or(&thread.name));
            let used =
                kinds.entry(name.clone()).or_insert_with(|| ThreadUse { name, ..ThreadUse::default() });
            used.threads += 1;
            used.user_s += user / ticks_per_s;
            used.system_s += system / ticks_per_s;
            used.busiest = used.busiest.max(((user + system) / ticks_per_s / length_s).min(1.0));
            used.voluntary_switches += voluntary.round() as u64;
            used.involuntary_switches += involuntary.round() as u64;
            if self.has_run_queue {
                *used.run_queue_s.get_or_insert(0.0) += waited_ns / 1e9;
            }
        }
        let mut kinds: Vec<ThreadUse> = kinds.into_values().collect();
        let cpu_s = |used: &ThreadUse| used.user_s + used.system_s;
        kinds.sort_by(|a, b| cpu_s(b).total_cmp(&cpu_s(a)));
        let [user, system, ..] = growth(&self.process, from_us, to_us, Counters::clone);
        let seen_s: f64 = kinds.iter().map(cpu_s).sum();
        // The kernel counts a process and its threads in ticks, so that they differ by some.
        let ticks = kinds.iter().map(|used| u64::from(used.threads)).sum::<u64>() as f64 + 1.0;
        let unseen_s = (user + system) / ticks_per_s - seen_s;
        (kinds, if unseen_s * ticks_per_s > ticks { unseen_s } else { 0.0 })
    }
}

fn read(dir: &Path, file: &str) -> Option<String> {
    std::fs::read_to_string(dir.join(file)).ok()
}

/// Voluntary and involuntary context switches, from `/proc/PID/task/TID/status`.
fn switches(status: &str) -> Option<(u64, u64)> {
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((value("voluntary_ctxt_switches:")?, value("nonvoluntary_ctxt_switches:")?))
}

/// Nanoseconds in run queues, from `/proc/PID/task/TID/schedstat`.
fn run_queue_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn thread(name: &str, readings: &[(u64, u64)]) -> Thread {
        let readings = readings
            .iter()
            .map(|(at_s, value)| (at_s * S, [*value, 0, value * 2, *value, value * 1_000_000]));
        Thread { name: name.to_owned(), readings: readings.collect() }
    }

    #[test]
    fn threads_are_summed_by_kind_with_better_names() {
        let mut threads = Threads::new(1);
        threads.process = vec![(0, [0; 5]), (10 * S, [2000, 0, 0, 0, 0])];
        threads.threads = BTreeMap::from([
            (10, thread("data-plane-kaf", &[(0, 0), (10, 500)])),
            (11, thread("data-plane-kaf", &[(0, 0), (10, 300)])),
            // It ended in the middle.
            (12, thread("C2 Compiler", &[(0, 0), (4, 400)])),
            // It ended before.
            (13, thread("gone", &[(0, 50)])),
        ]);
        let names = BTreeMap::from([
            (10, "data-plane-kafka-request-handler-0"),
            (11, "data-plane-kafka-request-handler-1"),
        ]);
        let (used, unseen_s) = threads.used(S, 10 * S, &names);
        let found: Vec<(&str, u32)> = used.iter().map(|used| (used.name.as_str(), used.threads)).collect();
        assert_eq!(found, [("data-plane-kafka-request-handler-*", 2), ("C2 Compiler", 1)]);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(used[0].user_s, 7.2) && close(used[0].busiest, 0.5), "{used:?}");
        assert_eq!((used[0].voluntary_switches, used[0].involuntary_switches), (1440, 720));
        assert!(close(used[0].run_queue_s.expect("known"), 0.72) && close(used[1].user_s, 3.0), "{used:?}");
        assert!(close(unseen_s, 18.0 - 10.2), "threads that ended unseen: {unseen_s}");
    }

    #[test]
    fn long_runs_are_thinned_and_keep_ended_threads() {
        let mut threads = Threads::new(1);
        threads.threads.insert(7, thread("ended", &[(1, 1), (2, 9)]));
        threads.threads.insert(8, Thread { name: "runs".to_owned(), readings: Vec::new() });
        for second in 1..=SAMPLES_MAX as u64 {
            threads.times_us.push(second * S);
            threads.process.push((second * S, [second; 5]));
            threads.threads.get_mut(&8).expect("there").readings.push((second * S, [second; 5]));
        }
        threads.thin();
        assert_eq!(threads.times_us.len(), SAMPLES_MAX / 2 + 1);
        assert_eq!(threads.threads[&7].readings.last().map(|(_, counters)| counters[0]), Some(9));
        assert_eq!(threads.threads[&8].readings.len(), SAMPLES_MAX / 2 + 1);
    }

    #[test]
    fn an_hour_of_samples_is_evenly_spaced() {
        let mut sleeping = std::process::Command::new("sleep").arg("60").spawn().expect("a program");
        let mut threads = Threads::new(sleeping.id());
        (0..=3600).for_each(|second| threads.sample(second * S, second == 3600));
        sleeping.kill().and_then(|()| sleeping.wait()).expect("ours to end");
        assert!(threads.times_us.len() > SAMPLES_MAX / 2, "{}", threads.times_us.len());
        assert_eq!(threads.times_us.last(), Some(&(3600 * S)));
        let gap_s = threads.gap_us(60 * S, 3600 * S) / S;
        assert!(gap_s <= 16, "{gap_s}");
    }

    #[test]
    fn gaps_between_samples_and_at_the_edges_are_known() {
        let gap_s = |times_s: &[u64], from_s: u64, to_s: u64| {
            let mut threads = Threads::new(1);
            threads.times_us = times_s.iter().map(|at_s| at_s * S).collect();
            threads.gap_us(from_s * S, to_s * S) / S
        };
        assert_eq!(gap_s(&[0, 1, 2, 3, 9], 1, 3), 1);
        assert_eq!(gap_s(&[0, 1, 2, 3, 9], 1, 4), 6, "the last part is interpolated over it");
        assert_eq!(gap_s(&[0, 1, 2], 1, 9), 7, "it ended, or was not seen");
        assert_eq!((gap_s(&[7, 8], 1, 8), gap_s(&[], 1, 8)), (6, 7));
    }

    #[test]
    fn files_of_the_kernel_are_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(switches(status), Some((150, 545)));
        assert_eq!(switches("Name:\tx\n"), None);
        assert_eq!(run_queue_ns("764138 58417 1\n"), Some(58_417));
        assert_eq!(run_queue_ns("\n"), None);
    }
}
