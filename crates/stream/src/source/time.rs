//! `time`: emits the time at intervals.

use std::time::Duration;

use bytes::Bytes;
use chrono::{Local, TimeZone};
use tokio::time::{Instant, sleep_until};

use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::message::Batch;
use crate::stage::{FillResult, Source, StageError, Turn, Wait};

pub const MODULE: Module = Module {
    name: "time",
    summary: "emits the time of day at intervals",
    about: "",
    options: &[
        OptionSpec {
            name: "fixedDelay",
            takes: OptionType::Seconds,
            default: OptionDefault::Value("1s"),
            summary: "The interval between messages.",
        },
        OptionSpec {
            name: "initialDelay",
            takes: OptionType::Seconds,
            default: OptionDefault::Value("0s"),
            summary: "The delay of the first message.",
        },
        OptionSpec {
            name: "format",
            takes: OptionType::TimeFormat,
            default: OptionDefault::Value("%Y-%m-%d %H:%M:%S"),
            summary: "The strftime format of the time.",
        },
        OptionSpec {
            name: "count",
            takes: OptionType::Integer(0, u64::MAX),
            default: OptionDefault::Value("0"),
            summary: "The number of messages; 0 is unlimited.",
        },
    ],
    examples: &[("time | log", "the time, every second")],
    check: declaration::any,
    make: StageMaker::Source(|settings, _site| {
        let count = settings.integer("count");
        Ok(Box::new(Time {
            delay: settings.duration("fixedDelay").max(Duration::from_millis(1)),
            next: Instant::now() + settings.duration("initialDelay"),
            format: settings.text("format").to_owned(),
            left: if count == 0 { u64::MAX } else { count },
            sequence: 0,
        }))
    }),
};

struct Time {
    delay: Duration,
    next: Instant,
    format: String,
    left: u64,
    sequence: u64,
}

impl Source for Time {
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError> {
        batch.clear();
        if self.left == 0 {
            return Ok(FillResult::End);
        }
        if turn.now < self.next {
            return Ok(FillResult::Pending);
        }
        // Ticks missed while the stream was busy are skipped.
        self.next = (self.next + self.delay).max(turn.now);
        self.left -= 1;
        batch.push(Bytes::from(self.text(turn.time_ms)), None, turn.time_ms, self.sequence);
        self.sequence += 1;
        Ok(FillResult::Ready)
    }

    fn ready(&mut self) -> Wait<'_, ()> {
        Box::pin(sleep_until(self.next))
    }

    fn close(&mut self) {
        self.left = 0;
    }
}

impl Time {
    fn text(&self, time_ms: i64) -> String {
        use std::fmt::Write;
        let time = Local.timestamp_millis_opt(time_ms).earliest().unwrap_or_default();
        let mut text = String::new();
        // An unknown directive is an error of formatting: fall back to the default format.
        if write!(text, "{}", time.format(&self.format)).is_err() {
            text = time.to_rfc3339();
        }
        text
    }
}
