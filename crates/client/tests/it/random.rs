//! Random records, from a seed that a failing test can name.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::fake::StoredRecord;

pub fn seeded(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

pub fn bytes(random: &mut SmallRng, max: usize) -> Vec<u8> {
    let len = random.random_range(0..=max);
    (0..len).map(|_| random.random()).collect()
}

/// A record whose value starts with its number, for identification.
pub fn record(random: &mut SmallRng, number: u64, value_max: usize) -> StoredRecord {
    let mut value = number.to_be_bytes().to_vec();
    value.extend(bytes(random, value_max));
    let headers = random.random_range(0..3);
    StoredRecord {
        key: random.random_bool(0.3).then(|| bytes(random, 20)),
        value: Some(value),
        headers: (0..headers)
            .map(|_| (bytes(random, 10), random.random_bool(0.5).then(|| bytes(random, 10))))
            .collect(),
        timestamp: 1_700_000_000_000 + i64::try_from(number).expect("few"),
    }
}
