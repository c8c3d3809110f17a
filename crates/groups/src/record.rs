//! The records of `__consumer_offsets`, as Kafka writes them (`GroupCoordinatorRecordSerde`).
//!
//! ```text
//! key    type i16 | the key message, version 0
//! value  version i16 | the value message        a tombstone has none
//! ```
//! Types 0 and 1 are committed offsets (0 is only read), and type 2 is a classic group's metadata.
//! [`ConsumerRecord`] has the types of consumer groups, [`ShareGroupRecord`] those of share groups,
//! [`StreamsGroupRecord`] those of streams groups. Other types belong to later versions of Kafka and are
//! skipped.

mod consumer;
mod share;
mod streams;

pub use consumer::ConsumerRecord;
pub use share::ShareGroupRecord;
pub use streams::StreamsGroupRecord;

use bytes::Bytes;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::{RecordDecodeError, prefixed};
use thalweg_wire::group::{
    GroupMetadataKey, GroupMetadataValue, LegacyOffsetCommitKey, LegacyOffsetCommitValue, OffsetCommitKey,
    OffsetCommitValue,
};
use thalweg_wire::{Decoder, EncodeError, Message};

const LEGACY_OFFSET_COMMIT: i16 = 0;
const OFFSET_COMMIT: i16 = 1;
const GROUP_METADATA: i16 = 2;
const GROUP_METADATA_VERSION: i16 = 3;
const OFFSET_COMMIT_VERSION: i16 = 4;
/// The only version that can contain an expiry timestamp.
const OFFSET_COMMIT_VERSION_WITH_EXPIRY: i16 = 1;

/// A record of the group coordinator. A record without a value is a tombstone.
#[derive(Clone, Debug, PartialEq)]
pub enum CoordinatorRecord {
    /// A committed offset.
    OffsetCommit(OffsetCommitKey, Option<OffsetCommitValue>),
    /// A classic group's generation, members and assignment.
    GroupMetadata(GroupMetadataKey, Option<GroupMetadataValue>),
    /// A part of a consumer group.
    Consumer(Box<ConsumerRecord>),
    /// A part of a share group.
    Share(Box<ShareGroupRecord>),
    /// A part of a streams group.
    Streams(Box<StreamsGroupRecord>),
}

impl From<StreamsGroupRecord> for CoordinatorRecord {
    fn from(record: StreamsGroupRecord) -> CoordinatorRecord {
        CoordinatorRecord::Streams(Box::new(record))
    }
}

impl From<ShareGroupRecord> for CoordinatorRecord {
    fn from(record: ShareGroupRecord) -> CoordinatorRecord {
        CoordinatorRecord::Share(Box::new(record))
    }
}

impl From<ConsumerRecord> for CoordinatorRecord {
    fn from(record: ConsumerRecord) -> CoordinatorRecord {
        CoordinatorRecord::Consumer(Box::new(record))
    }
}

impl CoordinatorRecord {
    /// The tombstone of a committed offset.
    pub fn offset_tombstone(group: &str, topic: &str, partition: PartitionIndex) -> CoordinatorRecord {
        let key =
            OffsetCommitKey { group: group.to_owned(), topic: topic.to_owned(), partition: partition.0 };
        CoordinatorRecord::OffsetCommit(key, None)
    }

    /// The tombstone of a classic group.
    pub fn group_tombstone(group: &str) -> CoordinatorRecord {
        CoordinatorRecord::GroupMetadata(GroupMetadataKey { group: group.to_owned() }, None)
    }

    /// The group of the record.
    pub fn group(&self) -> &str {
        match self {
            CoordinatorRecord::OffsetCommit(key, _) => &key.group,
            CoordinatorRecord::GroupMetadata(key, _) => &key.group,
            CoordinatorRecord::Consumer(record) => record.group(),
            CoordinatorRecord::Share(record) => record.group(),
            CoordinatorRecord::Streams(record) => record.group(),
        }
    }

    /// Approximate size of the record in a batch.
    pub(super) fn size(&self) -> usize {
        const AROUND: usize = 32;
        let bytes = match self {
            // Millions of offsets may expire together, so only the names are counted.
            CoordinatorRecord::OffsetCommit(key, None) => key.group.len() + key.topic.len(),
            CoordinatorRecord::GroupMetadata(key, None) => key.group.len(),
            other => {
                other.encode().map_or(0, |(key, value)| key.len() + value.map_or(0, |value| value.len()))
            }
        };
        AROUND + bytes
    }

    /// Key and value as bytes. Fails if a string is too long for the format.
    pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        match self {
            CoordinatorRecord::OffsetCommit(key, value) => {
                let version = match value {
                    Some(value) if value.expire_timestamp != -1 => OFFSET_COMMIT_VERSION_WITH_EXPIRY,
                    _ => OFFSET_COMMIT_VERSION,
                };
                Ok((prefixed(OFFSET_COMMIT, key, 0)?, prefixed_value(version, value.as_ref())?))
            }
            CoordinatorRecord::GroupMetadata(key, value) => {
                let value = prefixed_value(GROUP_METADATA_VERSION, value.as_ref())?;
                Ok((prefixed(GROUP_METADATA, key, 0)?, value))
            }
            CoordinatorRecord::Consumer(record) => record.encode(),
            CoordinatorRecord::Share(record) => record.encode(),
            CoordinatorRecord::Streams(record) => record.encode(),
        }
    }

    /// Decodes a record; `None` for an unknown type.
    pub fn decode(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Option<CoordinatorRecord>, RecordDecodeError> {
        let mut key = Decoder::new(Bytes::copy_from_slice(key.ok_or(RecordDecodeError::NoKey)?));
        let kind = key.i16()?;
        Ok(match kind {
            LEGACY_OFFSET_COMMIT => {
                let legacy = LegacyOffsetCommitKey::decode(&mut key, 0)?;
                let key =
                    OffsetCommitKey { group: legacy.group, topic: legacy.topic, partition: legacy.partition };
                Some(CoordinatorRecord::OffsetCommit(key, decode_legacy_value(value)?))
            }
            OFFSET_COMMIT => {
                let key = OffsetCommitKey::decode(&mut key, 0)?;
                Some(CoordinatorRecord::OffsetCommit(key, decode_value(value)?))
            }
            GROUP_METADATA => {
                let key = GroupMetadataKey::decode(&mut key, 0)?;
                Some(CoordinatorRecord::GroupMetadata(key, decode_value(value)?))
            }
            kind => {
                if let Some(record) = ConsumerRecord::decode(kind, &mut key, value)? {
                    return Ok(Some(record.into()));
                }
                if let Some(record) = ShareGroupRecord::decode(kind, &mut key, value)? {
                    return Ok(Some(record.into()));
                }
                StreamsGroupRecord::decode(kind, &mut key, value)?.map(CoordinatorRecord::from)
            }
        })
    }
}

/// The record types of one group type, each with the type number of its key. Values have version 0.
macro_rules! group_records {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$part:meta])* $variant:ident = $kind:literal ($key:ty, $value:ty),)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $($(#[$part])* $variant($key, Option<$value>),)*
        }

        impl $name {
            /// The group of the record.
            pub fn group(&self) -> &str {
                match self {
                    $($name::$variant(key, _) => &key.group_id,)*
                }
            }

            /// True if the record deletes its key.
            pub fn is_tombstone(&self) -> bool {
                match self {
                    $($name::$variant(_, value) => value.is_none(),)*
                }
            }

            /// Key and value as bytes. Fails if a string is too long for the format.
            pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
                match self {
                    $($name::$variant(key, value) => encoded($kind, key, value.as_ref()),)*
                }
            }

            /// Decodes a record whose key continues in `key`; `None` if the type belongs to another group
            /// type.
            pub(in super::super) fn decode(
                kind: i16,
                key: &mut Decoder,
                value: Option<&[u8]>,
            ) -> Result<Option<$name>, RecordDecodeError> {
                Ok(Some(match kind {
                    $($kind => $name::$variant(Message::decode(key, 0)?, decode_value(value)?),)*
                    _ => return Ok(None),
                }))
            }
        }
    };
}
pub(super) use group_records;

/// The records that every group has whose coordinator assigns. A record without a value is a tombstone.
pub(super) trait ModernRecord: Into<CoordinatorRecord> {
    /// A member's description of itself.
    type Description;
    /// A member's part of the target assignment.
    type MemberTarget;
    /// A member's epoch, and its partitions or tasks.
    type Current;

    /// The record of a member's description.
    fn description(group: &str, member: &str, value: Option<Self::Description>) -> Self;
    /// The record of a member's part of the target assignment.
    fn member_target(group: &str, member: &str, value: Option<Self::MemberTarget>) -> Self;
    /// The record of a member's epoch, and of its partitions or tasks.
    fn current(group: &str, member: &str, value: Option<Self::Current>) -> Self;
    /// The record of the target assignment's epoch and wall-clock time.
    fn target(group: &str, made: Option<(i32, i64)>) -> Self;
}

/// Implements [`ModernRecord`] by the keys and values of these records.
macro_rules! modern_records {
    (
        $name:ident {
            Member = ($member_key:ident, $member:ident),
            Target = ($target_key:ident, $target:ident),
            TargetMember = ($target_member_key:ident, $target_member:ident),
            Current = ($current_key:ident, $current:ident),
        }
    ) => {
        impl ModernRecord for $name {
            type Description = $member;
            type MemberTarget = $target_member;
            type Current = $current;

            fn description(group: &str, member: &str, value: Option<$member>) -> $name {
                let key = $member_key { group_id: group.to_owned(), member_id: member.to_owned() };
                $name::Member(key, value)
            }

            fn member_target(group: &str, member: &str, value: Option<$target_member>) -> $name {
                let key = $target_member_key { group_id: group.to_owned(), member_id: member.to_owned() };
                $name::TargetMember(key, value)
            }

            fn current(group: &str, member: &str, value: Option<$current>) -> $name {
                let key = $current_key { group_id: group.to_owned(), member_id: member.to_owned() };
                $name::Current(key, value)
            }

            fn target(group: &str, made: Option<(i32, i64)>) -> $name {
                let key = $target_key { group_id: group.to_owned() };
                let value = made.map(|(assignment_epoch, assignment_timestamp)| $target {
                    assignment_epoch,
                    assignment_timestamp,
                });
                $name::Target(key, value)
            }
        }
    };
}
pub(super) use modern_records;

/// Encoded key and value of a record type, both version 0.
pub(super) fn encoded<K: Message, V: Message>(
    kind: i16,
    key: &K,
    value: Option<&V>,
) -> Result<(Bytes, Option<Bytes>), EncodeError> {
    Ok((prefixed(kind, key, 0)?, prefixed_value(0, value)?))
}

/// A value preceded by its version; `None` for a tombstone.
pub(super) fn prefixed_value<M: Message>(
    version: i16,
    value: Option<&M>,
) -> Result<Option<Bytes>, EncodeError> {
    value.map(|value| prefixed(version, value, version)).transpose()
}

/// Decodes a value preceded by its version.
pub(super) fn decode_value<M: Message>(value: Option<&[u8]>) -> Result<Option<M>, RecordDecodeError> {
    let Some(value) = value else { return Ok(None) };
    let mut d = Decoder::new(Bytes::copy_from_slice(value));
    let version = d.i16()?;
    if !(M::MIN_VERSION..=M::MAX_VERSION).contains(&version) {
        return Err(RecordDecodeError::ValueVersion { version, max: M::MAX_VERSION });
    }
    Ok(Some(M::decode(&mut d, version)?))
}

fn decode_legacy_value(value: Option<&[u8]>) -> Result<Option<OffsetCommitValue>, RecordDecodeError> {
    let legacy: Option<LegacyOffsetCommitValue> = decode_value(value)?;
    Ok(legacy.map(|legacy| OffsetCommitValue {
        offset: legacy.offset,
        metadata: legacy.metadata,
        commit_timestamp: legacy.commit_timestamp,
        ..OffsetCommitValue::default()
    }))
}
