//! The hash of a group's topics (`Utils.computeGroupHash`), which shows changes since the last assignment. It
//! equals Kafka's hash, so that a group does not rebalance when its coordinator moves.
//!
//! ```text
//! group  XXH3-64 of its topics' hashes (i64), in the order of their names
//! topic  XXH3-64 of 0 (i8), id (2 x i64), name, partitions (i32),
//!        and for each partition: index (i32), and for each of its racks, sorted: length (i32), name
//! name   UTF-16 units, then their number (i32)          all numbers are little-endian
//! ```

use super::topics::{TopicPlacement, TopicsView};
use thalweg_hash::HashMap;
use twox_hash::XxHash3_64;

/// Cached hashes of subscribed topics.
#[derive(Debug, Default)]
pub(super) struct TopicHashes {
    by_name: HashMap<String, Option<i64>>,
}

/// Maximum number of cached hashes. At the limit the cache is cleared.
const TOPICS_MAX: usize = 100_000;

impl TopicHashes {
    /// Drops the hash of a changed topic.
    pub(super) fn forget(&mut self, topic: &str) {
        self.by_name.remove(topic);
    }

    /// The combined hash of the topics that exist. `names` must be sorted.
    pub(super) fn of_group<'a>(
        &mut self,
        names: impl Iterator<Item = &'a str>,
        topics: &dyn TopicsView,
    ) -> i64 {
        let mut hashed = Vec::new();
        for name in names {
            let hash = match self.by_name.get(name) {
                Some(known) => *known,
                None => self.add(name, topics),
            };
            if let Some(hash) = hash {
                hashed.extend_from_slice(&hash.to_le_bytes());
            }
        }
        if hashed.is_empty() { 0 } else { xxh3(&hashed) }
    }

    fn add(&mut self, name: &str, topics: &dyn TopicsView) -> Option<i64> {
        if self.by_name.len() >= TOPICS_MAX {
            self.by_name.clear();
        }
        let hash = topics.placement(name).map(|placement| of_topic(name, &placement));
        self.by_name.insert(name.to_owned(), hash);
        hash
    }
}

fn of_topic(name: &str, placement: &TopicPlacement) -> i64 {
    let mut bytes = Vec::with_capacity(32 + 2 * name.len() + 8 * placement.racks.len());
    bytes.push(0);
    let id = placement.id.0;
    bytes.extend_from_slice(&((id >> 64) as u64).to_le_bytes());
    bytes.extend_from_slice(&(id as u64).to_le_bytes());
    put_string(&mut bytes, name);
    put_len(&mut bytes, placement.racks.len());
    for (index, racks) in placement.racks.iter().enumerate() {
        put_len(&mut bytes, index);
        let mut racks: Vec<&str> = racks.iter().map(|rack| &**rack).collect();
        racks.sort_unstable();
        for rack in racks {
            put_len(&mut bytes, rack.encode_utf16().count());
            put_string(&mut bytes, rack);
        }
    }
    xxh3(&bytes)
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    let mut units = 0;
    for unit in text.encode_utf16() {
        bytes.extend_from_slice(&unit.to_le_bytes());
        units += 1;
    }
    put_len(bytes, units);
}

fn put_len(bytes: &mut Vec<u8>, len: usize) {
    bytes.extend_from_slice(&i32::try_from(len).unwrap_or(i32::MAX).to_le_bytes());
}

fn xxh3(bytes: &[u8]) -> i64 {
    XxHash3_64::oneshot(bytes).cast_signed()
}
