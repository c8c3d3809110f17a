//! The details of a streams group, for StreamsGroupDescribe.

use super::StreamsGroup;
use super::configure::ConfiguredTopology;
use super::member::StreamsGroupMember;
use super::tasks::{TargetTasks, active_ids, ids};
use super::topology::Topology;
use std::collections::BTreeMap;
use thalweg_wire::group::streams_group_topology_value as stored;
use thalweg_wire::request::streams_group_describe_response::{
    Assignment, DescribedGroup, Endpoint, KeyValue, Member as DescribedMember, Subtopology, TaskIds,
    TopicInfo, Topology as DescribedTopology,
};

impl StreamsGroup {
    /// The group's entry. Partition counts that the topology leaves open are shown once decided.
    pub(in super::super) fn describe(&self) -> DescribedGroup {
        let configured = self.configured.borrow();
        let configured = configured.as_ref().map(|(_, configured)| &**configured);
        let configured = configured.filter(|configured| configured.is_ready());
        DescribedGroup {
            group_id: self.modern.id.to_string(),
            group_state: self.state_name().to_owned(),
            group_epoch: self.modern.epoch,
            assignment_epoch: self.modern.target_epoch,
            topology: self.topology.as_deref().map(|topology| describe_topology(topology, configured)),
            members: self
                .modern
                .members
                .values()
                .map(|member| {
                    describe_member(member, self.modern.targets.get(&member.id).map(|target| &**target))
                })
                .collect(),
            ..DescribedGroup::default()
        }
    }
}

fn describe_topology(topology: &Topology, configured: Option<&ConfiguredTopology>) -> DescribedTopology {
    let each = topology.subtopologies.values();
    let subtopologies = each.map(|subtopology| describe_subtopology(subtopology, configured)).collect();
    DescribedTopology { epoch: topology.epoch, subtopologies: Some(subtopologies) }
}

fn describe_subtopology(
    subtopology: &stored::Subtopology,
    configured: Option<&ConfiguredTopology>,
) -> Subtopology {
    let topics = |topics: &[stored::TopicInfo]| {
        let sorted: BTreeMap<&str, &stored::TopicInfo> =
            topics.iter().map(|topic| (topic.name.as_str(), topic)).collect();
        sorted.into_values().map(|topic| describe_topic(topic, configured)).collect()
    };
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort_unstable();
        names
    };
    Subtopology {
        subtopology_id: subtopology.subtopology_id.clone(),
        source_topics: sorted(&subtopology.source_topics),
        repartition_sink_topics: sorted(&subtopology.repartition_sink_topics),
        state_changelog_topics: topics(&subtopology.state_changelog_topics),
        repartition_source_topics: topics(&subtopology.repartition_source_topics),
    }
}

fn describe_topic(topic: &stored::TopicInfo, configured: Option<&ConfiguredTopology>) -> TopicInfo {
    let decided = configured.and_then(|configured| configured.partitions.get(&topic.name).copied());
    let config =
        |config: &stored::TopicConfig| KeyValue { key: config.key.clone(), value: config.value.clone() };
    TopicInfo {
        name: topic.name.clone(),
        partitions: decided.unwrap_or(topic.partitions),
        replication_factor: topic.replication_factor,
        topic_configs: topic.topic_configs.iter().map(config).collect(),
    }
}

fn describe_member(member: &StreamsGroupMember, target: Option<&TargetTasks>) -> DescribedMember {
    let tag = |(key, value): (&String, &String)| KeyValue { key: key.clone(), value: value.clone() };
    let make = |subtopology_id, partitions| TaskIds { subtopology_id, partitions };
    let target_assignment = target.map(|target| Assignment {
        active_tasks: ids(&target.active, make),
        standby_tasks: ids(&target.standby, make),
        warmup_tasks: ids(&target.warmup, make),
    });
    DescribedMember {
        member_id: member.id.to_string(),
        member_epoch: member.epoch,
        instance_id: member.instance_id.clone(),
        rack_id: member.rack_id.clone(),
        client_id: member.client.client_id.clone(),
        client_host: member.client.client_host.clone(),
        topology_epoch: member.topology_epoch,
        process_id: member.process_id.to_string(),
        user_endpoint: member
            .endpoint
            .as_ref()
            .map(|endpoint| Endpoint { host: endpoint.host.clone(), port: endpoint.port }),
        client_tags: member.client_tags.iter().map(tag).collect(),
        assignment: Assignment {
            active_tasks: active_ids(&member.assigned.active, make),
            standby_tasks: ids(&member.assigned.standby, make),
            warmup_tasks: ids(&member.assigned.warmup, make),
        },
        target_assignment: target_assignment.unwrap_or_default(),
        ..DescribedMember::default()
    }
}
