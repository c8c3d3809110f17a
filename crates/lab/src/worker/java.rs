//! The driver java: Kafka's own `ProducerPerformance` and `ConsumerPerformance`, each client in its own JVM.
//!
//! The tools limit the measurements. Latencies are the tools' own: they start when a record is handed over,
//! not at its intended time, so records sent late count as fast (coordinated omission); they are percentiles
//! in whole milliseconds, without a histogram, and only of a tool that stops by itself: after a number of
//! records, which a fixed rate for a number of seconds also is. Records have no stamps, so nothing can be
//! verified. The warm-up of such a producer is its first records, which the tool's last summary leaves out.
//!
//! At the maximum rate for a number of seconds, the lab stops the tool. The warm-up then is the tool's
//! activity before the measurement, including its start; the measurement is the sum of the intervals that the
//! tool prints within it. A measurement in seconds without a warm-up starts with the tool's first line,
//! because there was no client before.
//!
//! A tool's process first waits as a shell and then executes Java, so that its id is known beforehand. The
//! process dies with the worker.

mod command;
mod lines;
mod process;

use std::time::Duration;

use tokio::time::Instant;

use super::clock::Clock;
use super::counts::Window;
use super::link::Link;
use super::{
    Assignment, Command, Event, Interval, Order, Report, Role, Span, StopWhen, ToolPercentiles, WorkerError,
};
use crate::target::{KafkaOptions, kafka_jars};
use command::{Plan, RecordLimit};
use process::{Line, Summary, Tools};

/// Interval of the worker's reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// The tools' reporting interval, which limits the precision.
const LINE: Duration = Duration::from_millis(250);
const LINE_US: u64 = LINE.as_micros() as u64;

/// Runs an assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    let jars = kafka_jars(&KafkaOptions::default()).map_err(WorkerError::driver)?;
    let client = format!("Apache Kafka {} {}", jars.kafka_version, tool(assignment.role));
    let plan = Plan::new(assignment, &jars).map_err(WorkerError::driver)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(WorkerError::driver)?;
    runtime.block_on(async {
        let mut tools = Tools::prepare(&plan).map_err(WorkerError::driver)?;
        link.send(&Event::Ready { client, children: tools.pids() })?;
        let Some(window) = begin(assignment, link).await? else { return Ok(Report::default()) };
        let clock = Clock::of_process();
        tokio::time::sleep_until(clock.instant(window.start_us)).await;
        let limit = tools.begin(assignment, window).await.map_err(WorkerError::driver)?;
        let mut tally = Tally::new(assignment, window, limit);
        let outcome = tally.follow(&clock, link, &mut tools).await;
        tools.end().await;
        outcome.map(|()| tally.report(assignment))
    })
}

/// The tool's name.
fn tool(role: Role) -> &'static str {
    match role {
        Role::Producer => "ProducerPerformance",
        Role::Consumer => "ConsumerPerformance",
    }
}

/// Waits for the start command; `None` if the lab has cancelled.
async fn begin(assignment: &Assignment, link: &mut Link) -> Result<Option<Window>, WorkerError> {
    match link.command().await {
        Some(Command::Start { at_us, measure_from_us }) => {
            Ok(Some(Window::new(at_us, measure_from_us, assignment.stop)))
        }
        Some(Command::Stop) | None => Ok(None),
    }
}

/// The tools' output.
#[derive(Debug)]
struct Tally {
    window: Window,
    /// Number of records in the measurement, if limited.
    records_max: u64,
    /// The records after which each tool stops.
    limit: Option<RecordLimit>,
    /// True if the tools stop after their own count of records, without a warm-up: the measurement starts
    /// with their start.
    whole: bool,
    /// True if each line of a tool is an interval: the end of a drain is seen in them.
    reports_lines: bool,
    /// True if the measurement has started; otherwise it starts with the first line.
    has_begun: bool,
    total: u64,
    measured: Span,
    interval: Interval,
    since_us: u64,
    /// The final lines of finished tools.
    finals: Vec<String>,
    /// The number of finished tools.
    finished: usize,
    /// The measurements of finished tools after their warm-up.
    steady: Vec<Span>,
    /// The percentiles of finished tools, of their measurements.
    percentiles: Option<ToolPercentiles>,
}

impl Tally {
    fn new(assignment: &Assignment, window: Window, limit: Option<RecordLimit>) -> Tally {
        let records_max = match assignment.stop {
            StopWhen::Records(records) => records,
            StopWhen::Seconds(_) | StopWhen::OnCommand => u64::MAX,
        };
        let measured = Span { from_us: window.from_us, to_us: window.from_us, ..Span::default() };
        let (interval, since_us) = (Interval::default(), window.start_us);
        let whole = limit.is_some_and(|limit| limit.warm_up == 0);
        let has_begun = whole || window.from_us > window.start_us;
        Tally {
            window,
            records_max,
            limit,
            whole,
            reports_lines: assignment.drains,
            has_begun,
            total: 0,
            measured,
            interval,
            since_us,
            finals: Vec::new(),
            finished: 0,
            steady: Vec::new(),
            percentiles: None,
        }
    }

    /// The time after which the lab stops the tools. Those that stop by themselves get as long again.
    fn until_us(&self) -> u64 {
        let late_us = match self.limit {
            Some(_) => self.window.to_us.saturating_sub(self.window.start_us).saturating_add(10_000_000),
            // The tools report the last moment a little later.
            None => 200_000,
        };
        self.window.to_us.saturating_add(late_us)
    }

    /// Follows tools and lab until the measurement is complete.
    async fn follow(&mut self, clock: &Clock, link: &mut Link, tools: &mut Tools) -> Result<(), WorkerError> {
        let mut tick = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        loop {
            let until_us = self.until_us().min(clock.now_us() + 86_400_000_000);
            tokio::select! {
                line = tools.next() => match line.map_err(WorkerError::driver)? {
                    Some(line) => {
                        self.take(line, clock.now_us());
                        if self.reports_lines {
                            self.report_interval(clock.now_us(), link)?;
                        }
                    }
                    None => break,
                },
                command = link.command() => match command {
                    Some(Command::Start { .. }) => {}
                    Some(Command::Stop) | None => break,
                },
                () = tokio::time::sleep_until(clock.instant(until_us)), if self.window.to_us < u64::MAX => break,
                _ = tick.tick() => self.report_interval(clock.now_us(), link)?,
            }
            if self.limit.is_none() && self.measured.records >= self.records_max {
                break;
            }
        }
        self.report_interval(clock.now_us(), link)
    }

    fn take(&mut self, line: Line, at_us: u64) {
        match line {
            Line::Interval { records, bytes, latency_max_us } => {
                self.total += records;
                self.interval.records += records;
                self.interval.bytes += bytes;
                self.interval.max_us = self.interval.max_us.max(latency_max_us);
                if !self.has_begun {
                    return self.begin(at_us);
                }
                let middle_us = at_us.saturating_sub(LINE_US / 2);
                if self.whole || (middle_us >= self.window.from_us && middle_us < self.window.to_us) {
                    self.measured.records += records;
                    self.measured.bytes += bytes;
                    self.measured.to_us = at_us;
                }
            }
            Line::Final { text, rest: (records, bytes), summary } => {
                if self.whole {
                    // From the start of the first tool; the JVM's start is not the client's time.
                    let from_us = at_us.saturating_sub(summary.elapsed_us);
                    let first = self.finished == 0 || from_us < self.measured.from_us;
                    self.measured.from_us = if first { from_us } else { self.measured.from_us };
                    self.summarise(summary);
                }
                self.finals.push(text);
                self.finished += 1;
                self.take(Line::Interval { records, bytes, latency_max_us: None }, at_us);
            }
            Line::SteadyState { text, records, bytes, summary } => {
                let from_us = at_us.saturating_sub(summary.elapsed_us);
                self.steady.push(Span { from_us, to_us: at_us, records, bytes });
                self.summarise(summary);
                self.finals.push(text);
            }
        }
    }

    fn summarise(&mut self, summary: Summary) {
        self.percentiles = match (self.percentiles, summary.percentiles) {
            (Some(known), Some(other)) => Some(known.slower(other)),
            (known, other) => known.or(other),
        };
    }

    /// The measurement: by the summaries of all tools if they left a warm-up out, otherwise by their
    /// intervals.
    fn measurement(&self, tools: usize) -> Span {
        if self.steady.len() < tools.max(1) {
            return self.measured;
        }
        self.steady.iter().skip(1).fold(self.steady[0], |all, one| Span {
            from_us: all.from_us.min(one.from_us),
            to_us: all.to_us.max(one.to_us),
            records: all.records + one.records,
            bytes: all.bytes + one.bytes,
        })
    }

    /// Starts the measurement now, with its specified length.
    fn begin(&mut self, at_us: u64) {
        let late_us = at_us.saturating_sub(self.window.from_us);
        self.window.from_us = at_us;
        self.window.to_us = self.window.to_us.saturating_add(late_us);
        (self.measured.from_us, self.measured.to_us) = (at_us, at_us);
        self.has_begun = true;
    }

    fn report_interval(&mut self, at_us: u64, link: &mut Link) -> Result<(), WorkerError> {
        let mut interval = std::mem::take(&mut self.interval);
        (interval.at_us, interval.length_us) = (at_us, at_us.saturating_sub(self.since_us));
        self.since_us = at_us;
        Ok(link.send(&Event::Interval(interval))?)
    }

    fn report(self, assignment: &Assignment) -> Report {
        let mut notes = match assignment.role {
            Role::Producer => vec![
                "Latencies are the tool's own: from the call of send(), not from the intended time, so that records sent late \
                 count as fast (coordinated omission); in whole milliseconds, without a histogram"
                    .to_owned(),
                "The values are the tool's: random capital letters, or random lines of a file".to_owned(),
            ],
            Role::Consumer => vec!["The tool measures no end-to-end latency".to_owned()],
        };
        let tools = assignment.clients as usize;
        let measured = self.measurement(tools);
        let ended_itself = self.finished >= tools.max(1);
        if assignment.role == Role::Producer {
            notes.extend(match (self.percentiles, tools) {
                (None, _) => Some(
                    "There are no percentiles: the tool prints them only where it stops by itself, after a number of records or \
                     at a fixed rate"
                        .to_owned(),
                ),
                (Some(_), 2..) => {
                    Some("Each percentile is that of the slowest client: there is no histogram to merge".to_owned())
                }
                (Some(_), _) => None,
            });
        }
        if !self.whole && measured == self.measured {
            let counted = format!(
                "Counted from the lines that the tool prints every {} ms: the error at each end is up to half of that",
                LINE.as_millis()
            );
            notes.push(counted);
        }
        notes.extend(self.finals.iter().map(|line| format!("The tool's last line: {line}")));
        // The tools do not report which records failed; the last ones are assumed.
        let unacknowledged = match assignment.role {
            Role::Producer => {
                vec![Order { producer: assignment.first_client, sent: self.total, ranges: Vec::new() }]
            }
            Role::Consumer => Vec::new(),
        };
        Report {
            measured,
            sent: self.total,
            sent_more: !ended_itself,
            acknowledged: self.total,
            tool_percentiles: self.percentiles,
            notes,
            unacknowledged,
            ..Report::default()
        }
    }
}
