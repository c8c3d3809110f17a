//! `histogram`: how the numbers in messages are spread.

use std::sync::Arc;

use hdrhistogram::Histogram as Hdr;

use crate::expression::Expression;
use crate::message::Batch;
use crate::module::{self, Absent, Console, Findings, Make, Module, OptionSpec, Takes};
use crate::stage::{Sink, StageError, Turn};

/// What is told of the numbers.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9)];

/// The declaration.
pub const MODULE: Module = Module {
    name: "histogram",
    summary: "how the numbers in messages are spread, told at the end",
    about: "Counts numbers from 0 on in steps of `--step`, to three digits. A negative number is a bad message.",
    options: &[
        OptionSpec {
            name: "of",
            takes: Takes::Expression,
            default: Absent::Required,
            summary: "The number.",
        },
        OptionSpec {
            name: "step",
            takes: Takes::Number(1e-9, 1e9),
            default: Absent::Value("1"),
            summary: "The smallest difference that is told apart.",
        },
        OptionSpec {
            name: "name",
            takes: Takes::Name,
            default: Absent::None,
            summary: "What it is called; without, the name of the stream.",
        },
    ],
    examples: &[("stdin | histogram --of=payload.amount --step=0.01", "the amounts of orders, to the cent")],
    check: module::any,
    make: Make::Sink(|settings, site| {
        let step = settings.optional_number("step").unwrap_or(1.0);
        Ok(Box::new(Histogram {
            name: settings.optional_text("name").unwrap_or(&site.stream).to_owned(),
            of: settings.expression("of"),
            step,
            seen: Hdr::new(3).expect("three digits are allowed"),
            findings: site.findings.clone(),
            console: site.console.clone(),
        }))
    }),
};

struct Histogram {
    name: String,
    of: Arc<Expression>,
    step: f64,
    seen: Hdr<u64>,
    findings: Findings,
    console: Arc<dyn Console>,
}

impl Sink for Histogram {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        for message in batch.messages() {
            let steps = self.of.number(&message).map_err(|error| error.to_string()).and_then(|number| {
                let steps = (number / self.step).round();
                let is_countable = (0.0..9e15).contains(&steps);
                is_countable
                    .then_some(steps as u64)
                    .ok_or_else(|| format!("{number} is not from 0 on, or too large"))
            });
            let recorded = steps.and_then(|steps| self.seen.record(steps).map_err(|error| error.to_string()));
            if let Err(reason) = recorded {
                turn.bad.take(&message, &reason)?;
            }
        }
        self.findings.set("count", self.seen.len());
        Ok(())
    }

    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        let scaled = |steps: u64| steps as f64 * self.step;
        let mut figures = vec![("min", scaled(self.seen.min())), ("mean", self.seen.mean() * self.step)];
        for (name, percentile) in PERCENTILES {
            figures.push((name, scaled(self.seen.value_at_percentile(percentile))));
        }
        figures.push(("max", scaled(self.seen.max())));
        let mut line = format!("{}: {} numbers", self.name, self.seen.len());
        if !self.seen.is_empty() {
            for (name, value) in figures {
                // Steps are not whole in binary: their digits end where the step's do.
                let value = (value * 1e9).round() / 1e9;
                self.findings.set(name, value);
                line.push_str(&format!(", {name} {value}"));
            }
        }
        self.console.line(&line);
        Ok(())
    }
}
