//! What the coordinators of groups and of transactions are made of: shards that decide, each for one partition of the
//! coordinator's topic, and the driver that writes what they decide and answers when that is acknowledged.
//!
//! ```text
//! Shards     the driver: finds shards, loads and unloads them as this broker is elected and resigns, sleeps until the
//!            next deadline
//!   Cell     one shard with its lock, under which its writes are appended
//!     Shard  the decisions, without clock, I/O or waiting: `crate::group` and `crate::transaction` have one each
//! ```
//!
//! A shard's lock is held while its writes are appended. So none of `Shards`' functions may be called while a lock is held
//! that [`CoordinatorLog::append`] takes.

mod cell;
mod log;
mod placement;
mod shards;

pub(crate) use cell::Cell;
pub use log::{Acknowledged, Appended, CoordinatorLog, RecordDecodeError, ReplayError};
pub use placement::partition_for;
pub(crate) use shards::Shards;
pub use thalweg_replica::partition::AppendAs;

use bytes::Bytes;
use std::sync::Arc;
use thalweg_record::DecompressBuffer;
use thalweg_wire::ErrorCode;

/// A batch of one record has room in this; larger ones make more.
pub(crate) const BATCH_BYTES: usize = 512;

/// The time at which something happens, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970: what is written and compared with what was written.
    pub wall_ms: i64,
    /// Milliseconds since the broker's start: what timeouts are measured by. It never jumps, so that a corrected
    /// clock does not end every session at once.
    pub monotonic_ms: i64,
}

/// A request that waits for its answer. The driver gives each its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// All that a coordinator keeps in one partition of its topic.
///
/// It is driven in turns. A turn is one call that may change something: a request, a deadline, an acknowledgement. After
/// each, the driver takes the writes that it left ([`Shard::next_write`]), appends each in order and says what became of it
/// ([`Shard::written`] or [`Shard::refused`]), lets everything happen that is due, and takes the answers.
pub(crate) trait Shard: Send + Sized + 'static {
    /// What it keeps, as logs say it.
    const KEEPS: &'static str;
    /// What the shards of a broker share.
    type Shared: Send + Sync + 'static;
    /// What a turn happens with.
    type Turn: Copy;
    /// What is to be appended as one batch.
    type Write;
    /// What a request is told.
    type Answer: Send + 'static;

    /// What a turn of now happens with.
    fn turn(shared: &Self::Shared, now: Moment) -> Self::Turn;
    /// A shard that keeps nothing, of the leader of this epoch.
    fn new(shared: &Self::Shared, leader_epoch: i32, turn: Self::Turn) -> Self;
    /// Replays a piece of the log: whole batches, in their order.
    fn replay(
        &mut self,
        bytes: &[u8],
        buffer: &mut DecompressBuffer,
        turn: Self::Turn,
    ) -> Result<(), ReplayError>;
    /// The log is replayed.
    fn loaded(&mut self, turn: Self::Turn);
    /// How much it keeps.
    fn count(&self) -> usize;

    /// The next write to be appended.
    fn next_write(&mut self) -> Option<Self::Write>;
    /// A write as a batch.
    fn batch(shared: &Self::Shared, write: &Self::Write, now: Moment)
    -> Result<(Bytes, AppendAs), ErrorCode>;
    /// A write is in the log, and ends at this offset.
    fn written(&mut self, write: Self::Write, last_offset: i64, turn: Self::Turn);
    /// A write did not get into the log: nothing of it has happened.
    fn refused(&mut self, write: Self::Write, error: ErrorCode, turn: Self::Turn);
    /// The log is acknowledged up to this offset.
    fn acknowledged(&mut self, last_offset: i64, turn: Self::Turn);
    /// A write that ended at this offset will not be acknowledged, or not in time.
    fn unacknowledged(&mut self, last_offset: i64, error: ErrorCode, turn: Self::Turn);

    /// When [`Shard::expire_next`] has something to do, by the monotonic clock. There is always something.
    fn next_deadline_ms(&self) -> i64;
    /// Does one thing that is due, and returns whether there was one.
    fn expire_next(&mut self, turn: Self::Turn) -> bool;
    /// The answers that may go out.
    fn take_released(&mut self) -> Vec<(Ticket, Self::Answer)>;
    /// Passes on what a turn has left beside writes and answers. Returns whether [`Shards::sleep`] is to end for it.
    fn pass_on(&mut self, shared: &Self::Shared, cell: &Arc<Cell<Self>>) -> bool;
    /// It goes elsewhere: whoever waits is sent there. Returns the answers.
    fn unload(self) -> Vec<(Ticket, Self::Answer)>;
}
