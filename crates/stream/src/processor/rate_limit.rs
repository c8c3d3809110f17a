//! `rate-limit`: lets no more messages through than so many in a second. The others wait, and with them whoever sends them.

use std::time::Duration;

use tokio::time::Instant;

use crate::message::Batch;
use crate::module::{self, Absent, Make, Module, OptionSpec, Takes};
use crate::stage::{Processor, StageError, Turn, Wait};

/// How often messages are let go, where they come faster.
const STEP: Duration = Duration::from_millis(5);

/// The declaration.
pub const MODULE: Module = Module {
    name: "rate-limit",
    summary: "lets no more messages through than so many in a second",
    about: "Messages wait, and whoever sends them waits too: nothing is dropped. When the stream is stopped, those that wait go \
            on at once.",
    options: &[
        OptionSpec {
            name: "rate",
            takes: Takes::Number(0.001, f64::MAX),
            default: Absent::Required,
            summary: "Messages in a second.",
        },
        OptionSpec {
            name: "burst",
            takes: Takes::Integer(1, 1_000_000),
            default: Absent::Value("1"),
            summary: "How many may follow each other at once, after a pause.",
        },
    ],
    examples: &[(
        "stdin | rate-limit --rate=100 | http --url=http://127.0.0.1:9000/",
        "at most a hundred requests a second",
    )],
    check: module::any,
    make: Make::Processor(|settings, _site| {
        let rate = settings.optional_number("rate").unwrap_or(f64::MAX);
        Ok(Box::new(RateLimit {
            rate,
            burst: settings.integer("burst") as f64,
            tokens: settings.integer("burst") as f64,
            refilled: None,
            waiting: Batch::new(),
            released: 0,
        }))
    }),
};

struct RateLimit {
    rate: f64,
    burst: f64,
    /// Messages that may go now. Grows with time, up to the burst.
    tokens: f64,
    refilled: Option<Instant>,
    waiting: Batch,
    /// How many of those that wait have gone.
    released: usize,
}

impl RateLimit {
    /// Lets go of what may.
    fn release(&mut self, batch: &mut Batch, now: Instant) {
        let since = self.refilled.map_or(Duration::ZERO, |at| now.duration_since(at));
        self.refilled = Some(now);
        // Messages may be let go in steps that are longer than the time of one: what is due in a step is due.
        let most = self.burst.max(self.rate * STEP.as_secs_f64() * 2.0);
        self.tokens = (self.tokens + since.as_secs_f64() * self.rate).min(most);
        let count = (self.tokens as usize).min(self.waiting.len() - self.released);
        self.tokens -= count as f64;
        let from = self.released;
        self.released += count;
        *batch = self.waiting.clone();
        batch.keep_range(from..self.released);
        if self.released == self.waiting.len() {
            self.waiting.clear();
            self.released = 0;
        }
    }
}

impl Processor for RateLimit {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.waiting.is_empty() {
            self.waiting = std::mem::take(batch);
        } else {
            // A processor before this one has let something go of its own.
            self.waiting.append(batch);
        }
        self.release(batch, turn.now);
        Ok(())
    }

    fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            return None;
        }
        let missing = Duration::from_secs_f64((1.0 - self.tokens).max(0.0) / self.rate);
        Some(self.refilled? + missing.max(STEP))
    }

    fn tick(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if !self.waiting.is_empty() {
            self.release(batch, turn.now);
        }
        Ok(())
    }

    fn finish<'a>(&'a mut self, batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async {
            let len = self.waiting.len();
            *batch = std::mem::take(&mut self.waiting);
            batch.keep_range(self.released..len);
            self.released = 0;
            Ok(())
        })
    }

    fn held_since(&self) -> Option<u64> {
        self.waiting.messages().nth(self.released).map(|message| message.sequence)
    }

    fn forget(&mut self) {
        self.waiting.clear();
        self.released = 0;
    }
}
