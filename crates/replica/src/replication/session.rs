//! The follower's end of an incremental fetch session (KIP-227). The first request lists every partition;
//! later requests list only partitions whose position has changed. Pure.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_metadata::TopicIdPartition;
use thalweg_wire::request::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};

/// The content of a request.
#[derive(Debug, PartialEq)]
pub struct SessionRequest {
    /// The session id; 0 if there is none yet.
    pub id: i32,
    /// The session epoch of the fetch; 0 starts a session.
    pub epoch: i32,
    /// The new or changed partitions.
    pub topics: Vec<FetchTopic>,
    /// The partitions that are no longer fetched.
    pub forgotten: Vec<ForgottenTopic>,
}

/// A session with one leader.
#[derive(Debug, Default)]
pub struct FetchSession {
    id: i32,
    epoch: i32,
    /// The partitions to fetch.
    wanted: BTreeMap<TopicIdPartition, FetchPartition>,
    /// Wanted partitions with changes that the leader does not know.
    changed: BTreeSet<TopicIdPartition>,
    /// Partitions that the leader knows and that are no longer wanted.
    forgotten: BTreeSet<TopicIdPartition>,
}

impl FetchSession {
    /// True if there is nothing to fetch.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// True if a partition is fetched.
    pub fn wants(&self, key: &TopicIdPartition) -> bool {
        self.wanted.contains_key(key)
    }

    /// The position of a partition's last or next fetch.
    pub fn partition(&self, key: &TopicIdPartition) -> Option<&FetchPartition> {
        self.wanted.get(key)
    }

    /// Adds a partition, or changes its position.
    pub fn set(&mut self, key: TopicIdPartition, partition: FetchPartition) {
        self.forgotten.remove(&key);
        self.changed.insert(key);
        self.wanted.insert(key, partition);
    }

    /// Removes a partition.
    pub fn remove(&mut self, key: &TopicIdPartition) {
        if self.wanted.remove(key).is_some() {
            self.changed.remove(key);
            self.forgotten.insert(*key);
        }
    }

    /// The next request.
    pub fn request(&self) -> SessionRequest {
        let all = self.epoch == 0;
        let listed = self.wanted.iter().filter(|(key, _)| all || self.changed.contains(key));
        let mut topics: Vec<FetchTopic> = Vec::new();
        for ((topic_id, _), partition) in listed {
            match topics.last_mut().filter(|topic| topic.topic_id == *topic_id) {
                Some(topic) => topic.partitions.push(partition.clone()),
                None => topics.push(FetchTopic {
                    topic_id: *topic_id,
                    partitions: vec![partition.clone()],
                    ..FetchTopic::default()
                }),
            }
        }
        let mut forgotten: Vec<ForgottenTopic> = Vec::new();
        for (topic_id, index) in self.forgotten.iter().filter(|_| !all) {
            match forgotten.last_mut().filter(|topic| topic.topic_id == *topic_id) {
                Some(topic) => topic.partitions.push(index.0),
                None => forgotten.push(ForgottenTopic {
                    topic_id: *topic_id,
                    partitions: vec![index.0],
                    ..ForgottenTopic::default()
                }),
            }
        }
        SessionRequest { id: self.id, epoch: self.epoch, topics, forgotten }
    }

    /// Notes a successful answer to the request from [`FetchSession::request`], in this session. Session 0
    /// means none: the leader expects all partitions each time.
    pub fn answered(&mut self, session_id: i32) {
        self.changed.clear();
        self.forgotten.clear();
        self.epoch = match (session_id, self.epoch) {
            (0, _) => 0,
            (_, i32::MAX) => 1,
            (_, epoch) => epoch + 1,
        };
        self.id = session_id;
    }

    /// Resets the session: the next request starts a new session, and ends this one if it exists.
    pub fn reset(&mut self) {
        self.epoch = 0;
    }

    /// Starts a new session because a part of a successful answer could not be used. Within a session the
    /// leader does not repeat its high watermark, which would be lost without further appends.
    pub fn not_taken(&mut self) {
        self.reset();
    }

    /// Starts a new session because the leader does not know this one.
    pub fn lost(&mut self) {
        (self.id, self.epoch) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_metadata::PartitionIndex;
    use thalweg_wire::Uuid;

    const A0: TopicIdPartition = (Uuid(1), PartitionIndex(0));
    const A1: TopicIdPartition = (Uuid(1), PartitionIndex(1));
    const B0: TopicIdPartition = (Uuid(2), PartitionIndex(0));

    fn at(partition: i32, fetch_offset: i64) -> FetchPartition {
        FetchPartition { partition, fetch_offset, ..FetchPartition::default() }
    }

    /// Session, epoch, listed partitions, forgotten partitions.
    type SessionContent = (i32, i32, Vec<(u128, i32, i64)>, Vec<(u128, i32)>);

    fn listed(session: &FetchSession) -> SessionContent {
        let SessionRequest { id, epoch, topics, forgotten } = session.request();
        let of = |topic: FetchTopic| {
            let id = topic.topic_id.0;
            topic.partitions.into_iter().map(move |p| (id, p.partition, p.fetch_offset))
        };
        let gone = |topic: ForgottenTopic| topic.partitions.into_iter().map(move |p| (topic.topic_id.0, p));
        (id, epoch, topics.into_iter().flat_map(of).collect(), forgotten.into_iter().flat_map(gone).collect())
    }

    #[test]
    fn only_changes_are_listed_once_a_session_is_open() {
        let mut session = FetchSession::default();
        session.set(A0, at(0, 10));
        session.set(A1, at(1, 20));
        session.set(B0, at(0, 30));
        assert_eq!(listed(&session), (0, 0, vec![(1, 0, 10), (1, 1, 20), (2, 0, 30)], vec![]));
        session.answered(77);
        assert_eq!(listed(&session), (77, 1, vec![], vec![]));
        session.set(A1, at(1, 25));
        session.remove(&B0);
        assert_eq!(listed(&session), (77, 1, vec![(1, 1, 25)], vec![(2, 0)]));
        session.answered(77);
        assert_eq!(listed(&session), (77, 2, vec![], vec![]));
    }

    #[test]
    fn what_comes_back_is_not_forgotten() {
        let mut session = FetchSession::default();
        session.set(A0, at(0, 10));
        session.set(B0, at(0, 10));
        session.answered(7);
        session.remove(&A0);
        session.set(A0, at(0, 11));
        assert_eq!(listed(&session), (7, 1, vec![(1, 0, 11)], vec![]));
    }

    #[test]
    fn without_a_session_everything_is_listed_each_time() {
        let mut session = FetchSession::default();
        session.set(A0, at(0, 10));
        session.answered(0);
        assert_eq!(listed(&session), (0, 0, vec![(1, 0, 10)], vec![]));
    }

    #[test]
    fn a_broken_session_is_ended_by_the_next() {
        let mut session = FetchSession::default();
        session.set(A0, at(0, 10));
        session.answered(7);
        session.reset();
        assert_eq!(listed(&session), (7, 0, vec![(1, 0, 10)], vec![]));
        session.answered(8);
        session.not_taken();
        assert_eq!(listed(&session), (8, 0, vec![(1, 0, 10)], vec![]), "the leader wants everything again");
        session.answered(9);
        session.lost();
        assert_eq!(listed(&session), (0, 0, vec![(1, 0, 10)], vec![]));
    }
}
