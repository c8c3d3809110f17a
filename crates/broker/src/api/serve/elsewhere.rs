//! Requests for partitions led elsewhere: the error, and the current leader (KIP-951).

use std::collections::BTreeSet;
use std::sync::Arc;
use thalweg_metadata::{BrokerId, BrokerRegistration, Endpoint, Image, ImageCell, PartitionIndex};
use thalweg_replica::partition::{LocalTopic, Partitions};
use thalweg_wire::{ErrorCode, Uuid};

/// A topic as a request names it.
#[derive(Clone, Copy, Debug)]
pub enum TopicRef<'a> {
    /// By its id, in versions with topic ids (KIP-516).
    Id(Uuid),
    /// By its name.
    Name(&'a str),
}

impl<'a> TopicRef<'a> {
    /// The topic of a request, whose version names topics by id or by name.
    pub fn of(by_id: bool, name: &'a str, id: Uuid) -> TopicRef<'a> {
        if by_id { TopicRef::Id(id) } else { TopicRef::Name(name) }
    }
}

impl TopicRef<'_> {
    /// The topic, if it has replicas here.
    pub fn here(self, partitions: &Partitions) -> Option<Arc<LocalTopic>> {
        match self {
            TopicRef::Id(id) => partitions.topic_by_id(id),
            TopicRef::Name(name) => partitions.topic_by_name(name),
        }
    }

    fn of_cluster(self, image: &Image) -> Option<&Arc<thalweg_metadata::Topic>> {
        match self {
            TopicRef::Id(id) => image.topic_by_id(id),
            TopicRef::Name(name) => image.topic(name),
        }
    }

    /// The error for a partition without a replica here: led by another broker, unknown, or with a log that
    /// failed to open.
    pub fn missing(self, node_id: BrokerId, image: &Image, index: PartitionIndex) -> ErrorCode {
        let topic = self.of_cluster(image);
        match (topic.and_then(|topic| topic.partition(index)), self) {
            (Some(partition), _) if partition.leader == node_id => ErrorCode::KafkaStorageError,
            (Some(_), _) => ErrorCode::NotLeaderOrFollower,
            (None, TopicRef::Id(_)) if topic.is_none() => ErrorCode::UnknownTopicId,
            _ => ErrorCode::UnknownTopicOrPartition,
        }
    }

    /// Leader and epoch of a partition, from its replica here, or from the image if there is none. -1 and -1
    /// if unknown.
    pub fn leader(
        self,
        partitions: &Partitions,
        images: &ImageCell,
        index: PartitionIndex,
    ) -> (BrokerId, i32) {
        if let Some(partition) = self.here(partitions).and_then(|topic| topic.partition(index)) {
            return partition.leader();
        }
        let image = images.get();
        let known = self.of_cluster(&image).and_then(|topic| topic.partition(index));
        known.map_or((BrokerId::NONE, -1), |partition| (partition.leader, partition.leader_epoch))
    }
}

/// The endpoints of leaders on this listener, for a response, each once. `endpoint` takes node id, host, port
/// and rack.
pub fn node_endpoints<T>(
    images: &ImageCell,
    listener: &str,
    leaders: &[BrokerId],
    endpoint: fn(i32, String, i32, Option<String>) -> T,
) -> Vec<T> {
    if leaders.is_empty() {
        return Vec::new();
    }
    let leaders: BTreeSet<BrokerId> = leaders.iter().copied().collect();
    let image = images.get();
    let alive = image.alive_endpoints(listener).filter(|(broker, _)| leaders.contains(&broker.id));
    let make = |(broker, at): (&Arc<BrokerRegistration>, &Endpoint)| {
        endpoint(broker.id.0, at.host.clone(), i32::from(at.port), broker.rack.clone())
    };
    alive.map(make).collect()
}
