//! The calls to a disk in memory, each of which a test may watch and fail.
//!
//! Owns: the kinds of calls, the errors they fail with, and the watcher that decides. Refuses: a plan; the watcher has it.

use std::io;
use std::path::Path;

use parking_lot::Mutex;

use super::MemoryDisk;

/// A kind of call to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// A file is opened; for a whole small file, its reading, too.
    Open,
    /// A file is opened that is missing, and is created.
    Create,
    /// A part of an open file is read.
    Read,
    /// An open file is written.
    Write,
    /// An open file is cut or extended.
    Truncate,
    /// Blocks are reserved behind the end of an open file.
    Allocate,
    /// An open file is synced.
    Sync,
    /// The names of a directory are synced.
    SyncDir,
    /// The whole file system is synced.
    SyncAll,
    /// A file or directory is renamed.
    Rename,
    /// A file or directory is removed.
    Remove,
    /// A directory is created.
    CreateDir,
    /// The names of a directory are read.
    List,
    /// The facts of a file are read.
    Stat,
}

/// The system's error of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallError {
    /// ENOSPC.
    NoSpace,
    /// EIO.
    InputOutput,
    /// EACCES.
    Denied,
    /// EMFILE.
    TooManyOpen,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It works.
    Works,
    /// A write takes half of its bytes, and the removal of a directory half of its files before it fails. Any other call
    /// works.
    Half(CallError),
    /// It fails, and changes nothing.
    Fails(CallError),
}

type Watcher = Box<dyn FnMut(Call, &Path) -> Answer + Send>;

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
    /// Asks `watcher` before every call of a living process from now on. A file that was renamed while it was open has its
    /// former name there.
    pub fn watch_calls(&self, watcher: impl FnMut(Call, &Path) -> Answer + Send + 'static) {
        *self.calls.0.lock() = Some(Box::new(watcher));
    }

    /// Whether a call that does something only as a whole works.
    pub(super) fn begin(&self, call: Call, path: &Path) -> io::Result<()> {
        match self.answer(call, path) {
            Answer::Fails(error) => Err(error.into()),
            Answer::Works | Answer::Half(_) => Ok(()),
        }
    }

    pub(super) fn answer(&self, call: Call, path: &Path) -> Answer {
        self.calls.0.lock().as_mut().map_or(Answer::Works, |watcher| watcher(call, path))
    }
}
