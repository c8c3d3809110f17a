//! A disk in memory that loses unsynced data at a power failure, like a real one.
//!
//! Owns: files with visible and synced content, names with unsynced changes, and faults: slow work, syncs
//! that lie, power failures, failing calls, full volumes. Refuses: randomness; the caller provides it at a
//! power failure.
//!
//! The disk behaves like a journaling file system: changes of names are persisted in order, by any sync, or
//! only by a sync of the directory, as POSIX allows ([`MemoryDisk::set_names_apart`]). Bytes are persisted in
//! any order, page by page; other pages keep their old content, or are zero.

mod calls;
mod volumes;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{DirEntry, FileFacts};
use crate::clock::Clock;
use calls::Calls;
pub use calls::{CallEffect, CallError, DiskCall};
use volumes::Volumes;

/// The unit of persistence.
const PAGE: usize = 4096;

/// The reported capacity without a limit.
const MEMORY_BYTES: u64 = 1 << 40;

/// Returns a random number below the given one.
pub type Draw<'a> = &'a mut dyn FnMut(u64) -> u64;

type Delays = Box<dyn FnMut() -> Duration + Send>;

/// The files of one simulated machine, which outlive its processes.
pub struct MemoryDisk {
    clock: Clock,
    names: Mutex<Names>,
    /// Incremented when the process or the machine ends; earlier handles have no effect any more.
    life: AtomicU64,
    syncs_lie: AtomicBool,
    names_apart: AtomicBool,
    writes_are_whole: AtomicBool,
    delays: Mutex<Option<Delays>>,
    calls: Calls,
    volumes: Mutex<Volumes>,
}

impl std::fmt::Debug for MemoryDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryDisk")
    }
}

#[derive(Default)]
struct Names {
    seen: BTreeMap<PathBuf, Entry>,
    on_medium: BTreeMap<PathBuf, Entry>,
    /// Changes since the last sync.
    journal: Vec<Change>,
    locks: BTreeMap<PathBuf, u64>,
}

#[derive(Clone)]
enum Entry {
    Dir,
    File(Arc<Mutex<Content>>),
}

#[derive(Clone)]
enum Change {
    Add(PathBuf, Entry),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

#[derive(Default)]
struct Content {
    seen: Vec<u8>,
    on_medium: Vec<u8>,
    /// Ranges that were written since the last sync.
    written: Vec<(usize, usize)>,
    /// The minimum length since the last sync, if the file was cut.
    cut_to: Option<usize>,
    /// The end of the blocks reserved beyond the content; 0 if there are none.
    reserved: usize,
    modified_ms: i64,
}

/// An open file of a [`MemoryDisk`].
#[derive(Debug)]
pub(super) struct MemoryFile {
    disk: Arc<MemoryDisk>,
    content: Arc<Mutex<Content>>,
    path: PathBuf,
    life: u64,
}

/// A lock on a directory of a [`MemoryDisk`].
#[derive(Debug)]
pub(super) struct MemoryLock {
    disk: Arc<MemoryDisk>,
    path: PathBuf,
    life: u64,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.seen.len())
    }
}

impl MemoryDisk {
    /// An empty disk. Files get their times from `clock`.
    pub fn new(clock: Clock) -> Arc<MemoryDisk> {
        Arc::new(MemoryDisk {
            clock,
            names: Mutex::default(),
            life: AtomicU64::new(0),
            syncs_lie: AtomicBool::new(false),
            names_apart: AtomicBool::new(false),
            writes_are_whole: AtomicBool::new(false),
            delays: Mutex::new(None),
            calls: Calls::default(),
            volumes: Mutex::default(),
        })
    }

    /// Makes a write fail completely if its volume lacks room for all of it, as ext4 does up to a size.
    pub fn set_writes_are_whole(&self, are_whole: bool) {
        self.writes_are_whole.store(are_whole, Ordering::SeqCst);
    }

    /// Makes syncs report success without effect.
    pub fn set_syncs_lie(&self, lie: bool) {
        self.syncs_lie.store(lie, Ordering::SeqCst);
    }

    /// Makes the sync of a file leave all names unsynced, even its own: only a sync of the directory persists
    /// them.
    pub fn set_names_apart(&self, apart: bool) {
        self.names_apart.store(apart, Ordering::SeqCst);
    }

    /// Delays blocking disk work by the values of `delays`.
    pub fn set_delays(&self, delays: impl FnMut() -> Duration + Send + 'static) {
        *self.delays.lock() = Some(Box::new(delays));
    }

    /// Ends the process at once. The process's writes stay in the page cache; its open files and locks are
    /// closed.
    pub fn end_process(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
        self.names.lock().locks.clear();
    }

    /// The machine loses power, and the process ends. `draw` decides which unsynced data survives.
    pub fn lose_power(&self, draw: Draw<'_>) {
        self.end_process();
        let mut names = self.names.lock();
        let kept = draw(names.journal.len() as u64 + 1);
        let journal = std::mem::take(&mut names.journal);
        for change in journal.into_iter().take(usize::try_from(kept).unwrap_or(usize::MAX)) {
            change.apply(&mut names.on_medium);
        }
        for entry in names.on_medium.values_mut() {
            if let Entry::File(content) = entry {
                let left = content.lock().after_power_failure(draw);
                *entry = Entry::File(Arc::new(Mutex::new(left)));
            }
        }
        names.seen = names.on_medium.clone();
    }

    /// The names and contents of all files, as a reader sees them.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let names = self.names.lock();
        let files = names.seen.iter().filter_map(|(path, entry)| match entry {
            Entry::Dir => None,
            Entry::File(content) => Some((path.clone(), content.lock().seen.clone())),
        });
        files.collect()
    }

    pub(super) fn delay(&self) -> Duration {
        self.delays.lock().as_mut().map_or(Duration::ZERO, |delays| delays())
    }

    pub(super) fn open(self: &Arc<Self>, path: &Path, create: bool) -> io::Result<MemoryFile> {
        let mut names = self.names.lock();
        let is_new = create && !names.seen.contains_key(path);
        self.begin(if is_new { DiskCall::Create } else { DiskCall::Open }, path)?;
        let content = match names.seen.get(path) {
            Some(Entry::File(content)) => Arc::clone(content),
            Some(Entry::Dir) => return Err(io::ErrorKind::IsADirectory.into()),
            None if !create => return Err(io::ErrorKind::NotFound.into()),
            None => {
                if !path.parent().is_some_and(|parent| matches!(names.seen.get(parent), Some(Entry::Dir))) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                self.check_name(&names, path)?;
                let content = Content { modified_ms: self.clock.now_ms(), ..Content::default() };
                let content = Arc::new(Mutex::new(content));
                names.change(Change::Add(path.to_owned(), Entry::File(Arc::clone(&content))));
                content
            }
        };
        let (path, life) = (path.to_owned(), self.life.load(Ordering::SeqCst));
        Ok(MemoryFile { disk: Arc::clone(self), content, path, life })
    }

    pub(super) fn facts(&self, path: &Path) -> io::Result<FileFacts> {
        self.begin(DiskCall::Stat, path)?;
        match self.names.lock().seen.get(path) {
            Some(Entry::File(content)) => {
                let content = content.lock();
                Ok(FileFacts { len: content.seen.len() as u64, modified_ms: content.modified_ms })
            }
            Some(Entry::Dir) => Ok(FileFacts { len: 0, modified_ms: 0 }),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.begin(DiskCall::Open, path)?;
        match self.names.lock().seen.get(path) {
            Some(Entry::File(content)) => Ok(content.lock().seen.clone()),
            Some(Entry::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.names.lock().seen.contains_key(path)
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        matches!(self.names.lock().seen.get(path), Some(Entry::Dir))
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.begin(DiskCall::List, dir)?;
        let names = self.names.lock();
        if !matches!(names.seen.get(dir), Some(Entry::Dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let children = names.seen.iter().filter(|(path, _)| path.parent() == Some(dir));
        let listed = children.filter_map(|(path, entry)| {
            let name = path.file_name()?.to_str()?.to_owned();
            let is_dir = matches!(entry, Entry::Dir);
            Some(DirEntry { name, is_dir, is_file: !is_dir })
        });
        Ok(listed.collect())
    }

    pub(super) fn create_dir(&self, path: &Path) -> io::Result<bool> {
        self.begin(DiskCall::CreateDir, path)?;
        let mut names = self.names.lock();
        let missing: Vec<PathBuf> =
            path.ancestors().take_while(|part| !names.seen.contains_key(*part)).map(Path::to_owned).collect();
        let is_new = !missing.is_empty();
        for dir in missing.into_iter().rev() {
            self.check_name(&names, &dir)?;
            names.change(Change::Add(dir, Entry::Dir));
        }
        Ok(is_new)
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.begin(DiskCall::Rename, from)?;
        let mut names = self.names.lock();
        if !names.seen.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.check_name(&names, to)?;
        names.change(Change::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names.lock();
        if !names.seen.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match self.answer(DiskCall::Remove, path) {
            CallEffect::Works => {}
            CallEffect::Fails(error) => return Err(error.into()),
            CallEffect::Half(error) => {
                let within: Vec<PathBuf> = names
                    .seen
                    .keys()
                    .filter(|name| name.starts_with(path) && *name != path)
                    .cloned()
                    .collect();
                for file in within.iter().take(within.len().div_ceil(2)) {
                    names.change(Change::Remove(file.clone()));
                }
                return Err(error.into());
            }
        }
        names.change(Change::Remove(path.to_owned()));
        Ok(())
    }

    /// Makes the names in a directory durable, and with them those of all directories.
    pub(super) fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.begin(DiskCall::SyncDir, dir)?;
        self.sync_names();
        Ok(())
    }

    /// Makes all files and names durable.
    pub(super) fn sync_filesystem(&self, path: &Path) -> io::Result<()> {
        self.begin(DiskCall::SyncAll, path)?;
        self.sync_all();
        Ok(())
    }

    /// Persists the changes of names.
    fn sync_names(&self) {
        if !self.syncs_lie.load(Ordering::SeqCst) {
            self.names.lock().sync();
        }
    }

    /// Persists all files and names.
    fn sync_all(&self) {
        if self.syncs_lie.load(Ordering::SeqCst) {
            return;
        }
        let mut names = self.names.lock();
        names.sync();
        for entry in names.seen.values() {
            if let Entry::File(content) = entry {
                content.lock().sync();
            }
        }
    }

    pub(super) fn lock(self: &Arc<Self>, path: &Path) -> io::Result<Option<MemoryLock>> {
        drop(self.open(path, true)?);
        let life = self.life.load(Ordering::SeqCst);
        let mut names = self.names.lock();
        if names.locks.contains_key(path) {
            return Ok(None);
        }
        names.locks.insert(path.to_owned(), life);
        Ok(Some(MemoryLock { disk: Arc::clone(self), path: path.to_owned(), life }))
    }
}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let mut names = self.disk.names.lock();
        if names.locks.get(&self.path) == Some(&self.life) {
            names.locks.remove(&self.path);
        }
    }
}

impl Names {
    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.seen);
        self.journal.push(change);
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.journal) {
            change.apply(&mut self.on_medium);
        }
    }
}

impl Change {
    fn apply(self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            Change::Add(path, entry) => {
                names.insert(path, entry);
            }
            Change::Remove(path) => names.retain(|name, _| !name.starts_with(&path)),
            Change::Rename(from, to) => {
                names.retain(|name, _| !name.starts_with(&to));
                let moved: Vec<PathBuf> =
                    names.keys().filter(|name| name.starts_with(&from)).cloned().collect();
                for name in moved {
                    let entry = names.remove(&name).expect("it was found just now");
                    let rest = name.strip_prefix(&from).expect("it starts so");
                    let target = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    names.insert(target, entry);
                }
            }
        }
    }
}

impl Content {
    fn write(&mut self, bytes: &[u8], at: usize) {
        let end = at + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[at..end].copy_from_slice(bytes);
        match self.written.last_mut() {
            Some((_, last)) if *last == at => *last = end,
            _ => self.written.push((at, end)),
        }
    }

    fn set_len(&mut self, len: usize) {
        self.reserved = 0;
        if len < self.seen.len() {
            self.cut_to = Some(self.cut_to.map_or(len, |cut| cut.min(len)));
        }
        self.seen.resize(len, 0);
    }

    fn sync(&mut self) {
        if let Some(cut_to) = self.cut_to.take() {
            self.on_medium.truncate(cut_to);
        }
        self.on_medium.resize(self.seen.len(), 0);
        for (from, to) in std::mem::take(&mut self.written) {
            let to = to.min(self.seen.len());
            if from < to {
                self.on_medium[from..to].copy_from_slice(&self.seen[from..to]);
            }
        }
    }

    /// The content that survives. A truncation takes effect before the writes that follow it, or neither
    /// does.
    fn after_power_failure(&self, draw: Draw<'_>) -> Content {
        let (old, new) = (&self.on_medium, &self.seen);
        let keeps = draw(3);
        let left = match keeps {
            _ if self.written.is_empty() && self.cut_to.is_none() && old.len() == new.len() => old.clone(),
            0 => old.clone(),
            1 => new.clone(),
            _ => self.torn(draw),
        };
        Content { on_medium: left.clone(), seen: left, modified_ms: self.modified_ms, ..Content::default() }
    }

    fn torn(&self, draw: Draw<'_>) -> Vec<u8> {
        let new = &self.seen;
        let base = &self.on_medium[..self.cut_to.unwrap_or(usize::MAX).min(self.on_medium.len())];
        let (shortest, longest) = (base.len().min(new.len()), base.len().max(new.len()));
        let len = shortest + usize::try_from(draw((longest - shortest) as u64 + 1)).unwrap_or(0);
        let mut left = vec![0; len];
        for (index, page) in left.chunks_mut(PAGE).enumerate() {
            let at = index * PAGE;
            // Most pages survive: usually the end is lost.
            let source = if draw(8) == 0 { base } else { new.as_slice() };
            let available = source.get(at..).unwrap_or_default();
            let count = available.len().min(page.len());
            page[..count].copy_from_slice(&available[..count]);
        }
        left
    }
}

impl MemoryFile {
    /// The file of an ended process can be neither read nor written.
    fn is_alive(&self) -> io::Result<()> {
        if self.life == self.disk.life.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err(io::Error::other("the process has ended"))
        }
    }

    pub(super) fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.is_alive()?;
        self.disk.begin(DiskCall::Read, &self.path)?;
        let content = self.content.lock();
        let at = usize::try_from(position).unwrap_or(usize::MAX).min(content.seen.len());
        let count = buffer.len().min(content.seen.len() - at);
        buffer[..count].copy_from_slice(&content.seen[at..at + count]);
        Ok(count)
    }

    pub(super) fn write_some(&self, pieces: &[IoSlice<'_>], position: u64) -> io::Result<usize> {
        self.is_alive()?;
        let all = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let wanted = match self.disk.answer(DiskCall::Write, &self.path) {
            CallEffect::Works => all,
            CallEffect::Half(_) => all.div_ceil(2),
            CallEffect::Fails(error) => return Err(error.into()),
        };
        let free_bytes = self.disk.free_bytes(&self.path);
        let mut content = self.content.lock();
        let start = usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut left = content.room(start, wanted, free_bytes);
        let takes_none = left == 0 || (left < wanted && self.disk.writes_are_whole.load(Ordering::SeqCst));
        if takes_none && wanted > 0 {
            return Err(CallError::NoSpace.into());
        }
        content.modified_ms = self.disk.clock.now_ms();
        let mut at = start;
        for piece in pieces {
            let part = &piece[..piece.len().min(left)];
            content.write(part, at);
            at += part.len();
            left -= part.len();
        }
        Ok(at - start)
    }

    /// Reserves blocks without changing the length.
    pub(super) fn preallocate(&self, position: u64, len: u64) -> io::Result<()> {
        self.is_alive()?;
        self.disk.begin(DiskCall::Allocate, &self.path)?;
        let free_bytes = self.disk.free_bytes(&self.path);
        let mut content = self.content.lock();
        let at = usize::try_from(position).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if content.room(at, len, free_bytes) < len {
            return Err(CallError::NoSpace.into());
        }
        content.reserved = content.reserved.max(at + len);
        Ok(())
    }

    /// Releases blocks beyond the end.
    pub(super) fn release_beyond_end(&self) -> io::Result<()> {
        let len = self.len()?;
        let has_more = self.content.lock().reserved > usize::try_from(len).unwrap_or(usize::MAX);
        if has_more { self.set_len(len) } else { Ok(()) }
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.is_alive()?;
        self.disk.begin(DiskCall::Truncate, &self.path)?;
        self.content.lock().set_len(usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?);
        Ok(())
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        self.is_alive()?;
        Ok(self.content.lock().seen.len() as u64)
    }

    pub(super) fn sync_data(&self) -> io::Result<()> {
        self.is_alive()?;
        self.disk.begin(DiskCall::Sync, &self.path)?;
        if !self.disk.syncs_lie.load(Ordering::SeqCst) {
            // The journal is written first, and with it the name of the file.
            if !self.disk.names_apart.load(Ordering::SeqCst) {
                self.disk.sync_names();
            }
            self.content.lock().sync();
        }
        Ok(())
    }
}
