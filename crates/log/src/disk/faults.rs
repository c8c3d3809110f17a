//! Faults that a test injects into a disk: full, failing to write, failing to sync, lacking descriptors,
//! hanging; and any single call that fails once.
//!
//! Owns: the planned faults. Refuses: randomness; a test sets the failing calls and their times.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::CallError;

/// A kind of call to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyCall {
    /// Creating a missing file, or a directory.
    Create,
    Open,
    Read,
    List,
    Write,
    /// Setting the length of a file.
    Cut,
    /// Reserving blocks for a growing file.
    Reserve,
    /// Syncing a file, or a whole file system.
    Sync,
    /// Syncing the names in a directory.
    SyncNames,
    /// Renaming; the path is the new name.
    Rename,
    Remove,
}

impl CallError {
    /// True if a call of this kind is affected by the fault.
    fn can_strike(self, call: FaultyCall) -> bool {
        match self {
            CallError::NoSpace => matches!(
                call,
                FaultyCall::Create | FaultyCall::Write | FaultyCall::Reserve | FaultyCall::Rename
            ),
            CallError::InputOutput => true,
            CallError::Denied => {
                matches!(
                    call,
                    FaultyCall::Create
                        | FaultyCall::Open
                        | FaultyCall::List
                        | FaultyCall::Rename
                        | FaultyCall::Remove
                )
            }
            CallError::TooManyOpen => {
                matches!(
                    call,
                    FaultyCall::Create
                        | FaultyCall::Open
                        | FaultyCall::List
                        | FaultyCall::Read
                        | FaultyCall::SyncNames
                )
            }
        }
    }
}

/// Faults of a [`super::Disk`], changed by a test while the log runs.
#[derive(Debug, Default)]
pub struct Faults {
    plan: Mutex<Plan>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Plan {
    /// Only files with this suffix are affected; empty means all.
    suffix: String,
    free_bytes: Option<u64>,
    failing_writes: bool,
    failing_syncs: bool,
    lacking_descriptors: bool,
    /// Calls that fail each time.
    rules: Vec<Rule>,
    /// The call that fails once, by the number of calls before it.
    once: Option<(u64, CallError)>,
    /// True if that call is a write that writes half of its bytes.
    is_half_written: bool,
    hanging: bool,
    /// Number of hanging calls.
    hung: usize,
}

#[derive(Debug)]
struct Rule {
    call: FaultyCall,
    suffix: String,
    failure: CallError,
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

    /// The remaining room, if limited.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.plan.lock().free_bytes
    }

    /// Makes every write fail with an input/output error, or ends that fault.
    pub fn set_failing_writes(&self, failing: bool) {
        self.plan.lock().failing_writes = failing;
    }

    /// Makes every sync fail with an input/output error, or ends that fault.
    pub fn set_failing_syncs(&self, failing: bool) {
        self.plan.lock().failing_syncs = failing;
    }

    /// Makes every opening of a file fail for lack of descriptors, or ends that fault.
    pub fn set_lacking_descriptors(&self, lacking: bool) {
        self.plan.lock().lacking_descriptors = lacking;
    }

    /// Makes every call of this kind fail for paths that end with `suffix`, until [`Faults::heal`].
    pub fn fail(&self, call: FaultyCall, suffix: &str, failure: CallError) {
        self.plan.lock().rules.push(Rule { call, suffix: suffix.to_owned(), failure });
    }

    /// Makes one call fail: the one after `calls` other calls of affected kinds. A write writes half of its
    /// bytes before it fails.
    pub fn fail_once_after(&self, calls: u64, failure: CallError) {
        let mut plan = self.plan.lock();
        plan.once = Some((calls, failure));
        plan.is_half_written = false;
    }

    /// True if the failure of [`Faults::fail_once_after`] has not happened yet.
    pub fn is_pending(&self) -> bool {
        self.plan.lock().once.is_some()
    }

    /// Ends the faults of [`Faults::fail`] and [`Faults::fail_once_after`].
    pub fn heal(&self) {
        let mut plan = self.plan.lock();
        plan.rules.clear();
        plan.once = None;
    }

    pub(super) fn before(&self, call: FaultyCall, path: &Path) -> io::Result<()> {
        let mut plan = self.plan.lock();
        if let Some((left, failure)) = plan.once
            && failure.can_strike(call)
        {
            plan.once = left.checked_sub(1).map(|left| (left, failure));
            if left == 0 {
                return Err(failure.into());
            }
        }
        let path = path.to_string_lossy();
        let rule = plan.rules.iter().find(|rule| rule.call == call && path.ends_with(&rule.suffix));
        rule.map_or(Ok(()), |rule| Err(rule.failure.into()))
    }

    pub(super) fn before_open(&self) -> io::Result<()> {
        if self.plan.lock().lacking_descriptors { Err(Errno::MFILE.into()) } else { Ok(()) }
    }

    /// Makes syncs and removals hang, or releases hanging ones.
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
        if self.plan.lock().failing_writes { Err(Errno::IO.into()) } else { Ok(()) }
    }

    /// True if this write must fail after half of its bytes: the rest of it fails.
    fn takes_half(&self, wanted: usize) -> bool {
        let mut plan = self.plan.lock();
        let fails =
            plan.once.is_some_and(|(left, failure)| left == 0 && failure.can_strike(FaultyCall::Write));
        fails && wanted > 1 && !std::mem::replace(&mut plan.is_half_written, true)
    }

    pub(super) fn before_write(&self, wanted: usize) -> io::Result<usize> {
        let mut plan = self.plan.lock();
        if plan.failing_writes {
            return Err(Errno::IO.into());
        }
        let Some(free_bytes) = plan.free_bytes else { return Ok(wanted) };
        let allowed = wanted.min(usize::try_from(free_bytes).unwrap_or(usize::MAX));
        if allowed == 0 && wanted > 0 {
            return Err(Errno::NOSPC.into());
        }
        plan.free_bytes = Some(free_bytes - allowed as u64);
        Ok(allowed)
    }

    pub(super) fn before_sync(&self) -> io::Result<()> {
        self.before_wait();
        if self.plan.lock().failing_syncs { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

/// An open file with its faults.
#[derive(Debug)]
pub(super) struct FaultyFile {
    faults: Arc<Faults>,
    path: PathBuf,
    is_covered: bool,
}

impl FaultyFile {
    pub(super) fn new(faults: &Arc<Faults>, path: &Path) -> FaultyFile {
        FaultyFile { faults: Arc::clone(faults), path: path.to_owned(), is_covered: faults.covers(path) }
    }

    pub(super) fn before(&self, call: FaultyCall) -> io::Result<()> {
        self.faults.before(call, &self.path)
    }

    /// Number of the bytes that may be written.
    pub(super) fn before_write(&self, wanted: usize) -> io::Result<usize> {
        if self.faults.takes_half(wanted) {
            return Ok(wanted / 2);
        }
        self.before(FaultyCall::Write)?;
        if self.is_covered { self.faults.before_write(wanted) } else { Ok(wanted) }
    }

    pub(super) fn before_sync(&self) -> io::Result<()> {
        self.before(FaultyCall::Sync)?;
        if self.is_covered { self.faults.before_sync() } else { Ok(()) }
    }
}
