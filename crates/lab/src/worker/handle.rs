//! The lab's end of the talk with a worker: the child process, its words, and its end.
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

/// The longest line that is read: a report holds histograms and ranges of sequences.
const LINE_BYTES_MAX: u64 = 1 << 30;
/// Lines of standard error that are kept for the error text.
const STDERR_LINES_MAX: usize = 20;
/// Time for a worker that has said its last word to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no next word of a worker.
#[derive(Debug, thiserror::Error)]
pub enum HandleError {
    /// It did not start.
    #[error(transparent)]
    NotSpawned(#[from] NotSpawned),
    /// It said that it failed.
    #[error(transparent)]
    Failed(#[from] WorkerFailed),
    /// It ended without a last word.
    #[error(transparent)]
    Ended(#[from] WorkerEnded),
    /// It says what the lab does not understand.
    #[error(transparent)]
    Unreadable(#[from] EventUnreadable),
}

/// A worker did not start.
#[derive(Debug, thiserror::Error)]
#[error("The worker {worker} could not be started as {}: {source}", binary.display())]
pub struct NotSpawned {
    /// Its name.
    pub worker: String,
    /// What was run.
    pub binary: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// A worker said that it failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The worker {worker} failed: {error}")]
pub struct WorkerFailed {
    /// Its name.
    pub worker: String,
    /// Its words.
    pub error: String,
}

/// A worker ended without a last word.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The worker {worker} ended in the middle, {status}{}",
    if stderr.is_empty() { String::new() } else { format!(": {}", stderr.join(" / ")) })]
pub struct WorkerEnded {
    /// Its name.
    pub worker: String,
    /// How it ended, in words.
    pub status: String,
    /// The last lines that it wrote to standard error.
    pub stderr: Vec<String>,
}

/// A line of a worker is no event.
#[derive(Debug, thiserror::Error)]
#[error("The worker {worker} wrote a line that is no event: {source}: {line}")]
pub struct EventUnreadable {
    /// Its name.
    pub worker: String,
    /// The beginning of the line.
    pub line: String,
    /// What is wrong.
    pub source: serde_json::Error,
}

/// A worker that runs.
#[derive(Debug)]
pub struct Handle {
    name: String,
    pid: u32,
    child: Child,
    /// Lines for its standard input; a task of its own writes them, so that no one waits for a worker that does not read.
    lines: mpsc::Sender<Vec<u8>>,
    output: BufReader<ChildStdout>,
    /// A line that is being read: reading goes on where it was when the caller gave up waiting.
    partial: Vec<u8>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    stderr_end: tokio::task::JoinHandle<()>,
}

impl Handle {
    /// Starts `binary lab worker` and gives it its assignment. `name` is how errors call it.
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
        handle.say(assignment);
        Ok(handle)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it is ready: the client's name and version, and the ids of processes that work for it.
    pub async fn ready(&mut self) -> Result<(String, Vec<u32>), HandleError> {
        loop {
            if let Event::Ready { client, children } = self.next_event().await? {
                return Ok((client, children));
            }
        }
    }

    /// Has it begin at `at_us`, the measurement at `measure_from_us`.
    pub async fn start(&mut self, at_us: u64, measure_from_us: u64) {
        self.say(&Command::Start { at_us, measure_from_us });
    }

    /// Has it send no more, and report. A worker that has ended already is not disturbed.
    pub async fn stop(&mut self) {
        self.say(&Command::Stop);
    }

    /// Its next word. After [`Event::Done`] there is none; that it failed is an error. Safe to cancel: nothing is lost when
    /// the caller stops waiting.
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
        // What it wrote last may be on its way still.
        let _ = tokio::time::timeout(EXIT_TIMEOUT, &mut self.stderr_end).await;
        let stderr = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        WorkerEnded { worker: self.name.clone(), status, stderr }
    }

    /// A worker that does not read its few lines has ended, or will be found out by its silence.
    fn say(&self, what: &impl serde::Serialize) {
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
