//! The partition of each record. Pure.
//!
//! As by Pulsar's client, records without keys go to one partition for ten times the delay of a batch
//! (`batchingPartitionSwitchFrequencyByPublishDelay`), or in turns if each is sent alone; those with keys, by
//! the key's hash. Pulsar's clients begin with a random partition, these with different ones.

use std::time::Duration;

use tokio::time::Instant;

/// `batchingPartitionSwitchFrequencyByPublishDelay`.
const SWITCH_DELAYS: u32 = 10;

/// The partitions of a producer's records.
#[derive(Debug)]
pub(crate) struct Router {
    partitions: u128,
    first: u128,
    /// The time for one partition; `None` for one record.
    turn: Option<Duration>,
    /// Number of records before.
    records: u128,
    start: Instant,
}

impl Router {
    /// A router for batches with this delay, or for records that are sent alone.
    pub(crate) fn new(partitions: usize, client: u32, batch_delay: Option<Duration>, now: Instant) -> Router {
        let turn = batch_delay.map(|delay| (delay * SWITCH_DELAYS).max(Duration::from_millis(1)));
        Router { partitions: partitions.max(1) as u128, first: client.into(), turn, records: 0, start: now }
    }

    /// The partition of the next record. `now` may be some records old.
    pub(crate) fn next(&mut self, key: Option<&str>, now: Instant) -> usize {
        let number = match (key, self.turn) {
            (Some(key), _) => java_hash(key).into(),
            (None, Some(turn)) => {
                let elapsed = now.saturating_duration_since(self.start);
                self.first + elapsed.as_micros() / turn.as_micros()
            }
            (None, None) => {
                self.records += 1;
                self.first + self.records - 1
            }
        };
        usize::try_from(number % self.partitions).expect("the number of partitions is a usize")
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

    #[test]
    fn records_stay_for_ten_delays() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut router = Router::new(3, 1, Some(Duration::from_millis(1)), start);
        let places = [0, 0, 9, 10, 19, 20, 30, 100].map(|ms| router.next(None, at(ms)));
        assert_eq!(places, [1, 1, 1, 2, 2, 0, 1, 2], "whatever their number");
        let mut router = Router::new(3, 4, Some(Duration::ZERO), start);
        assert_eq!([0, 1, 2].map(|ms| router.next(None, at(ms))), [1, 2, 0], "a millisecond at least");
    }

    #[test]
    fn records_without_batches_take_turns() {
        let start = Instant::now();
        let mut router = Router::new(3, 2, None, start);
        assert_eq!([(); 4].map(|()| router.next(None, start)), [2, 0, 1, 2]);
        assert_eq!(router.next(Some("abc"), start), 96_354 % 3);
    }

    #[test]
    fn keys_have_the_partitions_of_pulsars_clients() {
        // `"abc".hashCode()` is 96354 in Java.
        assert_eq!(java_hash("abc"), 96_354);
        // `"polygenelubricants".hashCode()` is the smallest number.
        assert_eq!(java_hash("polygenelubricants"), 0);
    }
}
