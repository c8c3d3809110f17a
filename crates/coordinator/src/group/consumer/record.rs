//! The records of consumer groups in `__consumer_offsets`, as Kafka 4.3 writes them. The value of each has version 0.

use super::super::record::{decode_value, encoded};
use crate::driver::RecordDecodeError;
use bytes::Bytes;
use thalweg_wire::group::*;
use thalweg_wire::{Decoder, EncodeError, Message};

const GROUP: i16 = 3;
const PARTITION_METADATA: i16 = 4;
const MEMBER: i16 = 5;
const TARGET: i16 = 6;
const TARGET_MEMBER: i16 = 7;
const CURRENT: i16 = 8;
const REGULAR_EXPRESSION: i16 = 16;

/// A part of a consumer group. Without a value it is a tombstone.
#[derive(Clone, Debug, PartialEq)]
pub enum ConsumerRecord {
    /// The group epoch, and a hash of the subscribed topics.
    Group(ConsumerGroupMetadataKey, Option<ConsumerGroupMetadataValue>),
    /// The subscribed topics, as Kafka wrote them before 4.1. Read for its existence only, so that it is deleted.
    PartitionMetadata(ConsumerGroupPartitionMetadataKey, Option<ConsumerGroupPartitionMetadataValue>),
    /// What a member has said about itself.
    Member(ConsumerGroupMemberMetadataKey, Option<ConsumerGroupMemberMetadataValue>),
    /// The epoch of the target assignment.
    Target(ConsumerGroupTargetAssignmentMetadataKey, Option<ConsumerGroupTargetAssignmentMetadataValue>),
    /// The partitions that a member is to own.
    TargetMember(ConsumerGroupTargetAssignmentMemberKey, Option<ConsumerGroupTargetAssignmentMemberValue>),
    /// The partitions that a member owns, and its epoch.
    Current(ConsumerGroupCurrentMemberAssignmentKey, Option<ConsumerGroupCurrentMemberAssignmentValue>),
    /// The topics that match a regular expression.
    RegularExpression(ConsumerGroupRegularExpressionKey, Option<ConsumerGroupRegularExpressionValue>),
}

impl ConsumerRecord {
    /// The group that the record is about.
    pub fn group(&self) -> &str {
        match self {
            ConsumerRecord::Group(key, _) => &key.group_id,
            ConsumerRecord::PartitionMetadata(key, _) => &key.group_id,
            ConsumerRecord::Member(key, _) => &key.group_id,
            ConsumerRecord::Target(key, _) => &key.group_id,
            ConsumerRecord::TargetMember(key, _) => &key.group_id,
            ConsumerRecord::Current(key, _) => &key.group_id,
            ConsumerRecord::RegularExpression(key, _) => &key.group_id,
        }
    }

    /// Whether it deletes what its key names.
    pub fn is_tombstone(&self) -> bool {
        match self {
            ConsumerRecord::Group(_, value) => value.is_none(),
            ConsumerRecord::PartitionMetadata(_, value) => value.is_none(),
            ConsumerRecord::Member(_, value) => value.is_none(),
            ConsumerRecord::Target(_, value) => value.is_none(),
            ConsumerRecord::TargetMember(_, value) => value.is_none(),
            ConsumerRecord::Current(_, value) => value.is_none(),
            ConsumerRecord::RegularExpression(_, value) => value.is_none(),
        }
    }

    /// The key and the value as bytes. Fails when a string is too long for the format.
    pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        match self {
            ConsumerRecord::Group(key, value) => encoded(GROUP, key, value.as_ref()),
            ConsumerRecord::PartitionMetadata(key, value) => encoded(PARTITION_METADATA, key, value.as_ref()),
            ConsumerRecord::Member(key, value) => encoded(MEMBER, key, value.as_ref()),
            ConsumerRecord::Target(key, value) => encoded(TARGET, key, value.as_ref()),
            ConsumerRecord::TargetMember(key, value) => encoded(TARGET_MEMBER, key, value.as_ref()),
            ConsumerRecord::Current(key, value) => encoded(CURRENT, key, value.as_ref()),
            ConsumerRecord::RegularExpression(key, value) => encoded(REGULAR_EXPRESSION, key, value.as_ref()),
        }
    }

    /// Reads a record of this type, whose key continues in `key`; nothing, when the type is not a consumer group's.
    pub(in super::super) fn decode(
        kind: i16,
        key: &mut Decoder,
        value: Option<&[u8]>,
    ) -> Result<Option<ConsumerRecord>, RecordDecodeError> {
        Ok(Some(match kind {
            GROUP => ConsumerRecord::Group(Message::decode(key, 0)?, decode_value(value)?),
            PARTITION_METADATA => {
                ConsumerRecord::PartitionMetadata(Message::decode(key, 0)?, decode_value(value)?)
            }
            MEMBER => ConsumerRecord::Member(Message::decode(key, 0)?, decode_value(value)?),
            TARGET => ConsumerRecord::Target(Message::decode(key, 0)?, decode_value(value)?),
            TARGET_MEMBER => ConsumerRecord::TargetMember(Message::decode(key, 0)?, decode_value(value)?),
            CURRENT => ConsumerRecord::Current(Message::decode(key, 0)?, decode_value(value)?),
            REGULAR_EXPRESSION => {
                ConsumerRecord::RegularExpression(Message::decode(key, 0)?, decode_value(value)?)
            }
            _ => return Ok(None),
        }))
    }
}
