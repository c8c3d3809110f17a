//! The driver stream: streams as users run them, with `thalweg stream run`, each client in its own process.
//!
//! A producer is `load-generator | kafka`, a consumer `kafka | throughput`; without a cluster,
//! `load-generator | throughput` in memory. The streams report their stages in lines of JSON; the measurement
//! is the difference between the first and the last line within it. Streams are stopped as by Ctrl-C:
//! messages in flight are delivered, and the last line has the exact totals. The generator's messages have no
//! room for the lab's stamps: there are no latencies, and nothing is read back. `throughput` detects messages
//! out of sequence; in memory, a single one fails the worker.

mod command;
mod totals;

use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::clock::Clock;
use super::counts::Window;
use super::link::Link;
use super::tool::{Tool, ToolEvent};
use super::{Assignment, Command, Event, Interval, Order, Report, Role, Span, StopWhen, WorkerError};
use command::Plan;
use totals::Totals;

/// Interval of the worker's reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for stopping streams to deliver messages in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A stream could not be started.
#[derive(Debug, thiserror::Error)]
#[error("Failed to start `thalweg stream run`: {0}")]
struct NotStarted(#[source] io::Error);

/// A stream failed, or did not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`thalweg stream run` {status}: {}", last.join(" / "))]
struct StreamFailed {
    status: String,
    last: Vec<String>,
}

/// Messages of a stream in memory were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} messages of the stream are out of sequence")]
struct OutOfSequence(u64);

/// Runs an assignment.
pub(super) fn run(assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
    let plan = Plan::new(assignment).map_err(WorkerError::driver)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(WorkerError::driver)?;
    runtime.block_on(async {
        let (to, heard) = mpsc::channel(1024);
        let prepare = |(at, words): (usize, &Vec<String>)| Tool::prepare(at, words, &[], &to);
        let tools = plan.words.iter().enumerate().map(prepare).collect::<io::Result<Vec<Tool>>>();
        let tools = tools.map_err(NotStarted).map_err(WorkerError::driver)?;
        drop(to);
        let children = tools.iter().filter_map(Tool::pid).collect();
        let client = format!("thalweg {} streams", env!("CARGO_PKG_VERSION"));
        link.send(&Event::Ready { client, children })?;
        let window = match link.command().await {
            Some(Command::Start { at_us, measure_from_us }) => {
                Window::new(at_us, measure_from_us, assignment.stop)
            }
            Some(Command::Stop) | None => return Ok(Report::default()),
        };
        let clock = Clock::of_process();
        sleep_until(clock.instant(window.start_us)).await;
        let streams =
            Streams { open: tools.len(), tally: Tally::new(tools.len(), window), tools, heard, clock };
        streams.measure(assignment, link).await
    })
}

/// The running streams of a worker.
struct Streams {
    tools: Vec<Tool>,
    heard: mpsc::Receiver<ToolEvent>,
    /// Number of streams whose output has not ended.
    open: usize,
    tally: Tally,
    clock: Clock,
}

impl Streams {
    async fn measure(mut self, assignment: &Assignment, link: &mut Link) -> Result<Report, WorkerError> {
        for tool in &mut self.tools {
            tool.begin("").await.map_err(NotStarted).map_err(WorkerError::driver)?;
        }
        let outcome = match self.follow(assignment, link).await {
            Ok(()) => self.drain(link).await,
            failed => failed,
        };
        for tool in &mut self.tools {
            tool.kill().await;
        }
        outcome?;
        if assignment.bootstrap.is_empty() {
            match self.tally.latest.iter().map(|totals| totals.out_of_sequence).sum() {
                0 => {}
                lost => return Err(WorkerError::driver(OutOfSequence(lost))),
            }
        }
        Ok(self.tally.report(assignment))
    }

    /// Follows the streams until the measurement is complete.
    async fn follow(&mut self, assignment: &Assignment, link: &mut Link) -> Result<(), WorkerError> {
        let records_max = match assignment.stop {
            StopWhen::Records(records) => records,
            StopWhen::Seconds(_) | StopWhen::OnCommand => u64::MAX,
        };
        let mut tick = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
        let end = self.tally.window.to_us;
        let until = self.clock.instant(end.min(self.clock.now_us() + 86_400_000_000 * 365));
        while self.open > 0 && self.tally.measured().records < records_max {
            tokio::select! {
                event = self.heard.recv() => {
                    self.handle_event(event).await?;
                    // The end of a drain is seen in the intervals.
                    if assignment.drains {
                        self.tally.report_interval(self.clock.now_us(), link)?;
                    }
                }
                command = link.command() => match command {
                    Some(Command::Start { .. }) => {}
                    Some(Command::Stop) | None => break,
                },
                () = sleep_until(until), if end < u64::MAX => break,
                _ = tick.tick() => self.tally.report_interval(self.clock.now_us(), link)?,
            }
        }
        Ok(())
    }

    /// Stops all streams cleanly, and reads their last lines.
    async fn drain(&mut self, link: &mut Link) -> Result<(), WorkerError> {
        self.tools.iter().for_each(Tool::interrupt);
        let drained = timeout(DRAIN_TIMEOUT, async {
            while self.open > 0 {
                let heard = self.heard.recv().await;
                self.handle_event(heard).await?;
            }
            Ok::<(), WorkerError>(())
        });
        let status = format!("did not stop within {DRAIN_TIMEOUT:?}");
        drained
            .await
            .unwrap_or_else(|_| Err(WorkerError::driver(StreamFailed { status, last: Vec::new() })))?;
        self.tally.report_interval(self.clock.now_us(), link)
    }

    async fn handle_event(&mut self, event: Option<ToolEvent>) -> Result<(), WorkerError> {
        match event {
            Some(ToolEvent::Line(at, line)) => {
                let totals = Totals::read(&line).map_err(WorkerError::driver)?;
                self.tally.take(at, totals, self.clock.now_us());
            }
            Some(ToolEvent::End) => {
                self.open -= 1;
                // The output ends slightly before the process.
                tokio::time::sleep(Duration::from_millis(50)).await;
                if let Some((status, last)) = self.tools.iter_mut().find_map(Tool::failure) {
                    let status = format!("ended with {status}");
                    return Err(WorkerError::driver(StreamFailed { status, last }));
                }
            }
            None => self.open = 0,
        }
        Ok(())
    }
}

/// A report, and its time.
type TimedReport = (u64, Totals);

/// The reports of the streams.
#[derive(Debug)]
struct Tally {
    window: Window,
    latest: Vec<Totals>,
    /// The first and last report of each stream within the measurement.
    spans: Vec<Option<(TimedReport, TimedReport)>>,
    reported: Totals,
    since_us: u64,
}

impl Tally {
    fn new(streams: usize, window: Window) -> Tally {
        Tally {
            window,
            latest: vec![Totals::default(); streams],
            spans: vec![None; streams],
            reported: Totals::default(),
            since_us: window.start_us,
        }
    }

    fn take(&mut self, at: usize, totals: Totals, at_us: u64) {
        let is_news = totals.records > self.latest[at].records;
        self.latest[at] = totals;
        if at_us < self.window.from_us || at_us > self.window.to_us {
            return;
        }
        match &mut self.spans[at] {
            // Lines without progress, at the end of a topic, do not extend the measured time.
            Some((_, last)) if is_news => *last = (at_us, totals),
            Some(_) => {}
            none => *none = Some(((at_us, totals), (at_us, totals))),
        }
    }

    fn measured(&self) -> Span {
        let mut all = Span { from_us: self.window.from_us, to_us: self.window.from_us, ..Span::default() };
        for ((from_us, first), (to_us, last)) in self.spans.iter().flatten() {
            let records = last.records - first.records;
            if records > 0 {
                all.from_us = if all.records == 0 { *from_us } else { all.from_us.min(*from_us) };
                all.to_us = all.to_us.max(*to_us);
                all.records += records;
                all.bytes += last.bytes.saturating_sub(first.bytes);
            }
        }
        all
    }

    fn total(&self) -> Totals {
        self.latest.iter().fold(Totals::default(), |all, each| Totals {
            records: all.records + each.records,
            bytes: all.bytes + each.bytes,
            out_of_sequence: all.out_of_sequence + each.out_of_sequence,
        })
    }

    fn report_interval(&mut self, at_us: u64, link: &mut Link) -> Result<(), WorkerError> {
        let total = self.total();
        let interval = Interval {
            at_us,
            length_us: at_us.saturating_sub(self.since_us),
            records: total.records.saturating_sub(self.reported.records),
            bytes: total.bytes.saturating_sub(self.reported.bytes),
            ..Interval::default()
        };
        (self.reported, self.since_us) = (total, at_us);
        Ok(link.send(&Event::Interval(interval))?)
    }

    fn report(self, assignment: &Assignment) -> Report {
        let total = self.total();
        let mut notes = Vec::new();
        if assignment.role == Role::Producer {
            notes.push(
                "The generator's values are its sequence and filler, or the same bytes for all; they have no stamps"
                    .to_owned(),
            );
        }
        if total.out_of_sequence > 0 {
            notes.push(format!("{} messages were out of sequence", total.out_of_sequence));
        }
        let unacknowledged = match assignment.role {
            Role::Producer => {
                let order = |(at, totals): (u32, &Totals)| Order {
                    producer: assignment.first_client + at,
                    sent: totals.records,
                    ranges: Vec::new(),
                };
                (0..).zip(&self.latest).map(order).collect()
            }
            Role::Consumer => Vec::new(),
        };
        Report {
            measured: self.measured(),
            sent: total.records,
            acknowledged: total.records,
            notes,
            unacknowledged,
            ..Report::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(records: u64) -> Totals {
        Totals { records, bytes: records * 10, out_of_sequence: 0 }
    }

    #[test]
    fn the_measurement_lies_between_the_first_and_the_last_line() {
        let window = Window { start_us: 0, from_us: 1000, to_us: 2000, closes: false, drains: false };
        let mut tally = Tally::new(2, window);
        for (at, records, at_us) in
            [(0, 5, 900), (0, 10, 1010), (1, 7, 1005), (0, 60, 1900), (1, 7, 1990), (0, 99, 2100)]
        {
            tally.take(at, totals(records), at_us);
        }
        assert_eq!(tally.measured(), Span { from_us: 1010, to_us: 1900, records: 50, bytes: 500 });
        assert_eq!(tally.total(), totals(106));
    }
}
