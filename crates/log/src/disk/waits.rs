//! Detects threads that wait for the disk under the lock of a partition, because all appends and reads would
//! wait too.
//!
//! Owns the mark of the thread, and the panic when a marked thread syncs, removes a file, or reads and
//! decompresses many batches. The check exists only in builds with debug assertions, and costs nothing in
//! others. Knows no locks: the code that takes a lock sets the mark.

use std::cell::Cell;
use std::marker::PhantomData;
use std::path::Path;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// A guard during whose lifetime this thread must not wait for the disk.
#[derive(Debug)]
#[must_use]
pub struct NoWaits(#[expect(dead_code, reason = "it is held, not used")] WaitStateGuard);

/// Allows this thread to wait for the disk during its lifetime.
#[derive(Debug)]
#[must_use]
pub struct WaitsAllowed(#[expect(dead_code, reason = "it is held, not used")] WaitStateGuard);

/// Restores the previous state of its thread when dropped.
#[derive(Debug)]
struct WaitStateGuard {
    forbidden: bool,
    _of_this_thread: PhantomData<*const ()>,
}

impl WaitStateGuard {
    fn set(forbidden: bool) -> WaitStateGuard {
        let before = if cfg!(debug_assertions) { FORBIDDEN.replace(forbidden) } else { false };
        WaitStateGuard { forbidden: before, _of_this_thread: PhantomData }
    }
}

impl Drop for WaitStateGuard {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            FORBIDDEN.set(self.forbidden);
        }
    }
}

impl NoWaits {
    /// Forbids waiting from here on.
    pub fn begin() -> NoWaits {
        NoWaits(WaitStateGuard::set(true))
    }
}

/// Allows waiting from here on; the caller gives the reason.
pub fn allow_waits(_reason: &'static str) -> WaitsAllowed {
    WaitsAllowed(WaitStateGuard::set(false))
}

/// Panics if the thread must not wait for the disk.
pub(crate) fn check(what: &str, path: &Path) {
    if cfg!(debug_assertions) && FORBIDDEN.get() {
        panic!("{what} of {} under the lock of a partition", path.display());
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::disk::{Disk, MemoryDisk};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn waits_panic_where_they_are_forbidden() {
        let disk = Disk::in_memory(MemoryDisk::new(Clock::manual(0)));
        let dir = Path::new("/dir");
        disk.create_dir(dir).expect("creates");
        let file = disk.open_or_create(&dir.join("file")).expect("creates");
        let waits: [&dyn Fn(); 4] = [
            &|| disk.sync_dir(dir).expect("syncs"),
            &|| file.sync_data().expect("syncs"),
            &|| disk.remove(&dir.join("other")).expect("removes"),
            &|| disk.remove_dir(&dir.join("others")).expect("removes"),
        ];
        for wait in waits {
            wait();
            let forbidden = NoWaits::begin();
            assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
            {
                let _allowed = allow_waits("a test");
                wait();
            }
            assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
            drop(forbidden);
            wait();
        }
    }
}
