//! The partitions that a consumer reads, and its position in each. Pure: the consumer and its fetchers share it
//! behind a lock.
//!
//! A partition has two positions: the offset after the returned records, which is committed, and the offset after the
//! fetched records, which is ahead of it. A seek moves both, and makes fetches in flight stale.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::Uuid;
use tokio::time::Instant;

use super::StartAt;
use super::chunk::Chunk;
use crate::metadata::Metadata;
use crate::offsets::{CommittedOffset, TopicPartition};

/// The state of one partition.
#[derive(Debug)]
struct Reading {
    /// The start position, until the offset is known.
    start: Option<StartAt>,
    /// The offset after the returned records, and the leader epoch of the record before it.
    position: Offset,
    position_epoch: LeaderEpoch,
    /// The offset after the fetched records.
    fetch_from: Offset,
    /// The last known committed offset.
    committed: Option<Offset>,
    /// Changes with each seek.
    version: u64,
    paused: bool,
    /// It is being revoked: nothing more is read from it.
    revoked: bool,
    topic_id: Uuid,
    leader: Option<i32>,
    leader_epoch: LeaderEpoch,
    /// A follower to read from, and until when (KIP-392).
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

/// The partitions.
#[derive(Debug, Default)]
pub(super) struct Assignment {
    partitions: BTreeMap<TopicPartition, Reading>,
    next_version: u64,
}

impl Reading {
    /// The broker to fetch from.
    fn broker(&self, now: Instant) -> Option<i32> {
        match self.replica {
            Some((replica, until)) if until > now => Some(replica),
            _ => self.leader,
        }
    }
}

impl Assignment {
    /// Starts reading a partition.
    pub(super) fn add(&mut self, at: TopicPartition, start: StartAt, metadata: &Metadata) {
        let reading = Reading {
            start: Some(start),
            position: Offset::NONE,
            position_epoch: LeaderEpoch::NONE,
            fetch_from: Offset::NONE,
            committed: None,
            version: 0,
            paused: false,
            revoked: false,
            topic_id: Uuid::ZERO,
            leader: None,
            leader_epoch: LeaderEpoch::NONE,
            replica: None,
        };
        self.partitions.insert(at.clone(), reading);
        self.led(&at, metadata);
        self.seek(&at, start);
    }

    pub(super) fn clear(&mut self) {
        self.partitions.clear();
    }

    /// Stops to read partitions, and gives those that were read.
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

    /// Nothing more is read of these, but their positions can be committed.
    pub(super) fn revoke(&mut self, partitions: &[TopicPartition]) {
        for at in partitions {
            if let Some(reading) = self.partitions.get_mut(at) {
                reading.revoked = true;
            }
        }
    }

    /// Stops to read the partitions that were revoked.
    pub(super) fn give_up_revoked(&mut self) {
        self.partitions.retain(|_, reading| !reading.revoked);
    }

    /// Starts a new version of a partition: fetches in flight are stale, and are repeated.
    fn renew(&mut self, at: &TopicPartition) -> Option<&mut Reading> {
        self.next_version += 1;
        let reading = self.partitions.get_mut(at)?;
        reading.version = self.next_version;
        reading.fetch_from = reading.position;
        Some(reading)
    }

    /// Continues at another position. If that is the current one, fetches in flight stay valid.
    pub(super) fn seek(&mut self, at: &TopicPartition, start: StartAt) {
        let is_there =
            |reading: &Reading| reading.start.is_none() && start == StartAt::Offset(reading.position);
        if self.partitions.get(at).is_some_and(is_there) {
            return;
        }
        let Some(reading) = self.renew(at) else { return };
        reading.replica = None;
        match start {
            StartAt::Offset(offset) => {
                reading.start = None;
                reading.position = offset;
                reading.position_epoch = LeaderEpoch::NONE;
                reading.fetch_from = offset;
            }
            start => reading.start = Some(start),
        }
    }

    /// Sets the offset found for the start position, unless the caller has sought meanwhile.
    pub(super) fn found(&mut self, at: &TopicPartition, version: u64, offset: Offset, committed: bool) {
        if let Some(reading) = self.partitions.get_mut(at).filter(|reading| reading.version == version) {
            reading.start = None;
            reading.position = offset;
            reading.position_epoch = LeaderEpoch::NONE;
            reading.fetch_from = offset;
            if committed {
                reading.committed = Some(offset);
            }
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

    /// Whether the offset of any partition has to be found.
    pub(super) fn lacks_position(&self) -> bool {
        self.partitions.values().any(|reading| !reading.revoked && reading.start.is_some())
    }

    pub(super) fn position(&self, at: &TopicPartition) -> Option<Offset> {
        self.partitions.get(at).filter(|reading| reading.start.is_none()).map(|reading| reading.position)
    }

    /// The positions that are not known to be committed.
    pub(super) fn uncommitted(&self) -> BTreeMap<TopicPartition, CommittedOffset> {
        let found = self.partitions.iter().filter(|(_, reading)| reading.start.is_none());
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

    /// Whether a chunk is still wanted. Then it is about to be handed to the caller, whose position is behind it.
    pub(super) fn hand_out(&mut self, chunk: &Chunk) -> bool {
        let wanted =
            |reading: &&mut Reading| reading.version == chunk.version && !reading.paused && !reading.revoked;
        let Some(reading) = self.partitions.get_mut(&chunk.at).filter(wanted) else { return false };
        reading.position = chunk.next;
        reading.position_epoch = chunk.leader_epoch;
        true
    }

    /// The partitions to fetch from a broker now.
    pub(super) fn targets(&self, broker: i32, now: Instant) -> Vec<Target> {
        let readable = self.partitions.iter().filter(|(_, reading)| {
            reading.start.is_none()
                && !reading.paused
                && !reading.revoked
                && reading.broker(now) == Some(broker)
        });
        let target = |(at, reading): (&TopicPartition, &Reading)| Target {
            at: at.clone(),
            topic_id: reading.topic_id,
            leader_epoch: reading.leader_epoch,
            offset: reading.fetch_from,
            version: reading.version,
        };
        readable.map(target).collect()
    }

    /// The brokers that partitions are read from, paused ones too.
    pub(super) fn brokers(&self, now: Instant) -> BTreeSet<i32> {
        self.partitions.values().filter_map(|reading| reading.broker(now)).collect()
    }

    /// A partition whose leader is unknown.
    pub(super) fn without_leader(&self) -> Option<TopicPartition> {
        let found = self.partitions.iter().find(|(_, reading)| reading.leader.is_none());
        found.map(|(at, _)| at.clone())
    }

    /// Records were fetched up to `next`. False when they are not wanted any more.
    pub(super) fn fetched(&mut self, target: &Target, next: Offset) -> bool {
        match self.current(target) {
            Some(reading) => {
                reading.fetch_from = next;
                true
            }
            None => false,
        }
    }

    /// The broker sends the consumer to a follower.
    pub(super) fn prefer_replica(&mut self, target: &Target, replica: i32, until: Instant) {
        if let Some(reading) = self.current(target) {
            reading.replica = Some((replica, until));
        }
    }

    /// The broker does not have the offset. A follower may lack records of the leader, which is read then; returns
    /// whether it was the leader.
    pub(super) fn out_of_range(&mut self, target: &Target) -> bool {
        self.current(target).is_some_and(|reading| reading.replica.take().is_none())
    }

    /// Whether a partition would be fetched from this offset next.
    pub(super) fn is_at(&self, at: &TopicPartition, offset: Offset) -> bool {
        let reading = self.partitions.get(at);
        reading.is_some_and(|reading| reading.start.is_none() && reading.fetch_from == offset)
    }

    /// The broker does not lead the partition, or does not answer: its leader is unknown until the next metadata.
    pub(super) fn leader_lost(&mut self, target: &Target) {
        if let Some(reading) = self.partitions.get_mut(&target.at) {
            (reading.leader, reading.replica) = (None, None);
        }
    }

    fn current(&mut self, target: &Target) -> Option<&mut Reading> {
        let is_current = |reading: &&mut Reading| {
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
        reading.leader = known.and_then(|(_, partition)| partition.leader);
        if let Some((topic_id, partition)) = known {
            reading.topic_id = topic_id;
            reading.leader_epoch = partition.leader_epoch;
        }
        let is_there = |replica: &(i32, Instant)| metadata.brokers.contains_key(&replica.0);
        reading.replica = reading.replica.filter(is_there);
    }
}

#[cfg(test)]
mod tests;
