//! A fetch session (KIP-227), as both sides keep it: a request lists only partitions that moved, are new or
//! were removed. Pure.

use std::collections::BTreeMap;

use thalweg_record::{LeaderEpoch, Offset};
use thalweg_wire::Uuid;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};

use super::assignment::Target;
use crate::offsets::TopicPartition;

/// A fetch session with one broker.
#[derive(Debug, Default)]
pub(super) struct FetchSession {
    /// The session id; zero until the broker has assigned one.
    pub(super) id: i32,
    /// The session epoch; zero requests a new session.
    pub(super) epoch: i32,
    known: BTreeMap<TopicPartition, SessionPartition>,
}

/// The broker's state of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SessionPartition {
    topic_id: Uuid,
    leader_epoch: LeaderEpoch,
    offset: Offset,
}

impl SessionPartition {
    fn of(target: &Target) -> SessionPartition {
        SessionPartition {
            topic_id: target.topic_id,
            leader_epoch: target.leader_epoch,
            offset: target.offset,
        }
    }
}

impl FetchSession {
    /// The partitions to list in a request.
    pub(super) fn named(&self, targets: &[Target], partition_max_bytes: i32) -> Vec<FetchTopic> {
        let mut topics: Vec<FetchTopic> = Vec::new();
        for target in targets {
            if self.known.get(&target.at) == Some(&SessionPartition::of(target)) {
                continue;
            }
            if topics.last().is_none_or(|last| *last.topic != *target.at.topic) {
                let (topic, topic_id) = (target.at.topic.to_string(), target.topic_id);
                topics.push(FetchTopic { topic, topic_id, partitions: Vec::new() });
            }
            topics.last_mut().expect("it was just added").partitions.push(FetchPartition {
                partition: target.at.partition,
                current_leader_epoch: target.leader_epoch.0,
                fetch_offset: target.offset.0,
                partition_max_bytes,
                ..FetchPartition::default()
            });
        }
        topics
    }

    /// The session's partitions that are no longer wanted, or belong to another topic with the same name.
    pub(super) fn forgotten(&self, targets: &[Target]) -> Vec<ForgottenTopic> {
        let wanted: BTreeMap<&TopicPartition, Uuid> =
            targets.iter().map(|target| (&target.at, target.topic_id)).collect();
        let mut topics: Vec<ForgottenTopic> = Vec::new();
        for (at, known) in &self.known {
            if wanted.get(at) == Some(&known.topic_id) {
                continue;
            }
            if topics.last().is_none_or(|last| *last.topic != *at.topic || last.topic_id != known.topic_id) {
                let (topic, topic_id) = (at.topic.to_string(), known.topic_id);
                topics.push(ForgottenTopic { topic, topic_id, partitions: Vec::new() });
            }
            topics.last_mut().expect("it was just added").partitions.push(at.partition);
        }
        topics
    }

    /// Notes the broker's answer: it knows the targets now. Without a session, the next request lists all
    /// targets.
    pub(super) fn answered(&mut self, session_id: i32, targets: &[Target]) {
        if session_id == 0 {
            *self = FetchSession::default();
            return;
        }
        self.id = session_id;
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        // The targets are sorted by partition.
        self.known.retain(|at, _| targets.binary_search_by(|target| target.at.cmp(at)).is_ok());
        for target in targets {
            match self.known.get_mut(&target.at) {
                Some(known) => *known = SessionPartition::of(target),
                None => drop(self.known.insert(target.at.clone(), SessionPartition::of(target))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(partition: i32, offset: i64) -> Target {
        Target {
            at: TopicPartition::new("t", partition),
            topic_id: Uuid(1),
            leader_epoch: LeaderEpoch(0),
            offset: Offset(offset),
            version: 1,
        }
    }

    fn named(session: &FetchSession, targets: &[Target]) -> Vec<(i32, i64)> {
        let topics = session.named(targets, 1).into_iter();
        let partitions = topics.flat_map(|topic| topic.partitions);
        partitions.map(|partition| (partition.partition, partition.fetch_offset)).collect()
    }

    #[test]
    fn only_what_moved_is_named() {
        let mut session = FetchSession::default();
        let targets = [target(0, 5), target(1, 7)];
        assert_eq!(named(&session, &targets), [(0, 5), (1, 7)]);
        session.answered(9, &targets);
        assert_eq!((session.id, session.epoch), (9, 1));
        assert!(named(&session, &targets).is_empty() && session.forgotten(&targets).is_empty());
        let moved = [target(0, 6), target(2, 0)];
        assert_eq!(named(&session, &moved), [(0, 6), (2, 0)]);
        assert_eq!(session.forgotten(&moved)[0].partitions, [1]);
        session.answered(9, &moved);
        assert!(named(&session, &moved).is_empty() && session.forgotten(&moved).is_empty());
        session.answered(0, &moved);
        assert_eq!((session.id, session.epoch, named(&session, &moved).len()), (0, 0, 2));
    }

    #[test]
    fn another_topic_of_the_same_name_is_another_partition() {
        let mut session = FetchSession::default();
        session.answered(9, &[target(0, 5)]);
        let again = [Target { topic_id: Uuid(2), ..target(0, 5) }];
        assert_eq!(named(&session, &again), [(0, 5)]);
        assert_eq!(session.forgotten(&again)[0].topic_id, Uuid(1));
    }
}
