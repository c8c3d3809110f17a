//! The common structure of the coordinators. A shard makes the decisions for one partition of the
//! coordinator's topic; the driver writes them and answers once they are acknowledged. The driver is
//! `Shards`, with a `Cell` for each shard.
//!
//! ```text
//! Shards     finds shards, loads and unloads them at elections and resignations, sleeps until
//!            the next deadline
//!   Cell     one shard with its lock, under which its writes are appended
//!     Shard  the decisions, without clock, I/O or waiting: groups, transactions and share groups have
//!            one each
//! ```
//!
//! An answer carries the part of the log on which it depends, and the driver holds it back until the replicas
//! have that part (`answers`): no client acts on a state that the next coordinator may not know.
//!
//! A shard's lock is held while its writes are appended. No function of `Shards` may therefore be called
//! under a lock that [`CoordinatorLog::append`] takes.

mod answers;
mod cell;
mod context;
mod divided_writes;
mod error;
mod load;
mod log;
mod placement;
mod record;
mod replay;
mod shards;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unacknowledged;

#[cfg(any(test, feature = "testing"))]
pub use answers::HeldAnswers;
pub use answers::{Answers, Basis, ReplicatedValue, ShardAnswer};
pub use cell::Cell;
pub use divided_writes::DividedWrites;
pub use error::{RequestError, Unavailability, WriteError};
pub use log::{AppendedBatch, CoordinatorLog, Part, Piece, RecordDecodeError, ShardLoadError};
pub use placement::partition_for;
pub use record::prefixed;
pub use replay::replay_records;
pub use shards::LoadFigures;
pub use shards::Shards;
pub use thalweg_log::Moment;
pub use thalweg_replica::partition::TransactionalAppendOptions;
pub use unacknowledged::{UnacknowledgedWrite, UnacknowledgedWrites};

use bytes::Bytes;
use std::sync::Arc;
use thalweg_record::DecompressBuffer;

/// Initial capacity for a batch, enough for a batch of one record.
pub const BATCH_BYTES: usize = 512;

/// The number of a waiting request. The driver gives each request another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The state of a coordinator in one partition of its topic.
///
/// The shard is driven in turns. A turn is one call that may change the state: a request, a deadline, an
/// acknowledgement. After each turn, the driver takes the shard's writes ([`Shard::next_write`]), appends
/// them in order and reports the outcome ([`Shard::written`] or [`Shard::refused`]), takes the answers, and
/// runs all due work.
///
/// State and log change in one of two orders. Most state follows the log: a decision leaves behind a write,
/// and the state changes when the write is in the log ([`Shard::written`]) or acknowledged
/// ([`Shard::acknowledged`]). A refused write then has no effect on the state. The membership of groups of
/// the classic protocol precedes the log: a decision changes the group, and its record describes the changed
/// group. If that record is refused, the shard fails the waiting requests and removes a new group.
///
/// An answer waits for acknowledgements at two levels. The shard keeps the answer of a write until the
/// outcome of the write is known, because a failure changes the answer. The driver holds every answer until
/// the answer's [`Basis`] is acknowledged, which covers answers without a write.
pub trait Shard: Send + Sized + 'static {
    /// Kind of the state, for log lines.
    const KEEPS: &'static str;
    /// Topic of the state, for log lines.
    const TOPIC: &'static str;
    /// The effects on clients if records that no replica has any more are left out; `None` if the shard must
    /// not serve then.
    const LOSS: Option<&'static str>;
    /// State shared by the shards of a broker.
    type SharedState: Send + Sync + 'static;
    /// The context of a turn.
    type TurnContext: Copy;
    /// The content of one batch to append.
    type Write;
    /// The answer to a request.
    type Answer: ShardAnswer;

    /// The context of a turn at this time.
    fn turn(shared: &Self::SharedState, now: Moment) -> Self::TurnContext;
    /// An empty shard for this leader epoch.
    fn new(shared: &Self::SharedState, leader_epoch: i32, turn: Self::TurnContext) -> Self;
    /// Replays a piece of the log.
    fn replay(
        &mut self,
        piece: Piece<'_>,
        buffer: &mut DecompressBuffer,
        turn: Self::TurnContext,
    ) -> Result<(), ShardLoadError>;
    /// Skips lost records at this position of the log, which no replica has any more. Called only with
    /// [`Shard::LOSS`].
    fn skip_lost(&mut self) {}
    /// Ends the replay. If the log is not fully acknowledged, `unacknowledged_to` is the offset of its last
    /// record, and [`Shard::acknowledged`] follows.
    fn loaded(&mut self, unacknowledged_to: Option<i64>, turn: Self::TurnContext);
    /// Number of entries in the state.
    fn count(&self) -> usize;

    /// Takes the next write to append.
    fn next_write(&mut self) -> Option<Self::Write>;
    /// A write as a batch.
    fn batch(
        shared: &Self::SharedState,
        write: &Self::Write,
        now: Moment,
    ) -> Result<(Bytes, TransactionalAppendOptions), WriteError>;
    /// Handles a write that is in the log and ends at this offset.
    fn written(&mut self, write: Self::Write, last_offset: i64, turn: Self::TurnContext);
    /// Takes the first half of the records out of a write, as a write before it; `None` if the write cannot
    /// be divided. The driver divides a rejected write if a single record may be the cause.
    fn take_first_half(_: &mut Self::Write) -> Option<Self::Write> {
        None
    }
    /// Handles a write that did not get into the log and cannot be divided: none of it has happened. Batches
    /// have at most `batch_bytes_max` bytes.
    fn refused(
        &mut self,
        write: Self::Write,
        error: WriteError,
        batch_bytes_max: usize,
        turn: Self::TurnContext,
    );
    /// Handles the acknowledgement of the log up to this offset.
    fn acknowledged(&mut self, last_offset: i64, turn: Self::TurnContext);
    /// Handles the failure of a write that ended at this offset: the medium refused it, or too few replicas
    /// have it.
    fn unacknowledged(&mut self, last_offset: i64, error: WriteError, turn: Self::TurnContext);

    /// The monotonic time of the next work for [`Shard::expire_next`]; there is always some.
    fn next_deadline_ms(&self) -> i64;
    /// Does one piece of due work. Returns false if there was none.
    fn expire_next(&mut self, turn: Self::TurnContext) -> bool;
    /// The answers of the shard, which the driver takes.
    fn answers(&mut self) -> &mut Answers<Self::Answer>;
    /// Maximum wait of an answer for its basis, in milliseconds.
    fn answer_timeout_ms(shared: &Self::SharedState) -> i64;
    /// Passes on effects of a turn other than writes and answers. Returns true if they must wake
    /// [`Shards::sleep`].
    fn pass_on(&mut self, shared: &Self::SharedState, cell: &Arc<Cell<Self>>) -> bool;
    /// Unloads the shard: waiting requests are redirected.
    fn unload(&mut self);
}
