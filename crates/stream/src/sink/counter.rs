//! `counter`: counts messages, all of them or by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;

use crate::expression::Expression;
use crate::message::Batch;
use crate::module::{self, Absent, Console, Findings, Make, Module, OptionSpec, Takes};
use crate::stage::{Sink, StageError, Turn};

/// Keys that are shown at the end.
const SHOWN_MAX: usize = 20;

/// The declaration.
pub const MODULE: Module = Module {
    name: "counter",
    summary: "counts messages, all of them or by key, and tells at the end",
    about: "The counts are in the report of `--json`, the twenty largest are shown.",
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
    check: module::any,
    make: Make::Sink(|settings, site| {
        Ok(Box::new(Counter {
            name: settings.optional_text("name").unwrap_or(&site.stream).to_owned(),
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
    by: Option<Arc<Expression>>,
    keys_max: usize,
    count: u64,
    counts: BTreeMap<Vec<u8>, u64>,
    findings: Findings,
    console: Arc<dyn Console>,
}

impl Sink for Counter {
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let Some(by) = &self.by else {
            self.count += batch.len() as u64;
            self.findings.set("count", self.count);
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
        self.findings.set("count", self.count);
        Ok(())
    }

    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.console.line(&format!("{}: {}", self.name, self.count));
        if self.by.is_none() {
            return Ok(());
        }
        let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        let all: serde_json::Map<_, _> =
            self.counts.iter().map(|(key, count)| (text(key), (*count).into())).collect();
        self.findings.set("counts", all);
        let mut largest: Vec<_> = self.counts.iter().collect();
        largest.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        for (key, count) in largest.iter().take(SHOWN_MAX) {
            self.console.line(&format!("  {}: {count}", text(key)));
        }
        if largest.len() > SHOWN_MAX {
            self.console.line(&format!("  and {} keys more", largest.len() - SHOWN_MAX));
        }
        Ok(())
    }
}
