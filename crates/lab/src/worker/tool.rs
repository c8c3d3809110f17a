//! An external program that does a worker's work. The program's process is created before the work, so that
//! its id is known, started by a command, read line by line, and stopped with the worker.

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;

/// A shell that waits for a line and then executes the program, with the line's arguments appended. If the
/// system supports it (util-linux), the program dies with the worker, even if the worker is killed.
const WAIT: &str = r#"read -r last || exit 0
if command -v setpriv >/dev/null 2>&1; then exec setpriv --pdeathsig KILL "$@" $last; fi
exec "$@" $last"#;
/// Number of lines of standard error kept for errors.
const STDERR_LINES_MAX: usize = 10;

/// An output event of a program, with the program's number.
#[derive(Debug)]
pub(super) enum ToolEvent {
    /// A line of the program's standard output.
    Line(usize, String),
    /// The end of the program's standard output.
    End,
}

/// A waiting or running program.
#[derive(Debug)]
pub(super) struct Tool {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr: Arc<Mutex<VecDeque<String>>>,
}

impl Tool {
    /// Creates the program's process, which waits. `at` is the program's number in events.
    pub(super) fn prepare(
        at: usize,
        words: &[String],
        environment: &[(&str, &str)],
        heard: &mpsc::Sender<ToolEvent>,
    ) -> io::Result<Tool> {
        let mut child = tokio::process::Command::new("sh")
            .args(["-c", WAIT, "sh"])
            .args(words)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            unreachable!("both were asked for as pipes");
        };
        let last: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let (kept, to) = (Arc::clone(&last), heard.clone());
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == STDERR_LINES_MAX {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if to.send(ToolEvent::Line(at, line)).await.is_err() {
                    return;
                }
            }
            let _ = to.send(ToolEvent::End).await;
        });
        let stdin = child.stdin.take();
        Ok(Tool { child, stdin, stderr: last })
    }

    /// The process id, before and after executing the program; `None` once it has exited.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Starts the program, with these additional arguments.
    pub(super) async fn begin(&mut self, last: &str) -> io::Result<()> {
        if let Some(stdin) = &mut self.stdin {
            stdin.write_all(format!("{last}\n").as_bytes()).await?;
            stdin.flush().await?;
        }
        Ok(())
    }

    /// The exit status and the last lines of standard error, if the program has failed.
    pub(super) fn failure(&mut self) -> Option<(String, Vec<String>)> {
        let status = self.child.try_wait().ok().flatten().filter(|status| !status.success())?;
        let last = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        Some((status.to_string(), last))
    }

    /// Stops the program cleanly, like Ctrl-C.
    pub(super) fn interrupt(&self) {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The process has exited already.
            let _ = kill_process(pid, Signal::INT);
        }
    }

    /// Kills the program.
    pub(super) async fn kill(&mut self) {
        let _ = self.child.kill().await;
    }
}
