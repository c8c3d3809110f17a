//! A copy-on-write map, for an image: a clone shares all parts, and a change copies one part. A cluster may
//! have 100,000 topics, and a change per heartbeat.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use thalweg_hash::{HashMap, HashState};

/// With this number of parts, a part of the largest map is as cheap to copy as the list of parts.
const PARTS: usize = 256;

/// A copy-on-write map in parts.
#[derive(Clone, Debug)]
pub(crate) struct CowMap<K, V> {
    /// The hash state that selects the part of a key, identical in all clones.
    state: HashState,
    /// None while the map is empty.
    parts: Vec<Arc<HashMap<K, V>>>,
    len: usize,
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> CowMap<K, V> {
        CowMap { state: HashState::default(), parts: Vec::new(), len: 0 }
    }
}

/// Equality of content, regardless of the parts.
impl<K: Eq + Hash, V: PartialEq> PartialEq for CowMap<K, V> {
    fn eq(&self, other: &CowMap<K, V>) -> bool {
        self.len == other.len && self.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl<K: Eq + Hash, V> CowMap<K, V> {
    fn part<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        usize::try_from(self.state.hash_one(key) % PARTS as u64).expect("it is below the number of parts")
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.parts.get(self.part(key))?.get(key)
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// The entries of parts not shared with `base`, which include all differing entries.
    pub fn since(&self, base: &Self) -> impl Iterator<Item = (&K, &V)> {
        let is_shared = |(index, part): &(usize, &Arc<_>)| {
            base.parts.get(*index).is_some_and(|earlier| Arc::ptr_eq(earlier, part))
        };
        let changed = self.parts.iter().enumerate().filter(move |part| !is_shared(part));
        changed.flat_map(|(_, part)| part.iter())
    }
}

impl<K: Clone + Eq + Hash, V: Clone> CowMap<K, V> {
    pub fn insert(&mut self, key: K, value: V) {
        if self.parts.is_empty() {
            self.parts = vec![Arc::default(); PARTS];
        }
        let part = self.part(&key);
        self.len += usize::from(Arc::make_mut(&mut self.parts[part]).insert(key, value).is_none());
    }

    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.get(key)?;
        let part = self.part(key);
        self.len -= 1;
        Arc::make_mut(&mut self.parts[part]).remove(key)
    }

    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.get(key)?;
        let part = self.part(key);
        Arc::make_mut(&mut self.parts[part]).get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_copies_one_part() {
        let mut map: CowMap<u32, u32> = CowMap::default();
        assert!(map.get(&1).is_none() && map.remove(&1).is_none() && map.get_mut(&1).is_none());
        (0..10_000).for_each(|key| map.insert(key, key));
        let before = map.clone();
        map.insert(7, 8);
        *map.get_mut(&7).expect("it is there") += 1;
        assert_eq!(map.remove(&7), Some(9));
        assert_eq!((map.len(), before.len(), before.get(&7)), (9_999, 10_000, Some(&7)));
        let shared = map.parts.iter().zip(&before.parts).filter(|(now, then)| Arc::ptr_eq(now, then)).count();
        assert_eq!(shared, PARTS - 1);
        map.insert(8, 9);
        assert!(map.since(&before).any(|entry| entry == (&8, &9)));
        assert!(map.since(&before).count() < map.len() / 50, "the parts that are shared are not walked");
        assert_eq!(map.since(&CowMap::default()).count(), map.len());
        assert_eq!(before.since(&before.clone()).count(), 0);
    }

    #[test]
    fn maps_with_other_parts_are_equal_by_content() {
        let (mut one, mut other): (CowMap<u32, u32>, CowMap<u32, u32>) = Default::default();
        assert!(one == other);
        (0..500).for_each(|key| one.insert(key, key));
        (0..500).rev().for_each(|key| other.insert(key, key));
        assert!(one == other);
        other.insert(3, 4);
        assert!(one != other);
        assert_eq!(one.iter().count(), one.len());
    }
}
