//! The lock of a log directory: one process at a time may open the directory.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::memory::MemoryLock;
use super::{Disk, FileBackend};

/// Held while a log directory is open; released when dropped, or by the end of the process.
#[derive(Debug)]
pub struct DirLock {
    _handle: LockHandle,
}

#[derive(Debug)]
#[expect(clippy::disallowed_types, reason = "this is the seam that owns files")]
enum LockHandle {
    File(fs::File),
    Memory { _lock: MemoryLock },
}

impl Drop for LockHandle {
    /// Unlocks the file explicitly, because a child between fork and exec has a copy of the descriptor.
    fn drop(&mut self) {
        if let Self::File(file) = self {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

impl Disk {
    /// Takes the lock file of a log directory; `None` if another process, or another part of this one, holds
    /// it.
    ///
    /// Takes two locks: `flock`, which also excludes within a process, and the POSIX record lock that Apache
    /// Kafka uses.
    pub fn lock(&self, path: &Path) -> io::Result<Option<DirLock>> {
        if let Some(memory) = &self.memory {
            return Ok(memory
                .lock(path)?
                .map(|lock| DirLock { _handle: LockHandle::Memory { _lock: lock } }));
        }
        let FileBackend::File { file, .. } = self.open_or_create(path)?.open else {
            unreachable!("a disk that is not in memory opens files of the machine");
        };
        let taken = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .and_then(|()| rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive));
        match taken {
            Ok(()) => Ok(Some(DirLock { _handle: LockHandle::File(file) })),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn a_lock_is_released_although_another_process_has_a_copy_of_its_descriptor() {
        let dir = TempDir::new();
        let (disk, path) = (Disk::real(), dir.path().join(".lock"));
        let lock = disk.lock(&path).expect("it can be opened").expect("it is free");
        let LockHandle::File(file) = &lock._handle else { panic!("a file of the machine") };
        // A child has such a copy until it executes another program.
        let copy = file.try_clone().expect("a copy");
        assert!(disk.lock(&path).expect("it can be opened").is_none());
        drop(lock);
        assert!(disk.lock(&path).expect("it can be opened").is_some());
        drop(copy);
    }
}
