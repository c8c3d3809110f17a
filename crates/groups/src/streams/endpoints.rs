//! The partitions that can be queried at each endpoint (interactive queries): for each member with an
//! endpoint, the partitions of its tasks.

use super::StreamsGroup;
use super::member::StreamsGroupMember;
use super::topology::{Topology, sources};
use crate::topics::TopicsView;
use std::collections::BTreeSet;
use thalweg_wire::request::streams_group_heartbeat_response::{
    Endpoint, EndpointToPartitions, TopicPartition,
};

impl StreamsGroup {
    /// The endpoints of all members, including `member` after its change.
    pub(super) fn endpoints(
        &self,
        member: &StreamsGroupMember,
        topology: &Topology,
        topics: &dyn TopicsView,
    ) -> Vec<EndpointToPartitions> {
        let others = self.modern.members.values().filter(|other| other.id != member.id);
        others.chain([member]).filter_map(|each| of_member(each, topology, topics)).collect()
    }
}

fn of_member(
    member: &StreamsGroupMember,
    topology: &Topology,
    topics: &dyn TopicsView,
) -> Option<EndpointToPartitions> {
    let endpoint = member.endpoint.as_ref()?;
    let mut answer = EndpointToPartitions {
        user_endpoint: Endpoint { host: endpoint.host.clone(), port: endpoint.port },
        ..EndpointToPartitions::default()
    };
    for (id, partitions) in &member.assigned.active {
        let partitions: Vec<i32> = partitions.keys().copied().collect();
        put_partitions(topology, id, &partitions, topics, &mut answer.active_partitions);
    }
    for (id, partitions) in &member.assigned.standby {
        let partitions: Vec<i32> = partitions.iter().copied().collect();
        put_partitions(topology, id, &partitions, topics, &mut answer.standby_partitions);
    }
    Some(answer)
}

/// The partitions of a subtopology's topics for these tasks. For a topic with fewer partitions, the existing
/// ones.
fn put_partitions(
    topology: &Topology,
    subtopology: &str,
    tasks: &[i32],
    topics: &dyn TopicsView,
    put: &mut Vec<TopicPartition>,
) {
    let known = topology.subtopologies.get(subtopology);
    let names: BTreeSet<&str> = known.map(|known| sources(known).collect()).unwrap_or_default();
    for name in names {
        let Some(count) = topics.id(name).and_then(|id| topics.partition_count(id)) else { continue };
        let shown = tasks.len().min(usize::try_from(count).unwrap_or(0));
        put.push(TopicPartition { topic: name.to_owned(), partitions: tasks[..shown].to_vec() });
    }
}
