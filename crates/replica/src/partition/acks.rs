//! Requests that wait for an offset: Produce for the high watermark, DeleteRecords for the low watermark.
//!
//! Each waiter is woken individually when its offset is reached, so that a rise costs only the waiters
//! released.

use super::waiter::WokenRequests;
use std::collections::VecDeque;
use thalweg_record::Offset;
use tokio::sync::oneshot;

/// The waiters of one partition, by offset.
#[derive(Debug, Default)]
pub(super) struct AckWaiters {
    waiting: VecDeque<(Offset, oneshot::Sender<()>)>,
    /// Number of waiters at which abandoned ones are removed.
    sweep_at: usize,
}

impl AckWaiters {
    /// True if there are no waiters.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Completes when the watermark reaches `offset`, or when all waiters must check their condition again.
    pub(super) fn wait(&mut self, offset: Offset) -> oneshot::Receiver<()> {
        if self.waiting.len() >= self.sweep_at.max(16) {
            self.waiting.retain(|(_, sender)| !sender.is_closed());
            self.sweep_at = 2 * self.waiting.len();
        }
        let (sender, receiver) = oneshot::channel();
        // Later appends wait for later offsets, except for a few that overtake each other.
        let behind = self.waiting.iter().rev().take_while(|(other, _)| *other > offset).count();
        self.waiting.insert(self.waiting.len() - behind, (offset, sender));
        receiver
    }

    /// Moves the waiters at or below the new watermark to `woken`.
    pub(super) fn reach(&mut self, watermark: Offset, woken: &mut WokenRequests) {
        let reached = self.waiting.iter().take_while(|(offset, _)| *offset <= watermark).count();
        woken.acks.extend(self.waiting.drain(..reached).map(|(_, sender)| sender));
    }

    /// Moves all waiters to `woken`.
    pub(super) fn take_all(&mut self, woken: &mut WokenRequests) {
        self.reach(Offset(i64::MAX), woken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_are_woken_whose_offset_is_reached() {
        let mut waiters = AckWaiters::default();
        let mut receivers: Vec<_> = [5, 9, 7].map(|offset| waiters.wait(Offset(offset))).into();
        let woken = |receivers: &mut Vec<oneshot::Receiver<()>>| {
            receivers.iter_mut().map(|receiver| receiver.try_recv().is_ok()).collect::<Vec<_>>()
        };
        waiters.reach(Offset(7), &mut WokenRequests::default());
        assert_eq!(woken(&mut receivers), [true, false, true]);
        waiters.reach(Offset(8), &mut WokenRequests::default());
        assert_eq!(woken(&mut receivers), [false, false, false]);
        waiters.take_all(&mut WokenRequests::default());
        assert_eq!(woken(&mut receivers), [false, true, false]);
    }

    #[test]
    fn those_who_gave_up_do_not_pile_up() {
        let mut waiters = AckWaiters::default();
        for offset in 0..10_000 {
            drop(waiters.wait(Offset(offset)));
        }
        assert!(waiters.waiting.len() <= 32, "{}", waiters.waiting.len());
    }
}
