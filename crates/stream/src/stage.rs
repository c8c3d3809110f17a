//! The interfaces of stages: source, processor and sink, and their requests to the runtime.
//!
//! `fill`, `process` and `write` never wait. A stage that must wait says so: a source by [`Source::ready`], others by `settle`. So
//! adjacent stages run on one thread, by plain calls.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use thalweg_client::{CommittedOffset, GroupMetadata, TopicPartition};
use tokio::time::Instant;

use crate::message::{Batch, Message};

/// A future that the runtime awaits.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of [`Source::fill`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// The batch has messages.
    Ready,
    /// No messages yet.
    Pending,
    /// No more messages.
    End,
}

/// The current time, and the handler of bad messages.
pub struct Turn<'a> {
    /// The monotonic time.
    pub now: Instant,
    /// The time of day, in milliseconds since 1970.
    pub time_ms: i64,
    /// The total time that the stream has waited for its source.
    pub idle: Duration,
    /// Receives bad messages.
    pub bad: &'a mut dyn Refusals,
}

/// Receives messages that a stage cannot process.
pub trait Refusals: Send {
    /// Handles one, with the reason. An error ends the stream.
    fn take(&mut self, message: &Message<'_>, reason: &str) -> Result<(), StageError>;
}

/// A source.
pub trait Source: Send {
    /// Replaces the contents of the batch, whose buffers may be reused, by available messages.
    fn fill(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<Filled, StageError>;

    /// Waits until [`Source::fill`] may have more. Cancel safe.
    fn ready(&mut self) -> Wait<'_, ()>;

    /// Stops reading. Messages already received are still emitted, then the end.
    fn close(&mut self);

    /// Whether other streams feed it. Then it is not closed when the run stops: it ends after them.
    fn is_fed(&self) -> bool {
        false
    }

    /// For at-most-once streams: ensures that the messages of the last filled batch are never redelivered, and removes those for
    /// which it cannot. Nothing if no message is ever redelivered.
    fn claim<'a>(&'a mut self, _batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        None
    }

    /// Whether it needs acknowledgements.
    fn wants_acknowledgement(&self) -> bool {
        false
    }

    /// Whether clients wait for acknowledgements, so that the source should get them within milliseconds.
    fn has_waiting_clients(&self) -> bool {
        false
    }

    /// The sink has accepted all messages up to this sequence.
    fn acknowledge(&mut self, _through: u64) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The deadline for handing back revoked partitions, if any: until then nothing more is emitted, and messages in flight are
    /// delivered.
    fn losing(&self) -> Option<Instant> {
        None
    }

    /// Everything deliverable is delivered and acknowledged: the partitions may be reassigned.
    fn hand_back(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// For exactly-once streams, in place of an acknowledgement: the position after all messages up to this sequence, for a
    /// transaction of the sink. Each message is reported once.
    fn progress(&mut self, _through: u64) -> Result<Progress, StageError> {
        Ok(Progress::None)
    }

    /// The transaction was aborted: messages since the last committed one are emitted again.
    fn rewind(&mut self) {}

    /// No more acknowledgements follow: waits until the given ones are committed.
    fn finish(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The stream has ended or failed: releases resources that others wait for.
    fn leave(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }
}

/// The position of a source.
pub enum Progress {
    /// Unchanged.
    None,
    /// Advanced to these offsets.
    Group(GroupOffsets),
    /// Some messages will be redelivered: the transaction must abort.
    Void,
}

/// The next offsets of a group member's partitions.
pub struct GroupOffsets {
    /// The offsets.
    pub offsets: BTreeMap<TopicPartition, CommittedOffset>,
    /// The member and its generation: the group rejects offsets of an old generation (KIP-447).
    pub group: GroupMetadata,
}

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transacted {
    /// Committed.
    Committed,
    /// It must be aborted.
    Refused,
}

/// A processor.
pub trait Processor: Send {
    /// Transforms the batch.
    fn process(&mut self, batch: &mut Batch, turn: &mut Turn<'_>) -> Result<(), StageError>;

    /// What must be awaited before the batch continues, if anything.
    fn settle<'a>(&'a mut self, _batch: &'a mut Batch) -> Option<Wait<'a, Result<(), StageError>>> {
        None
    }

    /// Whether it can accept nothing more until a [`Processor::tick`] has released messages.
    fn is_full(&self) -> bool {
        false
    }

    /// Waits until [`Processor::tick`] may have messages, if that does not depend on time. Cancel safe.
    fn wake(&mut self) -> Option<Wait<'_, ()>> {
        None
    }

    /// When to call [`Processor::tick`] even if no message arrives.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Puts due messages into the empty batch.
    fn tick(&mut self, _batch: &mut Batch, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }

    /// Puts the remaining messages into the empty batch at the end.
    fn finish<'a>(&'a mut self, _batch: &'a mut Batch) -> Wait<'a, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The first message that it holds back; later ones have not passed either.
    fn held_since(&self) -> Option<u64> {
        None
    }

    /// Drops held messages, which are redelivered. Called only on processors allowed in exactly-once streams.
    fn forget(&mut self) {}
}

/// A sink.
pub trait Sink: Send {
    /// Accepts the messages, which may still be in flight when this returns.
    fn write(&mut self, batch: &Batch, turn: &mut Turn<'_>) -> Result<(), StageError>;

    /// What must be awaited before the next batch, if anything.
    fn settle(&mut self) -> Option<Wait<'_, Result<(), StageError>>> {
        None
    }

    /// When to call [`Sink::tick`] even if no message arrives.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Performs due work.
    fn tick(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }

    /// Waits until everything written is delivered, except for what [`Sink::held_since`] reports.
    fn flush(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// The first undelivered message that a flush does not wait for: other streams hold it.
    fn held_since(&mut self) -> Option<u64> {
        None
    }

    /// Whether [`Sink::held_since`] also covers what a flush would wait for, so that acknowledgement needs no wait. An error means
    /// that some delivery has failed.
    fn reports_delivery(&mut self) -> Result<bool, StageError> {
        Ok(false)
    }

    /// Waits until everything written so far is delivered, including what a flush does not wait for. Cancel safe.
    fn catch_up(&mut self) -> Wait<'_, ()> {
        Box::pin(async {})
    }

    /// For exactly-once streams: commits everything written since the last commit, together with the source's position.
    fn commit(&mut self, _progress: GroupOffsets) -> Wait<'_, Result<Transacted, StageError>> {
        unreachable!("a stream that runs exactly once ends in a sink that has transactions")
    }

    /// For exactly-once streams: aborts everything written since the last commit.
    fn abort(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// No more messages follow: waits for deliveries that a flush does not wait for.
    fn arrive(&mut self) -> Wait<'_, Result<(), StageError>> {
        Box::pin(async { Ok(()) })
    }

    /// No more messages follow, and everything is delivered.
    fn finish(&mut self, _turn: &mut Turn<'_>) -> Result<(), StageError> {
        Ok(())
    }
}

/// Why a stage failed.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// I/O on a file, pipe or socket.
    #[error(transparent)]
    Io(#[from] IoFailed),
    /// A bad message, if the policy is to fail.
    #[error(transparent)]
    BadMessage(#[from] BadMessage),
    /// A receiver rejected messages.
    #[error(transparent)]
    NotDelivered(#[from] NotDelivered),
    /// A program that runs as a stage.
    #[error(transparent)]
    Program(#[from] ProgramFailed),
    /// A cluster.
    #[error(transparent)]
    Kafka(#[from] KafkaFailed),
    /// A downstream stream.
    #[error(transparent)]
    ReaderGone(#[from] ReaderGone),
}

/// A downstream stream ended before its messages had arrived. Its own error has the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("A downstream stream ended before all messages had arrived; they are not acknowledged")]
pub struct ReaderGone;

/// Failed input or output.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {action} {what}: {source}")]
pub struct IoFailed {
    /// The operation: read, write, open.
    pub action: &'static str,
    /// Its object: a path, an address.
    pub what: String,
    /// The cause.
    pub source: io::Error,
}

impl IoFailed {
    /// For a file.
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
    /// Why not.
    pub reason: String,
    /// Its number, counted by its source.
    pub sequence: u64,
    /// Its beginning.
    pub excerpt: String,
}

/// A receiver did not accept messages, despite retries.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{to} did not accept a message after {tries} attempts in {seconds:.0} s: {reason}")]
pub struct NotDelivered {
    /// The receiver.
    pub to: String,
    /// The number of attempts.
    pub tries: u32,
    /// From the first attempt to the last.
    pub seconds: f64,
    /// The error of the last attempt.
    pub reason: String,
}

/// A program stage exited or violated its protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The program {command:?} {reason}")]
pub struct ProgramFailed {
    /// The command.
    pub command: String,
    /// What it did.
    pub reason: String,
}

/// A cluster refused a request, or is unreachable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action}: {reason}")]
pub struct KafkaFailed {
    /// The operation.
    pub action: String,
    /// The cause.
    pub reason: String,
}
