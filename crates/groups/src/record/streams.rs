//! The records of streams groups in `__consumer_offsets`, as Kafka 4.3 writes them.

use super::{ModernRecord, decode_value, encoded, group_records, modern_records};
use bytes::Bytes;
use thalweg_shard::RecordDecodeError;
use thalweg_wire::group::*;
use thalweg_wire::{Decoder, EncodeError, Message};

group_records! {
    /// A part of a streams group. A record without a value is a tombstone.
    StreamsGroupRecord {
        /// The group epoch, a hash of the topics, the epoch of the validated topology, and the settings of
        /// the last assignment.
        Group = 17 (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        /// A member's description of itself.
        Member = 19 (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        /// The epoch of the target assignment.
        Target = 20 (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        /// The target tasks of a member.
        TargetMember = 21 (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        /// The tasks that a member has, and its epoch.
        Current = 22 (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        /// The application's topology.
        Topology = 23 (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    }
}

modern_records! {
    StreamsGroupRecord {
        Member = (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        Target = (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        TargetMember = (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        Current = (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    }
}
