//! The share coordinator: the state of share partitions, which the leaders of their partitions read and write.
//!
//! Behaves as Kafka's `org.apache.kafka.coordinator.share` (KIP-932).
//!
//! ```text
//! Persister            brings a leader's or a group's request to the coordinator of its share partition, here or elsewhere
//! ShareCoordinator     requests; the driver below it is `thalweg_shard`
//!   Shard              all share partitions of one partition of `__share_group_state`: pure, no clock, no I/O
//!     Entry            one of them: epochs, start offset, and the runs of records behind it
//! ```
//!
//! A share partition belongs to the partition of `__share_group_state` that `group:topic id:partition` hashes to. Its
//! state is fenced twice: by the epoch of its partition's leader, which the first read of a new leader raises, and by its
//! own epoch, which rises when the offset of the group is set from outside.

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

pub use config::ShareConfig;
pub use coordinator::{Cluster, ShareCoordinator, coordinator_key, is_coordinator_key};
pub use error::{PersistError, StateError};
pub use persister::Persister;
pub use request::{Ask, Done, Outcomes, Write};
pub use runs::Run;
