//! The sparse indexes of a segment: `.index` from offset to position, `.timeindex` from timestamp to offset.
//!
//! ```text
//! .index       8 bytes an entry: offset relative to the segment's base u32, position in the .log file u32.
//!              The offset is the LAST offset of the batch that begins at the position.
//! .timeindex   12 bytes an entry: timestamp i64, relative offset u32. The timestamp is the largest so far in
//!              the segment, the offset that of the last record of the batch that brought it.
//! ```
//! All numbers are big-endian; entries increase strictly in `.index`, and in both columns of `.timeindex`.
//!
//! Owns: reading, appending, searching, truncating. Refuses: trust in the file (the segment checks entries
//! against the log and rebuilds the index), and mapping files into memory.
//!
//! New entries are buffered in memory and written a few thousand bytes at a time. A loss of buffered entries
//! is harmless: a segment that was not closed cleanly has its indexes rebuilt.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, LogFile};

/// Maximum number of entries buffered in memory.
const PENDING_MAX: usize = 512;
/// Number of entries read at once when the search has narrowed down to them.
const BLOCK: usize = 256;

/// One entry of an index.
pub trait IndexEntry: Copy + PartialEq + std::fmt::Debug {
    /// Size of an entry in bytes.
    const SIZE: usize;
    /// Writes the entry to the end of `out`.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads an entry from exactly [`IndexEntry::SIZE`] bytes.
    fn decode(bytes: &[u8]) -> Self;
}

/// An entry of `.index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetEntry {
    /// Last offset of the batch, relative to the segment's base offset.
    pub relative_offset: u32,
    /// The position of the batch in the log file.
    pub position: u32,
}

impl IndexEntry for OffsetEntry {
    const SIZE: usize = 8;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> OffsetEntry {
        OffsetEntry { relative_offset: u32_at(bytes, 0), position: u32_at(bytes, 4) }
    }
}

/// An entry of `.timeindex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeEntry {
    /// The largest timestamp so far, in milliseconds.
    pub timestamp: i64,
    /// Last offset of the batch that brought it, relative to the segment's base offset.
    pub relative_offset: u32,
}

impl IndexEntry for TimeEntry {
    const SIZE: usize = 12;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> TimeEntry {
        let timestamp = i64::from_be_bytes(*bytes.first_chunk().expect("an entry has 12 bytes"));
        TimeEntry { timestamp, relative_offset: u32_at(bytes, 8) }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("the field lies within the entry"))
}

/// An index file and its buffered entries.
#[derive(Debug)]
pub struct Index<E> {
    /// Entries in the file; `None` until it was opened.
    stored: Option<usize>,
    pending: Vec<E>,
    file: Option<LogFile>,
    /// True if there is no file yet. The first write creates the file.
    is_missing: bool,
    /// True if the file may be longer than its entries. The next write cuts the file.
    has_rest: bool,
}

impl<E: IndexEntry> Index<E> {
    /// The index of a new segment, or of a segment without the file.
    pub fn new_empty() -> Index<E> {
        Index { stored: Some(0), pending: Vec::new(), file: None, is_missing: true, has_rest: false }
    }

    /// The index of a segment found on disk, not opened yet.
    pub fn unopened() -> Index<E> {
        Index { stored: None, pending: Vec::new(), file: None, is_missing: false, has_rest: false }
    }

    fn file(&mut self, disk: &Disk, path: &Path) -> io::Result<&LogFile> {
        if self.file.is_none() {
            let file = disk.open_or_create(path)?;
            if self.stored.is_none() {
                let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
                self.stored = Some(len / E::SIZE);
            }
            // A file of that name may exist after all, left by a segment whose creation failed.
            self.has_rest |= std::mem::take(&mut self.is_missing);
            self.file = Some(file);
        }
        Ok(self.file.as_ref().expect("opened above"))
    }

    fn stored(&mut self, disk: &Disk, path: &Path) -> io::Result<usize> {
        if self.stored.is_none() {
            self.file(disk, path)?;
        }
        Ok(self.stored.expect("opening the file counts its entries"))
    }

    /// The number of entries.
    pub fn count(&mut self, disk: &Disk, path: &Path) -> io::Result<usize> {
        Ok(self.stored(disk, path)? + self.pending.len())
    }

    /// The number of entries known without opening the file.
    pub fn count_known(&self) -> usize {
        self.stored.unwrap_or(0) + self.pending.len()
    }

    /// The entry at `slot`.
    pub fn entry(&mut self, disk: &Disk, path: &Path, slot: usize) -> io::Result<Option<E>> {
        let stored = self.stored(disk, path)?;
        if slot >= stored {
            return Ok(self.pending.get(slot - stored).copied());
        }
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..E::SIZE];
        let read = self.file(disk, path)?.read_at(bytes, (slot * E::SIZE) as u64)?;
        Ok((read == E::SIZE).then(|| E::decode(bytes)))
    }

    /// The last entry.
    pub fn last(&mut self, disk: &Disk, path: &Path) -> io::Result<Option<E>> {
        match self.count(disk, path)? {
            0 => Ok(None),
            count => self.entry(disk, path, count - 1),
        }
    }

    /// The last entry that satisfies `holds`, which is true for a prefix of the entries.
    pub fn last_where(
        &mut self,
        disk: &Disk,
        path: &Path,
        holds: impl Fn(&E) -> bool,
    ) -> io::Result<Option<E>> {
        let count = self.count_where(disk, path, holds)?;
        match count.checked_sub(1) {
            Some(slot) => self.entry(disk, path, slot),
            None => Ok(None),
        }
    }

    /// Number of entries, from the first on, that satisfy `holds`.
    pub fn count_where(&mut self, disk: &Disk, path: &Path, holds: impl Fn(&E) -> bool) -> io::Result<usize> {
        let stored = self.stored(disk, path)?;
        if self.pending.first().is_some_and(&holds) {
            return Ok(stored + self.pending.partition_point(holds));
        }
        let (mut low, mut high) = (0, stored);
        while high - low > BLOCK {
            let middle = low + (high - low) / 2;
            match self.entry(disk, path, middle)? {
                Some(entry) if holds(&entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        let entries = self.read_range(disk, path, low, high)?;
        Ok(low + entries.partition_point(holds))
    }

    fn read_range(&mut self, disk: &Disk, path: &Path, low: usize, high: usize) -> io::Result<Vec<E>> {
        if low == high {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; (high - low) * E::SIZE];
        let read = self.file(disk, path)?.read_at(&mut bytes, (low * E::SIZE) as u64)?;
        Ok(bytes[..read].chunks_exact(E::SIZE).map(E::decode).collect())
    }

    /// Adds an entry. Writes the buffered entries once there are many; a failure is ignored, because the
    /// entries stay in memory and are written later. `path` is called only for a write.
    pub fn push(&mut self, disk: &Disk, path: impl FnOnce() -> PathBuf, entry: E) {
        self.pending.push(entry);
        if self.pending.len().is_multiple_of(PENDING_MAX) {
            let path = path();
            if let Err(error) = self.write_pending(disk, &path) {
                tracing::warn!(path = %path.display(), %error, "Failed to write index entries, retrying later");
            }
        }
    }

    /// Writes the buffered entries, and closes the file: the next write is due much later.
    pub fn write_pending(&mut self, disk: &Disk, path: &Path) -> io::Result<()> {
        if self.pending.is_empty() && !self.has_rest && !self.is_missing {
            return Ok(());
        }
        let stored = self.stored(disk, path)?;
        let mut bytes = Vec::with_capacity(self.pending.len() * E::SIZE);
        for entry in &self.pending {
            entry.encode(&mut bytes);
        }
        let file = self.file(disk, path)?;
        file.write_all_at(&bytes, (stored * E::SIZE) as u64)?;
        self.stored = Some(stored + self.pending.len());
        self.pending = Vec::new();
        if std::mem::take(&mut self.has_rest) {
            let len = (self.stored(disk, path)? * E::SIZE) as u64;
            self.file(disk, path)?.trim(len)?;
        }
        self.close();
        Ok(())
    }

    /// Drops all entries before a rebuild. The file is overwritten in place, and truncated once the new
    /// entries are written.
    pub fn reset(&mut self) {
        self.stored = Some(0);
        self.pending.clear();
        self.has_rest = true;
    }

    /// Keeps the first `count` entries and cuts the file after them.
    pub fn truncate(&mut self, disk: &Disk, path: &Path, count: usize) -> io::Result<()> {
        if self.is_missing {
            // A full disk has no room for a file, and the cut-off entries free memory.
            self.pending.truncate(count);
            return Ok(());
        }
        let stored = self.stored(disk, path)?;
        if count >= stored {
            self.pending.truncate(count - stored);
        } else {
            self.pending.clear();
            self.stored = Some(count);
        }
        let keep = count.min(stored);
        self.has_rest = false;
        self.file(disk, path)?.trim((keep * E::SIZE) as u64)
    }

    /// True if there is no file yet.
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Closes the file; it is opened again when needed.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// True if the file's length is a whole number of entries.
    pub fn has_whole_entries(&mut self, disk: &Disk, path: &Path) -> io::Result<bool> {
        Ok(self.file(disk, path)?.len()?.is_multiple_of(E::SIZE as u64))
    }
}

#[cfg(test)]
mod tests;
