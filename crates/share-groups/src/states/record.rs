//! The records of `__share_group_state`, as Kafka writes them (`ShareCoordinatorRecordSerde`).
//!
//! ```text
//! key    type i16 | the key message, version 0
//! value  version i16 = 0 | the value message        a tombstone has none
//! ```
//! Type 0 is a snapshot: the whole state of a share partition. Type 1 is an update: the runs that have
//! changed since the snapshot of the same epoch. Only snapshots have tombstones. Other types and versions are
//! skipped, as Kafka does.

use super::runs::{Runs, StateRun};
use bytes::Bytes;
use thalweg_metadata::PartitionIndex;
use thalweg_shard::{RecordDecodeError, prefixed};
use thalweg_share::SharePartitionKey;
use thalweg_wire::share::share_snapshot_value::StateBatch as SnapshotBatch;
use thalweg_wire::share::share_update_value::StateBatch as UpdateBatch;
use thalweg_wire::share::{ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue};
use thalweg_wire::{Decoder, EncodeError, Message};

const SNAPSHOT: i16 = 0;
const UPDATE: i16 = 1;
const VERSION: i16 = 0;

/// The whole state of a share partition. Kafka: `ShareGroupOffset`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// The number of the snapshot.
    pub(super) snapshot_epoch: i32,
    pub(super) state_epoch: i32,
    pub(super) leader_epoch: i32,
    pub(super) start_offset: i64,
    pub(super) delivery_complete_count: i32,
    /// Time of the last change of the state by a snapshot.
    pub(super) created_ms: i64,
    /// Time at which the snapshot was written. The snapshot may only repeat an earlier one.
    pub(super) written_ms: i64,
    pub(super) runs: Runs,
}

/// A change of a share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Update {
    /// The epoch of the snapshot that the update changes.
    pub(super) snapshot_epoch: i32,
    pub(super) leader_epoch: i32,
    /// -1 for no change.
    pub(super) start_offset: i64,
    pub(super) delivery_complete_count: i32,
    pub(super) runs: Runs,
}

/// A record of a share partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShareRecord {
    /// A snapshot, or a tombstone for `None`.
    Snapshot(SharePartitionKey, Option<Snapshot>),
    Update(SharePartitionKey, Update),
}

impl ShareRecord {
    /// The share partition.
    pub(super) fn key(&self) -> &SharePartitionKey {
        match self {
            ShareRecord::Snapshot(key, _) | ShareRecord::Update(key, _) => key,
        }
    }

    /// Key and value as bytes. Fails if the group id is too long for the format.
    pub(super) fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        let SharePartitionKey { group, topic: topic_id, partition } = self.key();
        let (group_id, topic_id, partition) = (group.to_string(), *topic_id, partition.0);
        match self {
            ShareRecord::Snapshot(_, snapshot) => {
                let key = prefixed(SNAPSHOT, &ShareSnapshotKey { group_id, topic_id, partition }, VERSION)?;
                let value =
                    snapshot.as_ref().map(|snapshot| prefixed(VERSION, &snapshot_value(snapshot), VERSION));
                Ok((key, value.transpose()?))
            }
            ShareRecord::Update(_, update) => {
                let key = prefixed(UPDATE, &ShareUpdateKey { group_id, topic_id, partition }, VERSION)?;
                Ok((key, Some(prefixed(VERSION, &update_value(update), VERSION)?)))
            }
        }
    }

    /// Decodes a record; `None` for an unknown type or version.
    pub(super) fn decode(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Option<ShareRecord>, RecordDecodeError> {
        let mut key = Decoder::new(Bytes::copy_from_slice(key.ok_or(RecordDecodeError::NoKey)?));
        match key.i16()? {
            SNAPSHOT => {
                let key = ShareSnapshotKey::decode(&mut key, 0)?;
                let key = share_key(key.group_id, key.topic_id, key.partition);
                let Some(value) = value else { return Ok(Some(ShareRecord::Snapshot(key, None))) };
                let value = decode_value(value)?;
                Ok(value.map(|value| ShareRecord::Snapshot(key, Some(snapshot_of(value)))))
            }
            UPDATE => {
                let key = ShareUpdateKey::decode(&mut key, 0)?;
                let key = share_key(key.group_id, key.topic_id, key.partition);
                let Some(value) = value else { return Ok(None) };
                let value = decode_value(value)?;
                Ok(value.map(|value| ShareRecord::Update(key, update_of(value))))
            }
            _ => Ok(None),
        }
    }
}

fn share_key(group_id: String, topic: thalweg_wire::Uuid, partition: i32) -> SharePartitionKey {
    SharePartitionKey { group: group_id.into(), topic, partition: PartitionIndex(partition) }
}

fn snapshot_value(snapshot: &Snapshot) -> ShareSnapshotValue {
    let batch = |run: &StateRun| SnapshotBatch {
        first_offset: run.first_offset,
        last_offset: run.last_offset,
        delivery_state: run.delivery_state,
        delivery_count: run.delivery_count,
    };
    ShareSnapshotValue {
        snapshot_epoch: snapshot.snapshot_epoch,
        state_epoch: snapshot.state_epoch,
        leader_epoch: snapshot.leader_epoch,
        start_offset: snapshot.start_offset,
        delivery_complete_count: snapshot.delivery_complete_count,
        create_timestamp: snapshot.created_ms,
        write_timestamp: snapshot.written_ms,
        state_batches: snapshot.runs.as_slice().iter().map(batch).collect(),
    }
}

fn snapshot_of(value: ShareSnapshotValue) -> Snapshot {
    let run = |batch: SnapshotBatch| StateRun {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_count: batch.delivery_count,
        delivery_state: batch.delivery_state,
    };
    Snapshot {
        snapshot_epoch: value.snapshot_epoch,
        state_epoch: value.state_epoch,
        leader_epoch: value.leader_epoch,
        start_offset: value.start_offset,
        delivery_complete_count: value.delivery_complete_count,
        created_ms: value.create_timestamp,
        written_ms: value.write_timestamp,
        runs: Runs::of(value.state_batches.into_iter().map(run).collect()),
    }
}

fn update_value(update: &Update) -> ShareUpdateValue {
    let batch = |run: &StateRun| UpdateBatch {
        first_offset: run.first_offset,
        last_offset: run.last_offset,
        delivery_state: run.delivery_state,
        delivery_count: run.delivery_count,
    };
    ShareUpdateValue {
        snapshot_epoch: update.snapshot_epoch,
        leader_epoch: update.leader_epoch,
        start_offset: update.start_offset,
        delivery_complete_count: update.delivery_complete_count,
        state_batches: update.runs.as_slice().iter().map(batch).collect(),
    }
}

fn update_of(value: ShareUpdateValue) -> Update {
    let run = |batch: UpdateBatch| StateRun {
        first_offset: batch.first_offset,
        last_offset: batch.last_offset,
        delivery_count: batch.delivery_count,
        delivery_state: batch.delivery_state,
    };
    Update {
        snapshot_epoch: value.snapshot_epoch,
        leader_epoch: value.leader_epoch,
        start_offset: value.start_offset,
        delivery_complete_count: value.delivery_complete_count,
        runs: Runs::of(value.state_batches.into_iter().map(run).collect()),
    }
}

fn decode_value<M: Message>(value: &[u8]) -> Result<Option<M>, RecordDecodeError> {
    let mut d = Decoder::new(Bytes::copy_from_slice(value));
    match d.i16()? {
        VERSION => Ok(Some(M::decode(&mut d, VERSION)?)),
        _ => Ok(None),
    }
}
