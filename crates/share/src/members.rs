//! The members that hold records of a share partition, each identified by a small slot number.

use crate::run::NO_ONE;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Member {
    id: Arc<str>,
    /// The number of held records, including those with a pending acknowledgement.
    records: i64,
}

/// The members that hold records. A member without records is removed.
#[derive(Clone, Debug, Default)]
pub struct Members {
    slots: Vec<Option<Member>>,
    by_id: BTreeMap<Arc<str>, u32>,
}

impl Members {
    /// The slot of a member that holds records.
    pub fn find(&self, id: &str) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    /// The slot of a member that is about to acquire records.
    pub fn enter(&mut self, id: &str) -> u32 {
        if let Some(slot) = self.find(id) {
            return slot;
        }
        let id: Arc<str> = id.into();
        let free = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if free == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[free] = Some(Member { id: Arc::clone(&id), records: 0 });
        let slot = u32::try_from(free).expect("there are fewer members than records in flight");
        self.by_id.insert(id, slot);
        slot
    }

    /// Adjusts the number of records of a member.
    pub fn count(&mut self, slot: u32, records: i64) {
        if slot != NO_ONE
            && let Some(member) = &mut self.slots[slot as usize]
        {
            member.records += records;
        }
    }

    /// Removes a member without records.
    pub fn leave_if_idle(&mut self, slot: u32) {
        if slot == NO_ONE {
            return;
        }
        let place = &mut self.slots[slot as usize];
        if let Some(member) = place.take_if(|member| member.records == 0) {
            self.by_id.remove(&member.id);
        }
    }

    /// The number of members that hold records.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}
