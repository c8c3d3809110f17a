//! A persistent hash map from pairs of texts: a clone shares all nodes, and a change copies two short arrays
//! and a few slots. Unlike [`Trie`](super::trie::Trie), the map finds no prefixes, but a lookup touches few
//! cache lines, regardless of the number of keys.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use super::bytes::Bytes;

/// The hash bits that index each of the two arrays. Up to about 100,000 keys, a leaf has only a few slots.
const BITS: u32 = 7;
const WIDTH: usize = 1 << BITS;

type Pair<'a> = (&'a str, &'a str);

/// The map. The default is empty.
#[derive(Clone, Debug)]
pub(super) struct Table<V> {
    root: Option<Arc<Root<V>>>,
}

type Root<V> = Vec<Option<Arc<Branch<V>>>>;
type Branch<V> = Vec<Option<Arc<[Slot<V>]>>>;

#[derive(Debug)]
struct Slot<V> {
    hash: u64,
    entry: Arc<Entry<V>>,
}

impl<V> Clone for Slot<V> {
    fn clone(&self) -> Slot<V> {
        Slot { hash: self.hash, entry: Arc::clone(&self.entry) }
    }
}

#[derive(Clone, Debug)]
struct Entry<V> {
    value: V,
    /// The first text followed by the second.
    key: Bytes<FEW>,
    first_len: usize,
}

/// Key bytes stored inline. Most keys fit.
const FEW: usize = 46;

impl<V> Entry<V> {
    fn is_of(&self, (first, second): Pair<'_>) -> bool {
        self.first_len == first.len()
            && self.key.len() == first.len() + second.len()
            && self.key.starts_with(first.as_bytes())
            && self.key.ends_with(second.as_bytes())
    }
}

impl<V> Default for Table<V> {
    fn default() -> Table<V> {
        Table { root: None }
    }
}

fn hash((first, second): Pair<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(first.as_bytes());
    hasher.write_usize(first.len());
    hasher.write(second.as_bytes());
    hasher.finish()
}

/// The indexes into both arrays.
fn places(hash: u64) -> (usize, usize) {
    let bits = |by: u32| usize::try_from(hash >> by).expect("64 bits") & (WIDTH - 1);
    (bits(u64::BITS - BITS), bits(u64::BITS - 2 * BITS))
}

impl<V> Table<V> {
    pub fn get(&self, key: Pair<'_>) -> Option<&V> {
        let root = self.root.as_ref()?;
        let hash = hash(key);
        let (at_root, at_branch) = places(hash);
        let slots = root[at_root].as_ref()?[at_branch].as_ref()?;
        let mut slots = slots.iter().filter(|slot| slot.hash == hash);
        slots.find(|slot| slot.entry.is_of(key)).map(|slot| &slot.entry.value)
    }
}

impl<V: Clone + Default> Table<V> {
    /// The value of a key for modification, created if missing.
    pub fn entry(&mut self, key: Pair<'_>) -> &mut V {
        let hash = hash(key);
        let slots = self.slots(hash);
        let known = slots.iter().flat_map(|slots| &**slots).position(|slot| slot.is(hash, key));
        let at = known.unwrap_or_else(|| {
            let before = slots.iter().flat_map(|slots| &**slots).cloned();
            let value = V::default();
            let entry =
                Entry { value, key: Bytes::new([key.0, key.1].concat().as_bytes()), first_len: key.0.len() };
            let new = Slot { hash, entry: Arc::new(entry) };
            let all: Arc<[Slot<V>]> = before.chain([new]).collect();
            let at = all.len() - 1;
            *slots = Some(all);
            at
        });
        let slots = Arc::make_mut(slots.as_mut().expect("there is a slot"));
        &mut Arc::make_mut(&mut slots[at].entry).value
    }

    /// Removes a key, if present.
    pub fn remove(&mut self, key: Pair<'_>) {
        if self.get(key).is_none() {
            return;
        }
        let hash = hash(key);
        let slots = self.slots(hash);
        let all = slots.iter().flat_map(|slots| &**slots);
        let left: Arc<[Slot<V>]> = all.filter(|slot| !slot.is(hash, key)).cloned().collect();
        *slots = Some(left).filter(|left| !left.is_empty());
        if slots.is_none() {
            self.forget_empty(places(hash).0);
        }
    }

    /// Drops an empty branch, and then an empty root.
    fn forget_empty(&mut self, at_root: usize) {
        let Some(root) = self.root.as_mut().map(Arc::make_mut) else { return };
        root[at_root].take_if(|branch| branch.iter().all(Option::is_none));
        if root.iter().all(Option::is_none) {
            self.root = None;
        }
    }

    fn slots(&mut self, hash: u64) -> &mut Option<Arc<[Slot<V>]>> {
        let (at_root, at_branch) = places(hash);
        let root = self.root.get_or_insert_with(|| Arc::new(vec![None; WIDTH]));
        let branch = &mut Arc::make_mut(root)[at_root];
        let branch = branch.get_or_insert_with(|| Arc::new(vec![None; WIDTH]));
        &mut Arc::make_mut(branch)[at_branch]
    }
}

impl<V> Slot<V> {
    fn is(&self, hash: u64, key: Pair<'_>) -> bool {
        self.hash == hash && self.entry.is_of(key)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map() {
        let (mut table, mut map) = (Table::<u64>::default(), BTreeMap::new());
        let mut snapshots = Vec::new();
        let mut seed = 7_u64;
        for step in 0..50_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let number = (seed >> 33) % 20_000;
            let key = ((number / 100).to_string(), (number % 100).to_string());
            if seed >> 63 == 0 {
                *table.entry((&key.0, &key.1)) = step;
                map.insert(key.clone(), step);
            } else {
                table.remove((&key.0, &key.1));
                map.remove(&key);
            }
            assert_eq!(table.get((&key.0, &key.1)), map.get(&key), "step {step}");
            if step % 10_000 == 0 {
                snapshots.push((table.clone(), map.clone()));
            }
        }
        snapshots.push((table.clone(), map.clone()));
        for (table, map) in snapshots {
            for number in 0..20_000_u64 {
                let key = ((number / 100).to_string(), (number % 100).to_string());
                assert_eq!(table.get((&key.0, &key.1)), map.get(&key), "a copy does not change");
            }
        }
        for key in map.keys() {
            table.remove((&key.0, &key.1));
        }
        assert!(table.root.is_none());
    }

    #[test]
    fn a_pair_is_not_its_concatenation() {
        let mut table = Table::<u64>::default();
        *table.entry(("ab", "c")) = 1;
        assert_eq!(table.get(("a", "bc")), None);
        assert_eq!(table.get(("ab", "c")), Some(&1));
    }
}
