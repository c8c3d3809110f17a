//! A look inside the processes of a repetition: their threads, the locks of JVMs, the waits in brokers of
//! Thalweg, and processor time by stack.

use serde::{Deserialize, Serialize};

/// The profile of the processes of a repetition with `--look-inside`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The brokers' processes, then the workers'.
    pub processes: Vec<ProcessProfile>,
    /// The missing parts, with their reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// The share of a process's processor time that samples of its threads may lack unsaid.
const UNSEEN_MAX: f64 = 0.05;

impl Profile {
    /// Notes the processor time of the processes with a name as it was sampled more often, in seconds: that
    /// of a process that ends is missing from its threads since their last sample.
    pub(crate) fn note_cpu(&mut self, name: &str, cpu_s: f64) {
        let own = || self.processes.iter().filter(|process| process.name == name);
        let threads = own().flat_map(|process| &process.threads).map(|used| used.user_s + used.system_s);
        let unseen_s = cpu_s - threads.sum::<f64>();
        if unseen_s > cpu_s * UNSEEN_MAX
            && let Some(first) = self.processes.iter_mut().find(|process| process.name == name)
        {
            first.unseen_cpu_s = first.unseen_cpu_s.max(unseen_s);
        }
    }
}

/// The inside of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// `broker-1`, `producer-0`.
    pub name: String,
    pub pid: u32,
    /// Threads by name, the busiest first. Digits in names are `*`.
    pub threads: Vec<ThreadUse>,
    /// Processor time of the process that is in none of its threads, in seconds: of threads that began and
    /// ended between two samples, and of the time between the last sample of a thread and its end.
    pub unseen_cpu_s: f64,
    /// The locks of a JVM; `None` for other processes, or if there was no thread dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<LockUse>,
    /// The waits in a broker of Thalweg; `None` for other processes, or if its metrics were not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Processor time by stack, of brokers; `None` if it was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuProfile>,
}

/// The threads of a process with one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    pub name: String,
    /// Number of threads seen.
    pub threads: u32,
    /// Processor time in user mode, in seconds.
    pub user_s: f64,
    /// Processor time in the kernel, in seconds.
    pub system_s: f64,
    /// The busy share of the busiest of them, 0 to 1.
    pub busiest: f64,
    /// Times that a thread gave up its processor, to wait.
    pub voluntary_switches: u64,
    /// Times that the kernel took the processor from a thread.
    pub involuntary_switches: u64,
    /// Time ready to run without a processor, in seconds; `None` if the kernel does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_s: Option<f64>,
}

/// Locks on which threads of a JVM waited, from thread dumps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockUse {
    /// Number of thread dumps in the measurement.
    pub dumps: u32,
    /// Threads that waited for a lock, over all dumps.
    pub waiting: u64,
    /// Threads that ran, over all dumps: in Java code, or in native code other than waiting for events.
    pub running: u64,
    /// The locks with the most waiting threads, first the most.
    pub locks: Vec<Lock>,
}

/// A lock, or several of one class that are waited for at the same place in the code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// The class of the monitor, or of the lock.
    pub class: String,
    /// The frame that waits for the lock.
    pub waits_at: String,
    /// Waiting threads, over all dumps.
    pub waiting: u64,
    /// Dumps with a waiting thread.
    pub dumps: u32,
    /// The most threads that waited in one dump.
    pub waiting_max: u32,
    /// Different locks in one dump, at most.
    pub instances_max: u32,
    /// The most frequent stack of waiting threads, innermost frame first.
    pub waiting_stack: Vec<String>,
    /// The most frequent holder; `None` if no dump showed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
}

/// The threads that held a lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The thread's name; digits are `*`.
    pub thread: String,
    /// Dumps with this stack.
    pub dumps: u32,
    /// Dumps that showed any holder.
    pub dumps_with_holder: u32,
    /// The stack of the holder, innermost frame first.
    pub stack: Vec<String>,
}

impl LockUse {
    /// The share of the threads that were running or waiting for a lock, and waited for this one; 0 to 1.
    pub fn share(&self, lock: &Lock) -> f64 {
        lock.waiting as f64 / (self.waiting + self.running).max(1) as f64
    }
}

/// Waits of threads and requests in a broker, between two readings of its metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Time between both readings, in seconds.
    pub seconds: f64,
    /// The places with waits, the longest sum first.
    pub places: Vec<Wait>,
}

/// The waits at a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// A lock, the syncs of logs, or an API with a stage of its requests.
    pub place: String,
    /// Number of waits that ended.
    pub count: u64,
    /// Their sum, in seconds.
    pub waited_s: f64,
}

impl Wait {
    /// The place of threads that wait for the lock of a partition.
    pub const PARTITION_LOCK: &str = "the lock of a partition";
}

impl Waits {
    /// How many waited at a place at once, in the mean.
    pub fn at_once(&self, wait: &Wait) -> f64 {
        wait.waited_s / self.seconds.max(0.001)
    }
}

/// Processor time of a process by stack, from samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuProfile {
    /// The sampling program and what it sees.
    pub method: String,
    /// Samples in the measurement.
    pub samples: u64,
    /// Samples of rare stacks, which are left out below.
    #[serde(default)]
    pub left_out: u64,
    /// The names in stacks: of threads, then of functions.
    pub frames: Vec<String>,
    /// Stacks with their samples, the most frequent first: indexes of frames, first the thread, then the
    /// outermost function.
    pub stacks: Vec<(Vec<u32>, u64)>,
}

impl CpuProfile {
    /// The stacks with their samples, as lines of names between semicolons and a number: the format of flame
    /// graph tools.
    pub fn folded(&self) -> String {
        let mut text = String::new();
        for (stack, samples) in self.named() {
            text += &format!("{} {samples}\n", stack.join(";"));
        }
        text
    }

    /// The stacks as names, with their samples. Frames that a damaged file lacks are `?`.
    pub fn named(&self) -> impl Iterator<Item = (Vec<&str>, u64)> {
        self.stacks.iter().map(|(stack, samples)| {
            let names =
                stack.iter().map(|frame| self.frames.get(*frame as usize).map_or("?", String::as_str));
            (names.collect(), *samples)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_that_no_thread_shows_is_noted() {
        let process = |name: &str, user_s| ProcessProfile {
            name: name.to_owned(),
            threads: vec![ThreadUse { user_s, ..ThreadUse::default() }],
            ..ProcessProfile::default()
        };
        let of = |cpu_s| {
            let processes =
                vec![process("broker-1", 9.0), process("producer-0", 2.0), process("producer-0", 1.0)];
            let mut profile = Profile { processes, missing: Vec::new() };
            profile.note_cpu("producer-0", cpu_s);
            profile.processes.iter().map(|process| process.unseen_cpu_s).collect::<Vec<f64>>()
        };
        assert_eq!(of(4.0), [0.0, 1.0, 0.0], "both processes of the name are counted");
        assert_eq!(of(3.1), [0.0, 0.0, 0.0], "within the tolerance");
    }
}
