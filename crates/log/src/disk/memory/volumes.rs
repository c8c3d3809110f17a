//! Volumes of a disk in memory: directories with a limit of bytes, which fill and are freed.
//!
//! Owns: the limits, and what counts against them: the blocks of files, written or reserved, and of directories, whose names
//! take room, too, so that a rename to a longer name may need a block.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{CallError, Content, Entry, MEMORY_BYTES, MemoryDisk, Names, PAGE};

/// What a name takes in its directory beside its bytes.
const NAME_BYTES: usize = 8;

/// The limits, by the directory where a volume is mounted.
pub(super) type Volumes = BTreeMap<PathBuf, u64>;

impl MemoryDisk {
    /// Limits the bytes in a directory from now on. A limit below what is there leaves all of it, and room for nothing.
    pub fn set_capacity(&self, dir: &Path, bytes: Option<u64>) {
        let mut volumes = self.volumes.lock();
        match bytes {
            Some(bytes) => volumes.insert(dir.to_owned(), bytes),
            None => volumes.remove(dir),
        };
    }

    /// The bytes that are in use in a directory.
    pub fn used_bytes(&self, dir: &Path) -> u64 {
        self.names.lock().used_bytes(dir)
    }

    /// Bytes of the volume of a path, and bytes free on it.
    pub(in crate::disk) fn space(&self, path: &Path) -> (u64, u64) {
        match self.volume_of(path) {
            Some((dir, bytes)) => (bytes, bytes.saturating_sub(self.used_bytes(&dir))),
            None => (MEMORY_BYTES, MEMORY_BYTES),
        }
    }

    /// The free bytes of the volume of a path, if it has a limit.
    pub(super) fn free_bytes(&self, path: &Path) -> Option<u64> {
        self.volume_of(path)?;
        Some(self.space(path).1)
    }

    /// Whether a new name has room.
    pub(super) fn check_name(&self, names: &Names, path: &Path) -> io::Result<()> {
        let (Some((dir, bytes)), Some(parent)) = (self.volume_of(path), path.parent()) else { return Ok(()) };
        let len = path.file_name().map_or(0, |name| name.len() + NAME_BYTES);
        let taken = names.names_bytes(parent);
        let grows = len > taken.next_multiple_of(PAGE) - taken;
        if grows && names.used_bytes(&dir) + PAGE as u64 > bytes {
            return Err(CallError::NoSpace.into());
        }
        Ok(())
    }

    fn volume_of(&self, path: &Path) -> Option<(PathBuf, u64)> {
        let volumes = self.volumes.lock();
        let of_path = volumes.iter().filter(|(dir, _)| path.starts_with(dir));
        let (dir, bytes) = of_path.max_by_key(|(dir, _)| dir.as_os_str().len())?;
        Some((dir.clone(), *bytes))
    }
}

impl Names {
    fn used_bytes(&self, dir: &Path) -> u64 {
        let within = self.seen.range(dir.to_owned()..).take_while(|(path, _)| path.starts_with(dir));
        let used = within.map(|(path, entry)| match entry {
            Entry::File(content) => content.lock().blocks_bytes(),
            Entry::Dir => self.names_bytes(path).next_multiple_of(PAGE),
        });
        used.map(|bytes| bytes as u64).sum()
    }

    /// The bytes of the names in a directory.
    fn names_bytes(&self, dir: &Path) -> usize {
        let within = self.seen.range(dir.to_owned()..).take_while(|(path, _)| path.starts_with(dir));
        let children = within.filter(|(path, _)| path.parent() == Some(dir));
        children.filter_map(|(path, _)| Some(path.file_name()?.len() + NAME_BYTES)).sum()
    }
}

impl Content {
    /// The bytes of its blocks.
    pub(super) fn blocks_bytes(&self) -> usize {
        self.seen.len().max(self.reserved).next_multiple_of(PAGE)
    }

    /// How many of `wanted` bytes at a position have room, if the volume has so many free.
    pub(super) fn room(&self, at: usize, wanted: usize, free_bytes: Option<u64>) -> usize {
        let Some(free) = free_bytes else { return wanted };
        let free = usize::try_from(free).unwrap_or(usize::MAX) / PAGE * PAGE;
        self.blocks_bytes().saturating_add(free).saturating_sub(at).min(wanted)
    }
}
