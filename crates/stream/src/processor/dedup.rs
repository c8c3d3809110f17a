//! `dedup`: drops duplicates. Messages are remembered by half of their SHA-256, whatever their size, so that
//! no sender can choose messages with the same hash, and all instances have the same.
//!
//! An entry of durable state has the hash as its key, and the time of the message's arrival as its value, in
//! milliseconds since 1970 (eight bytes, big-endian).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use ring::digest;

use crate::declaration::{self, Findings, Module, OptionDefault, OptionSpec, OptionType, StageMaker};
use crate::expression::Expression;
use crate::message::{Batch, Provenance, RevocablePartition};
use crate::stage::{Processor, StageError, Turn};
use crate::state::{Change, Entries, State, UnknownEntry};

pub const MODULE: Module = Module {
    name: "dedup",
    summary: "drops duplicates",
    about: "Remembers messages for a limited time and up to a limited number, so memory stays bounded. \
            Behind a `kafka` source with a group, remembered messages outlive the process: they are in the topic \
            `GROUP-LABEL-changelog`, and follow their partition to another instance. Equal messages of \
            partitions that different instances read are no duplicates: use a key, so that they share a partition.",
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
            options: format!("by={}", settings.expression_text("by")),
            seen: HashSet::new(),
            order: VecDeque::new(),
            changed: site.has_durable_state.then(HashMap::new),
            dropped: 0,
            findings: site.findings.clone(),
        }))
    }),
};

struct Dedup {
    by: Option<Arc<Expression>>,
    within: Duration,
    remember: usize,
    /// The options that the hashes depend on.
    options: String,
    /// Hashes of the remembered messages.
    seen: HashSet<Hash>,
    /// The same hashes, oldest first.
    order: VecDeque<RememberedMessage>,
    /// If the state is durable: hashes that were added since the last transaction, with the time, or
    /// forgotten.
    changed: Option<HashMap<(Hash, RevocablePartition), Option<i64>>>,
    dropped: u64,
    findings: Findings,
}

/// Half of the SHA-256 of a message.
type Hash = [u8; 16];

/// A remembered message.
#[derive(Clone, Copy)]
struct RememberedMessage {
    /// The time of arrival, in milliseconds since 1970.
    time_ms: i64,
    hash: Hash,
    /// The partition of the message, if the source can lose it.
    of: Option<RevocablePartition>,
}

impl Processor for Dedup {
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError> {
        if self.changed.is_none() && batch.provenance.as_ref().is_some_and(Provenance::has_revoked) {
            // An `aggregate` behind this stage drops the messages that come again.
            self.seen.clear();
            self.order.clear();
        }
        let from = batch.provenance.as_ref().and_then(Provenance::revocable);
        let within_ms = i64::try_from(self.within.as_millis()).unwrap_or(i64::MAX);
        while self
            .order
            .front()
            .is_some_and(|oldest| turn.time_ms.saturating_sub(oldest.time_ms) >= within_ms)
        {
            self.forget_oldest();
        }
        let mut failed = Ok(());
        let by = self.by.clone();
        let mut mark = BytesMut::new();
        batch.retain(|message| {
            let Some(by) = &by else {
                // A tombstone is no empty message.
                return self.is_first((message.value, message.is_null), from, turn.time_ms);
            };
            mark.clear();
            match by.write_canonical(&message, &mut mark) {
                Ok(()) => self.is_first((&mark, false), from, turn.time_ms),
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

    fn state(&mut self) -> Option<&mut dyn State> {
        self.changed.is_some().then_some(self)
    }
}

impl State for Dedup {
    fn options(&self) -> String {
        self.options.clone()
    }

    fn add(&mut self, of: RevocablePartition, entries: Entries) -> Result<(), UnknownEntry> {
        for (key, mut value) in entries {
            let hash = Hash::try_from(&key[..]).map_err(|_| UnknownEntry)?;
            let time_ms = value.try_get_i64()?;
            match self.seen.insert(hash) {
                true => self.order.push_back(RememberedMessage { time_ms, hash, of: Some(of) }),
                // A message of another partition is the same.
                false => self.change(hash, Some(of), None),
            }
        }
        self.order.make_contiguous().sort_by_key(|remembered| remembered.time_ms);
        while self.order.len() > self.remember {
            self.forget_oldest();
        }
        Ok(())
    }

    fn remove(&mut self, is_removed: &dyn Fn(RevocablePartition) -> bool) {
        let seen = &mut self.seen;
        self.order.retain(|remembered| {
            let is_kept = !remembered.of.is_some_and(is_removed);
            if !is_kept {
                seen.remove(&remembered.hash);
            }
            is_kept
        });
        self.changed.iter_mut().for_each(|changed| changed.retain(|(_, of), _| !is_removed(*of)));
    }

    fn has_changed(&self) -> bool {
        self.changed.as_ref().is_some_and(|changed| !changed.is_empty())
    }

    fn take_changes(&mut self) -> Vec<Change> {
        let changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default().into_iter();
        let change = |((hash, of), time_ms): ((Hash, RevocablePartition), Option<i64>)| Change {
            of,
            key: hash.to_vec(),
            value: time_ms.map(|time_ms| time_ms.to_be_bytes().to_vec()),
        };
        changed.map(change).collect()
    }
}

impl Dedup {
    /// True if no equal message is remembered. It is remembered from now on.
    fn is_first(&mut self, mark: (&[u8], bool), of: Option<RevocablePartition>, time_ms: i64) -> bool {
        let hash = hash(mark);
        if !self.seen.insert(hash) {
            self.dropped += 1;
            return false;
        }
        if self.order.len() == self.remember {
            self.forget_oldest();
        }
        self.order.push_back(RememberedMessage { time_ms, hash, of });
        self.change(hash, of, Some(time_ms));
        true
    }

    fn forget_oldest(&mut self) {
        if let Some(RememberedMessage { hash, of, .. }) = self.order.pop_front() {
            self.seen.remove(&hash);
            self.change(hash, of, None);
        }
    }

    fn change(&mut self, hash: Hash, of: Option<RevocablePartition>, time_ms: Option<i64>) {
        if let (Some(changed), Some(of)) = (&mut self.changed, of) {
            changed.insert((hash, of), time_ms);
        }
    }
}

fn hash((mark, is_null): (&[u8], bool)) -> Hash {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&[u8::from(is_null)]);
    context.update(mark);
    *context.finish().as_ref().first_chunk().expect("a SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, SourceId};
    use crate::stage::{Refusals, SourceWatch};
    use tokio::time::Instant;

    struct NoRefusals;

    impl Refusals for NoRefusals {
        fn take(&mut self, _message: &Message<'_>, reason: &str) -> Result<(), StageError> {
            panic!("{reason}")
        }

        fn take_late(&mut self, _message: &Message<'_>, reason: &str) -> Result<(), StageError> {
            panic!("{reason}")
        }
    }

    fn dedup(is_durable: bool) -> Dedup {
        Dedup {
            by: None,
            within: Duration::from_secs(60),
            remember: 3,
            options: String::new(),
            seen: HashSet::new(),
            order: VecDeque::new(),
            changed: is_durable.then(HashMap::new),
            dropped: 0,
            findings: Findings::default(),
        }
    }

    fn provenance(source: SourceId, partition: u32) -> Provenance {
        Provenance { partition: Some(partition), revoked: Some(Arc::new([])), ..Provenance::single(source) }
    }

    /// Passes a message at a time. Returns true if it is no duplicate.
    fn pass(dedup: &mut Dedup, from: Provenance, value: &'static str, time_ms: i64) -> bool {
        let mut batch = Batch::new();
        batch.provenance = Some(from);
        batch.push(value.into(), None, 0, 0);
        let now = Instant::now();
        let (source, mut bad) = (SourceWatch::new(now), NoRefusals);
        dedup.process(&mut batch, &mut Turn { now, time_ms, source, bad: &mut bad }).expect("it passes");
        !batch.is_empty()
    }

    #[test]
    fn remembered_messages_follow_their_partition() {
        let source = SourceId::unique();
        let at = |partition| provenance(source, partition);
        let mut first = dedup(true);
        assert!(pass(&mut first, at(0), "a", 0) && pass(&mut first, at(1), "b", 1));
        assert!(!pass(&mut first, at(1), "a", 2), "a is remembered for partition 0");
        let mut stored: HashMap<RevocablePartition, Entries> = HashMap::new();
        let mut store = |dedup: &mut Dedup| {
            for Change { of, key, value } in dedup.take_changes() {
                let entries = stored.entry(of).or_default();
                match value {
                    Some(value) => drop(entries.insert(key, value.into())),
                    None => drop(entries.remove(&key)),
                }
            }
            assert!(!dedup.has_changed());
            stored.clone()
        };
        let entries = store(&mut first)[&(source, 0)].clone();
        first.remove(&|(_, partition)| partition == 0);
        assert!(pass(&mut first, at(0), "a", 3), "it is read again after a failure");
        let mut second = dedup(true);
        second.add((source, 0), entries).expect("it is read back");
        assert!(!pass(&mut second, at(0), "a", 59_999) && pass(&mut second, at(0), "b", 59_999));
        assert!(pass(&mut second, at(0), "a", 60_000), "its time is over");
        assert!(pass(&mut second, at(0), "c", 60_000) && pass(&mut second, at(0), "d", 60_001));
        let entries = store(&mut second);
        assert_eq!(entries[&(source, 0)].len(), 3, "the oldest is forgotten");
    }

    #[test]
    fn messages_of_revoked_partitions_may_come_again() {
        let mut dedup = dedup(false);
        let mut pass = |revoked: Option<&[u32]>| {
            let single = Provenance::single(SourceId::unique());
            pass(&mut dedup, Provenance { revoked: revoked.map(Arc::from), ..single }, "a", 0)
        };
        assert_eq!([pass(None), pass(None), pass(Some(&[]))], [true, false, false]);
        assert_eq!([pass(Some(&[3])), pass(None)], [true, false]);
    }
}
