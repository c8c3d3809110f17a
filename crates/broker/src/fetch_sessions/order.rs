//! The order in which sessions give way to others, without a walk over all of them.
//!
//! Fetches use a session without a change here. The order has the uses up to the last look; a session that comes first in it
//! and was used since is moved behind. So a look costs the logarithm of the number of sessions, and at most one move for each
//! session that was used since the last look at it.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_hash::HashMap;
use thalweg_net::Holder;

/// A session, as of the last look at it.
#[derive(Debug)]
struct Entry {
    holder: Holder,
    created_ms: i64,
    used_ms: i64,
    /// How many partitions it has.
    size: usize,
    /// Whether it may give way to larger ones.
    is_old: bool,
}

/// The sessions of one holder.
#[derive(Debug, Default)]
struct OfHolder {
    /// By their last use.
    by_use: BTreeSet<(i64, i32)>,
    /// The old ones by size.
    old: BTreeSet<(usize, i32)>,
}

impl OfHolder {
    /// How many partitions its smallest old session has.
    fn smallest(&self) -> usize {
        self.old.first().map_or(usize::MAX, |(size, _)| *size)
    }
}

/// The sessions in that order. Times are of the wall clock, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Order {
    entries: HashMap<i32, Entry>,
    by_use: BTreeSet<(i64, i32)>,
    /// Those that are not old yet, by the time at which they began.
    young: BTreeSet<(i64, i32)>,
    holders: BTreeMap<Holder, OfHolder>,
    /// The clients' holders by the number of their sessions, and the size of their smallest old one.
    levels: BTreeMap<usize, BTreeSet<(usize, Holder)>>,
}

impl Order {
    /// A session begins.
    pub(super) fn add(&mut self, id: i32, holder: &Holder, size: usize, now_ms: i64) {
        let entry =
            Entry { holder: holder.clone(), created_ms: now_ms, used_ms: now_ms, size, is_old: false };
        self.entries.insert(id, entry);
        self.by_use.insert((now_ms, id));
        self.young.insert((now_ms, id));
        self.change(holder, |of| _ = of.by_use.insert((now_ms, id)));
    }

    /// A session ends.
    pub(super) fn remove(&mut self, id: i32) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.by_use.remove(&(entry.used_ms, id));
        self.young.remove(&(entry.created_ms, id));
        self.change(&entry.holder, |of| {
            of.by_use.remove(&(entry.used_ms, id));
            of.old.remove(&(entry.size, id));
        });
    }

    /// A session has another number of partitions.
    pub(super) fn resize(&mut self, id: i32, size: usize) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.size, size);
        if entry.is_old {
            let holder = entry.holder.clone();
            self.change(&holder, |of| {
                of.old.remove(&(before, id));
                of.old.insert((size, id));
            });
        }
    }

    /// How many sessions a client's holder has. Those of brokers do not count.
    pub(super) fn count(&self, holder: &Holder) -> usize {
        match holder {
            Holder::Brokers => 0,
            _ => self.holders.get(holder).map_or(0, |of| of.by_use.len()),
        }
    }

    /// The client's holder with most sessions, if it has more than so many.
    pub(super) fn largest(&self, more_than: usize) -> Option<Holder> {
        let (_, holders) = self.levels.last_key_value().filter(|(count, _)| **count > more_than)?;
        holders.first().map(|(_, holder)| holder.clone())
    }

    /// The session of this holder, or of all, that was unused longest, with the time of its last use. `used_ms` is that of a
    /// session by its id.
    pub(super) fn least_used(
        &mut self,
        holder: Option<&Holder>,
        used_ms: impl Fn(i32) -> i64,
    ) -> Option<(i32, i64)> {
        loop {
            let by_use = match holder {
                Some(holder) => &self.holders.get(holder)?.by_use,
                None => &self.by_use,
            };
            let (noted_ms, id) = *by_use.first()?;
            let actual_ms = used_ms(id);
            if actual_ms <= noted_ms {
                return Some((id, noted_ms));
            }
            self.note_use(id, actual_ms);
        }
    }

    fn note_use(&mut self, id: i32, used_ms: i64) {
        let entry = self.entries.get_mut(&id).expect("a session in an order has an entry");
        let before = std::mem::replace(&mut entry.used_ms, used_ms);
        let holder = entry.holder.clone();
        self.by_use.remove(&(before, id));
        self.by_use.insert((used_ms, id));
        let of = self.holders.get_mut(&holder).expect("the holder of a session has it");
        of.by_use.remove(&(before, id));
        of.by_use.insert((used_ms, id));
    }

    /// The smallest session that is older than that and smaller than a new one of this holder. It is the same holder's, or that
    /// of a client's holder with one session more. No holder has more than that, since its sessions give way whatever their size.
    pub(super) fn smaller(&mut self, holder: &Holder, size: usize, older_than_ms: i64) -> Option<i32> {
        while let Some((created_ms, id)) = self.young.first().copied().filter(|(at, _)| *at < older_than_ms) {
            self.young.remove(&(created_ms, id));
            let entry = self.entries.get_mut(&id).expect("a session in an order has an entry");
            entry.is_old = true;
            let (holder, size) = (entry.holder.clone(), entry.size);
            self.change(&holder, |of| _ = of.old.insert((size, id)));
        }
        let own = self.holders.get(holder);
        let other = match holder {
            Holder::Brokers => None,
            _ => self.levels.get(&(self.count(holder) + 1)).and_then(BTreeSet::first),
        };
        let other = other.and_then(|(_, other)| self.holders.get(other));
        let smallest = own.into_iter().chain(other).filter_map(|of| of.old.first()).min();
        smallest.filter(|(smallest, _)| *smallest < size).map(|(_, id)| *id)
    }

    /// Changes the sessions of a holder, and its place among the others.
    fn change(&mut self, holder: &Holder, change: impl FnOnce(&mut OfHolder)) {
        let of = self.holders.entry(holder.clone()).or_default();
        let before = (of.by_use.len(), of.smallest());
        change(of);
        let after = (of.by_use.len(), of.smallest());
        if after.0 == 0 {
            self.holders.remove(holder);
        }
        if before == after || *holder == Holder::Brokers {
            return;
        }
        if let Some(level) = self.levels.get_mut(&before.0) {
            level.remove(&(before.1, holder.clone()));
            if level.is_empty() {
                self.levels.remove(&before.0);
            }
        }
        if after.0 > 0 {
            self.levels.entry(after.0).or_default().insert((after.1, holder.clone()));
        }
    }
}
