//! A watch channel with a reproducible wake-up order, and the API names of tokio's `watch`.
//!
//! Tokio puts a waiting task on a random one of several lists, so tasks wake in a different order in each
//! run, and simulations differ. Here a receiver is assigned to a list when it is created, and lists are
//! notified in order. There are several lists so that connections on different cores do not contend for one
//! lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// Number of lists on which tasks wait.
const LISTS: usize = 8;

#[derive(Debug)]
struct WatchState<T> {
    value: RwLock<T>,
    /// Incremented by every change, while the value is locked.
    version: AtomicU64,
    closed: AtomicBool,
    waiting: [Notify; LISTS],
    receivers: AtomicUsize,
}

/// Changes the value. Dropping the sender notifies receivers that no more changes follow.
#[derive(Debug)]
pub struct Sender<T>(Arc<WatchState<T>>);

/// Reads the value and waits for changes. A clone has seen the same version as the original.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<WatchState<T>>,
    seen: u64,
    list: usize,
}

/// The sender was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// Creates a sender, and a receiver that has seen the value.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> WatchState<T> {
    fn wake_receivers(&self) {
        self.waiting.iter().for_each(Notify::notify_waiters);
    }

    fn receiver(self: &Arc<Self>, seen: u64) -> Receiver<T> {
        let list = self.receivers.fetch_add(1, Ordering::Relaxed) % LISTS;
        Receiver { shared: Arc::clone(self), seen, list }
    }
}

impl<T> Sender<T> {
    /// Creates a value without receivers.
    pub fn new(value: T) -> Sender<T> {
        Sender(Arc::new(WatchState {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            waiting: [const { Notify::const_new() }; LISTS],
            receivers: AtomicUsize::new(0),
        }))
    }

    /// A receiver that has seen the current value.
    pub fn subscribe(&self) -> Receiver<T> {
        self.0.receiver(self.0.version.load(Ordering::Acquire))
    }

    /// The current value. Do not hold the guard over an await: the guard locks the value.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.value.read()
    }

    /// Replaces the value; returns the old one. Notifies all waiters, even if the value is equal.
    pub fn send_replace(&self, value: T) -> T {
        let mut before = value;
        self.send_if_modified(|known| {
            std::mem::swap(known, &mut before);
            true
        });
        before
    }

    /// Changes the value. Notifies all waiters if `change` returns `true`; returns its result.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let changed = {
            let mut value = self.0.value.write();
            let changed = change(&mut value);
            self.0.version.fetch_add(u64::from(changed), Ordering::Release);
            changed
        };
        if changed {
            self.0.wake_receivers();
        }
        changed
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.wake_receivers();
    }
}

impl<T> Receiver<T> {
    /// The current value, without marking the value as seen. Do not hold the guard over an await.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read()
    }

    /// The current value, marked as seen. Do not hold the guard over an await.
    pub fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.shared.value.read();
        self.seen = self.shared.version.load(Ordering::Acquire);
        value
    }

    /// Marks the current value as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.version.load(Ordering::Acquire);
    }

    /// Waits for an unseen value, and marks the value as seen.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            // Register before reading the version, so that no change in between is missed.
            let told = self.shared.waiting[self.list].notified();
            let closed = self.shared.closed.load(Ordering::Acquire);
            let version = self.shared.version.load(Ordering::Acquire);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if closed {
                return Err(RecvError);
            }
            told.await;
        }
    }

    /// Waits until `is_it` holds for the value, which may be at once, and marks the value as seen.
    pub async fn wait_for(
        &mut self,
        mut is_it: impl FnMut(&T) -> bool,
    ) -> Result<RwLockReadGuard<'_, T>, RecvError> {
        loop {
            let told = self.shared.waiting[self.list].notified();
            let closed = self.shared.closed.load(Ordering::Acquire);
            {
                let value = self.shared.value.read();
                self.seen = self.shared.version.load(Ordering::Acquire);
                if is_it(&value) {
                    return Ok(value);
                }
            }
            if closed {
                return Err(RecvError);
            }
            told.await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receiver(self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[tokio::test]
    async fn tasks_wake_in_the_same_order_each_time() {
        let order = || async {
            let sender = Sender::new(0);
            let woken = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = tokio::task::JoinSet::new();
            for number in 0..30 {
                let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
                tasks.spawn(async move {
                    receiver.wait_for(|value| *value == 1).await.map(drop).expect("the sender is there");
                    woken.lock().push(number);
                });
            }
            tokio::task::yield_now().await;
            sender.send_replace(1);
            tasks.join_all().await;
            let woken = woken.lock();
            woken.clone()
        };
        let first = order().await;
        assert_eq!(first.len(), 30);
        for _ in 0..5 {
            assert_eq!(order().await, first);
        }
    }

    #[tokio::test]
    async fn a_change_is_seen_once_and_by_each() {
        let (sender, mut one) = channel(1);
        let mut other = one.clone();
        assert_eq!(sender.send_replace(2), 1);
        one.changed().await.expect("it has changed");
        assert_eq!((*one.borrow(), *other.borrow_and_update()), (2, 2));
        assert!(!sender.send_if_modified(|_| false));
        for receiver in [&mut one, &mut other] {
            let none = tokio::time::timeout(std::time::Duration::ZERO, receiver.changed()).await;
            assert!(none.is_err(), "nothing has changed since");
        }
    }

    #[tokio::test]
    async fn the_last_value_is_seen_before_the_end() {
        let (sender, mut receiver) = channel(1);
        sender.send_replace(2);
        drop(sender);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(receiver.changed().await, Err(RecvError));
        assert_eq!(receiver.wait_for(|value| *value == 2).await.map(|value| *value), Ok(2));
        assert_eq!(receiver.wait_for(|value| *value == 3).await.map(|value| *value), Err(RecvError));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_change_is_missed_by_who_looks_meanwhile() {
        let (sender, mut receiver) = channel(0);
        let (tell, mut told) = tokio::sync::mpsc::channel(1);
        let follows = tokio::spawn(async move {
            let mut last = 0;
            while last < 10_000 {
                receiver.changed().await.expect("the sender is there");
                last = *receiver.borrow_and_update();
                if last % 1000 == 0 {
                    tell.send(last).await.expect("somebody listens");
                }
            }
        });
        for value in 1..=10_000 {
            sender.send_replace(value);
            if value % 1000 == 0 {
                assert_eq!(told.recv().await, Some(value));
            }
        }
        follows.await.expect("all was seen");
    }
}
