//! Appending to a segment, truncating it, and reserving space ahead of its end.
//!
//! Owns: cleaning up after a failed write: the file is truncated to the last complete append. Refuses:
//! further appends if that fails.

use std::io::{self, IoSlice};
use std::sync::LazyLock;

use thalweg_record::{BatchHeader, Offset};

use super::{Home, INDEX_SUFFIX, IndexTrust, NO_TIME, RecentBatches, Segment, TIME_INDEX_SUFFIX};
use crate::config::LogConfig;
use crate::disk::{self, LogFile};
use crate::index::{OffsetEntry, TimeEntry};
use crate::scan::{CorruptBatch, ScanError};

/// The index interval for rebuilding an index without the topic's settings.
pub(super) const INDEX_INTERVAL_DEFAULT: u32 = 4096;

/// Minimum bytes that a partition must have written since it was opened before space is reserved: a thousand
/// quiet partitions must not hold a thousand times 64 MB.
const PREALLOCATE_AFTER_BYTES: u64 = 1024 * 1024;

/// A piece of a gather write.
pub type Piece<'a> = IoSlice<'a>;

/// Why an append failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk is full; the segment is unchanged, and the next append may succeed.
    #[error("the disk is full: {0}")]
    DiskFull(io::Error),
    /// Another program has cut the file.
    #[error(transparent)]
    Shortened(CorruptBatch),
    /// The write failed; the bytes beyond the known end of the file are undefined.
    #[error("the write failed: {0}")]
    Failed(io::Error),
}

/// Maximum size of appends for which pages are created ahead.
///
/// The kernel creates pages as large as the write that first touches them. A file that grows by small appends
/// consists of single pages, and creating those costs three times the copy into them.
const SMALL_APPEND_BYTES_MAX: u64 = 64 * 1024;

/// Pages are created up to a multiple of this size.
const PAGES_BYTES: u64 = 128 * 1024;

/// Source of the zeros. Never written, so it takes no memory.
static ZEROS: LazyLock<Box<[u8]>> = LazyLock::new(|| vec![0; PAGES_BYTES as usize].into());

/// Space ready beyond the last batch: reserved blocks beyond the end of the file, and zeros within it.
#[derive(Debug, Default)]
pub(super) struct Preallocation {
    reserved_to: u64,
    /// The file may have zeros up to this position.
    zeroed_to: u64,
    /// The file has zeros up to this position.
    zeros_end: u64,
    grown_bytes: u64,
    refused: bool,
}

impl Preallocation {
    /// Prepares space for the next write. Errors are ignored: the write itself will report them.
    fn before_write(&mut self, file: &LogFile, size_bytes: u64, incoming: u64, config: &LogConfig) {
        self.grown_bytes += incoming;
        if self.refused || config.preallocate_bytes == 0 || self.grown_bytes < PREALLOCATE_AFTER_BYTES {
            return;
        }
        let made = self.reserve(file, size_bytes, incoming, config).and_then(|()| {
            // With a sync for each append, the zeros would be written to the disk too.
            let few_syncs = config.flush_messages == i64::MAX;
            let wanted = few_syncs && incoming <= SMALL_APPEND_BYTES_MAX;
            if wanted { self.make_pages(file, size_bytes, incoming) } else { Ok(()) }
        });
        if let Err(error) = made {
            tracing::debug!(%error, "Failed to preallocate space at the end of a segment");
            self.refused = true;
        }
    }

    fn reserve(
        &mut self,
        file: &LogFile,
        size_bytes: u64,
        incoming: u64,
        config: &LogConfig,
    ) -> io::Result<()> {
        let ahead = self.grown_bytes.next_power_of_two().min(u64::from(config.preallocate_bytes));
        let target = (size_bytes + ahead).min(u64::from(config.segment_bytes));
        if size_bytes + incoming > self.reserved_to && target > size_bytes + incoming {
            file.preallocate(size_bytes, target - size_bytes)?;
            self.reserved_to = target;
        }
        Ok(())
    }

    /// Writes zeros from the end of the file to the next multiple after the incoming bytes.
    fn make_pages(&mut self, file: &LogFile, size_bytes: u64, incoming: u64) -> io::Result<()> {
        let end = size_bytes + incoming;
        if end <= self.zeroed_to {
            return Ok(());
        }
        let mut from = self.zeroed_to.max(size_bytes);
        // Set before the writes: after an error, a part of the zeros may exist.
        self.zeroed_to = end.next_multiple_of(PAGES_BYTES);
        while from < self.zeroed_to {
            let len = (self.zeroed_to - from).min(PAGES_BYTES - from % PAGES_BYTES);
            file.write_all_at(&ZEROS[..usize::try_from(len).expect("at most all zeros")], from)?;
            from += len;
            self.zeros_end = from;
        }
        Ok(())
    }

    /// True if the file is longer than its batches.
    fn has_zeros(&self, size_bytes: u64) -> bool {
        self.zeroed_to > size_bytes
    }

    /// The end position of the zeros.
    pub(super) fn zeros_end(&self) -> u64 {
        self.zeros_end
    }

    /// Releases space beyond the last batch.
    pub(super) fn release(&mut self, file: &LogFile, size_bytes: u64) -> io::Result<()> {
        if self.reserved_to.max(self.zeroed_to) > size_bytes {
            file.cut(size_bytes)?;
        }
        *self = Preallocation::default();
        Ok(())
    }
}

impl Segment {
    /// Writes whole batches to the end, in one gather write, and indexes them. `headers` are the headers of
    /// the batches as stored.
    pub fn append<'h>(
        &mut self,
        home: &Home,
        config: &LogConfig,
        pieces: &mut [Piece<'_>],
        headers: impl Iterator<Item = &'h BatchHeader>,
    ) -> Result<(), WriteError> {
        let incoming: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let file = self.file(home).map_err(WriteError::Failed)?;
        let grows = self.size_bytes + incoming > self.ahead.zeros_end;
        if (grows || self.shortened.is_some())
            && let Some(fault) = self.check_length().map_err(WriteError::Failed)?
        {
            return Err(WriteError::Shortened(fault));
        }
        self.ahead.before_write(&file, self.size_bytes, incoming, config);
        if let Err(error) = file.write_gathered_at(pieces, self.size_bytes) {
            return Err(self.undo_write(&file, error));
        }
        let mut position = self.size_bytes;
        self.size_bytes += incoming;
        for header in headers {
            self.index_batch(home, position, header, config.index_interval_bytes);
            position += header.size_bytes() as u64;
        }
        debug_assert_eq!(position, self.size_bytes, "the headers describe the pieces");
        Ok(())
    }

    /// True if the file is longer than its batches.
    pub fn has_zeros(&self) -> bool {
        self.ahead.has_zeros(self.size_bytes)
    }

    /// Truncates the file to its batches.
    pub fn trim(&mut self, home: &Home) -> io::Result<()> {
        let file = self.file(home)?;
        self.ahead.release(&file, self.size_bytes)
    }

    fn undo_write(&mut self, file: &LogFile, error: io::Error) -> WriteError {
        if let Err(cut) = file.cut(self.size_bytes) {
            tracing::error!(%error, %cut, "Failed to truncate a segment after a failed write");
            return WriteError::Failed(cut);
        }
        self.ahead = Preallocation::default();
        if disk::is_disk_full(&error) { WriteError::DiskFull(error) } else { WriteError::Failed(error) }
    }

    /// Records the position of a batch: in memory, and in the indexes if the last entry is far enough back.
    pub fn index_batch(&mut self, home: &Home, position: u64, header: &BatchHeader, interval_bytes: u32) {
        let relative_offset = self.relative(header.last_offset());
        if self.first_timestamp.is_none() && position == 0 {
            self.first_timestamp = Some(header.max_timestamp);
        }
        let max = self.max_timestamp.get_or_insert(NO_TIME);
        if header.max_timestamp > max.timestamp {
            *max = TimeEntry { timestamp: header.max_timestamp, relative_offset };
        }
        // Only a file above the allowed size has batches beyond the range of an index.
        let Ok(position) = u32::try_from(position) else { return };
        if self.bytes_since_index_entry > u64::from(interval_bytes) {
            let path = || home.file(self.base_offset, INDEX_SUFFIX);
            self.offsets.push(&home.disk, path, OffsetEntry { relative_offset, position });
            self.append_max_timestamp(home);
            self.bytes_since_index_entry = 0;
        }
        self.bytes_since_index_entry += header.size_bytes() as u64;
        self.recent.push(self.relative(header.base_offset), relative_offset, position);
    }

    /// Reads the newest timestamp and the last entry of the time index, before the first append after
    /// opening. A damaged batch found meanwhile does not block appends: the known timestamps suffice. Its
    /// fault is returned once.
    pub fn prepare_append(&mut self, home: &Home) -> io::Result<Option<CorruptBatch>> {
        if self.max_timestamp.is_some() {
            return Ok(None);
        }
        let fault = match self.max_time_entry(home) {
            Ok(_) => None,
            Err(ScanError::Io(error)) => return Err(error),
            Err(ScanError::Corrupt(fault)) => {
                let path = home.file(self.base_offset, TIME_INDEX_SUFFIX);
                let last = self.times.last(&home.disk, &path)?.unwrap_or(NO_TIME);
                self.last_time = Some(last.timestamp);
                self.max_timestamp = Some(last);
                Some(fault)
            }
        };
        self.close_indexes();
        Ok(fault)
    }

    /// Adds the newest timestamp to the time index, if newer than the last entry.
    pub(super) fn append_max_timestamp(&mut self, home: &Home) {
        let Some(max) = self.max_timestamp else { return };
        let path = || home.file(self.base_offset, TIME_INDEX_SUFFIX);
        let last = match self.last_time {
            Some(last) => last,
            None => match self.times.last(&home.disk, &path()) {
                Ok(last) => last.map_or(NO_TIME.timestamp, |entry| entry.timestamp),
                Err(error) => {
                    tracing::warn!(path = %path().display(), %error, "Failed to read a time index");
                    return;
                }
            },
        };
        self.last_time = Some(last);
        if max.timestamp > last {
            self.times.push(&home.disk, path, max);
            self.last_time = Some(max.timestamp);
        }
    }

    /// Finishes writing to this segment: adds the last time index entry, writes the indexes, releases
    /// reserved space. The `.log` file stays open for readers.
    pub fn finish(&mut self, home: &Home) -> io::Result<()> {
        if self.indexes == IndexTrust::Checked {
            self.append_max_timestamp(home);
        }
        let written = self.write_indexes(home);
        self.close_indexes();
        if let Some(file) = &self.file {
            self.ahead.release(file, self.size_bytes)?;
        }
        written
    }

    /// Truncates the file at `size_bytes`, the end of a batch, regardless of the indexes.
    pub fn cut(&mut self, home: &Home, size_bytes: u64) -> io::Result<()> {
        let file = self.file(home)?;
        if self.shortened.is_some() && file.len()? < size_bytes {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "something else has cut the file"));
        }
        self.shortened = None;
        if size_bytes < self.size_bytes || self.has_zeros() {
            file.set_len(size_bytes)?;
        } else {
            file.release_beyond_end()?;
        }
        self.ahead = Preallocation::default();
        self.size_bytes = size_bytes;
        self.compared.cut(size_bytes);
        self.aged_to = self.aged_to.min(size_bytes);
        Ok(())
    }

    /// Drops the batches from the one that contains `offset` on. Returns the number of bytes dropped.
    pub fn truncate(&mut self, home: &Home, offset: Offset) -> Result<u64, ScanError> {
        let Some(boundary) = self.locate(home, offset)? else { return Ok(0) };
        let cut_bytes = self.size_bytes - boundary.position;
        if let Some(fault) = self.prepare_append(home)? {
            return Err(fault.into());
        }
        let (disk, target) = (&home.disk, self.relative(offset));
        let path = home.file(self.base_offset, INDEX_SUFFIX);
        let kept = self.offsets.count_where(disk, &path, |entry| entry.relative_offset < target)?;
        self.offsets.truncate(disk, &path, kept)?;
        let path = home.file(self.base_offset, TIME_INDEX_SUFFIX);
        let kept = self.times.count_where(disk, &path, |entry| entry.relative_offset < target)?;
        self.times.truncate(disk, &path, kept)?;
        self.truncate_transactions(home, offset)?;
        self.cut(home, boundary.position)?;
        // If the batches reappeared after a power failure while newer ones were missing, the log would have a
        // state that never existed.
        self.file(home)?.sync_data()?;
        self.bytes_since_index_entry = 0;
        self.first_timestamp = None;
        let before = if self.is_empty() { None } else { Some(target.saturating_sub(1)) };
        self.recent = RecentBatches::after(before);
        self.reload_max_timestamp(home)?;
        Ok(cut_bytes)
    }

    fn reload_max_timestamp(&mut self, home: &Home) -> Result<(), ScanError> {
        let path = home.file(self.base_offset, TIME_INDEX_SUFFIX);
        let last = self.times.last(&home.disk, &path)?.unwrap_or(NO_TIME);
        self.last_time = Some(last.timestamp);
        self.max_timestamp = Some(self.newest_after(home, last)?);
        Ok(())
    }
}
