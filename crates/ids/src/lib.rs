//! Kafka's identifiers and epochs, each with its own type, so that they cannot be mixed up.

mod broker;
mod offset;
mod partition;
mod producer;
mod registration;
mod uuid;

pub use broker::BrokerId;
pub use offset::{LeaderEpoch, Offset};
pub use partition::{PartitionIndex, TopicIdPartition};
pub use producer::{NO_SEQUENCE, ProducerEpoch, ProducerId, decrement_sequence, increment_sequence};
pub use registration::{BrokerEpoch, PartitionEpoch};
pub use uuid::{ParseUuidError, Uuid, seed_ids_of_this_thread};
