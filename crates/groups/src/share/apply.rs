//! Changes of a share group by its records, whether newly written or loaded.
//!
//! Tombstones may come in any order, and for missing keys: a compacted log does not have all records that
//! were written.

use super::member::{ShareGroupMember, target_of};
use super::states::States;
use super::{ShareGroup, ShareGroupRecord};
use crate::member_epoch::LEAVING;
use crate::timers::Timers;
use std::sync::Arc;

impl ShareGroup {
    /// Applies one of the group's records. Returns false if the group is deleted.
    pub(in super::super) fn apply(
        &mut self,
        record: ShareGroupRecord,
        timers: &mut Timers,
        now_ms: i64,
    ) -> bool {
        self.is_assigned.set(None);
        self.is_initialized.set(false);
        match record {
            ShareGroupRecord::Group(_, None) => return false,
            ShareGroupRecord::Group(_, Some(value)) => {
                (self.modern.epoch, self.modern.metadata_hash) = (value.epoch, value.metadata_hash);
            }
            ShareGroupRecord::Member(key, Some(value)) => {
                let mut member = self.modern.member_or_new(key.member_id, ShareGroupMember::new);
                member.set_description(value);
                self.put(member);
            }
            ShareGroupRecord::Member(key, None) => self.remove(&key.member_id, timers),
            ShareGroupRecord::Target(_, value) => {
                self.modern
                    .follow_target(value.map(|value| (value.assignment_epoch, value.assignment_timestamp)));
            }
            ShareGroupRecord::TargetMember(key, value) => {
                self.modern.set_target(key.member_id, value.map(target_of));
            }
            ShareGroupRecord::Current(key, Some(value)) => {
                let mut member = self.modern.member_or_new(key.member_id, ShareGroupMember::new);
                member.own(value);
                self.put(member);
            }
            ShareGroupRecord::Current(key, None) => {
                if let Some(member) = self.modern.members.get_mut(key.member_id.as_str()) {
                    (member.epoch, member.previous_epoch) = (LEAVING, LEAVING);
                    member.assigned = Arc::default();
                }
            }
            ShareGroupRecord::States(_, value) => {
                self.states = value.map_or_else(States::default, |value| States::of(value, now_ms));
            }
        }
        true
    }

    fn put(&mut self, member: ShareGroupMember) {
        let id = member.id.clone();
        let topics = member.topics.clone();
        if let Some(before) = self.modern.members.insert(id.clone(), member) {
            self.discount(&before);
        }
        for topic in &*topics {
            match self.subscribers.get_mut(topic) {
                Some(count) => *count += 1,
                None => drop(self.subscribers.insert(topic.clone(), 1)),
            }
        }
        self.sessions.entry(id).or_default();
    }

    fn remove(&mut self, id: &str, timers: &mut Timers) {
        if let Some(member) = self.modern.members.remove(id) {
            self.discount(&member);
        }
        if let Some(mut session) = self.sessions.remove(id) {
            timers.cancel(&mut session);
        }
    }

    fn discount(&mut self, member: &ShareGroupMember) {
        for topic in &*member.topics {
            match self.subscribers.get_mut(topic) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.subscribers.remove(topic)),
            }
        }
    }
}
