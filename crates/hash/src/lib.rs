//! Hash maps whose order follows from a seed in a simulation.
//!
//! The order of the standard library's maps is random, and becomes visible: iteration sends requests in this
//! order, and dropping a map of senders wakes their receivers in this order. Two runs of a simulation would
//! differ. Here the randomness is a seam, like clock and disk. On a real machine it comes from the kernel, so
//! that clients cannot choose colliding keys; in the thread of a simulation it comes from a seed. A tidy rule
//! refuses other maps in simulated code.

use std::cell::Cell;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

/// The standard library's map; `HashMap::default()` makes one.
pub type HashMap<K, V> = std::collections::HashMap<K, V, HashState>;
/// The standard library's set; `HashSet::default()` makes one.
pub type HashSet<T> = std::collections::HashSet<T, HashState>;

thread_local! {
    /// The seed for maps created by this thread; `None` for the kernel's randomness.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes the order of later maps of this thread follow from `seed`; `None` restores the kernel's randomness.
pub fn seed_maps_of_this_thread(seed: Option<u64>) {
    SEED.set(seed);
}

/// Hashes keys like the standard library, with the seam's randomness.
#[derive(Clone, Debug)]
pub struct HashState(Lot);

#[derive(Clone, Debug)]
enum Lot {
    Kernel(RandomState),
    Seed(u64),
}

impl Default for HashState {
    fn default() -> HashState {
        HashState(SEED.get().map_or_else(|| Lot::Kernel(RandomState::new()), Lot::Seed))
    }
}

impl BuildHasher for HashState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match &self.0 {
            Lot::Kernel(state) => state.build_hasher(),
            Lot::Seed(seed) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*seed);
                hasher
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: Option<u64>) -> Vec<u32> {
        seed_maps_of_this_thread(seed);
        let map: HashMap<u32, ()> = (0..100).map(|key| (key, ())).collect();
        let set: HashSet<u32> = map.keys().copied().collect();
        seed_maps_of_this_thread(None);
        assert_eq!(set.len(), 100);
        map.into_keys().chain(set).collect()
    }

    #[test]
    fn an_order_follows_from_its_seed() {
        assert_eq!(order(Some(7)), order(Some(7)));
        assert_ne!(order(Some(7)), order(Some(8)));
    }

    #[test]
    fn without_a_seed_it_is_drawn() {
        assert_ne!(order(None), order(None));
    }
}
