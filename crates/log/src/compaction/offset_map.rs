//! The last offset of each key, as far as memory allows.
//!
//! Owns: a bounded map from a hash of the key to an offset. Refuses: keeping keys: 128 bits of two keyed
//! hashes represent a key; collisions within a log are not expected. (With 64 bits, collisions are expected:
//! a lost record in every few billion compactions of a million keys is too many.)

use std::hash::{BuildHasher, RandomState};

use thalweg_hash::HashMap;
use thalweg_record::Offset;

/// Bytes per entry, including the free space of a hash map.
const ENTRY_BYTES: usize = 48;

/// The last offset of each key.
#[derive(Debug)]
pub(super) struct OffsetMap {
    first: RandomState,
    second: RandomState,
    offsets: HashMap<(u64, u64), i64>,
    entries_max: usize,
    /// All records up to here have been added.
    latest: Offset,
}

impl OffsetMap {
    /// A map of about this many bytes, for records from `start` on.
    pub(super) fn new(bytes_max: usize, start: Offset) -> OffsetMap {
        OffsetMap {
            first: RandomState::new(),
            second: RandomState::new(),
            offsets: HashMap::default(),
            entries_max: (bytes_max / ENTRY_BYTES).max(1),
            latest: start - 1,
        }
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        (self.first.hash_one(key), self.second.hash_one(key))
    }

    /// Adds a record. Returns `false` if there is no room for its key.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        if self.offsets.len() >= self.entries_max && !self.offsets.contains_key(&hash) {
            return false;
        }
        self.offsets.insert(hash, offset.0);
        true
    }

    /// Sets the end of the records that have been added.
    pub(super) fn set_latest(&mut self, offset: Offset) {
        self.latest = self.latest.max(offset);
    }

    /// The end of the records that have been added.
    pub(super) fn latest(&self) -> Offset {
        self.latest
    }

    /// True if a later record has the same key.
    pub(super) fn supersedes(&self, key: &[u8], offset: Offset) -> bool {
        self.offsets.get(&self.hash(key)).is_some_and(|&last| last > offset.0)
    }

    /// The capacity of the map, in keys.
    pub(super) fn keys_max(&self) -> usize {
        self.entries_max
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }
}
