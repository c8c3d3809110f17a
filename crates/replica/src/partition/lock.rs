//! The lock of a partition. The holder of the lock must not wait for the disk: in builds with debug
//! assertions, a sync or a file removal under the lock panics (`thalweg_log::disk::NoWaits`). Wake-ups are
//! deferred to the unlock; otherwise the woken task would block on this lock. Any change of the state under
//! the lock puts the partition on the list of partitions with file work.
//!
//! Waits for the lock are timed; a lock that is free costs no more for it.

use super::State;
use super::file_work::FileWorkLink;
use super::waiter::WokenRequests;
use crate::context::ReplicaContext;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use thalweg_log::disk::NoWaits;
use tokio::time::Instant;

/// A partition's state behind its lock.
pub(super) struct StateLock {
    state: Mutex<State>,
    file_work: FileWorkLink,
    context: Arc<ReplicaContext>,
}

/// Access to the state while the lock is held.
pub(super) struct StateGuard<'a> {
    // Fields in drop order.
    state: MutexGuard<'a, State>,
    _no_waits: NoWaits,
    woken: WokenRequests,
    file_work: &'a FileWorkLink,
    may_have_changed: bool,
}

impl StateLock {
    pub(super) fn new(state: State, context: Arc<ReplicaContext>) -> Self {
        Self { state: Mutex::new(state), file_work: FileWorkLink::default(), context }
    }

    pub(super) fn lock(&self) -> StateGuard<'_> {
        StateGuard {
            state: self.state.try_lock().unwrap_or_else(|| self.wait()),
            _no_waits: NoWaits::begin(),
            woken: WokenRequests::default(),
            file_work: &self.file_work,
            may_have_changed: false,
        }
    }

    /// Waits for the holder of the lock.
    #[cold]
    fn wait(&self) -> MutexGuard<'_, State> {
        let began = Instant::now();
        let state = self.state.lock();
        self.context.lock_waits.record_time(began.elapsed());
        state
    }

    #[cfg(test)]
    pub(super) fn is_held(&self) -> bool {
        self.state.is_locked()
    }

    pub(super) fn file_work(&self) -> &FileWorkLink {
        &self.file_work
    }
}

impl StateGuard<'_> {
    /// Releases the lock of a partition whose files are at rest, without putting the partition on the list.
    pub(super) fn end_at_rest(mut guard: Self) {
        guard.state.has_file_work = false;
        guard.may_have_changed = false;
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.woken = std::mem::take(&mut self.state.woken);
        if self.may_have_changed {
            self.file_work.changed(&mut self.state);
        }
    }
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.may_have_changed = true;
        &mut self.state
    }
}

#[cfg(test)]
mod tests {
    use crate::partition::testing::HangingDisk;
    use std::time::Duration;

    #[test]
    fn only_waits_for_a_held_lock_are_timed() {
        let disk = HangingDisk::new();
        let partition = &disk.partition;
        let waits = || partition.context.lock_waits.snapshot();
        drop(partition.state.lock());
        assert_eq!(waits().count(), 0, "the lock was free");
        // A thread that starts late finds the lock free, too.
        while waits().count() == 0 {
            std::thread::scope(|scope| {
                let held = partition.state.lock();
                scope.spawn(|| drop(partition.state.lock()));
                std::thread::park_timeout(Duration::from_millis(20));
                drop(held);
            });
        }
        assert_eq!(waits().count(), 1);
        assert!(waits().sum > 0, "{:?}", waits());
    }
}
