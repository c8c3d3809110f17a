//! The agent's side of a worker: a child process, whose lines go over the connection.
//!
//! Lines of the lab go to the child's standard input as they come. Lines of the child's standard output go to
//! the lab whole; after them comes a line with the end of the process and the last lines of its standard
//! error. The child is killed when the connection ends, and by `kill_on_drop` when the agent does.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::protocol::{Answer, Channel, ChannelError, WorkerProcess};
use crate::worker::{EXIT_TIMEOUT, LINE_BYTES_MAX, WorkerExit, keep_tail, status_in_words};

/// Maximum time for the lab to take a line of a worker.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a worker for the connection, until either ends.
pub(super) async fn run(
    mut channel: Channel,
    binary: &Path,
    clock_correction_us: i64,
    answer_within: Duration,
) -> Result<(), ChannelError> {
    let mut child = match spawn(binary, clock_correction_us) {
        Ok(child) => child,
        Err(error) => {
            let why = format!("it failed to start {}: {error}", binary.display());
            return channel.write(&Answer::<WorkerProcess>::Refused(why), answer_within).await;
        }
    };
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        unreachable!("all three were asked for as pipes");
    };
    let pid = child.id().expect("a child that was not waited for has an id");
    channel.write(&Answer::Ok(WorkerProcess { pid }), answer_within).await?;
    let tail: Arc<Mutex<VecDeque<String>>> = Arc::default();
    let stderr_end = tokio::spawn(keep_tail(stderr, Arc::clone(&tail)));
    let Channel { mut reader, mut writer } = channel;
    let relayed = tokio::select! {
        () = to_worker(&mut reader, stdin) => None,
        sent = to_lab(stdout, &mut writer) => Some(sent),
    };
    let Some(Ok(())) = relayed else {
        // The lab has gone, or takes no more.
        let _ = child.kill().await;
        return relayed.unwrap_or(Ok(()));
    };
    let status = match tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await {
        Ok(Ok(status)) => status_in_words(status),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "with its standard output closed".to_owned(),
    };
    let _ = tokio::time::timeout(EXIT_TIMEOUT, stderr_end).await;
    let stderr = tail.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
    write(&mut writer, &WorkerExit { status, stderr }.line()).await?;
    let _ = tokio::time::timeout(EXIT_TIMEOUT, writer.shutdown()).await;
    Ok(())
}

fn spawn(binary: &Path, clock_correction_us: i64) -> std::io::Result<Child> {
    let mut command = tokio::process::Command::new(binary);
    command.args(["lab", "worker", &format!("--clock-correction-us={clock_correction_us}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()
}

/// Forwards the lab's lines, until the connection ends.
async fn to_worker(lab: &mut (impl AsyncBufRead + Unpin), mut stdin: ChildStdin) {
    loop {
        let bytes = match lab.fill_buf().await {
            Ok(bytes) if !bytes.is_empty() => bytes,
            // Without TLS's own end, the end of a connection is an error.
            Ok(_) | Err(_) => return,
        };
        let count = bytes.len();
        // A worker that has closed its input is about to end, which its output shows.
        let _ = stdin.write_all(bytes).await;
        let _ = stdin.flush().await;
        lab.consume(count);
    }
}

/// Forwards the worker's lines, until its output ends. A torn line is the end, too.
async fn to_lab(stdout: ChildStdout, lab: &mut (impl AsyncWrite + Unpin)) -> Result<(), ChannelError> {
    let mut lines = BufReader::with_capacity(64 << 10, stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        if read.is_err() || !line.ends_with(b"\n") {
            return Ok(());
        }
        write(lab, &line).await?;
    }
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), line: &[u8]) -> Result<(), ChannelError> {
    let sent = async {
        writer.write_all(line).await?;
        writer.flush().await
    };
    let sent = tokio::time::timeout(WRITE_TIMEOUT, sent).await;
    Ok(sent.map_err(|_| ChannelError::Silent(WRITE_TIMEOUT))??)
}
