//! The seeded randomness of a simulation.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Chance(SmallRng);

impl Chance {
    /// A generator by seed and purpose. The numbers of different purposes are independent.
    pub fn new(seed: u64, purpose: u64) -> Chance {
        Chance(SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose))
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.random_range(0..end) }
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A random element.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).expect("it is below a length")]
    }
}
