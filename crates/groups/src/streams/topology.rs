//! The topology of a streams group (`StreamsTopology`): its subtopologies, the topics that they read, and the
//! topics that keep their state. The first member sets the topology, which never changes: a member with
//! another topology is refused, or gets the status STALE_TOPOLOGY.

use super::error::StreamsGroupError;
use super::hash_order::HashOrder;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thalweg_hash::{HashMap, HashSet};
use thalweg_wire::group::StreamsGroupTopologyValue;
use thalweg_wire::group::streams_group_topology_value::{
    CopartitionGroup, Subtopology, TopicConfig, TopicInfo,
};
use thalweg_wire::request::streams_group_heartbeat_request as sent;

#[derive(Debug)]
pub(super) struct Topology {
    pub(super) epoch: i32,
    pub(super) subtopologies: BTreeMap<Arc<str>, Subtopology>,
    /// The ids of the subtopologies, in the order in which Kafka visits them.
    visiting_order: HashOrder<Arc<str>>,
    /// The subtopology that reads a topic.
    readers: HashMap<String, Arc<str>>,
    /// The topics that keep the topology's state.
    changelogs: HashSet<String>,
}

impl PartialEq for Topology {
    fn eq(&self, other: &Topology) -> bool {
        self.epoch == other.epoch && self.subtopologies == other.subtopologies
    }
}

impl Topology {
    /// The topology of a record. Of several subtopologies with one id the last counts.
    pub(super) fn of(value: StreamsGroupTopologyValue) -> Topology {
        let ids: Vec<Arc<str>> = value
            .subtopologies
            .iter()
            .map(|subtopology| subtopology.subtopology_id.as_str().into())
            .collect();
        let subtopologies: BTreeMap<Arc<str>, Subtopology> =
            ids.iter().cloned().zip(value.subtopologies).collect();
        let visiting_order: HashOrder<Arc<str>> = ids.into_iter().collect();
        let mut readers = HashMap::default();
        // Of several subtopologies that read a topic, the last one in Kafka's order is its reader.
        for id in visiting_order.as_slice() {
            for topic in sources(&subtopologies[id]) {
                readers.insert(topic.to_owned(), id.clone());
            }
        }
        let changelogs = subtopologies.values().flat_map(|each| &each.state_changelog_topics);
        let changelogs = changelogs.map(|topic| topic.name.clone()).collect();
        Topology { epoch: value.epoch, subtopologies, visiting_order, readers, changelogs }
    }

    /// The topology of a request.
    pub(super) fn of_request(topology: &sent::Topology) -> Result<Topology, StreamsGroupError> {
        if topology.epoch < 0 {
            let reason = format!("The topology has epoch {}: it must not be negative", topology.epoch);
            return Err(StreamsGroupError::Unexpected(reason));
        }
        let mut ids = BTreeSet::new();
        if let Some(twice) = topology.subtopologies.iter().find(|each| !ids.insert(&each.subtopology_id)) {
            let reason = format!("The topology has two subtopologies {}", twice.subtopology_id);
            return Err(StreamsGroupError::Unexpected(reason));
        }
        Ok(Topology::of(value(topology)))
    }

    /// The subtopologies in the order in which Kafka visits them.
    pub(super) fn in_visiting_order(&self) -> impl Iterator<Item = (&Arc<str>, &Subtopology)> + Clone {
        self.visiting_order.as_slice().iter().map(|id| (id, &self.subtopologies[id]))
    }

    /// The subtopology that reads a topic.
    pub(super) fn reader(&self, topic: &str) -> Option<&str> {
        self.readers.get(topic).map(|id| &**id)
    }

    /// All topics that must exist: the topics that the topology reads, and the topics that keep its state.
    pub(super) fn required(&self) -> BTreeSet<&str> {
        self.subtopologies.values().flat_map(required_by).collect()
    }

    /// All topics that must exist, in the order in which Kafka visits them.
    pub(super) fn required_in_visiting_order(&self) -> HashOrder<&str> {
        self.in_visiting_order().flat_map(|(_, subtopology)| required_by(subtopology)).collect()
    }

    /// True if a topic must exist.
    pub(super) fn requires(&self, topic: &str) -> bool {
        self.readers.contains_key(topic) || self.changelogs.contains(topic)
    }
}

/// The topics that a subtopology reads.
pub(super) fn sources(subtopology: &Subtopology) -> impl Iterator<Item = &str> {
    let external = subtopology.source_topics.iter().map(String::as_str);
    external.chain(subtopology.repartition_source_topics.iter().map(name))
}

/// The topics that a subtopology needs.
fn required_by(subtopology: &Subtopology) -> impl Iterator<Item = &str> {
    sources(subtopology).chain(subtopology.state_changelog_topics.iter().map(name))
}

fn name(topic: &TopicInfo) -> &str {
    &topic.name
}

/// The record value of a topology in a request.
pub(super) fn value(topology: &sent::Topology) -> StreamsGroupTopologyValue {
    StreamsGroupTopologyValue {
        epoch: topology.epoch,
        subtopologies: topology.subtopologies.iter().map(subtopology_value).collect(),
    }
}

fn subtopology_value(subtopology: &sent::Subtopology) -> Subtopology {
    let config =
        |config: &sent::KeyValue| TopicConfig { key: config.key.clone(), value: config.value.clone() };
    let topic = |topic: &sent::TopicInfo| TopicInfo {
        name: topic.name.clone(),
        partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        topic_configs: topic.topic_configs.iter().map(config).collect(),
    };
    let copartition_group = |group: &sent::CopartitionGroup| CopartitionGroup {
        source_topics: group.source_topics.clone(),
        source_topic_regex: group.source_topic_regex.clone(),
        repartition_source_topics: group.repartition_source_topics.clone(),
    };
    Subtopology {
        subtopology_id: subtopology.subtopology_id.clone(),
        source_topics: subtopology.source_topics.clone(),
        source_topic_regex: subtopology.source_topic_regex.clone(),
        state_changelog_topics: subtopology.state_changelog_topics.iter().map(topic).collect(),
        repartition_sink_topics: subtopology.repartition_sink_topics.clone(),
        repartition_source_topics: subtopology.repartition_source_topics.iter().map(topic).collect(),
        copartition_groups: subtopology.copartition_groups.iter().map(copartition_group).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_subtopology_in_kafkas_order_is_the_reader_of_a_topic() {
        let subtopology = |id: &str| Subtopology {
            subtopology_id: id.to_owned(),
            source_topics: vec!["t".to_owned()],
            ..Subtopology::default()
        };
        for ids in [["2", "10"], ["10", "2"]] {
            let subtopologies = ids.map(subtopology).into();
            let topology = Topology::of(StreamsGroupTopologyValue { epoch: 0, subtopologies });
            assert_eq!(topology.reader("t"), Some("10"), "{ids:?}");
        }
    }
}
