//! The last offset of each key, as far as memory allows.
//!
//! Owns: a bounded map from a hash of the key to an offset. Refuses: keeping keys: 128 bits of two keyed hashes
//! stand for a key, and that two keys of one log share them is not to be expected. (64 bits would be: a lost
//! record in every few billion compactions of a million keys is too many.)

use std::hash::{BuildHasher, RandomState};

use thalweg_hash::HashMap;
use thalweg_record::Offset;

/// Bytes that an entry takes, with the room that a hash map leaves free.
const ENTRY_BYTES: usize = 48;

/// The last offset of each key.
#[derive(Debug)]
pub(super) struct OffsetMap {
    first: RandomState,
    second: RandomState,
    offsets: HashMap<(u64, u64), i64>,
    entries_max: usize,
    /// Everything up to here was looked at.
    latest: Offset,
}

impl OffsetMap {
    /// A map of about so many bytes, for records from `start` on.
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

    /// Notes a record. Says `false` when there is no room for its key.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        if self.offsets.len() >= self.entries_max && !self.offsets.contains_key(&hash) {
            return false;
        }
        self.offsets.insert(hash, offset.0);
        true
    }

    /// Says that everything up to `offset` was looked at.
    pub(super) fn set_latest(&mut self, offset: Offset) {
        self.latest = self.latest.max(offset);
    }

    /// Everything up to here was looked at.
    pub(super) fn latest(&self) -> Offset {
        self.latest
    }

    /// Whether a later record has the same key.
    pub(super) fn supersedes(&self, key: &[u8], offset: Offset) -> bool {
        self.offsets.get(&self.hash(key)).is_some_and(|&last| last > offset.0)
    }

    /// The number of keys that there is room for.
    pub(super) fn keys_max(&self) -> usize {
        self.entries_max
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }
}
