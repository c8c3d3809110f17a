//! `batch`: combines several messages into one.

use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::json;
use crate::message::{Batch, MESSAGE_BYTES_MAX, Message};
use crate::stage::{Processor, StageError, Turn, Wait};

pub const MODULE: Module = Module {
    name: "batch",
    summary: "combines several messages into one",
    about: "The new message has the timestamp of the first, and no key.",
    options: &[
        OptionSpec {
            name: "size",
            takes: OptionType::Integer(1, 1_000_000),
            default: OptionDefault::Value("100"),
            summary: "The number of messages to combine.",
        },
        OptionSpec {
            name: "timeout",
            takes: OptionType::Duration,
            default: OptionDefault::Value("1s"),
            summary: "How long the first message waits for the others.",
        },
        OptionSpec {
            name: "format",
            takes: OptionType::Choice(&["lines", "json"]),
            default: OptionDefault::Value("lines"),
            summary: "Join messages by line ends, or as elements of a JSON array; values that are not JSON become strings.",
        },
    ],
    examples: &[(
        "stdin | batch --size=500 --format=json | http --url=http://127.0.0.1:9000/",
        "one request per five hundred messages",
    )],
    check: declaration::any,
    make: StageMaker::Processor(|settings, _site| {
        Ok(Box::new(Joiner {
            size: settings.integer("size") as usize,
            timeout: settings.duration("timeout"),
            is_json: settings.text("format") == "json",
            joined: BytesMut::new(),
            count: 0,
            first: None,
        }))
    }),
};

struct Joiner {
    size: usize,
    timeout: Duration,
    is_json: bool,
    joined: BytesMut,
    count: usize,
    /// Arrival and timestamp of the first message, and the lowest sequence.
    first: Option<(Instant, i64, u64)>,
}

impl Joiner {
    fn add(&mut self, message: &Message<'_>, now: Instant) {
        match &mut self.first {
            None => self.first = Some((now, message.time_ms, message.sequence)),
            Some((_, _, lowest)) => {
                *lowest = (*lowest).min(message.sequence);
                self.joined.extend_from_slice(if self.is_json { b"," } else { b"\n" });
            }
        }
        if !self.is_json || json::parse(message.value).is_ok() {
            self.joined.extend_from_slice(message.value);
        } else {
            json::write_string(&String::from_utf8_lossy(message.value), &mut self.joined);
        }
        self.count += 1;
    }

    fn is_due(&self) -> bool {
        self.count == self.size || self.joined.len() >= MESSAGE_BYTES_MAX
    }

    fn emit(&mut self, out: &mut Batch) {
        let Some((_, time_ms, sequence)) = self.first.take() else { return };
        let mut value = std::mem::take(&mut self.joined);
        if self.is_json {
            value = [&b"["[..], &value, b"]"].concat()[..].into();
        }
        self.count = 0;
        out.push(value.freeze(), None, time_ms, sequence);
    }
}

impl Processor for Joiner {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        let mut out = Batch::new();
        for message in batch.messages() {
            self.add(&message, turn.now);
            if self.is_due() {
                self.emit(&mut out);
            }
        }
        *batch = out;
        Ok(())
    }

    fn deadline(&self) -> Option<Instant> {
        self.first.map(|(came, _, _)| came + self.timeout)
    }

    fn tick(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.deadline().is_some_and(|deadline| deadline <= turn.now) {
            self.emit(batch);
        }
        Ok(())
    }

    fn finish<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async {
            self.emit(batch);
            Ok(())
        })
    }

    fn keeps_sequences(&self) -> bool {
        false
    }

    fn held_since(&self) -> Option<u64> {
        self.first.map(|(_, _, sequence)| sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_sequence_of_the_combined_messages_is_held() {
        let mut batch = Batch::new();
        for sequence in [90, 3, 40] {
            batch.push(bytes::Bytes::from_static(b"x"), None, 0, sequence);
        }
        let mut joiner = Joiner {
            size: 9,
            timeout: Duration::ZERO,
            is_json: false,
            joined: BytesMut::new(),
            count: 0,
            first: None,
        };
        batch.messages().for_each(|message| joiner.add(&message, Instant::now()));
        assert_eq!(joiner.held_since(), Some(3));
        let mut out = Batch::new();
        joiner.emit(&mut out);
        assert_eq!((out.lowest_sequence(), &*out.value(0)), (Some(3), &b"x\nx\nx"[..]));
    }
}
