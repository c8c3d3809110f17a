//! The calls to a disk in memory, each of which a test may watch and fail.
//!
//! Owns: the kinds of calls, their errors, and the watcher that decides. Refuses: planning faults, which is
//! the watcher's task.

use std::io;
use std::path::Path;

use parking_lot::Mutex;

use super::MemoryDisk;

/// A kind of call to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskCall {
    /// Opening a file; for a whole small file, also reading it.
    Open,
    /// Creating a missing file.
    Create,
    /// Reading a part of an open file.
    Read,
    /// Writing to an open file.
    Write,
    /// Cutting or extending an open file.
    Truncate,
    /// Reserving blocks beyond the end of an open file.
    Allocate,
    /// Syncing an open file.
    Sync,
    /// Syncing the names of a directory.
    SyncDir,
    /// Syncing the whole file system.
    SyncAll,
    /// Renaming a file or directory.
    Rename,
    /// Removing a file or directory.
    Remove,
    /// Creating a directory.
    CreateDir,
    /// Listing a directory.
    List,
    /// Reading the metadata of a file.
    Stat,
}

/// The system's error of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallError {
    /// `ENOSPC`.
    NoSpace,
    /// `EIO`.
    InputOutput,
    /// `EACCES`.
    Denied,
    /// `EMFILE`.
    TooManyOpen,
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEffect {
    /// The call works.
    Works,
    /// A write writes half of its bytes, and the removal of a directory removes half of its files, before it
    /// fails. Any other call works.
    Half(CallError),
    /// The call fails, and changes nothing.
    Fails(CallError),
}

type Watcher = Box<dyn FnMut(DiskCall, &Path) -> CallEffect + Send>;

/// The watcher of a disk's calls, if any.
#[derive(Default)]
pub(super) struct Calls(Mutex<Option<Watcher>>);

impl From<CallError> for io::Error {
    fn from(error: CallError) -> io::Error {
        let errno = match error {
            CallError::NoSpace => rustix::io::Errno::NOSPC,
            CallError::InputOutput => rustix::io::Errno::IO,
            CallError::Denied => rustix::io::Errno::ACCESS,
            CallError::TooManyOpen => rustix::io::Errno::MFILE,
        };
        errno.into()
    }
}

impl MemoryDisk {
    /// Calls `watcher` before every call of a living process. A file renamed while open is reported under its
    /// former name.
    pub fn watch_calls(&self, watcher: impl FnMut(DiskCall, &Path) -> CallEffect + Send + 'static) {
        *self.calls.0.lock() = Some(Box::new(watcher));
    }

    /// Begins a call that works completely or not at all.
    pub(super) fn begin(&self, call: DiskCall, path: &Path) -> io::Result<()> {
        match self.answer(call, path) {
            CallEffect::Fails(error) => Err(error.into()),
            CallEffect::Works | CallEffect::Half(_) => Ok(()),
        }
    }

    pub(super) fn answer(&self, call: DiskCall, path: &Path) -> CallEffect {
        self.calls.0.lock().as_mut().map_or(CallEffect::Works, |watcher| watcher(call, path))
    }
}
