//! `transform`: changes value, key or headers.

use std::sync::Arc;

use bytes::BytesMut;

use super::filter::ABOUT_EXPRESSIONS;
use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::expression::{Expression, NoValue};
use crate::message::{Batch, Emitter, Header, Message};
use crate::stage::{Processor, StageError, Turn};

pub const MODULE: Module = Module {
    name: "transform",
    summary: "changes the value, key or headers by expressions",
    about: ABOUT_EXPRESSIONS,
    options: &[
        OptionSpec {
            name: "expression",
            takes: OptionType::Expression,
            default: OptionDefault::Value("text"),
            summary: "The new value: text and bytes unchanged, anything else as JSON.",
        },
        OptionSpec {
            name: "key",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "The new key; null removes it. By default it stays.",
        },
        OptionSpec {
            name: "tombstone",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "A condition: the messages for which it is true get a null value, which deletes their key from a compacted topic.",
        },
        OptionSpec {
            name: "headers",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "A map of headers to set; null removes a header.",
        },
    ],
    examples: &[
        (
            "stdin | transform --expression='{\"id\": payload.id, \"total\": payload.price * payload.count}' | stdout",
            "an object with other fields",
        ),
        ("stdin | transform --key=payload.customer | log --showKey=true", "a key from a field"),
        (
            "kafka --topics=changes --untilEnd=true | transform --tombstone='payload.deleted' | kafka --topic=state",
            "deleted keys become tombstones",
        ),
        (
            "stdin | transform --headers='{\"type\": payload.type}' | kafka --topic=orders",
            "a header from a field",
        ),
    ],
    check: declaration::any,
    make: StageMaker::Processor(|settings, _site| {
        let expression = settings.expression("expression");
        Ok(Box::new(Transform {
            expression: (expression.text() != "text").then_some(expression),
            key: settings.optional_expression("key"),
            tombstone: settings.optional_expression("tombstone"),
            headers: settings.optional_expression("headers"),
        }))
    }),
};

struct Transform {
    /// The new value's expression; `None` if the value stays.
    expression: Option<Arc<Expression>>,
    key: Option<Arc<Expression>>,
    tombstone: Option<Arc<Expression>>,
    headers: Option<Arc<Expression>>,
}

impl Transform {
    /// Evaluates everything before emitting, so that a bad message emits nothing.
    fn apply(
        &self,
        message: &Message<'_>,
        key: &mut BytesMut,
        emit: &mut Emitter<'_>,
    ) -> Result<(), NoValue> {
        key.clear();
        let key = match &self.key {
            Some(expression) => expression.write(message, key)?.then_some(&key[..]),
            None => None,
        };
        let set = self.headers.as_ref().map(|expression| expression.entries(message)).transpose()?;
        let is_tombstone = match &self.tombstone {
            Some(condition) => condition.test(message)?,
            None => false,
        };
        match &self.expression {
            _ if is_tombstone => emit.null(),
            Some(expression) => emit.write(|out| expression.write(message, out).map(drop))?,
            None => emit.keep(),
        }
        if self.key.is_some() {
            emit.key(key);
        }
        if let Some(set) = set {
            let stay =
                message.headers.iter().filter(|header| set.iter().all(|(name, _)| name != header.name));
            let new =
                set.iter().filter_map(|(name, value)| Some(Header { name, value: Some(value.as_ref()?) }));
            emit.headers(stay.chain(new));
        }
        Ok(())
    }
}

impl Processor for Transform {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let mut key = BytesMut::new();
        batch.rewrite(|message, emit| match self.apply(&message, &mut key, emit) {
            Ok(()) => Ok(()),
            Err(error) => turn.bad.take(&message, &error.to_string()),
        })
    }
}
