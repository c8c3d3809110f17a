//! The lab's end of the protocol: the child process, its messages, and its exit.
//!
//! Dropping a handle closes the worker's standard input and kills it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use super::{Assignment, Command, Event};

/// Maximum length of a line: a report contains histograms and ranges of sequences.
const LINE_BYTES_MAX: u64 = 1 << 30;
/// Number of lines of standard error kept for errors.
const STDERR_LINES_MAX: usize = 20;
/// Maximum time for a worker to exit after its last message.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why no next message arrived.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    /// The worker did not start.
    #[error(transparent)]
    NotSpawned(#[from] NotSpawned),
    /// The worker reported an error.
    #[error(transparent)]
    Failed(#[from] WorkerFailed),
    /// The worker exited without a last message.
    #[error(transparent)]
    Ended(#[from] WorkerEnded),
    /// The worker sent an invalid message.
    #[error(transparent)]
    Unreadable(#[from] EventUnreadable),
}

/// A worker did not start.
#[derive(Debug, thiserror::Error)]
#[error("Failed to start the worker {worker} as {}: {source}", binary.display())]
pub struct NotSpawned {
    /// The worker's name.
    pub worker: String,
    pub binary: PathBuf,
    pub source: io::Error,
}

/// A worker reported an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The worker {worker} failed: {error}")]
pub struct WorkerFailed {
    /// The worker's name.
    pub worker: String,
    pub error: String,
}

/// A worker exited without a last message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The worker {worker} exited unexpectedly, {status}{}",
    if stderr.is_empty() { String::new() } else { format!(": {}", stderr.join(" / ")) })]
pub struct WorkerEnded {
    /// The worker's name.
    pub worker: String,
    /// The exit status, as text.
    pub status: String,
    /// The last lines on standard error.
    pub stderr: Vec<String>,
}

/// An invalid message.
#[derive(Debug, thiserror::Error)]
#[error("The worker {worker} wrote an invalid line: {source}: {line}")]
pub struct EventUnreadable {
    /// The worker's name.
    pub worker: String,
    /// The beginning of the line.
    pub line: String,
    pub source: serde_json::Error,
}

/// A running worker.
#[derive(Debug)]
pub struct Handle {
    name: String,
    pid: u32,
    child: Child,
    /// Lines for the worker's standard input; a separate task writes them, so that a worker that does not
    /// read blocks no caller.
    lines: mpsc::Sender<Vec<u8>>,
    output: BufReader<ChildStdout>,
    /// A partially read line, kept if the caller stops waiting.
    partial: Vec<u8>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    stderr_end: tokio::task::JoinHandle<()>,
}

impl Handle {
    /// Starts `binary lab worker` and sends its assignment. `name` is for errors.
    pub fn spawn(
        name: impl Into<String>,
        binary: &Path,
        assignment: &Assignment,
    ) -> Result<Handle, HandleError> {
        let mut command = tokio::process::Command::new(binary);
        command.args(["lab", "worker"]);
        Handle::spawn_command(name, command, assignment)
    }

    /// Starts a worker by another command line.
    pub fn spawn_command(
        name: impl Into<String>,
        mut command: tokio::process::Command,
        assignment: &Assignment,
    ) -> Result<Handle, HandleError> {
        let name = name.into();
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|source| NotSpawned {
            worker: name.clone(),
            binary: command.as_std().get_program().into(),
            source,
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
            unreachable!("all three were asked for as pipes");
        };
        let (lines, to_write) = mpsc::channel(8);
        tokio::spawn(write_lines(stdin, to_write));
        let tail: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let stderr_end = tokio::spawn(keep_tail(stderr, Arc::clone(&tail)));
        let handle = Handle {
            pid: child.id().expect("a child that was not waited for has an id"),
            name,
            child,
            lines,
            output: BufReader::with_capacity(64 << 10, stdout),
            partial: Vec::new(),
            stderr: tail,
            stderr_end,
        };
        handle.send(assignment);
        Ok(handle)
    }

    /// The worker's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The worker's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the worker is ready. Returns the client's name and version, and the ids of other processes
    /// of the worker.
    pub async fn ready(&mut self) -> Result<(String, Vec<u32>), HandleError> {
        loop {
            if let Event::Ready { client, children } = self.next_event().await? {
                return Ok((client, children));
            }
        }
    }

    /// Starts the worker at `at_us`, with the measurement from `measure_from_us`.
    pub async fn start(&mut self, at_us: u64, measure_from_us: u64) {
        self.send(&Command::Start { at_us, measure_from_us });
    }

    /// Stops sending, and requests the report. Ignored by a worker that has ended.
    pub async fn stop(&mut self) {
        self.send(&Command::Stop);
    }

    /// The worker's next message, `None` after [`Event::Done`]; an error if it failed. Cancel safe.
    pub async fn next_event(&mut self) -> Result<Event, HandleError> {
        let left = LINE_BYTES_MAX.saturating_sub(self.partial.len() as u64);
        let mut limited = (&mut self.output).take(left);
        let read = limited.read_until(b'\n', &mut self.partial).await;
        if !matches!(read, Ok(bytes) if bytes > 0) || !self.partial.ends_with(b"\n") {
            return Err(self.ended().await.into());
        }
        let line = std::mem::take(&mut self.partial);
        match serde_json::from_slice(&line) {
            Ok(Event::Failed { error }) => Err(WorkerFailed { worker: self.name.clone(), error }.into()),
            Ok(event) => Ok(event),
            Err(source) => {
                let line = String::from_utf8_lossy(&line[..line.len().min(200)]).trim_end().to_owned();
                Err(EventUnreadable { worker: self.name.clone(), line, source }.into())
            }
        }
    }

    async fn ended(&mut self) -> WorkerEnded {
        let status = match tokio::time::timeout(EXIT_TIMEOUT, self.child.wait()).await {
            Ok(Ok(status)) => in_words(status),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "with its standard output closed".to_owned(),
        };
        // The last output may still be in flight.
        let _ = tokio::time::timeout(EXIT_TIMEOUT, &mut self.stderr_end).await;
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        WorkerEnded { worker: self.name.clone(), status, stderr }
    }

    /// A worker that does not read its few lines has exited, or will be detected by its silence.
    fn send(&self, what: &impl serde::Serialize) {
        let mut line = serde_json::to_vec(what).expect("the types of the protocol are JSON");
        line.push(b'\n');
        let _ = self.lines.try_send(line);
    }
}

fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("with exit code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn keep_tail(stderr: tokio::process::ChildStderr, tail: Arc<Mutex<VecDeque<String>>>) {
    let mut input = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut input).take(64 << 10).read_until(b'\n', &mut line).await {
            Ok(bytes) if bytes > 0 => {}
            _ => return,
        }
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == STDERR_LINES_MAX {
            tail.pop_front();
        }
        tail.push_back(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
}
