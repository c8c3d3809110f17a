//! `dedup`: drops duplicates. Messages are remembered by a hash of 128 bits, whatever their size, with a key
//! of the process, so that no sender can choose messages with the same hash.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use crate::declaration::{self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::expression::Expression;
use crate::message::{Batch, Provenance};
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
            summary: "Messages with equal results are duplicates; by default the value is compared. The text \"1\", the numbers 1 and \
                      1.0, null and the text \"null\" all differ.",
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
            hashing: [RandomState::new(), RandomState::new()],
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
    hashing: [RandomState; 2],
    /// Hashes of the remembered messages.
    seen: HashSet<u128>,
    /// The same hashes, oldest first.
    order: VecDeque<(Instant, u128)>,
    dropped: u64,
    findings: Findings,
}

impl Processor for Dedup {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if batch.provenance.as_ref().is_some_and(Provenance::has_revoked) {
            // An `aggregate` behind this stage drops the messages that come again.
            self.seen.clear();
            self.order.clear();
        }
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
            let Some(by) = &by else {
                // A tombstone is no empty message.
                return self.is_first((message.value, message.is_null), turn.now);
            };
            mark.clear();
            match by.write_canonical(&message, &mut mark) {
                Ok(()) => self.is_first((&mark, false), turn.now),
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
    fn is_first(&mut self, mark: (&[u8], bool), now: Instant) -> bool {
        let [high, low] = [0, 1].map(|half| u128::from(self.hashing[half].hash_one(mark)));
        let mark = (high << 64) | low;
        if self.seen.contains(&mark) {
            self.dropped += 1;
            return false;
        }
        if self.order.len() == self.remember {
            self.forget_oldest();
        }
        self.seen.insert(mark);
        self.order.push_back((now, mark));
        true
    }

    fn forget_oldest(&mut self) {
        if let Some((_, mark)) = self.order.pop_front() {
            self.seen.remove(&mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, SourceId};
    use crate::stage::{Refusals, SourceWatch};

    struct NoRefusals;

    impl Refusals for NoRefusals {
        fn take(&mut self, _message: &Message<'_>, reason: &str) -> Result<(), StageError> {
            panic!("{reason}")
        }

        fn take_late(&mut self, _message: &Message<'_>, reason: &str) -> Result<(), StageError> {
            panic!("{reason}")
        }
    }

    #[test]
    fn messages_of_revoked_partitions_may_come_again() {
        let mut dedup = Dedup {
            by: None,
            within: Duration::from_secs(60),
            remember: 10,
            hashing: [RandomState::new(), RandomState::new()],
            seen: HashSet::new(),
            order: VecDeque::new(),
            dropped: 0,
            findings: Findings::default(),
        };
        let mut pass = |revoked: Option<&[u32]>, value: &'static str| {
            let mut batch = Batch::new();
            let single = Provenance::single(SourceId::unique());
            batch.provenance = Some(Provenance { revoked: revoked.map(Arc::from), ..single });
            batch.push(value.into(), None, 0, 0);
            let now = Instant::now();
            let (source, mut bad) = (SourceWatch::new(now), NoRefusals);
            dedup
                .process(&mut batch, &mut Turn { now, time_ms: 0, source, bad: &mut bad })
                .expect("it passes");
            batch.len()
        };
        assert_eq!([pass(None, "a"), pass(None, "a"), pass(Some(&[]), "a")], [1, 0, 0]);
        assert_eq!([pass(Some(&[3]), "a"), pass(None, "a")], [1, 0]);
    }
}
