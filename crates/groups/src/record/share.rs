//! The records of share groups in `__consumer_offsets`, as Kafka 4.3 writes them.

use super::{ModernRecord, decode_value, encoded, group_records, modern_records};
use bytes::Bytes;
use thalweg_shard::RecordDecodeError;
use thalweg_wire::group::*;
use thalweg_wire::{Decoder, EncodeError, Message};

group_records! {
    /// A part of a share group. A record without a value is a tombstone.
    ShareGroupRecord {
        /// A member's description of itself.
        Member = 10 (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        /// The group epoch, and a hash of the subscribed topics.
        Group = 11 (ShareGroupMetadataKey, ShareGroupMetadataValue),
        /// The epoch of the target assignment.
        Target = 12 (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        /// The target partitions of a member.
        TargetMember = 13 (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        /// The partitions that a member reads, and its epoch.
        Current = 14 (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        /// The share partitions whose state is initialized, initializing or being deleted.
        States = 15 (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    }
}

modern_records! {
    ShareGroupRecord {
        Member = (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        Target = (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        TargetMember = (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        Current = (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    }
}
