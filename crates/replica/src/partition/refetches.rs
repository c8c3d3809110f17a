//! Offsets that consumers fetch repeatedly although records are sent.
//!
//! Owns: a short memory of offsets sent to consumers, and the detection of a consumer that cannot read its
//! records. Refuses: followers, which their leader tracks one by one ([`crate::followers`]).

use crate::followers::SENT_BEFORE_CHECK;
use std::time::Duration;
use thalweg_record::Offset;
use tokio::time::Instant;

/// Maximum number of remembered offsets. An offset stays as long as it is fetched again. With many readers a
/// new offset needs a free place; the offset of a stuck consumer gets one after some fetches.
const REMEMBERED_MAX: usize = 16;

/// Time from the last fetch of an offset until it is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(4);

/// Time for which an offset is fetched repeatedly before its records are checked. Several consumers that read
/// side by side fetch the same offset within a moment.
const TIME_BEFORE_CHECK: Duration = Duration::from_secs(1);

/// The offsets of a partition that consumers fetched recently.
#[derive(Debug, Default)]
pub(super) struct Refetches {
    seen: Vec<Refetch>,
    /// The last stuck consumer, until taken.
    stuck: Option<StuckConsumer>,
}

#[derive(Debug)]
struct Refetch {
    offset: Offset,
    times: u32,
    since: Instant,
    last: Instant,
    /// Time of the next check of the records.
    due: Instant,
}

/// Records that a consumer fetches again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StuckConsumer {
    /// The first offset of the records.
    pub(super) offset: Offset,
    /// Bytes of records in the last answer.
    pub(super) sent_bytes: usize,
    /// True on the first report of this offset.
    pub(super) is_new: bool,
}

impl Refetches {
    /// Notes records sent to a consumer from `offset` on. Returns true if a consumer seems stuck there: after
    /// a while, then each time that the while has doubled.
    pub(super) fn on_records_sent(&mut self, offset: Offset, sent_bytes: usize, now: Instant) -> bool {
        let Some(refetch) = self.seen.iter_mut().find(|refetch| refetch.offset == offset) else {
            self.remember(Refetch::new(offset, now));
            return false;
        };
        if refetch.is_forgotten(now) {
            *refetch = Refetch::new(offset, now);
            return false;
        }
        refetch.last = now;
        refetch.times = refetch.times.saturating_add(1);
        let is_stuck = refetch.times >= SENT_BEFORE_CHECK && now >= refetch.due;
        if is_stuck {
            let is_new = refetch.due == refetch.since + TIME_BEFORE_CHECK;
            refetch.due = now + (now - refetch.since);
            self.stuck = Some(StuckConsumer { offset, sent_bytes, is_new });
        }
        is_stuck
    }

    /// Remembers an offset, if there is a place.
    fn remember(&mut self, refetch: Refetch) {
        if self.seen.len() < REMEMBERED_MAX {
            self.seen.push(refetch);
        } else if let Some(place) = self.seen.iter_mut().find(|seen| seen.is_forgotten(refetch.last)) {
            *place = refetch;
        }
    }

    /// Takes the last stuck consumer.
    pub(super) fn take_stuck(&mut self) -> Option<StuckConsumer> {
        self.stuck.take()
    }
}

impl Refetch {
    fn new(offset: Offset, now: Instant) -> Refetch {
        Refetch { offset, times: 1, since: now, last: now, due: now + TIME_BEFORE_CHECK }
    }

    fn is_forgotten(&self, now: Instant) -> bool {
        now - self.last >= FORGOTTEN_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(500);

    #[test]
    fn consumer_that_fetches_the_same_records_again_and_again_is_stuck() {
        let (mut refetches, begin) = (Refetches::default(), Instant::now());
        let mut reported = Vec::new();
        for step in 0..20 {
            if refetches.on_records_sent(Offset(5), 100, begin + STEP * step) {
                let stuck = refetches.take_stuck().expect("it was found");
                assert_eq!(
                    (stuck.offset, stuck.sent_bytes, stuck.is_new),
                    (Offset(5), 100, reported.is_empty())
                );
                reported.push(step);
            }
        }
        assert_eq!(reported, [3, 6, 12], "not at each fetch");
        assert_eq!(refetches.take_stuck(), None);
    }

    #[test]
    fn stuck_consumer_is_found_among_many_that_read_on() {
        let (mut refetches, mut now) = (Refetches::default(), Instant::now());
        let mut chance = 1_u64;
        let mut later = |now: &mut Instant| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *now += Duration::from_micros(chance >> 33 & 0x7fff);
        };
        let found = (0..600).find(|second| {
            // Sixty other consumers in a second, and one consumer that retries.
            (0..60).for_each(|other| {
                later(&mut now);
                assert!(!refetches.on_records_sent(Offset(1_000 + 60 * second + other), 50, now));
            });
            later(&mut now);
            refetches.on_records_sent(Offset(5), 100, now)
        });
        assert!(found.is_some_and(|second| second < 300), "{found:?}");
    }

    #[test]
    fn records_that_are_read_again_later_are_new() {
        let (mut refetches, mut now) = (Refetches::default(), Instant::now());
        for _ in 0..20 {
            assert!(!refetches.on_records_sent(Offset(0), 100, now));
            now += Duration::from_secs(3600);
        }
    }

    #[test]
    fn consumers_side_by_side_are_not_stuck() {
        let (mut refetches, begin) = (Refetches::default(), Instant::now());
        for step in 0..20 {
            let now = begin + STEP * step;
            let offset = Offset(i64::from(step));
            assert!((0..100).all(|_| !refetches.on_records_sent(offset, 100, now)));
        }
    }
}
