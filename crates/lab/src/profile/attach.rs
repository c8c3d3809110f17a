//! Commands to a running JVM, by HotSpot's attach protocol: those of `jcmd`, which is a JVM itself.
//!
//! A signal QUIT and a file beside it ask the JVM for a socket, over which each command has its own
//! connection. The signal is sent only if the process handles it: it would end another one.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::worker::clock::Clock;

/// Time for a JVM to open its socket.
const OPEN_TIMEOUT_US: u64 = 5_000_000;
/// Time for a JVM to answer: the first recording takes seconds to start.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of an answer: a thread dump has about a kilobyte a thread.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A JVM on this machine.
#[derive(Clone, Debug)]
pub(super) struct Jvm {
    pid: u32,
    /// The process id within the JVM's namespace.
    own_pid: u32,
}

/// Why a JVM did not do a command.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    #[error("the process ended")]
    Ended,
    #[error("the JVM does not handle the signal QUIT, as with -Xrs")]
    NoSignal,
    #[error("the JVM cannot be asked: {0}")]
    Refused(std::io::Error),
    #[error(
        "the JVM opened no socket within {} s, as with -XX:+DisableAttachMechanism",
        OPEN_TIMEOUT_US / 1_000_000
    )]
    NoSocket,
    #[error("the JVM did not answer: {0}")]
    NoAnswer(std::io::Error),
    #[error("the JVM refused {command}: {answer}")]
    Failed { command: String, answer: String },
}

impl Jvm {
    /// The JVM with this process id; `None` if the process runs another program.
    pub(super) fn of(pid: u32) -> Option<Jvm> {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        if program.file_name()? != "java" {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let own_pid = ids.and_then(|ids| ids.split_ascii_whitespace().last()?.parse().ok()).unwrap_or(pid);
        Some(Jvm { pid, own_pid })
    }

    /// Makes the JVM open its socket.
    pub(super) fn open(&self) -> Result<(), AttachError> {
        self.connect().map(drop)
    }

    /// A dump of all threads, as by `jcmd PID Thread.print`; with the owners of `java.util.concurrent` locks,
    /// as by its option `-l`, for which the JVM walks its heap.
    pub(super) fn threads(&self, with_owners: bool) -> Result<String, AttachError> {
        self.execute("threaddump", if with_owners { "-l" } else { "" })
    }

    /// The output of a command of `jcmd`.
    pub(super) fn command(&self, command: &str) -> Result<String, AttachError> {
        self.execute("jcmd", command)
    }

    /// A program of the Java that runs the process.
    pub(super) fn tool(&self, name: &str) -> Option<PathBuf> {
        let program = std::fs::read_link(format!("/proc/{}/exe", self.pid)).ok()?;
        // The program may be in the JRE within a JDK.
        let dirs = program.ancestors().skip(1).take(3).flat_map(|dir| [dir.to_owned(), dir.join("bin")]);
        dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
    }

    /// Executes a command with an argument, and returns its output.
    fn execute(&self, command: &str, argument: &str) -> Result<String, AttachError> {
        let mut stream = self.connect()?;
        let request = format!("1\0{command}\0{argument}\0\0\0");
        let mut answer = Vec::new();
        let mut exchange = |stream: &mut UnixStream| {
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            stream.write_all(request.as_bytes())?;
            stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)
        };
        exchange(&mut stream).map_err(|error| self.or_ended(AttachError::NoAnswer(error)))?;
        let answer = String::from_utf8_lossy(&answer);
        match answer.split_once('\n') {
            Some(("0", output)) => Ok(output.to_owned()),
            _ if answer.is_empty() => {
                Err(self.or_ended(AttachError::NoAnswer(std::io::ErrorKind::UnexpectedEof.into())))
            }
            _ => {
                let answer = answer.lines().take(2).collect::<Vec<_>>().join(": ");
                Err(AttachError::Failed { command: command.to_owned(), answer })
            }
        }
    }

    fn connect(&self) -> Result<UnixStream, AttachError> {
        let socket = self.file("java_pid");
        if let Ok(stream) = UnixStream::connect(&socket) {
            return Ok(stream);
        }
        if !self.handles_quit()? {
            return Err(AttachError::NoSignal);
        }
        let trigger = self.file("attach_pid");
        std::fs::write(&trigger, "").map_err(|error| self.or_ended(AttachError::Refused(error)))?;
        let opened = self.signal().and_then(|()| self.await_socket(&socket));
        let _ = std::fs::remove_file(&trigger);
        opened
    }

    fn signal(&self) -> Result<(), AttachError> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).ok_or(AttachError::Ended)?;
        kill_process(pid, Signal::QUIT).map_err(|error| self.or_ended(AttachError::Refused(error.into())))
    }

    fn await_socket(&self, socket: &Path) -> Result<UnixStream, AttachError> {
        let clock = Clock::of_process();
        let deadline_us = clock.now_us() + OPEN_TIMEOUT_US;
        while clock.now_us() < deadline_us {
            if let Ok(stream) = UnixStream::connect(socket) {
                return Ok(stream);
            }
            std::thread::park_timeout(Duration::from_millis(20));
        }
        Err(self.or_ended(AttachError::NoSocket))
    }

    /// The file of the protocol in the JVM's temporary directory.
    fn file(&self, kind: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root/tmp/.{kind}{}", self.pid, self.own_pid))
    }

    fn handles_quit(&self) -> Result<bool, AttachError> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        status.map(|status| catches_quit(&status)).map_err(|_| AttachError::Ended)
    }

    /// The error, or that the process has ended.
    fn or_ended(&self, error: AttachError) -> AttachError {
        match Path::new("/proc").join(self.pid.to_string()).join("exe").exists() {
            true => error,
            false => AttachError::Ended,
        }
    }
}

/// True if a process handles the signal QUIT, from `/proc/PID/status`.
fn catches_quit(status: &str) -> bool {
    const QUIT: u32 = 3;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (QUIT - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_is_only_for_processes_that_handle_it() {
        assert!(catches_quit("Name:\tjava\nSigCgt:\t2000000101005ccf\n"));
        assert!(!catches_quit("Name:\tjava\nSigCgt:\t2000000101005ccb\n"));
        assert!(!catches_quit("Name:\tjava\n"));
    }

    #[test]
    fn another_program_is_no_jvm() {
        assert!(Jvm::of(std::process::id()).is_none() && Jvm::of(u32::MAX).is_none());
    }
}
