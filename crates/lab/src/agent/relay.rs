//! The agent's side of a worker: a child process, whose lines go over the connection.
//!
//! Lines of the lab go to the child's standard input as they come. The connection is read also while the
//! child reads nothing, as a stopped one, so that its end is seen. A lab that sends nothing for a time, not
//! even the empty lines that are its sign of life, has stopped: the connection of a stopped process does not
//! end. Lines of the child's standard output go to the lab whole; after them comes a line with the end of the
//! process and the last lines of its standard error. The child is killed when the connection ends, and by
//! `kill_on_drop` when the agent does.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::mpsc;

use super::protocol::{Answer, Channel, ChannelError, WorkerProcess};
use crate::worker::{EXIT_TIMEOUT, LINE_BYTES_MAX, WorkerExit, keep_tail, status_in_words};

/// Maximum time for the lab to take a part of a worker's line: a large report takes long over a slow link.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum length of a part.
const PART_BYTES_MAX: usize = 64 << 10;
/// Maximum number of reads of the connection, each of 64 KiB at most, that a worker has not taken: the
/// longest assignment is shorter.
const READS_MAX: usize = 1024;

/// The limits of times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum time for the lab to take the answer.
    pub(super) answer_within: Duration,
    /// Maximum time between two lines of the lab.
    pub(super) silence_max: Duration,
}

/// Runs a worker for the connection, until either ends.
pub(super) async fn run(
    mut channel: Channel,
    binary: &Path,
    clock_ahead_us: i64,
    Limits { answer_within, silence_max }: Limits,
) -> Result<(), ChannelError> {
    let mut child = match spawn(binary, clock_ahead_us) {
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
    let (heard, to_write) = mpsc::channel(READS_MAX);
    let (is_lab_gone, relayed) = tokio::select! {
        heard = receive(&mut reader, heard, silence_max) => (true, heard),
        sent = to_lab(stdout, &mut writer) => (sent.is_err(), sent),
        never = to_worker(to_write, stdin) => match never {},
    };
    if is_lab_gone {
        let _ = child.kill().await;
        return relayed;
    }
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

fn spawn(binary: &Path, clock_ahead_us: i64) -> std::io::Result<Child> {
    let mut command = tokio::process::Command::new(binary);
    command.args(["lab", "worker", &format!("--clock-ahead-us={clock_ahead_us}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()
}

/// Reads the lab's lines, until the connection ends, the lab is silent, or the worker leaves too many.
async fn receive(
    lab: &mut (impl AsyncBufRead + Unpin),
    heard: mpsc::Sender<Vec<u8>>,
    silence_max: Duration,
) -> Result<(), ChannelError> {
    loop {
        let bytes = match tokio::time::timeout(silence_max, lab.fill_buf()).await {
            Err(_) => return Err(ChannelError::Silent(silence_max)),
            Ok(Ok(bytes)) if !bytes.is_empty() => bytes.to_vec(),
            // Without TLS's own end, the end of a connection is an error.
            Ok(_) => return Ok(()),
        };
        lab.consume(bytes.len());
        if heard.try_send(bytes).is_err() {
            return Ok(());
        }
    }
}

/// Forwards the lab's lines to the worker.
async fn to_worker(mut heard: mpsc::Receiver<Vec<u8>>, mut stdin: ChildStdin) -> Infallible {
    while let Some(bytes) = heard.recv().await {
        // A worker that has closed its input is about to end, which its output shows.
        let _ = stdin.write_all(&bytes).await;
        let _ = stdin.flush().await;
    }
    std::future::pending().await
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
    let silent = |_| ChannelError::Silent(WRITE_TIMEOUT);
    for part in line.chunks(PART_BYTES_MAX) {
        let sent = async {
            writer.write_all(part).await?;
            writer.flush().await
        };
        tokio::time::timeout(WRITE_TIMEOUT, sent).await.map_err(silent)??;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::DuplexStream;

    /// A worker that never reads, as a stopped one.
    fn deaf(dir: &Path) -> std::path::PathBuf {
        let script = dir.join("deaf");
        // Another process writes the file: a file that this process writes may be inherited by children of
        // other tests, and a file that is open for writing cannot be executed.
        let write = format!("printf '#!/bin/sh\nexec sleep 600\n' > {0} && chmod +x {0}", script.display());
        let status = std::process::Command::new("/bin/sh").args(["-c", &write]).status();
        assert!(status.expect("a shell").success());
        script
    }

    /// A relay of a deaf worker, the lab's end of its connection, and the worker's process.
    async fn relay(
        dir: &Path,
        silence_max: Duration,
    ) -> (tokio::task::JoinHandle<Result<(), ChannelError>>, BufReader<DuplexStream>, u32) {
        let (lab, agent) = tokio::io::duplex(1 << 20);
        let binary = deaf(dir);
        let channel = Channel::new(Box::new(agent));
        let limits = Limits { answer_within: Duration::from_secs(10), silence_max };
        let running = tokio::spawn(async move { run(channel, &binary, 0, limits).await });
        let mut lab = BufReader::new(lab);
        let mut line = String::new();
        lab.read_line(&mut line).await.expect("an answer");
        let Ok(Answer::Ok(WorkerProcess { pid })) = serde_json::from_str(&line) else { panic!("{line}") };
        (running, lab, pid)
    }

    #[tokio::test]
    async fn a_worker_that_reads_nothing_ends_with_the_connection() {
        let dir = tempfile::tempdir().expect("a directory");
        let (running, mut lab, pid) = relay(dir.path(), Duration::from_secs(60)).await;
        // More than a pipe holds.
        lab.write_all(&vec![b'x'; 512 << 10]).await.expect("it is read");
        drop(lab);
        tokio::time::timeout(Duration::from_secs(10), running)
            .await
            .expect("the relay ends")
            .expect("no panic")
            .expect("the lab has gone");
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the worker runs on");
    }

    #[tokio::test]
    async fn a_worker_ends_when_its_lab_is_silent() {
        let dir = tempfile::tempdir().expect("a directory");
        let silence_max = Duration::from_millis(900);
        let (running, mut lab, pid) = relay(dir.path(), silence_max).await;
        for _ in 0..3 {
            tokio::time::sleep(silence_max / 3).await;
            lab.write_all(b"\n").await.expect("it is read");
        }
        assert!(!running.is_finished(), "there were signs of life");
        let ended = tokio::time::timeout(Duration::from_secs(10), running).await.expect("the relay ends");
        let error = ended.expect("no panic").expect_err("the lab was silent");
        assert!(matches!(error, ChannelError::Silent(_)), "{error}");
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the worker runs on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_report_may_take_minutes_as_long_as_the_lab_takes_it() {
        use tokio::io::AsyncReadExt;
        let (mut lab, mut agent) = tokio::io::duplex(16 << 10);
        let line = vec![b'x'; 1 << 20];
        let sent = tokio::spawn(async move { write(&mut agent, &line).await.map(|()| agent) });
        let mut bytes = vec![0; 32 << 10];
        let mut left = 1_usize << 20;
        while left > 0 {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let count = lab.read(&mut bytes).await.expect("it sends");
            assert!(count > 0, "the agent has given up");
            left -= count;
        }
        sent.await.expect("no panic").expect("it was taken");
        // Nothing is taken.
        let (_lab, mut agent) = tokio::io::duplex(1);
        assert!(matches!(write(&mut agent, b"xx").await, Err(ChannelError::Silent(_))));
    }
}
