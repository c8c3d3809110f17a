//! `filter`: keeps the messages that meet an expression.

use std::sync::Arc;

use crate::declaration::{self, Absent, Make, Module, OptionSpec, Takes};
use crate::expression::Expression;
use crate::message::Batch;
use crate::stage::{Processor, StageError, Turn};

/// What there is to say about expressions, where a stage has one.
pub const ABOUT_EXPRESSIONS: &str = "Expressions are written in CEL, the Common Expression Language. They see `payload` (the \
    value as JSON), `text`, `raw` (its bytes), `key`, `headers` (a map of texts), `time`, `time_ms` and `sequence`. Of a message \
    only the fields that the expression names are read. A message that the expression fails on is a bad message: see `--on-error`.";

/// The declaration.
pub const MODULE: Module = Module {
    name: "filter",
    summary: "keeps the messages that meet an expression",
    about: ABOUT_EXPRESSIONS,
    options: &[OptionSpec {
        name: "expression",
        takes: Takes::Expression,
        default: Absent::Required,
        summary: "What is true for the messages to keep.",
    }],
    examples: &[
        (
            "stdin | filter --expression='payload.amount > 1000' | stdout",
            "the large orders of a file of JSON",
        ),
        (
            "stdin | filter --expression='text.matches(\"^(GET|POST) \")' | stdout",
            "the lines that a pattern matches",
        ),
    ],
    check: declaration::any,
    make: Make::Processor(|settings, _site| {
        Ok(Box::new(Filter { expression: settings.expression("expression") }))
    }),
};

struct Filter {
    expression: Arc<Expression>,
}

impl Processor for Filter {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let mut failed = Ok(());
        batch.retain(|message| match self.expression.test(&message) {
            Ok(is_met) => is_met,
            Err(error) => {
                if failed.is_ok() {
                    failed = turn.bad.take(&message, &error.to_string());
                }
                false
            }
        });
        failed
    }
}
