//! The tools' processes: created before the work, started by a command, stopped with the worker.

use std::io;

use tokio::sync::mpsc;

use super::command::{Plan, RecordLimit};
use super::lines;
use crate::worker::counts::Window;
use crate::worker::tool::{Tool, ToolEvent};
use crate::worker::{Assignment, Role, ToolPercentiles};

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
    /// The final line of all records: those not in any interval, with their bytes, and the summary.
    Final { text: String, rest: (u64, u64), summary: Summary },
    /// The final line of the records after a warm-up: their number and bytes.
    SteadyState { text: String, records: u64, bytes: u64, summary: Summary },
}

/// The summary in a final line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) elapsed_us: u64,
    /// A producer's percentiles.
    pub(super) percentiles: Option<ToolPercentiles>,
}

/// The tools of a worker.
pub(super) struct Tools {
    role: Role,
    value_bytes: u64,
    knows_warm_up: bool,
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
        let Plan { role, value_bytes, knows_warm_up, .. } = *plan;
        Ok(Tools { role, value_bytes, knows_warm_up, tools, reported, heard, open })
    }

    /// The tools' process ids, before and after executing Java.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.tools.iter().filter_map(Tool::pid).collect()
    }

    /// Starts the tools. Returns the records after which each of them stops, if it does.
    pub(super) async fn begin(
        &mut self,
        assignment: &Assignment,
        window: Window,
    ) -> Result<Option<RecordLimit>, NotStarted> {
        let limit = RecordLimit::of(assignment, window, self.knows_warm_up);
        for tool in &mut self.tools {
            tool.begin(&RecordLimit::arguments(limit)).await?;
        }
        Ok(limit)
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
        let (until_now, latency_max_us, summary) = match self.role {
            Role::Producer => {
                let line = lines::produced(&text)?;
                let summary = line
                    .summary
                    .map(|of| Summary { elapsed_us: of.elapsed_us, percentiles: Some(of.percentiles) });
                if let Some(summary) = summary.filter(|_| line.summary.is_some_and(|of| of.is_steady_state)) {
                    let (records, bytes) = (line.records, line.records * self.value_bytes);
                    return Some(Line::SteadyState { text, records, bytes, summary });
                }
                // An interval is incremental, the final line is the total.
                let records = line.records + if summary.is_none() { reported.0 } else { 0 };
                ((records, records * self.value_bytes), Some(line.latency_max_us), summary)
            }
            Role::Consumer => {
                let line = lines::consumed(&text)?;
                let summary = line.elapsed_us.map(|elapsed_us| Summary { elapsed_us, percentiles: None });
                ((line.records, line.bytes), None, summary)
            }
        };
        let before = std::mem::replace(reported, until_now);
        let (records, bytes) = (until_now.0.saturating_sub(before.0), until_now.1.saturating_sub(before.1));
        Some(match summary {
            None => Line::Interval { records, bytes, latency_max_us },
            Some(summary) => Line::Final { text, rest: (records, bytes), summary },
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
