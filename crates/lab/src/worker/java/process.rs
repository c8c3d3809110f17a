//! The tools' processes: created before the work, started by a command, stopped with the worker.

use std::io;

use tokio::sync::mpsc;

use super::command::{self, Plan};
use super::lines;
use crate::worker::counts::Window;
use crate::worker::tool::{Tool, ToolEvent};
use crate::worker::{Assignment, Role};

/// A tool could not be started.
#[derive(Debug, thiserror::Error)]
#[error("Failed to start Kafka's tool: {0}")]
pub(super) struct NotStarted(#[from] io::Error);

/// A tool exited early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Kafka's tool ended with {status}: {}", last.join(" / "))]
pub(super) struct ToolFailed {
    status: String,
    last: Vec<String>,
}

/// A tool's report.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Line {
    /// The last interval.
    Interval { records: u64, bytes: u64, latency_max_us: Option<u64> },
    /// The final line, records and bytes not in any interval, and the total duration.
    Final { text: String, rest: (u64, u64), elapsed_us: u64 },
}

/// The tools of a worker.
pub(super) struct Tools {
    role: Role,
    value_bytes: u64,
    tools: Vec<Tool>,
    /// Records and bytes reported by each tool.
    reported: Vec<(u64, u64)>,
    heard: mpsc::Receiver<ToolEvent>,
    open: usize,
}

impl Tools {
    /// Creates the processes, which wait.
    pub(super) fn prepare(plan: &Plan) -> Result<Tools, NotStarted> {
        let (to, heard) = mpsc::channel(1024);
        let environment = [("CLASSPATH", plan.classpath.as_str())];
        let prepare = |(at, words): (usize, &Vec<String>)| Tool::prepare(at, words, &environment, &to);
        let tools = plan.words.iter().enumerate().map(prepare).collect::<io::Result<Vec<Tool>>>()?;
        let (open, reported) = (tools.len(), vec![(0, 0); tools.len()]);
        Ok(Tools { role: plan.role, value_bytes: plan.value_bytes, tools, reported, heard, open })
    }

    /// The tools' process ids, before and after executing Java.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.tools.iter().filter_map(Tool::pid).collect()
    }

    /// Starts the tools.
    pub(super) async fn begin(&mut self, assignment: &Assignment, window: Window) -> Result<(), NotStarted> {
        let last = format!("--num-records {}", command::records(assignment, window));
        for tool in &mut self.tools {
            tool.begin(&last).await?;
        }
        Ok(())
    }

    /// The next report of any tool; `None` when all have finished. Other lines are ignored. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Line>, ToolFailed> {
        while self.open > 0 {
            match self.heard.recv().await {
                Some(ToolEvent::Line(at, text)) => {
                    if let Some(line) = self.read(at, text) {
                        return Ok(Some(line));
                    }
                }
                Some(ToolEvent::End) => {
                    self.open -= 1;
                    self.check_ends().await?;
                }
                None => self.open = 0,
            }
        }
        Ok(None)
    }

    fn read(&mut self, at: usize, text: String) -> Option<Line> {
        let reported = &mut self.reported[at];
        let (until_now, latency_max_us, elapsed_us) = match self.role {
            Role::Producer => {
                let line = lines::produced(&text)?;
                // An interval is incremental, the final line is the total.
                let records = line.records + if line.elapsed_us.is_none() { reported.0 } else { 0 };
                ((records, records * self.value_bytes), Some(line.latency_max_us), line.elapsed_us)
            }
            Role::Consumer => {
                let line = lines::consumed(&text)?;
                ((line.records, line.bytes), None, line.elapsed_us)
            }
        };
        let before = std::mem::replace(reported, until_now);
        let (records, bytes) = (until_now.0.saturating_sub(before.0), until_now.1.saturating_sub(before.1));
        Some(match elapsed_us {
            None => Line::Interval { records, bytes, latency_max_us },
            Some(elapsed_us) => Line::Final { text, rest: (records, bytes), elapsed_us },
        })
    }

    /// Checks a tool that has exited: finished or failed.
    async fn check_ends(&mut self) -> Result<(), ToolFailed> {
        // The output ends slightly before the process.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        match self.tools.iter_mut().find_map(Tool::failure) {
            Some((status, last)) => Err(ToolFailed { status, last }),
            None => Ok(()),
        }
    }

    /// Kills running tools.
    pub(super) async fn end(&mut self) {
        for tool in &mut self.tools {
            tool.kill().await;
        }
    }
}
