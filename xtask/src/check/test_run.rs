//! Runs the tests without noise: passing tests are counted, other output is printed.
//!
//! Two test binaries run at a time, because many tests wait for timers and starting processes; beside them,
//! the patient tests of a third. The output of a binary is printed at its end, so that the lines of two
//! binaries do not mix.
//!
//! On request, a few failed tests run again, alone: a test with a time limit fails on a machine whose
//! processors are busy with other tests. Each is in the summary as unstable, with its first failure above.
//! Tests of crates that keep records have one attempt, because a lost record is no matter of time.
//!
//! A test that cannot run here prints a line `SKIPPED: NAME: HINT` to standard error, bypassing the test
//! harness, and passes. The end of the run repeats these lines.

use super::test_binary::{self, TestBinaries, TestBinary};
use super::{Workspace, cargo};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Number of test binaries that run at a time, besides the patient tests.
const LANES: usize = 2;
/// Shortest time of a test binary whose result is printed.
const SLOW_S: f64 = 10.0;
/// Time limit for the next test of a binary to end. A binary that exceeds it is killed, except at a terminal,
/// where Ctrl-C can reach it.
const PATIENCE: Duration = Duration::from_secs(600);

/// Maximum number of failed tests that run again: more are no coincidence.
const SECOND_ATTEMPTS: usize = 3;
/// Crates that keep records: each failure of their tests counts.
const STRICT: [&str; 5] =
    ["thalweg-controller", "thalweg-log", "thalweg-record", "thalweg-replica", "thalweg-sim"];

/// The results in the output of test binaries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: u32,
    ignored: u32,
    failed: Vec<String>,
    skipped: Vec<String>,
    /// Tests that have been running for over a minute.
    running: BTreeSet<String>,
    /// Binaries that failed before or outside of a test, and why.
    broken: Vec<String>,
    /// The lines to print.
    shown: Vec<String>,
}

/// Runs the tests of the workspace; returns remarks on skipped and unstable tests.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let TestBinaries { patient, others } = test_binary::build(workspace)?;
    let mut documentation = cargo::command(workspace);
    documentation.args(["test", "--doc", "--workspace", "--locked", "--no-fail-fast"]);
    let documentation = ("the examples in the documentation", None, documentation);
    let commands = others.iter().map(|part| (part.name.as_str(), Some(part), part.command(workspace)));
    let waiting = Mutex::new(commands.chain([documentation]));
    let sum = Mutex::new(Outcome::default());
    let failures = Mutex::new(Vec::new());
    let run = |(name, binary, command)| {
        let outcome = run_and_print(name, command);
        let failed = outcome.failed.iter().map(|test| (binary, test.clone()));
        failures.lock().expect("no lane panics").extend(failed);
        sum.lock().expect("no lane panics").add(outcome);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run((patient.name.as_str(), Some(&patient), patient.command(workspace))));
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(next) = next(&waiting) {
                    run(next);
                }
            });
        }
    });
    let sum = sum.into_inner().expect("no lane panics");
    let mut failures = failures.into_inner().expect("no lane panics");
    println!("{} passed, {} failed, {} ignored", sum.passed, failures.len(), sum.ignored);
    let mut remarks = Vec::from_iter(sum.skipped.iter().map(|test| format!("skipped: {test}")));
    if workspace.options.second_attempt && failures.len() <= SECOND_ATTEMPTS && sum.broken.is_empty() {
        failures.retain(|(binary, test)| {
            let passes = binary.is_some_and(|binary| passes_alone(workspace, binary, test));
            if passes {
                remarks.push(format!("unstable: {test}: failed beside other tests, and passed alone"));
            }
            !passes
        });
    }
    let mut problems = sum.broken;
    if !failures.is_empty() {
        let names = Vec::from_iter(failures.into_iter().map(|(_, test)| test));
        problems.push(format!("failed tests: {}", names.join(", ")));
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("; "));
    }
    Ok(remarks)
}

/// Runs a failed test again, alone; true if it passes.
fn passes_alone(workspace: &Workspace, binary: &TestBinary, test: &str) -> bool {
    if STRICT.contains(&binary.package.as_str()) {
        return false;
    }
    let command = binary.command_for(workspace, test);
    let outcome = run_and_print(&format!("{test} of {} again, alone", binary.name), command);
    outcome.broken.is_empty() && outcome.failed.is_empty() && outcome.passed == 1
}

/// Runs a command to its end, and prints its output.
fn run_and_print(name: &str, command: Command) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(error) = run(command, &mut outcome) {
        outcome.broken.push(format!("{name}: {error:#}"));
    }
    println!("     Ran {name}");
    outcome.shown.iter().for_each(|line| println!("{line}"));
    outcome
}

/// The next command that no lane has begun.
fn next<T>(waiting: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    waiting.lock().expect("no lane panics").next()
}

/// Runs a test binary to its end, and adds its output to `outcome`.
fn run(mut command: Command, outcome: &mut Outcome) -> Result<()> {
    let is_interruptible = std::io::stdin().is_terminal();
    if !is_interruptible {
        // A process group for the run, so that all its processes can be killed together.
        command.process_group(0);
    }
    let mut child = command
        // A failed test prints its expectation; thirty lines of the test harness's frames would bury it.
        .env("RUST_BACKTRACE", "0")
        .env("RUST_TEST_THREADS", threads())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("does not start")?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let stderr = child.stderr.take().context("stderr is piped")?;
    let mut aside = Outcome::default();
    let (beat, beats) = sync_channel(1);
    let group = child.id();
    let hangs = std::thread::scope(|scope| {
        scope.spawn(|| pass_on(stderr, &mut aside, None));
        let watch = scope.spawn(move || !is_interruptible && kill_if_silent(group, &beats));
        pass_on(stdout, outcome, Some(beat));
        watch.join().expect("it does not panic")
    });
    outcome.skipped.append(&mut aside.skipped);
    outcome.shown.append(&mut aside.shown);
    let status = child.wait()?;
    if hangs {
        let minutes = PATIENCE.as_secs() / 60;
        let running = Vec::from_iter(std::mem::take(&mut outcome.running)).join(", ");
        bail!("killed after {minutes} minutes without the end of a test; running: {running}");
    }
    if !status.success() && outcome.failed.is_empty() {
        bail!("failed before or outside of a test ({status})");
    }
    Ok(())
}

/// Number of concurrent tests of a binary: three per core, because most tests wait most of the time, and
/// three binaries run at once.
fn threads() -> String {
    std::env::var("RUST_TEST_THREADS").unwrap_or_else(|_| {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        (3 * cores).to_string()
    })
}

/// Kills a process group without a beat for [`PATIENCE`]; true if killed.
fn kill_if_silent(group: u32, beats: &Receiver<()>) -> bool {
    loop {
        match beats.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                let killed = Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).status();
                if let Err(error) = killed {
                    println!("The tests hang, and cannot be killed: {error}");
                }
                return true;
            }
        }
    }
}

/// Keeps the relevant lines, and sends a beat for each line.
fn pass_on(output: impl Read, outcome: &mut Outcome, beat: Option<SyncSender<()>>) {
    // Lines, with invalid UTF-8 replaced.
    for line in BufReader::new(output).split(b'\n').map_while(|line| line.ok()) {
        let line = String::from_utf8_lossy(&line);
        if let Some(beat) = &beat {
            // A killed run has no receiver.
            let _ = beat.send(());
        }
        outcome.take(&line);
    }
}

impl Outcome {
    /// Counts the results in a line, and keeps the line if it should be printed.
    fn take(&mut self, line: &str) {
        if self.count(line) {
            self.shown.push(line.to_owned());
        }
    }

    /// Adds the results of another binary.
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.ignored += other.ignored;
        self.skipped.extend(other.skipped);
        self.broken.extend(other.broken);
    }

    /// Counts the results in a line; true if the line should be printed.
    fn count(&mut self, line: &str) -> bool {
        if let Some(what) = line.strip_prefix("SKIPPED: ") {
            self.skipped.push(what.to_owned());
            return false;
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, " passed");
            self.ignored += count(counts, " ignored");
            return seconds(counts) >= SLOW_S;
        }
        if let Some(test) = line.strip_prefix("test ") {
            match test.split_once(" has been running ") {
                Some((name, _)) => _ = self.running.insert(name.to_owned()),
                None => _ = test.split(" ... ").next().is_some_and(|name| self.running.remove(name)),
            }
            if let Some(name) = test.strip_suffix(" ... FAILED") {
                self.failed.push(name.to_owned());
            }
            return !test.ends_with(" ... ok") && !test.contains(" ... ignored");
        }
        !(line.is_empty() || line.starts_with("running "))
    }
}

/// The number before `word`, in `ok. 12 passed; 0 failed; 1 ignored; ...`.
fn count(counts: &str, word: &str) -> u32 {
    let before = counts.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Parses the seconds at the end of `...; 0 filtered out; finished in 0.53s`.
fn seconds(counts: &str) -> f64 {
    let time = counts.rsplit("finished in ").next().and_then(|time| time.strip_suffix('s'));
    time.and_then(|time| time.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_counted_and_what_does_not_is_shown() {
        let mut outcome = Outcome::default();
        for line in [
            "   Compiling thalweg-log v0.1.0",
            "running 3 tests",
            "test a::good ... ok",
            "test a::bad ... FAILED",
            "test a::later ... ignored, needs a disk that fails",
            "test a::slow has been running for over 60 seconds",
            "test a::stuck has been running for over 60 seconds",
            "test a::slow ... ok",
            "SKIPPED: the schemas: set KAFKA_CLASSPATH",
            "",
            "thread 'a::bad' panicked",
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 61.25s",
        ] {
            outcome.take(line);
        }
        assert_eq!(
            std::mem::take(&mut outcome.shown),
            [
                "   Compiling thalweg-log v0.1.0",
                "test a::bad ... FAILED",
                "test a::slow has been running for over 60 seconds",
                "test a::stuck has been running for over 60 seconds",
                "thread 'a::bad' panicked",
                "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 61.25s"
            ]
        );
        let skipped = vec!["the schemas: set KAFKA_CLASSPATH".to_owned()];
        let (failed, running) = (vec!["a::bad".to_owned()], BTreeSet::from(["a::stuck".to_owned()]));
        assert_eq!(
            outcome,
            Outcome { passed: 12, ignored: 2, failed, skipped, running, ..Outcome::default() }
        );
    }

    /// With this test binary itself.
    #[test]
    fn a_test_that_passes_alone_is_found_and_crates_that_keep_records_have_one_attempt() {
        let options = crate::check::Options { one_build: false, second_attempt: true };
        let root = std::env::current_dir().expect("a directory");
        let workspace = Workspace { root: root.clone(), kafka_classpath: None, options };
        let passes = |package: &str, test: &str| {
            let executable = std::env::current_exe().expect("this binary");
            let (name, package) = ("xtask".to_owned(), package.to_owned());
            let (directory, selection) = (root.clone(), Vec::new());
            let binary = TestBinary { name, package, directory, executable, selection };
            passes_alone(&workspace, &binary, test)
        };
        let passing = "check::test_run::tests::what_passes_is_counted_and_what_does_not_is_shown";
        assert!(passes("thalweg-lab", passing));
        assert!(!passes("thalweg-lab", "check::test_run::tests::no_such_test"));
        assert!(!passes("thalweg-log", passing));
    }
}
