//! The failure of a log directory, noted where a call to the operating system fails.
//!
//! Owns: the reason why a directory is offline, and the choice of errors that take it offline. Every call on
//! a [`super::Disk`] of a log directory, and on the files opened with it, is checked here, so that no caller
//! can forget the check. Refuses: transient errors (no room, no descriptors), and errors about a name instead
//! of a disk. A missing name is a disk failure if the call needs a file or folder that must exist: the folder
//! was removed, or the file system is no longer mounted.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::is_shortage;

/// A log directory, and the reason why it is offline, if it is.
#[derive(Debug)]
pub(crate) struct DirFailure {
    path: PathBuf,
    is_offline: AtomicBool,
    reason: Mutex<Option<Arc<str>>>,
    /// Notified when a directory fails.
    news: Arc<Notify>,
}

impl DirFailure {
    /// An online directory. Notifies `news` when it fails.
    pub(crate) fn new(path: PathBuf, news: Arc<Notify>) -> Arc<DirFailure> {
        Arc::new(DirFailure { path, is_offline: AtomicBool::new(false), reason: Mutex::default(), news })
    }

    /// The reason why the directory is offline, if it is.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        if !self.is_offline.load(Ordering::Acquire) {
            return None;
        }
        self.reason.lock().clone()
    }

    /// Notifies the watcher of the directories.
    pub(crate) fn notify(&self) {
        self.news.notify_one();
    }

    /// Takes the directory offline.
    pub(crate) fn fail(&self, reason: &str) {
        let mut known = self.reason.lock();
        if known.is_none() {
            tracing::error!(dir = %self.path.display(), reason, "Log directory is offline");
            *known = Some(reason.into());
            self.is_offline.store(true, Ordering::Release);
            self.notify();
        }
    }

    /// Takes the directory offline if this error of a call means that its disk is unusable.
    #[cold]
    pub(super) fn note(&self, call: &str, error: &io::Error) {
        if is_failure(error) {
            self.fail(&format!("{call} has failed: {error}"));
        }
    }

    /// Takes the directory offline if this error reports a missing name that must exist.
    #[cold]
    pub(super) fn note_missing(&self, call: &str, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            self.fail(&format!(
                "{call} has failed: {error}: the file or its folder was removed, or the file system is not mounted any more"
            ));
        }
    }
}

/// True if an error of the operating system is the disk's fault.
fn is_failure(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AlreadyExists, DirectoryNotEmpty, Interrupted, InvalidFilename, InvalidInput, NotFound, OutOfMemory,
        Unsupported, WouldBlock,
    };
    let passes_or_names = matches!(
        error.kind(),
        NotFound
            | AlreadyExists
            | DirectoryNotEmpty
            | InvalidFilename
            | InvalidInput
            | Interrupted
            | WouldBlock
            | OutOfMemory
            | Unsupported
    );
    error.raw_os_error().is_some() && !passes_or_names && !is_shortage(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn errors_of_the_disk_take_it_offline_and_no_others() {
        let failure = DirFailure::new("/data".into(), Arc::default());
        for passing in
            [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE, Errno::NOENT, Errno::NAMETOOLONG]
        {
            failure.note("a call", &passing.into());
            assert!(failure.reason().is_none(), "{passing}");
        }
        for lasting in [Errno::IO, Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::STALE, Errno::NODEV] {
            let failure = DirFailure::new("/data".into(), Arc::default());
            failure.note("a call", &lasting.into());
            assert!(failure.reason().is_some(), "{lasting}");
        }
    }
}
