//! A look inside processes on this machine during a repetition: threads from `/proc`, the locks of JVMs from
//! thread dumps, the waits in brokers of Thalweg from their metrics, and the processor time of brokers by
//! stack.
//!
//! The look is bounded: threads are sampled once a second, or less often where a sample would take more than
//! a hundredth of the time, or after the first minutes; a JVM gives at most [`DUMPS_MAX`] dumps, which take
//! at most a fiftieth of it. JVMs are asked on separate threads, because one that hangs would delay the
//! samples of all processes. A process that ends meanwhile keeps its samples. Missing parts are named in
//! [`Profile::missing`].

mod attach;
mod cpu;
mod dump;
mod locks;
mod stacks;
pub(crate) mod threads;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::result::{CpuProfile, ProcessProfile, Profile, Waits};
use crate::worker::clock::Clock;
use attach::{AttachError, Jvm};
use cpu::{Jfr, LEAD_US, Perf, Recorder};
use dump::Dump;
use threads::Threads;
use waits::WaitCounters;

/// The shortest time between two samples of the threads.
const INTERVAL_US: u64 = 1_000_000;
/// The longest time between two samples.
const INTERVAL_US_MAX: u64 = 10_000_000;
/// Time between two samples, in times of their processor time.
const SAMPLE_REST: u64 = 100;
/// The longest time between two samples that is not reported as a gap.
const GAP_US_MAX: u64 = 3_000_000;
/// The same as a part of a long measurement, of which fewer samples are kept.
const GAP_PART: u64 = 100;
/// The shortest time between two thread dumps of a JVM, for the first dumps and for later ones.
const DUMP_INTERVALS_US: (u64, u64) = (1_000_000, 10_000_000);
/// Number of dumps at the shorter interval.
const DUMPS_FIRST: usize = 20;
/// Maximum number of thread dumps of a JVM.
const DUMPS_MAX: usize = 60;
/// Time between two dumps, in times of their length.
const DUMP_REST: u64 = 50;
/// Maximum number of dumps with the owners of `java.util.concurrent` locks, for which the JVM walks its heap.
const OWNER_DUMPS_MAX: u32 = 3;
/// Maximum number of brokers whose stacks are recorded.
const RECORDED_MAX: usize = 3;

/// Looks inside processes on a separate thread, until finished or dropped.
#[derive(Debug)]
pub(crate) struct Profiler {
    shared: Arc<ProfilerState>,
    /// `None` if the thread could not be started, or has been joined.
    thread: Option<JoinHandle<Vec<ProfiledProcess>>>,
}

#[derive(Debug, Default)]
struct ProfilerState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Processes to look into: name, id, and whether it is a broker.
    processes: Vec<(String, u32, bool)>,
    /// The addresses of brokers' metrics, by name.
    metrics: BTreeMap<String, String>,
    /// The start of the measurement, from which on JVMs give dumps.
    from_us: Option<u64>,
    /// True after the measurement, before it is over for the profiler.
    has_ended: bool,
    is_over: bool,
}

impl ProfilerState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process with its samples, dumps and recording.
#[derive(Debug)]
struct ProfiledProcess {
    name: String,
    pid: u32,
    is_broker: bool,
    threads: Threads,
    /// The broker's JVM. One that gives no more dumps may still end its recording.
    jvm: Option<Jvm>,
    dumps: Vec<(u64, Dump)>,
    owner_dumps: u32,
    next_dump_us: u64,
    /// Why there are no dumps, or no more.
    no_dumps: Option<String>,
    /// The address of the broker's metrics.
    metrics: Option<String>,
    /// The counters of waits at the start of the measurement, and at its end.
    waits: Vec<(u64, Result<WaitCounters, String>)>,
    /// The recording of the broker's stacks; `None` before its start.
    recorder: Option<Result<Recorder, String>>,
    /// The request that the broker answers: one after the other.
    request: Option<BrokerRequest>,
}

/// A request to a broker, on a separate thread: one that does not answer delays no samples.
#[derive(Debug)]
enum BrokerRequest {
    /// The socket of a JVM, which the first command opens with a signal.
    Open(JoinHandle<Result<(), AttachError>>),
    /// The start of a JVM's recording.
    Record(JoinHandle<Result<Recorder, String>>),
    Dump(JoinHandle<Result<TimedDump, AttachError>>),
    /// The counters of waits, and the time at which they were read.
    Waits(JoinHandle<(u64, Result<WaitCounters, String>)>),
}

impl BrokerRequest {
    fn is_finished(&self) -> bool {
        match self {
            BrokerRequest::Open(thread) => thread.is_finished(),
            BrokerRequest::Record(thread) => thread.is_finished(),
            BrokerRequest::Dump(thread) => thread.is_finished(),
            BrokerRequest::Waits(thread) => thread.is_finished(),
        }
    }
}

/// A thread dump, with the times of its command.
#[derive(Debug)]
struct TimedDump {
    began_us: u64,
    ended_us: u64,
    with_owners: bool,
    dump: Dump,
}

impl Profiler {
    /// Starts to look into the processes of brokers. `metrics` has the addresses of Thalweg's, by name.
    pub(crate) fn start(brokers: &[(String, u32)], metrics: &BTreeMap<String, String>) -> Profiler {
        let shared = Arc::new(ProfilerState::default());
        let processes = brokers.iter().map(|(name, pid)| (name.clone(), *pid, true));
        {
            let mut state = shared.state();
            state.processes.extend(processes);
            state.metrics.clone_from(metrics);
        }
        let watched = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("profiler".to_owned()).spawn(move || watch(&watched));
        if let Err(error) = &thread {
            tracing::warn!(%error, "Failed to look inside processes");
        }
        Profiler { shared, thread: thread.ok() }
    }

    /// Adds the process of a worker.
    pub(crate) fn add(&self, name: &str, pid: u32) {
        self.shared.state().processes.push((name.to_owned(), pid, false));
    }

    /// Sets the start of the measurement, in microseconds since the Unix epoch.
    pub(crate) fn begin(&self, from_us: u64) {
        self.shared.state().from_us = Some(from_us);
        self.shared.changed.notify_all();
    }

    /// Notes the end of the measurement, with which waits end.
    pub(crate) fn note_end(&self) {
        self.shared.state().has_ended = true;
        self.shared.changed.notify_all();
    }

    /// The profile between two times, in microseconds since the Unix epoch.
    pub(crate) fn finish(mut self, from_us: u64, to_us: u64) -> Profile {
        match self.end() {
            Some(watched) => profile(&watched, from_us, to_us),
            None => Profile {
                missing: vec!["everything: the lab could not start its thread for it".to_owned()],
                ..Profile::default()
            },
        }
    }

    fn end(&mut self) -> Option<Vec<ProfiledProcess>> {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(shared: &ProfilerState) -> Vec<ProfiledProcess> {
    let clock = Clock::of_process();
    let mut watched: Vec<ProfiledProcess> = Vec::new();
    let mut next_sample_us = 0;
    loop {
        let (new, from_us, has_ended, is_over) = {
            let state = shared.state();
            let new = state.processes[watched.len()..].iter();
            let with_metrics = new.map(|one| (one.clone(), state.metrics.get(&one.0).cloned()));
            let has_ended = state.has_ended || state.is_over;
            (with_metrics.collect::<Vec<_>>(), state.from_us, has_ended, state.is_over)
        };
        watched.extend(new.into_iter().map(|((name, pid, is_broker), metrics)| {
            ProfiledProcess::new(name, pid, is_broker, metrics.filter(|_| is_broker))
        }));
        watched.iter_mut().for_each(|one| one.take_finished(false));
        let brokers = watched.iter_mut().filter(|one| one.is_recorded());
        let began_us = clock.now_us();
        // Before the start, samples would fill the recording.
        let is_due = from_us.is_some_and(|from_us| began_us + LEAD_US >= from_us);
        brokers.enumerate().for_each(|(number, one)| one.record(number, is_due));
        if is_over || began_us >= next_sample_us {
            let cpu_us = own_cpu_us();
            watched.iter_mut().for_each(|one| one.threads.sample(clock.now_us(), is_over));
            let interval_us = (own_cpu_us() - cpu_us) * SAMPLE_REST;
            next_sample_us = began_us + interval_us.clamp(INTERVAL_US, INTERVAL_US_MAX);
        }
        let has_begun = from_us.is_some_and(|from_us| began_us >= from_us);
        if is_over {
            // The last reading of waits follows the first one.
            watched.iter_mut().for_each(|one| one.take_finished(true));
        }
        watched.iter_mut().filter(|_| has_begun).for_each(|one| one.read_waits(has_ended));
        if is_over {
            watched.iter_mut().for_each(ProfiledProcess::stop);
            return watched;
        }
        // A dump belongs to the measurement: the JVM's first one opens its socket, and takes longer.
        for one in &mut watched {
            if from_us.is_some_and(|from_us| clock.now_us() >= from_us.max(one.next_dump_us)) {
                one.dump();
            }
        }
        let state = shared.state();
        if !state.is_over && state.processes.len() == watched.len() {
            drop(shared.changed.wait_timeout(state, Duration::from_millis(100)));
        }
    }
}

impl ProfiledProcess {
    fn new(name: String, pid: u32, is_broker: bool, metrics: Option<String>) -> ProfiledProcess {
        let jvm = if is_broker { Jvm::of(pid) } else { None };
        let mut watched = ProfiledProcess {
            threads: Threads::new(pid),
            name,
            pid,
            is_broker,
            jvm,
            dumps: Vec::new(),
            owner_dumps: 0,
            next_dump_us: 0,
            no_dumps: None,
            metrics,
            waits: Vec::new(),
            recorder: None,
            request: None,
        };
        // Before the measurement.
        if let Some(jvm) = watched.jvm.clone() {
            watched.request = Some(BrokerRequest::Open(std::thread::spawn(move || jvm.open())));
        }
        watched
    }

    /// Takes the result of the broker's request, if it has ended; with `is_awaited`, once it has.
    fn take_finished(&mut self, is_awaited: bool) {
        let finished = self.request.take_if(|request| is_awaited || request.is_finished());
        let Some(request) = finished else { return };
        match request {
            BrokerRequest::Record(started) => self.recorder = Some(joined(started)),
            BrokerRequest::Waits(read) => {
                self.waits.push(read.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            BrokerRequest::Open(opened) => {
                if let Err(why) = answered(opened) {
                    self.no_dumps = Some(why);
                }
            }
            BrokerRequest::Dump(dumped) => match answered(dumped) {
                Ok(dumped) => self.keep(dumped),
                Err(why) => self.no_dumps = Some(why),
            },
        }
    }

    /// True if stacks are recorded: of brokers, and not of the controllers beside them.
    fn is_recorded(&self) -> bool {
        self.is_broker && !self.name.starts_with("controller")
    }

    /// Starts to record stacks, of the first brokers only. A JVM records from the preparation on, because its
    /// first recording takes seconds to start; `perf` only when the measurement is due.
    fn record(&mut self, number: usize, is_due: bool) {
        if self.recorder.is_some() || self.request.is_some() {
            return;
        }
        match (&self.jvm, &self.no_dumps) {
            _ if number >= RECORDED_MAX => {
                self.recorder = Some(Err(format!("only the stacks of {RECORDED_MAX} brokers are recorded")));
            }
            (_, Some(why)) => self.recorder = Some(Err(why.clone())),
            (Some(jvm), None) => {
                let jvm = jvm.clone();
                let started = std::thread::spawn(move || Jfr::start(&jvm).map(Recorder::Jfr));
                self.request = Some(BrokerRequest::Record(started));
            }
            (None, None) if is_due => self.recorder = Some(Perf::start(self.pid).map(Recorder::Perf)),
            (None, None) => {}
        }
    }

    /// Ends the recording of stacks.
    fn stop(&mut self) {
        self.take_finished(true);
        if let Some(Ok(recorder)) = &mut self.recorder
            && let Err(why) = recorder.stop(self.jvm.as_ref())
        {
            self.recorder = Some(Err(why));
        }
    }

    /// Begins a thread dump of a JVM.
    fn dump(&mut self) {
        let is_able = self.request.is_none() && self.no_dumps.is_none();
        let Some(jvm) = self.jvm.as_ref().filter(|_| is_able) else { return };
        // The owner of such a lock is known only to a walk through the heap.
        let waits = |(_, dump): &(u64, Dump)| dump.waits_for_unowned();
        let with_owners = self.owner_dumps < OWNER_DUMPS_MAX && self.dumps.last().is_some_and(waits);
        let jvm = jvm.clone();
        self.request = Some(BrokerRequest::Dump(std::thread::spawn(move || {
            let clock = Clock::of_process();
            let began_us = clock.now_us();
            let text = jvm.threads(with_owners)?;
            Ok(TimedDump { began_us, ended_us: clock.now_us(), with_owners, dump: Dump::parse(&text) })
        })));
    }

    /// Keeps a thread dump, and sets the time of the next one.
    fn keep(&mut self, TimedDump { began_us, ended_us, with_owners, dump }: TimedDump) {
        self.owner_dumps += u32::from(with_owners);
        self.dumps.push((ended_us, dump));
        let (first_us, later_us) = DUMP_INTERVALS_US;
        let interval_us = if self.dumps.len() < DUMPS_FIRST { first_us } else { later_us };
        self.next_dump_us = ended_us + interval_us.max((ended_us - began_us) * DUMP_REST);
        if self.dumps.len() == DUMPS_MAX {
            self.next_dump_us = u64::MAX;
        }
    }

    /// Begins to read the counters of waits, once at the start and once at the end.
    fn read_waits(&mut self, has_ended: bool) {
        let is_due = self.waits.is_empty() || has_ended && self.waits.len() == 1;
        let Some(address) = self.metrics.clone().filter(|_| is_due && self.request.is_none()) else { return };
        self.request = Some(BrokerRequest::Waits(std::thread::spawn(move || {
            let read = WaitCounters::read(&address);
            (Clock::of_process().now_us(), read)
        })));
    }

    /// The waits between both readings.
    fn waits(&self, missing: &mut BTreeSet<String>) -> Option<Waits> {
        self.metrics.as_ref()?;
        let mut unseen = |why: &str| {
            missing.insert(format!("waits of {}: {why}", self.name));
            None
        };
        match &self.waits[..] {
            [(first_us, Ok(first)), .., (last_us, Ok(last))] => {
                Some(last.since(first, last_us.saturating_sub(*first_us) as f64 / 1e6))
            }
            [(_, Err(why)), ..] | [.., (_, Err(why))] => unseen(why),
            [] | [_] => unseen("the measurement was too short for two readings"),
        }
    }

    fn profile(&self, from_us: u64, to_us: u64, missing: &mut BTreeSet<String>) -> ProcessProfile {
        // The kernel's names of threads have 15 bytes, Java's are whole.
        let names: BTreeMap<u32, &str> = self
            .dumps
            .iter()
            .flat_map(|(_, dump)| &dump.threads)
            .filter_map(|thread| Some((thread.id?, thread.name.as_str())))
            .collect();
        let within: Vec<&Dump> = self
            .dumps
            .iter()
            .filter(|(at_us, _)| (from_us..=to_us).contains(at_us))
            .map(|(_, dump)| dump)
            .collect();
        let (threads, unseen_cpu_s) = self.threads.used(from_us, to_us, &names);
        let gap_us = self.threads.gap_us(from_us, to_us);
        if threads.is_empty() {
            missing.insert(format!("threads of {}: none was seen in /proc/{}/task", self.name, self.pid));
        } else if gap_us > GAP_US_MAX.max(to_us.saturating_sub(from_us) / GAP_PART) {
            let gap_s = gap_us as f64 / 1e6;
            let when = "between two samples, or after the last one";
            missing.insert(format!("threads of {} for {gap_s:.1} s: {when}", self.name));
        }
        if threads.iter().any(|thread| thread.run_queue_s.is_none()) {
            missing.insert("time in run queues: the kernel has no /proc/PID/task/TID/schedstat".to_owned());
        }
        let is_jvm = self.jvm.is_some();
        match &self.no_dumps {
            Some(why) if within.is_empty() => {
                missing.insert(format!("locks of {}: {why}", self.name));
            }
            Some(why) => {
                missing.insert(format!("locks of {} after {} thread dumps: {why}", self.name, within.len()));
            }
            None if is_jvm && within.is_empty() => {
                missing.insert(format!(
                    "locks of {}: the measurement was too short for a thread dump",
                    self.name
                ));
            }
            None if self.is_broker && !is_jvm && self.metrics.is_none() => {
                missing.insert(format!("locks of {}: only those of JVMs are seen", self.name));
            }
            None => {}
        }
        let locks = (!within.is_empty()).then(|| locks::gather(&within));
        let cpu = self.is_recorded().then(|| self.cpu(from_us, to_us, missing)).flatten();
        let waits = self.waits(missing);
        ProcessProfile { name: self.name.clone(), pid: self.pid, threads, unseen_cpu_s, locks, waits, cpu }
    }
}

impl ProfiledProcess {
    /// Processor time by stack.
    fn cpu(&self, from_us: u64, to_us: u64, missing: &mut BTreeSet<String>) -> Option<CpuProfile> {
        let read = match &self.recorder {
            Some(Ok(recorder)) => recorder.read(from_us, to_us),
            Some(Err(why)) => Err(why.clone()),
            None => Err("the measurement did not begin".to_owned()),
        };
        let what = format!("stacks of {}", self.name);
        match read {
            Ok((profile, gap)) => {
                missing.extend(gap.map(|gap| format!("{what}: {gap}")));
                Some(profile)
            }
            Err(why) => {
                missing.insert(format!("{what}: {why}"));
                None
            }
        }
    }
}

fn profile(watched: &[ProfiledProcess], from_us: u64, to_us: u64) -> Profile {
    let mut missing = BTreeSet::new();
    let processes = watched.iter().map(|one| one.profile(from_us, to_us, &mut missing)).collect();
    if !watched.iter().any(|one| one.is_broker) {
        missing.insert("brokers: they were not started by this lab".to_owned());
    }
    Profile { processes, missing: missing.into_iter().collect() }
}

/// The answer of a JVM to a command on a thread.
fn answered<T>(thread: JoinHandle<Result<T, AttachError>>) -> Result<T, String> {
    let answer = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    answer.map_err(|error| error.to_string())
}

/// The result of a thread that starts a recording.
fn joined(starting: JoinHandle<Result<Recorder, String>>) -> Result<Recorder, String> {
    starting.join().unwrap_or_else(|_| Err("the start of its recording panicked".to_owned()))
}

/// Processor time of this thread, in microseconds.
fn own_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000
        + u64::try_from(time.tv_nsec / 1000).unwrap_or_default()
}

/// A thread's name with `*` for the numbers that differ between threads of one kind. A digit within a word,
/// as of `C2 CompilerThread0`, is part of it.
fn kind(name: &str) -> String {
    let mut kind = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let taken = digits.max(first.len_utf8());
        let after = &rest[taken..];
        let is_in_word = kind.ends_with(char::is_alphabetic) && !after.is_empty() && !after.starts_with('-');
        match digits > 0 && !is_in_word {
            true => kind.push('*'),
            false => kind.push_str(&rest[..taken]),
        }
        rest = after;
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_kind_differ_in_numbers_only() {
        assert_eq!(kind("data-plane-kafka-request-handler-17"), "data-plane-kafka-request-handler-*");
        assert_eq!(kind("ReplicaFetcherThread-0-12"), "ReplicaFetcherThread-*-*");
        assert_eq!(kind("C2 CompilerThread0"), "C2 CompilerThread*");
        assert_eq!(kind("main"), "main");
    }

    #[test]
    fn a_process_that_ends_meanwhile_keeps_what_was_seen() {
        let mut busy = std::process::Command::new("/bin/sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell");
        let profiler = Profiler::start(&[("broker-1".to_owned(), busy.id())], &BTreeMap::new());
        let clock = Clock::of_process();
        let from_us = clock.now_us();
        profiler.begin(from_us);
        let wait = |us: u64| {
            let until_us = clock.now_us() + us;
            while clock.now_us() < until_us {
                std::thread::park_timeout(Duration::from_millis(20));
            }
        };
        wait(2_500_000);
        busy.kill().and_then(|()| busy.wait()).expect("ours to end");
        wait(4_200_000);
        let profile = profiler.finish(from_us, clock.now_us());
        let broker = &profile.processes[0];
        let thread = &broker.threads[0];
        assert_eq!((thread.name.as_str(), thread.threads, broker.threads.len()), ("sh", 1, 1));
        assert!(thread.user_s + thread.system_s > 0.05, "{profile:?}");
        // Stacks depend on the machine.
        assert_eq!(profile.missing[0], "locks of broker-1: only those of JVMs are seen");
        match &broker.cpu {
            Some(cpu) => assert!(cpu.samples > 0 && cpu.folded().starts_with("sh;"), "{profile:?}"),
            None => assert!(profile.missing[1].starts_with("stacks of broker-1: "), "{profile:?}"),
        }
        let gap = profile.missing.last().expect("the end is missing");
        assert!(gap.starts_with("threads of broker-1 for "), "{profile:?}");
    }

    /// Four threads that take turns with a monitor, and two with a lock of `java.util.concurrent`.
    const CONTENDED: &str = r#"
public class Contended {
  static final Object MONITOR = new Object();
  static final java.util.concurrent.locks.ReentrantLock LOCK = new java.util.concurrent.locks.ReentrantLock();
  static void guarded() throws Exception { synchronized (MONITOR) { hold(); } }
  static void locked() throws Exception { LOCK.lock(); try { hold(); } finally { LOCK.unlock(); } }
  static void hold() throws Exception { Thread.sleep(20); }
  static double spin(double x) { while (x > 0) x += Math.sin(x) * Math.sin(x); return x; }
  public static void main(String[] arguments) throws Exception {
    new Thread(() -> spin(1), "spinning-1").start();
    for (int i = 0; i < 4; i++) new Thread(() -> { try { while (true) guarded(); } catch (Exception e) {} }, "guarded-thread-with-a-long-name-" + i).start();
    for (int i = 0; i < 2; i++) new Thread(() -> { try { while (true) locked(); } catch (Exception e) {} }, "locked-" + i).start();
    System.out.println("ready");
    System.in.read();
    System.exit(0);
  }
}"#;

    #[test]
    fn the_locks_of_a_jvm_are_found_with_their_holders() {
        use std::io::{BufRead, BufReader, Write};
        use std::process::{Command, Stdio};

        let dir = tempfile::tempdir().expect("a directory");
        let source = dir.path().join("Contended.java");
        std::fs::write(&source, CONTENDED).expect("written");
        let mut command = Command::new("java");
        command.arg("-XX:TieredStopAtLevel=1").arg(&source).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut java = match command.stderr(Stdio::null()).spawn() {
            Ok(java) => java,
            Err(error) => {
                writeln!(std::io::stderr(), "SKIPPED: locks of a JVM: java: {error}")
                    .expect("stderr takes a line");
                return;
            }
        };
        let mut first = String::new();
        let out = java.stdout.take().expect("it is piped");
        BufReader::new(out).read_line(&mut first).expect("text");
        if first.trim() != "ready" {
            writeln!(std::io::stderr(), "SKIPPED: locks of a JVM: java compiles no source, as a JRE")
                .expect("stderr takes a line");
            java.wait().expect("ours to end");
            return;
        }
        let clock = Clock::of_process();
        let wait_until = |us: u64| {
            while clock.now_us() < us {
                std::thread::park_timeout(Duration::from_millis(50));
            }
        };
        let profiler = Profiler::start(&[("broker-1".to_owned(), java.id())], &BTreeMap::new());
        // The time of a preparation, in which the recording starts.
        wait_until(clock.now_us() + 5_000_000);
        let from_us = clock.now_us();
        profiler.begin(from_us);
        wait_until(from_us + 6_000_000);
        let profile = profiler.finish(from_us, clock.now_us());
        drop(java.stdin.take());
        java.wait().expect("ours to end");

        assert_eq!(profile.missing, [""; 0], "{profile:?}");
        let broker = &profile.processes[0];
        let cpu = broker.cpu.as_ref().expect("a JDK records itself");
        assert!(
            cpu.folded().lines().any(|line| line.starts_with("spinning-*;java.lang.Thread.run;")),
            "{cpu:?}"
        );
        let name = "guarded-thread-with-a-long-name-*";
        assert!(broker.threads.iter().any(|used| used.name == name && used.threads == 4), "{broker:?}");
        let locks = broker.locks.as_ref().expect("a JVM gives dumps");
        assert!(locks.dumps >= 2, "{locks:?}");
        let of = |class: &str| locks.locks.iter().find(|lock| lock.class.starts_with(class)).expect(class);
        let monitor = of("java.lang.Object");
        assert!(monitor.waits_at.starts_with("Contended.guarded("), "{monitor:?}");
        assert_eq!(monitor.waiting_max, 3, "{monitor:?}");
        let holder = monitor.holder.as_ref().expect("a plain dump shows it");
        assert_eq!(holder.thread, name);
        assert!(holder.stack.iter().any(|frame| frame.starts_with("Contended.hold(")), "{holder:?}");
        let lock = of("java.util.concurrent.locks.ReentrantLock");
        assert!(lock.waits_at.starts_with("Contended.locked("), "{lock:?}");
        let holder = lock.holder.as_ref().expect("a dump with owners shows it");
        assert_eq!(holder.thread, "locked-*");
    }

    /// Answers commands in the place of a JVM, of which `threaddump` fails, until the recording is stopped;
    /// returns the commands.
    fn answer(socket: &std::os::unix::net::UnixListener) -> Vec<String> {
        use std::io::{Read, Write};

        let mut commands = Vec::new();
        for stream in socket.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = Vec::new();
            // Version, command and three arguments end with a zero each. Some connections only open the
            // socket.
            let mut bytes = stream.try_clone().expect("a second handle");
            let mut one = [0];
            while request.iter().filter(|byte| **byte == 0).count() < 5
                && bytes.read(&mut one).is_ok_and(|n| n > 0)
            {
                request.push(one[0]);
            }
            let words: Vec<String> = request
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            let (Some(command), Some(argument)) = (words.get(1), words.get(2)) else { continue };
            let answer = if command == "jcmd" { "0\nStarted recording 1.\n" } else { "1\nno memory\n" };
            stream.write_all(answer.as_bytes()).expect("the lab reads");
            commands.push(format!("{command} {}", argument.split(' ').next().unwrap_or_default()));
            if argument.starts_with("JFR.stop") || argument == "end" {
                break;
            }
        }
        commands
    }

    #[test]
    fn a_recording_is_stopped_after_a_failed_thread_dump() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("java");
        // A file that this process had written could not be executed while another thread forks.
        let copied = std::process::Command::new("cp").arg("/bin/sleep").arg(&program).status();
        assert!(copied.expect("cp runs").success());
        std::fs::write(dir.path().join("jfr"), "").expect("written");
        let mut java = std::process::Command::new(&program).arg("60").spawn().expect("it runs");
        let path = std::path::PathBuf::from(format!("/tmp/.java_pid{}", java.id()));
        let socket = std::os::unix::net::UnixListener::bind(&path).expect("a free name");
        let answering = std::thread::spawn(move || answer(&socket));

        let mut watched = ProfiledProcess::new("broker-1".to_owned(), java.id(), true, None);
        watched.take_finished(true);
        watched.record(0, false);
        watched.take_finished(true);
        assert!(matches!(watched.recorder, Some(Ok(_))), "{watched:?}");
        watched.dump();
        watched.take_finished(true);
        assert!(watched.no_dumps.as_ref().is_some_and(|why| why.contains("no memory")), "{watched:?}");
        watched.dump();
        assert!(watched.request.is_none(), "no dumps any more");
        // The end of a test whose recording is not stopped.
        let jvm = Jvm::of(java.id()).expect("its program is java");
        watched.stop();
        let _ = jvm.command("end");
        let commands = answering.join().expect("it answers");
        java.kill().and_then(|()| java.wait()).expect("ours to end");
        std::fs::remove_file(&path).expect("ours to remove");
        assert_eq!(commands, ["jcmd JFR.start", "threaddump ", "jcmd JFR.stop"]);
        let why = watched.recorder.as_ref().and_then(|recorder| recorder.as_ref().err()).expect("no file");
        assert!(why.starts_with("JFR did not write its recording"), "{why}");
    }

    #[test]
    fn a_jvm_without_answers_delays_no_samples_of_threads() {
        let dir = tempfile::tempdir().expect("a directory");
        let program = dir.path().join("java");
        let copied = std::process::Command::new("cp").arg("/bin/sleep").arg(&program).status();
        assert!(copied.expect("cp runs").success());
        let mut java = std::process::Command::new(&program).arg("60").spawn().expect("it runs");
        // A socket that takes a connection, and never answers.
        let path = std::path::PathBuf::from(format!("/tmp/.java_pid{}", java.id()));
        let socket = std::os::unix::net::UnixListener::bind(&path).expect("a free name");
        let clock = Clock::of_process();
        let profiler = Profiler::start(&[("broker-1".to_owned(), java.id())], &BTreeMap::new());
        let from_us = clock.now_us();
        profiler.begin(from_us);
        while clock.now_us() < from_us + 4_500_000 {
            std::thread::park_timeout(Duration::from_millis(50));
        }
        let to_us = clock.now_us();
        drop(socket);
        java.kill().and_then(|()| java.wait()).expect("ours to end");
        std::fs::remove_file(&path).expect("ours to remove");
        let profile = profiler.finish(from_us, to_us);
        let of_threads = |text: &&String| text.starts_with("threads of");
        assert_eq!(profile.missing.iter().find(of_threads), None, "{profile:?}");
        assert!(profile.missing.iter().any(|text| text.starts_with("locks of broker-1: ")), "{profile:?}");
    }

    #[test]
    fn stacks_are_recorded_from_the_start_of_the_measurement_on() {
        let mut sleeping = std::process::Command::new("sleep").arg("60").spawn().expect("a program");
        let profiler = Profiler::start(&[("broker-1".to_owned(), sleeping.id())], &BTreeMap::new());
        let clock = Clock::of_process();
        let until_us = clock.now_us() + 400_000;
        // The end of a warm-up.
        profiler.begin(clock.now_us() + 60_000_000);
        while clock.now_us() < until_us {
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let profile = profiler.finish(0, clock.now_us());
        sleeping.kill().and_then(|()| sleeping.wait()).expect("ours to end");
        let expected = "stacks of broker-1: the measurement did not begin";
        assert!(profile.missing.iter().any(|text| text == expected), "{profile:?}");
    }

    #[test]
    fn a_missing_process_is_missing_from_the_profile_by_name() {
        let profiler = Profiler::start(&[("broker-1".to_owned(), u32::MAX)], &BTreeMap::new());
        let profile = profiler.finish(0, Clock::of_process().now_us());
        assert!(profile.missing.iter().any(|text| text.starts_with("threads of broker-1: ")), "{profile:?}");
    }
}
