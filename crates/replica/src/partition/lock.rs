//! The lock of a partition. Its holder must not wait for the disk: in builds with debug assertions a sync, or the
//! removal of a file, panics under it (`thalweg_log::disk::NoWaits`). Who is woken under it is woken after it: at once,
//! another worker would run into the lock.

use super::State;
use super::waiter::Woken;
use parking_lot::{Mutex, MutexGuard};
use std::ops::{Deref, DerefMut};
use thalweg_log::disk::NoWaits;

/// A partition's state behind its lock.
pub(super) struct StateLock(Mutex<State>);

/// The state, for as long as the lock is held.
pub(super) struct StateGuard<'a> {
    // In the order in which they are dropped.
    state: MutexGuard<'a, State>,
    _no_waits: NoWaits,
    woken: Woken,
}

impl StateLock {
    pub(super) fn new(state: State) -> Self {
        Self(Mutex::new(state))
    }

    pub(super) fn lock(&self) -> StateGuard<'_> {
        StateGuard { state: self.0.lock(), _no_waits: NoWaits::begin(), woken: Woken::default() }
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.woken = std::mem::take(&mut self.state.woken);
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
        &mut self.state
    }
}
