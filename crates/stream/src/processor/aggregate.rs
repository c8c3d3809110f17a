//! `aggregate`: counts, sums and quantiles over time windows. `windows` holds the logic, and `watermarks`
//! when windows close; this module reads messages and writes the results of closed windows.
//!
//! Windows close when every partition of the source has a later message or is idle, and at the end of the
//! stream. Without `--time`, the clock stands for partitions that were read to the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::watermarks::Watermarks;
use super::windows::{ClosedWindow, WindowRejection, WindowShape, Windows};
use crate::declaration::{
    Findings, Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::expression::Expression;
use crate::figures::{Figure, figures};
use crate::message::{Batch, KEY_BYTES_MAX, Message, Provenance, SourceId};
use crate::stage::{Processor, StageError, Turn, Wait};

pub const MODULE: Module = Module {
    name: "aggregate",
    summary: "counts, sums and quantiles over time windows, per key",
    about: "Emits a JSON object for each key of each closed window: `window_start` and `window_end` in milliseconds since \
            1970, `key` if there is one, and the figures. Messages are placed by their own timestamps, or by `--time`. A window \
            closes when every partition of the source has a message later than its end plus `--lateness`, or when the stream \
            ends. A partition with further messages is always waited for. A partition that was read to its end is idle after \
            `--idle` without a message, and not waited for; without `--time`, the clock minus `--idle` stands for its messages \
            while the stream keeps up with its source. After a pause of the stream, the messages of the pause come first. \
            Messages for closed windows are late: they are dropped with a warning and counted as `late`, or go to the \
            dead letters, if there are any. Behind `batch`, `aggregate` and `exec`, partitions are not told apart.",
    options: &[
        OptionSpec {
            name: "window",
            takes: OptionType::Duration,
            default: OptionDefault::Value("10s"),
            summary: "The length of a window.",
        },
        OptionSpec {
            name: "slide",
            takes: OptionType::Duration,
            default: OptionDefault::None,
            summary: "The interval between the starts of windows; by default the length, so that windows do not overlap.",
        },
        OptionSpec {
            name: "figures",
            takes: OptionType::Figures,
            default: OptionDefault::Value("count"),
            summary: "The figures to compute, separated by commas: count, sum, min, max, avg, and quantiles such as p50 or p99.9, \
                      accurate to one percent.",
        },
        OptionSpec {
            name: "of",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "The number to aggregate; only count works without it.",
        },
        OptionSpec {
            name: "key",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "The grouping key, as text; messages with null have none.",
        },
        OptionSpec {
            name: "time",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "The time in the message: a timestamp, milliseconds since 1970, or text such as 2026-01-31T12:00:00Z.",
        },
        OptionSpec {
            name: "lateness",
            takes: OptionType::Duration,
            default: OptionDefault::Value("0s"),
            summary: "How long a window waits for late messages.",
        },
        OptionSpec {
            name: "idle",
            takes: OptionType::Duration,
            default: OptionDefault::Value("2s"),
            summary: "How long windows wait for a partition that was read to its end and has no message.",
        },
        OptionSpec {
            name: "keysMax",
            takes: OptionType::Integer(1, 10_000_000),
            default: OptionDefault::Value("100000"),
            summary: "The maximum number of keys in all open windows; messages with further keys are bad messages.",
        },
    ],
    examples: &[
        (
            "stdin | aggregate --window=1m --key=payload.customer --of=payload.amount --figures=count,sum,p99 | stdout",
            "orders of each customer per minute",
        ),
        (
            "stdin | aggregate --window=1h --slide=5m --time=payload.at --lateness=30s | stdout",
            "orders of the last hour, every five minutes, by the time in the message",
        ),
    ],
    check,
    make: StageMaker::Processor(make),
};

/// The reason of a late message in the dead letters.
const LATE: &str = "it is late: its windows are closed";

/// Interval of warnings about late messages.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Maximum number of windows that contain one message.
const WINDOWS_MAX: i64 = 10_000;

fn check(settings: &Settings) -> Result<(), WrongMix> {
    let figures = figures(settings.text("figures")).unwrap_or_default();
    if settings.optional_expression("of").is_none() && figures.iter().any(|figure| *figure != Figure::Count) {
        let message = "Figures other than count need a number";
        return Err(WrongMix::new("figures", message, "Add --of, the number to aggregate."));
    }
    if settings.duration("window").is_zero() {
        return Err(WrongMix::new(
            "window",
            "The window cannot be empty",
            "Use a positive time, such as --window=10s.",
        ));
    }
    let shape = shape(settings);
    if settings.optional_duration("slide").is_some_and(|slide| slide.is_zero()) {
        return Err(WrongMix::new(
            "slide",
            "The slide cannot be empty",
            "Use a positive time, such as --slide=10s.",
        ));
    }
    if shape.slide_ms > shape.length_ms {
        let message = "A slide longer than --window would lose the messages between windows";
        return Err(WrongMix::new("slide", message, "Use at most --window."));
    }
    if shape.length_ms / shape.slide_ms > WINDOWS_MAX {
        let message = format!("A message would belong to more than {WINDOWS_MAX} windows");
        return Err(WrongMix::new("slide", message, "Use a longer slide."));
    }
    Ok(())
}

fn shape(settings: &Settings) -> WindowShape {
    let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let length_ms = ms(settings.duration("window")).max(1);
    WindowShape {
        length_ms,
        slide_ms: settings.optional_duration("slide").map_or(length_ms, ms).max(1),
        lateness_ms: ms(settings.duration("lateness")),
    }
}

fn make(settings: &Settings, site: &Site) -> Result<Box<dyn Processor>, StageError> {
    let figures = figures(settings.text("figures")).unwrap_or_default();
    let shape = shape(settings);
    let with_quantiles = figures.iter().any(|figure| matches!(figure, Figure::Quantile(..)));
    Ok(Box::new(Aggregate {
        windows: Windows::new(shape, with_quantiles, settings.integer("keysMax") as usize),
        figures,
        of: settings.optional_expression("of"),
        key: settings.optional_expression("key"),
        marks: Watermarks::new(
            settings.duration("idle"),
            settings.optional_expression("time").is_none(),
            site.sources.iter().copied(),
        ),
        called: None,
        own: Provenance::single(SourceId::unique()),
        time: settings.optional_expression("time"),
        length_ms: shape.length_ms,
        late: LateMessages::new(site),
    }))
}

struct Aggregate {
    windows: Windows,
    figures: Vec<Figure>,
    of: Option<Arc<Expression>>,
    key: Option<Arc<Expression>>,
    time: Option<Arc<Expression>>,
    marks: Watermarks,
    /// Time of the last call.
    called: Option<Instant>,
    /// The provenance of messages without one.
    own: Provenance,
    length_ms: i64,
    late: LateMessages,
}

/// The count of late messages, which is published and logged.
struct LateMessages {
    stream: Arc<str>,
    findings: Findings,
    count: u64,
    /// Messages of earlier warnings.
    reported: u64,
    warned: Option<Instant>,
}

impl LateMessages {
    fn new(site: &Site) -> LateMessages {
        let (stream, findings) = (site.stream.clone(), site.findings.clone());
        findings.set("late", 0);
        LateMessages { stream, findings, count: 0, reported: 0, warned: None }
    }

    fn count(&mut self) {
        self.count += 1;
        self.findings.set("late", self.count);
    }

    /// Logs late messages, at intervals and at the end.
    fn warn(&mut self, now: Instant, is_end: bool) {
        let is_due = self.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARN_EVERY);
        if self.count > self.reported && (is_due || is_end) {
            let (late, total, stream) = (self.count - self.reported, self.count, &*self.stream);
            tracing::warn!(
                stream,
                late,
                total,
                "Dropped messages for closed windows; a longer --lateness keeps windows open for them"
            );
            (self.reported, self.warned) = (self.count, Some(now));
        }
    }
}

impl Aggregate {
    /// Adds a message. Returns false if it is late.
    fn add(&mut self, message: &Message<'_>, key: &mut BytesMut, from: &Provenance) -> Result<bool, String> {
        let bad = |error: crate::expression::NoValue| error.to_string();
        let time_ms = match &self.time {
            Some(time) => time.time_ms(message).map_err(bad)?,
            None => message.time_ms,
        };
        let value = match &self.of {
            Some(of) => of.number(message).map_err(bad)?,
            None => 0.0,
        };
        key.clear();
        let key = match &self.key {
            Some(expression) => expression.write(message, key).map_err(bad)?.then_some(&key[..]),
            None => None,
        };
        if key.is_some_and(|key| key.len() > KEY_BYTES_MAX) {
            return Err("its key is longer than 4 KiB".to_owned());
        }
        let added = self.windows.add(time_ms, key, value, message.sequence, from.revocable());
        self.marks.observe(from, time_ms);
        self.windows.advance(self.marks.watermark_ms());
        match added {
            Ok(()) => Ok(true),
            Err(WindowRejection::TooManyKeys) => Err("there are more keys than --keysMax".to_owned()),
            Err(WindowRejection::Late) => {
                self.late.count();
                Ok(false)
            }
        }
    }

    fn emit(&self, closed: Vec<ClosedWindow>, batch: &mut Batch) {
        for closed in closed {
            let mut object = Map::new();
            let end_ms = closed.start_ms.saturating_add(self.length_ms);
            object.insert("window_start".to_owned(), json!(closed.start_ms));
            object.insert("window_end".to_owned(), json!(end_ms));
            if let Some(key) = &closed.key {
                object.insert("key".to_owned(), json!(String::from_utf8_lossy(key)));
            }
            let sums = &closed.sums;
            for figure in &self.figures {
                let (name, value) = match figure {
                    Figure::Count => ("count", json!(sums.count)),
                    Figure::Sum => ("sum", number(sums.sum)),
                    Figure::Min => ("min", number(sums.min)),
                    Figure::Max => ("max", number(sums.max)),
                    Figure::Average => ("avg", number(sums.sum / sums.count as f64)),
                    Figure::Quantile(name, share) => {
                        (name.as_str(), sums.quantile(*share).map_or(Value::Null, number))
                    }
                };
                object.insert(name.to_owned(), value);
            }
            let value = Value::Object(object).to_string();
            let key = closed.key.map(|key| bytes::Bytes::from(key.into_vec()));
            batch.push(value.into(), key, end_ms, sums.first_sequence);
        }
    }
}

/// Writes integral numbers as integers.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}

impl Processor for Aggregate {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let mut out = Batch::new();
        let mut key = BytesMut::new();
        let from = batch.provenance.clone().unwrap_or_else(|| self.own.clone());
        self.called = Some(turn.now);
        self.marks.enter(turn.source);
        if let Some(revoked) = from.revoked.as_ref().filter(|revoked| !revoked.is_empty()) {
            self.windows.forget(|(source, partition)| source == from.source && revoked.contains(&partition));
        }
        self.marks.assign(&from);
        for message in batch.messages() {
            match self.add(&message, &mut key, &from) {
                Ok(true) => {}
                Ok(false) => turn.bad.take_late(&message, LATE)?,
                Err(reason) => turn.bad.take(&message, &reason)?,
            }
        }
        self.marks.leave(&from);
        self.windows.advance(self.marks.watermark_ms());
        self.late.warn(turn.now, false);
        let closed = self.windows.close();
        self.emit(closed, &mut out);
        *batch = out;
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        let regular = self.called? + self.marks.interval();
        self.windows.is_open().then_some(regular)
    }

    fn tick(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.called = Some(turn.now);
        self.marks.enter(turn.source);
        self.marks.advance();
        self.windows.advance(self.marks.watermark_ms());
        let closed = self.windows.close();
        self.emit(closed, batch);
        self.late.warn(turn.now, false);
        Ok(())
    }

    fn finish<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async {
            let closed = self.windows.close_all();
            self.emit(closed, batch);
            self.late.warn(Instant::now(), true);
            Ok(())
        })
    }

    /// Windows stay open while partitions change hands: the watermark stands still, because messages that
    /// the source has read ahead would be late.
    fn releases_by(&self) -> Option<Instant> {
        None
    }

    fn keeps_sequences(&self) -> bool {
        false
    }

    fn held_since(&self) -> Option<u64> {
        self.windows.first_sequence()
    }
}
