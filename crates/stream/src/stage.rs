//! What a stage is to the runtime: a source, a processor or a sink, and what each may ask for.
//!
//! `fill`, `process` and `write` do what can be done at once and never wait. Whoever has to wait says so: a source by
//! [`Source::ready`], the others by `settle`. So stages next to each other run on one thread, by plain calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use thalweg_client::{CommittedOffset, GroupMetadata, TopicPartition};
use tokio::time::Instant;

use crate::message::{Batch, Message};

/// Something to wait for.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a source found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// There are messages in the batch.
    Ready,
    /// There are none yet.
    Pending,
    /// There will be no more.
    End,
}

/// The time, and who takes messages that cannot be worked on.
pub struct Turn<'a> {
    /// Now, to measure with.
    pub now: Instant,
    /// Now, in milliseconds since 1970.
    pub time_ms: i64,
    /// How long the stream has waited so far because its source had no messages, in all.
    pub idle: Duration,
    /// Where bad messages go.
    pub bad: &'a mut dyn Refusals,
}

/// Takes the messages that a stage cannot work on.
pub trait Refusals: Send {
    /// Takes one, with the reason. An error ends the stream.
    fn take(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError>;
}

/// Where messages come from.
pub trait Source: Send {
    /// Puts what is there into the batch, in place of what was in it, whose buffers may be used again.
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<Filled, StageError>;

    /// Waits until [`Source::fill`] may have more. May be dropped at any time, and loses nothing then.
    fn ready(&mut self) -> Wait<'_, ()>;

    /// Takes no more from outside: what is there already still comes, and then the end.
    fn close(&mut self);

    /// Whether other streams feed it. It is not closed when the run is to stop: it ends when they have.
    fn is_fed(&self) -> bool {
        false
    }

    /// Makes sure that the messages of the batch, the last that it filled, never come again, and takes out those of which it
    /// cannot: for streams in which each arrives at most once. Nothing, where none comes again anyway.
    fn claim<'a>(&'a mut self, _batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        None
    }

    /// Whether it wants to be told what has reached the end of the stream.
    fn wants_acknowledgement(&self) -> bool {
        false
    }

    /// Whether clients wait for the acknowledgement of each message: the source hears of it within milliseconds then.
    fn has_waiting_clients(&self) -> bool {
        false
    }

    /// All messages up to this sequence have been taken by the sink for good.
    fn acknowledge(&mut self, _through: u64) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// Until when parts of what it gives are to be handed back, because others will have them: nothing more comes until then, and
    /// what has come may arrive.
    fn losing(&self) -> Option<Instant> {
        None
    }

    /// What could arrive has arrived, and was acknowledged: the others may have them.
    fn hand_back(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// For streams that run exactly once, in place of an acknowledgement: how far it has come with all messages up to this
    /// sequence, for a transaction of the sink. Each message is told of once.
    fn progress(&mut self, _through: u64) -> Result<Progress, StageError> {
        Ok(Progress::None)
    }

    /// What it has given since the last transaction that counts was taken back, and comes again.
    fn rewind(&mut self) {}

    /// No more is acknowledged: waits until what it was told of is kept.
    fn finish(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// It is not asked any more, whether the stream has come to its end or has failed: gives up what others wait for.
    fn leave(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }
}

/// How far a source has come.
pub enum Progress {
    /// No further than it has told.
    None,
    /// To these offsets.
    Group(GroupOffsets),
    /// Some of what it has given comes again: the transaction must not count.
    Void,
}

/// The next offsets of partitions that a member of a consumer group has.
pub struct GroupOffsets {
    /// The offsets.
    pub offsets: BTreeMap<TopicPartition, CommittedOffset>,
    /// The member, in the generation in which it has them: the group refuses those of one that is over (KIP-447).
    pub group: GroupMetadata,
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transacted {
    /// It counts.
    Committed,
    /// It can only be taken back.
    Refused,
}

/// What works on messages on their way.
pub trait Processor: Send {
    /// Makes of the batch what goes on.
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError>;

    /// What is to be waited for before the batch goes on, if anything.
    fn settle<'a>(&'a mut self, _batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        None
    }

    /// Whether it holds so much back that nothing more may come until a [`Processor::tick`] has let some go.
    fn is_full(&self) -> bool {
        false
    }

    /// Waits until [`Processor::tick`] may have something, where that is not a matter of time. May be dropped at any time, and
    /// loses nothing then.
    fn wake(&mut self) -> Option<Wait<'_, ()>> {
        None
    }

    /// When [`Processor::tick`] is to be called, though no message comes.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Puts into the batch, which is empty, what is due.
    fn tick(&mut self, _batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }

    /// Puts into the batch, which is empty, what is left when no more messages come.
    fn finish<'a>(&'a mut self, _batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The first message that it still holds back: no message from it on has gone through.
    fn held_since(&self) -> Option<u64> {
        None
    }

    /// Forgets what it holds back: it comes again. Asked only of those that a stream which runs exactly once may have.
    fn forget(&mut self) {}
}

/// Where messages go.
pub trait Sink: Send {
    /// Takes the messages. They may still be on their way when this returns.
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError>;

    /// What is to be waited for before the next batch may come, if anything.
    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        None
    }

    /// When [`Sink::tick`] is to be called, though no message comes.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what is due.
    fn tick(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }

    /// Waits until all that was written has arrived, but for what [`Sink::held_since`] tells of.
    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The first message that a flush does not wait for and that has not arrived: other streams have it.
    fn held_since(&mut self) -> Option<u64> {
        None
    }

    /// Whether [`Sink::held_since`] tells of what a flush would wait for, too: to know what has arrived, nobody has to wait. An
    /// error is that something will not arrive.
    fn tells_arrivals(&mut self) -> Result<bool, StageError> {
        Ok(false)
    }

    /// Waits until what a flush does not wait for has arrived, as far as it was written by now. May be dropped at any time.
    fn catch_up(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }

    /// For streams that run exactly once: makes all that was written since the last time, and how far the source has come with
    /// it, count together.
    fn commit(&mut self, _progress: GroupOffsets) -> Wait<'_, Result<Transacted, StageError>> {
        unreachable!("a stream that runs exactly once ends in a sink that has transactions")
    }

    /// For streams that run exactly once: takes back what was written since the last commit, if anything was.
    fn abort(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// No more messages come: waits until those that a flush does not wait for have arrived.
    fn arrive(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// No more messages come; all that was written has arrived.
    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }
}

/// Why a stage cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A file, a pipe or a socket.
    #[error(transparent)]
    Io(#[from] IoFailed),
    /// A message that cannot be worked on, where that ends the stream.
    #[error(transparent)]
    BadMessage(#[from] BadMessage),
    /// What was written did not arrive.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
    /// A program that is a stage.
    #[error(transparent)]
    Program(#[from] ProgramFailed),
    /// A cluster.
    #[error(transparent)]
    Kafka(#[from] KafkaFailed),
    /// A stream that is fed by this one.
    #[error(transparent)]
    ReaderGone(#[from] ReaderGone),
}

/// A stream that is fed by this one ended before its messages had arrived. Why is told by that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A stream that reads from this one ended before all messages had arrived; they are not acknowledged")]
pub struct ReaderGone;

/// Input or output failed.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {action} {what}: {source}")]
pub struct IoFailed {
    /// What was tried: read, write, open.
    pub action: &'static str,
    /// With what: a path, an address.
    pub what: String,
    /// Why not.
    pub source: io::Error,
}

impl IoFailed {
    /// Of a file.
    pub fn file(action: &'static str, path: &std::path::Path, source: io::Error) -> IoFailed {
        IoFailed { action, what: path.display().to_string(), source }
    }
}

/// A message cannot be worked on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "A message cannot be worked on: {reason} (message {sequence}: {excerpt}); --on-error=skip, or onError=skip among --properties, would leave it out"
)]
pub struct BadMessage {
    /// Why not.
    pub reason: String,
    /// Its place in what its source has made.
    pub sequence: u64,
    /// How it begins.
    pub excerpt: String,
}

/// A receiver did not take messages, however often it was tried.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{to} did not take a message, tried {tries} times over {seconds:.0} s: {reason}")]
pub struct NotDelivered {
    /// Whom it was sent to.
    pub to: String,
    /// How often.
    pub tries: u32,
    /// From the first try to the last.
    pub seconds: f64,
    /// What the last try ended with.
    pub reason: String,
}

/// A program that is a stage ended, or does not keep to its protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The program {command:?} {reason}")]
pub struct ProgramFailed {
    /// The command.
    pub command: String,
    /// What it did.
    pub reason: String,
}

/// A cluster refused, or cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action}: {reason}")]
pub struct KafkaFailed {
    /// What was tried.
    pub action: String,
    /// What came of it.
    pub reason: String,
}
