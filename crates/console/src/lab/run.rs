//! One run of the lab in a child process: progress and end.
//!
//! The child ends when its standard input closes, by [`Run::stop`] or at any end of this process.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::time::{Instant, sleep_until};
use utoipa::ToSchema;

use super::program;
use crate::cluster::now_ms;
use crate::problem::Problem;

/// Maximum duration of a run, after which the run is stopped.
const TIME_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Clean-up time of a stopped run, after which the process is killed and its guard cleans up.
const STOP_MAX: Duration = Duration::from_secs(60);
/// Log lines kept, and bytes per line.
const LINES_MAX: usize = 100;
const LINE_BYTES_MAX: usize = 4 << 10;
/// Bytes of the summary that are kept.
const SUMMARY_BYTES_MAX: u64 = 64 << 10;
/// Points of the chart, one per second.
const SECONDS_MAX: usize = 600;

/// The order for a run.
pub struct Order<'a> {
    /// The arguments after `lab run`.
    pub arguments: Vec<String>,
    /// Client settings for a running cluster, in JSON, which never appear in a file or an argument.
    pub settings: String,
    pub name: String,
    pub workload: &'a str,
    pub target: &'a str,
    /// The user who started the run.
    pub by: Option<String>,
}

/// A running or finished run.
pub struct Run {
    state: Mutex<RunState>,
    /// Standard input of the child. Dropping the handle ends the run.
    control: Mutex<Option<ChildStdin>>,
    stopped: tokio::sync::Notify,
}

/// The state of a run.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunState {
    /// The result name.
    pub name: String,
    /// The workload name.
    pub workload: String,
    /// `embedded`, or the bootstrap servers of the cluster.
    pub target: String,
    /// The user who started the run.
    pub by: Option<String>,
    /// Start time in milliseconds since 1970.
    pub began_ms: i64,
    /// End time in milliseconds since 1970; none while running.
    pub ended_ms: Option<i64>,
    /// `running`, `stopping`, `complete` or `failed`.
    pub state: Phase,
    /// Number of the current repetition, from 1.
    pub repetition: u64,
    /// Number of known repetitions.
    pub repetitions: u64,
    /// The point under measurement.
    pub at: String,
    /// The current step.
    pub doing: String,
    /// Rates of all producers in the last second.
    pub produced: Option<Second>,
    /// Rates of all consumers in the last second.
    pub consumed: Option<Second>,
    /// Log lines, oldest first.
    #[schema(value_type = Vec<String>)]
    pub lines: VecDeque<String>,
    /// The summary, once the run has ended.
    pub summary: String,
    /// Records per second of the producers, or of the consumers if the workload has no producers; oldest
    /// first.
    #[schema(value_type = Vec<RatePoint>)]
    pub seconds: VecDeque<RatePoint>,
}

/// The rate of one second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct RatePoint {
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Records per second.
    pub records_per_s: f64,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Measuring.
    Running,
    /// Removing topics, brokers and files of the run.
    Stopping,
    /// All points were measured.
    Complete,
    /// A point failed or has faults.
    Failed,
}

/// A second of all producers, or of all consumers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Second {
    /// Records per second.
    pub records_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Median latency in microseconds.
    pub p50_us: Option<u64>,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: Option<u64>,
}

/// An event of the lab: one JSON object per line.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event {
    Begin {
        number: u64,
        of: u64,
        at: String,
    },
    Phase {
        what: String,
    },
    Interval {
        role: String,
        #[serde(flatten)]
        second: Second,
    },
    End {
        number: u64,
        of: u64,
        at: String,
        outcome: String,
    },
    Message {
        text: String,
    },
}

impl Run {
    /// Starts the child process.
    pub async fn start(program: &Path, order: Order<'_>) -> Result<Arc<Run>, Problem> {
        let mut command = program::command(program);
        command.arg("run").args(&order.arguments).stdin(Stdio::piped());
        let mut child = command.spawn().map_err(|error| program::not_started(program, &error))?;
        let mut control = child.stdin.take().expect("it is a pipe");
        let line = format!("{}\n", order.settings);
        control.write_all(line.as_bytes()).await.map_err(|error| program::not_started(program, &error))?;
        let run = Arc::new(Run {
            state: Mutex::new(RunState::new(order)),
            control: Mutex::new(Some(control)),
            stopped: tokio::sync::Notify::new(),
        });
        tokio::spawn(follow(Arc::clone(&run), child));
        Ok(run)
    }

    /// The current state.
    pub fn state(&self) -> RunState {
        self.state.lock().clone()
    }

    /// True until the run has ended.
    pub fn is_running(&self) -> bool {
        self.state.lock().ended_ms.is_none()
    }

    /// Stops the run cleanly. The points measured so far are its result.
    pub fn stop(&self) {
        self.control.lock().take();
        let mut state = self.state.lock();
        if state.state == Phase::Running {
            state.state = Phase::Stopping;
        }
        drop(state);
        self.stopped.notify_one();
    }
}

/// Reads the output of the child until its end.
async fn follow(run: Arc<Run>, mut child: Child) {
    let stdout = child.stdout.take().expect("it is a pipe");
    let mut stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
    let summary = async {
        let mut bytes = Vec::new();
        let mut stdout = stdout;
        let _ = (&mut stdout).take(SUMMARY_BYTES_MAX).read_to_end(&mut bytes).await;
        // The rest is read and dropped, so that the child does not block.
        let _ = tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await;
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let progress = async {
        while let Some(line) = next_line(&mut stderr).await {
            run.state.lock().take(&line, now_ms());
        }
    };
    let ended = async {
        let (summary, ()) = tokio::join!(summary, progress);
        summary
    };
    tokio::pin!(ended);
    let late = Instant::now() + TIME_MAX;
    let summary = tokio::select! {
        summary = &mut ended => Some(summary),
        () = run.stopped.notified() => None,
        () = sleep_until(late) => {
            run.state.lock().add_line(format!("stopped after {TIME_MAX:?}, the longest run of a console"));
            run.stop();
            None
        }
    };
    let summary = match summary {
        Some(summary) => summary,
        None => match tokio::time::timeout(STOP_MAX, &mut ended).await {
            Ok(summary) => summary,
            Err(_) => {
                // The guard of the child removes brokers and files.
                let _ = child.start_kill();
                String::new()
            }
        },
    };
    let is_complete = child.wait().await.is_ok_and(|status| status.success());
    run.control.lock().take();
    let mut state = run.state.lock();
    state.ended_ms = Some(now_ms());
    state.state = if is_complete { Phase::Complete } else { Phase::Failed };
    state.summary = summary;
    state.doing.clear();
    tracing::info!(name = state.name, is_complete, "Run of the lab ended");
}

impl RunState {
    /// The state of a run that starts now.
    fn new(order: Order<'_>) -> RunState {
        RunState {
            name: order.name,
            workload: order.workload.to_owned(),
            target: order.target.to_owned(),
            by: order.by,
            began_ms: now_ms(),
            ended_ms: None,
            state: Phase::Running,
            repetition: 0,
            repetitions: 0,
            at: String::new(),
            doing: "starting".to_owned(),
            produced: None,
            consumed: None,
            lines: VecDeque::new(),
            summary: String::new(),
            seconds: VecDeque::new(),
        }
    }

    /// Processes one line of the child's error output.
    fn take(&mut self, line: &str, now_ms: i64) {
        let event = match serde_json::from_str(line) {
            Ok(event) => event,
            // A warning or error message of the program.
            Err(_) => return self.add_line(line.to_owned()),
        };
        match event {
            Event::Begin { number, of, at } => {
                (self.repetition, self.repetitions, self.at) = (number, of, at);
                self.doing = "starting".to_owned();
                (self.produced, self.consumed) = (None, None);
            }
            Event::Phase { what } => self.doing = what,
            Event::Interval { role, second } => {
                self.doing = "measuring".to_owned();
                let is_producer = role == "producer";
                if is_producer {
                    self.produced = Some(second);
                } else {
                    self.consumed = Some(second);
                }
                if is_producer || self.produced.is_none() {
                    if self.seconds.len() >= SECONDS_MAX {
                        self.seconds.pop_front();
                    }
                    self.seconds.push_back(RatePoint { at_ms: now_ms, records_per_s: second.records_per_s });
                }
            }
            Event::End { number, of, at, outcome } => {
                (self.repetition, self.repetitions) = (number, of);
                self.add_line(format!("{at}: {outcome}"));
            }
            Event::Message { text } => self.add_line(text),
        }
    }

    fn add_line(&mut self, line: String) {
        if self.lines.len() >= LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// The next line, truncated to the byte limit; none at the end.
async fn next_line(from: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let read = from.fill_buf().await.ok()?;
        if read.is_empty() {
            return (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned());
        }
        let end = read.iter().position(|byte| *byte == b'\n');
        let part = &read[..end.unwrap_or(read.len())];
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(read.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Some(String::from_utf8_lossy(&line).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_lab_reports_is_the_state_of_the_run() {
        let mut run = RunState::new(Order {
            arguments: Vec::new(),
            settings: String::new(),
            name: "run".to_owned(),
            workload: "quick",
            target: "embedded",
            by: None,
        });
        run.take(r#"{"event":"message","text":"Estimated run: 2 min"}"#, 0);
        run.take(r#"{"event":"begin","number":2,"of":6,"at":"quick · one broker"}"#, 0);
        run.take(
            r#"{"event":"interval","role":"producer","records_per_s":2000.0,"bytes_per_s":256000.0,"p50_us":800,"p99_us":null}"#,
            5,
        );
        assert_eq!((run.repetition, run.repetitions, run.doing.as_str()), (2, 6, "measuring"));
        assert_eq!(run.produced.map(|second| second.p50_us), Some(Some(800)));
        assert_eq!(run.seconds, [RatePoint { at_ms: 5, records_per_s: 2000.0 }]);
        run.take(r#"{"event":"phase","what":"reading back"}"#, 6);
        run.take(r#"{"event":"end","number":2,"of":6,"at":"quick","outcome":"2,000 records/s"}"#, 7);
        run.take("WARN something else", 8);
        run.take(r#"{"event":"of a later version"}"#, 9);
        assert_eq!(
            run.lines,
            [
                "Estimated run: 2 min",
                "quick: 2,000 records/s",
                "WARN something else",
                r#"{"event":"of a later version"}"#
            ]
        );
        for number in 0..1000 {
            run.take(&format!("line {number}"), 9);
        }
        assert_eq!((run.lines.len(), run.lines[LINES_MAX - 1].as_str()), (LINES_MAX, "line 999"));
    }

    #[tokio::test]
    async fn long_lines_are_cut() {
        let text = format!("{}\nshort\nlast", "x".repeat(100_000));
        let mut from = BufReader::new(text.as_bytes());
        assert_eq!(next_line(&mut from).await.map(|line| line.len()), Some(LINE_BYTES_MAX));
        assert_eq!(next_line(&mut from).await.as_deref(), Some("short"));
        assert_eq!(next_line(&mut from).await.as_deref(), Some("last"));
        assert_eq!(next_line(&mut from).await, None);
    }
}
