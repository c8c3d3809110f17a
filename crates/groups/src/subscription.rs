//! The embedded protocol of classic consumers: the metadata with which consumers join, and the assignments
//! that they get. Both are a version, followed by a message of that version.

use super::topics::TopicsView;
use bytes::{BufMut, Bytes, BytesMut};
use thalweg_wire::data::consumer_protocol_assignment::TopicPartition;
use thalweg_wire::data::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use thalweg_wire::{Decoder, Message, Uuid};

/// Maximum number of topics in a consumer's metadata. A name of two bytes needs a dozen times its size once
/// decoded, under the lock of all groups of a partition.
const TOPICS_MAX: usize = 100_000;

/// The topics named in a consumer's metadata: a version, then the message. Only the fields of version 0 are
/// read, with which every version begins. `None` if the bytes are no such message or name too many topics:
/// groups may carry any metadata.
pub(super) fn subscribed_topics(metadata: &Bytes) -> Option<Vec<String>> {
    let mut d = Decoder::new(metadata.clone()).with_elements_max(TOPICS_MAX);
    if d.i16().ok()? < 0 {
        return None;
    }
    ConsumerProtocolSubscription::decode(&mut d, 0).ok().map(|subscription| subscription.topics)
}

/// A consumer's whole metadata. `None` as in [`subscribed_topics`].
pub(super) fn consumer_subscription(metadata: &Bytes) -> Option<ConsumerProtocolSubscription> {
    decoded(metadata)
}

/// A consumer's assignment; `None` if the bytes are no such message.
pub(super) fn consumer_assignment(assignment: &Bytes) -> Option<ConsumerProtocolAssignment> {
    decoded(assignment)
}

/// Decodes a message. A later version is read as the latest known one, because versions only add fields.
fn decoded<M: Message>(bytes: &Bytes) -> Option<M> {
    let mut d = Decoder::new(bytes.clone()).with_elements_max(TOPICS_MAX);
    let version = d.i16().ok().filter(|&version| version >= 0)?;
    M::decode(&mut d, version.min(M::MAX_VERSION)).ok()
}

/// Partitions of existing topics as the assignment of a consumer with this metadata, in the version of the
/// metadata.
pub(super) fn encode_assignment(
    assigned: impl Iterator<Item = (Uuid, Vec<i32>)>,
    metadata: &Bytes,
    topics: &dyn TopicsView,
) -> Bytes {
    let topic = |(id, partitions)| Some(TopicPartition { topic: topics.name(id)?, partitions });
    let assigned_partitions = assigned.filter_map(topic).collect();
    let assignment = ConsumerProtocolAssignment { assigned_partitions, user_data: None };
    let version = metadata.get(..2).map_or(0, |version| i16::from_be_bytes([version[0], version[1]]));
    let version = version.clamp(0, ConsumerProtocolAssignment::MAX_VERSION);
    let mut bytes = BytesMut::new();
    bytes.put_i16(version);
    // Topic names are short enough for the encoding to succeed.
    bytes.put_slice(&assignment.to_bytes(version).unwrap_or_default());
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::subscribed_topics;
    use bytes::Bytes;
    use thalweg_wire::Message;
    use thalweg_wire::data::ConsumerProtocolSubscription;

    #[test]
    fn any_version_of_the_consumer_protocol_has_its_topics() {
        let subscription =
            ConsumerProtocolSubscription { topics: vec!["a".into(), "b".into()], ..Default::default() };
        for version in 0..=ConsumerProtocolSubscription::MAX_VERSION {
            let mut bytes = version.to_be_bytes().to_vec();
            bytes.extend(subscription.to_bytes(version).expect("it has defaults only"));
            let topics = subscribed_topics(&Bytes::from(bytes));
            assert_eq!(topics, Some(vec!["a".to_owned(), "b".to_owned()]), "version {version}");
        }
    }

    #[test]
    fn too_many_topics_are_not_read() {
        let tells = |count: usize| {
            let topics = vec![String::new(); count];
            let subscription = ConsumerProtocolSubscription { topics, ..Default::default() };
            let mut bytes = vec![0, 0];
            bytes.extend(subscription.to_bytes(0).expect("it fits"));
            subscribed_topics(&Bytes::from(bytes)).is_some()
        };
        assert!(tells(super::TOPICS_MAX));
        assert!(!tells(super::TOPICS_MAX + 1));
    }

    #[test]
    fn an_invalid_subscription_has_no_topics() {
        for bytes in [&b""[..], b"\0", b"\xff\xff\0\0\0\0", b"\0\x01\x7f\xff\xff\xff", b"range"] {
            assert_eq!(subscribed_topics(&Bytes::from_static(bytes)), None);
        }
    }
}
