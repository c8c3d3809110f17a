//! The records of consumer groups in `__consumer_offsets`, as Kafka 4.3 writes them.

use super::{ModernRecord, decode_value, encoded, group_records, modern_records};
use bytes::Bytes;
use thalweg_shard::RecordDecodeError;
use thalweg_wire::group::*;
use thalweg_wire::{Decoder, EncodeError, Message};

group_records! {
    /// A part of a consumer group. A record without a value is a tombstone.
    ConsumerRecord {
        /// The group epoch, and a hash of the subscribed topics.
        Group = 3 (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        /// The subscribed topics, which Kafka wrote before 4.1. Read only so that the record can be deleted.
        PartitionMetadata = 4 (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        /// A member's description of itself.
        Member = 5 (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        /// The epoch of the target assignment.
        Target = 6 (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        /// The target partitions of a member.
        TargetMember = 7 (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        /// The partitions that a member owns, and its epoch.
        Current = 8 (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        /// The topics that match a regular expression.
        RegularExpression = 16 (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
    }
}

modern_records! {
    ConsumerRecord {
        Member = (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        Target = (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        TargetMember = (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        Current = (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    }
}

impl ConsumerRecord {
    /// The member of the record, if the record belongs to one.
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
