//! Share groups (KIP-932): the records of a partition that a group has in flight, and the persistent part of
//! that state.
//!
//! Pure: the caller passes time and records. Owns no partition, no connection and no file.
//!
//! ```text
//! SharePartition::load(&ShareState)                          the state left by the last leader
//!   .fetch_offset(&ShareLimits) -> Option<offset>            the next offset to read for a member
//!   .acquire(&AcquireRequest, &ShareLimits, now, ..)         a member holds records until its lock ends
//!   .acknowledge(member, &[Acknowledgement], ..) -> batches  accept, release, reject, renew; then pending
//!   .written(&batches) .not_written(&batches, ..)
//!   .release_member(member, ..) -> batches                   a member leaves
//!   .expire(now, ..) -> ExpiredLocks                         locks end
//!   .log_start_moved(offset)                                 records are deleted
//! ```
//! Bounds: a partition has at most `share.partition.max.record.locks` offsets and one more record batch in
//! flight. Each run of offsets with one state takes at most 112 bytes.

mod acknowledge;
mod acquire;
mod members;
mod partition;
mod run;
mod state;

pub use acknowledge::{AcknowledgeError, AcknowledgeType, Acknowledgement};
pub use acquire::{AcquireMode, AcquireRequest, AcquiredRun, ShareAcquiredRecords, Span};
pub use partition::{ExpiredLocks, InvalidState, ShareLimits, SharePartition};
pub use state::{DeliveryState, SharePartitionKey, ShareState, StateBatch, StateSummary, StateUpdate};
