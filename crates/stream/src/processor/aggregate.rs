//! `aggregate`: counts, sums and quantiles over time windows. `windows` holds the logic; this module reads
//! messages and writes the results of closed windows.
//!
//! Without `--time`, windows close with the clock. With `--time`, windows close when a later message arrives,
//! and at the end of the stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::windows::{ClosedWindow, WindowRejection, WindowShape, Windows};
use crate::clock;
use crate::declaration::{
    Findings, Module, OptionDefault, OptionSpec, OptionType, Settings, Site, StageMaker, WrongMix,
};
use crate::expression::Expression;
use crate::figures::{Figure, figures};
use crate::message::{Batch, Message};
use crate::stage::{Processor, StageError, Turn, Wait};

pub const MODULE: Module = Module {
    name: "aggregate",
    summary: "counts, sums and quantiles over time windows, per key",
    about: "Emits a JSON object for each key of each closed window: `window_start` and `window_end` in milliseconds since \
            1970, `key` if there is one, and the figures. Without `--time`, messages are placed by their own timestamps and \
            windows close with the clock. With it, a window closes when a message later than its end plus `--lateness` \
            arrives, or when the stream ends; messages for closed windows are dropped and counted as `late`.",
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
            summary: "The grouping key.",
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
        time: settings.optional_expression("time"),
        length_ms: shape.length_ms,
        late: 0,
        findings: site.findings.clone(),
    }))
}

struct Aggregate {
    windows: Windows,
    figures: Vec<Figure>,
    of: Option<Arc<Expression>>,
    key: Option<Arc<Expression>>,
    time: Option<Arc<Expression>>,
    length_ms: i64,
    late: u64,
    findings: Findings,
}

impl Aggregate {
    fn add(&mut self, message: &Message<'_>, key: &mut BytesMut) -> Result<(), String> {
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
        if let Some(expression) = &self.key {
            expression.write(message, key).map_err(bad)?;
        }
        match self.windows.add(time_ms, self.key.is_some().then_some(&key[..]), value, message.sequence) {
            Ok(()) => Ok(()),
            Err(WindowRejection::TooManyKeys) => Err("there are more keys than --keysMax".to_owned()),
            Err(WindowRejection::Late) => {
                self.late += 1;
                self.findings.set("late", self.late);
                Ok(())
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
        for message in batch.messages() {
            if let Err(reason) = self.add(&message, &mut key) {
                turn.bad.take(&message, &reason)?;
            }
        }
        let closed = self.windows.close();
        self.emit(closed, &mut out);
        *batch = out;
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        if self.time.is_some() {
            return None;
        }
        let wait = self.windows.next_close_ms()?.saturating_sub(clock::time_ms()).max(1);
        Some(Instant::now() + Duration::from_millis(wait as u64))
    }

    fn tick(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.time.is_none() {
            self.windows.observe(turn.time_ms);
            let closed = self.windows.close();
            self.emit(closed, batch);
        }
        Ok(())
    }

    fn finish<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async {
            let closed = self.windows.close_all();
            self.emit(closed, batch);
            Ok(())
        })
    }

    fn held_since(&self) -> Option<u64> {
        self.windows.first_sequence()
    }
}
