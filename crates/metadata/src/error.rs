//! Errors of replaying records.

use crate::{BrokerEpoch, BrokerId, MetadataVersion, PartitionIndex};
use thalweg_wire::Uuid;

/// A record that does not fit its image. The node must stop, because a skipped record means divergence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("a record changes topic {topic}, which does not exist")]
    NoTopic { topic: Uuid },
    #[error("a record changes the topic named {name}, which does not exist")]
    NoTopicNamed { name: String },
    #[error("a record creates topic {name} as {topic}, which already exists")]
    TopicExists { name: String, topic: Uuid },
    #[error("a record changes partition {partition} of topic {topic}, which does not exist")]
    NoPartition { topic: Uuid, partition: PartitionIndex },
    #[error("{directories} directories for {replicas} replicas")]
    Directories { replicas: usize, directories: usize },
    #[error("{id} is not a leader recovery state")]
    RecoveryState { id: i8 },
    #[error("a record changes broker {broker} at epoch {epoch}, which is not registered with that epoch")]
    NoBroker { broker: BrokerId, epoch: BrokerEpoch },
    #[error("a record sets {field} of broker {broker} to {value}, which has no meaning")]
    BrokerChange { broker: BrokerId, field: &'static str, value: i8 },
    #[error("metadata.version {level} is unknown; this node supports up to {latest}")]
    UnknownMetadataVersion { level: i16, latest: MetadataVersion },
    #[error("access control entry {id} does not exist")]
    NoAcl { id: Uuid },
    #[error("a metadata transaction starts within another")]
    TransactionWithinTransaction,
    #[error("a metadata transaction ends that has not started")]
    NoTransaction,
    #[error("a {record} cannot be replayed outside a batch")]
    Bracket { record: &'static str },
}
