//! The coordinator of classic consumer groups: members, generations, assignments and committed offsets.
//!
//! Behaves as Kafka's `org.apache.kafka.coordinator.group` does for the classic protocol. The consumer protocol of
//! KIP-848, share groups and streams groups are not served; their records are skipped.
//!
//! ```text
//! GroupCoordinator   requests in the form of each version; the driver below it is `crate::driver`
//!   Shard            all groups and offsets of one partition of `__consumer_offsets`: pure, no clock, no I/O
//!     ClassicGroup   one group's membership and generations
//!     OffsetStore    what the groups committed
//!     Timers         every deadline of the shard, in one queue
//! ```
//!
//! A request becomes a call on the shard, which changes its state, and leaves behind a [`Write`] for the log. The
//! driver appends it under the shard's lock, so the log has the order in which the shard decided, and passes the
//! offset to the shard. An answer is released when all earlier writes are acknowledged; reads
//! ([`GroupCoordinator::offset_fetch`], list, describe) see only the acknowledged state.

mod answer;
pub mod assignor;
mod classic;
mod config;
mod coordinator;
mod effects;
mod error;
mod member;
mod offsets;
mod record;
pub mod regex;
mod shard;
mod subscription;
#[cfg(test)]
mod tests;
mod timed;
mod timers;
mod topics;

pub use answer::{Answer, ClientInfo};
pub use config::GroupConfig;
pub use coordinator::GroupCoordinator;
pub use offsets::{OffsetAndMetadata, TransactionOutcome};
pub use record::CoordinatorRecord;
pub use shard::{EndOfTransaction, GroupFigures, Shard, TransactionalProducer, Write};
pub use topics::{DeletedTopic, Topics};
