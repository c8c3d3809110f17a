//! Volumes of a disk in memory: directories with a limit of bytes, which fill and are freed.
//!
//! Owns: the limits, and the accounting: blocks of files, written or reserved, and blocks of directories,
//! whose names occupy space too, so that a rename to a longer name may need a block.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{CallError, Content, Entry, MEMORY_BYTES, MemoryDisk, Names, PAGE};

/// Bytes of a directory entry beside the name.
const NAME_BYTES: usize = 8;

/// The limits, by the directory where a volume is mounted.
pub(super) type Volumes = BTreeMap<PathBuf, u64>;

impl MemoryDisk {
    /// Limits the bytes in a directory. A limit below the present use keeps all files, and leaves no room.
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

    /// Checks that a new name has room.
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
    /// The bytes of the file's blocks.
    pub(super) fn blocks_bytes(&self) -> usize {
        self.seen.len().max(self.reserved).next_multiple_of(PAGE)
    }

    /// Number of the `wanted` bytes at a position that have room, with this many free bytes in the volume.
    pub(super) fn room(&self, at: usize, wanted: usize, free_bytes: Option<u64>) -> usize {
        let Some(free) = free_bytes else { return wanted };
        let free = usize::try_from(free).unwrap_or(usize::MAX) / PAGE * PAGE;
        self.blocks_bytes().saturating_add(free).saturating_sub(at).min(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::disk::Disk;
    use crate::disk::memory::{CallEffect, DiskCall};

    const DIR: &str = "/data";

    fn disk() -> (std::sync::Arc<MemoryDisk>, Disk) {
        let memory = MemoryDisk::new(Clock::manual(0));
        let disk = Disk::in_memory(std::sync::Arc::clone(&memory));
        disk.create_dir(Path::new(DIR)).expect("creates");
        (memory, disk)
    }

    #[test]
    fn a_full_volume_takes_what_fits_until_there_is_room_again() {
        let (memory, disk) = disk();
        let dir = Path::new(DIR);
        let file = disk.open_or_create(&dir.join("file")).expect("creates");
        memory.set_capacity(dir, Some(memory.used_bytes(dir) + PAGE as u64));
        let error = file.write_all_at(&[1; 2 * PAGE], 0).expect_err("there is room for a half");
        assert_eq!((error.kind(), file.len().expect("is open")), (io::ErrorKind::StorageFull, PAGE as u64));
        assert_eq!(disk.space(dir).expect("is known").1, 0);
        file.write_all_at(&[2; PAGE], 0).expect("what is there may be overwritten");
        assert!(file.preallocate(PAGE as u64, 1).is_err() && disk.create_dir(&dir.join("sub")).is_ok());
        disk.remove(&dir.join("file")).expect("is there");
        let other = disk.open_or_create(&dir.join("other")).expect("creates");
        other.write_all_at(&[3; PAGE], 0).expect("there is room again");
        memory.set_capacity(dir, None);
        other.write_all_at(&[3; 10 * PAGE], 0).expect("there is no limit");
    }

    #[test]
    fn a_longer_name_may_need_a_block_of_its_directory() {
        let (memory, disk) = disk();
        let dir = Path::new(DIR);
        let count = PAGE / (20 + NAME_BYTES);
        let name = |number: usize| dir.join(format!("{number:020}"));
        for number in 0..count {
            disk.open_or_create(&name(number)).expect("creates");
        }
        memory.set_capacity(dir, Some(memory.used_bytes(dir)));
        let to = dir.join(format!("{:020}.deleted", 0));
        let error = disk.rename(&name(0), &to).expect_err("the directory is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        disk.remove(&name(1)).expect("is there");
        disk.remove(&name(2)).expect("is there");
        disk.rename(&name(0), &to).expect("there is room in its block");
    }

    #[test]
    fn a_watched_call_fails_as_instructed() {
        let (memory, disk) = disk();
        let path = Path::new(DIR).join("file");
        let file = disk.open_or_create(&path).expect("creates");
        memory.watch_calls(|call, _| match call {
            DiskCall::Write => CallEffect::Half(CallError::InputOutput),
            DiskCall::Rename => CallEffect::Fails(CallError::Denied),
            _ => CallEffect::Works,
        });
        assert!(disk.rename(&path, &path.with_extension("new")).is_err() && disk.exists(&path));
        // Writes half of the rest repeatedly, until all is written.
        file.write_all_at(&[1; 100], 0).expect("it is taken in parts");
        assert_eq!(file.len().expect("is open"), 100);
    }
}
