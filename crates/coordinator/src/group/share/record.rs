//! The records of share groups in `__consumer_offsets`, as Kafka 4.3 writes them. The value of each has version 0.

use super::super::record::{decode_value, encoded};
use crate::driver::RecordDecodeError;
use bytes::Bytes;
use thalweg_wire::group::*;
use thalweg_wire::{Decoder, EncodeError, Message};

const MEMBER: i16 = 10;
const GROUP: i16 = 11;
const TARGET: i16 = 12;
const TARGET_MEMBER: i16 = 13;
const CURRENT: i16 = 14;
const STATES: i16 = 15;

/// A part of a share group. Without a value it is a tombstone.
#[derive(Clone, Debug, PartialEq)]
pub enum ShareGroupRecord {
    /// What a member has said about itself.
    Member(ShareGroupMemberMetadataKey, Option<ShareGroupMemberMetadataValue>),
    /// The group epoch, and a hash of the subscribed topics.
    Group(ShareGroupMetadataKey, Option<ShareGroupMetadataValue>),
    /// The epoch of the target assignment.
    Target(ShareGroupTargetAssignmentMetadataKey, Option<ShareGroupTargetAssignmentMetadataValue>),
    /// The partitions that a member is to read.
    TargetMember(ShareGroupTargetAssignmentMemberKey, Option<ShareGroupTargetAssignmentMemberValue>),
    /// The partitions that a member reads, and its epoch.
    Current(ShareGroupCurrentMemberAssignmentKey, Option<ShareGroupCurrentMemberAssignmentValue>),
    /// The share partitions whose state is there, or comes or goes.
    States(ShareGroupStatePartitionMetadataKey, Option<ShareGroupStatePartitionMetadataValue>),
}

impl ShareGroupRecord {
    /// The group that the record is about.
    pub fn group(&self) -> &str {
        match self {
            ShareGroupRecord::Member(key, _) => &key.group_id,
            ShareGroupRecord::Group(key, _) => &key.group_id,
            ShareGroupRecord::Target(key, _) => &key.group_id,
            ShareGroupRecord::TargetMember(key, _) => &key.group_id,
            ShareGroupRecord::Current(key, _) => &key.group_id,
            ShareGroupRecord::States(key, _) => &key.group_id,
        }
    }

    /// Whether it deletes what its key names.
    pub fn is_tombstone(&self) -> bool {
        match self {
            ShareGroupRecord::Member(_, value) => value.is_none(),
            ShareGroupRecord::Group(_, value) => value.is_none(),
            ShareGroupRecord::Target(_, value) => value.is_none(),
            ShareGroupRecord::TargetMember(_, value) => value.is_none(),
            ShareGroupRecord::Current(_, value) => value.is_none(),
            ShareGroupRecord::States(_, value) => value.is_none(),
        }
    }

    /// The key and the value as bytes. Fails when a string is too long for the format.
    pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        match self {
            ShareGroupRecord::Member(key, value) => encoded(MEMBER, key, value.as_ref()),
            ShareGroupRecord::Group(key, value) => encoded(GROUP, key, value.as_ref()),
            ShareGroupRecord::Target(key, value) => encoded(TARGET, key, value.as_ref()),
            ShareGroupRecord::TargetMember(key, value) => encoded(TARGET_MEMBER, key, value.as_ref()),
            ShareGroupRecord::Current(key, value) => encoded(CURRENT, key, value.as_ref()),
            ShareGroupRecord::States(key, value) => encoded(STATES, key, value.as_ref()),
        }
    }

    /// Reads a record of this type, whose key continues in `key`; nothing, when the type is not a share group's.
    pub(in super::super) fn decode(
        kind: i16,
        key: &mut Decoder,
        value: Option<&[u8]>,
    ) -> Result<Option<ShareGroupRecord>, RecordDecodeError> {
        Ok(Some(match kind {
            MEMBER => ShareGroupRecord::Member(Message::decode(key, 0)?, decode_value(value)?),
            GROUP => ShareGroupRecord::Group(Message::decode(key, 0)?, decode_value(value)?),
            TARGET => ShareGroupRecord::Target(Message::decode(key, 0)?, decode_value(value)?),
            TARGET_MEMBER => ShareGroupRecord::TargetMember(Message::decode(key, 0)?, decode_value(value)?),
            CURRENT => ShareGroupRecord::Current(Message::decode(key, 0)?, decode_value(value)?),
            STATES => ShareGroupRecord::States(Message::decode(key, 0)?, decode_value(value)?),
            _ => return Ok(None),
        }))
    }
}
