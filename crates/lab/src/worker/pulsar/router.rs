//! The partition of each record. Pure.
//!
//! Records without keys go to one partition until a batch is full, or for ten times the delay of a batch, as
//! by Pulsar's client (`batchingPartitionSwitchFrequencyByPublishDelay`); those with keys, by the key's hash.

use std::time::Duration;

use tokio::time::Instant;

/// `batchingPartitionSwitchFrequencyByPublishDelay`.
const SWITCH_DELAYS: u32 = 10;

/// The partitions of a producer's records.
#[derive(Debug)]
pub(crate) struct Router {
    partitions: usize,
    at: usize,
    /// Records until the next switch.
    left: u64,
    /// Records of a full batch.
    batch: u64,
    longest: Duration,
    since: Instant,
}

impl Router {
    /// A router for batches of this many records and this delay. Clients start with different partitions.
    pub(crate) fn new(partitions: usize, client: u32, batch: u64, delay: Duration, now: Instant) -> Router {
        let partitions = partitions.max(1);
        let batch = batch.max(1);
        let longest = (delay * SWITCH_DELAYS).max(Duration::from_millis(1));
        Router { partitions, at: client as usize % partitions, left: batch, batch, longest, since: now }
    }

    /// The partition of the next record. `now` may be some records old.
    pub(crate) fn next(&mut self, key: Option<&str>, now: Instant) -> usize {
        if self.partitions == 1 {
            return 0;
        }
        if let Some(key) = key {
            return java_hash(key) as usize % self.partitions;
        }
        if self.left == 0 || now.saturating_duration_since(self.since) >= self.longest {
            self.at = (self.at + 1) % self.partitions;
            (self.left, self.since) = (self.batch, now);
        }
        self.left -= 1;
        self.at
    }
}

/// Pulsar's `JavaStringHash`, of ASCII text.
fn java_hash(text: &str) -> u32 {
    let hash = text.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    hash & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn records_stay_for_a_batch_or_ten_delays() {
        let start = Instant::now();
        let mut router = Router::new(3, 1, 4, Duration::from_millis(1), start);
        let places: Vec<usize> = (0..9).map(|_| router.next(None, start)).collect();
        assert_eq!(places, [1, 1, 1, 1, 2, 2, 2, 2, 0]);
        assert_eq!(router.next(None, start + Duration::from_millis(9)), 0);
        assert_eq!(router.next(None, start + Duration::from_millis(10)), 1, "a paced record");
    }

    #[test]
    fn keys_have_the_partitions_of_pulsars_clients() {
        // `"abc".hashCode()` is 96354 in Java.
        assert_eq!(java_hash("abc"), 96_354);
        // `"polygenelubricants".hashCode()` is the smallest number.
        assert_eq!(java_hash("polygenelubricants"), 0);
    }
}
