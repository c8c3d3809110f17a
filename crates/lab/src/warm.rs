//! Reserves memory before a repetition. A virtual machine returns freed pages to its host after about two
//! seconds, and the next writer pays for their return, several times the cost of the write. So the lab pays,
//! for every target alike, right before each repetition.
//!
//! Reservation reads a sparse file: the kernel allocates page cache for it as for written files, but the
//! pages are clean. So nothing is written to the disk, and no dirty limit applies. On a tmpfs, which
//! allocates no pages for holes, the file is written.
//!
//! Getting pages from the host is slow on one thread, and several times as fast on a few. Recently freed
//! pages still belong to this machine and can be reused at once. So the memory of a repetition's files is
//! taken while they are deleted, and held until the next starts. If other programs need the memory, they get
//! it, because the pages are clean.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::time::Instant;

use crate::cgroup;
use crate::proc;

/// Free memory to leave alone, so that the page cache of a repetition's data is not evicted.
const RESERVE_BYTES: u64 = 512 << 20;

/// The chunk size: enough for large pages.
const CHUNK_BYTES: usize = 1 << 20;

/// The time limit; memory beyond it is not reserved.
const TIME_MAX: Duration = Duration::from_secs(30);

/// The polling interval while no memory is free.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum threads; more are not faster.
const THREADS_MAX: usize = 4;

/// The number of the next file.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The magic number of a tmpfs.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Reserved memory, as page cache; freed when dropped.
#[derive(Debug)]
pub struct ReservedMemory {
    /// An unlinked file, which disappears with this process.
    file: OwnedFd,
    bytes: u64,
}

impl ReservedMemory {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees this much of the memory.
    pub fn give_back(&mut self, bytes: u64) -> io::Result<()> {
        let left = self.bytes.saturating_sub(bytes);
        rustix::fs::ftruncate(&self.file, left)?;
        self.bytes = left;
        Ok(())
    }
}

/// The action when no memory is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryOutlook {
    /// Wait, because memory is being freed.
    Comes,
    /// Stop: no memory is being freed.
    IsNone,
    /// Stop, because the memory is no longer wanted.
    IsUnwanted,
}

/// Reserves about `bytes` of memory as page cache of the file system of `dir`: free memory, and memory that
/// becomes free as long as `more` allows. Blocks for seconds.
pub fn memory(dir: &Path, bytes: u64, more: impl Fn() -> MemoryOutlook + Sync) -> io::Result<ReservedMemory> {
    let file_system = rustix::fs::statfs(dir)?;
    let is_tmpfs = u64::try_from(file_system.f_type).is_ok_and(|magic| magic == TMPFS_MAGIC);
    let mut wanted = bytes;
    if is_tmpfs {
        let unit = u64::try_from(file_system.f_bsize).unwrap_or(0);
        wanted = wanted.min(file_system.f_bavail.saturating_mul(unit) / 2);
    }
    // Two reservations may exist in one process.
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".thalweg-lab-warm-{}-{number}", std::process::id()));
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::unlink(&path)?;
    if !is_tmpfs {
        rustix::fs::ftruncate(&file, wanted)?;
    }
    let filling = FillJob {
        file: &file,
        is_tmpfs,
        wanted,
        next: AtomicU64::new(0),
        done: AtomicU64::new(0),
        deadline: Instant::now() + TIME_MAX,
        more: &more,
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads()).map(|_| scope.spawn(|| filling.fill())).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("filling does not panic"))
    })?;
    let bytes = filling.done.into_inner();
    Ok(ReservedMemory { file, bytes })
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(THREADS_MAX)
}

/// A file whose pages several threads allocate.
struct FillJob<'a, M> {
    file: &'a OwnedFd,
    is_tmpfs: bool,
    wanted: u64,
    /// The offset of the next chunk.
    next: AtomicU64,
    done: AtomicU64,
    deadline: Instant,
    more: &'a M,
}

impl<M: Fn() -> MemoryOutlook> FillJob<'_, M> {
    /// Allocates chunks until none are left.
    fn fill(&self) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        while self.is_chunk_free() {
            let mut at = self.next.fetch_add(CHUNK_BYTES as u64, Ordering::Relaxed);
            let end = (at + CHUNK_BYTES as u64).min(self.wanted);
            if at >= end {
                break;
            }
            while at < end {
                let length = usize::try_from(end - at).unwrap_or(CHUNK_BYTES);
                let moved = match self.is_tmpfs {
                    true => rustix::io::pwrite(self.file, &chunk[..length], at),
                    false => rustix::io::pread(self.file, &mut chunk[..length], at),
                };
                match moved {
                    Ok(0) => return Ok(()),
                    Ok(moved) => {
                        at += moved as u64;
                        self.done.fetch_add(moved as u64, Ordering::Relaxed);
                    }
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Waits until a chunk may be allocated; false if none will be free.
    fn is_chunk_free(&self) -> bool {
        while Instant::now() < self.deadline {
            // Read before the check, so that memory freed until the answer counts.
            let more = (self.more)();
            if more == MemoryOutlook::IsUnwanted {
                return false;
            }
            let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
            if free_bytes(&meminfo, cgroup::memory_left_bytes()) >= CHUNK_BYTES as u64 {
                return true;
            }
            if more == MemoryOutlook::IsNone {
                return false;
            }
            #[expect(clippy::disallowed_methods, reason = "a dedicated thread, which may block")]
            std::thread::sleep(PAUSE);
        }
        false
    }
}

/// The available memory: free memory of the machine and the control group, minus the reserve. Page cache does
/// not count as free: it already belongs to this machine, and its contents may be needed.
fn free_bytes(meminfo: &str, cgroup_left_bytes: Option<u64>) -> u64 {
    let free = proc::memory(meminfo, "MemFree").unwrap_or_default();
    free.min(cgroup_left_bytes.unwrap_or(u64::MAX)).saturating_sub(RESERVE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_and_given_back_without_a_trace() {
        let dir = tempfile::tempdir().expect("a directory");
        let requested = 32 << 20;
        let held =
            memory(dir.path(), requested, || MemoryOutlook::IsNone).expect("a directory that can be written");
        let warmed = held.bytes();
        assert!(warmed <= requested);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        if free_bytes(&meminfo, cgroup::memory_left_bytes()) > 1 << 30 {
            assert_eq!(warmed, requested);
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("it is there").count(), 0);
    }

    #[test]
    fn it_ends_when_nobody_wants_it_any_more() {
        let dir = tempfile::tempdir().expect("a directory");
        let held = memory(dir.path(), 32 << 20, || MemoryOutlook::IsUnwanted)
            .expect("a directory that can be written");
        assert_eq!(held.bytes(), 0);
    }

    #[test]
    fn the_page_cache_of_others_is_left_alone() {
        let meminfo = "MemTotal: 8388608 kB\nMemFree: 1048576 kB\nMemAvailable: 7340032 kB\n";
        assert_eq!(free_bytes(meminfo, None), 512 << 20);
        assert_eq!(free_bytes(meminfo, Some(600 << 20)), 88 << 20);
        assert_eq!(free_bytes(meminfo, Some(100 << 20)), 0);
        assert_eq!(free_bytes("", None), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(memory(Path::new("/nowhere/at/all"), 1, || MemoryOutlook::IsNone).is_err());
    }
}
