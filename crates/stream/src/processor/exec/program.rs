//! The program of `exec`: its processes, and the tasks that carry messages to it and from it.
//!
//! The program's process group is led by a guard, a shell that waits for the end of its input. That input
//! ends when the stream ends or fails, and also when this process dies, however it dies. Then the guard sends
//! SIGTERM to the group and, after a grace, SIGKILL, so that no process of the group outlives the stream.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::message::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, MESSAGE_BYTES_MAX};

/// Batches queued in each direction.
const WAITING_MAX: usize = 4;
/// Time between SIGTERM and SIGKILL.
pub const GRACE: Duration = Duration::from_secs(2);

/// The encoding of messages in the program's input and output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Lines,
    Length,
}

/// Messages of the program, or its violation of the framing.
pub type ProgramOutput = Result<Vec<Bytes>, String>;

/// A running program. Its processes end when it is dropped.
pub struct Program {
    pub child: Child,
    /// `None` closes the program's input.
    pub input: Option<mpsc::Sender<Batch>>,
    pub output: mpsc::Receiver<ProgramOutput>,
    /// The input of the guard.
    guard: Option<ChildStdin>,
    reader: JoinHandle<()>,
    /// Its result is true if the program has taken all of its input.
    writer: JoinHandle<bool>,
    has_taken_all: Option<bool>,
}

impl Program {
    /// Starts a shell command.
    pub fn start(command: &str, framing: Framing) -> io::Result<Program> {
        let script =
            format!("trap '' HUP INT TERM; read _; kill -TERM 0; sleep {}; kill -KILL 0", GRACE.as_secs());
        let mut guard = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // Ctrl-C must not reach the program, which exits when its input ends.
            .process_group(0)
            .spawn()?;
        let group = guard.id().and_then(|id| i32::try_from(id).ok());
        let group = group.ok_or_else(|| io::Error::other("its guard has ended"))?;
        let guard = guard.stdin.take();
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(group)
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let (input, batches) = mpsc::channel(WAITING_MAX);
        let (sender, output) = mpsc::channel(WAITING_MAX);
        let writer = tokio::spawn(write(stdin, batches, framing));
        let reader = tokio::spawn(read(stdout, sender, framing));
        Ok(Program { child, input: Some(input), output, guard, reader, writer, has_taken_all: None })
    }

    /// True if the program, whose input is closed, has taken all of it in time. Bytes in the pipe count as
    /// taken.
    pub async fn has_taken_all(&mut self, until: Instant) -> bool {
        if self.has_taken_all.is_none() {
            let written = timeout_at(until, &mut self.writer).await;
            self.has_taken_all = written.ok().map(|written| written.unwrap_or(false));
        }
        self.has_taken_all.unwrap_or(false)
    }

    /// Ends all processes of the program.
    pub fn terminate(&mut self) {
        self.guard = None;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.terminate();
        self.reader.abort();
        self.writer.abort();
    }
}

/// Writes batches to the program, until there are no more or the program closes its input. Returns true in
/// the first case.
async fn write(mut input: ChildStdin, mut batches: mpsc::Receiver<Batch>, framing: Framing) -> bool {
    let mut bytes = BytesMut::new();
    while let Some(batch) = batches.recv().await {
        bytes.clear();
        for message in batch.messages() {
            if framing == Framing::Length {
                bytes.extend_from_slice(&(message.value.len() as u32).to_be_bytes());
            }
            bytes.extend_from_slice(message.value);
            if framing == Framing::Lines {
                bytes.extend_from_slice(b"\n");
            }
        }
        // A program that closes its input is reported when it exits.
        if input.write_all(&bytes).await.is_err() {
            return false;
        }
    }
    true
}

/// Reads messages from the program, until there are no more or a frame is invalid.
async fn read(mut output: ChildStdout, pieces: mpsc::Sender<ProgramOutput>, framing: Framing) {
    let mut pending = BytesMut::new();
    let mut searched = 0;
    loop {
        pending.reserve(BATCH_BYTES_MAX);
        let is_end = matches!(output.read_buf(&mut pending).await, Ok(0) | Err(_));
        let cut = match framing {
            Framing::Lines => Ok(cut_lines(&mut pending, &mut searched, is_end)),
            Framing::Length => cut_frames(&mut pending, is_end),
        };
        let cut = match cut {
            Ok(_) if pending.len() > MESSAGE_BYTES_MAX => {
                Err("writes a line of more than 64 MiB, the limit of a message".to_owned())
            }
            cut => cut,
        };
        let messages = match cut {
            Ok(messages) => messages,
            Err(violation) => {
                let _ = pieces.send(Err(violation)).await;
                return;
            }
        };
        let mut messages = messages.into_iter();
        while messages.len() > 0 {
            let piece = messages.by_ref().take(BATCH_MESSAGES_MAX).collect();
            if pieces.send(Ok(piece)).await.is_err() {
                return;
            }
        }
        if is_end {
            return;
        }
    }
}

/// Takes the lines. `searched` is the number of pending bytes that are known to have no line end, so that a
/// long line is not searched from its beginning again and again.
fn cut_lines(pending: &mut BytesMut, searched: &mut usize, is_end: bool) -> Vec<Bytes> {
    let mut lines = Vec::new();
    while let Some(end) = memchr(b'\n', &pending[*searched..]) {
        lines.push(pending.split_to(*searched + end).freeze());
        pending.advance(1);
        *searched = 0;
    }
    if is_end && !pending.is_empty() {
        lines.push(pending.split().freeze());
    }
    *searched = pending.len();
    lines
}

fn cut_frames(pending: &mut BytesMut, is_end: bool) -> Result<Vec<Bytes>, String> {
    let mut frames = Vec::new();
    while let Some(length) = pending.first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(format!("announces a message of {length} bytes; the limit is 64 MiB"));
        }
        if pending.len() < 4 + length {
            break;
        }
        pending.advance(4);
        frames.push(pending.split_to(length).freeze());
    }
    match is_end && !pending.is_empty() {
        true => Err("ends in the middle of a message".to_owned()),
        false => Ok(frames),
    }
}
