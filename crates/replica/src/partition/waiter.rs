//! Fetches that wait for appends.

use super::news::News;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::{Notify, oneshot};

/// A waiting fetch, on any number of partitions.
#[derive(Debug)]
pub struct Waiter {
    /// Bytes that are still missing.
    missing: AtomicUsize,
    done: AtomicBool,
    notify: Notify,
}

/// The state of a waiting fetch. Dropped when the fetch is answered or abandoned; partitions then forget the
/// waiter at their next occasion.
#[derive(Debug)]
pub struct WaitingFetch(Arc<Waiter>);

impl std::ops::Deref for WaitingFetch {
    type Target = Arc<Waiter>;

    fn deref(&self) -> &Arc<Waiter> {
        &self.0
    }
}

impl Drop for WaitingFetch {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::Relaxed);
    }
}

impl Waiter {
    /// Begins to wait for `bytes` in total.
    pub fn begin(bytes: usize) -> WaitingFetch {
        WaitingFetch(Arc::new(Waiter {
            missing: AtomicUsize::new(bytes),
            done: AtomicBool::new(false),
            notify: Notify::new(),
        }))
    }

    /// Counts bytes that were available before the wait began.
    pub fn has(&self, bytes: usize) {
        if self.count(bytes) {
            self.wake();
        }
    }

    /// Completes when enough bytes have arrived, or another change requires a check.
    pub async fn woken(&self) {
        self.notify.notified().await;
    }

    /// Counts bytes that have become readable; true if they are enough.
    fn count(&self, bytes: usize) -> bool {
        let left = self
            .missing
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |m| Some(m.saturating_sub(bytes)));
        left.is_ok_and(|before| before <= bytes)
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        self.done.store(true, Ordering::Relaxed);
        self.notify.notify_one();
    }
}

/// Requests whose condition holds, or must be checked again. Dropping this list wakes the requests, after the
/// lock is released: a woken task takes that lock first.
#[derive(Debug, Default)]
pub(super) struct WokenRequests {
    fetches: Vec<Arc<Waiter>>,
    pub(super) sessions: Vec<Arc<News>>,
    /// Waiters for acks or deletions.
    pub(super) acks: Vec<oneshot::Sender<()>>,
}

impl Drop for WokenRequests {
    fn drop(&mut self) {
        for waiter in &self.fetches {
            waiter.wake();
        }
        for news in &self.sessions {
            news.wake();
        }
        for sender in self.acks.drain(..) {
            // The waiter may have been dropped.
            let _ = sender.send(());
        }
    }
}

/// The fetches that wait for one object, such as a partition.
#[derive(Debug, Default)]
pub struct Waiters {
    waiting: Vec<Arc<Waiter>>,
    /// Number of waiters at which abandoned ones are removed.
    sweep_at: usize,
}

impl Waiters {
    /// Adds a waiter.
    pub fn add(&mut self, waiter: &Arc<Waiter>) {
        if self.waiting.len() >= self.sweep_at.max(16) {
            self.waiting.retain(|waiter| !waiter.is_done());
            self.sweep_at = 2 * self.waiting.len();
        }
        self.waiting.push(Arc::clone(waiter));
    }

    /// Counts bytes that have become readable. Waiters that have enough move to `woken`.
    pub(super) fn count(&mut self, bytes: usize, woken: &mut WokenRequests) {
        for waiter in self.waiting.extract_if(.., |waiter| waiter.is_done() || waiter.count(bytes)) {
            if !waiter.is_done() {
                woken.fetches.push(waiter);
            }
        }
    }

    /// Moves all waiters to `woken`.
    pub(super) fn take_all(&mut self, woken: &mut WokenRequests) {
        woken.fetches.append(&mut self.waiting);
    }

    /// Wakes all waiters after a change that concerns all of them.
    pub fn wake_all(&mut self) {
        for waiter in std::mem::take(&mut self.waiting) {
            waiter.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiter_wakes_when_enough_has_come_over_several_partitions() {
        let waiter = Waiter::begin(100);
        let (mut one, mut other) = (Waiters::default(), Waiters::default());
        one.add(&waiter);
        other.add(&waiter);
        one.count(60, &mut WokenRequests::default());
        assert!(!waiter.is_done());
        other.count(40, &mut WokenRequests::default());
        waiter.woken().await;
        one.count(1, &mut WokenRequests::default());
        assert!(one.waiting.is_empty() && other.waiting.is_empty());
    }

    #[tokio::test]
    async fn what_was_there_before_is_not_waited_for_again() {
        let waiter = Waiter::begin(100);
        let mut waiters = Waiters::default();
        waiters.add(&waiter);
        waiter.has(70);
        waiters.count(29, &mut WokenRequests::default());
        assert!(!waiter.is_done());
        waiters.count(1, &mut WokenRequests::default());
        waiter.woken().await;
    }

    #[test]
    fn abandoned_waiters_do_not_pile_up() {
        let mut waiters = Waiters::default();
        for _ in 0..10_000 {
            let waiter = Waiter::begin(1);
            waiters.add(&waiter);
        }
        assert!(waiters.waiting.len() <= 32, "{}", waiters.waiting.len());
    }
}
