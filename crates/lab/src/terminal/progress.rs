//! Progress of a run on standard error: the position, the current measurement, and figures every second.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use super::can_redraw;
use super::event::Event;
use crate::quantity;
use crate::result::system;
use crate::worker::{Driver, Interval, Role};

/// Spaces before the figures of the last second on a terminal.
const LIVE_INDENT: usize = 2;
/// Minimum interval of lines with figures, without a terminal.
const PLAIN_EVERY_US: u64 = 10_000_000;

/// The position of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PointAt {
    pub workload: String,
    /// The point's label.
    pub label: String,
    pub target: String,
    pub driver: Driver,
    /// The repetition's number, from 1.
    pub repetition: u32,
    /// The total number of repetitions.
    pub repetitions: u32,
}

impl std::fmt::Display for PointAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} · {} · {} · {}", self.workload, self.label, system(&self.target), self.driver.words())?;
        match self.repetitions {
            0 | 1 => Ok(()),
            all => write!(f, " · repetition {} of {all}", self.repetition),
        }
    }
}

/// The progress display of a run. All methods may be called from any thread.
pub struct Progress {
    drawn: ProgressOutput,
    total: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: u64,
    produced: Option<Interval>,
    consumed: Option<Interval>,
    plain_at_us: u64,
}

enum ProgressOutput {
    Bars {
        bars: MultiProgress,
        all: ProgressBar,
        now: ProgressBar,
        live: ProgressBar,
        each_ms: Arc<AtomicU64>,
    },
    Lines(Mutex<Box<dyn Write + Send>>),
    Events(Mutex<Box<dyn Write + Send>>),
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").field("total", &self.total).finish_non_exhaustive()
    }
}

impl Progress {
    /// A display for a run with this total number of repetitions, on standard error.
    pub fn new(repetitions_total: u64) -> Progress {
        let stderr = std::io::stderr();
        match can_redraw(&stderr) {
            true => Progress::with(bars(repetitions_total), repetitions_total),
            false => Progress::lines(repetitions_total, stderr),
        }
    }

    /// A display in plain lines on `to`.
    pub fn lines(repetitions_total: u64, to: impl Write + Send + 'static) -> Progress {
        Progress::with(ProgressOutput::Lines(Mutex::new(Box::new(to))), repetitions_total)
    }

    /// A display for programs: one JSON object per line on `to`.
    pub fn events(repetitions_total: u64, to: impl Write + Send + 'static) -> Progress {
        Progress::with(ProgressOutput::Events(Mutex::new(Box::new(to))), repetitions_total)
    }

    fn with(drawn: ProgressOutput, total: u64) -> Progress {
        Progress { drawn, total, state: Mutex::new(State::default()) }
    }

    /// Starts a repetition.
    pub fn point_began(&self, at: &PointAt) {
        let number = {
            let mut state = self.state();
            (state.produced, state.consumed, state.plain_at_us) = (None, None, 0);
            state.ended + 1
        };
        match &self.drawn {
            ProgressOutput::Bars { now, live, .. } => {
                now.set_message(at.to_string());
                live.set_message("starting");
            }
            // A search takes as many repetitions as it needs.
            ProgressOutput::Lines(_) if number > self.total => self.line(&format!("[{number}] {at}")),
            ProgressOutput::Lines(_) => self.line(&format!("[{number}/{}] {at}", self.total)),
            ProgressOutput::Events(_) => {
                self.event(&Event::Begin { number, of: self.total.max(number), at: at.to_string() })
            }
        }
    }

    /// Shows an activity of a repetition apart from measuring, on a terminal and to programs.
    pub fn phase(&self, what: &'static str) {
        match &self.drawn {
            ProgressOutput::Bars { live, .. } => live.set_message(what),
            ProgressOutput::Events(_) => self.event(&Event::Phase { what }),
            ProgressOutput::Lines(_) => {}
        }
    }

    /// Shows the last second of all workers of a role combined.
    pub fn interval(&self, role: Role, interval: &Interval) {
        let (text, due) = {
            let mut state = self.state();
            match role {
                Role::Producer => state.produced = Some(interval.clone()),
                Role::Consumer => state.consumed = Some(interval.clone()),
            }
            let due = interval.at_us >= state.plain_at_us.saturating_add(PLAIN_EVERY_US);
            let room = match &self.drawn {
                ProgressOutput::Bars { .. } => columns().saturating_sub(LIVE_INDENT),
                ProgressOutput::Lines(_) | ProgressOutput::Events(_) => usize::MAX,
            };
            (live_text(&state, room), due)
        };
        match &self.drawn {
            ProgressOutput::Bars { live, .. } => live.set_message(text),
            ProgressOutput::Lines(_) if due => {
                let first = std::mem::replace(&mut self.state().plain_at_us, interval.at_us) == 0;
                // The first second is not representative: plain lines begin after ten seconds.
                if !first {
                    self.line(&format!("    {text}"));
                }
            }
            ProgressOutput::Lines(_) => {}
            ProgressOutput::Events(_) => self.event(&Event::interval(role, interval)),
        }
    }

    /// Ends a repetition; `outcome` is its summary line, such as its rate, or the reason of its failure.
    pub fn point_ended(&self, at: &PointAt, outcome: &str) {
        let ended = {
            let mut state = self.state();
            state.ended += 1;
            state.ended
        };
        match &self.drawn {
            ProgressOutput::Bars { bars, all, now, live, each_ms } => {
                // If drawing fails, it cannot be reported.
                let _ = bars.println(ended_lines(at, outcome, columns()));
                let gone_ms = u64::try_from(all.elapsed().as_millis()).unwrap_or(u64::MAX);
                each_ms.store(gone_ms / ended.max(1), Ordering::Relaxed);
                all.set_length(self.total.max(ended));
                all.set_position(ended);
                now.set_message("");
                live.set_message("");
            }
            ProgressOutput::Lines(_) => self.line(&format!("    {outcome}")),
            ProgressOutput::Events(_) => {
                let of = self.total.max(ended);
                self.event(&Event::End { number: ended, of, at: at.to_string(), outcome });
            }
        }
    }

    /// Prints a message.
    pub fn log(&self, line: &str) {
        match &self.drawn {
            ProgressOutput::Bars { bars, .. } => {
                let _ = bars.println(format!("  {line}"));
            }
            ProgressOutput::Lines(_) => self.line(line),
            ProgressOutput::Events(_) => self.event(&Event::Message { text: line }),
        }
    }

    /// Removes the animated lines at the end.
    pub fn finish(&self) {
        if let ProgressOutput::Bars { bars, all, now, live, .. } = &self.drawn {
            [all, now, live].into_iter().for_each(ProgressBar::finish_and_clear);
            let _ = bars.clear();
        }
    }

    fn event(&self, event: &Event<'_>) {
        self.line(&event.line());
    }

    fn line(&self, text: &str) {
        if let ProgressOutput::Lines(to) | ProgressOutput::Events(to) = &self.drawn {
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            // A closed output must not end a run.
            let _ = writeln!(to, "{text}").and_then(|()| to.flush());
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Figures left inconsistent by a panic are shown for a second at most.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bars(total: u64) -> ProgressOutput {
    let bars = MultiProgress::new();
    let each_ms = Arc::new(AtomicU64::new(0));
    let each = Arc::clone(&each_ms);
    let style = |template: &str| {
        ProgressStyle::with_template(template).expect("the template is fixed and valid").progress_chars("━╸─")
    };
    let overall = style("{bar:20.cyan/dim} {pos}/{len} repetitions · {times}").with_key(
        "times",
        move |state: &ProgressState, to: &mut dyn std::fmt::Write| {
            let elapsed_s = state.elapsed().as_secs_f64();
            let _ = write!(to, "{} gone", quantity::clock(elapsed_s));
            let each_s = each.load(Ordering::Relaxed) as f64 / 1e3;
            if let Some(left) = left_s(each_s, elapsed_s, state.len().unwrap_or(0)) {
                let _ = write!(to, ", about {} to go", quantity::clock(left));
            }
        },
    );
    let all = bars.add(ProgressBar::new(total).with_style(overall));
    let now = bars.add(ProgressBar::new(0).with_style(style("{spinner:.cyan} {wide_msg}")));
    let live = bars.add(ProgressBar::new(0).with_style(style("  {wide_msg}")));
    for (bar, every_ms) in [(&all, 1000), (&now, 120)] {
        bar.enable_steady_tick(Duration::from_millis(every_ms));
    }
    ProgressOutput::Bars { bars, all, now, live, each_ms }
}

/// The remaining seconds, if each repetition takes `each_s`; `None` before the first has ended.
fn left_s(each_s: f64, elapsed_s: f64, total: u64) -> Option<f64> {
    (each_s > 0.0).then(|| (each_s * total as f64 - elapsed_s).max(0.0))
}

/// The columns of the terminal at standard error; unlimited without one.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => usize::MAX,
    }
}

/// The end of a repetition on a terminal: one line, or two if the terminal is too narrow.
fn ended_lines(at: &PointAt, outcome: &str, columns: usize) -> String {
    let line = format!("  {at}: {outcome}");
    match line.chars().count() <= columns {
        true => line,
        false => format!("  {at}\n    {outcome}"),
    }
}

/// How much of the figures of a second is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LiveDetail {
    All,
    /// The rate and two latencies.
    Most,
    /// The rate and the tail latency.
    Least,
}

/// The figures of the last second: as many as fit into `room` characters.
fn live_text(state: &State, room: usize) -> String {
    let both = state.produced.is_some() && state.consumed.is_some();
    // With both roles, all their figures would not fit on a wide terminal either.
    let all = if both { LiveDetail::Most } else { LiveDetail::All };
    let texts = [all, LiveDetail::Most, LiveDetail::Least].map(|detail| live_parts(state, detail));
    let fits = texts.iter().position(|text| text.chars().count() <= room);
    texts.into_iter().nth(fits.unwrap_or(2)).unwrap_or_default()
}

fn live_parts(state: &State, detail: LiveDetail) -> String {
    let mut parts: Vec<String> = Vec::new();
    for (what, waited, interval) in
        [("produced", "acknowledged", &state.produced), ("consumed", "end to end", &state.consumed)]
    {
        let Some(interval) = interval else { continue };
        let seconds = interval.length_us.max(1) as f64 / 1e6;
        let rate = quantity::number((interval.records as f64 / seconds).round());
        let mb = quantity::number(interval.bytes as f64 / seconds / 1_048_576.0);
        let times = match (interval.p50_us, interval.p99_us, interval.max_us) {
            (Some(p50), Some(p99), Some(max)) => [p50, p99, max].map(|us| quantity::time_us(us as f64)),
            _ if detail == LiveDetail::Least => {
                parts.push(format!("{what} {rate}/s"));
                continue;
            }
            _ => {
                parts.push(format!("{what} {rate} records/s, {mb} MB/s"));
                continue;
            }
        };
        let [p50, p99, max] = times;
        parts.push(match detail {
            LiveDetail::All => {
                format!("{what} {rate} records/s, {mb} MB/s · {waited} p50 {p50}, p99 {p99}, max {max}")
            }
            LiveDetail::Most => format!("{what} {rate} records/s, p50 {p50}, p99 {p99}"),
            LiveDetail::Least => format!("{what} {rate}/s, p99 {p99}"),
        });
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn at(repetition: u32) -> PointAt {
        PointAt {
            workload: "ibm-fast".into(),
            label: "3 brokers".into(),
            target: "embedded".into(),
            driver: Driver::Thalweg,
            repetition,
            repetitions: 2,
        }
    }

    #[test]
    fn the_time_to_go_is_that_of_the_repetitions_before() {
        assert_eq!(left_s(0.0, 12.0, 9), None);
        assert_eq!(left_s(30.0, 30.0, 3), Some(60.0));
        assert_eq!(left_s(30.0, 45.0, 3), Some(45.0));
        assert_eq!(left_s(30.0, 200.0, 3), Some(0.0));
    }

    fn second() -> Interval {
        Interval {
            at_us: 1_700_000_000_000_000,
            length_us: 1_000_000,
            records: 12_000_000,
            bytes: 1_256_000_000,
            p50_us: Some(12_800),
            p99_us: Some(112_100),
            max_us: Some(1_239_000),
            ..Interval::default()
        }
    }

    #[test]
    fn figures_of_a_second_fit_a_narrow_terminal() {
        let mut state = State { produced: Some(second()), ..State::default() };
        let shown = |state: &State, room| live_text(state, room);
        assert!(shown(&state, usize::MAX).contains("MB/s · acknowledged p50"), "all with enough room");
        assert!(
            shown(&state, 78).starts_with("produced 12,000,000 records/s, p50 "),
            "{}",
            shown(&state, 78)
        );
        state.consumed = Some(second());
        assert!(shown(&state, 120).contains("consumed 12,000,000 records/s, p50 "), "{}", shown(&state, 120));
        let narrow = shown(&state, 78);
        assert!(narrow.chars().count() <= 78 && narrow.contains("consumed 12,000,000/s, p99 "), "{narrow}");
    }

    #[test]
    fn an_ended_repetition_has_two_lines_on_a_narrow_terminal() {
        let outcome = "2,000,000 records/s, 244 MB/s";
        let wide =
            "  ibm-fast · 3 brokers · Thalweg · thalweg · repetition 1 of 2: 2,000,000 records/s, 244 MB/s";
        assert_eq!(ended_lines(&at(1), outcome, 120), wide);
        let narrow = "  ibm-fast · 3 brokers · Thalweg · thalweg · repetition 1 of 2\n    2,000,000 records/s, 244 MB/s";
        assert_eq!(ended_lines(&at(1), outcome, 80), narrow);
    }

    #[test]
    fn without_a_terminal_each_repetition_has_its_lines() {
        let sink = Sink::default();
        let progress = Progress::lines(2, sink.clone());
        progress.log("Starting 3 brokers");
        for repetition in [1, 2] {
            progress.point_began(&at(repetition));
            for second in 1..=12 {
                let interval = Interval {
                    at_us: 1_700_000_000_000_000 + second * 1_000_000,
                    length_us: 1_000_000,
                    records: 2_000_000,
                    bytes: 256_000_000,
                    p50_us: Some(800),
                    p99_us: Some(2_100),
                    max_us: Some(9_000),
                    ..Interval::default()
                };
                progress.interval(Role::Producer, &interval);
            }
            progress.point_ended(&at(repetition), "2,000,000 records/s");
        }
        progress.point_began(&at(2));
        let text = String::from_utf8(sink.0.lock().expect("no panic").clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "Starting 3 brokers",
                "[1/2] ibm-fast · 3 brokers · Thalweg · thalweg · repetition 1 of 2",
                "    produced 2,000,000 records/s, 244 MB/s · acknowledged p50 800 µs, p99 2.10 ms, max 9.00 ms",
                "    2,000,000 records/s",
                "[2/2] ibm-fast · 3 brokers · Thalweg · thalweg · repetition 2 of 2",
                "    produced 2,000,000 records/s, 244 MB/s · acknowledged p50 800 µs, p99 2.10 ms, max 9.00 ms",
                "    2,000,000 records/s",
                "[3] ibm-fast · 3 brokers · Thalweg · thalweg · repetition 2 of 2",
            ]
        );
    }

    #[test]
    fn programs_get_an_object_a_line() {
        let sink = Sink::default();
        let progress = Progress::events(2, sink.clone());
        progress.log("Starting 3 brokers");
        progress.point_began(&at(1));
        progress.phase("beginning");
        let interval = Interval {
            at_us: 1_700_000_000_000_000,
            length_us: 500_000,
            records: 1_000,
            bytes: 128_000,
            p50_us: Some(800),
            p99_us: None,
            max_us: None,
            ..Interval::default()
        };
        progress.interval(Role::Producer, &interval);
        progress.point_ended(&at(1), "2,000 records/s");
        let text = String::from_utf8(sink.0.lock().expect("no panic").clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let what = "ibm-fast · 3 brokers · Thalweg · thalweg · repetition 1 of 2";
        assert_eq!(
            lines,
            [
                r#"{"event":"message","text":"Starting 3 brokers"}"#.to_owned(),
                format!(r#"{{"event":"begin","number":1,"of":2,"at":"{what}"}}"#),
                r#"{"event":"phase","what":"beginning"}"#.to_owned(),
                r#"{"event":"interval","role":"producer","records_per_s":2000.0,"bytes_per_s":256000.0,"p50_us":800,"p99_us":null}"#
                    .to_owned(),
                format!(r#"{{"event":"end","number":1,"of":2,"at":"{what}","outcome":"2,000 records/s"}}"#),
            ]
        );
    }
}
