//! `transform`: changes value, key or headers.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::time::Instant;

use super::backlog::Backlog;
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
            waiting: Backlog::default(),
        }))
    }),
};

struct Transform {
    /// The new value's expression; `None` if the value stays.
    expression: Option<Arc<Expression>>,
    key: Option<Arc<Expression>>,
    tombstone: Option<Arc<Expression>>,
    headers: Option<Arc<Expression>>,
    /// Messages that are not transformed yet.
    waiting: Backlog,
}

/// The size of new values, keys and headers at which the other messages wait for another batch.
const WRITTEN_BYTES_MAX: usize = 16 << 20;

impl Transform {
    /// Transforms messages until their new parts are large; the others wait.
    fn rewrite(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let mut key = BytesMut::new();
        let rest = batch.rewrite_some(|message, emit| {
            if emit.written_bytes() >= WRITTEN_BYTES_MAX {
                return Ok(false);
            }
            match self.apply(&message, &mut key, emit) {
                Ok(()) => Ok(true),
                Err(error) => turn.bad.take(&message, &error.to_string()).map(|()| true),
            }
        })?;
        self.waiting.put_back(rest);
        Ok(())
    }

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
        self.waiting.enter(batch);
        self.rewrite(batch, turn)
    }

    fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        self.waiting.deadline()
    }

    fn tick(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.waiting.next(batch) { self.rewrite(batch, turn) } else { Ok(()) }
    }

    fn held_since(&self) -> Option<u64> {
        self.waiting.held_since()
    }

    fn forget(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::{Refusals, SourceWatch};

    struct NoBadMessages;

    impl Refusals for NoBadMessages {
        fn take(&mut self, _message: &Message<'_>, reason: &str) -> Result<(), StageError> {
            panic!("no message is bad: {reason}")
        }

        fn take_late(&mut self, _message: &Message<'_>, reason: &str) -> Result<(), StageError> {
            panic!("no message is late: {reason}")
        }
    }

    #[test]
    fn large_values_pass_a_few_at_a_time() {
        let expression = Expression::compile("text + text").unwrap_or_else(|error| panic!("{error}"));
        let mut transform = Transform {
            expression: Some(Arc::new(expression)),
            key: None,
            tombstone: None,
            headers: None,
            waiting: Backlog::default(),
        };
        let (value, mut batch) = (bytes::Bytes::from(vec![b'x'; 3 << 20]), Batch::new());
        (0..20).for_each(|sequence| batch.push(value.clone(), None, 0, sequence));
        let now = Instant::now();
        let mut turn = Turn { now, time_ms: 0, source: SourceWatch::new(now), bad: &mut NoBadMessages };
        transform.process(&mut batch, &mut turn).expect("it is transformed");
        let mut sequences = Vec::new();
        loop {
            assert!(batch.value_bytes() < 2 * WRITTEN_BYTES_MAX as u64);
            sequences.extend(batch.messages().map(|message| message.sequence));
            assert_eq!(transform.held_since(), (sequences.len() < 20).then_some(sequences.len() as u64));
            if !transform.is_full() {
                break;
            }
            transform.tick(&mut batch, &mut turn).expect("it is transformed");
        }
        assert_eq!(sequences, (0..20).collect::<Vec<u64>>());
    }
}
