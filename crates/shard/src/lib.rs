//! The common structure of the coordinators: shards, each for one partition of the
//! coordinator's topic, make decisions; the driver writes them and answers once they are acknowledged.
//!
//! ```text
//! Shards     the driver: finds shards, loads and unloads them as this broker is elected and resigns, sleeps until the
//!            next deadline
//!   Cell     one shard with its lock, under which its writes are appended
//!     Shard  the decisions, without clock, I/O or waiting: groups, transactions and share groups have
//!            one each
//! ```
//!
//! An answer carries the part of the log that it rests on, and the driver holds it back until the replicas have that
//! (`answers`): no client acts on a state that the next coordinator may not know.
//!
//! A shard's lock is held while its writes are appended. So none of `Shards`' functions may be called while a lock is held
//! that [`CoordinatorLog::append`] takes.

mod answers;
mod cell;
mod driver;
mod error;
mod load;
mod log;
mod placement;
mod shards;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

#[cfg(any(test, feature = "testing"))]
pub use answers::HeldAnswers;
pub use answers::{Acknowledged, Answers, Basis, Failing};
pub use cell::Cell;
pub use error::{RequestError, Unavailable, WriteError};
pub use log::{Appended, CoordinatorLog, Part, Piece, RecordDecodeError, ReplayError};
pub use placement::partition_for;
pub use shards::LoadFigures;
pub use shards::Shards;
pub use thalweg_replica::partition::AppendAs;

use bytes::Bytes;
use std::sync::Arc;
use thalweg_record::DecompressBuffer;

/// A batch of one record has room in this; larger ones make more.
pub const BATCH_BYTES: usize = 512;

/// The time at which something happens, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970: written to records and compared with them.
    pub wall_ms: i64,
    /// Milliseconds since the broker's start: for timeouts. It never jumps, so that a clock correction does not end
    /// every session at once.
    pub monotonic_ms: i64,
}

/// A request that waits for its answer. The driver gives each its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// All that a coordinator keeps in one partition of its topic.
///
/// It is driven in turns. A turn is one call that may change something: a request, a deadline, an acknowledgement.
/// After each, the driver takes its writes ([`Shard::next_write`]), appends them in order and reports the outcome
/// ([`Shard::written`] or [`Shard::refused`]), takes the answers, and runs everything that is due.
///
/// A shard changes when a write is in the log or acknowledged, and not before: a write that is refused leaves nothing behind.
pub trait Shard: Send + Sized + 'static {
    /// What it stores, for log lines.
    const KEEPS: &'static str;
    /// The topic that it is stored in, for log lines.
    const TOPIC: &'static str;
    /// The effects on clients where records are left out that no replica has any more; `None` if it must not serve then.
    const LOSS: Option<&'static str>;
    /// State shared by the shards of a broker.
    type Shared: Send + Sync + 'static;
    /// The context of a turn.
    type Turn: Copy;
    /// The content of one batch to append.
    type Write;
    /// The answer to a request.
    type Answer: Failing;

    /// The context of a turn now.
    fn turn(shared: &Self::Shared, now: Moment) -> Self::Turn;
    /// A shard that keeps nothing, of the leader of this epoch.
    fn new(shared: &Self::Shared, leader_epoch: i32, turn: Self::Turn) -> Self;
    /// Replays a piece of the log.
    fn replay(
        &mut self,
        piece: Piece<'_>,
        buffer: &mut DecompressBuffer,
        turn: Self::Turn,
    ) -> Result<(), ReplayError>;
    /// At this place of the log there were records that no replica has any more. Only with [`Shard::LOSS`].
    fn skip_lost(&mut self) {}
    /// The log is replayed. If not all of it is acknowledged, this is the offset of its last record;
    /// [`Shard::acknowledged`] follows.
    fn loaded(&mut self, unacknowledged_to: Option<i64>, turn: Self::Turn);
    /// How much it keeps.
    fn count(&self) -> usize;

    /// The next write to be appended.
    fn next_write(&mut self) -> Option<Self::Write>;
    /// A write as a batch.
    fn batch(
        shared: &Self::Shared,
        write: &Self::Write,
        now: Moment,
    ) -> Result<(Bytes, AppendAs), WriteError>;
    /// A write is in the log, and ends at this offset.
    fn written(&mut self, write: Self::Write, last_offset: i64, turn: Self::Turn);
    /// A write did not get into the log, whose batches have so many bytes at most: nothing of it has happened.
    fn refused(&mut self, write: Self::Write, error: WriteError, batch_bytes_max: usize, turn: Self::Turn);
    /// The log is acknowledged up to this offset.
    fn acknowledged(&mut self, last_offset: i64, turn: Self::Turn);
    /// A write that ended at this offset does not count: the medium refused it, or the replicas have it and are too few.
    fn unacknowledged(&mut self, last_offset: i64, error: WriteError, turn: Self::Turn);

    /// When [`Shard::expire_next`] has something to do, by the monotonic clock. There is always something.
    fn next_deadline_ms(&self) -> i64;
    /// Does one thing that is due, and returns whether there was one.
    fn expire_next(&mut self, turn: Self::Turn) -> bool;
    /// The answers that it has given, which the driver takes.
    fn answers(&mut self) -> &mut Answers<Self::Answer>;
    /// How long an answer may wait for what it rests on, in milliseconds.
    fn answer_timeout_ms(shared: &Self::Shared) -> i64;
    /// Passes on effects of a turn other than writes and answers. Returns whether they must wake [`Shards::sleep`].
    fn pass_on(&mut self, shared: &Self::Shared, cell: &Arc<Cell<Self>>) -> bool;
    /// Unloads the shard: waiting requests are redirected.
    fn unload(&mut self);
}
