//! `counter`: counts messages, in total or by key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::declaration::{
    self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker, StageOutput,
};
use crate::expression::Expression;
use crate::message::{Batch, KEY_BYTES_MAX};
use crate::stage::{Sink, StageError, Turn};

/// Maximum number of keys printed at the end.
const SHOWN_MAX: usize = 20;
/// Maximum number of keys published while the stream runs.
const LIVE_MAX: usize = 1000;
/// Interval at which counts are published while the stream runs.
const LIVE_EVERY: Duration = Duration::from_secs(1);
/// The additional interval per key, which keeps publishing cheap relative to counting.
const LIVE_EVERY_FOR_KEY: Duration = Duration::from_micros(10);

pub const MODULE: Module = Module {
    name: "counter",
    summary: "counts messages, in total or by key",
    about: "Prints the total, or the twenty largest counts, when the stream ends; the report of `--json` has all. While the stream runs, \
            `/metrics` has the total and the 1,000 largest counts.",
    options: &[
        OptionSpec {
            name: "name",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "The name of the count; by default that of the stream.",
        },
        OptionSpec {
            name: "by",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "The key to count by; by default only the total is counted.",
        },
        OptionSpec {
            name: "keysMax",
            takes: OptionType::Integer(1, 10_000_000),
            default: OptionDefault::Value("10000"),
            summary: "The maximum number of keys; messages with further keys are bad messages.",
        },
    ],
    examples: &[
        ("stdin | counter", "the number of lines"),
        ("stdin | counter --by=payload.country", "the number of lines per country"),
    ],
    check: declaration::any,
    make: StageMaker::Sink(|settings, site| {
        let name = settings.optional_text("name").unwrap_or(&site.stream).to_owned();
        site.findings.set("name", name.as_str());
        Ok(Box::new(Counter {
            name,
            published_at: Instant::now(),
            is_published: true,
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
    /// Time of the last publication, and true if the counts have not changed since.
    published_at: Instant,
    is_published: bool,
    by: Option<Arc<Expression>>,
    keys_max: usize,
    count: u64,
    /// By canonical JSON.
    counts: BTreeMap<Vec<u8>, u64>,
    findings: Findings,
    console: Arc<dyn StageOutput>,
}

impl Counter {
    /// The time of the next publication.
    fn publish_at(&self) -> Instant {
        self.published_at
            + LIVE_EVERY
            + LIVE_EVERY_FOR_KEY * u32::try_from(self.counts.len()).unwrap_or(u32::MAX)
    }

    fn publish(&mut self, now: Instant) {
        self.published_at = now;
        self.is_published = true;
        self.findings.set("count", self.count);
        if self.by.is_some() {
            self.findings.set("counts", self.object(self.largest(LIVE_MAX)));
        }
    }

    /// A key for people: texts have quotes only where they could be taken for another key, such as "1" for 1.
    fn text(&self, key: &[u8]) -> String {
        match serde_json::from_slice::<String>(key) {
            Ok(text) if !text.starts_with('"') && !self.counts.contains_key(text.as_bytes()) => text,
            _ => String::from_utf8_lossy(key).into_owned(),
        }
    }

    fn object<'a>(
        &self,
        counts: impl IntoIterator<Item = (&'a Vec<u8>, &'a u64)>,
    ) -> serde_json::Map<String, serde_json::Value> {
        counts.into_iter().map(|(key, count)| (self.text(key), (*count).into())).collect()
    }

    /// The keys with the largest counts, in order.
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

impl Sink for Counter {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.is_published = false;
        let Some(by) = &self.by else {
            self.count += batch.len() as u64;
            return Ok(());
        };
        let mut key = BytesMut::new();
        for message in batch.messages() {
            key.clear();
            if let Err(error) = by.write_canonical(&message, &mut key) {
                turn.bad.take(&message, &error.to_string())?;
                continue;
            }
            if let Some(count) = self.counts.get_mut(&key[..]) {
                *count += 1;
            } else if key.len() > KEY_BYTES_MAX {
                turn.bad.take(&message, "its key is longer than 4 KiB")?;
                continue;
            } else if self.counts.len() < self.keys_max {
                self.counts.insert(key.to_vec(), 1);
            } else {
                turn.bad.take(&message, "there are more keys than --keysMax")?;
                continue;
            }
            self.count += 1;
        }
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.is_published).then(|| self.publish_at())
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if !self.is_published && turn.now >= self.publish_at() {
            self.publish(turn.now);
        }
        Ok(())
    }

    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.findings.set("count", self.count);
        self.console.line(&format!("{}: {}", self.name, self.count));
        if self.by.is_none() {
            return Ok(());
        }
        self.findings.set("counts", self.object(&self.counts));
        let largest = self.largest(SHOWN_MAX);
        for (key, count) in &largest {
            self.console.line(&format!("  {}: {count}", self.text(key)));
        }
        if self.counts.len() > largest.len() {
            self.console.line(&format!("  and {} more keys", self.counts.len() - largest.len()));
        }
        Ok(())
    }
}
