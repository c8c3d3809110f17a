//! Linux's `perf`: stacks of a program and of the kernel on its behalf.
//!
//! Stacks come from copies of the threads' stack memory, because release builds keep no frame pointers.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
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
/// Maximum size of a recording: two and a half minutes of a busy processor. It is for the measurement alone.
const FILE_MB_MAX: u64 = 256;
/// Time before the measurement at which `perf` is started: it reads the program's symbols first.
pub(crate) const LEAD_US: u64 = 1_000_000;
/// Time without a sample at the end of a measurement after which a recording that ended has a gap.
const END_US_MAX: u64 = 1_000_000;
/// Time for `perf` to end.
const STOP_TIMEOUT_US: u64 = 10_000_000;
/// The setting of the kernel that permits or forbids.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// A recording by `perf`.
#[derive(Debug)]
pub(crate) struct Perf {
    child: Child,
    is_stopped: bool,
    /// True if `perf` ended before the signal to stop.
    ended_early: bool,
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
            Ok(child) => Ok(Perf { child, is_stopped: false, ended_early: false, dir }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err("the program perf is not installed".to_owned())
            }
            Err(error) => Err(format!("perf: {error}")),
        }
    }

    /// Ends the recording; `perf` completes its file.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.is_stopped = true;
        match self.child.try_wait() {
            Ok(Some(_)) => self.ended_early = true,
            _ => {
                let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
                let _ = pid.map(|pid| kill_process(pid, Signal::INT));
            }
        }
        let clock = Clock::of_process();
        let deadline_us = clock.now_us() + STOP_TIMEOUT_US;
        while clock.now_us() < deadline_us {
            match self.child.try_wait() {
                Ok(None) => std::thread::park_timeout(Duration::from_millis(20)),
                Ok(Some(status)) if self.is_complete(status) => return Ok(()),
                Ok(Some(_)) => return Err(self.refusal()),
                Err(error) => return Err(format!("perf: {error}")),
            }
        }
        let _ = self.child.kill();
        Err("perf did not end".to_owned())
    }

    /// True if `perf` recorded: its file is there before the kernel permits or forbids, and it ends by the
    /// signal that stops it.
    fn is_complete(&self, status: ExitStatus) -> bool {
        let has_text = std::fs::metadata(self.file()).is_ok_and(|file| file.len() > 0);
        has_text && (status.success() || status.signal() == Some(Signal::INT.as_raw()))
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
        let errors = print(command, |line| script.line(line))?;
        let last_us = script.end();
        let is_full = std::fs::metadata(self.file()).is_ok_and(|file| file.len() >= (FILE_MB_MAX - 1) << 20);
        let end = match (is_full, self.ended_early) {
            (true, _) => Some(format!("the recording reached {FILE_MB_MAX} MB")),
            (false, true) => Some("perf or the process ended".to_owned()),
            (false, false) => None,
        };
        let cut = end.and_then(|why| cut((from_us, to_us), last_us, &why));
        let gaps: Vec<String> = cut.into_iter().chain(complaint(&errors)).collect();
        let sees = script.sees(&std::fs::read_to_string(PARANOID).unwrap_or_default());
        let method = format!("perf, {HZ} samples/s of a processor, {sees}");
        Ok((profile_of(script.stacks, &method)?, (!gaps.is_empty()).then(|| gaps.join("; "))))
    }
}

/// The gap of a recording that ended before the measurement, for this reason.
fn cut((from_us, to_us): (u64, u64), last_us: u64, why: &str) -> Option<String> {
    let seen_s = last_us.saturating_sub(from_us) as f64 / 1e6;
    (last_us + END_US_MAX < to_us).then(|| format!("only the first {seen_s:.0} s, because {why}"))
}

/// The complaint of a `perf script` that succeeded, of lost samples first.
fn complaint(errors: &str) -> Option<String> {
    let lines = || errors.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "Warning:");
    let lost = lines().find(|line| line.to_ascii_lowercase().contains("lost"));
    lost.or_else(|| lines().next()).map(|line| format!("perf script: {line}"))
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
    /// True if there are frames of the kernel with names, and without.
    has_kernel: bool,
    has_nameless_kernel: bool,
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
            has_nameless_kernel: false,
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
        let is_upper = address.len() == 16 && address.starts_with("ffff");
        let is_kernel = is_upper && symbol != "[unknown]";
        self.has_kernel |= is_kernel;
        // Farther out, such an address is where a stack was misread.
        self.has_nameless_kernel |= is_upper && !is_kernel && self.stack.is_empty();
        self.stack.push(format!("{}{}", symbol.trim(), if is_kernel { "_[k]" } else { "" }));
    }

    /// The parts of a process in the recording, with the setting of the kernel that permits more.
    fn sees(&self, paranoid: &str) -> &'static str {
        let is_forbidden = paranoid.trim().parse::<i32>().is_ok_and(|value| value > 1)
            && !rustix::process::geteuid().is_root();
        match () {
            () if self.has_kernel => "program and kernel",
            () if self.has_nameless_kernel => "program and kernel, whose names kernel.kptr_restrict hides",
            () if is_forbidden => "without the kernel, as kernel.perf_event_paranoid wants it",
            () => "without a sample in the kernel",
        }
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

    /// A recording by a script in the place of `perf`, which leaves this text in its file.
    fn recorded(script: &str, text: &str) -> Perf {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("perf.data"), text).expect("written");
        std::fs::write(dir.path().join("errors"), "Access is limited.\n").expect("written");
        let child = Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        Perf { child, is_stopped: false, ended_early: false, dir }
    }

    #[test]
    fn an_empty_file_or_a_failure_is_a_refusal() {
        for (script, text) in [("exit 255", ""), ("exit 255", "PERFILE2"), ("exit 0", "")] {
            let mut perf = recorded(script, text);
            perf.child.wait().expect("ours to await");
            let error = perf.stop().expect_err("nothing was recorded");
            let begin = "perf record failed: Access is limited (";
            assert!(error.starts_with(begin) && error.contains("perf_event_paranoid"), "{error}");
        }
        let mut whole = recorded("exec sleep 60", "PERFILE2");
        assert_eq!((whole.stop(), whole.ended_early), (Ok(()), false));
    }

    #[test]
    fn a_recording_that_ends_before_the_measurement_has_a_gap() {
        let mut perf = recorded("exit 0", "PERFILE2");
        perf.child.wait().expect("ours to await");
        assert_eq!((perf.stop(), perf.ended_early), (Ok(()), true));
        let of = |last_s: u64| cut((10_000_000, 70_000_000), last_s * 1_000_000, "it ended");
        assert_eq!(of(45).as_deref(), Some("only the first 35 s, because it ended"));
        assert_eq!(of(69), None);
    }

    #[test]
    fn lost_samples_and_other_complaints_are_gaps() {
        let lost = "Warning:\nProcessed 1200 events and lost 5 chunks!\n\nCheck IO/CPU overload!\n";
        let expected = "perf script: Processed 1200 events and lost 5 chunks!";
        assert_eq!(complaint(&format!("first\n{lost}")).as_deref(), Some(expected));
        assert_eq!(complaint("no symbols found\n").as_deref(), Some("perf script: no symbols found"));
        assert_eq!(complaint("\n"), None);
    }

    #[test]
    fn a_kernel_without_names_is_no_forbidden_kernel() {
        let sees = |frames: &str| {
            let mut script = Script::new((0, u64::MAX), 0);
            format!("t 1 1.000000: \n{frames}\n").lines().for_each(|line| script.line(line));
            script.end();
            script.sees("1")
        };
        assert_eq!(
            sees(" ffffffff815ff42b [unknown]\n 10a974 f"),
            "program and kernel, whose names kernel.kptr_restrict hides"
        );
        assert_eq!(sees(" ffffffff815ff42b do_it\n 10a974 f"), "program and kernel");
        assert_eq!(sees(" 10a974 f\n ffffffffffffffff [unknown]"), "without a sample in the kernel");
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
