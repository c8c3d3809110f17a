//! Offsets that consumers fetch from again and again although they are sent records.
//!
//! Owns: a short memory of what consumers were sent, and when it looks as if one cannot take its records. Refuses: followers, whose
//! leader knows each of them ([`crate::leadership`]).

use crate::leadership::SENT_BEFORE_CHECK;
use std::time::Duration;
use thalweg_record::Offset;
use tokio::time::Instant;

/// How many offsets are remembered. Those that were fetched from most often stay.
const REMEMBERED_MAX: usize = 8;

/// How long a consumer fetches from the same offset before the records there are checked. Several that read side by side come to
/// an offset within a moment.
const TIME_BEFORE_CHECK: Duration = Duration::from_secs(1);

/// The offsets of a partition that consumers fetched from lately.
#[derive(Debug, Default)]
pub(super) struct Refetches {
    seen: Vec<Refetch>,
    /// How many were seen.
    total: u32,
    /// The one that was found last, until it is taken.
    stuck: Option<StuckConsumer>,
}

#[derive(Debug)]
struct Refetch {
    offset: Offset,
    times: u32,
    /// How many offsets were seen before.
    number: u32,
    since: Instant,
    /// When its records are checked next.
    due: Instant,
}

/// Records that a consumer fetches again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StuckConsumer {
    /// The first of them.
    pub(super) offset: Offset,
    /// How many bytes of them it was sent.
    pub(super) sent_bytes: usize,
    /// Whether this offset is reported for the first time.
    pub(super) is_new: bool,
}

impl Refetches {
    /// A consumer is sent records from `offset` on. Returns whether one seems to be stuck there: after a while, and then each time
    /// that the while has doubled.
    pub(super) fn on_records_sent(&mut self, offset: Offset, sent_bytes: usize, now: Instant) -> bool {
        let Some(refetch) = self.seen.iter_mut().find(|refetch| refetch.offset == offset) else {
            let number = self.total;
            self.total = number.wrapping_add(1);
            self.remember(Refetch { offset, times: 1, number, since: now, due: now + TIME_BEFORE_CHECK });
            return false;
        };
        refetch.times = refetch.times.saturating_add(1);
        let is_stuck = refetch.times >= SENT_BEFORE_CHECK && now >= refetch.due;
        if is_stuck {
            let is_new = refetch.due == refetch.since + TIME_BEFORE_CHECK;
            refetch.due = now + (now - refetch.since);
            self.stuck = Some(StuckConsumer { offset, sent_bytes, is_new });
        }
        is_stuck
    }

    /// In place of the one that was fetched from least often, and longest ago of these.
    fn remember(&mut self, refetch: Refetch) {
        if self.seen.len() < REMEMBERED_MAX {
            self.seen.push(refetch);
        } else if let Some(least) =
            self.seen.iter_mut().min_by_key(|seen| u64::from(seen.times) << 32 | u64::from(seen.number))
        {
            *least = refetch;
        }
    }

    /// What was found to be fetched again and again last, once.
    pub(super) fn take_stuck(&mut self) -> Option<StuckConsumer> {
        self.stuck.take()
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
            let now = begin + STEP * step;
            // Others read on meanwhile: more than are remembered.
            for other in 0..20 {
                let offset = Offset(1_000 + 20 * i64::from(step) + other);
                assert!(step < 2 || !refetches.on_records_sent(offset, 50, now));
            }
            if refetches.on_records_sent(Offset(5), 100, now) {
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
    fn consumers_side_by_side_are_not_stuck() {
        let (mut refetches, begin) = (Refetches::default(), Instant::now());
        for step in 0..20 {
            let now = begin + STEP * step;
            let offset = Offset(i64::from(step));
            assert!((0..100).all(|_| !refetches.on_records_sent(offset, 100, now)));
        }
    }
}
