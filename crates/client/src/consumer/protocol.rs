//! The messages that members of a group exchange through the coordinator: subscriptions and assignments.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thalweg_wire::data::consumer_protocol_assignment::TopicPartition as AssignedTopic;
use thalweg_wire::data::consumer_protocol_subscription::TopicPartition as OwnedTopic;
use thalweg_wire::data::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use thalweg_wire::{DecodeError, Decoder, Message};

use super::assignor::{AssignmentStrategy, Subscriber};
use crate::offsets::TopicPartition;

/// The version of written subscriptions: with owned partitions, generation and rack. Older members read the
/// fields known to them.
const SUBSCRIPTION_VERSION: i16 = 3;
/// The version of written assignments; every member reads it.
const ASSIGNMENT_VERSION: i16 = 1;

/// The leader's information about a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberSubscription<'a> {
    pub(super) topics: &'a [String],
    pub(super) owned: &'a BTreeSet<TopicPartition>,
    /// The generation in which the owned partitions were assigned; -1 for none.
    pub(super) generation: i32,
    pub(super) rack: Option<&'a str>,
}

/// A subscription as one of the protocols of JoinGroup. Members of the eager protocol have released all
/// partitions.
pub(super) fn write_subscription(
    subscription: &MemberSubscription<'_>,
    strategy: AssignmentStrategy,
) -> Bytes {
    let sticky = strategy.is_cooperative();
    let owned = by_topic(subscription.owned.iter().filter(|_| sticky));
    let message = ConsumerProtocolSubscription {
        topics: subscription.topics.to_vec(),
        // Java's assignor of this name reads the generation from here if the sender is older than version 2.
        user_data: sticky.then(|| Bytes::copy_from_slice(&subscription.generation.to_be_bytes())),
        owned_partitions: owned.map(|(topic, partitions)| OwnedTopic { topic, partitions }).collect(),
        generation_id: subscription.generation,
        rack_id: subscription.rack.map(str::to_owned),
    };
    with_version(&message, SUBSCRIPTION_VERSION)
}

/// A member as its subscription describes it. A member with an unreadable subscription gets no partitions;
/// other members are unaffected.
pub(super) fn read_subscriber(id: String, instance_id: Option<String>, metadata: Bytes) -> Subscriber {
    let message: ConsumerProtocolSubscription = read_with_version(metadata).unwrap_or_default();
    let generation = match message.generation_id {
        generation if generation >= 0 => generation,
        _ => message.user_data.and_then(generation_of).unwrap_or(-1),
    };
    let owned = message.owned_partitions.into_iter().map(|topic| (topic.topic, topic.partitions));
    let topics = message.topics.into_iter().collect();
    Subscriber { id, instance_id, topics, owned: TopicPartition::of_topics(owned), generation }
}

/// The generation in the user data of `cooperative-sticky`: Java's data is the generation alone, librdkafka's
/// ends with it.
fn generation_of(mut user_data: Bytes) -> Option<i32> {
    let before = user_data.len().checked_sub(4)?;
    user_data.advance(before);
    Some(user_data.get_i32())
}

pub(super) fn write_assignment(partitions: &[TopicPartition]) -> Bytes {
    let topics = by_topic(partitions.iter());
    let assigned_partitions = topics.map(|(topic, partitions)| AssignedTopic { topic, partitions }).collect();
    let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
    with_version(&assignment, ASSIGNMENT_VERSION)
}

/// The partitions in an assignment. Empty bytes are an empty assignment.
pub fn read_assignment(bytes: Bytes) -> Result<Vec<TopicPartition>, DecodeError> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let assignment: ConsumerProtocolAssignment = read_with_version(bytes)?;
    let topics = assignment.assigned_partitions.into_iter();
    Ok(TopicPartition::of_topics(topics.map(|topic| (topic.topic, topic.partitions))))
}

fn by_topic<'a>(
    partitions: impl Iterator<Item = &'a TopicPartition>,
) -> impl Iterator<Item = (String, Vec<i32>)> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        topics.entry(&at.topic).or_default().push(at.partition);
    }
    let owned: Vec<(String, Vec<i32>)> =
        topics.into_iter().map(|(topic, partitions)| (topic.to_owned(), partitions)).collect();
    owned.into_iter()
}

/// A message of the consumer protocol, behind its version.
fn with_version<M: Message>(message: &M, version: i16) -> Bytes {
    let bytes = message.to_bytes(version).expect("the fields that are set exist at the version");
    let mut framed = BytesMut::with_capacity(2 + bytes.len());
    framed.put_i16(version);
    framed.put_slice(&bytes);
    framed.freeze()
}

/// Reads a message after its version, the reverse of [`with_version`]. Newer versions are read as the newest
/// known one.
fn read_with_version<M: Message>(bytes: Bytes) -> Result<M, DecodeError> {
    let mut d = Decoder::new(bytes);
    let version = d.i16()?.clamp(M::MIN_VERSION, M::MAX_VERSION);
    M::decode(&mut d, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned() -> BTreeSet<TopicPartition> {
        BTreeSet::from([
            TopicPartition::new("a", 0),
            TopicPartition::new("a", 3),
            TopicPartition::new("b", 1),
        ])
    }

    #[test]
    fn assignments_survive_the_wire() {
        let partitions: Vec<TopicPartition> = owned().into_iter().collect();
        assert_eq!(read_assignment(write_assignment(&partitions)), Ok(partitions));
        assert_eq!(read_assignment(Bytes::new()), Ok(Vec::new()));
        assert!(read_assignment(Bytes::from_static(b"\0")).is_err());
    }

    #[test]
    fn a_subscription_has_owned_partitions_only_where_they_are_kept() {
        let (topics, owned) = (["a".to_owned(), "b".to_owned()], owned());
        let subscription =
            MemberSubscription { topics: &topics, owned: &owned, generation: 7, rack: Some("r") };
        let read =
            |strategy| read_subscriber("m".to_owned(), None, write_subscription(&subscription, strategy));
        let sticky = read(AssignmentStrategy::CooperativeSticky);
        assert_eq!((sticky.owned.iter().cloned().collect(), sticky.generation), (owned.clone(), 7));
        assert_eq!(sticky.topics.len(), 2);
        assert!(read(AssignmentStrategy::Range).owned.is_empty());
        let unreadable = read_subscriber("m".to_owned(), None, Bytes::from_static(b"\0"));
        assert!(unreadable.topics.is_empty());
    }

    #[test]
    fn the_generation_is_found_in_the_user_data_of_older_members() {
        let older = |user_data: &'static [u8]| {
            let message = ConsumerProtocolSubscription {
                topics: vec!["a".to_owned()],
                user_data: Some(Bytes::from_static(user_data)),
                owned_partitions: vec![OwnedTopic { topic: "a".to_owned(), partitions: vec![2] }],
                ..ConsumerProtocolSubscription::default()
            };
            read_subscriber("m".to_owned(), None, with_version(&message, 1)).generation
        };
        assert_eq!(older(&[0, 0, 0, 5]), 5, "Java's");
        let librdkafka = [0, 0, 0, 1, 0, 1, b'a', 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 6];
        assert_eq!(older(Vec::leak(librdkafka.to_vec())), 6, "librdkafka's");
        assert_eq!(older(&[]), -1);
    }
}
