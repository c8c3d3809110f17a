//! Linux's `perf`: stacks of a program and of the kernel on its behalf.
//!
//! Stacks come from copies of the threads' stack memory, because release builds keep no frame pointers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::{first_line, print, profile_of};
use crate::profile::stacks::Stacks;
use crate::result::CpuProfile;
use crate::worker::clock::Clock;

/// Samples per second of each busy processor. Not a divisor of timers' rates.
const HZ: u32 = 49;
/// Bytes of stack memory in a sample.
const STACK_BYTES: u32 = 32 << 10;
/// Maximum size of a recording: two and a half minutes of a busy processor.
const FILE_MB_MAX: u64 = 256;
/// Time for `perf` to end.
const STOP_TIMEOUT_US: u64 = 10_000_000;
/// The setting of the kernel that permits or forbids.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// A recording by `perf`.
#[derive(Debug)]
pub(crate) struct Perf {
    child: Child,
    is_stopped: bool,
    dir: tempfile::TempDir,
}

impl Perf {
    /// Starts to record a process.
    pub(crate) fn start(pid: u32) -> Result<Perf, String> {
        let dir = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let errors = dir.path().join("errors");
        let error_file = created(&errors)?;
        let child = Command::new("perf")
            .args(["record", "--quiet", "--clockid", "mono", "--no-buildid", "--no-buildid-cache"])
            .args(["--freq", &HZ.to_string(), "--call-graph", &format!("dwarf,{STACK_BYTES}")])
            .arg(format!("--max-size={FILE_MB_MAX}M"))
            .args(["--pid", &pid.to_string(), "--output"])
            .arg(dir.path().join("perf.data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(error_file)
            .spawn();
        match child {
            Ok(child) => Ok(Perf { child, is_stopped: false, dir }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err("the program perf is not installed".to_owned())
            }
            Err(error) => Err(format!("perf: {error}")),
        }
    }

    /// Ends the recording; `perf` completes its file.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.is_stopped = true;
        if let Ok(None) = self.child.try_wait()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::INT);
        }
        let clock = Clock::of_process();
        let deadline_us = clock.now_us() + STOP_TIMEOUT_US;
        while clock.now_us() < deadline_us {
            match self.child.try_wait() {
                Ok(None) => std::thread::park_timeout(Duration::from_millis(20)),
                Ok(Some(_)) if self.file().exists() => return Ok(()),
                Ok(Some(_)) => return Err(self.refusal()),
                Err(error) => return Err(format!("perf: {error}")),
            }
        }
        let _ = self.child.kill();
        Err("perf did not end".to_owned())
    }

    /// Why `perf` recorded nothing, with the setting that permits it.
    fn refusal(&self) -> String {
        let errors = std::fs::read_to_string(self.dir.path().join("errors")).unwrap_or_default();
        let paranoid = std::fs::read_to_string(PARANOID).unwrap_or_default();
        let setting = match paranoid.trim() {
            "" => "the kernel has no kernel.perf_event_paranoid".to_owned(),
            value => format!("kernel.perf_event_paranoid is {value}"),
        };
        format!("perf record failed: {} ({setting})", first_line(&errors).trim_end_matches('.'))
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("perf.data")
    }

    /// Reads the samples between two times.
    pub(super) fn read(&self, from_us: u64, to_us: u64) -> Result<(CpuProfile, Option<String>), String> {
        let mut command = Command::new("perf");
        command
            .args(["script", "--no-inline", "--fields", "comm,tid,time,ip,sym", "--input"])
            .arg(self.file());
        let mut script = Script::new((from_us, to_us), Clock::of_process().ahead_us());
        print(command, |line| script.line(line))?;
        let last_us = script.end();
        let is_full = std::fs::metadata(self.file()).is_ok_and(|file| file.len() >= (FILE_MB_MAX - 1) << 20);
        let gap = is_full.then(|| {
            let seen_s = last_us.saturating_sub(from_us) as f64 / 1e6;
            format!("only the first {seen_s:.0} s, because the recording reached {FILE_MB_MAX} MB")
        });
        let sees = match script.has_kernel {
            true => "program and kernel",
            false => "without the kernel, as kernel.perf_event_paranoid wants it",
        };
        Ok((profile_of(script.stacks, &format!("perf, {HZ} samples/s of a processor, {sees}"))?, gap))
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        if !self.is_stopped {
            let _ = self.stop();
        }
    }
}

/// A file for errors.
fn created(path: &Path) -> Result<Stdio, String> {
    rustix::fs::open(
        path,
        rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    )
    .map(Stdio::from)
    .map_err(|error| format!("no temporary file: {error}"))
}

/// The output of `perf script`: a line of a thread and its time, a line of each frame, an empty line.
struct Script {
    span_us: (u64, u64),
    /// Microseconds of the lab's clock ahead of the kernel's monotonic clock.
    ahead_us: i64,
    is_in_sample: bool,
    /// The thread of a sample in the measurement.
    thread: Option<String>,
    stack: Vec<String>,
    stacks: Stacks,
    last_us: u64,
    has_kernel: bool,
}

impl Script {
    fn new(span_us: (u64, u64), ahead_us: i64) -> Script {
        Script {
            span_us,
            ahead_us,
            is_in_sample: false,
            thread: None,
            stack: Vec::new(),
            stacks: Stacks::default(),
            last_us: 0,
            has_kernel: false,
        }
    }

    fn line(&mut self, line: &str) {
        let text = line.trim();
        if text.is_empty() {
            if let Some(thread) = self.thread.take() {
                // The copied memory ends before a deep stack does.
                if let Some(outermost) = self.stack.last_mut().filter(|name| *name == "[unknown]") {
                    "[outer frames cut]".clone_into(outermost);
                }
                self.stacks.add(&thread, &self.stack);
            }
            self.stack.clear();
            self.is_in_sample = false;
        } else if self.thread.is_some() {
            self.frame(text);
        } else if !std::mem::replace(&mut self.is_in_sample, true)
            && let Some((thread, at_us)) = self.head(text)
        {
            let (from_us, to_us) = self.span_us;
            if (from_us..=to_us).contains(&at_us) {
                self.thread = Some(thread.to_owned());
                self.last_us = self.last_us.max(at_us);
            }
        }
    }

    /// `tokio-rt-worker 25678 26906.579551:`.
    fn head<'a>(&self, text: &'a str) -> Option<(&'a str, u64)> {
        let (rest, time) = text.strip_suffix(':')?.rsplit_once(char::is_whitespace)?;
        let (thread, _) = rest.trim_end().rsplit_once(char::is_whitespace)?;
        let (seconds, micros) = time.split_once('.')?;
        let monotonic_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.get(..6)?.parse::<u64>().ok()?;
        Some((thread.trim(), monotonic_us.checked_add_signed(self.ahead_us)?))
    }

    /// `ffffffff815ff42b ___pte_offset_map`.
    fn frame(&mut self, text: &str) {
        let Some((address, symbol)) = text.split_once(char::is_whitespace) else { return };
        // The kernel has the upper half of the addresses.
        let is_kernel = address.len() == 16 && address.starts_with("ffff") && symbol != "[unknown]";
        self.has_kernel |= is_kernel;
        self.stack.push(format!("{}{}", symbol.trim(), if is_kernel { "_[k]" } else { "" }));
    }

    /// Counts the last stack, and returns the time of the last sample.
    fn end(&mut self) -> u64 {
        self.line("");
        self.last_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_of_perf_are_read_within_the_measurement() {
        let text = "thalweg net 1 25678 10.500000: \n\tffffffff815ff42b ___pte_offset_map\n\t          10a974 __libc_recv\n\t  \
                    2091c52 <a::B as c::D>::e::{closure#0}\n\tffffffffffffffff [unknown]\n\nthalweg 25672 99.000000: \n\t 1 late\n\n\
                    thalweg 25672 11.000000: \n\t 30c8219 f";
        let mut script = Script::new((1_010_000_000, 1_020_000_000), 1_000_000_000);
        text.lines().for_each(|line| script.line(line));
        assert_eq!(script.end(), 1_011_000_000);
        assert!(script.has_kernel);
        let profile = script.stacks.profile("perf").expect("two samples");
        let folded = profile.folded();
        let mut lines: Vec<&str> = folded.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "thalweg net *;[outer frames cut];<a::B as c::D>::e::{closure#0};__libc_recv;___pte_offset_map_[k] 1",
                "thalweg;f 1"
            ]
        );
    }

    #[test]
    fn a_refused_recording_names_the_setting() {
        let Ok(mut perf) = Perf::start(u32::MAX) else { return };
        let error = perf.stop().expect_err("there is no such process");
        assert!(
            error.starts_with("perf record failed: ") && error.contains("perf_event_paranoid"),
            "{error}"
        );
    }
}
