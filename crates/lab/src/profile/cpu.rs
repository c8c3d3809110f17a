//! Processor time by stack: of JVMs by Flight Recorder, of other programs by `perf`. Both sample during the
//! measurement; their files are read after it.

mod jfr;
mod perf;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::attach::Jvm;
use super::stacks::Stacks;
use crate::result::CpuProfile;
pub(super) use jfr::Jfr;
pub(super) use perf::{LEAD_US, Perf};

/// Time for a program to print a recording.
const PRINT_TIMEOUT: Duration = Duration::from_secs(90);
/// Bytes kept of a program's errors.
const ERROR_BYTES_MAX: u64 = 4096;

/// A recording in progress, or its file.
#[derive(Debug)]
pub(super) enum Recorder {
    Jfr(Jfr),
    Perf(Perf),
}

impl Recorder {
    /// Ends the recording.
    pub(super) fn stop(&mut self, jvm: Option<&Jvm>) -> Result<(), String> {
        match (self, jvm) {
            (Recorder::Jfr(jfr), Some(jvm)) => jfr.stop(jvm),
            (Recorder::Jfr(_), None) => Err("its JVM no longer answers".to_owned()),
            (Recorder::Perf(perf), _) => perf.stop(),
        }
    }

    /// Reads a stopped recording between two times, and says what it lacks.
    pub(super) fn read(&self, from_us: u64, to_us: u64) -> Result<(CpuProfile, Option<String>), String> {
        match self {
            Recorder::Jfr(jfr) => jfr.read(from_us, to_us),
            Recorder::Perf(perf) => perf.read(from_us, to_us),
        }
    }
}

/// A program that prints, killed when dropped.
struct Printer {
    child: Child,
    name: String,
}

impl Drop for Printer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Feeds each line that a program prints to `line`, and returns its errors. If the program fails, the first
/// of them is the reason. A program that takes too long fails, too.
fn print(mut command: Command, mut line: impl FnMut(&str)) -> Result<String, String> {
    let name = PathBuf::from(command.get_program())
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let mut printer = Printer { child, name };
    let out = printer.child.stdout.take().expect("it is piped");
    let mut errors = printer.child.stderr.take().expect("it is piped");
    let (sender, lines) = sync_channel::<Vec<String>>(16);
    let reader = std::thread::spawn(move || {
        let mut lines = BufReader::new(out).split(b'\n').map_while(Result::ok);
        loop {
            let some: Vec<String> =
                lines.by_ref().take(512).map(|line| String::from_utf8_lossy(&line).into_owned()).collect();
            if some.is_empty() || sender.send(some).is_err() {
                return;
            }
        }
    });
    let error_reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.by_ref().take(ERROR_BYTES_MAX).read_to_end(&mut text);
        // Read on, so that the program can write on.
        let _ = std::io::copy(&mut errors, &mut std::io::sink());
        String::from_utf8_lossy(&text).into_owned()
    });
    let clock = crate::worker::clock::Clock::of_process();
    let deadline_us = clock.now_us() + PRINT_TIMEOUT.as_micros() as u64;
    loop {
        let left = Duration::from_micros(deadline_us.saturating_sub(clock.now_us()));
        match lines.recv_timeout(left) {
            Ok(some) => some.iter().for_each(|text| line(text)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("{} took more than {} s", printer.name, PRINT_TIMEOUT.as_secs()));
            }
        }
    }
    let status = printer.child.wait().map_err(|error| format!("{}: {error}", printer.name))?;
    let _ = reader.join();
    let error = error_reader.join().unwrap_or_default();
    match status.success() {
        true => Ok(error),
        false => Err(format!("{} failed: {}", printer.name, first_line(&error))),
    }
}

/// The first line with text.
fn first_line(text: &str) -> &str {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("without a reason")
}

/// The profile of counted stacks, or that there was no sample.
fn profile_of(stacks: Stacks, method: &str) -> Result<CpuProfile, String> {
    stacks.profile(method).ok_or_else(|| "no sample fell into the measurement".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_by_line_and_its_failure_is_a_reason() {
        let run = |script: &str| {
            let mut lines = Vec::new();
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let result = print(command, |line| lines.push(line.to_owned()));
            (result, lines)
        };
        let lines = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(run("echo a; echo lost >&2; echo b"), (Ok("lost\n".to_owned()), lines));
        let (failed, _) = run("echo >&2; echo no permission >&2; exit 3");
        assert_eq!(failed, Err("sh failed: no permission".to_owned()));
        let missing = print(Command::new("/none/such"), |_| ());
        assert!(missing.is_err_and(|error| error.starts_with("such: ")));
    }
}
