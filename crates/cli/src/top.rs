//! `top`: a live view of a cluster and of this machine.
//!
//! - `reader` reads the cluster, within limits of time and number; `reading` is its answers, `facts` the part
//!   that changes rarely.
//! - `figures` are the rates between two readings, `notes` the reasons for unknown ones, `order` their order.
//! - `layout`, `screen` and `machine` make lines, `json` makes documents, `terminal` draws.

mod facts;
mod figures;
mod json;
mod layout;
mod machine;
mod notes;
mod order;
mod reader;
mod reading;
mod sampler;
mod screen;
mod terminal;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use chrono::Utc;
use clap::Args;
use thalweg_lab::terminal::can_redraw;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use self::figures::Figures;
use self::order::Sort;
use self::reader::{ReadFailure, Reader};
use self::reading::Reading;
use self::sampler::Sampler;
use self::screen::{Line, Look, Room};
use self::terminal::{Terminal, painted};
use crate::CommandFuture;
use crate::connect::Connect;
use crate::failure::CommandExit;
use crate::moment;
use crate::output::{CommandOutput, Style};
use crate::signals::{self, EndSignals};

/// Time for output that is blocked to be taken after a signal.
const END_MAX: Duration = Duration::from_secs(1);
/// Interval of redrawing the age of the last reading.
const REDRAW: Duration = Duration::from_secs(1);
/// Limits of the interval.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Show brokers, topics and groups of a cluster with their rates, live.
///
/// Works with every cluster that speaks Kafka's protocol. Per broker: state, leaders, replicas out of sync,
/// bytes of its logs and their growth. Per topic: messages per second by the growth of log ends, bytes per
/// second by the growth of the leaders' logs. Per group: members, lag, its change, and consumed records by
/// committed offsets. The health and its reason are those of `cluster status`.
///
/// A figure that is not known is a dash, with the reason below the tables; + marks sums without unknown
/// parts.
///
/// On a terminal the screen is updated in place. Keys: q quits, m shows this machine, c the cluster, s
/// changes the order. Otherwise, and with TERM=dumb, a block or a document follows at the end of each
/// interval.
///
/// Exit codes: 0 after q, Ctrl-C or the last update; 5 no broker answers, at the start or in the last
/// interval; 6 the login is refused.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  thalweg top
  thalweg top --bootstrap-server broker-1:9092 --interval 5s --sort size
  thalweg top --once --rows 5
  thalweg top --json --updates 10 | jq .cluster.messages_per_s
  thalweg top --machine                      this machine, too: devices, interfaces, brokers, threads")]
pub struct Top {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    output: CommandOutput,
    /// Time between two readings, such as 2s or 500ms. It grows if a reading takes more than half of it.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Exit after this many intervals.
    #[arg(long, visible_alias = "iterations", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
    /// Print one block or document, after one interval.
    #[arg(long, conflicts_with = "updates")]
    once: bool,
    /// The order of topics and groups.
    #[arg(long, value_name = "ORDER", value_enum, default_value_t)]
    sort: Sort,
    /// Maximum number of rows of each table; in documents, of topics and of groups [default: those that fit
    /// the terminal; in blocks 10; in documents all].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// Begin with this machine on a terminal; in blocks and documents, show this machine, too.
    #[arg(long)]
    machine: bool,
    /// Time limit for the answer of each broker, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout_ms: u64,
}

/// Rows of a table in a block.
const BLOCK_ROWS: usize = 10;

fn interval(text: &str) -> Result<Duration, String> {
    let wrong = || "use a time from 100ms to 1h, such as 2s, 500ms or 1m".to_owned();
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or_else(wrong)?;
    let seconds: f64 = number.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(seconds * unit).map_err(|_| wrong())?;
    INTERVALS.contains(&time).then_some(time).ok_or_else(wrong)
}

/// The newest figures, and the last failure.
#[derive(Default)]
struct State {
    before: Option<Reading>,
    figures: Option<Figures>,
    read_at: Option<Instant>,
    error: Option<ReadFailure>,
}

impl State {
    /// Takes a reading. Returns true if it ends an interval.
    fn take(&mut self, read: Result<Reading, ReadFailure>) -> bool {
        match read {
            Ok(reading) => {
                self.figures = Some(Figures::of(self.before.as_ref(), &reading));
                self.read_at = Some(reading.at);
                self.error = None;
                self.before.replace(reading).is_some()
            }
            Err(error) => {
                self.error = Some(error);
                true
            }
        }
    }
}

impl Top {
    /// Runs the command.
    pub fn run(&self) -> CommandFuture<'_> {
        Box::pin(self.show())
    }

    async fn show(&self) -> anyhow::Result<()> {
        let (bootstrap, options) = self.connect.addresses()?;
        let limit = Duration::from_millis(self.timeout_ms);
        let reader = Reader::connect(&bootstrap, &options, limit).await?;
        let (sender, readings) = mpsc::channel(1);
        let reading = tokio::spawn(read_all(reader, self.interval, sender));
        let is_live = self.output.is_table() && !self.once && can_redraw(&io::stdout());
        let state = match is_live {
            true => self.live(readings).await,
            false => self.blocks(readings).await,
        };
        ended(reading).await?;
        match state?.error {
            Some(ReadFailure { why, code }) => Err(CommandExit { code, why }.into()),
            None => Ok(()),
        }
    }

    /// Prints a block or a document for each interval.
    async fn blocks(
        &self,
        mut readings: mpsc::Receiver<Result<Reading, ReadFailure>>,
    ) -> anyhow::Result<State> {
        let mut signals = EndSignals::listen()?;
        signals::exit_when_blocked(END_MAX)?;
        let mut state = State::default();
        let mut machine = self.machine.then(Sampler::start).transpose()?;
        let mut left = if self.once { 1 } else { self.updates.unwrap_or(u64::MAX) };
        while left > 0 {
            let read = tokio::select! {
                biased;
                () = signals.next() => return Ok(State::default()),
                read = readings.recv() => read,
            };
            let Some(read) = read else { break };
            if !state.take(read) {
                continue;
            }
            if let Some(machine) = &mut machine {
                tokio::select! {
                    biased;
                    () = signals.next() => return Ok(State::default()),
                    () = machine.sample() => {}
                }
            }
            self.print(&mut state, machine.as_ref())?;
            left -= 1;
        }
        Ok(state)
    }

    fn print(&self, state: &mut State, machine: Option<&Sampler>) -> anyhow::Result<()> {
        let rows = self.rows.and_then(|rows| usize::try_from(rows).ok());
        if let Some(figures) = &mut state.figures {
            order::sort(figures, self.sort);
        }
        let used = machine.and_then(Sampler::last_use);
        let of_machine = machine.map(Sampler::notes).unwrap_or_default();
        if !self.output.is_table() {
            let notes = [self.notes(state), of_machine].concat();
            return match (&state.error, &state.figures) {
                (Some(error), _) => self.output.next(&json::failure(&error.why, used, moment::now_ms())),
                (None, Some(figures)) => {
                    self.output.next(&json::document(figures, &notes, used, moment::now_ms(), rows))
                }
                (None, None) => Ok(()),
            };
        }
        let width = io::stdout().is_terminal().then(|| Terminal::size().0);
        let room = Room { width, height: None, rows: Some(rows.unwrap_or(BLOCK_ROWS)) };
        let mut lines = vec![Line::plain(self.title(state, self.sort))];
        match (&state.error, &state.figures) {
            (Some(error), _) => lines.push(Line::plain(room.cut(&no_reading(error)))),
            (None, Some(figures)) => lines.extend(screen::cluster(figures, &self.notes(state), room)),
            (None, None) => {}
        }
        if self.machine {
            lines.push(Line::plain(""));
            lines.extend(machine::lines(used, &of_machine, room));
        }
        lines.push(Line::plain(""));
        let style = Style::of_standard_output();
        let text: String = lines.iter().map(|line| painted(line, style) + "\n").collect();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }

    /// Shows a screen until a key, a signal or the last update ends it.
    async fn live(
        &self,
        mut readings: mpsc::Receiver<Result<Reading, ReadFailure>>,
    ) -> anyhow::Result<State> {
        let mut signals = EndSignals::of_terminal()?;
        let mut resized = signal(SignalKind::window_change())?;
        let (terminal, mut keys) = Terminal::open()?;
        signals::exit_when_blocked_by(EndSignals::of_terminal()?, END_MAX, terminal.unblock());
        terminal.enter()?;
        let mut state = State::default();
        let mut machine = Sampler::start()?;
        let mut sampled_at = Instant::now();
        let (mut shows_machine, mut sort) = (self.machine, self.sort);
        let mut redraw = tokio::time::interval(self.interval.min(REDRAW));
        redraw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut left = self.updates.unwrap_or(u64::MAX);
        while left > 0 {
            let rows = self.rows.and_then(|rows| usize::try_from(rows).ok());
            let (width, height) = Terminal::size();
            let room = Room { width: Some(width), height: Some(height.saturating_sub(1)), rows };
            if let Some(figures) = &mut state.figures {
                order::sort(figures, sort);
            }
            let mut lines = vec![Line::new(room.cut(&self.title(&state, sort)), Look::Heading)];
            lines.extend(match (&state.figures, shows_machine) {
                (_, true) => machine::lines(machine.last_use(), &machine.notes(), room),
                (Some(figures), false) => screen::cluster(figures, &self.notes(&state), room),
                (None, false) => vec![Line::plain(match &state.error {
                    Some(error) => room.cut(&no_reading(error)),
                    None => "Reading the cluster ...".to_owned(),
                })],
            });
            terminal.draw(&lines)?;
            tokio::select! {
                biased;
                () = signals.next() => return Ok(State::default()),
                Some(key) = keys.recv() => {
                    // Keys that were typed fast share a redraw.
                    for key in std::iter::once(key).chain(std::iter::from_fn(|| keys.try_recv().ok())) {
                        match key {
                            b'q' | b'Q' => return Ok(State::default()),
                            b'm' => shows_machine = !shows_machine,
                            b'c' => shows_machine = false,
                            b's' => sort = sort.next(),
                            _ => {}
                        }
                    }
                }
                read = readings.recv() => {
                    let Some(read) = read else { return Ok(state) };
                    left -= u64::from(state.take(read));
                }
                () = machine.sampled() => {}
                _ = resized.recv() => {}
                _ = redraw.tick() => {
                    if sampled_at.elapsed() >= self.interval {
                        machine.ask();
                        sampled_at = Instant::now();
                    }
                }
            }
        }
        Ok(state)
    }

    /// The first line: time, interval, age of the reading.
    fn title(&self, state: &State, sort: Sort) -> String {
        let length = state.figures.as_ref().and_then(|figures| figures.interval);
        let interval = format!("{:.1} s", length.unwrap_or(self.interval).as_secs_f64());
        let age = state.read_at.map_or_else(
            || "not read yet".to_owned(),
            |at| format!("read {:.0} s ago", at.elapsed().as_secs_f64()),
        );
        let now = Utc::now().format("%F %T");
        format!("thalweg top {now} UTC, interval {interval}, {age}, order {}", sort.name())
    }

    /// Notes on the readings themselves.
    fn notes(&self, state: &State) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(error) = &state.error {
            notes.push(format!("The last reading failed, and these figures are older: {}.", error.why));
        }
        let reading = state.before.as_ref();
        let took = reading.map(|reading| reading.took).unwrap_or_default();
        let every = reading.map_or(self.interval, |reading| reading.period(self.interval));
        if every > self.interval {
            notes.push(format!(
                "The interval is {:.1} s, not {:.1} s, because a reading takes {:.1} s.",
                every.as_secs_f64(),
                self.interval.as_secs_f64(),
                took.as_secs_f64()
            ));
        }
        notes
    }
}

/// The line in place of figures.
fn no_reading(error: &ReadFailure) -> String {
    format!("No reading: {}.", error.why)
}

/// Ends the task that reads. Fails if it has failed: an end of its readings is no success.
async fn ended(reading: JoinHandle<()>) -> anyhow::Result<()> {
    reading.abort();
    match reading.await {
        Err(error) if error.is_panic() => {
            anyhow::bail!("Reading the cluster ended by a fault of this program: {error}")
        }
        _ => Ok(()),
    }
}

/// Reads the cluster in intervals, until the receiver is gone.
async fn read_all(
    mut reader: Reader,
    interval: Duration,
    readings: mpsc::Sender<Result<Reading, ReadFailure>>,
) {
    loop {
        let began = Instant::now();
        let read = reader.read().await;
        let period = read.as_ref().map_or(interval, |reading| reading.period(interval));
        if readings.send(read).await.is_err() {
            return;
        }
        tokio::time::sleep_until(began + period).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_times_within_limits() {
        let ms = |text: &str| interval(text).map(|time| time.as_millis()).ok();
        assert_eq!(
            [ms("2s"), ms("2"), ms("500ms"), ms("0.5"), ms("1m")],
            [2000, 2000, 500, 500, 60_000].map(Some)
        );
        for wrong in ["", "s", "0", "99ms", "61m", "2h", "-1s", "NaN", "inf", "1e400", "2 s x"] {
            assert_eq!(ms(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_panic_of_the_reader_is_a_failure() {
        ended(tokio::spawn(async {})).await.expect("an end");
        ended(tokio::spawn(std::future::pending())).await.expect("an end by this program");
        let task = tokio::spawn(async { panic!("the reason") });
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
        let error = ended(task).await.expect_err("a panic");
        assert!(error.to_string().contains("the reason"), "{error}");
    }

    #[test]
    fn names_of_hosts_in_failures_cannot_move_the_cursor() {
        let error = ReadFailure { why: "Cannot connect to a\u{1b}[2Jb:1".to_owned(), code: 5 };
        let room = Room { width: None, height: None, rows: None };
        assert_eq!(room.cut(&no_reading(&error)), "No reading: Cannot connect to a\\u{1b}[2Jb:1.");
    }
}
