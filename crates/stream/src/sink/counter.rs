//! `counter`: counts messages, all of them or by key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::declaration::{self, Absent, Console, Findings, Make, Module, OptionSpec, Takes};
use crate::expression::Expression;
use crate::message::Batch;
use crate::stage::{Sink, StageError, Turn};

/// Keys that are shown at the end.
const SHOWN_MAX: usize = 20;
/// Keys that are told of while the stream runs.
const LIVE_MAX: usize = 1000;
/// How often counts are told while the stream runs.
const LIVE_EVERY: Duration = Duration::from_secs(1);
/// So much more for each key, so that the telling costs little beside the counting.
const LIVE_EVERY_FOR_KEY: Duration = Duration::from_micros(10);

/// The declaration.
pub const MODULE: Module = Module {
    name: "counter",
    summary: "counts messages, all of them or by key, and tells at the end",
    about: "The counts are in the report of `--json`, the twenty largest are shown. While the stream runs, the count and those of \
            the 1,000 keys with the largest are on `/metrics`.",
    options: &[
        OptionSpec {
            name: "name",
            takes: Takes::Name,
            default: Absent::None,
            summary: "What the count is called; without, the name of the stream.",
        },
        OptionSpec {
            name: "by",
            takes: Takes::Expression,
            default: Absent::None,
            summary: "What messages are counted by; without, there is one count.",
        },
        OptionSpec {
            name: "keysMax",
            takes: Takes::Integer(1, 10_000_000),
            default: Absent::Value("10000"),
            summary: "How many keys are counted; messages of others are bad messages.",
        },
    ],
    examples: &[
        ("stdin | counter", "how many lines there are"),
        ("stdin | counter --by=payload.country", "how many lines there are of each country"),
    ],
    check: declaration::any,
    make: Make::Sink(|settings, site| {
        let name = settings.optional_text("name").unwrap_or(&site.stream).to_owned();
        site.findings.set("name", name.as_str());
        Ok(Box::new(Counter {
            name,
            told_at: Instant::now(),
            is_told: true,
            by: settings.optional_expression("by"),
            keys_max: settings.integer("keysMax") as usize,
            count: 0,
            counts: BTreeMap::new(),
            findings: site.findings.clone(),
            console: site.console.clone(),
        }))
    }),
};

struct Counter {
    name: String,
    /// When the counts were told of last, and whether they are what was told.
    told_at: Instant,
    is_told: bool,
    by: Option<Arc<Expression>>,
    keys_max: usize,
    count: u64,
    counts: BTreeMap<Vec<u8>, u64>,
    findings: Findings,
    console: Arc<dyn Console>,
}

impl Counter {
    /// The next time to tell of the counts.
    fn tell_at(&self) -> Instant {
        self.told_at + LIVE_EVERY + LIVE_EVERY_FOR_KEY * u32::try_from(self.counts.len()).unwrap_or(u32::MAX)
    }

    fn tell(&mut self, now: Instant) {
        self.told_at = now;
        self.is_told = true;
        self.findings.set("count", self.count);
        if self.by.is_some() {
            self.findings.set("counts", object(self.largest(LIVE_MAX)));
        }
    }

    /// The keys with the largest counts, these first.
    fn largest(&self, count_max: usize) -> Vec<(&Vec<u8>, &u64)> {
        let order = |a: &(&Vec<u8>, &u64), b: &(&Vec<u8>, &u64)| b.1.cmp(a.1).then(a.0.cmp(b.0));
        let mut largest: Vec<_> = self.counts.iter().collect();
        if largest.len() > count_max {
            largest.select_nth_unstable_by(count_max, order);
            largest.truncate(count_max);
        }
        largest.sort_by(order);
        largest
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn object<'a>(
    counts: impl IntoIterator<Item = (&'a Vec<u8>, &'a u64)>,
) -> serde_json::Map<String, serde_json::Value> {
    counts.into_iter().map(|(key, count)| (text(key), (*count).into())).collect()
}

impl Sink for Counter {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.is_told = false;
        let Some(by) = &self.by else {
            self.count += batch.len() as u64;
            return Ok(());
        };
        let mut key = BytesMut::new();
        for message in batch.messages() {
            key.clear();
            if let Err(error) = by.write(&message, &mut key) {
                turn.bad.take(&message, &error.to_string())?;
                continue;
            }
            if let Some(count) = self.counts.get_mut(&key[..]) {
                *count += 1;
            } else if self.counts.len() < self.keys_max {
                self.counts.insert(key.to_vec(), 1);
            } else {
                turn.bad.take(&message, "there are more keys than --keysMax allows")?;
                continue;
            }
            self.count += 1;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.is_told).then(|| self.tell_at())
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if !self.is_told && turn.now >= self.tell_at() {
            self.tell(turn.now);
        }
        Ok(())
    }

    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.findings.set("count", self.count);
        self.console.line(&format!("{}: {}", self.name, self.count));
        if self.by.is_none() {
            return Ok(());
        }
        self.findings.set("counts", object(&self.counts));
        let largest = self.largest(SHOWN_MAX);
        for (key, count) in &largest {
            self.console.line(&format!("  {}: {count}", text(key)));
        }
        if self.counts.len() > largest.len() {
            self.console.line(&format!("  and {} keys more", self.counts.len() - largest.len()));
        }
        Ok(())
    }
}
