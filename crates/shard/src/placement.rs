//! The partition of a group or transactional id, for which every broker of a cluster must agree with Kafka.

use thalweg_metadata::PartitionIndex;

/// The partition of a name: Java's `String.hashCode`, made positive as in Kafka's `Utils.abs`, modulo the
/// partition count.
pub fn partition_for(name: &str, partitions: i32) -> PartitionIndex {
    let hash =
        name.encode_utf16().fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    // The only number without a positive counterpart maps to zero.
    PartitionIndex(hash.checked_abs().unwrap_or(0) % partitions.max(1))
}

#[cfg(test)]
mod tests {
    use super::partition_for;

    #[test]
    fn places_groups_as_java_does() {
        // Values of `Utils.abs("...".hashCode()) % 50` in Java.
        assert_eq!(partition_for("", 50).0, 0);
        assert_eq!(partition_for("a", 50).0, 97 % 50);
        assert_eq!(partition_for("hello", 50).0, 99_162_322 % 50);
        assert_eq!(partition_for("grüße", 50).0, java("grüße"));
    }

    #[test]
    fn the_smallest_hash_is_zero() {
        // "polygenelubricants" hashes to i32::MIN in Java.
        assert_eq!(partition_for("polygenelubricants", 50).0, 0);
        assert_eq!(partition_for("polygenelubricants", 7).0, 0);
    }

    /// The definition by powers of 31.
    fn java(text: &str) -> i32 {
        let units: Vec<u16> = text.encode_utf16().collect();
        let mut hash = 0i64;
        for (index, unit) in units.iter().enumerate() {
            let mut term = i64::from(*unit);
            for _ in index + 1..units.len() {
                term = (term * 31) & 0xffff_ffff;
            }
            hash = (hash + term) & 0xffff_ffff;
        }
        let signed = if hash > i64::from(i32::MAX) { hash - (1 << 32) } else { hash };
        i32::try_from(signed.abs() % 50).expect("below 50")
    }
}
