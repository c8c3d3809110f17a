//! A share session with one broker, as both sides keep it: the epoch of the next request, and the partitions
//! that the broker knows. Pure.
//!
//! A request with epoch 0 opens a session and lists all partitions. Later requests list partitions that are
//! new, removed, or have acknowledgements. An acknowledgement needs the session whose fetch has delivered the
//! records; when that session ends, the broker delivers the records again.

use std::collections::{BTreeMap, BTreeSet};

use thalweg_wire::request::share_acknowledge_request::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch,
};
use thalweg_wire::request::share_fetch_request::{self, FetchPartition, FetchTopic, ForgottenTopic};

use super::ranges::Ranges;
use crate::offsets::TopicIdPartition;

/// Acknowledgement types by offset.
pub(super) type Acknowledgements = BTreeMap<TopicIdPartition, Ranges<i8>>;

/// The epoch of the request that opens a session.
pub(super) const OPENS: i32 = 0;
/// The epoch of the request that ends a session.
pub(super) const ENDS: i32 = -1;

/// A share session with one broker.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) epoch: i32,
    known: BTreeSet<TopicIdPartition>,
}

impl Session {
    /// True if the broker has the session.
    pub(super) fn is_open(&self) -> bool {
        self.epoch != OPENS
    }

    /// The partitions listed in a fetch, with their acknowledgements, which an opening request cannot have.
    pub(super) fn fetched(
        &self,
        wanted: &BTreeSet<TopicIdPartition>,
        acknowledged: &Acknowledgements,
    ) -> Vec<FetchTopic> {
        let new = wanted.iter().filter(|key| !self.known.contains(key));
        let named: BTreeSet<TopicIdPartition> = new.chain(acknowledged.keys()).copied().collect();
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (topic_id, partition_index) in named {
            if topics.last().is_none_or(|last| last.topic_id != topic_id) {
                topics.push(FetchTopic { topic_id, partitions: Vec::new() });
            }
            let batches = acknowledged.get(&(topic_id, partition_index)).map(|ranges| {
                let batch = |(first_offset, last_offset, kind)| share_fetch_request::AcknowledgementBatch {
                    first_offset,
                    last_offset,
                    acknowledge_types: vec![kind],
                };
                ranges.iter().map(batch).collect()
            });
            topics.last_mut().expect("it was just added").partitions.push(FetchPartition {
                partition_index,
                acknowledgement_batches: batches.unwrap_or_default(),
            });
        }
        topics
    }

    /// The session's partitions, including those added by acknowledgements, that are no longer wanted.
    pub(super) fn forgotten(
        &self,
        wanted: &BTreeSet<TopicIdPartition>,
        acknowledged: &Acknowledgements,
    ) -> Vec<ForgottenTopic> {
        let named = self.known.iter().chain(acknowledged.keys());
        let unwanted: BTreeSet<TopicIdPartition> =
            named.filter(|key| !wanted.contains(key)).copied().collect();
        let mut topics: Vec<ForgottenTopic> = Vec::new();
        for (topic_id, partition) in unwanted {
            match topics.last_mut().filter(|last| last.topic_id == topic_id) {
                Some(topic) => topic.partitions.push(partition),
                None => topics.push(ForgottenTopic { topic_id, partitions: vec![partition] }),
            }
        }
        topics
    }

    /// Notes the broker's answer to a fetch of these partitions.
    pub(super) fn fetch_answered(&mut self, wanted: BTreeSet<TopicIdPartition>) {
        self.known = wanted;
        self.answered();
    }

    /// Notes the broker's answer to a request.
    pub(super) fn answered(&mut self) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
    }
}

/// Acknowledgements in the form of a separate request.
pub(super) fn named(acknowledged: &Acknowledgements) -> Vec<AcknowledgeTopic> {
    let mut topics: Vec<AcknowledgeTopic> = Vec::new();
    for (&(topic_id, partition_index), ranges) in acknowledged {
        if topics.last().is_none_or(|last| last.topic_id != topic_id) {
            topics.push(AcknowledgeTopic { topic_id, partitions: Vec::new() });
        }
        let batches = ranges.iter().map(|(first_offset, last_offset, kind)| AcknowledgementBatch {
            first_offset,
            last_offset,
            acknowledge_types: vec![kind],
        });
        topics
            .last_mut()
            .expect("it was just added")
            .partitions
            .push(AcknowledgePartition { partition_index, acknowledgement_batches: batches.collect() });
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::Uuid;

    fn of_one_topic(partitions: &[i32]) -> BTreeSet<TopicIdPartition> {
        partitions.iter().map(|&partition| (Uuid(1), partition)).collect()
    }

    #[test]
    fn a_fetch_names_what_is_new_gone_or_acknowledged() {
        let mut session = Session::default();
        let named =
            |session: &Session, wanted: &[i32], acknowledged: &Acknowledgements| -> Vec<(i32, usize)> {
                let topics = session.fetched(&of_one_topic(wanted), acknowledged).into_iter();
                let partitions = topics.flat_map(|topic| topic.partitions);
                partitions.map(|one| (one.partition_index, one.acknowledgement_batches.len())).collect()
            };
        let none = Acknowledgements::new();
        assert_eq!(named(&session, &[0, 1], &none), [(0, 0), (1, 0)]);
        session.fetch_answered(of_one_topic(&[0, 1]));
        assert_eq!((session.epoch, named(&session, &[0, 1], &none).len()), (1, 0));
        let mut ranges = Ranges::default();
        ranges.insert(0, 4, 1);
        ranges.insert(5, 5, 2);
        let acknowledged = Acknowledgements::from([((Uuid(1), 1), ranges)]);
        assert_eq!(named(&session, &[0, 2], &acknowledged), [(1, 2), (2, 0)]);
        assert_eq!(session.forgotten(&of_one_topic(&[0, 2]), &none)[0].partitions, [1]);
        session.fetch_answered(of_one_topic(&[0, 2]));
        let unwanted = session.forgotten(&of_one_topic(&[2]), &acknowledged);
        assert_eq!(unwanted[0].partitions, [0, 1], "an acknowledgement would put 1 into the session again");
        session.epoch = 1;
        session.answered();
        assert_eq!((session.epoch, super::named(&acknowledged)[0].partitions.len()), (2, 1));
        session.epoch = i32::MAX;
        session.answered();
        assert_eq!(session.epoch, 1, "0 would open another");
    }
}
