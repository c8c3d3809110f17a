//! The details of a consumer group, for ConsumerGroupDescribe.

use super::ConsumerGroup;
use super::member::{ConsumerGroupMember, PartitionEpochs};
use crate::assignor::ServerAssignor;
use crate::topics::TopicsView;
use std::collections::BTreeMap;
use thalweg_wire::Uuid;
use thalweg_wire::request::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};

/// Member types in the answer (KIP-848).
const CLASSIC: i8 = 0;
const CONSUMER: i8 = 1;

impl ConsumerGroup {
    /// The group's entry. `assignor` is the broker's default; deleted topics are left out.
    pub(in super::super) fn describe(
        &self,
        assignor: ServerAssignor,
        topics: &dyn TopicsView,
    ) -> DescribedGroup {
        let wanted = self.assignors.iter().max_by_key(|(_, count)| **count);
        DescribedGroup {
            group_id: self.modern.id.to_string(),
            group_state: self.state_name().to_owned(),
            group_epoch: self.modern.epoch,
            assignment_epoch: self.modern.target_epoch,
            assignor_name: wanted.map_or(assignor.name().to_owned(), |(name, _)| name.clone()),
            members: self
                .modern
                .members
                .values()
                .map(|member| self.describe_member(member, topics))
                .collect(),
            ..DescribedGroup::default()
        }
    }

    fn describe_member(&self, member: &ConsumerGroupMember, topics: &dyn TopicsView) -> DescribedMember {
        let mut owned: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        let mut add = |partitions: &PartitionEpochs| {
            for (topic, partitions) in partitions {
                owned.entry(*topic).or_default().extend(partitions.keys());
            }
        };
        add(&member.assigned);
        add(&member.revoking);
        let target = self.modern.target_of(&member.id);
        let target = target.iter().map(|(topic, partitions)| (*topic, partitions.iter().copied().collect()));
        DescribedMember {
            member_id: member.id.to_string(),
            instance_id: member.instance_id.as_deref().map(str::to_owned),
            rack_id: member.rack_id.clone(),
            member_epoch: member.epoch,
            client_id: member.client.client_id.clone(),
            client_host: member.client.client_host.clone(),
            subscribed_topic_names: member.topics.iter().cloned().collect(),
            subscribed_topic_regex: member.regex.as_deref().map(str::to_owned),
            assignment: named(owned.into_iter(), topics),
            target_assignment: named(target, topics),
            member_type: if member.classic.is_some() { CLASSIC } else { CONSUMER },
        }
    }
}

fn named(partitions: impl Iterator<Item = (Uuid, Vec<i32>)>, topics: &dyn TopicsView) -> Assignment {
    let topic = |(topic_id, partitions)| {
        let topic_name = topics.name(topic_id)?;
        Some(TopicPartitions { topic_id, topic_name, partitions })
    };
    Assignment { topic_partitions: partitions.filter_map(topic).collect() }
}
