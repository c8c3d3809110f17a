//! `histogram`: the distribution of a number.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram as Hdr;
use tokio::time::Instant;

use crate::declaration::{
    self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker, StageOutput,
};
use crate::expression::Expression;
use crate::message::Batch;
use crate::stage::{Sink, StageError, Turn};

/// The reported percentiles.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9)];

/// Interval at which the figures are published while the stream runs.
const LIVE_EVERY: Duration = Duration::from_secs(1);

pub const MODULE: Module = Module {
    name: "histogram",
    summary: "prints the distribution of a number",
    about: "Counts non-negative numbers in steps of `--step`, to three digits; minimum, maximum and mean are exact. A negative number is a bad message. \
            The figures are printed when the stream ends; while it runs, `/metrics` has them.",
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
            seen: Hdr::new(3).expect("three digits are allowed"),
            least: u64::MAX,
            most: 0,
            sum: 0.0,
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
    seen: Hdr<u64>,
    /// Exact minimum, maximum and sum, in steps.
    least: u64,
    most: u64,
    sum: f64,
    findings: Findings,
    console: Arc<dyn StageOutput>,
}

impl Histogram {
    /// The figures of a non-empty histogram.
    fn figures(&self) -> Vec<(&'static str, f64)> {
        if self.seen.is_empty() {
            return Vec::new();
        }
        let scaled = |steps: u64| steps as f64 * self.step;
        let mut figures = vec![("min", scaled(self.least)), ("mean", self.sum / self.seen.len() as f64)];
        for (name, percentile) in PERCENTILES {
            let found = self.seen.value_at_percentile(percentile);
            figures.push((name, scaled(found.clamp(self.least, self.most))));
        }
        figures.push(("max", scaled(self.most)));
        // Steps are not exact in binary: round to the digits of the step.
        figures.iter().map(|(name, value)| (*name, (value * 1e9).round() / 1e9)).collect()
    }

    fn count(&mut self, number: f64) -> Result<(), String> {
        let steps = (number / self.step).round();
        if !(0.0..9e15).contains(&steps) {
            return Err(format!("{number} is negative or too large"));
        }
        let steps = steps as u64;
        self.seen.record(steps).map_err(|error| error.to_string())?;
        (self.least, self.most) = (self.least.min(steps), self.most.max(steps));
        self.sum += number;
        Ok(())
    }

    fn publish(&mut self, now: Instant) {
        self.published_at = now;
        self.is_published = true;
        self.findings.set("count", self.seen.len());
        for (name, value) in self.figures() {
            self.findings.set(name, value);
        }
    }
}

impl Sink for Histogram {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.is_published = false;
        for message in batch.messages() {
            let number = self.of.number(&message).map_err(|error| error.to_string());
            if let Err(reason) = number.and_then(|number| self.count(number)) {
                turn.bad.take(&message, &reason)?;
            }
        }
        Ok(())
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
        let mut line = format!("{}: {} numbers", self.name, self.seen.len());
        for (name, value) in self.figures() {
            line.push_str(&format!(", {name} {value}"));
        }
        self.console.line(&line);
        Ok(())
    }
}
