//! `enrich`: adds the value of a key in a topic to each message: a join of a stream with a table. No message
//! passes before the table is whole.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::declaration::{Module, OptionDefault, OptionSpec, OptionType, Settings, StageMaker, WrongMix};
use crate::expression::Expression;
use crate::json::{self, write_string};
use crate::kafka::{BOOTSTRAP, PROPERTIES, Table};
use crate::message::{Batch, Emitter, Message};
use crate::stage::{Processor, StageError, Turn, Wait};

pub const MODULE: Module = Module {
    name: "enrich",
    summary: "adds the value of a key in a topic, a join with a table",
    about: "The topic is a table: the last value of each key, as in a compacted topic. A record with a null value (a tombstone) \
            removes its key. A message, which must be a JSON object, gets the value under `--as`, as JSON if it is JSON, or else as text; a \
            member of this name is replaced. `transform` can then compute with `payload.NAME`. A message with a null value passes unchanged.\n\n\
            The table is in memory. It is read from the beginning of the topic whenever the stream starts, and no message passes \
            before it has the records that were there then. Later changes follow as they are read, in no fixed order with the \
            messages of the stream (as with a GlobalKTable of Kafka Streams); with exactly once, a message that is read again \
            after a failure may get a newer value. Partitions added to the topic are read after the next start. \
            A table of more than `--memory`, counted as keys, values and 96 bytes for each, fails the stream.",
    options: &[
        OptionSpec {
            name: "table",
            takes: OptionType::Topic,
            default: OptionDefault::Required,
            summary: "The topic with the values.",
        },
        OptionSpec {
            name: "as",
            takes: OptionType::Name,
            default: OptionDefault::Required,
            summary: "The name of the member that gets the value.",
        },
        OptionSpec {
            name: "key",
            takes: OptionType::Expression,
            default: OptionDefault::Value("key"),
            summary: "The key to look up, as text; by default that of the message.",
        },
        OptionSpec {
            name: "missing",
            takes: OptionType::Choice(&["null", "drop", "bad"]),
            default: OptionDefault::Value("null"),
            summary: "For a key that the table lacks, or no key: the value is null, or the message is dropped, or it is a bad message.",
        },
        OptionSpec {
            name: "memory",
            takes: OptionType::Size,
            default: OptionDefault::Value("256MiB"),
            summary: "The maximum size of the table.",
        },
        BOOTSTRAP,
        PROPERTIES,
    ],
    examples: &[
        (
            "kafka --topics=orders --group=named | enrich --table=customers --key=payload.customer --as=customer | kafka --topic=named-orders",
            "each order with its customer",
        ),
        (
            "kafka --topics=orders --group=vip | enrich --table=customers --as=customer --missing=drop | filter --expression=payload.customer.vip | kafka --topic=vip-orders",
            "the orders of some customers",
        ),
    ],
    check,
    make: StageMaker::Processor(|settings, site| {
        let table = Table::open(settings, settings.text("table"), settings.integer("memory"))?;
        site.findings.count("rows", table.count());
        let mut member = BytesMut::new();
        write_string(settings.text("as"), &mut member);
        member.extend_from_slice(b":");
        Ok(Box::new(Enrich {
            table,
            key: settings.expression("key"),
            name: settings.text("as").to_owned(),
            member: member.freeze(),
            missing: match settings.text("missing") {
                "drop" => MissingRow::Drop,
                "bad" => MissingRow::Bad,
                _ => MissingRow::Null,
            },
            is_open: false,
        }))
    }),
};

fn check(settings: &Settings) -> Result<(), WrongMix> {
    if settings.integer("memory") < 1 << 20 {
        return Err(WrongMix::new("memory", "The table gets too little memory", "Use 1MiB or more."));
    }
    Ok(())
}

/// The rule for a key that the table lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingRow {
    Null,
    Drop,
    Bad,
}

struct Enrich {
    table: Table,
    key: Arc<Expression>,
    /// The member that gets the value: its name, and as it begins in JSON.
    name: String,
    member: Bytes,
    missing: MissingRow,
    /// True if messages may pass: the table is whole, or the stream ends.
    is_open: bool,
}

impl Enrich {
    fn write(&self, message: &Message<'_>, row: &[u8], emit: &mut Emitter<'_>) -> Result<(), String> {
        let (mut count, mut has_name) = (0, false);
        let is_object = json::each_member(message.value, |name, _| {
            count += 1;
            has_name |= *name == *self.name;
        });
        if !is_object.map_err(|error| error.to_string())? {
            return Err("it is not a JSON object".to_owned());
        }
        emit.write(|out| {
            if has_name {
                out.extend_from_slice(b"{");
                count = 0;
                json::each_member(message.value, |name, value| {
                    if *name != *self.name {
                        out.extend_from_slice(if count > 0 { b"," } else { b"" });
                        count += 1;
                        write_string(&name, out);
                        out.extend_from_slice(b":");
                        value.write(out);
                    }
                })?;
            } else {
                let text = message.value.trim_ascii();
                out.extend_from_slice(text.strip_suffix(b"}").unwrap_or(text).trim_ascii_end());
            }
            for part in [if count > 0 { &b","[..] } else { b"" }, &self.member, row, b"}"] {
                out.extend_from_slice(part);
            }
            Ok(())
        })
        .map_err(|error: json::NotJson| error.to_string())
    }
}

impl Processor for Enrich {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let rows = self.table.rows()?;
        let mut key = BytesMut::new();
        batch.rewrite(|message, emit| {
            if message.is_null {
                emit.keep();
                return Ok(());
            }
            key.clear();
            let has_key = match self.key.write(&message, &mut key) {
                Ok(has_key) => has_key,
                Err(error) => return turn.bad.take(&message, &error.to_string()),
            };
            let row = rows.get(&key).filter(|_| has_key);
            let row = match (row, self.missing) {
                (Some(row), _) => &row[..],
                (None, MissingRow::Null) => b"null",
                (None, MissingRow::Drop) => return Ok(()),
                (None, MissingRow::Bad) => {
                    let shown = String::from_utf8_lossy(&key);
                    let what = if has_key {
                        format!("the key {shown}")
                    } else {
                        "a message without a key".to_owned()
                    };
                    return turn.bad.take(&message, &format!("the table has no row for {what}"));
                }
            };
            match self.write(&message, row, emit) {
                Ok(()) => Ok(()),
                Err(reason) => turn.bad.take(&message, &reason),
            }
        })
    }

    fn is_full(&self) -> bool {
        !self.is_open
    }

    fn wake(&mut self) -> Option<Wait<'_, ()>> {
        Some(Box::pin(self.table.changed(self.is_open)))
    }

    fn tick(&mut self, _batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        drop(self.table.rows()?);
        self.is_open |= self.table.is_whole();
        Ok(())
    }

    /// No message has passed a table that is not whole, so that none waits for it.
    fn relieve<'a>(&'a mut self, _batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        self.is_open = true;
        Box::pin(async { Ok(()) })
    }
}
