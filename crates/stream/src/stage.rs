//! The interfaces of stages: source, processor and sink, and their requests to the runtime.
//!
//! `fill`, `process` and `write` never wait. A source waits in [`Source::ready`], other stages in `settle`.
//! So adjacent stages run on one thread, by plain calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use thalweg_client::{CommittedOffset, GroupMetadata, TopicPartition};
use tokio::time::Instant;

use crate::clock::ClockReading;
use crate::message::{Batch, Message};
use crate::state::{State, StateRecord};

/// A future that the runtime awaits.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of [`Source::fill`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FillResult {
    /// The batch has messages.
    Ready,
    /// No messages yet.
    Pending,
    /// No more messages.
    End,
}

/// The times at which a stream looks at its source.
#[derive(Clone, Copy, Debug)]
pub struct SourceWatch {
    /// The total time that the stream has waited for its source.
    pub waited: Duration,
    /// The last time at which the stream was ready for messages. A stream that stands still, or whose stages
    /// are full, does not look.
    pub looked: Instant,
    /// The last time at which the source had no messages.
    pub empty: Option<ClockReading>,
}

impl SourceWatch {
    /// The state before the first look.
    pub fn new(now: Instant) -> SourceWatch {
        SourceWatch { waited: Duration::ZERO, looked: now, empty: None }
    }
}

/// The current time, and the handler of bad messages.
pub struct Turn<'a> {
    /// The monotonic time.
    pub now: Instant,
    /// The time of day, in milliseconds since 1970.
    pub time_ms: i64,
    /// The state of the source, as the stream has seen it.
    pub source: SourceWatch,
    /// Receives bad messages.
    pub bad: &'a mut dyn Refusals,
}

/// Receives messages that a stage cannot process.
pub trait Refusals: Send {
    /// Handles a bad message, with the reason. An error ends the stream.
    fn take(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError>;

    /// Handles a message that arrived too late to be processed: adds it to the dead letters, if any.
    /// It is no bad message, and neither fails the stream nor counts as one.
    fn take_late(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError>;
}

/// Produces the messages of a stream.
pub trait Source: Send {
    /// Replaces the contents of the batch, whose buffers may be reused, by available messages.
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<FillResult, StageError>;

    /// Waits until [`Source::fill`] may have more. Cancel safe.
    fn ready(&mut self) -> Wait<'_, ()>;

    /// Stops reading. Messages already received are still emitted, then the end.
    fn close(&mut self);

    /// True if other streams feed this source. Such a source is not closed when the run stops: it ends after
    /// those streams.
    fn is_fed(&self) -> bool {
        false
    }

    /// For at-most-once streams: ensures that the messages of the last filled batch are never redelivered,
    /// and removes messages without that guarantee. `None` if the source never redelivers messages.
    fn claim<'a>(&'a mut self, _batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        None
    }

    /// True if the source sets the provenance of its batches. Otherwise it has a single partition.
    fn has_provenance(&self) -> bool {
        false
    }

    /// True if the source needs acknowledgements.
    fn wants_acknowledgement(&self) -> bool {
        false
    }

    /// True if clients wait for acknowledgements, which the source should then get within milliseconds.
    fn has_waiting_clients(&self) -> bool {
        false
    }

    /// True if senders wait for an answer to each message, so that a bad message is returned to its sender.
    fn answers_senders(&self) -> bool {
        false
    }

    /// Returns a bad message to its sender, before the message is acknowledged. Returns false if the sender
    /// already has another answer.
    fn return_bad(&mut self, _sequence: u64, _reason: &str) -> bool {
        false
    }

    /// Acknowledges all messages up to this sequence: the sink has accepted them.
    fn acknowledge(&mut self, _through: u64) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The deadline for handing back revoked partitions, if any. Until then no more messages are emitted, and
    /// messages in flight are delivered.
    fn losing(&self) -> Option<Instant> {
        None
    }

    /// Allows reassignment of the revoked partitions: all deliverable messages are delivered and
    /// acknowledged.
    fn hand_back(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// For streams with transactions, in place of an acknowledgement: the position after all messages up to
    /// this sequence, for the next transaction. Each message is reported once. With `is_due`, there is a
    /// transaction even without a new position.
    fn progress(&mut self, _through: u64, _is_due: bool) -> Result<Progress, StageError> {
        Ok(Progress::None)
    }

    /// True if [`Source::progress`] has a position behind records that are no messages.
    fn has_passed(&self) -> bool {
        false
    }

    /// Emits the messages since the last committed transaction again, after an abort.
    fn rewind(&mut self) {}

    /// Waits until the given acknowledgements are committed. No more follow.
    fn finish(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// Releases resources that other members wait for. Called after the end or failure of the stream.
    fn leave(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }
}

/// The position of a source.
pub enum Progress {
    /// The position is unchanged.
    None,
    /// The position has advanced to these offsets.
    Group(GroupOffsets),
    /// Some messages will be redelivered: the transaction must abort.
    Void,
}

/// The next offsets of a group member's partitions, and the state of the stages at that position.
pub struct GroupOffsets {
    pub offsets: BTreeMap<TopicPartition, CommittedOffset>,
    /// The member and its generation: the group rejects offsets of an old generation (KIP-447).
    pub group: GroupMetadata,
    pub state: Vec<StateRecord>,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionOutcome {
    /// The transaction is committed.
    Committed,
    /// The transaction must be aborted.
    Refused,
}

/// Transforms the messages of a stream.
pub trait Processor: Send {
    /// Transforms the batch.
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError>;

    /// The future to await before the batch continues, if any.
    fn settle<'a>(&'a mut self, _batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        None
    }

    /// True if the processor can accept no more until a [`Processor::tick`] has released messages.
    fn is_full(&self) -> bool {
        false
    }

    /// Waits until [`Processor::tick`] may have messages, if that depends on events other than time. Cancel
    /// safe.
    fn wake(&mut self) -> Option<Wait<'_, ()>> {
        None
    }

    /// The time at which to call [`Processor::tick`] even if no message arrives.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// The time by which all held messages are released even if no message arrives; `None` if only further
    /// messages release them. A rebalance waits for the release.
    fn releases_by(&self) -> Option<Instant> {
        self.deadline()
    }

    /// Puts due messages into the empty batch.
    fn tick(&mut self, _batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }

    /// While the stream drains: makes room for more messages, by putting some of those that wait into the
    /// empty batch at once. Called until the processor is no longer full.
    fn relieve<'a>(&'a mut self, _batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// Puts the remaining messages into the empty batch at the end, or some of them.
    fn finish<'a>(&'a mut self, _batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// False if [`Processor::finish`] has to be called again for more messages.
    fn has_finished(&self) -> bool {
        true
    }

    /// True if each message has the sequence of the one message from which it is made.
    fn keeps_sequences(&self) -> bool {
        true
    }

    /// The first message held by the processor. Later messages have not passed either.
    fn held_since(&self) -> Option<u64> {
        None
    }

    /// Drops held messages, which will be redelivered.
    fn forget(&mut self) {}

    /// The state that outlives the process, if the site of the stage has durable state.
    fn state(&mut self) -> Option<&mut dyn State> {
        None
    }
}

/// Takes the messages at the end of a stream.
pub trait Sink: Send {
    /// Accepts the messages, which may still be in flight when this returns.
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError>;

    /// The future to await before the next batch, if any.
    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        None
    }

    /// The time at which to call [`Sink::tick`] even if no message arrives.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Performs due work.
    fn tick(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }

    /// Waits until everything written is delivered, except for messages reported by [`Sink::held_since`].
    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// Treats messages that the receiver refused for good as bad messages. Until then they are undelivered.
    fn give_back(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }

    /// The first undelivered message held by other streams, which a flush does not wait for.
    fn held_since(&mut self) -> Option<u64> {
        None
    }

    /// True if [`Sink::held_since`] also covers messages that a flush would wait for, so that acknowledgement
    /// needs no wait. An error means that a delivery has failed.
    fn reports_delivery(&mut self) -> Result<bool, StageError> {
        Ok(false)
    }

    /// Waits until everything written so far is delivered, including messages that a flush does not wait for.
    /// Cancel safe.
    fn catch_up(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }

    /// For exactly-once streams: commits everything written since the last commit, together with the source's
    /// position.
    fn commit(&mut self, _progress: GroupOffsets) -> Wait<'_, Result<TransactionOutcome, StageError>> {
        unreachable!("a stream that runs exactly once ends in a sink that has transactions")
    }

    /// The time that a transaction of the sink may take, if it has transactions.
    fn transaction_timeout(&self) -> Option<Duration> {
        None
    }

    /// For exactly-once streams: aborts everything written since the last commit.
    fn abort(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// Waits for deliveries that a flush does not wait for. No more messages follow.
    fn arrive(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The state that outlives the process, if the site of the stage has durable state.
    fn state(&mut self) -> Option<&mut dyn State> {
        None
    }

    /// Finishes the sink: no more messages follow, and all are delivered.
    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }
}

/// The reason why a stage failed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// I/O on a file, pipe or socket failed.
    #[error(transparent)]
    Io(#[from] IoFailed),
    /// A message was bad, and the policy is to fail.
    #[error(transparent)]
    BadMessage(#[from] BadMessage),
    /// A receiver rejected messages.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
    /// A program stage failed.
    #[error(transparent)]
    Program(#[from] ProgramFailed),
    /// A cluster request failed.
    #[error(transparent)]
    Kafka(#[from] KafkaFailed),
    /// A downstream stream ended too early.
    #[error(transparent)]
    ReaderGone(#[from] ReaderGone),
}

/// A downstream stream ended before its messages were delivered. Its own error has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A downstream stream ended before all messages had arrived; they are not acknowledged")]
pub struct ReaderGone;

/// Failed input or output.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {action} {what}: {source}")]
pub struct IoFailed {
    /// The operation: read, write, open.
    pub action: &'static str,
    /// The object of the operation: a path, an address.
    pub what: String,
    pub source: io::Error,
}

impl IoFailed {
    /// A failed operation on a file.
    pub fn file(action: &'static str, path: &std::path::Path, source: io::Error) -> IoFailed {
        IoFailed { action, what: path.display().to_string(), source }
    }
}

/// A bad message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Bad message: {reason} (message {sequence}: {excerpt}); to skip bad messages, use --on-error=skip, or onError=skip in --properties"
)]
pub struct BadMessage {
    /// The reason why the message is bad.
    pub reason: String,
    /// The message's number, counted by its source.
    pub sequence: u64,
    /// The beginning of the message.
    pub excerpt: String,
}

/// A receiver did not accept messages, despite retries.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{to} did not accept a message after {tries} attempts in {seconds:.0} s: {reason}")]
pub struct NotDelivered {
    pub to: String,
    /// The number of attempts.
    pub tries: u32,
    /// Time from the first attempt to the last, in seconds.
    pub seconds: f64,
    /// The error of the last attempt.
    pub reason: String,
}

/// A program stage exited or violated its protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The program {command:?} {reason}")]
pub struct ProgramFailed {
    pub command: String,
    /// The program's violation, or its exit status.
    pub reason: String,
}

/// A cluster refused a request, or is unreachable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action}: {reason}")]
pub struct KafkaFailed {
    pub action: String,
    pub reason: String,
}
