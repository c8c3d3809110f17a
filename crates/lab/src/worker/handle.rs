//! The lab's end of the protocol: the child process, its messages, and its exit; or, for a worker on another
//! machine, the connection to its agent.
//!
//! Dropping a handle closes the worker's standard input and kills it, or closes the connection, after which
//! the agent kills it.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::clock::Clock;
use super::remote::{EXIT_TIMEOUT, HEARTBEAT, LINE_BYTES_MAX, WorkerExit, keep_tail, status_in_words};
use super::{Assignment, Command, Event};

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
    WorkerExit(#[from] WorkerEnded),
    /// The worker sent an invalid message.
    #[error(transparent)]
    Unreadable(#[from] EventUnreadable),
    /// The connection to the worker's agent has ended.
    #[error(transparent)]
    AgentLost(#[from] AgentLost),
}

/// The connection to a worker's agent has ended, and with it the worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The connection to the agent {agent} was lost, and with it the worker {worker}: {why}")]
pub struct AgentLost {
    /// The agent's address.
    pub agent: String,
    /// The worker's name.
    pub worker: String,
    pub why: String,
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
pub struct Handle {
    name: String,
    pid: u32,
    /// Lines for the worker's standard input; a separate task writes them, so that a worker that does not
    /// read blocks no caller.
    lines: mpsc::Sender<Vec<u8>>,
    writer: tokio::task::JoinHandle<()>,
    output: Box<dyn AsyncBufRead + Send + Unpin>,
    /// A partially read line, kept if the caller stops waiting.
    partial: Vec<u8>,
    heard: LastRead,
    place: Place,
}

/// The last bytes from a worker, for the observer of many workers.
#[derive(Clone, Debug)]
pub(crate) struct LastRead(Arc<Mutex<(Instant, bool)>>);

impl LastRead {
    fn now() -> LastRead {
        LastRead(Arc::new(Mutex::new((Instant::now(), false))))
    }

    /// Notes bytes, which may be the beginning of a line.
    fn note(&self, is_in_line: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), is_in_line);
    }

    /// Time since the last bytes, and whether more of their line must follow.
    pub(crate) fn elapsed(&self) -> (Duration, bool) {
        let (at, is_in_line) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (at.elapsed(), is_in_line)
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("name", &self.name).field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Where a worker runs.
enum Place {
    /// On this machine.
    Here { child: Child, stderr: Arc<Mutex<VecDeque<String>>>, stderr_end: tokio::task::JoinHandle<()> },
    /// On the machine of the agent with this address.
    Agent(String),
}

impl Handle {
    /// Starts `binary lab worker` and sends its assignment. `name` is for errors.
    pub fn spawn(
        name: impl Into<String>,
        binary: &Path,
        assignment: &Assignment,
    ) -> Result<Handle, HandleError> {
        let mut command = tokio::process::Command::new(binary);
        let ahead_us = Clock::of_process().ahead_us();
        command.args(["lab", "worker", &format!("--clock-ahead-us={ahead_us}")]);
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
        let pid = child.id().expect("a child that was not waited for has an id");
        let tail: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let stderr_end = tokio::spawn(keep_tail(stderr, Arc::clone(&tail)));
        let output = Box::new(BufReader::with_capacity(64 << 10, stdout));
        let place = Place::Here { child, stderr: tail, stderr_end };
        let handle = Handle::to(name, pid, (stdin, None), output, place);
        handle.assign(assignment);
        Ok(handle)
    }

    /// A worker that an agent has started, over its connection: `input` leads to the worker's standard input.
    /// The worker waits for its assignment.
    pub(crate) fn over(
        name: String,
        agent: String,
        pid: u32,
        (output, input): (Box<dyn AsyncBufRead + Send + Unpin>, impl AsyncWrite + Send + Unpin + 'static),
    ) -> Handle {
        Handle::to(name, pid, (input, Some(HEARTBEAT)), output, Place::Agent(agent))
    }

    fn to(
        name: String,
        pid: u32,
        (input, heartbeat): (impl AsyncWrite + Send + Unpin + 'static, Option<Duration>),
        output: Box<dyn AsyncBufRead + Send + Unpin>,
        place: Place,
    ) -> Handle {
        let (lines, to_write) = mpsc::channel(8);
        let writer = tokio::spawn(write_lines(input, to_write, heartbeat));
        let (partial, heard) = (Vec::new(), LastRead::now());
        Handle { name, pid, lines, writer, output, partial, heard, place }
    }

    /// Sends the assignment, once.
    pub(crate) fn assign(&self, assignment: &Assignment) {
        self.send(assignment);
    }

    /// The worker's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the worker's agent; `None` on this machine.
    pub fn agent(&self) -> Option<&str> {
        match &self.place {
            Place::Here { .. } => None,
            Place::Agent(agent) => Some(agent),
        }
    }

    /// The last bytes from the worker, which are read by [`Handle::next_event`].
    pub(crate) fn last_read(&self) -> LastRead {
        self.heard.clone()
    }

    /// The worker's process id, on its machine.
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
        if let Err(why) = self.read_line().await {
            return Err(self.ended(why).await);
        }
        let line = std::mem::take(&mut self.partial);
        if matches!(self.place, Place::Agent(_))
            && let Some(WorkerExit { status, stderr }) = WorkerExit::of_line(&line)
        {
            return Err(WorkerEnded { worker: self.name.clone(), status, stderr }.into());
        }
        match serde_json::from_slice(&line) {
            Ok(Event::Failed { error }) => Err(WorkerFailed { worker: self.name.clone(), error }.into()),
            Ok(event) => Ok(event),
            Err(source) => {
                let line = String::from_utf8_lossy(&line[..line.len().min(200)]).trim_end().to_owned();
                Err(EventUnreadable { worker: self.name.clone(), line, source }.into())
            }
        }
    }

    /// Completes the partial line. The error is why that was impossible.
    async fn read_line(&mut self) -> Result<(), String> {
        loop {
            const CLOSED: &str = "it closed the connection";
            let bytes = self.output.fill_buf().await.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => CLOSED.to_owned(),
                _ => error.to_string(),
            })?;
            if bytes.is_empty() {
                return Err(CLOSED.to_owned());
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |end| end + 1);
            self.partial.extend_from_slice(&bytes[..count]);
            self.output.consume(count);
            self.heard.note(end.is_none());
            if end.is_some() {
                return Ok(());
            }
            if self.partial.len() as u64 >= LINE_BYTES_MAX {
                return Err(format!("its line is longer than {LINE_BYTES_MAX} bytes"));
            }
        }
    }

    async fn ended(&mut self, why: String) -> HandleError {
        let worker = self.name.clone();
        match &mut self.place {
            Place::Agent(agent) => AgentLost { agent: agent.clone(), worker, why }.into(),
            Place::Here { child, stderr, stderr_end } => {
                let status = match tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await {
                    Ok(Ok(status)) => status_in_words(status),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "with its standard output closed".to_owned(),
                };
                // The last output may still be in flight.
                let _ = tokio::time::timeout(EXIT_TIMEOUT, stderr_end).await;
                let stderr = stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
                WorkerEnded { worker, status, stderr }.into()
            }
        }
    }

    /// A worker that does not read its few lines has exited, or will be detected by its silence.
    fn send(&self, what: &impl serde::Serialize) {
        let mut line = serde_json::to_vec(what).expect("the types of the protocol are JSON");
        line.push(b'\n');
        let _ = self.lines.try_send(line);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A writer that waits for its peer would keep the connection, and so the worker.
        self.writer.abort();
    }
}

/// Writes lines, and an empty one as a sign of life after each `heartbeat` without any.
async fn write_lines(
    mut input: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<Vec<u8>>,
    heartbeat: Option<Duration>,
) {
    loop {
        let line = match heartbeat {
            None => lines.recv().await,
            Some(after) => {
                tokio::time::timeout(after, lines.recv()).await.unwrap_or_else(|_| Some(b"\n".to_vec()))
            }
        };
        let Some(line) = line else { return };
        if input.write_all(&line).await.is_err() || input.flush().await.is_err() {
            return;
        }
    }
}
