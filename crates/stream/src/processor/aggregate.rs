//! `aggregate`: counts, sums and quantiles over time windows. `windows` holds the logic, and `watermarks`
//! when windows close; this module reads messages and writes the results of closed windows.
//!
//! Windows close when every partition of the source has a later message or is idle, and at the end of the
//! source. Without `--time`, the clock stands for partitions that were read to the end.
//!
//! The entries of durable state are the aggregates, whose key is `s`, the window's start in milliseconds
//! since 1970 (eight bytes, big-endian), and then `k` and the key, if there is one; and `m`, the marks of the
//! partition: the time of its latest message, and the time up to which its windows are closed, in
//! milliseconds since 1970 (eight bytes each). Numbers in values are big-endian, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::watermarks::Watermarks;
use super::windows::{ClosedWindow, Sums, WindowRejection, WindowShape, Windows};
use crate::declaration::{
    Findings, Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::expression::Expression;
use crate::figures::{Figure, figures};
use crate::message::{Batch, KEY_BYTES_MAX, Message, Provenance, RevocablePartition, SourceId};
use crate::stage::{Processor, StageError, Turn, Wait};
use crate::state::{Change, Entries, State, UnknownEntry};

pub const MODULE: Module = Module {
    name: "aggregate",
    summary: "counts, sums and quantiles over time windows, per key",
    about: "Emits a JSON object for each key of each closed window: `window_start` and `window_end` in milliseconds since \
            1970, `key` if there is one, and the figures. Messages are placed by their own timestamps, or by `--time`. A window \
            closes when every partition of the source has a message later than its end plus `--lateness`, or when the source \
            ends. A partition with further messages is always waited for. A partition that was read to its end is idle after \
            `--idle` without a message, and not waited for; without `--time`, the clock minus `--idle` stands for its messages \
            while the stream keeps up with its source. After a pause of the stream, the messages of the pause come first. \
            Messages for closed windows are late: they are dropped with a warning and counted as `late`, or go to the \
            dead letters, if there are any. Behind `batch`, `aggregate` and `exec`, partitions are not told apart. \
            Behind a `kafka` source with a group, open windows outlive the process: a stream that is stopped or killed goes \
            on with them. They are in the topic `GROUP-LABEL-changelog`, and follow their partition to another instance. \
            Elsewhere, open windows are in memory, and close when the stream is stopped.",
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
        windows: Windows::new(
            shape,
            with_quantiles,
            settings.integer("keysMax") as usize,
            site.has_durable_state,
        ),
        options: format!(
            "window={} slide={} quantiles={with_quantiles} of={} key={} time={}",
            shape.length_ms,
            shape.slide_ms,
            settings.expression_text("of"),
            settings.expression_text("key"),
            settings.expression_text("time")
        ),
        written: BTreeMap::new(),
        last_sequence: 0,
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
    /// The options that the aggregates depend on.
    options: String,
    /// The marks of the partitions in the state.
    written: BTreeMap<RevocablePartition, Marks>,
    /// The last message. If the state is durable, it stands for the results that it causes: earlier messages
    /// may be committed.
    last_sequence: u64,
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

/// The time of the latest message of a partition, and the time up to which its windows are closed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Marks {
    latest_ms: i64,
    closed_ms: i64,
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
            let sequence = if self.windows.is_durable() { self.last_sequence } else { sums.first_sequence };
            batch.push(value.into(), key, end_ms, sequence);
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
            // Durable state was removed before.
            self.windows.forget(|(source, partition)| source == from.source && revoked.contains(&partition));
        }
        self.marks.assign(&from);
        self.last_sequence = batch.last_sequence().unwrap_or(self.last_sequence);
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
        if self.windows.is_durable() { None } else { self.windows.first_sequence() }
    }

    fn state(&mut self) -> Option<&mut dyn State> {
        if self.windows.is_durable() { Some(self) } else { None }
    }
}

impl State for Aggregate {
    fn options(&self) -> String {
        self.options.clone()
    }

    fn add(&mut self, of: RevocablePartition, entries: Entries) -> Result<(), UnknownEntry> {
        let marks = match entries.get(MARKS).cloned() {
            Some(mut marks) => Marks { latest_ms: marks.try_get_i64()?, closed_ms: marks.try_get_i64()? },
            None => Marks { latest_ms: i64::MIN, closed_ms: i64::MIN },
        };
        self.windows.join(of, marks.closed_ms);
        self.marks.join(of.0, of.1, marks.latest_ms);
        self.written.insert(of, marks);
        for (key, mut value) in entries.into_iter().filter(|(key, _)| key != MARKS) {
            let (start_ms, key) = read_key(&key).ok_or(UnknownEntry)?;
            self.windows.restore((start_ms, key.map(Into::into), of), Sums::read(&mut value)?);
        }
        Ok(())
    }

    fn remove(&mut self, is_removed: &dyn Fn(RevocablePartition) -> bool) {
        self.windows.forget(is_removed);
        self.marks.leave_out(is_removed);
        self.written.retain(|of, _| !is_removed(*of));
    }

    fn has_changed(&self) -> bool {
        self.windows.has_changed()
    }

    fn take_changes(&mut self) -> Vec<Change> {
        let changed = self.windows.take_changed().into_iter().map(|((start_ms, key, of), sums)| {
            let value = sums.map(|sums| {
                let mut value = Vec::new();
                sums.write(&mut value);
                value
            });
            Change { of, key: entry_key(start_ms, key.as_deref()), value }
        });
        let mut changes: Vec<Change> = changed.collect();
        for (of, written) in &mut self.written {
            let latest_ms = self.marks.latest_ms(*of);
            let marks = Marks { latest_ms, closed_ms: self.windows.closed_ms(Some(*of)) };
            // A partition without messages has no position, either.
            if latest_ms > i64::MIN && marks != *written {
                let mut value = Vec::new();
                [marks.latest_ms, marks.closed_ms].into_iter().for_each(|time_ms| value.put_i64(time_ms));
                changes.push(Change { of: *of, key: MARKS.to_vec(), value: Some(value) });
                *written = marks;
            }
        }
        changes
    }
}

/// The key of the marks of a partition.
const MARKS: &[u8] = b"m";

/// The key of an aggregate's entry.
fn entry_key(start_ms: i64, key: Option<&[u8]>) -> Vec<u8> {
    let mut entry = vec![b's'];
    entry.put_i64(start_ms);
    if let Some(key) = key {
        entry.put_u8(b'k');
        entry.put_slice(key);
    }
    entry
}

/// The window and the key of an aggregate's entry.
fn read_key(entry: &[u8]) -> Option<(i64, Option<&[u8]>)> {
    let (start_ms, key) = entry.strip_prefix(b"s")?.split_first_chunk::<8>()?;
    let key = match key {
        [] => None,
        [b'k', key @ ..] => Some(key),
        _ => return None,
    };
    Some((i64::from_be_bytes(*start_ms), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_the_window_and_the_key() {
        for (start_ms, key) in [(0, None), (-60_000, Some(&b""[..])), (i64::MAX, Some(&b"k"[..]))] {
            assert_eq!(read_key(&entry_key(start_ms, key)), Some((start_ms, key)));
        }
        for wrong in [&b""[..], b"s1234567", b"x12345678", b"s12345678x"] {
            assert_eq!(read_key(wrong), None);
        }
    }
}
