//! The partitions that a consumer reads, and its position in each. Pure: the consumer and its fetchers share
//! it behind a lock.
//!
//! A partition has two positions: the offset after the returned records, which is committed, and the offset
//! after the fetched records, which is ahead. A seek moves both, and makes fetches in flight stale. A new
//! leader epoch does the same: the first position is compared with the new leader's log before the next read
//! (KIP-320), because that log may lack records that were read.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::Uuid;
use tokio::time::Instant;

use super::StartAt;
use super::chunk::Chunk;
use crate::metadata::Metadata;
use crate::offsets::{CommittedOffset, OffsetSpec, TopicPartition};

/// The state of one partition.
#[derive(Debug)]
struct PartitionState {
    /// The start position, until the offset is known.
    start: Option<StartAt>,
    /// The offset after the returned records, and the leader epoch of the record before it.
    position: Offset,
    position_epoch: LeaderEpoch,
    /// True if the position has not been compared with the leader's log yet.
    unvalidated: bool,
    /// The offset after the fetched records.
    fetch_from: Offset,
    /// The last known committed offset.
    committed: Option<Offset>,
    /// Incremented by each seek.
    version: u64,
    paused: bool,
    /// True if the consumer has unsubscribed from the topic: the partition is not read until the group
    /// revokes it.
    unsubscribed: bool,
    /// True if the partition is being revoked: it is not read any more.
    revoked: bool,
    topic_id: Uuid,
    leader: Option<i32>,
    leader_epoch: LeaderEpoch,
    /// The leader epoch of a committed offset: metadata with an older epoch is of an earlier leader.
    leader_epoch_min: LeaderEpoch,
    /// A follower to read from, and the end of that preference (KIP-392).
    replica: Option<(i32, Instant)>,
}

/// A partition to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) at: TopicPartition,
    pub(super) topic_id: Uuid,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) offset: Offset,
    pub(super) version: u64,
}

/// A position to compare with the log of its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PositionCheck {
    pub(super) at: TopicPartition,
    pub(super) version: u64,
    pub(super) offset: Offset,
    /// The leader epoch of the record before the offset.
    pub(super) epoch: LeaderEpoch,
    pub(super) leader: i32,
    pub(super) leader_epoch: LeaderEpoch,
}

/// The consumer's partitions and positions.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    partitions: BTreeMap<TopicPartition, PartitionState>,
    /// The subscribed topics, if subscribed by name.
    topics: Option<BTreeSet<String>>,
    next_version: u64,
}

impl PartitionState {
    /// The broker to fetch from.
    fn broker(&self, now: Instant) -> Option<i32> {
        match self.replica {
            Some((replica, until)) if until > now => Some(replica),
            _ => self.leader,
        }
    }

    /// True if the caller wants the partition's records.
    fn is_wanted(&self) -> bool {
        !self.paused && !self.revoked && !self.unsubscribed
    }

    /// True if the position is known, and the leader's log contains it.
    fn has_valid_position(&self) -> bool {
        self.start.is_none() && !self.unvalidated
    }

    /// True if a position of this epoch can be compared with the leader's log. Older brokers know no epochs.
    fn is_comparable(&self) -> bool {
        self.position_epoch >= LeaderEpoch(0) && self.leader_epoch >= LeaderEpoch(0)
    }
}

impl Assignment {
    /// Starts reading a partition.
    pub(super) fn add(&mut self, at: TopicPartition, start: StartAt, metadata: &Metadata) {
        let reading = PartitionState {
            start: Some(start),
            position: Offset::NONE,
            position_epoch: LeaderEpoch::NONE,
            unvalidated: false,
            fetch_from: Offset::NONE,
            committed: None,
            version: 0,
            paused: false,
            unsubscribed: self.topics.as_ref().is_some_and(|topics| !topics.contains(&*at.topic)),
            revoked: false,
            topic_id: Uuid::ZERO,
            leader: None,
            leader_epoch: LeaderEpoch::NONE,
            leader_epoch_min: LeaderEpoch::NONE,
            replica: None,
        };
        self.partitions.insert(at.clone(), reading);
        self.led(&at, metadata);
        self.seek(&at, start);
    }

    /// Reads only these topics; `None` for all assigned ones.
    pub(super) fn subscribe(&mut self, topics: Option<BTreeSet<String>>) {
        let lacks = |at: &TopicPartition| topics.as_ref().is_some_and(|topics| !topics.contains(&*at.topic));
        let changed = self.partitions.iter().filter(|(at, reading)| lacks(at) != reading.unsubscribed);
        let changed: Vec<TopicPartition> = changed.map(|(at, _)| at.clone()).collect();
        for at in changed {
            if let Some(reading) = self.renew(&at) {
                reading.unsubscribed = !reading.unsubscribed;
            }
        }
        self.topics = topics;
    }

    pub(super) fn clear(&mut self) {
        self.partitions.clear();
    }

    /// Stops reading partitions, and returns those that were read.
    pub(super) fn remove(&mut self, partitions: &[TopicPartition]) -> Vec<TopicPartition> {
        partitions.iter().filter(|at| self.partitions.remove(at).is_some()).cloned().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TopicPartition> {
        self.partitions.iter().filter(|(_, reading)| !reading.revoked).map(|(at, _)| at)
    }

    pub(super) fn contains(&self, at: &TopicPartition) -> bool {
        self.partitions.contains_key(at)
    }

    pub(super) fn topics(&self) -> BTreeSet<String> {
        self.partitions.keys().map(|at| at.topic.to_string()).collect()
    }

    /// Stops reading these partitions. Positions of revoked partitions can still be committed.
    pub(super) fn revoke(&mut self, partitions: &[TopicPartition]) {
        for at in partitions {
            if let Some(reading) = self.partitions.get_mut(at) {
                reading.revoked = true;
            }
        }
    }

    /// Drops the revoked partitions.
    pub(super) fn give_up_revoked(&mut self) {
        self.partitions.retain(|_, reading| !reading.revoked);
    }

    /// Starts a new version of a partition: fetches in flight become stale, and are repeated.
    fn renew(&mut self, at: &TopicPartition) -> Option<&mut PartitionState> {
        self.next_version += 1;
        let reading = self.partitions.get_mut(at)?;
        reading.version = self.next_version;
        reading.fetch_from = reading.position;
        Some(reading)
    }

    /// Continues at another position. If the position does not change, fetches in flight stay valid.
    pub(super) fn seek(&mut self, at: &TopicPartition, start: StartAt) {
        let is_there = |reading: &PartitionState| {
            reading.has_valid_position() && start == StartAt::Offset(reading.position)
        };
        if self.partitions.get(at).is_some_and(is_there) {
            return;
        }
        let Some(reading) = self.renew(at) else { return };
        (reading.replica, reading.unvalidated) = (None, false);
        reading.position_epoch = LeaderEpoch::NONE;
        match start {
            StartAt::Offset(offset) => {
                reading.start = None;
                reading.position = offset;
                reading.fetch_from = offset;
            }
            start => reading.start = Some(start),
        }
    }

    /// True if a partition still lacks the offset of its start position.
    pub(super) fn lacks_offset(&self, at: &TopicPartition, version: u64) -> bool {
        let reading = self.partitions.get(at).filter(|reading| reading.version == version);
        reading.is_some_and(|reading| reading.start.is_some() && !reading.revoked)
    }

    /// Sets the offset found for the start position, unless the caller has sought meanwhile, or another
    /// leader gave one.
    pub(super) fn found(&mut self, at: &TopicPartition, version: u64, offset: Offset) {
        let lacks = |reading: &&mut PartitionState| reading.version == version && reading.start.is_some();
        if let Some(reading) = self.partitions.get_mut(at).filter(lacks) {
            (reading.start, reading.unvalidated) = (None, false);
            reading.position = offset;
            reading.position_epoch = LeaderEpoch::NONE;
            reading.fetch_from = offset;
        }
    }

    /// Handles a group without a committed offset: the leader gives the offset by `auto.offset.reset`.
    pub(super) fn found_uncommitted(&mut self, at: &TopicPartition, version: u64, spec: OffsetSpec) {
        if let Some(reading) = self.partitions.get_mut(at).filter(|reading| reading.version == version) {
            reading.start = Some(StartAt::Spec(spec));
        }
    }

    /// Sets a committed offset like [`Assignment::found`]. The leader's log may end before it.
    pub(super) fn found_committed(&mut self, at: &TopicPartition, version: u64, found: &CommittedOffset) {
        self.found(at, version, found.offset);
        if let Some(reading) = self.partitions.get_mut(at).filter(|reading| reading.version == version) {
            reading.committed = Some(found.offset);
            (reading.position_epoch, reading.leader_epoch_min) = (found.leader_epoch, found.leader_epoch);
            reading.unvalidated = reading.is_comparable();
            if reading.unvalidated && reading.leader_epoch < reading.leader_epoch_min {
                reading.leader = None;
            }
        }
    }

    /// The positions to compare with the logs of their leaders.
    pub(super) fn unvalidated(&self) -> Vec<PositionCheck> {
        let readings = self.partitions.iter().filter(|(_, reading)| reading.unvalidated && !reading.revoked);
        let unvalidated = readings.filter_map(|(at, reading)| {
            Some(PositionCheck {
                at: at.clone(),
                version: reading.version,
                offset: reading.position,
                epoch: reading.position_epoch,
                leader: reading.leader?,
                leader_epoch: reading.leader_epoch,
            })
        });
        unvalidated.collect()
    }

    /// True if a position is unchanged and still unvalidated.
    pub(super) fn is_unvalidated(&self, requested: &PositionCheck) -> bool {
        let reading = self.partitions.get(&requested.at);
        reading.is_some_and(|reading| reading.version == requested.version && reading.unvalidated)
    }

    /// Applies a comparison: the leader's log contains the record before the position at this offset, or
    /// diverges there, and records from there on are read again.
    pub(super) fn validated(&mut self, requested: &PositionCheck, offset: Offset, epoch: LeaderEpoch) {
        let is_same =
            |reading: &&mut PartitionState| reading.version == requested.version && reading.unvalidated;
        if let Some(reading) = self.partitions.get_mut(&requested.at).filter(is_same) {
            reading.unvalidated = false;
            (reading.position, reading.position_epoch, reading.fetch_from) = (offset, epoch, offset);
        }
    }

    pub(super) fn pause(&mut self, partitions: &[TopicPartition], paused: bool) {
        for at in partitions {
            if self.partitions.get(at).is_some_and(|reading| reading.paused != paused)
                && let Some(reading) = self.renew(at)
            {
                reading.paused = paused;
            }
        }
    }

    pub(super) fn paused(&self) -> Vec<TopicPartition> {
        let paused = self.partitions.iter().filter(|(_, reading)| reading.paused);
        paused.map(|(at, _)| at.clone()).collect()
    }

    /// The partitions whose offsets must be determined, each with its version and start position.
    pub(super) fn without_position(&self) -> Vec<(TopicPartition, u64, StartAt)> {
        let readings = self.partitions.iter().filter(|(_, reading)| !reading.revoked);
        readings.filter_map(|(at, reading)| Some((at.clone(), reading.version, reading.start?))).collect()
    }

    /// True if any offset must be found, or compared with the leader's log.
    pub(super) fn lacks_position(&self) -> bool {
        self.partitions.values().any(|reading| !reading.revoked && !reading.has_valid_position())
    }

    /// True if a partition's position is known and compared with the leader's log.
    pub(super) fn has_valid_position(&self, at: &TopicPartition) -> bool {
        self.partitions.get(at).is_some_and(PartitionState::has_valid_position)
    }

    /// True if a partition waits only for an answer of its leader: for an offset, or for a comparison of its
    /// position.
    pub(super) fn lacks_leader_offset(&self, at: &TopicPartition) -> bool {
        self.partitions.get(at).is_some_and(|reading| match reading.start {
            Some(start) => start != StartAt::Committed,
            None => reading.unvalidated,
        })
    }

    pub(super) fn position(&self, at: &TopicPartition) -> Option<Offset> {
        self.partitions.get(at).filter(|reading| reading.start.is_none()).map(|reading| reading.position)
    }

    /// The positions not known to be committed. Unvalidated positions are excluded, since they may be beyond
    /// the leader's log end.
    pub(super) fn uncommitted(&self) -> BTreeMap<TopicPartition, CommittedOffset> {
        let found = self.partitions.iter().filter(|(_, reading)| reading.has_valid_position());
        let moved = found.filter(|(_, reading)| reading.committed != Some(reading.position));
        moved
            .map(|(at, reading)| {
                let leader_epoch = reading.position_epoch;
                (at.clone(), CommittedOffset { leader_epoch, ..CommittedOffset::new(reading.position) })
            })
            .collect()
    }

    pub(super) fn committed(&mut self, offsets: &BTreeMap<TopicPartition, CommittedOffset>) {
        for (at, committed) in offsets {
            if let Some(reading) = self.partitions.get_mut(at) {
                reading.committed = Some(committed.offset);
            }
        }
    }

    /// True if a chunk is still wanted. The chunk is then handed to the caller, and the position moves behind
    /// it.
    pub(super) fn hand_out(&mut self, chunk: &Chunk) -> bool {
        let wanted = |reading: &&mut PartitionState| reading.version == chunk.version && reading.is_wanted();
        let Some(reading) = self.partitions.get_mut(&chunk.at).filter(wanted) else { return false };
        reading.position = chunk.next;
        reading.position_epoch = chunk.leader_epoch;
        true
    }

    /// The partitions to fetch from a broker now.
    pub(super) fn targets(&self, broker: i32, now: Instant) -> Vec<Target> {
        let readable = self.partitions.iter().filter(|(_, reading)| {
            reading.has_valid_position() && reading.is_wanted() && reading.broker(now) == Some(broker)
        });
        let target = |(at, reading): (&TopicPartition, &PartitionState)| Target {
            at: at.clone(),
            topic_id: reading.topic_id,
            leader_epoch: reading.leader_epoch,
            offset: reading.fetch_from,
            version: reading.version,
        };
        readable.map(target).collect()
    }

    /// The brokers that partitions are read from, including paused partitions.
    pub(super) fn brokers(&self, now: Instant) -> BTreeSet<i32> {
        self.partitions.values().filter_map(|reading| reading.broker(now)).collect()
    }

    /// A partition whose leader is unknown.
    pub(super) fn without_leader(&self) -> Option<TopicPartition> {
        let found = self.partitions.iter().find(|(_, reading)| reading.leader.is_none());
        found.map(|(at, _)| at.clone())
    }

    /// The partitions without a known leader or offset.
    pub(super) fn unavailable(&self) -> Vec<TopicPartition> {
        let lacking =
            self.partitions.iter().filter(|(_, reading)| reading.leader.is_none() || reading.start.is_some());
        lacking.map(|(at, _)| at.clone()).collect()
    }

    /// Records that were fetched up to `next`; false if no longer wanted.
    pub(super) fn fetched(&mut self, target: &Target, next: Offset) -> bool {
        match self.current(target) {
            Some(reading) => {
                reading.fetch_from = next;
                true
            }
            None => false,
        }
    }

    /// Notes that the broker redirects the consumer to a follower.
    pub(super) fn prefer_replica(&mut self, target: &Target, replica: i32, until: Instant) {
        if let Some(reading) = self.current(target) {
            reading.replica = Some((replica, until));
        }
    }

    /// Handles an offset that the broker does not have. A follower may lack records of the leader, which is
    /// read next. Returns true if the broker was the leader.
    pub(super) fn out_of_range(&mut self, target: &Target) -> bool {
        self.current(target).is_some_and(|reading| reading.replica.take().is_none())
    }

    /// True if a partition would be fetched from this offset next.
    pub(super) fn is_at(&self, at: &TopicPartition, offset: Offset) -> bool {
        let reading = self.partitions.get(at);
        reading.is_some_and(|reading| reading.has_valid_position() && reading.fetch_from == offset)
    }

    /// Handles a broker that does not lead the partition, or does not answer: the leader is unknown until the
    /// next metadata.
    pub(super) fn leader_lost(&mut self, target: &Target) {
        if let Some(reading) = self.partitions.get_mut(&target.at) {
            (reading.leader, reading.replica) = (None, None);
        }
    }

    fn current(&mut self, target: &Target) -> Option<&mut PartitionState> {
        let is_current = |reading: &&mut PartitionState| {
            reading.version == target.version && reading.fetch_from == target.offset && !reading.revoked
        };
        self.partitions.get_mut(&target.at).filter(is_current)
    }

    /// Applies new leaders.
    pub(super) fn apply(&mut self, metadata: &Metadata) {
        let partitions: Vec<TopicPartition> = self.partitions.keys().cloned().collect();
        for at in partitions {
            self.led(&at, metadata);
        }
    }

    fn led(&mut self, at: &TopicPartition, metadata: &Metadata) {
        let Some(reading) = self.partitions.get_mut(at) else { return };
        let topic = metadata.topics.get(&*at.topic);
        let known = topic.and_then(|topic| Some((topic.id, topic.partition(at.partition)?)));
        reading.leader = None;
        if let Some((topic_id, partition)) = known {
            if std::mem::replace(&mut reading.topic_id, topic_id) != topic_id {
                // A new topic with the same name: its epochs start over.
                reading.leader_epoch_min = LeaderEpoch::NONE;
            }
            let epoch = partition.leader_epoch;
            let is_stale = epoch >= LeaderEpoch(0) && epoch < reading.leader_epoch_min;
            reading.leader = partition.leader.filter(|_| !is_stale);
            if reading.leader.is_some() && reading.leader_epoch != epoch {
                reading.leader_epoch = epoch;
                if reading.start.is_none() && reading.is_comparable() {
                    self.next_version += 1;
                    reading.version = self.next_version;
                    (reading.unvalidated, reading.replica) = (true, None);
                    reading.fetch_from = reading.position;
                }
            }
        }
        let is_there = |replica: &(i32, Instant)| metadata.brokers.contains_key(&replica.0);
        reading.replica = reading.replica.filter(is_there);
    }
}

#[cfg(test)]
mod tests;
