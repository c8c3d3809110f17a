//! `counter`: counts messages, in total or by key.
//!
//! The entries of durable state have `t` as the key of the total, or `k` and the key of a count. The value is
//! the count (eight bytes, big-endian).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::time::Instant;

use crate::declaration::{
    self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker, StageOutput,
};
use crate::expression::Expression;
use crate::message::{Batch, KEY_BYTES_MAX, Provenance, RevocablePartition};
use crate::stage::{Sink, StageError, Turn};
use crate::state::{Change, Entries, State, UnknownEntry};

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
            `/metrics` has the total and the 1,000 largest counts. Behind a `kafka` source with a group, the counts outlive the \
            process: they are in the topic `GROUP-LABEL-changelog`, by partition, and an instance shows those of its partitions. \
            Elsewhere, counting begins with the process.",
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
            options: format!("by={}", settings.expression_text("by")),
            parts: BTreeMap::new(),
            keys: 0,
            is_durable: site.has_durable_state,
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
    /// The option that the keys depend on.
    options: String,
    /// By partition, if the source can lose it.
    parts: BTreeMap<Option<RevocablePartition>, Part>,
    /// The number of keys in all parts.
    keys: usize,
    is_durable: bool,
    findings: Findings,
    console: Arc<dyn StageOutput>,
}

/// The counts by key, which is canonical JSON.
type Counts = BTreeMap<Vec<u8>, u64>;

/// The counts of a partition.
#[derive(Default)]
struct Part {
    count: u64,
    counts: Counts,
    /// Keys with counts that have changed since the last transaction, if the state is durable.
    changed: BTreeSet<Vec<u8>>,
    is_changed: bool,
}

impl Counter {
    /// The number of messages.
    fn count(&self) -> u64 {
        self.parts.values().map(|part| part.count).sum()
    }

    /// The counts over all partitions.
    fn counts(&self) -> Cow<'_, Counts> {
        let mut parts = self.parts.values();
        let Some(first) = parts.next() else { return Cow::Owned(Counts::new()) };
        let mut all = Cow::Borrowed(&first.counts);
        for part in parts {
            for (key, count) in &part.counts {
                *all.to_mut().entry(key.clone()).or_default() += count;
            }
        }
        all
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.parts.values().any(|part| part.counts.contains_key(key))
    }

    /// The time of the next publication.
    fn publish_at(&self) -> Instant {
        self.published_at + LIVE_EVERY + LIVE_EVERY_FOR_KEY * u32::try_from(self.keys).unwrap_or(u32::MAX)
    }

    fn publish(&mut self, now: Instant) {
        self.published_at = now;
        self.is_published = true;
        self.findings.set("count", self.count());
        if self.by.is_some() {
            let counts = self.counts();
            self.findings.set("counts", object(&counts, largest(&counts, LIVE_MAX)));
        }
    }
}

/// A key for people: texts have quotes only where they could be taken for another key, such as "1" for 1.
fn text(counts: &Counts, key: &[u8]) -> String {
    match serde_json::from_slice::<String>(key) {
        Ok(text) if !text.starts_with('"') && !counts.contains_key(text.as_bytes()) => text,
        _ => String::from_utf8_lossy(key).into_owned(),
    }
}

/// Some of the counts, with keys for people.
fn object<'a>(
    counts: &Counts,
    some: impl IntoIterator<Item = (&'a Vec<u8>, &'a u64)>,
) -> serde_json::Map<String, serde_json::Value> {
    some.into_iter().map(|(key, count)| (text(counts, key), (*count).into())).collect()
}

/// The keys with the largest counts, in order.
fn largest(counts: &Counts, count_max: usize) -> Vec<(&Vec<u8>, &u64)> {
    let order = |a: &(&Vec<u8>, &u64), b: &(&Vec<u8>, &u64)| b.1.cmp(a.1).then(a.0.cmp(b.0));
    let mut largest: Vec<_> = counts.iter().collect();
    if largest.len() > count_max {
        largest.select_nth_unstable_by(count_max, order);
        largest.truncate(count_max);
    }
    largest.sort_by(order);
    largest
}

impl Sink for Counter {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.is_published = false;
        let from = batch.provenance.as_ref().and_then(Provenance::revocable).filter(|_| self.is_durable);
        let Some(by) = self.by.clone() else {
            let part = self.parts.entry(from).or_default();
            part.count += batch.len() as u64;
            part.is_changed = true;
            return Ok(());
        };
        let mut key = BytesMut::new();
        for message in batch.messages() {
            key.clear();
            if let Err(error) = by.write_canonical(&message, &mut key) {
                turn.bad.take(&message, &error.to_string())?;
                continue;
            }
            let part = self.parts.entry(from).or_default();
            if let Some(count) = part.counts.get_mut(&key[..]) {
                *count += 1;
            } else if key.len() > KEY_BYTES_MAX {
                turn.bad.take(&message, "its key is longer than 4 KiB")?;
                continue;
            } else {
                let is_known = self.has_key(&key);
                if !is_known && self.keys >= self.keys_max {
                    turn.bad.take(&message, "there are more keys than --keysMax")?;
                    continue;
                }
                self.keys += usize::from(!is_known);
                self.parts.entry(from).or_default().counts.insert(key.to_vec(), 1);
            }
            let part = self.parts.entry(from).or_default();
            part.count += 1;
            if self.is_durable && !part.changed.contains(&key[..]) {
                part.changed.insert(key.to_vec());
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn State> {
        if self.is_durable { Some(self) } else { None }
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
        self.findings.set("count", self.count());
        self.console.line(&format!("{}: {}", self.name, self.count()));
        if self.by.is_none() {
            return Ok(());
        }
        let counts = self.counts();
        self.findings.set("counts", object(&counts, counts.iter()));
        let largest = largest(&counts, SHOWN_MAX);
        for (key, count) in &largest {
            self.console.line(&format!("  {}: {count}", text(&counts, key)));
        }
        if counts.len() > largest.len() {
            self.console.line(&format!("  and {} more keys", counts.len() - largest.len()));
        }
        Ok(())
    }
}

/// The key of the total's entry.
const TOTAL: &[u8] = b"t";

impl State for Counter {
    fn options(&self) -> String {
        self.options.clone()
    }

    fn add(&mut self, of: RevocablePartition, entries: Entries) -> Result<(), UnknownEntry> {
        let mut part = Part::default();
        for (entry, mut value) in entries {
            let count = value.try_get_u64()?;
            match &entry[..] {
                TOTAL => part.count += count,
                [b'k', key @ ..] => {
                    part.count += count;
                    part.counts.insert(key.to_vec(), count);
                }
                _ => return Err(UnknownEntry),
            }
        }
        self.keys += part.counts.keys().filter(|key| !self.has_key(key)).count();
        self.parts.insert(Some(of), part);
        self.is_published = false;
        Ok(())
    }

    fn remove(&mut self, is_removed: &dyn Fn(RevocablePartition) -> bool) {
        self.parts.retain(|of, _| !of.is_some_and(is_removed));
        self.keys = self.counts().len();
        self.is_published = false;
    }

    fn has_changed(&self) -> bool {
        self.parts.values().any(|part| part.is_changed || !part.changed.is_empty())
    }

    fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (of, part) in self.parts.iter_mut().filter_map(|(of, part)| Some((of.as_ref()?, part))) {
            let value = |count: u64| Some(count.to_be_bytes().to_vec());
            if std::mem::take(&mut part.is_changed) {
                changes.push(Change { of: *of, key: TOTAL.to_vec(), value: value(part.count) });
            }
            for key in std::mem::take(&mut part.changed) {
                let count = part.counts.get(&key).copied().unwrap_or_default();
                let entry = [b"k", &key[..]].concat();
                changes.push(Change { of: *of, key: entry, value: value(count) });
            }
        }
        changes
    }
}
