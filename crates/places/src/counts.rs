//! Counts of entries per principal in a bounded table. In a full table, a new entry replaces one of the
//! principal with the most entries, so that a flood displaces itself.

use std::collections::{BTreeMap, BTreeSet};

/// The number of entries of each principal.
#[derive(Clone, Debug)]
pub struct Counts<K> {
    of: BTreeMap<K, usize>,
    by_count: BTreeSet<(usize, K)>,
}

impl<K> Default for Counts<K> {
    fn default() -> Counts<K> {
        Counts { of: BTreeMap::new(), by_count: BTreeSet::new() }
    }
}

impl<K: Clone + Ord> Counts<K> {
    /// Adds to the count of a principal.
    pub fn add(&mut self, principal: &K, entries: usize) {
        self.set(principal, self.of(principal) + entries);
    }

    /// Subtracts from the count of a principal.
    pub fn remove(&mut self, principal: &K, entries: usize) {
        self.set(principal, self.of(principal).saturating_sub(entries));
    }

    fn set(&mut self, principal: &K, count: usize) {
        let before = match count {
            0 => self.of.remove(principal),
            _ => self.of.insert(principal.clone(), count),
        };
        if let Some(before) = before {
            self.by_count.remove(&(before, principal.clone()));
        }
        if count > 0 {
            self.by_count.insert((count, principal.clone()));
        }
    }

    /// The number of entries of a principal.
    pub fn of(&self, principal: &K) -> usize {
        self.of.get(principal).copied().unwrap_or(0)
    }

    /// The principal whose entry may give way to a new entry of `new`: the one with the most entries, if its
    /// count exceeds the new count of `new`.
    pub fn larger(&self, new: &K) -> Option<&K> {
        let own = self.of(new);
        self.by_count.last().filter(|(count, _)| *count > own + 1).map(|(_, principal)| principal)
    }
}

/// The entry of a full table that gives way to a new entry of `new`: the oldest of the principal with the
/// most entries, if its count exceeds the new count of `new`; else the oldest of `new`, or of all if `new`
/// has no entries.
pub fn gives_way<'a, T: Copy, K: Clone + Ord + 'a, A: Ord>(
    entries: impl Iterator<Item = T> + Clone,
    new: &K,
    principal: impl Fn(T) -> &'a K,
    age: impl Fn(T) -> A,
) -> Option<T> {
    let mut counts = Counts::default();
    entries.clone().for_each(|entry| counts.add(principal(entry), 1));
    let of = counts.larger(new).or_else(|| (counts.of(new) > 0).then_some(new));
    entries.filter(|entry| of.is_none_or(|of| principal(*entry) == of)).min_by_key(|entry| age(*entry))
}

/// At most `max` items, in equal numbers per principal as far as possible, in the original order.
pub fn fairly<T, K: Ord>(items: Vec<T>, max: usize, principal: impl Fn(&T) -> K) -> Vec<T> {
    if items.len() <= max {
        return items;
    }
    let mut ranks: BTreeMap<K, usize> = BTreeMap::new();
    let ranked = items.into_iter().map(|item| {
        let rank = ranks.entry(principal(&item)).or_default();
        *rank += 1;
        (*rank, item)
    });
    let mut ranked: Vec<(usize, (usize, T))> =
        ranked.enumerate().map(|(at, (rank, item))| (rank, (at, item))).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(max);
    let mut kept: Vec<(usize, T)> = ranked.into_iter().map(|(_, kept)| kept).collect();
    kept.sort_by_key(|(at, _)| *at);
    kept.into_iter().map(|(_, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_principal_with_most_gives_way() {
        let mut counts = Counts::default();
        assert_eq!(counts.larger(&"ann"), None);
        counts.add(&"eve", 3);
        counts.add(&"bob", 2);
        assert_eq!(
            (counts.larger(&"ann"), counts.larger(&"bob"), counts.larger(&"eve")),
            (Some(&"eve"), None, None)
        );
        counts.remove(&"eve", 2);
        assert_eq!((counts.larger(&"ann"), counts.larger(&"eve")), (Some(&"bob"), None));
        counts.remove(&"eve", 5);
        assert_eq!((counts.of(&"eve"), counts.of.len(), counts.by_count.len()), (0, 1, 1));
    }

    #[test]
    fn each_principal_has_as_many_items_as_the_others() {
        let items: Vec<(&str, u32)> =
            (0..100).map(|at| ("eve", at)).chain([("ann", 0), ("ann", 1), ("bob", 0)]).collect();
        let kept = fairly(items.clone(), 6, |item| item.0);
        assert_eq!(kept, [("eve", 0), ("eve", 1), ("eve", 2), ("ann", 0), ("ann", 1), ("bob", 0)]);
        assert_eq!(fairly(items.clone(), 1000, |item| item.0), items);
    }
}
