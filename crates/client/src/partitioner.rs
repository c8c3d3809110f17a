//! The partition of a key: Kafka's murmur2, so that all clients agree.

/// The partition, of `count`, for records with this key.
pub fn key_partition(key: &[u8], count: usize) -> usize {
    // Kafka's toPositive clears the sign bit; it does not take the absolute value.
    (murmur2(key) & 0x7fff_ffff) as usize % count.max(1)
}

/// The hash of Kafka's partitioner: MurmurHash2 in 32 bits with a fixed seed.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // A key is far below 4 GB; Java's int length wraps the same way.
    let mut hash = SEED ^ (bytes.len() & 0xffff_ffff) as u32;
    let (words, tail) = bytes.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    for (index, &byte) in tail.iter().enumerate() {
        hash ^= u32::from(byte) << (8 * index);
    }
    if !tail.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of Kafka's own test of `Utils.murmur2`.
    #[test]
    fn hashes_are_those_of_kafka() {
        let cases: [(&str, i32); 7] = [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
            ("", 275_646_681),
        ];
        for (key, hash) in cases {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }
}
