//! `dedup`: drops duplicates.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::declaration::{self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::expression::Expression;
use crate::message::Batch;
use crate::stage::{Processor, StageError, Turn};

pub const MODULE: Module = Module {
    name: "dedup",
    summary: "drops duplicates",
    about: "Remembers messages for a limited time and up to a limited number, so memory stays bounded.",
    options: &[
        OptionSpec {
            name: "by",
            takes: OptionType::Expression,
            default: OptionDefault::None,
            summary: "Messages with equal results are duplicates; by default the value is compared.",
        },
        OptionSpec {
            name: "within",
            takes: OptionType::Duration,
            default: OptionDefault::Value("10m"),
            summary: "How long a message is remembered.",
        },
        OptionSpec {
            name: "remember",
            takes: OptionType::Integer(1, 100_000_000),
            default: OptionDefault::Value("1000000"),
            summary: "How many messages are remembered; the oldest are dropped first.",
        },
    ],
    examples: &[("stdin | dedup --by=payload.id --within=1h | stdout", "each id at most once per hour")],
    check: declaration::any,
    make: StageMaker::Processor(|settings, site| {
        Ok(Box::new(Dedup {
            by: settings.optional_expression("by"),
            within: settings.duration("within"),
            remember: settings.integer("remember") as usize,
            seen: HashSet::new(),
            order: VecDeque::new(),
            dropped: 0,
            findings: site.findings.clone(),
        }))
    }),
};

struct Dedup {
    by: Option<Arc<Expression>>,
    within: Duration,
    remember: usize,
    seen: HashSet<Arc<[u8]>>,
    /// The same keys, oldest first.
    order: VecDeque<(Instant, Arc<[u8]>)>,
    dropped: u64,
    findings: Findings,
}

impl Processor for Dedup {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        while let Some((at, _)) = self.order.front() {
            if turn.now.duration_since(*at) < self.within {
                break;
            }
            self.forget_oldest();
        }
        let mut failed = Ok(());
        let by = self.by.clone();
        let mut mark = BytesMut::new();
        batch.retain(|message| {
            let Some(by) = &by else { return self.is_first(message.value, turn.now) };
            mark.clear();
            match by.write(&message, &mut mark) {
                Ok(()) => self.is_first(&mark, turn.now),
                Err(error) => {
                    if failed.is_ok() {
                        failed = turn.bad.take(&message, &error.to_string());
                    }
                    false
                }
            }
        });
        self.findings.set("dropped", self.dropped);
        failed
    }
}

impl Dedup {
    fn is_first(&mut self, mark: &[u8], now: Instant) -> bool {
        if self.seen.contains(mark) {
            self.dropped += 1;
            return false;
        }
        if self.order.len() == self.remember {
            self.forget_oldest();
        }
        let mark: Arc<[u8]> = mark.into();
        self.seen.insert(mark.clone());
        self.order.push_back((now, mark));
        true
    }

    fn forget_oldest(&mut self) {
        if let Some((_, mark)) = self.order.pop_front() {
            self.seen.remove(&mark);
        }
    }
}
