//! Changes of a group by its records, whether newly written or loaded.
//!
//! Tombstones may come in any order, and for missing keys: a compacted log does not have all records that
//! were written.

use super::ConsumerGroup;
use super::member::{ConsumerGroupMember, PartitionEpochs, target_of};
use super::subscription::{ResolvedRegex, count};
use crate::member_epoch::LEAVING;
use crate::record::ConsumerRecord;
use crate::timers::Timers;
use std::sync::Arc;

impl ConsumerGroup {
    /// Applies one of the group's records. Returns false if the group is deleted.
    pub(in super::super) fn apply(&mut self, record: ConsumerRecord, timers: &mut Timers) -> bool {
        match record {
            ConsumerRecord::Group(_, None) => return false,
            ConsumerRecord::Group(_, Some(value)) => {
                (self.modern.epoch, self.modern.metadata_hash) = (value.epoch, value.metadata_hash);
            }
            ConsumerRecord::PartitionMetadata(_, value) => self.has_partition_metadata = value.is_some(),
            ConsumerRecord::Member(key, Some(value)) => {
                let mut member = self.modern.member_or_new(key.member_id, ConsumerGroupMember::new);
                member.set_description(value);
                self.put(member);
            }
            ConsumerRecord::Member(key, None) => self.remove(&key.member_id, timers),
            ConsumerRecord::Target(_, value) => {
                self.modern
                    .follow_target(value.map(|value| (value.assignment_epoch, value.assignment_timestamp)));
            }
            ConsumerRecord::TargetMember(key, value) => {
                self.modern.set_target(key.member_id, value.map(target_of));
            }
            ConsumerRecord::Current(key, Some(value)) => {
                let mut member = self.modern.member_or_new(key.member_id, ConsumerGroupMember::new);
                member.own(value);
                self.put(member);
            }
            ConsumerRecord::Current(key, None) => {
                if let Some(member) = self.modern.members.get(key.member_id.as_str()) {
                    let mut member = member.clone();
                    (member.epoch, member.previous_epoch) = (LEAVING, LEAVING);
                    (member.assigned, member.revoking) = Default::default();
                    self.put(member);
                }
            }
            ConsumerRecord::RegularExpression(key, value) => {
                let resolved = value.map(|value| ResolvedRegex {
                    topics: value.topics.into_iter().collect(),
                    version: value.version,
                    timestamp_ms: value.timestamp,
                });
                self.set_resolved(key.regular_expression.into(), resolved);
            }
        }
        true
    }

    /// Inserts a member, or replaces the member with its id.
    pub(super) fn put(&mut self, member: ConsumerGroupMember) {
        let id = member.id.clone();
        self.deadlines.add(&id);
        let before = self.modern.members.insert(id.clone(), member.clone());
        if let Some(before) = &before {
            self.discount(before);
        }
        self.count_subscription(&member, true);
        if let Some(instance_id) = &member.instance_id {
            self.static_members.insert(instance_id.clone(), id.clone());
        }
        if let Some(assignor) = &member.assignor {
            count(&mut self.assignors, assignor, true);
        }
        if let Some(classic) = &member.classic {
            self.classic_members += 1;
            for (name, _) in &classic.protocols {
                count(&mut self.classic_protocols, name, true);
            }
        }
        self.own(&id, &member.assigned);
        self.own(&id, &member.revoking);
    }

    fn remove(&mut self, id: &str, timers: &mut Timers) {
        if let Some(member) = self.modern.members.remove(id) {
            self.discount(&member);
            if let Some(instance_id) = &member.instance_id
                && self.static_members.get(instance_id) == Some(&member.id)
            {
                self.static_members.remove(instance_id);
            }
        }
        self.deadlines.remove(timers, id);
    }

    /// Removes a member from all counts.
    fn discount(&mut self, member: &ConsumerGroupMember) {
        self.count_subscription(member, false);
        if let Some(assignor) = &member.assignor {
            count(&mut self.assignors, assignor, false);
        }
        if let Some(classic) = &member.classic {
            self.classic_members -= 1;
            for (name, _) in &classic.protocols {
                count(&mut self.classic_protocols, name, false);
            }
        }
        self.disown(&member.id, &member.assigned);
        self.disown(&member.id, &member.revoking);
    }

    fn own(&mut self, id: &Arc<str>, owned: &PartitionEpochs) {
        for (topic, partitions) in owned {
            let owners = self.owners.entry(*topic).or_default();
            owners.extend(partitions.keys().map(|partition| (*partition, id.clone())));
        }
    }

    /// Removes a member's ownership. Partitions of another member are kept: in a compacted log, the record of
    /// the new owner may come before the record by which this member gave up the partition.
    fn disown(&mut self, id: &Arc<str>, owned: &PartitionEpochs) {
        for (topic, partitions) in owned {
            let Some(owners) = self.owners.get_mut(topic) else { continue };
            for partition in partitions.keys() {
                if owners.get(partition) == Some(id) {
                    owners.remove(partition);
                }
            }
            if owners.is_empty() {
                self.owners.remove(topic);
            }
        }
    }
}
