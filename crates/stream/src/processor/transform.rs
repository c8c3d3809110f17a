//! `transform`: makes of each message what an expression says.

use std::sync::Arc;

use super::filter::ABOUT_EXPRESSIONS;
use crate::expression::Expression;
use crate::message::Batch;
use crate::module::{Absent, Make, Module, OptionSpec, Takes};
use crate::stage::{Processor, StageError, Turn};

/// The declaration.
pub const MODULE: Module = Module {
    name: "transform",
    summary: "makes of each message what an expression says",
    about: ABOUT_EXPRESSIONS,
    options: &[
        OptionSpec {
            name: "expression",
            takes: Takes::Expression,
            default: Absent::Value("text"),
            summary: "The new value: text and bytes as they are, anything else as JSON.",
        },
        OptionSpec {
            name: "key",
            takes: Takes::Expression,
            default: Absent::None,
            summary: "The new key; without, the key stays.",
        },
    ],
    examples: &[
        (
            "stdin | transform --expression='{\"id\": payload.id, \"total\": payload.price * payload.count}' | stdout",
            "other fields of each object",
        ),
        ("stdin | transform --key=payload.customer | log --showKey=true", "a key from a field"),
    ],
    make: Make::Processor(|settings, _site| {
        Ok(Box::new(Transform {
            expression: settings.expression("expression"),
            key: settings.optional_expression("key"),
        }))
    }),
};

struct Transform {
    expression: Arc<Expression>,
    key: Option<Arc<Expression>>,
}

impl Processor for Transform {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let is_value_kept = self.expression.text() == "text";
        let mut key = bytes::BytesMut::new();
        batch.rewrite(|message, emit| {
            key.clear();
            let written = match &self.key {
                Some(expression) => expression.write(&message, &mut key),
                None => Ok(()),
            };
            let written = match (written, is_value_kept) {
                (Ok(()), true) => {
                    emit.keep();
                    Ok(())
                }
                (Ok(()), false) => emit.write(|out| self.expression.write(&message, out)),
                (failed, _) => failed,
            };
            match written {
                Ok(()) if self.key.is_some() => emit.key(&key),
                Ok(()) => {}
                Err(error) => turn.bad.take(&message, &error.to_string())?,
            }
            Ok(())
        })
    }
}
