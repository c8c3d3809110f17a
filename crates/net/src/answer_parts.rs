//! Builds answers from parts: each part once, without a linear search, up to the size limit of an answer.

use std::collections::hash_map::Entry;
use std::hash::Hash;
use thalweg_hash::HashMap;

/// Maximum size of an answer in memory, without the batches of a fetch. Kafka has no limit below 2 GiB;
/// librdkafka accepts answers of up to 100 MB by default, enough for the metadata of two million partitions.
pub const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;

/// The remaining size of an answer, for an API whose answer can be far larger than its request.
#[derive(Debug)]
pub struct AnswerRoom {
    left: usize,
}

impl Default for AnswerRoom {
    /// Room for a whole answer.
    fn default() -> Self {
        Self { left: ANSWER_BYTES_MAX }
    }
}

impl AnswerRoom {
    /// Reserves about `bytes` bytes for a part; `false` if there is no room.
    pub fn take(&mut self, bytes: usize) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                // After a refusal, smaller later parts must be refused too.
                self.left = 0;
                false
            }
        }
    }
}

/// Adds parts to an answer, usually topics. If a part with the same key exists, `join` merges the two.
pub fn merge<T, K: Hash + Eq>(
    answered: &mut Vec<T>,
    more: Vec<T>,
    key: impl Fn(&T) -> K,
    join: impl Fn(&mut T, T),
) {
    if answered.is_empty() && more.len() <= 1 {
        *answered = more;
        return;
    }
    let mut places: HashMap<K, usize> = HashMap::default();
    for (place, part) in answered.iter().enumerate() {
        places.entry(key(part)).or_insert(place);
    }
    for part in more {
        match places.entry(key(&part)) {
            Entry::Occupied(place) => join(&mut answered[*place.get()], part),
            Entry::Vacant(free) => {
                free.insert(answered.len());
                answered.push(part);
            }
        }
    }
}
