//! A share group follows its records, whether they were just written or are being loaded.
//!
//! Tombstones may come in any order, and for what is not there: a log that was compacted does not have all that was
//! written.

use super::super::member_epoch::LEAVING;
use super::super::timers::Timers;
use super::member::{Member, target_of};
use super::states::States;
use super::{FIRST_EPOCH, ShareGroup, ShareGroupRecord};
use std::sync::Arc;

impl ShareGroup {
    /// The group follows a record that is about it. Returns whether the group still exists.
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
                (self.epoch, self.metadata_hash) = (value.epoch, value.metadata_hash);
            }
            ShareGroupRecord::Member(key, Some(value)) => {
                let mut member = self.member_or_new(key.member_id);
                member.say(value);
                self.put(member);
            }
            ShareGroupRecord::Member(key, None) => self.remove(&key.member_id, timers),
            ShareGroupRecord::Target(_, value) => {
                self.target_epoch = value.as_ref().map_or(FIRST_EPOCH, |value| value.assignment_epoch);
                self.target_made_ms = value.map_or(0, |value| value.assignment_timestamp);
            }
            ShareGroupRecord::TargetMember(key, Some(value)) => {
                let id = match self.members.get_key_value(key.member_id.as_str()) {
                    Some((id, _)) => id.clone(),
                    None => key.member_id.into(),
                };
                self.targets.insert(id, Arc::new(target_of(value)));
            }
            ShareGroupRecord::TargetMember(key, None) => drop(self.targets.remove(key.member_id.as_str())),
            ShareGroupRecord::Current(key, Some(value)) => {
                let mut member = self.member_or_new(key.member_id);
                member.own(value);
                self.put(member);
            }
            ShareGroupRecord::Current(key, None) => {
                if let Some(member) = self.members.get_mut(key.member_id.as_str()) {
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

    fn member_or_new(&self, id: String) -> Member {
        match self.members.get(id.as_str()) {
            Some(member) => member.clone(),
            None => Member::new(id.into()),
        }
    }

    fn put(&mut self, member: Member) {
        let id = member.id.clone();
        let topics = member.topics.clone();
        if let Some(before) = self.members.insert(id.clone(), member) {
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
        if let Some(member) = self.members.remove(id) {
            self.discount(&member);
        }
        if let Some(mut session) = self.sessions.remove(id) {
            timers.cancel(&mut session);
        }
    }

    fn discount(&mut self, member: &Member) {
        for topic in &*member.topics {
            match self.subscribers.get_mut(topic) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.subscribers.remove(topic)),
            }
        }
    }
}
