//! Memory reserved before each repetition, for every target alike, and held between repetitions: otherwise
//! one target would pay for pages that another reuses. The memory that deleted files free is held, too,
//! except for Apache Pulsar, whose bookies delete files later.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::warm::{self, MemoryOutlook, ReservedMemory};

/// Maximum reserved memory.
const BYTES_MAX: u64 = 8 << 30;

/// Memory held between repetitions, and freed when dropped.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Vec<ReservedMemory>>);

impl Memory {
    /// Reserves memory for brokers that write below `dir`, right before they do. Without a directory,
    /// reserves nothing and frees the held memory.
    pub(super) async fn make_ready(&self, dir: Option<&Path>, bytes: u64) {
        let bytes = bytes.min(BYTES_MAX);
        if let Some(dir) = dir {
            let is_freed = Arc::new(AtomicBool::new(true));
            let more = take(dir, bytes.saturating_sub(self.bytes()), &is_freed).await;
            self.held().extend(more);
        }
        self.give_back(bytes);
    }

    /// Takes the memory that files below `dir` free while they are deleted, until `is_freed`: after a second
    /// or two the hypervisor would take it.
    pub(super) async fn take_freed(&self, dir: &Path, bytes: u64, is_freed: &Arc<AtomicBool>) {
        let room = BYTES_MAX.saturating_sub(self.bytes());
        let freed = take(dir, bytes.min(room), is_freed).await;
        self.held().extend(freed);
    }

    fn held(&self) -> MutexGuard<'_, Vec<ReservedMemory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> u64 {
        self.held().iter().map(ReservedMemory::bytes).sum()
    }

    /// Frees this much, or all. The rest is kept for a later repetition, which may write more.
    fn give_back(&self, mut bytes: u64) {
        let mut held = self.held();
        while bytes > 0
            && let Some(mut last) = held.pop()
        {
            let given = bytes.min(last.bytes());
            bytes -= given;
            if last.give_back(given).is_ok() && last.bytes() > 0 {
                held.push(last);
            }
        }
    }
}

/// Reserves memory, including memory that becomes free until `is_freed`. `None` if none is requested or
/// available.
async fn take(dir: &Path, bytes: u64, is_freed: &Arc<AtomicBool>) -> Option<ReservedMemory> {
    if bytes == 0 {
        return None;
    }
    // An interrupted run drops this future, and the thread's stop flag with it.
    let waiting = Arc::new(());
    let waited_for = Arc::downgrade(&waiting);
    let (dir, is_freed) = (dir.to_owned(), is_freed.clone());
    let more = move || match (waited_for.strong_count(), is_freed.load(Ordering::Acquire)) {
        (0, _) => MemoryOutlook::IsUnwanted,
        (_, true) => MemoryOutlook::IsNone,
        (_, false) => MemoryOutlook::Comes,
    };
    let taken = tokio::task::spawn_blocking(move || warm::memory(&dir, bytes, more)).await;
    drop(waiting);
    let taken = taken.unwrap_or_else(|error| Err(error.into()));
    taken.inspect_err(|error| tracing::warn!(%error, "Failed to reserve memory before a repetition")).ok()
}
