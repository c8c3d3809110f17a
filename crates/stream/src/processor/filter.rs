//! `filter`: keeps the messages for which an expression is true.

use std::sync::Arc;

use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::expression::Expression;
use crate::message::Batch;
use crate::stage::{Processor, StageError, Turn};

/// Documentation of expressions, for all stages that have one.
pub const ABOUT_EXPRESSIONS: &str = "Expressions are written in CEL, the Common Expression Language. Their variables are `payload` \
    (the value as JSON), `text`, `raw` (its bytes), `key`, `headers` (a map of strings), `time`, `time_ms` and `sequence`. Only the \
    fields that the expression names are parsed. A message for which the expression fails is a bad message: see `--on-error`.";

pub const MODULE: Module = Module {
    name: "filter",
    summary: "keeps the messages for which an expression is true",
    about: ABOUT_EXPRESSIONS,
    options: &[OptionSpec {
        name: "expression",
        takes: OptionType::Expression,
        default: OptionDefault::Required,
        summary: "The condition for keeping a message.",
    }],
    examples: &[
        ("stdin | filter --expression='payload.amount > 1000' | stdout", "large orders from JSON lines"),
        (
            "stdin | filter --expression='text.matches(\"^(GET|POST) \")' | stdout",
            "lines that match a pattern",
        ),
    ],
    check: declaration::any,
    make: StageMaker::Processor(|settings, _site| {
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
