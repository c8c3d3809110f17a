//! Brokers as child processes: started in a directory, watched, stopped cleanly or killed, removed.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::time::Instant;

use super::error::{BrokerDied, DirectoryFailed, NotStarted, TargetError};
use super::guard::Guard;
use crate::cgroup::Groups;
use crate::workload::NodeLimits;

/// Number of log lines in an error.
const TAIL_LINES: usize = 8;
/// Maximum characters of a line of a log in an error.
const LINE_CHARS_MAX: usize = 300;

/// Bytes of a log that are read for its tail.
const TAIL_BYTES: usize = 256 << 10;

/// Processor time of a starting node, in thousandths of a processor, if its limit is lower.
const STARTING_CPU_MILLIS: u32 = 1000;

/// Interval of checking a stopping process.
const POLL: Duration = Duration::from_millis(20);

/// The brokers of a cluster with their directories. Dropping this kills the brokers and removes the
/// directories.
#[derive(Debug)]
pub(super) struct Brokers {
    /// The processes, in start order.
    processes: Vec<BrokerProcess>,
    /// Number of running controllers needed for brokers to hand over; 0 if the controllers are unknown.
    majority: usize,
    /// The cluster's directory; `None` for a running cluster.
    home: Option<PathBuf>,
    /// Directories to remove at the end.
    dirs: Vec<PathBuf>,
    /// The guard; `None` for a running cluster.
    guard: Option<Guard>,
    /// The limits of each process started from now on.
    limits: Option<(NodeLimits, Groups)>,
}

#[derive(Debug)]
struct BrokerProcess {
    name: String,
    pid: u32,
    log: PathBuf,
    child: Mutex<Child>,
    /// True for a controller.
    controls: bool,
}

impl Brokers {
    /// No brokers, as for a running cluster.
    pub(super) fn none() -> Brokers {
        Brokers {
            processes: Vec::new(),
            majority: 0,
            home: None,
            dirs: Vec::new(),
            guard: None,
            limits: None,
        }
    }

    /// No brokers yet, with a new directory below `work_dir`.
    pub(super) fn beginning(work_dir: &Path, kind: &str) -> Result<Brokers, DirectoryFailed> {
        let mut brokers = Brokers::kept(work_dir)?;
        let work_dir = brokers.dir().to_owned();
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|error| DirectoryFailed {
            path: work_dir.clone(),
            source: io::Error::other(error.to_string()),
        })?;
        let dir = work_dir.join(format!("{kind}-{:08x}", u32::from_le_bytes(random)));
        brokers.make_dir(dir.clone())?;
        brokers.home = Some(dir);
        Ok(brokers)
    }

    /// No brokers yet, with a directory that is kept. Created if missing.
    pub(super) fn kept(dir: &Path) -> Result<Brokers, DirectoryFailed> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| DirectoryFailed { path, source }
        };
        std::fs::create_dir_all(dir).map_err(failed(dir))?;
        // Absolute, because it is passed to processes with other working directories.
        let dir = dir.canonicalize().map_err(failed(dir))?;
        let guard = Guard::start().map_err(failed(Path::new("/bin/sh")))?;
        let mut brokers = Brokers::none();
        brokers.home = Some(dir);
        brokers.guard = Some(guard);
        Ok(brokers)
    }

    /// Declares the first `count` processes as controllers.
    pub(super) fn set_controllers(&mut self, count: usize) {
        self.majority = count / 2 + 1;
        for process in self.processes.iter_mut().take(count) {
            process.controls = true;
        }
    }

    /// The cluster's directory.
    ///
    /// # Panics
    /// For a running cluster.
    pub(super) fn dir(&self) -> &Path {
        self.home.as_deref().expect("a started cluster has a directory")
    }

    /// Creates a directory that is removed with the cluster.
    pub(super) fn make_dir(&mut self, path: PathBuf) -> Result<(), DirectoryFailed> {
        let failed = |source| DirectoryFailed { path: path.clone(), source };
        if let Some(guard) = &mut self.guard {
            guard.remove(&path).map_err(failed)?;
        }
        std::fs::create_dir_all(&path).map_err(failed)?;
        self.dirs.push(path);
        Ok(())
    }

    /// Limits each process started from now on. Until [`Brokers::hold`], processes with less than a processor
    /// get a whole one: a start would otherwise take minutes.
    pub(super) fn limit(&mut self, limits: NodeLimits) -> Result<(), TargetError> {
        if !limits.is_none() {
            self.limits = Some((limits, Groups::find()?));
        }
        Ok(())
    }

    /// Applies the limits to all processes. Returns a description for readers of the result, if there are
    /// limits.
    pub(super) fn hold(&self) -> Result<Option<String>, TargetError> {
        let Some((limits, groups)) = &self.limits else { return Ok(None) };
        if let Some(millis) = limits.cpu_millis.filter(|millis| *millis < STARTING_CPU_MILLIS) {
            groups.set_cpu(millis)?;
        }
        let version = groups.version();
        Ok(Some(format!(
            "Each node is limited to {} by control groups, version {version}",
            limits.describe()
        )))
    }

    /// The command within a new group, if there are limits.
    fn limited(&mut self, name: &str, command: Command) -> Result<Command, TargetError> {
        let cluster = self.home.as_deref().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let name = format!("thalweg-lab-{cluster}-{name}");
        let Some((limits, groups)) = &mut self.limits else { return Ok(command) };
        let cpu_millis = limits.cpu_millis.map(|millis| millis.max(STARTING_CPU_MILLIS));
        for dir in groups.make(&name, cpu_millis, limits.memory_mb.map(|mb| u64::from(mb) << 20))? {
            if let Some(guard) = &mut self.guard {
                guard.limit(&dir).map_err(|source| DirectoryFailed { path: dir.clone(), source })?;
            }
        }
        Ok(groups.within(&command))
    }

    /// Starts a broker, with its output appended to `log`. The broker leads a process group: Ctrl-C on the
    /// terminal goes to the lab only, which stops its brokers cleanly.
    pub(super) fn spawn(&mut self, name: &str, command: Command, log: &Path) -> Result<(), TargetError> {
        let program = PathBuf::from(command.get_program());
        let mut command = self.limited(name, command)?;
        let failed = |source| NotStarted { program: program.clone(), source };
        let child = command
            .stdin(Stdio::null())
            .stdout(append(log).map_err(failed)?)
            .stderr(append(log).map_err(failed)?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pid = child.id();
        self.processes.push(BrokerProcess {
            name: name.to_owned(),
            pid,
            log: log.to_owned(),
            child: Mutex::new(child),
            controls: false,
        });
        match &mut self.guard {
            Some(guard) => Ok(guard.group(pid).map_err(failed)?),
            None => Ok(()),
        }
    }

    /// Waits until all processes have exited, and forgets them, because they were preparation steps. Fails
    /// with the name and last log lines of the first process that failed or took too long.
    pub(super) async fn complete(&mut self, timeout: Duration) -> Result<(), (String, String)> {
        let deadline = Instant::now() + timeout;
        for process in &self.processes {
            let status = loop {
                match process.ended() {
                    Some(status) => break status,
                    None if Instant::now() >= deadline => {
                        let late = format!("It was not done after {} s", timeout.as_secs());
                        return Err((process.name.clone(), late));
                    }
                    None => tokio::time::sleep(POLL).await,
                }
            };
            if !status.success() {
                return Err((process.name.clone(), tail(&process.log)));
            }
        }
        self.processes.clear();
        if let Some(guard) = &mut self.guard {
            // A dead guard is detected when the next one gets commands.
            let _gone = guard.forget_groups();
        }
        Ok(())
    }

    /// Names and process ids.
    pub(super) fn processes(&self) -> Vec<(String, u32)> {
        self.processes.iter().map(|broker| (broker.name.clone(), broker.pid)).collect()
    }

    /// The first broker that has exited unexpectedly.
    pub(super) fn died(&self) -> Option<BrokerDied> {
        self.processes.iter().find_map(|broker| {
            let status = broker.ended()?;
            Some(BrokerDied {
                name: broker.name.clone(),
                pid: broker.pid,
                status: describe(status),
                log_tail: tail(&broker.log),
            })
        })
    }

    /// Forgets exited processes that have been reported.
    pub(super) fn forget_ended(&mut self) {
        self.processes.retain(|broker| broker.ended().is_none());
    }

    /// The tail of a broker's log.
    pub(super) fn log_tail(&self, name: &str) -> String {
        self.processes.iter().find(|broker| broker.name == name).map_or_else(String::new, |b| tail(&b.log))
    }

    /// All brokers that have exited unexpectedly: name and status.
    pub(super) fn ended(&self) -> Vec<(String, String)> {
        let ended = |broker: &BrokerProcess| Some((broker.name.clone(), describe(broker.ended()?)));
        self.processes.iter().filter_map(ended).collect()
    }

    /// Kills all brokers, whose data is not needed; returns those that had exited before.
    pub(super) fn discard(&mut self) -> Vec<String> {
        let mut odd: Vec<String> = self.processes.iter().filter_map(BrokerProcess::ended_early).collect();
        odd.extend(self.end());
        odd
    }

    /// Stops all brokers cleanly, the last one first, each after the previous has exited. The controllers,
    /// which are the first, run until the others have handed over. Processes that do not stop in time are
    /// killed and reported. If the controllers have lost their majority, the rest is killed, because Kafka's
    /// brokers would wait for minutes.
    pub(super) async fn stop(&mut self, timeout: Duration) -> Vec<String> {
        let mut odd = Vec::new();
        let deadline = Instant::now() + timeout;
        for broker in self.processes.iter().rev() {
            if let Some(early) = broker.ended_early() {
                odd.push(early);
                continue;
            }
            if !self.has_majority() {
                broker.kill();
                continue;
            }
            broker.signal(Signal::TERM);
            while broker.ended().is_none() {
                if Instant::now() >= deadline {
                    odd.push(format!(
                        "{} did not stop within {} s, and was killed",
                        broker.name,
                        timeout.as_secs_f64()
                    ));
                    broker.kill();
                    break;
                }
                tokio::time::sleep(POLL).await;
            }
        }
        odd.extend(self.end());
        odd
    }

    /// True if enough controllers run for a majority, if they are known.
    fn has_majority(&self) -> bool {
        let running = |process: &&BrokerProcess| process.controls && process.ended().is_none();
        self.processes.iter().filter(running).count() >= self.majority
    }

    /// Kills running processes, removes the directories, and releases the guard.
    fn end(&mut self) -> Vec<String> {
        for broker in self.processes.drain(..) {
            broker.kill();
        }
        let mut odd = match &mut self.limits {
            Some((_, groups)) => groups.remove(),
            None => Vec::new(),
        };
        for dir in self.dirs.drain(..) {
            if let Err(error) = std::fs::remove_dir_all(&dir)
                && error.kind() != io::ErrorKind::NotFound
            {
                odd.push(format!("Failed to remove {}: {error}", dir.display()));
            }
        }
        if let Some(mut guard) = self.guard.take() {
            guard.release();
        }
        odd
    }
}

impl Drop for Brokers {
    fn drop(&mut self) {
        let _odd = self.end();
    }
}

impl BrokerProcess {
    fn ended(&self) -> Option<ExitStatus> {
        // The child is intact even if the lock is poisoned.
        self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait().ok().flatten()
    }

    /// Describes an unexpected exit.
    fn ended_early(&self) -> Option<String> {
        let status = self.ended()?;
        Some(format!("{} exited before it was stopped, with {}", self.name, describe(status)))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.id() {
            let _gone = kill_process(pid, signal);
        }
    }

    /// Kills the broker's process group and reaps it. Has no effect if reaped before, because the id may be
    /// reused.
    fn kill(&self) {
        if self.ended().is_some() {
            return;
        }
        if let Some(pid) = self.id() {
            let _gone = kill_process_group(pid, Signal::KILL);
        }
        let _collected = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }

    fn id(&self) -> Option<Pid> {
        Pid::from_raw(i32::try_from(self.pid).ok()?)
    }
}

/// A file for a process's output.
#[expect(clippy::disallowed_types, reason = "the log of a child process is not broker data")]
fn append(path: &Path) -> io::Result<std::fs::File> {
    std::fs::OpenOptions::new().create(true).append(true).open(path)
}

/// The last lines of a log.
pub(super) fn tail(log: &Path) -> String {
    let bytes = match std::fs::read(log) {
        Ok(bytes) => bytes,
        Err(error) => return format!("(its log {} cannot be read: {error})", log.display()),
    };
    last_lines(&String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]))
}

/// The last lines of a text, without stack frames, each shortened. If there is an error, its line comes
/// first, because earlier lines are harmless and later ones mostly consequences.
pub(super) fn last_lines(text: &str) -> String {
    let is_place = |line: &str| line.starts_with(char::is_whitespace) && line.trim_start().starts_with("at ");
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty() && !is_place(line)).collect();
    if lines.is_empty() {
        return "(empty)".to_owned();
    }
    let is_error = |line: &&str| ["ERROR", "FATAL"].iter().any(|level| line.contains(level));
    let lines = lines.iter().position(is_error).map_or(lines.as_slice(), |first| &lines[first..]);
    let tail = lines.len().saturating_sub(TAIL_LINES);
    // The exception is on the line behind its error.
    let head = match lines[..tail].iter().position(is_error) {
        Some(first) => &lines[first..tail.min(first + 2)],
        None => &[],
    };
    let cut = if head.is_empty() { "" } else { "\n[...]\n" };
    joined(head) + cut + &joined(&lines[tail..])
}

fn joined(lines: &[&str]) -> String {
    let shortened = |line: &&str| match line.char_indices().nth(LINE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => (*line).to_owned(),
    };
    lines.iter().map(shortened).collect::<Vec<String>>().join("\n")
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(9)) => "signal 9 (killed, possibly by the kernel's out-of-memory killer)".to_owned(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn brokers(work: &Path, scripts: &[&str]) -> Brokers {
        let mut brokers = Brokers::beginning(work, "test").expect("a directory");
        for (number, script) in (1..).zip(scripts) {
            let log = brokers.dir().join(format!("broker-{number}.log"));
            brokers.spawn(&format!("broker-{number}"), shell(script), &log).expect("a shell");
        }
        brokers
    }

    fn is_alive(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[tokio::test]
    async fn an_unexpected_exit_is_reported_with_the_tail_of_the_log() {
        let work = tempfile::tempdir().expect("a directory");
        let brokers = brokers(work.path(), &["sleep 60", "echo out of patience; exit 7"]);
        while brokers.died().is_none() {
            tokio::time::sleep(POLL).await;
        }
        let died = brokers.died().expect("it has died").to_string();
        assert!(died.starts_with("broker-2 (process "), "{died}");
        assert!(
            died.ends_with("exited unexpectedly with exit code 7; the end of its log:\nout of patience"),
            "{died}"
        );
    }

    /// The end of a broker of Apache Kafka whose port was taken, shortened.
    #[test]
    fn the_first_error_stands_above_the_last_lines() {
        let mut log =
            "INFO begins\nERROR Unable to start acceptor\nKafkaException: Address already in use.\n\tat \
                       kafka.network.Acceptor.start(SocketServer.scala:516)\n"
                .to_owned();
        let start = "ERROR Unable to start acceptor\nKafkaException: Address already in use.";
        assert_eq!(last_lines(&log), start, "what came before was harmless");
        for step in 0..100 {
            log.push_str(&format!("INFO closes {step}\n\n"));
        }
        let lines = last_lines(&log);
        assert!(lines.starts_with(&format!("{start}\n[...]\nINFO closes 92\n")), "{lines}");
        assert!(crate::target::launch::is_port_taken(&lines));
        assert_eq!(last_lines("\n"), "(empty)");
        assert_eq!(last_lines(&"é".repeat(500)), "é".repeat(300) + "…");
        assert_eq!(last_lines("INFO a\nINFO b"), "INFO a\nINFO b");
    }

    #[tokio::test]
    async fn brokers_stop_in_order_and_leave_nothing() {
        let work = tempfile::tempdir().expect("a directory");
        let polite = "trap 'exit 0' TERM; while :; do sleep 0.05; done";
        let mut brokers = brokers(work.path(), &[polite, polite]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(brokers.stop(Duration::from_secs(20)).await, Vec::<String>::new());
        assert_eq!(std::fs::read_dir(work.path()).expect("it is there").count(), 0);
    }

    #[tokio::test]
    async fn brokers_whose_controllers_have_lost_their_majority_are_not_waited_for() {
        let work = tempfile::tempdir().expect("a directory");
        // Three controllers, two of which exit, and a broker that would wait for them.
        let (lost, waits) = ("exit 0", "trap '' TERM; while :; do sleep 0.05; done");
        let mut brokers = brokers(work.path(), &[lost, waits, lost, waits]);
        brokers.set_controllers(3);
        while brokers.ended().len() < 2 {
            tokio::time::sleep(POLL).await;
        }
        brokers.forget_ended();
        let pids: Vec<u32> = brokers.processes().iter().map(|(_, pid)| *pid).collect();
        let began = Instant::now();
        assert_eq!(brokers.stop(Duration::from_secs(60)).await, Vec::<String>::new());
        assert!(began.elapsed() < Duration::from_secs(30), "nobody is there to hand over to");
        assert!(pids.len() == 2 && !pids.into_iter().any(is_alive));
    }

    #[tokio::test]
    async fn a_broker_that_does_not_stop_is_killed_and_named() {
        let work = tempfile::tempdir().expect("a directory");
        let mut brokers = brokers(work.path(), &["trap '' TERM; while :; do sleep 0.05; done"]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let pid = brokers.processes()[0].1;
        let odd = brokers.stop(Duration::from_millis(100)).await;
        assert!(odd.len() == 1 && odd[0].contains("was killed"), "{odd:?}");
        assert!(!is_alive(pid));
    }

    #[test]
    fn dropped_brokers_are_killed_and_removed() {
        let work = tempfile::tempdir().expect("a directory");
        let brokers = brokers(work.path(), &["sleep 60"]);
        let pid = brokers.processes()[0].1;
        assert!(is_alive(pid));
        drop(brokers);
        assert!(!is_alive(pid));
        assert_eq!(std::fs::read_dir(work.path()).expect("it is there").count(), 0);
    }
}
