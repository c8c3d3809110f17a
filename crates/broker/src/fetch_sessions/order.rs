//! The order of evicting sessions, without iterating over all sessions.
//!
//! A fetch that uses a session changes nothing here. The order has the uses up to the last lookup. A lookup
//! moves sessions that come first but were used since. A lookup therefore costs the logarithm of the number
//! of sessions, and at most one move for each session used since its last move.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_hash::HashMap;
use thalweg_net::Holder;

/// A session as of the last lookup.
#[derive(Debug)]
struct Entry {
    holder: Holder,
    created_ms: i64,
    used_ms: i64,
    /// Number of partitions.
    size: usize,
    /// True if the session may give way to a larger one.
    is_old: bool,
}

/// The sessions of one holder.
#[derive(Debug, Default)]
struct OfHolder {
    /// Sessions by last use.
    by_use: BTreeSet<(i64, i32)>,
    /// Old sessions by size.
    old: BTreeSet<(usize, i32)>,
}

impl OfHolder {
    /// Number of partitions of the smallest old session.
    fn smallest(&self) -> usize {
        self.old.first().map_or(usize::MAX, |(size, _)| *size)
    }
}

/// The sessions in the order of eviction. Times are of the wall clock, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Order {
    entries: HashMap<i32, Entry>,
    by_use: BTreeSet<(i64, i32)>,
    /// Sessions that are not old yet, by start time.
    young: BTreeSet<(i64, i32)>,
    holders: BTreeMap<Holder, OfHolder>,
    /// The clients' holders by number of sessions, and size of the smallest old session.
    levels: BTreeMap<usize, BTreeSet<(usize, Holder)>>,
}

impl Order {
    /// Adds a new session.
    pub(super) fn add(&mut self, id: i32, holder: &Holder, size: usize, now_ms: i64) {
        let entry =
            Entry { holder: holder.clone(), created_ms: now_ms, used_ms: now_ms, size, is_old: false };
        self.entries.insert(id, entry);
        self.by_use.insert((now_ms, id));
        self.young.insert((now_ms, id));
        self.change(holder, |of| _ = of.by_use.insert((now_ms, id)));
    }

    /// Removes a session.
    pub(super) fn remove(&mut self, id: i32) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.by_use.remove(&(entry.used_ms, id));
        self.young.remove(&(entry.created_ms, id));
        self.change(&entry.holder, |of| {
            of.by_use.remove(&(entry.used_ms, id));
            of.old.remove(&(entry.size, id));
        });
    }

    /// Changes the number of partitions of a session.
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

    /// Number of sessions of a client's holder. Sessions of brokers do not count.
    pub(super) fn count(&self, holder: &Holder) -> usize {
        match holder {
            Holder::Brokers => 0,
            _ => self.holders.get(holder).map_or(0, |of| of.by_use.len()),
        }
    }

    /// The client's holder with the most sessions, if it has more than `more_than`.
    pub(super) fn largest(&self, more_than: usize) -> Option<Holder> {
        let (_, holders) = self.levels.last_key_value().filter(|(count, _)| **count > more_than)?;
        holders.first().map(|(_, holder)| holder.clone())
    }

    /// The least recently used session of this holder, or of all holders, with the time of its last use.
    /// `used_ms` returns the last use of a session.
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

    /// The smallest session that is older than `older_than_ms` and smaller than the new session of this
    /// holder. The session belongs to the same holder, or to a client's holder with one session more. No
    /// holder has more sessions than that, because its sessions give way regardless of size.
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

    /// Changes the sessions of a holder, and updates the holder's position.
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
