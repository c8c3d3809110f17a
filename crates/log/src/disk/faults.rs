//! Faults that a test injects into a disk: full, failing to write, failing to sync, lacking descriptors, hanging.
//!
//! Owns: the planned faults. Refuses: randomness; a test sets what fails and when.

use std::io;
use std::path::Path;

use parking_lot::{Condvar, Mutex};

/// Faults of a [`super::Disk`], changed by a test while the log runs.
#[derive(Debug, Default)]
pub struct Faults {
    plan: Mutex<Plan>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Plan {
    /// Only files whose name ends so are affected; empty means all.
    suffix: String,
    free_bytes: Option<u64>,
    failing_writes: bool,
    failing_syncs: bool,
    lacking_descriptors: bool,
    hanging: bool,
    /// How many calls hang.
    hung: usize,
}

impl Faults {
    /// Affects only files whose path ends with `suffix`, such as `.log`. Applies to files opened afterwards.
    pub fn only(&self, suffix: &str) {
        self.plan.lock().suffix = suffix.to_owned();
    }

    /// Leaves room for `free_bytes` more bytes, after which the disk is full; `None` removes the limit.
    pub fn set_free_bytes(&self, free_bytes: Option<u64>) {
        self.plan.lock().free_bytes = free_bytes;
    }

    /// The room that is left, if it is limited.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.plan.lock().free_bytes
    }

    /// Makes every write fail with an input/output error, or heals them.
    pub fn set_failing_writes(&self, failing: bool) {
        self.plan.lock().failing_writes = failing;
    }

    /// Makes every sync fail with an input/output error, or heals them.
    pub fn set_failing_syncs(&self, failing: bool) {
        self.plan.lock().failing_syncs = failing;
    }

    /// Makes every opening of a file fail as where too many are open, or heals them.
    pub fn set_lacking_descriptors(&self, lacking: bool) {
        self.plan.lock().lacking_descriptors = lacking;
    }

    pub(super) fn before_open(&self) -> io::Result<()> {
        if self.plan.lock().lacking_descriptors { Err(rustix::io::Errno::MFILE.into()) } else { Ok(()) }
    }

    /// Makes syncs and removals hang, or releases those that hang.
    pub fn set_hanging(&self, hanging: bool) {
        self.plan.lock().hanging = hanging;
        self.changed.notify_all();
    }

    /// Returns once a sync or removal hangs.
    pub fn wait_until_hung(&self) {
        let mut plan = self.plan.lock();
        while plan.hung == 0 {
            self.changed.wait(&mut plan);
        }
    }

    pub(super) fn before_wait(&self) {
        let mut plan = self.plan.lock();
        if !plan.hanging {
            return;
        }
        plan.hung += 1;
        self.changed.notify_all();
        while plan.hanging {
            self.changed.wait(&mut plan);
        }
        plan.hung -= 1;
    }

    pub(super) fn covers(&self, path: &Path) -> bool {
        path.to_string_lossy().ends_with(&self.plan.lock().suffix)
    }

    pub(super) fn before_create(&self) -> io::Result<()> {
        if self.plan.lock().failing_writes { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }

    pub(super) fn before_write(&self, wanted: usize) -> io::Result<usize> {
        let mut plan = self.plan.lock();
        if plan.failing_writes {
            return Err(rustix::io::Errno::IO.into());
        }
        let Some(free_bytes) = plan.free_bytes else { return Ok(wanted) };
        let allowed = wanted.min(usize::try_from(free_bytes).unwrap_or(usize::MAX));
        if allowed == 0 && wanted > 0 {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        plan.free_bytes = Some(free_bytes - allowed as u64);
        Ok(allowed)
    }

    pub(super) fn before_sync(&self) -> io::Result<()> {
        self.before_wait();
        if self.plan.lock().failing_syncs { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }
}
