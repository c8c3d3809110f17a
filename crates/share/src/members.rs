//! The members that have records of a share partition, each with a small number in place of its name.

use crate::run::NO_ONE;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Member {
    id: Arc<str>,
    /// How many records it has, with those whose settlement is being written.
    records: i64,
}

/// The members that have records. One without any is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Members {
    slots: Vec<Option<Member>>,
    by_id: BTreeMap<Arc<str>, u32>,
}

impl Members {
    /// The number of a member that has records.
    pub fn find(&self, id: &str) -> Option<u32> {
        self.by_id.get(id).copied()
    }

    /// The number of a member that is about to have records.
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

    /// A member has more records, or fewer.
    pub fn count(&mut self, slot: u32, records: i64) {
        if slot != NO_ONE
            && let Some(member) = &mut self.slots[slot as usize]
        {
            member.records += records;
        }
    }

    /// Forgets a member that has none.
    pub fn leave_if_idle(&mut self, slot: u32) {
        if slot == NO_ONE {
            return;
        }
        let place = &mut self.slots[slot as usize];
        if let Some(member) = place.take_if(|member| member.records == 0) {
            self.by_id.remove(&member.id);
        }
    }

    /// How many members have records.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }
}
