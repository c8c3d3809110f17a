//! `null`: takes messages, and nothing comes of them.

use crate::declaration::{self, Make, Module};
use crate::message::Batch;
use crate::stage::{Sink, StageError, Turn};

/// The declaration.
pub const MODULE: Module = Module {
    name: "null",
    summary: "takes messages, and nothing comes of them",
    about: "",
    options: &[],
    examples: &[("time --count=3 | null", "a stream that only its report tells of")],
    check: declaration::any,
    make: Make::Sink(|_settings, _site| Ok(Box::new(Null))),
};

struct Null;

impl Sink for Null {
    fn write(&mut self, _batch: &Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }
}
