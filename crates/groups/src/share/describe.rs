//! The details of a share group, for ShareGroupDescribe.

use super::ShareGroup;
use super::member::ShareGroupMember;
use crate::assignor::SIMPLE;
use crate::topics::TopicsView;
use std::collections::BTreeSet;
use thalweg_wire::Uuid;
use thalweg_wire::request::share_group_describe_response::{
    Assignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};

impl ShareGroup {
    /// The group's entry. Deleted topics are left out.
    pub(in super::super) fn describe(&self, topics: &dyn TopicsView) -> DescribedGroup {
        DescribedGroup {
            group_id: self.modern.id.to_string(),
            group_state: self.state_name().to_owned(),
            group_epoch: self.modern.epoch,
            assignment_epoch: self.modern.target_epoch,
            assignor_name: SIMPLE.to_owned(),
            members: self.modern.members.values().map(|member| describe_member(member, topics)).collect(),
            ..DescribedGroup::default()
        }
    }
}

fn describe_member(member: &ShareGroupMember, topics: &dyn TopicsView) -> DescribedMember {
    let topic = |(topic_id, partitions): (&Uuid, &BTreeSet<i32>)| {
        let topic_name = topics.name(*topic_id)?;
        Some(TopicPartitions {
            topic_id: *topic_id,
            topic_name,
            partitions: partitions.iter().copied().collect(),
        })
    };
    DescribedMember {
        member_id: member.id.to_string(),
        rack_id: member.rack_id.clone(),
        member_epoch: member.epoch,
        client_id: member.client.client_id.clone(),
        client_host: member.client.client_host.clone(),
        subscribed_topic_names: member.topics.iter().cloned().collect(),
        assignment: Assignment { topic_partitions: member.assigned.iter().filter_map(topic).collect() },
    }
}
