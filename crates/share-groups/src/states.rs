//! The share coordinator: the state of share partitions, which the partitions' leaders read and write.
//!
//! Compatible with Kafka's `org.apache.kafka.coordinator.share` (KIP-932).
//!
//! ```text
//! Persister            sends the requests of leaders and groups to the share partition's coordinator
//! ShareCoordinator     requests; the driver below it is `thalweg_shard`
//!   ShareShard         all share partitions of one partition of `__share_group_state`; no clock, no I/O
//!     Entry            one share partition: epochs, start offset, and the runs of records after it
//! ```
//!
//! A share partition belongs to the partition of `__share_group_state` to which `group:topic id:partition`
//! hashes. The state is fenced twice: by the leader epoch of its partition, raised by the first read of a new
//! leader, and by the state epoch, raised when the offset of the group is set by an administrator.

mod config;
mod coordinator;
mod entry;
mod error;
mod persister;
mod record;
mod request;
mod runs;
mod shard;
#[cfg(test)]
mod tests;

pub use config::ShareCoordinatorConfig;
pub use coordinator::{ShareCoordinator, coordinator_key, is_coordinator_key};
pub use error::{PersistError, StateError};
pub use persister::Persister;
pub use request::{StateOutcomes, StateReply, StateRequest, StateWrite};
pub use runs::StateRun;
pub use shard::ShareStatesView;
