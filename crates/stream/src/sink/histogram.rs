//! `histogram`: the distribution of a number.
//!
//! The entries of durable state have `c` and the lowest number of a class as the key, in steps, and its count
//! as the value; and `s` has the exact minimum and maximum in steps, and the sum. All have eight bytes,
//! big-endian.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut};
use hdrhistogram::Histogram as Hdr;
use tokio::time::Instant;

use crate::declaration::{
    self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker, StageOutput,
};
use crate::expression::Expression;
use crate::message::{Batch, Provenance, RevocablePartition};
use crate::stage::{Sink, StageError, Turn};
use crate::state::{Change, Entries, State, UnknownEntry};

/// The reported percentiles.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9)];

/// Interval at which the figures are published while the stream runs.
const LIVE_EVERY: Duration = Duration::from_secs(1);

pub const MODULE: Module = Module {
    name: "histogram",
    summary: "prints the distribution of a number",
    about: "Counts non-negative numbers in steps of `--step`, to three digits; minimum, maximum and mean are exact. A negative number is a bad message. \
            The figures are printed when the stream ends; while it runs, `/metrics` has them. Behind a `kafka` source with a group, \
            the numbers outlive the process: they are in the topic `GROUP-LABEL-changelog`, by partition, and an instance shows those \
            of its partitions. Elsewhere, the histogram begins with the process.",
    options: &[
        OptionSpec {
            name: "of",
            takes: OptionType::Expression,
            default: OptionDefault::Required,
            summary: "The number.",
        },
        OptionSpec {
            name: "step",
            takes: OptionType::Number(1e-9, 1e9),
            default: OptionDefault::Value("1"),
            summary: "The resolution.",
        },
        OptionSpec {
            name: "name",
            takes: OptionType::Name,
            default: OptionDefault::None,
            summary: "The name of the histogram; by default that of the stream.",
        },
    ],
    examples: &[("stdin | histogram --of=payload.amount --step=0.01", "amounts of orders, to the cent")],
    check: declaration::any,
    make: StageMaker::Sink(|settings, site| {
        let step = settings.optional_number("step").unwrap_or(1.0);
        let name = settings.optional_text("name").unwrap_or(&site.stream).to_owned();
        site.findings.set("name", name.as_str());
        Ok(Box::new(Histogram {
            name,
            published_at: Instant::now(),
            is_published: true,
            of: settings.expression("of"),
            step,
            options: format!("of={} step={step}", settings.expression_text("of")),
            parts: BTreeMap::new(),
            is_durable: site.has_durable_state,
            findings: site.findings.clone(),
            console: site.console.clone(),
        }))
    }),
};

struct Histogram {
    name: String,
    /// Time of the last publication, and true if the figures have not changed since.
    published_at: Instant,
    is_published: bool,
    of: Arc<Expression>,
    step: f64,
    /// The options that the numbers depend on.
    options: String,
    /// By partition, if the source can lose it.
    parts: BTreeMap<Option<RevocablePartition>, Part>,
    is_durable: bool,
    findings: Findings,
    console: Arc<dyn StageOutput>,
}

/// The numbers of a partition, in steps.
#[derive(Clone)]
struct Part {
    seen: Hdr<u64>,
    /// The exact minimum and maximum.
    least: u64,
    most: u64,
    /// The exact sum, not in steps.
    sum: f64,
    /// Classes whose counts have changed since the last transaction, if the state is durable.
    changed: BTreeSet<u64>,
}

impl Part {
    fn new() -> Part {
        let seen = Hdr::new(3).expect("three digits are allowed");
        Part { seen, least: u64::MAX, most: 0, sum: 0.0, changed: BTreeSet::new() }
    }

    fn merge(&mut self, other: &Part) {
        self.seen.add(&other.seen).expect("it has the same digits, and grows");
        (self.least, self.most) = (self.least.min(other.least), self.most.max(other.most));
        self.sum += other.sum;
    }
}

impl Histogram {
    /// The numbers of all partitions.
    fn all(&self) -> Part {
        let mut parts = self.parts.values();
        let mut all = parts.next().cloned().unwrap_or_else(Part::new);
        parts.for_each(|part| all.merge(part));
        all
    }

    /// The figures of a non-empty histogram.
    fn figures(&self, all: &Part) -> Vec<(&'static str, f64)> {
        if all.seen.is_empty() {
            return Vec::new();
        }
        let scaled = |steps: u64| steps as f64 * self.step;
        let mut figures = vec![("min", scaled(all.least)), ("mean", all.sum / all.seen.len() as f64)];
        for (name, percentile) in PERCENTILES {
            let found = all.seen.value_at_percentile(percentile);
            figures.push((name, scaled(found.clamp(all.least, all.most))));
        }
        figures.push(("max", scaled(all.most)));
        // Steps are not exact in binary: round to the digits of the step.
        figures.iter().map(|(name, value)| (*name, (value * 1e9).round() / 1e9)).collect()
    }

    fn count(&mut self, from: Option<RevocablePartition>, number: f64) -> Result<(), String> {
        let steps = (number / self.step).round();
        if !(0.0..9e15).contains(&steps) {
            return Err(format!("{number} is negative or too large"));
        }
        let steps = steps as u64;
        let part = self.parts.entry(from).or_insert_with(Part::new);
        part.seen.record(steps).map_err(|error| error.to_string())?;
        (part.least, part.most) = (part.least.min(steps), part.most.max(steps));
        part.sum += number;
        if self.is_durable {
            part.changed.insert(part.seen.lowest_equivalent(steps));
        }
        Ok(())
    }

    fn publish(&mut self, now: Instant) {
        self.published_at = now;
        self.is_published = true;
        let all = self.all();
        self.findings.set("count", all.seen.len());
        for (name, value) in self.figures(&all) {
            self.findings.set(name, value);
        }
    }
}

impl Sink for Histogram {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.is_published = false;
        let from = batch.provenance.as_ref().and_then(Provenance::revocable).filter(|_| self.is_durable);
        for message in batch.messages() {
            let number = self.of.number(&message).map_err(|error| error.to_string());
            if let Err(reason) = number.and_then(|number| self.count(from, number)) {
                turn.bad.take(&message, &reason)?;
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Option<&mut dyn State> {
        if self.is_durable { Some(self) } else { None }
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.is_published).then(|| self.published_at + LIVE_EVERY)
    }

    fn tick(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if !self.is_published && turn.now >= self.published_at + LIVE_EVERY {
            self.publish(turn.now);
        }
        Ok(())
    }

    fn finish(&mut self, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.publish(turn.now);
        let all = self.all();
        let mut line = format!("{}: {} numbers", self.name, all.seen.len());
        for (name, value) in self.figures(&all) {
            line.push_str(&format!(", {name} {value}"));
        }
        self.console.line(&line);
        Ok(())
    }
}

/// The key of the entry with minimum, maximum and sum.
const SUMMARY: &[u8] = b"s";

impl State for Histogram {
    fn options(&self) -> String {
        self.options.clone()
    }

    fn add(&mut self, of: RevocablePartition, entries: Entries) -> Result<(), UnknownEntry> {
        let mut part = Part::new();
        for (entry, mut value) in entries {
            match &entry[..] {
                SUMMARY => {
                    (part.least, part.most) = (value.try_get_u64()?, value.try_get_u64()?);
                    part.sum = value.try_get_f64()?;
                }
                [b'c', class @ ..] => {
                    let mut class = class;
                    let (class, count) = (class.try_get_u64()?, value.try_get_u64()?);
                    part.seen.record_n(class, count).map_err(|_| UnknownEntry)?;
                }
                _ => return Err(UnknownEntry),
            }
        }
        self.parts.insert(Some(of), part);
        self.is_published = false;
        Ok(())
    }

    fn remove(&mut self, is_removed: &dyn Fn(RevocablePartition) -> bool) {
        self.parts.retain(|of, _| !of.is_some_and(is_removed));
        self.is_published = false;
    }

    fn has_changed(&self) -> bool {
        self.parts.values().any(|part| !part.changed.is_empty())
    }

    fn take_changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for (of, part) in self.parts.iter_mut().filter_map(|(of, part)| Some((of.as_ref()?, part))) {
            let changed = std::mem::take(&mut part.changed);
            if !changed.is_empty() {
                let mut summary = Vec::new();
                summary.put_u64(part.least);
                summary.put_u64(part.most);
                summary.put_f64(part.sum);
                changes.push(Change { of: *of, key: SUMMARY.to_vec(), value: Some(summary) });
            }
            for class in changed {
                let value = Some(part.seen.count_at(class).to_be_bytes().to_vec());
                changes.push(Change { of: *of, key: [b"c", &class.to_be_bytes()[..]].concat(), value });
            }
        }
        changes
    }
}
