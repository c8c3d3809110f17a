//! Replays the log: the whole log when the shard is loaded, one record at a time as it is written.

use super::{GroupShard, refuse_waiting};
use crate::classic::{ClassicGroup, Effects};
use crate::error::MembershipError;
use crate::kind::Group;
use crate::offsets::{OffsetAndMetadata, TransactionOutcome};
use crate::record::CoordinatorRecord;
use std::sync::Arc;
use thalweg_metadata::PartitionIndex;
use thalweg_record::{Batch, ControlRecordType, DecompressBuffer, ProducerId, batches};
use thalweg_shard::{Basis, Moment, Piece, ShardLoadError};

impl GroupShard {
    /// Replays a piece of the log.
    pub(super) fn replay_batches(
        &mut self,
        piece: Piece<'_>,
        buffer: &mut DecompressBuffer,
        now: Moment,
    ) -> Result<(), ShardLoadError> {
        for batch in batches(piece.bytes) {
            self.replay_batch(&batch?, piece, buffer, now)?;
        }
        Ok(())
    }

    fn replay_batch(
        &mut self,
        batch: &Batch<'_>,
        piece: Piece<'_>,
        buffer: &mut DecompressBuffer,
        now: Moment,
    ) -> Result<(), ShardLoadError> {
        let header = &batch.header;
        let unreadable = |error| ShardLoadError::Records { offset: header.base_offset.0, error };
        let is_control = header.attributes.is_control();
        let is_transactional = header.attributes.is_transactional();
        let producer_id = if is_transactional { header.producer_id } else { ProducerId::NONE };
        for record in batch.records(buffer).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            let at = piece.unacknowledged(record.offset);
            if is_control {
                match ControlRecordType::parse_key(record.key.unwrap_or_default()) {
                    Ok(Some(ControlRecordType::Commit)) => {
                        self.end_replayed_transaction(header.producer_id, TransactionOutcome::Commit, at);
                    }
                    Ok(Some(ControlRecordType::Abort)) => {
                        self.end_replayed_transaction(header.producer_id, TransactionOutcome::Abort, at);
                    }
                    _ => {}
                }
                continue;
            }
            let offset = record.offset.0;
            let decoded = CoordinatorRecord::decode(record.key, record.value)
                .map_err(|error| ShardLoadError::Record { offset, error })?;
            match decoded {
                Some(decoded) => self.apply(decoded, offset, producer_id, at, now.wall_ms),
                None => {
                    tracing::debug!(offset, "Skipped a record of an unknown type")
                }
            }
        }
        Ok(())
    }

    /// Starts the deadlines of members after the replay: members have a whole session timeout to send a
    /// heartbeat. Groups that exceed a reduced maximum size rebalance, so that their consumers can commit
    /// before some are rejected.
    ///
    /// If records were lost, no member's state is trusted: its subscription or assignment may be an older one
    /// that the member would never send again. All sessions then end, and the members join again.
    pub(super) fn start_deadlines(&mut self, now: Moment) {
        let are_over = self.has_lost_records;
        let mut ids: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        ids.sort_unstable();
        for id in ids {
            let decided = self.with_classic_group(&id, now, |group, cx| {
                if are_over {
                    group.end_sessions(cx.timers, cx.now.monotonic_ms);
                    return;
                }
                group.start_sessions(cx.timers, cx.now.monotonic_ms);
                if group.size() > cx.config.group_size_max {
                    group.prepare_rebalance(cx);
                }
            });
            let ((), effects) = decided.unwrap_or(((), Effects::default()));
            self.apply_effects(effects);
            if are_over && let Some(group) = self.group(&id) {
                self.write(group.stray_target_tombstones(), None, Vec::new());
            }
            self.start_consumer_deadlines(&id, now);
            self.start_share_sessions(&id, now);
            self.start_streams_deadlines(&id, now);
        }
    }

    /// Applies a record to the state. `at` is the offset whose acknowledgement readers must wait for, if any.
    pub(super) fn apply(
        &mut self,
        record: CoordinatorRecord,
        offset: i64,
        producer_id: ProducerId,
        at: Option<i64>,
        wall_ms: i64,
    ) {
        match record {
            CoordinatorRecord::OffsetCommit(key, Some(value)) => {
                let partition = PartitionIndex(key.partition);
                let group = self.make_group(&key.group, at, wall_ms);
                let value = OffsetAndMetadata::from_record(value, offset);
                if producer_id == ProducerId::NONE {
                    self.offsets.put(&group, &key.topic, partition, Some(value), at);
                } else {
                    self.offsets.put_pending(producer_id.0, &group, &key.topic, partition, value);
                }
            }
            CoordinatorRecord::OffsetCommit(key, None) => {
                let partition = PartitionIndex(key.partition);
                let group: Arc<str> = key.group.as_str().into();
                self.offsets.put(&group, &key.topic, partition, None, at);
                self.offsets.remove_pending(&group, &key.topic, partition);
            }
            CoordinatorRecord::GroupMetadata(key, Some(value)) => {
                let id: Arc<str> = key.group.into();
                let group = ClassicGroup::from_record(id.clone(), value);
                self.groups.entry(id).or_default().set(Some(group.into()));
            }
            CoordinatorRecord::GroupMetadata(key, None) => {
                if self.group(&key.group).is_some_and(|group| group.classic().is_some()) {
                    self.remove_group(&key.group, at);
                }
            }
            CoordinatorRecord::Consumer(record) => self.apply_consumer(*record, at),
            CoordinatorRecord::Share(record) => self.apply_share(*record, at, wall_ms),
            CoordinatorRecord::Streams(record) => self.apply_streams(*record, at),
        }
    }

    /// The group of a committed offset; a group without members is created if it is missing.
    fn make_group(&mut self, id: &str, at: Option<i64>, wall_ms: i64) -> Arc<str> {
        match self.groups.get_key_value(id) {
            Some((id, slot)) if slot.latest().is_some() => id.clone(),
            _ => self.place_group(id, at, |id| ClassicGroup::new(id, wall_ms).into()),
        }
    }

    /// Inserts a group. `at` is the offset whose acknowledgement readers must wait for, if any.
    pub(super) fn place_group(
        &mut self,
        id: &str,
        at: Option<i64>,
        make: impl FnOnce(Arc<str>) -> Group,
    ) -> Arc<str> {
        let id: Arc<str> = match self.groups.get_key_value(id) {
            Some((id, _)) => id.clone(),
            None => id.into(),
        };
        let slot = self.groups.entry(id.clone()).or_default();
        let group = Some(make(id.clone()));
        match at {
            Some(at) => {
                slot.change(group);
                self.unacknowledged_groups.push_back((at, id.clone()));
            }
            None => drop(slot.set(group)),
        }
        id
    }

    pub(super) fn remove_group(&mut self, id: &str, at: Option<i64>) {
        let Some((key, _)) = self.groups.get_key_value(id) else { return };
        let key = key.clone();
        let slot = self.groups.get_mut(id).expect("it was just found");
        let Some(group) = slot.latest_mut() else { return };
        let (waiting, basis) = (group.dissolve(&mut self.timers), at.map_or(Basis::LATEST, Basis::up_to));
        // A group with members is removed only by a change of its type; the members join the new group.
        refuse_waiting(&mut self.answers, waiting, MembershipError::RebalanceInProgress, basis);
        match at {
            Some(at) => {
                slot.change(None);
                self.unacknowledged_groups.push_back((at, key));
            }
            None => {
                self.groups.remove(id);
            }
        }
    }
}
