//! The group coordinator: members, epochs, assignments and committed offsets.
//!
//! Compatible with Kafka's `org.apache.kafka.coordinator.group` for the classic protocol, the consumer
//! protocol of KIP-848, share groups (KIP-932) and streams groups (KIP-1071).
//!
//! ```text
//! GroupCoordinator   requests in the form of each version; the driver below it is `thalweg_shard`
//!   GroupShard       all groups and offsets of one partition of `__consumer_offsets`: pure, no clock, no I/O
//!     ClassicGroup   one group's membership and generations
//!     ConsumerGroup  the same of a group that the coordinator assigns partitions to
//!       assignor     the algorithms of these assignments
//!     ShareGroup     the same of a group whose members share partitions
//!     StreamsGroup   the same of the instances of a Kafka Streams application, which are assigned tasks
//!     OffsetStore    the committed offsets of the groups
//!     Timers         every deadline of the shard, in one queue
//! ```
//!
//! A request becomes a call on the shard, which leaves behind a [`Write`] for the log; the state changes
//! before or after the write, as `thalweg_shard::Shard` describes. The driver appends the write under the
//! shard's lock, so the log has the order of the shard's decisions, and passes the offset to the shard. An
//! answer is released when all earlier writes are acknowledged; reads ([`GroupCoordinator::offset_fetch`],
//! list, describe) see only the acknowledged state.

mod answer;
pub mod assignor;
mod classic;
mod client;
mod commits;
mod config;
mod consumer;
mod context;
mod coordinator;
mod deadlines;
mod error;
mod kind;
mod member_epoch;
mod modern;
mod offsets;
mod record;
pub mod regex;
mod shard;
mod share;
mod streams;
mod subscription;
#[cfg(test)]
mod tests;
mod timed;
mod timers;
mod topic_filter;
mod topic_hashes;
mod topics;

pub use answer::GroupAnswer;

pub use client::ClientInfo;
pub use config::{
    ConsumerGroupConfig, ConsumerGroupTimes, GroupConfig, Migration, ShareGroupConfig, ShareGroupTimes,
    StreamsGroupConfig, StreamsGroupTimes,
};
pub use coordinator::GroupCoordinator;
pub use offsets::{OffsetAndMetadata, TransactionOutcome};
pub use record::CoordinatorRecord;
pub use shard::{EndOfTransaction, GroupFigures, GroupShard, TransactionalProducer, Write};
pub use share::{
    AlteredOffsets, DeletedOffsets, Initialization, ShareAnswer, ShareGroupError, SharePartitions,
};
pub use streams::StreamsAnswer;
pub use topic_filter::TopicFilter;
pub use topics::{DeletedTopic, TopicPlacement, TopicsView};
