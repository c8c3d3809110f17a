//! `null`: discards messages.

use crate::declaration::{self, Module, StageMaker};
use crate::message::Batch;
use crate::stage::{Sink, StageError, Turn};

pub const MODULE: Module = Module {
    name: "null",
    summary: "discards messages",
    about: "",
    options: &[],
    examples: &[("time --count=3 | null", "a stream without output")],
    check: declaration::any,
    make: StageMaker::Sink(|_settings, _site| Ok(Box::new(Null))),
};

struct Null;

impl Sink for Null {
    fn write(&mut self, _batch: &Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }
}
