//! Share groups (KIP-932): what the members of a group have acquired of a partition, and the part of it that survives.
//!
//! Pure: time and records come from the caller. Owns no partition, no connection and no file.
//!
//! ```text
//! SharePartition::load(&ShareState, initial offset)          what the last leader has left
//!   .fetch_offset(&Limits) -> Option<offset>                 where to read for a member
//!   .acquire(&Wanted, &Limits, now, offset, spans)           a member gets records; no other does, until its time is over
//!   .acknowledge(member, &[Acknowledgement], ..) -> batches  accept, release, reject, renew: pending until it is written
//!   .written(&batches) .not_written(&batches, ..)
//!   .release_member(member, ..) -> batches                   a member is gone
//!   .expire(now, ..) -> Expired                              locks end
//!   .log_start_moved(offset)                                 records are deleted
//! ```
//! Bounds: at most `share.partition.max.record.locks` offsets of a partition are in flight, and one batch of records
//! more; each run of them with one state takes at most 112 bytes.

mod acknowledge;
mod acquire;
mod members;
mod partition;
mod run;
mod state;

pub use acknowledge::{AcknowledgeError, Acknowledgement};
pub use acquire::{AcquireMode, Acquired, AcquiredRun, Span, Wanted};
pub use partition::{Expired, InvalidState, Limits, SharePartition};
pub use state::{DeliveryState, ShareKey, ShareState, StateBatch, StateSummary, StateUpdate};
