//! The order in which Java's `HashMap` iterates over keys of text. Kafka keeps the subtopologies of a
//! topology in such a map, and their order decides the partition counts of repartition topics: a topic gets
//! its count from the first visit that finds one of its sources known.
//!
//! ```text
//! bucket           the hash code of the UTF-16 text, upper half folded into the lower, modulo the capacity
//! capacity         16, doubled until the keys fill no more than three quarters
//! within a bucket  the order of insertion
//! ```
//!
//! Java keeps more than eight keys of one bucket in a tree, or in a larger map, which can change their order.
//! The order here leaves that out: ids of subtopologies and names of topics are spread over the buckets.

use std::collections::BTreeSet;

/// The initial capacity of Java's map.
const CAPACITY_MIN: usize = 16;

/// Keys in the order of Java's `HashMap`, collected in the order of their insertion. A repeated key keeps its
/// first place.
#[derive(Debug)]
pub(super) struct HashOrder<K>(Vec<K>);

impl<K> HashOrder<K> {
    pub(super) fn as_slice(&self) -> &[K] {
        &self.0
    }
}

impl<K: AsRef<str>> FromIterator<K> for HashOrder<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> HashOrder<K> {
        let inserted: Vec<K> = keys.into_iter().collect();
        let mut known = BTreeSet::new();
        let are_first: Vec<bool> = inserted.iter().map(|key| known.insert(key.as_ref())).collect();
        let mut keys: Vec<K> = inserted
            .into_iter()
            .zip(are_first)
            .filter_map(|(key, is_first)| is_first.then_some(key))
            .collect();
        let mut capacity = CAPACITY_MIN;
        while keys.len() > capacity / 4 * 3 {
            capacity *= 2;
        }
        keys.sort_by_cached_key(|key| spread_hash(key.as_ref()) as usize & (capacity - 1));
        HashOrder(keys)
    }
}

impl<K> IntoIterator for HashOrder<K> {
    type Item = K;
    type IntoIter = std::vec::IntoIter<K>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// `String.hashCode`, with its upper half folded into its lower half.
fn spread_hash(text: &str) -> u32 {
    let hash = text.encode_utf16().fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()));
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered<'a>(keys: &[&'a str]) -> Vec<&'a str> {
        keys.iter().copied().collect::<HashOrder<&str>>().into_iter().collect()
    }

    fn numbers(count: usize) -> String {
        let order: HashOrder<String> = (0..count).map(|number| number.to_string()).collect();
        order.as_slice().join(" ")
    }

    /// The expected orders are those of Java 17.
    #[test]
    fn keys_have_the_order_of_javas_map() {
        assert_eq!(numbers(12), "0 11 1 2 3 4 5 6 7 8 9 10");
        assert_eq!(numbers(13), "11 12 0 1 2 3 4 5 6 7 8 9 10", "the capacity is doubled");
        assert_eq!(
            numbers(25),
            "22 23 24 10 11 12 13 14 15 16 17 18 19 0 1 2 3 4 5 6 7 8 9 20 21",
            "and doubled again"
        );
        let names = [
            "größe",
            "東京",
            "🚀",
            "words-repartition",
            "KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition",
            "app-KSTREAM-KEY-SELECT-0000000001-repartition",
            "",
        ];
        let order = [names[6], names[0], names[4], names[5], names[1], names[2], names[3]];
        assert_eq!(ordered(&names), order, "hashes are of UTF-16 units");
    }

    #[test]
    fn keys_of_one_hash_keep_the_order_of_their_insertion() {
        let keys = ["Aa", "BB", "C#", "AaAa", "BBBB", "AaBB"];
        assert_eq!(ordered(&keys), keys);
        assert_eq!(ordered(&["BB", "Aa", "BBBB", "AaBB", "AaAa"]), ["BB", "Aa", "BBBB", "AaBB", "AaAa"]);
        assert_eq!(ordered(&["BB", "Aa", "BB"]), ["BB", "Aa"], "a repeated key stays where it is");
    }
}
