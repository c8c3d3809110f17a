//! The records of consumer groups in `__consumer_offsets`, as Kafka 4.3 writes them.

use super::{decode_value, encoded, group_records};
use bytes::Bytes;
use thalweg_shard::RecordDecodeError;
use thalweg_wire::group::*;
use thalweg_wire::{Decoder, EncodeError, Message};

group_records! {
    /// A part of a consumer group. Without a value it is a tombstone.
    ConsumerRecord {
        /// The group epoch, and a hash of the subscribed topics.
        Group = 3 (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        /// The subscribed topics, as Kafka wrote them before 4.1. Read for its existence only, so that it is deleted.
        PartitionMetadata = 4 (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        /// What a member has said about itself.
        Member = 5 (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        /// The epoch of the target assignment.
        Target = 6 (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        /// The partitions that a member is to own.
        TargetMember = 7 (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        /// The partitions that a member owns, and its epoch.
        Current = 8 (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        /// The topics that match a regular expression.
        RegularExpression = 16 (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    }
}

impl ConsumerRecord {
    /// The member that the record is about, if it is about one.
    pub fn member(&self) -> Option<&str> {
        match self {
            ConsumerRecord::Member(key, _) => Some(&key.member_id),
            ConsumerRecord::TargetMember(key, _) => Some(&key.member_id),
            ConsumerRecord::Current(key, _) => Some(&key.member_id),
            ConsumerRecord::Group(..)
            | ConsumerRecord::PartitionMetadata(..)
            | ConsumerRecord::Target(..)
            | ConsumerRecord::RegularExpression(..) => None,
        }
    }
}
