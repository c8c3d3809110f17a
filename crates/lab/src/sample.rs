//! Resource usage of processes and machine over time, sampled from `/proc` five times per second during a
//! repetition. Their times are those of `Clock`: a step of the wall clock is not in them.
//!
//! If the kernel does not provide a value (on a system other than Linux, or with a hidden `/proc`), the value
//! is zero or `None`, never an error: the main figures of a run do not depend on it.

mod counters;
mod rates;
pub(crate) mod readings;
mod series;
mod totals;

pub(crate) use counters::growth;
pub(crate) use readings::whole_disks;
pub(crate) use series::{Series, Units};

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::machine::traffic_control;
use crate::result::{AgentUse, HostUse, ProcessUse, Profile, Sample};
use crate::worker::clock::Clock;

/// The sampling interval.
const INTERVAL: Duration = Duration::from_millis(200);

/// Sampling interval for the threads of a process with many threads, in samples: a JVM has a hundred.
const THREADS_EVERY: u64 = 5;
/// Maximum number of threads that are sampled every time.
const THREADS_FEW: usize = 32;

/// Usage within an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Each process, by name.
    pub processes: Vec<ProcessUse>,
    pub host: HostUse,
    /// The machines of agents; empty as sampled here.
    pub agents: Vec<AgentUse>,
    /// Samples over time.
    pub samples: Vec<Sample>,
    /// The look inside processes; `None` as sampled here.
    pub profile: Option<Profile>,
}

/// Samples processes and machine on a separate thread, until finished or dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<SamplerState>,
    /// `None` if the thread could not be started, or has been joined.
    thread: Option<JoinHandle<Series>>,
}

#[derive(Debug, Default)]
struct SamplerState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    processes: Vec<(String, u32)>,
    is_over: bool,
}

impl SamplerState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sampler {
    /// Starts sampling these processes. Processes with the same name are summed.
    pub fn start(processes: Vec<(String, u32)>) -> Sampler {
        let shared = Arc::new(SamplerState::default());
        shared.state().processes = processes;
        let watched = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("sampler".to_owned()).spawn(move || watch(&watched));
        if let Err(error) = &thread {
            tracing::warn!(%error, "Failed to sample the usage of processes and machine");
        }
        Sampler { shared, thread: thread.ok() }
    }

    /// Adds a process.
    pub fn add(&self, name: &str, pid: u32) {
        self.shared.state().processes.push((name.to_owned(), pid));
    }

    /// The usage between two times, in microseconds since the Unix epoch.
    pub fn finish(mut self, from_us: u64, to_us: u64) -> Usage {
        let Some(series) = self.end() else { return Usage::default() };
        let mut usage = series.usage(from_us, to_us);
        let limits = traffic_control::limits();
        for used in &mut usage.host.interfaces {
            used.sent_limit_bit_per_s = limits.get(&used.name).copied();
        }
        usage
    }

    fn end(&mut self) -> Option<Series> {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Samples until stopped, and once more at the end.
fn watch(shared: &SamplerState) -> Series {
    let clock = Clock::of_process();
    let mut series = Series::new(Units::of_kernel(), whole_disks());
    let mut watched: Vec<SampledProcess> = Vec::new();
    let mut interval = INTERVAL;
    let mut number = 0;
    loop {
        let (is_over, processes) = {
            let state = shared.state();
            (state.is_over, state.processes[watched.len().min(state.processes.len())..].to_vec())
        };
        watched.extend(processes.into_iter().map(|(name, pid)| SampledProcess {
            name,
            pid,
            began: None,
            is_gone: false,
            threads: 0,
        }));
        let with_threads = is_over || number % THREADS_EVERY == 0;
        look_once(&mut series, clock.now_us(), &mut watched, with_threads);
        if is_over {
            return series;
        }
        if series.thin() {
            interval *= 2;
        }
        number += 1;
        let state = shared.state();
        if !state.is_over {
            drop(shared.changed.wait_timeout(state, interval));
        }
    }
}

/// A sampled process.
struct SampledProcess {
    name: String,
    pid: u32,
    /// The process's start time, in ticks; `None` before the first sample.
    began: Option<u64>,
    is_gone: bool,
    /// The number of threads when they were last sampled.
    threads: usize,
}

fn look_once(series: &mut Series, at_us: u64, watched: &mut [SampledProcess], with_threads: bool) {
    series.push_host(at_us, readings::host());
    for one in watched.iter_mut().filter(|one| !one.is_gone) {
        let seen = readings::process(one.pid)
            .filter(|seen| *one.began.get_or_insert(seen.stat.start_ticks) == seen.stat.start_ticks);
        let Some(seen) = seen else {
            // The process id may be reused by another process.
            one.is_gone = true;
            continue;
        };
        series.push_process(&one.name, one.pid, at_us, seen);
        if with_threads || one.threads <= THREADS_FEW {
            let threads = readings::threads(one.pid);
            one.threads = threads.len();
            series.push_threads(&one.name, one.pid, at_us, threads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_process_is_seen_to_be_busy() {
        let mut busy = std::process::Command::new("/bin/sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell");
        let sampler = Sampler::start(Vec::new());
        sampler.add("busy", busy.id());
        let clock = Clock::of_process();
        let from_us = clock.now_us();
        while clock.now_us() < from_us + 1_500_000 {
            std::thread::yield_now();
        }
        let to_us = clock.now_us();
        let usage = sampler.finish(from_us, to_us);
        busy.kill().and_then(|()| busy.wait()).expect("ours to end");
        let used = &usage.processes[0];
        // Other processes may need the processor, too, so the share may be less than one.
        let cpu_s = used.user_s + used.system_s;
        assert!(cpu_s > 0.1 && cpu_s < 1.6, "{used:?}");
        assert!(used.busiest_thread > 0.05, "{used:?}");
        assert!(used.memory_bytes_max > 100_000, "{used:?}");
        assert!(usage.host.cpu_busy > 0.0 && usage.host.cpu_busy <= 1.0, "{:?}", usage.host);
        assert!(usage.samples.len() >= 4, "{}", usage.samples.len());
    }

    #[test]
    fn a_process_that_is_not_there_uses_nothing() {
        let sampler = Sampler::start(vec![("nobody".to_owned(), u32::MAX)]);
        let usage = sampler.finish(0, Clock::of_process().now_us());
        assert_eq!(usage.processes, []);
    }
}
