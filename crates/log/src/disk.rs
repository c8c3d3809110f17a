//! The disk: the only place that opens, writes, renames and deletes files.
//!
//! Owns: the calls to the operating system that touch files, the faults that tests inject into them, and the
//! threads for blocking disk work. Refuses: knowledge of the content of files. All file access goes through
//! [`Disk`] and [`LogFile`], so a disk in memory ([`MemoryDisk`]) can replace the real one.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use thalweg_ids::Uuid;
use tokio::task::JoinHandle;

use crate::topic_partition::STRAY_DIR_SUFFIX;

mod descriptors;
mod dir_lock;
mod failure;
mod faults;
mod memory;
mod slow;
mod waits;

use descriptors::OpenFile;
pub use descriptors::{Descriptors, OpenConnection, TooFewDescriptors, lacks_descriptors};
pub use dir_lock::DirLock;
pub(crate) use failure::DirFailure;
use faults::FaultyFile;
pub use faults::{Faults, FaultyCall};
use memory::MemoryFile;
pub use memory::{CallEffect, CallError, DiskCall, Draw, MemoryDisk};
use slow::{Operation, timed};
pub(crate) use waits::check as check_may_wait;
pub use waits::{NoWaits, WaitsAllowed, allow_waits};

/// The maximum number of pieces in one gather write (`IOV_MAX` on Linux).
pub const GATHER_MAX: usize = 1024;

/// The largest block size of common file systems: maximum number of bytes allocated for the end of a file.
const BLOCK_BYTES_MAX: u64 = 64 * 1024;

/// The mode of a new file before the umask, for shared files and for files that only the process's user may
/// read; likewise for new directories.
const SHARED_MODE: u32 = 0o666;
const PRIVATE_MODE: u32 = 0o600;
const SHARED_DIR_MODE: u32 = 0o777;
const PRIVATE_DIR_MODE: u32 = 0o700;
/// The mode bits that give rights to all other users, the bit that lets them write, and the sticky bit, which
/// restricts them to their own files in a directory.
const OTHERS: u32 = 0o007;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// The suffix of a file that will replace another file once written.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// The file system, with faults injected by tests, or a disk in memory. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    faults: Option<Arc<Faults>>,
    memory: Option<Arc<MemoryDisk>>,
    /// Unlimited for a disk in memory.
    descriptors: Descriptors,
    /// Rebuildable files that did not fit on the disk, since the last report.
    missed_hints: Arc<AtomicU64>,
    /// True if a lack of descriptors was logged since the last [`Disk::log_missed_hints`].
    reported_lack: Arc<AtomicBool>,
    /// The log directory that failing calls take offline.
    failure: Option<Arc<DirFailure>>,
    /// True if names of files and folders may be missing: see [`Disk::beside_lock`].
    may_miss: bool,
    /// True if only the process's user may read new files and directories: see [`Disk::private`].
    is_private: bool,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The bare name, without its directory.
    pub name: String,
    /// True if it is a directory.
    pub is_dir: bool,
    /// True if it is a regular file.
    pub is_file: bool,
}

/// Size and age of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts {
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// The required durability of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The page cache suffices: the write survives the end of the process, not of the machine.
    PageCache,
    /// The bytes and the name are synced to the medium.
    Synced,
}

impl Disk {
    /// The disk of this machine, with the current descriptor limit of this process.
    pub fn real() -> Disk {
        Disk { descriptors: Descriptors::of_process(), ..Disk::default() }
    }

    /// The same disk with a descriptor budget.
    pub fn with_descriptors(self, descriptors: Descriptors) -> Disk {
        Disk { descriptors, ..self }
    }

    /// The budget of file descriptors.
    pub fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// The disk of this machine, with the current faults in `faults`.
    pub fn with_faults(faults: Arc<Faults>) -> Disk {
        Disk { faults: Some(faults), ..Disk::default() }
    }

    /// The same disk, with the current faults in `faults`.
    pub fn and_faults(self, faults: Arc<Faults>) -> Disk {
        Disk { faults: Some(faults), ..self }
    }

    /// A disk in memory.
    pub fn in_memory(memory: Arc<MemoryDisk>) -> Disk {
        Disk { memory: Some(memory), ..Disk::default() }
    }

    /// The same disk for a log directory. Failing calls take that directory offline.
    pub(crate) fn of_directory(&self, failure: Arc<DirFailure>) -> Disk {
        Disk { failure: Some(failure), ..self.clone() }
    }

    /// The same disk for work without a partition's lock, or for a partition being removed: its files and its
    /// folder may be renamed or removed, so that missing ones are not a failure of the directory.
    pub(crate) fn beside_lock(&self) -> Disk {
        Disk { may_miss: true, ..self.clone() }
    }

    /// The same disk for secrets: only the process's user may read and write the files and directories that
    /// it creates.
    pub fn private(&self) -> Disk {
        Disk { is_private: true, ..self.clone() }
    }

    fn noted<T>(&self, call: &str, path: &Path, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            if lacks_descriptors(error) {
                self.log_lack(path, error);
            } else if let Some(failure) = &self.failure {
                failure.note(&format!("{call} {}", path.display()), error);
            }
        }
        result
    }

    /// Notes a result like [`Disk::noted`], for a call on a file or folder that must exist.
    fn noted_there<T>(&self, call: &str, path: &Path, result: io::Result<T>) -> io::Result<T> {
        if let (Err(error), Some(failure), false) = (&result, &self.failure, self.may_miss) {
            failure.note_missing(&format!("{call} {}", path.display()), error);
        }
        self.noted(call, path, result)
    }

    /// Logs a lack of descriptors, at most once a minute: the disk is not at fault, and clients only get an
    /// error code.
    #[cold]
    fn log_lack(&self, path: &Path, error: &io::Error) {
        if !self.reported_lack.swap(true, Ordering::Relaxed) {
            tracing::error!(
                path = %path.display(), %error, limit = self.descriptors.max(),
                "Too many files are open: whatever needs another is refused for now. Raise the limit of open files (RLIMIT_NOFILE, `ulimit -n`)"
            );
        }
    }

    /// Starts blocking disk work on a thread for blocking work. The work completes even if the result is
    /// dropped. On a disk in memory it is an ordinary task that takes as long as the simulated disk.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let Some(memory) = &self.memory else { return tokio::task::spawn_blocking(work) };
        let memory = Arc::clone(memory);
        tokio::spawn(async move {
            let delay = memory.delay();
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            work()
        })
    }

    /// Runs blocking disk work on the caller's thread; other tasks of that thread move to another. A disk in
    /// memory does not block.
    pub fn work_in_place<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.memory.is_some() { work() } else { tokio::task::block_in_place(work) }
    }

    /// Ignores a full disk or a lack of descriptors if only rebuildable files could not be written: the log
    /// is still readable. These failures are counted for [`Disk::log_missed_hints`], because a start on a
    /// full disk misses such files for every log.
    pub(crate) fn unless_full(&self, written: io::Result<()>) -> io::Result<()> {
        match written {
            Err(error) if is_shortage(&error) => {
                self.missed_hints.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }

    /// Logs the number of rebuildable files that did not fit on a full disk since the last call, if any.
    pub fn log_missed_hints(&self) {
        self.reported_lack.store(false, Ordering::Relaxed);
        let count = self.missed_hints.swap(0, Ordering::Relaxed);
        if count > 0 {
            tracing::warn!(
                count,
                "Disk is full or too many files are open: skipped index and checkpoint writes, which are rebuilt when needed"
            );
        }
    }

    /// Opens a file for reading and writing; fails if it does not exist.
    pub fn open(&self, path: &Path) -> io::Result<LogFile> {
        self.open_with(path, None)
    }

    /// Opens a file for reading and writing; creates it if it does not exist.
    pub fn open_or_create(&self, path: &Path) -> io::Result<LogFile> {
        if self.faults.is_some() && !self.exists(path) {
            let checked = self.before(FaultyCall::Create, path);
            let checked = checked.and_then(|()| self.check_faults(path, |faults| faults.before_create()));
            self.noted("creating", path, checked)?;
        }
        self.open_with(path, Some(if self.is_private { PRIVATE_MODE } else { SHARED_MODE }))
    }

    /// Opens a file; with a mode, creates a missing file with that mode.
    fn open_with(&self, path: &Path, mode: Option<u32>) -> io::Result<LogFile> {
        let open = self.noted_there("opening", path, self.try_to_open(path, mode))?;
        let faults = self.faults.as_ref().map(|faults| Box::new(FaultyFile::new(faults, path)));
        Ok(LogFile { open, failure: self.failure.clone(), faults, is_short: AtomicBool::new(false) })
    }

    #[expect(clippy::disallowed_types, reason = "this is the seam that opens files")]
    fn try_to_open(&self, path: &Path, mode: Option<u32>) -> io::Result<FileBackend> {
        let create = mode.is_some();
        self.before(FaultyCall::Open, path)?;
        if let Some(memory) = &self.memory {
            return Ok(FileBackend::Memory(memory.open(path, create)?));
        }
        self.check_faults(path, |faults| faults.before_open())?;
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false).mode(mode.unwrap_or(SHARED_MODE));
        let file = options.open(path)?;
        Ok(FileBackend::File { file, _open: self.descriptors.open_file() })
    }

    fn before(&self, call: FaultyCall, path: &Path) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.before(call, path))
    }

    fn check_faults(&self, path: &Path, check: impl Fn(&Faults) -> io::Result<()>) -> io::Result<()> {
        match &self.faults {
            Some(faults) if faults.covers(path) => check(faults),
            _ => Ok(()),
        }
    }

    /// The whole content of a small file. An error contains the path, which may be that of a directory.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let read = self.before(FaultyCall::Read, path).and_then(|()| match &self.memory {
            Some(memory) => memory.read(path),
            None => fs::read(path),
        });
        read.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => error,
            // The error of the operating system identifies a shortage.
            _ if is_shortage(&error) => error,
            kind => io::Error::new(kind, format!("{}: {error}", path.display())),
        })
    }

    /// The whole content of a small file; `None` if it does not exist.
    pub fn read_if_exists(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        match self.read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Overwrites a file in place, in one write. After a process crash the file has the old or the new
    /// content; after a power failure it may have any. Use it for files that are checked when read and can be
    /// rebuilt. Much cheaper than [`Disk::replace`], after which file systems start writing the data out at
    /// once.
    pub fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.open_or_create(path)?;
        file.write_all_at(bytes, 0)?;
        file.trim(bytes.len() as u64)
    }

    /// Replaces a file atomically: a reader, or a crash, sees the old or the new content, never a mixture.
    pub fn replace(&self, path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
        let mut temporary = OsString::from(path);
        temporary.push(TEMPORARY_SUFFIX);
        let temporary = PathBuf::from(temporary);
        // The leftover file of an interrupted run has other content, which could reach the disk instead.
        match self.is_dir(&temporary) {
            true => self.rename_away(&temporary)?,
            false => self.unlink(&temporary)?,
        }
        let written =
            self.write_new(&temporary, bytes, durability).and_then(|()| self.rename(&temporary, path));
        if written.is_err() {
            // On a full disk the file would occupy the remaining space. A start removes leftovers.
            let _ = self.unlink(&temporary);
            return written;
        }
        if durability == Durability::Synced
            && let Some(parent) = path.parent()
        {
            self.sync_dir(parent)?;
        }
        Ok(())
    }

    fn write_new(&self, path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
        let file = self.open_or_create(path)?;
        file.write_all_at(bytes, 0)?;
        if durability == Durability::Synced { file.sync_data() } else { Ok(()) }
    }

    /// Length and time of change of a file.
    pub fn facts(&self, path: &Path) -> io::Result<FileFacts> {
        if let Some(memory) = &self.memory {
            return memory.facts(path);
        }
        let metadata = fs::metadata(path)?;
        let modified_ms = metadata
            .modified()?
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        Ok(FileFacts { len: metadata.len(), modified_ms })
    }

    /// True if a file or directory of this name exists.
    pub fn exists(&self, path: &Path) -> bool {
        self.memory.as_ref().map_or_else(|| path.exists(), |memory| memory.exists(path))
    }

    /// Removes all rights of other users from a file or directory; the rights of its user and group stay. A
    /// disk in memory has no users.
    pub fn close_to_others(&self, path: &Path) -> io::Result<()> {
        if self.memory.is_some() {
            return Ok(());
        }
        let mode = fs::metadata(path)?.permissions().mode();
        if mode & OTHERS == 0 {
            return Ok(());
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode & !OTHERS))
    }

    /// True if every user may replace the files in a directory.
    pub fn is_open_to_others(&self, dir: &Path) -> io::Result<bool> {
        if self.memory.is_some() {
            return Ok(false);
        }
        Ok(fs::metadata(dir)?.permissions().mode() & (OTHERS_WRITE | STICKY) == OTHERS_WRITE)
    }

    fn is_dir(&self, path: &Path) -> bool {
        match &self.memory {
            Some(memory) => memory.is_dir(path),
            None => path.symlink_metadata().is_ok_and(|found| found.is_dir()),
        }
    }

    /// Renames an obstacle at the path of a file. A failure takes no directory offline.
    pub(crate) fn rename_away(&self, path: &Path) -> io::Result<()> {
        let mut renamed = OsString::from(path);
        renamed.push(format!(".{}{STRAY_DIR_SUFFIX}", Uuid::random()));
        tracing::warn!(
            path = %path.display(), renamed = %renamed.display(),
            "Renamed what has the name of a file and is none; delete it if it is not needed"
        );
        Disk { failure: None, ..self.clone() }.rename(path, Path::new(&renamed))
    }

    /// The names in a directory, unsorted. Names that are not UTF-8 were not written by Thalweg and are left
    /// out.
    pub fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.before(FaultyCall::List, dir)?;
        if let Some(memory) = &self.memory {
            return memory.list(dir);
        }
        let mut listed = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let (is_dir, is_file) = match kind.is_symlink() {
                true => (entry.path().is_dir(), entry.path().is_file()),
                false => (kind.is_dir(), kind.is_file()),
            };
            if let Ok(name) = entry.file_name().into_string() {
                listed.push(DirEntry { name, is_dir, is_file });
            }
        }
        Ok(listed)
    }

    /// Creates a directory and its parents. Returns true if it is new, and so empty. A missing log directory
    /// is not created together with its content: it would be empty, and on another file system.
    pub fn create_dir(&self, path: &Path) -> io::Result<bool> {
        self.noted("creating", path, self.before(FaultyCall::Create, path))?;
        if self.failure.is_some() && path.parent().is_some_and(|parent| !self.exists(parent)) {
            return self.noted_there("creating", path, Err(Errno::NOENT.into()));
        }
        if let Some(memory) = &self.memory {
            return self.noted("creating", path, memory.create_dir(path));
        }
        self.check_faults(path, |faults| faults.before_create())?;
        let mut builder = fs::DirBuilder::new();
        builder.mode(if self.is_private { PRIVATE_DIR_MODE } else { SHARED_DIR_MODE });
        let is_new = match builder.create(path) {
            Ok(()) => return Ok(true),
            // A parent directory is missing.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        // Parent directories contain no secrets.
        let above = path.parent().filter(|_| is_new).map_or(Ok(()), fs::create_dir_all);
        let created = self.noted("creating", path, above.and_then(|()| builder.recursive(true).create(path)));
        created.map_err(|error| not_a_directory(path).unwrap_or(error))?;
        Ok(is_new)
    }

    /// Renames a file or directory.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = self.before(FaultyCall::Rename, to).and_then(|()| match &self.memory {
            Some(memory) => memory.rename(from, to),
            None => fs::rename(from, to),
        });
        self.noted("renaming", from, renamed)
    }

    /// Deletes a file; a missing file is not an error.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        waits::check("Removal", path);
        self.unlink(path)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        if let Some(faults) = self.faults.as_ref().filter(|faults| faults.covers(path)) {
            faults.before_wait();
        }
        let removed = self.before(FaultyCall::Remove, path).and_then(|()| match &self.memory {
            Some(memory) => memory.remove(path),
            None => fs::remove_file(path),
        });
        ignore_missing(self.noted("removing", path, removed))
    }

    /// Deletes a directory and its content; a missing directory is not an error.
    pub fn remove_dir(&self, path: &Path) -> io::Result<()> {
        waits::check("Removal", path);
        let removed = self.before(FaultyCall::Remove, path).and_then(|()| match &self.memory {
            Some(memory) => memory.remove(path),
            None => fs::remove_dir_all(path),
        });
        ignore_missing(self.noted("removing", path, removed))
    }

    /// Makes the names in a directory durable.
    #[expect(clippy::disallowed_types, reason = "this is the seam that opens files")]
    pub fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        waits::check("Sync", dir);
        self.noted("a sync of", dir, self.before(FaultyCall::SyncNames, dir))?;
        if let Some(memory) = &self.memory {
            return self.noted_there("a sync of", dir, memory.sync_dir(dir));
        }
        let checked =
            self.check_faults(dir, |faults| faults.before_open().and_then(|()| faults.before_sync()));
        let synced = checked.and_then(|()| fs::File::open(dir)?.sync_all());
        self.noted_there("a sync of", dir, synced)
    }

    /// Makes all files on the file system of `path` durable: cheaper than many single syncs.
    #[expect(clippy::disallowed_types, reason = "this is the seam that opens files")]
    pub fn sync_filesystem(&self, path: &Path) -> io::Result<()> {
        waits::check("Sync", path);
        self.noted("a sync of", path, self.before(FaultyCall::Sync, path))?;
        if let Some(memory) = &self.memory {
            return self.noted("a sync of", path, memory.sync_filesystem(path));
        }
        let checked = self.check_faults(path, |faults| faults.before_sync());
        let synced = checked.and_then(|()| Ok(rustix::fs::syncfs(fs::File::open(path)?)?));
        self.noted_there("a sync of", path, synced)
    }

    /// Bytes of the volume of `path`, and bytes free on it.
    pub fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        if let Some(memory) = &self.memory {
            return Ok(memory.space(path));
        }
        let facts = rustix::fs::statvfs(path)?;
        let limit = self.faults.as_ref().and_then(|faults| faults.free_bytes()).unwrap_or(u64::MAX);
        let free = facts.f_bavail.saturating_mul(facts.f_frsize).min(limit);
        Ok((facts.f_blocks.saturating_mul(facts.f_frsize), free))
    }
}

/// Explains why a path cannot be a directory: the system's message names neither the path nor the
/// requirement.
fn not_a_directory(path: &Path) -> Option<io::Error> {
    let obstacle = path.ancestors().find(|part| fs::metadata(part).is_ok_and(|facts| !facts.is_dir()))?;
    let reason = format!("{} is not a directory, and must be one", obstacle.display());
    Some(io::Error::new(io::ErrorKind::NotADirectory, reason))
}

/// An open file, read and written at positions. Its descriptor serves `sendfile` (see
/// [`LogFile::descriptor`]).
#[derive(Debug)]
pub struct LogFile {
    open: FileBackend,
    /// The log directory that failing calls take offline.
    failure: Option<Arc<DirFailure>>,
    faults: Option<Box<FaultyFile>>,
    /// True if a reader has found fewer bytes than expected.
    is_short: AtomicBool,
}

#[derive(Debug)]
#[expect(clippy::disallowed_types, reason = "this is the seam that owns files")]
enum FileBackend {
    File { file: fs::File, _open: OpenFile },
    Memory(MemoryFile),
}

impl LogFile {
    fn noted<T>(&self, call: &str, result: io::Result<T>) -> io::Result<T> {
        if let (Err(error), Some(failure)) = (&result, &self.failure) {
            failure.note(call, error);
        }
        result
    }

    /// Reads up to `buffer.len()` bytes at `position`; fewer only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.noted("a read", self.try_to_read_at(buffer, position))
    }

    fn before(&self, call: FaultyCall) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.before(call))
    }

    fn try_to_read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.before(FaultyCall::Read)?;
        let file = match &self.open {
            FileBackend::File { file, .. } => file,
            FileBackend::Memory(memory) => return memory.read_at(buffer, position),
        };
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], position + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Writes all of `bytes` at `position`.
    pub fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.write_gathered_at(&mut [IoSlice::new(bytes)], position)
    }

    /// Writes all pieces consecutively at `position`, in one system call if the kernel accepts all of them
    /// (usual unless the disk fills up). After an error, some prefix may be in the file.
    pub fn write_gathered_at(&self, mut pieces: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut position = position;
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            let count = pieces.len().min(GATHER_MAX);
            let written = match self.noted("a write", self.write_some(&pieces[..count], position)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            position += written as u64;
            IoSlice::advance_slices(&mut pieces, written);
        }
        Ok(())
    }

    fn write_some(&self, pieces: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        if let Some(faults) = &self.faults {
            let wanted = pieces.iter().map(|piece| piece.len()).sum();
            let allowed = faults.before_write(wanted)?;
            if allowed < wanted {
                // The faulty disk accepts a part: write from the front, like a disk that fills up.
                let bytes: Vec<u8> =
                    pieces.iter().flat_map(|piece| piece.iter().copied()).take(allowed).collect();
                return self.write_pieces(&[IoSlice::new(&bytes)], position);
            }
        }
        self.write_pieces(pieces, position)
    }

    fn write_pieces(&self, pieces: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        let file = match &self.open {
            FileBackend::File { file, .. } => file,
            FileBackend::Memory(memory) => return memory.write_some(pieces, position),
        };
        Ok(timed(Operation::Write, file, || rustix::io::pwritev(file, pieces, position))?)
    }

    /// Cuts or extends the file. Cutting to the present length releases preallocated space.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let set = self.before(FaultyCall::Cut).and_then(|()| match &self.open {
            FileBackend::File { file, .. } => file.set_len(len),
            FileBackend::Memory(memory) => memory.set_len(len),
        });
        self.noted("cutting or extending a file", set)
    }

    /// Cuts the file like [`LogFile::set_len`], unless it is shorter.
    pub fn cut(&self, len: u64) -> io::Result<()> {
        if self.len()? >= len { self.set_len(len) } else { Ok(()) }
    }

    /// Notes that a reader has found fewer bytes than expected.
    pub fn note_short(&self) {
        self.is_short.store(true, Ordering::Relaxed);
    }

    /// True if a reader has found fewer bytes than expected.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Forgets earlier findings of readers, because the length is being checked.
    pub(crate) fn forget_short(&self) {
        self.is_short.store(false, Ordering::Relaxed);
    }

    /// Truncates the file to `len`, if longer. Unlike [`LogFile::set_len`], does not touch a file of that
    /// length: ext4 writes out a file truncated to zero when it is closed.
    pub fn trim(&self, len: u64) -> io::Result<()> {
        if self.len()? > len { self.set_len(len) } else { Ok(()) }
    }

    /// Releases blocks beyond the end of the file, if any.
    pub fn release_beyond_end(&self) -> io::Result<()> {
        let file = match &self.open {
            FileBackend::File { file, .. } => file,
            FileBackend::Memory(memory) => {
                return self.noted("cutting or extending a file", memory.release_beyond_end());
            }
        };
        let metadata = file.metadata()?;
        let needed = metadata.len().next_multiple_of(BLOCK_BYTES_MAX);
        if metadata.blocks() * 512 > needed { self.set_len(metadata.len()) } else { Ok(()) }
    }

    /// The length in bytes.
    pub fn len(&self) -> io::Result<u64> {
        match &self.open {
            FileBackend::File { file, .. } => Ok(file.metadata()?.len()),
            FileBackend::Memory(memory) => memory.len(),
        }
    }

    /// True if the file has no bytes.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Makes the bytes, and the length needed to read them, durable.
    pub fn sync_data(&self) -> io::Result<()> {
        waits::check("Sync", Path::new("an open file"));
        let checked = self.faults.as_ref().map_or(Ok(()), |faults| faults.before_sync());
        let synced = checked.and_then(|()| match &self.open {
            FileBackend::File { file, .. } => timed(Operation::Sync, file, || file.sync_data()),
            FileBackend::Memory(memory) => memory.sync_data(),
        });
        self.noted("a sync", synced)
    }

    /// Reserves blocks for `len` bytes from `position` on, without changing the length of the file.
    pub fn preallocate(&self, position: u64, len: u64) -> io::Result<()> {
        self.before(FaultyCall::Reserve)?;
        match &self.open {
            FileBackend::File { file, .. } => {
                Ok(rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, position, len)?)
            }
            FileBackend::Memory(memory) => memory.preallocate(position, len),
        }
    }

    /// The kernel's descriptor; `None` for a file in memory.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.open {
            FileBackend::File { file, .. } => Some(file.as_fd()),
            FileBackend::Memory(_) => None,
        }
    }
}

/// True if the error means that the disk or its quota is full.
pub fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// True if the error is transient and harmless: the disk is full, or too many files are open.
pub fn is_shortage(error: &io::Error) -> bool {
    is_disk_full(error) || lacks_descriptors(error)
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
