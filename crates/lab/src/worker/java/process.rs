//! The tools' processes: made before the work, begun with a word, ended with the worker.

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;

use super::command::{self, Plan};
use super::lines;
use crate::worker::counts::Window;
use crate::worker::{Assignment, Role};

/// A shell that waits for a line and becomes Java, with the arguments of that line behind its own. Where the system can
/// (util-linux), Java dies with the worker, however that ends.
const WAIT: &str = r#"read -r last || exit 0
if command -v setpriv >/dev/null 2>&1; then exec setpriv --pdeathsig KILL "$@" $last; fi
exec "$@" $last"#;
/// Lines of standard error that are kept for the error text.
const STDERR_LINES_MAX: usize = 10;

/// A tool could not be started.
#[derive(Debug, thiserror::Error)]
#[error("Kafka's tool could not be started: {0}")]
pub(super) struct NotStarted(#[from] io::Error);

/// A tool ended before its work did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Kafka's tool ended with {status}: {}", last.join(" / "))]
pub(super) struct ToolFailed {
    status: String,
    last: Vec<String>,
}

/// What a tool says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    /// What the last second did.
    Interval { records: u64, bytes: u64, latency_max_us: Option<u64> },
    /// All together, in its words; records and bytes that no interval told; and how long it all took.
    Final { text: String, rest: (u64, u64), elapsed_us: u64 },
}

/// What is heard of one tool.
enum Heard {
    Line(usize, String),
    End,
}

/// The tools of a worker.
pub(super) struct Tools {
    role: Role,
    value_bytes: u64,
    tools: Vec<Tool>,
    heard: mpsc::Receiver<Heard>,
    open: usize,
}

struct Tool {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Records and bytes that it told of.
    told: (u64, u64),
    stderr: Arc<Mutex<VecDeque<String>>>,
}

impl Tools {
    /// Makes the processes; they wait.
    pub(super) fn prepare(plan: &Plan) -> Result<Tools, NotStarted> {
        let (to, heard) = mpsc::channel(1024);
        let mut tools = Vec::new();
        for (at, words) in plan.words.iter().enumerate() {
            let mut child = tokio::process::Command::new("sh")
                .args(["-c", WAIT, "sh"])
                .args(words)
                .env("CLASSPATH", &plan.classpath)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
                unreachable!("both were asked for as pipes");
            };
            let last: Arc<Mutex<VecDeque<String>>> = Arc::default();
            let (kept, to) = (Arc::clone(&last), to.clone());
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
                    if to.send(Heard::Line(at, line)).await.is_err() {
                        return;
                    }
                }
                let _ = to.send(Heard::End).await;
            });
            let stdin = child.stdin.take();
            tools.push(Tool { child, stdin, told: (0, 0), stderr: last });
        }
        let open = tools.len();
        Ok(Tools { role: plan.role, value_bytes: plan.value_bytes, tools, heard, open })
    }

    /// Their ids, now and as Java.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.tools.iter().filter_map(|tool| tool.child.id()).collect()
    }

    /// Has them begin.
    pub(super) async fn begin(&mut self, assignment: &Assignment, window: Window) -> Result<(), NotStarted> {
        let last = format!("--num-records {}\n", command::records(assignment, window));
        for tool in &mut self.tools {
            if let Some(stdin) = &mut tool.stdin {
                stdin.write_all(last.as_bytes()).await?;
                stdin.flush().await?;
            }
        }
        Ok(())
    }

    /// What one of them says next; none when all have come to their end. Lines that tell nothing are passed over. Safe to
    /// cancel.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, ToolFailed> {
        while self.open > 0 {
            match self.heard.recv().await {
                Some(Heard::Line(at, text)) => {
                    if let Some(line) = self.read(at, text) {
                        return Ok(Some(line));
                    }
                }
                Some(Heard::End) => {
                    self.open -= 1;
                    self.check_ends().await?;
                }
                None => self.open = 0,
            }
        }
        Ok(None)
    }

    fn read(&mut self, at: usize, text: String) -> Option<Line> {
        let told = &mut self.tools[at].told;
        let (until_now, latency_max_us, elapsed_us) = match self.role {
            Role::Producer => {
                let line = lines::produced(&text)?;
                // An interval tells what is new, the last line tells all.
                let records = line.records + if line.elapsed_us.is_none() { told.0 } else { 0 };
                ((records, records * self.value_bytes), Some(line.latency_max_us), line.elapsed_us)
            }
            Role::Consumer => {
                let line = lines::consumed(&text)?;
                ((line.records, line.bytes), None, line.elapsed_us)
            }
        };
        let before = std::mem::replace(told, until_now);
        let (records, bytes) = (until_now.0.saturating_sub(before.0), until_now.1.saturating_sub(before.1));
        Some(match elapsed_us {
            None => Line::Interval { records, bytes, latency_max_us },
            Some(elapsed_us) => Line::Final { text, rest: (records, bytes), elapsed_us },
        })
    }

    /// A tool that ended by itself has done its work, or failed.
    async fn check_ends(&mut self) -> Result<(), ToolFailed> {
        // The end of its output comes a moment before its own.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        for tool in &mut self.tools {
            if let Ok(Some(status)) = tool.child.try_wait()
                && !status.success()
            {
                let last =
                    tool.stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
                return Err(ToolFailed { status: status.to_string(), last });
            }
        }
        Ok(())
    }

    /// Ends what still runs.
    pub(super) async fn end(&mut self) {
        for tool in &mut self.tools {
            let _ = tool.child.kill().await;
        }
    }
}
