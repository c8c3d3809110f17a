//! `stdout`: writes messages to standard output, one per line.

use std::io::{self, Write};

use crate::declaration::{self, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::message::Batch;
use crate::stage::{IoFailed, Sink, StageError, Turn};

pub const MODULE: Module = Module {
    name: "stdout",
    summary: "writes messages to standard output, unchanged",
    about: "",
    options: &[OptionSpec {
        name: "delimiter",
        takes: OptionType::Text,
        default: OptionDefault::Value("\n"),
        summary: "Written after each message; a line end by default.",
    }],
    examples: &[("time --count=3 | stdout", "three lines with the time")],
    check: declaration::any,
    make: StageMaker::Sink(|settings, _site| {
        Ok(Box::new(Stdout {
            delimiter: settings.text("delimiter").as_bytes().to_vec(),
            written: Vec::new(),
        }))
    }),
};

struct Stdout {
    delimiter: Vec<u8>,
    written: Vec<u8>,
}

impl Sink for Stdout {
    fn write(&mut self, batch: &Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        self.written.clear();
        for message in batch.messages() {
            self.written.extend_from_slice(message.value);
            self.written.extend_from_slice(&self.delimiter);
        }
        let mut out = io::stdout().lock();
        let written = out.write_all(&self.written).and_then(|()| out.flush());
        written
            .map_err(|source| IoFailed { action: "write", what: "standard output".to_owned(), source }.into())
    }
}
