//! Changes of a streams group by its records, whether newly written or loaded.
//!
//! Tombstones may come in any order, and for missing keys: a compacted log does not have all records that
//! were written.

use super::member::{StreamsGroupMember, target_of};
use super::topology::Topology;
use super::{StreamsGroup, StreamsGroupRecord};
use crate::member_epoch::LEAVING;
use crate::timers::Timers;
use std::sync::Arc;

impl StreamsGroup {
    /// Applies one of the group's records. Returns false if the group is deleted.
    pub(in super::super) fn apply(&mut self, record: StreamsGroupRecord, timers: &mut Timers) -> bool {
        match record {
            StreamsGroupRecord::Group(_, None) => return false,
            StreamsGroupRecord::Group(_, Some(value)) => {
                (self.modern.epoch, self.modern.metadata_hash) = (value.epoch, value.metadata_hash);
                self.validated_epoch = value.validated_topology_epoch;
                let configs = value.last_assignment_configs.unwrap_or_default();
                self.assignment_configs =
                    configs.into_iter().map(|config| (config.key, config.value)).collect();
            }
            StreamsGroupRecord::Topology(_, value) => {
                self.topology = value.map(|value| Arc::new(Topology::of(value)));
            }
            StreamsGroupRecord::Member(key, Some(value)) => {
                let mut member = self.modern.member_or_new(key.member_id, StreamsGroupMember::new);
                member.set_description(value);
                self.put(member);
            }
            StreamsGroupRecord::Member(key, None) => self.remove(&key.member_id, timers),
            StreamsGroupRecord::Target(_, value) => {
                self.modern
                    .follow_target(value.map(|value| (value.assignment_epoch, value.assignment_timestamp)));
            }
            StreamsGroupRecord::TargetMember(key, value) => {
                self.modern.set_target(key.member_id, value.map(target_of));
            }
            StreamsGroupRecord::Current(key, Some(value)) => {
                let mut member = self.modern.member_or_new(key.member_id, StreamsGroupMember::new);
                member.own(value);
                self.put(member);
            }
            StreamsGroupRecord::Current(key, None) => {
                if let Some(member) = self.modern.members.get(key.member_id.as_str()) {
                    let mut member = member.clone();
                    (member.epoch, member.previous_epoch) = (LEAVING, LEAVING);
                    (member.assigned, member.revoking) = Default::default();
                    self.put(member);
                }
            }
        }
        true
    }

    fn put(&mut self, member: StreamsGroupMember) {
        self.deadlines.add(&member.id);
        if let Some(before) = self.modern.members.get(&member.id) {
            self.owners.remove(before);
        }
        self.owners.add(&member);
        self.modern.members.insert(member.id.clone(), member);
    }

    fn remove(&mut self, id: &str, timers: &mut Timers) {
        if let Some(member) = self.modern.members.remove(id) {
            self.owners.remove(&member);
        }
        self.deadlines.remove(timers, id);
        if self.modern.members.is_empty() {
            self.shutdown.take();
        }
    }
}
