//! One segment: a `.log` file of batches and the indexes beside it.
//!
//! ```text
//! 00000000000000000000.log         batches as they were sent, one after another; the name is the base offset
//! 00000000000000000000.index       offset to position, sparse (see `index`)
//! 00000000000000000000.timeindex   timestamp to offset, sparse
//! 00000000000000000000.txnindex    aborted transactions, when there are any (see `segment::transactions`)
//! ```
//!
//! Owns: the bytes of the segment and finding batches in them. Refuses: offsets out of order, and unchecked
//! index entries: each is compared with its batch, and a wrong index is rebuilt.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thalweg_record::{BatchHeader, NO_TIMESTAMP, Offset};

use crate::checkpoint::TxnIndexSum;
use crate::disk::{self, Disk, LogFile};
use crate::index::{Index, OffsetEntry, TimeEntry};
use crate::scan::{self, BatchFault, BatchPlace, CorruptBatch, HeaderScan, ScanError};

mod compared;
mod length;
mod recent;
pub mod transactions;
mod write;

use compared::ComparedBatches;
pub use recent::{Boundary, RecentBatches};
pub use write::{Piece, WriteError};

/// The suffix of a segment's batches.
pub const LOG_SUFFIX: &str = ".log";
/// The suffix of the offset index.
pub const INDEX_SUFFIX: &str = ".index";
/// The suffix of the time index.
pub const TIME_INDEX_SUFFIX: &str = ".timeindex";
/// The suffix of the transaction index.
pub const TXN_INDEX_SUFFIX: &str = ".txnindex";
/// The suffix of a producer snapshot.
pub const SNAPSHOT_SUFFIX: &str = ".snapshot";
/// The suffix of a file marking that records from this offset on are missing without having been deleted, and
/// that the leader lacked them, too (see `partition/lost_mark.rs`).
pub const LOST_SUFFIX: &str = ".lost";
/// The suffix of an empty file marking that a start saw records missing between segments, from about this
/// offset on (see `partition/suspects.rs`).
pub const MISSING_SUFFIX: &str = ".missing";
/// The suffix of a file that will be deleted.
pub const DELETED_SUFFIX: &str = ".deleted";
/// The suffix of a file of a segment that was cut off the end of a log. Later segments may have its offsets,
/// so, unlike the name of a deleted segment, it is no sign of missing records there.
const CUT_SUFFIX: &str = ".cut.deleted";

/// The location of a partition's files.
#[derive(Clone, Debug)]
pub struct Home {
    pub disk: Disk,
    /// The partition's directory.
    pub dir: PathBuf,
    /// The suffix of every file name while segments are rewritten.
    name_suffix: &'static str,
}

impl Home {
    /// A directory on a disk.
    pub fn new(disk: Disk, dir: PathBuf) -> Home {
        Home { disk, dir, name_suffix: "" }
    }

    /// The same directory for work without the partition's lock: see [`Disk::beside_lock`].
    pub(crate) fn beside_lock(&self) -> Home {
        Home { disk: self.disk.beside_lock(), ..self.clone() }
    }

    /// The same directory, with this suffix on file names.
    pub(crate) fn with_suffix(&self, name_suffix: &'static str) -> Home {
        Home { name_suffix, ..self.clone() }
    }

    /// The path of the file that belongs to `offset`.
    pub fn file(&self, offset: Offset, suffix: &str) -> PathBuf {
        self.dir.join(format!("{:020}{suffix}{}", offset.0, self.name_suffix))
    }
}

/// Splits the name of a partition's file, as [`Home::file`] makes it, into its offset and its suffix.
pub(crate) fn split_name(name: &str) -> Option<(Offset, &str)> {
    let (digits, suffix) = name.split_at_checked(20)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((Offset(digits.parse().ok()?), suffix))
}

/// A segment of a partition.
#[derive(Debug)]
pub struct Segment {
    /// The offset that names the files; the first batch begins at or after it.
    pub base_offset: Offset,
    size_bytes: u64,
    file: Option<Arc<LogFile>>,
    offsets: Index<OffsetEntry>,
    times: Index<TimeEntry>,
    /// The state of the comparison of the index files with the log, since they were opened.
    indexes: IndexTrust,
    /// True if this process has rebuilt the indexes, so that another rebuild would not help.
    indexes_are_new: bool,
    /// True if there is a transaction index.
    has_txn_index: bool,
    /// Identity of the transaction index, once computed.
    txn_index_sum: Option<TxnIndexSum>,
    /// The largest timestamp and its offset; `None` until looked up.
    max_timestamp: Option<TimeEntry>,
    /// Timestamp of the last entry of the time index; `None` until looked up.
    last_time: Option<i64>,
    /// Max timestamp of the first batch; `None` until looked up.
    first_timestamp: Option<i64>,
    /// Time at which the segment was created or opened.
    pub created_ms: i64,
    bytes_since_index_entry: u64,
    recent: RecentBatches,
    ahead: write::Preallocation,
    compared: ComparedBatches,
    /// The batches below this position existed at the last check of the log.
    aged_to: u64,
    /// The fault of a file that another program has cut.
    shortened: Option<CorruptBatch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IndexTrust {
    /// The indexes were written by this process, or checked.
    Checked,
    /// The indexes were found on disk.
    Unchecked,
    /// The indexes are missing or wrong.
    Rebuild,
}

/// If a search passes more than this many batches, in more than this many bytes, the index is incomplete.
const SPARSE_BATCHES_MAX: usize = 1000;
const SPARSE_BYTES_MAX: u64 = 1024 * 1024;

/// The entry of a segment without batches, or without timestamps.
const NO_TIME: TimeEntry = TimeEntry { timestamp: NO_TIMESTAMP, relative_offset: 0 };

/// The files of a segment found on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoundFiles {
    /// True if `.log` exists.
    pub log: bool,
    /// True if `.index` exists.
    pub index: bool,
    /// True if `.timeindex` exists.
    pub time_index: bool,
    /// True if `.txnindex` exists.
    pub txn_index: bool,
}

impl Segment {
    /// Creates an empty segment: its `.log` file. The index files are created with their first entry.
    pub fn create(home: &Home, base_offset: Offset, now_ms: i64) -> io::Result<Segment> {
        let _allowed = disk::allow_waits("what is removed is not there, or empty");
        let file = create_file(home, base_offset).inspect_err(|_| {
            // A part of a segment would look like a segment at the next start.
            for path in Segment::paths(home, base_offset) {
                if let Err(error) = home.disk.remove(&path) {
                    tracing::warn!(path = %path.display(), %error, "Failed to remove an incomplete segment");
                }
            }
        })?;
        Ok(Segment {
            base_offset,
            size_bytes: 0,
            file: Some(Arc::new(file)),
            offsets: Index::new_empty(),
            times: Index::new_empty(),
            indexes: IndexTrust::Checked,
            indexes_are_new: true,
            has_txn_index: false,
            txn_index_sum: None,
            max_timestamp: Some(NO_TIME),
            last_time: Some(NO_TIMESTAMP),
            first_timestamp: None,
            created_ms: now_ms,
            bytes_since_index_entry: 0,
            recent: RecentBatches::after(None),
            ahead: write::Preallocation::default(),
            compared: ComparedBatches::default(),
            aged_to: 0,
            shortened: None,
        })
    }

    /// A segment found on disk. Only its length is looked up.
    pub fn found(home: &Home, base_offset: Offset, found: FoundFiles, now_ms: i64) -> io::Result<Segment> {
        let size_bytes = home.disk.facts(&home.file(base_offset, LOG_SUFFIX))?.len;
        let complete = found.index && found.time_index || size_bytes == 0;
        Ok(Segment {
            base_offset,
            size_bytes,
            file: None,
            offsets: if found.index { Index::unopened() } else { Index::new_empty() },
            times: if found.time_index { Index::unopened() } else { Index::new_empty() },
            indexes: if complete { IndexTrust::Unchecked } else { IndexTrust::Rebuild },
            indexes_are_new: false,
            has_txn_index: found.txn_index,
            txn_index_sum: None,
            max_timestamp: None,
            last_time: None,
            first_timestamp: None,
            created_ms: now_ms,
            bytes_since_index_entry: 0,
            recent: RecentBatches::after(Some(u32::MAX)),
            ahead: write::Preallocation::default(),
            compared: ComparedBatches::found(size_bytes),
            aged_to: size_bytes,
            shortened: None,
        })
    }

    /// Bytes of all batches.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// True if there is no batch.
    pub fn is_empty(&self) -> bool {
        self.size_bytes == 0
    }

    /// The `.log` file, opened if necessary.
    pub fn file(&mut self, home: &Home) -> io::Result<Arc<LogFile>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(home.disk.open(&home.file(self.base_offset, LOG_SUFFIX))?);
        if self.shortened.is_none() {
            self.compare_length(&file)?;
        }
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Closes the files and releases preallocated space and cached positions. Slices in transfer keep the
    /// file open.
    pub fn release(&mut self, home: &Home) -> io::Result<()> {
        self.write_indexes(home)?;
        self.close_files()?;
        self.recent.forget();
        Ok(())
    }

    /// Closes the index files, which a burst of reads may have opened.
    pub fn close_indexes(&mut self) {
        self.offsets.close();
        self.times.close();
    }

    /// True if an index was missing when the segment was found on disk, and was not rebuilt.
    pub fn lacks_index(&self) -> bool {
        self.indexes == IndexTrust::Rebuild
    }

    /// The offset of the last entry of the index, if there is one. The entry is not compared with the log.
    pub fn last_indexed(&mut self, home: &Home) -> io::Result<Option<Offset>> {
        if self.lacks_index() || self.offsets.is_missing() {
            return Ok(None);
        }
        let last = self.offsets.last(&home.disk, &home.file(self.base_offset, INDEX_SUFFIX))?;
        self.offsets.close();
        Ok(last.map(|entry| self.base_offset + i64::from(entry.relative_offset)))
    }

    /// True if any of the files is open.
    pub fn is_open(&self) -> bool {
        self.file.is_some()
    }

    fn relative(&self, offset: Offset) -> u32 {
        u32::try_from((offset - self.base_offset).max(0)).unwrap_or(u32::MAX)
    }

    /// The position of the first batch whose last offset is not below `offset`; `None` if all are below it.
    pub fn locate(&mut self, home: &Home, offset: Offset) -> Result<Option<Boundary>, ScanError> {
        let target = self.relative(offset);
        if let Some(found) = self.recent.find(target) {
            return Ok(found);
        }
        let from = self.lookup(home, |entry| entry.relative_offset <= target)?;
        let file = self.file(home)?;
        let mut scan = HeaderScan::new(&file, from, self.size_bytes);
        let mut passed = 0;
        let mut found = None;
        while let Some(batch) = scan.next()? {
            if batch.header.last_offset() >= offset {
                found = Some(batch);
                break;
            }
            passed += 1;
        }
        let end = found.map_or(self.size_bytes, |batch| batch.position);
        if passed > SPARSE_BATCHES_MAX && end - from > SPARSE_BYTES_MAX && !self.indexes_are_new {
            self.rebuild_indexes(home)?;
        }
        Ok(found.map(|batch| self.boundary(&batch)))
    }

    /// The last batch boundary at or before `limit`, which is inside the segment and not before `from`,
    /// itself a boundary.
    pub fn boundary_before(&mut self, home: &Home, from: u64, limit: u64) -> Result<Boundary, ScanError> {
        if let Some(found) = self.recent.last_at_or_before(limit) {
            return Ok(found);
        }
        let known = self.lookup(home, |entry| u64::from(entry.position) <= limit)?.max(from);
        let file = self.file(home)?;
        let mut scan = HeaderScan::new(&file, known, self.size_bytes);
        let mut boundary = Boundary { position: known, relative_base: 0 };
        while let Some(batch) = scan.next()? {
            if batch.position > limit {
                break;
            }
            boundary = self.boundary(&batch);
            if batch.end() > limit {
                break;
            }
        }
        Ok(boundary)
    }

    fn boundary(&self, batch: &BatchPlace) -> Boundary {
        Boundary { position: batch.position, relative_base: self.relative(batch.header.base_offset) }
    }

    /// The batch that begins at `position`.
    pub fn batch_at(&mut self, home: &Home, position: u64) -> Result<Option<BatchPlace>, ScanError> {
        let file = self.file(home)?;
        HeaderScan::new(&file, position, self.size_bytes).next()
    }

    /// The header of the first batch whose last offset is not below `offset`.
    pub fn batch_with(&mut self, home: &Home, offset: Offset) -> Result<Option<BatchHeader>, ScanError> {
        let Some(found) = self.locate(home, offset)? else { return Ok(None) };
        Ok(self.batch_at(home, found.position)?.map(|batch| batch.header))
    }

    /// Checks, in one read, the header of the batch that begins at `position` and contains `offset`, or
    /// begins after it. The batch's offsets must be below `limit`.
    pub fn check_header(
        &mut self,
        home: &Home,
        position: u64,
        offset: Offset,
        limit: Offset,
    ) -> Result<(), ScanError> {
        let mut bytes = [0; BatchHeader::LEN];
        let read = self.file(home)?.read_at(&mut bytes, position)?;
        let corrupt = |reason| CorruptBatch { position, reason };
        let available = self.size_bytes.saturating_sub(position);
        let header = scan::whole_header(&bytes[..read], available).map_err(corrupt)?;
        let (first, last) = (header.base_offset, header.last_offset());
        if first < self.base_offset || last < offset.max(first) || last >= limit {
            let expected = self.base_offset.max(offset);
            return Err(corrupt(BatchFault::out_of_order(&header, expected)).into());
        }
        Ok(())
    }

    /// The start of a batch that is not after the one with `offset`.
    pub fn position_not_behind(&mut self, home: &Home, offset: Offset) -> Result<u64, ScanError> {
        let target = self.relative(offset);
        self.lookup(home, |entry| entry.relative_offset <= target)
    }

    /// The position in the last index entry that satisfies `holds`; 0 without one. An entry that does not
    /// match the log triggers a rebuild of the indexes.
    fn lookup(&mut self, home: &Home, holds: impl Fn(&OffsetEntry) -> bool) -> Result<u64, ScanError> {
        self.check_indexes(home)?;
        let path = home.file(self.base_offset, INDEX_SUFFIX);
        let Some(entry) = self.offsets.last_where(&home.disk, &path, &holds)? else { return Ok(0) };
        if self.fits(home, &entry)? {
            return Ok(u64::from(entry.position));
        }
        // The batch may be wrong instead of the index: the previous entry leads to it, too.
        let before = |found: &OffsetEntry| holds(found) && found.position < entry.position;
        if let Some(before) = self.offsets.last_where(&home.disk, &path, before)?
            && self.fits(home, &before)?
        {
            return Ok(u64::from(before.position));
        }
        self.rebuild_indexes(home)?;
        let entry = self.offsets.last_where(&home.disk, &path, &holds)?;
        Ok(entry.map_or(0, |entry| u64::from(entry.position)))
    }

    /// True if an entry matches the batch at its position.
    fn fits(&mut self, home: &Home, entry: &OffsetEntry) -> io::Result<bool> {
        let file = self.file(home)?;
        match HeaderScan::new(&file, u64::from(entry.position), self.size_bytes).next() {
            Ok(Some(batch)) => {
                let expected = self.base_offset.0 + i64::from(entry.relative_offset);
                Ok(batch.header.last_offset().0 == expected && batch.header.base_offset >= self.base_offset)
            }
            Ok(None) | Err(ScanError::Corrupt(_)) => Ok(false),
            Err(ScanError::Io(error)) => Err(error),
        }
    }

    /// Checks the indexes before their first use: their length, and the match of their last entries with the
    /// log.
    fn check_indexes(&mut self, home: &Home) -> Result<(), ScanError> {
        if self.indexes == IndexTrust::Checked {
            return Ok(());
        }
        if self.indexes == IndexTrust::Unchecked && self.indexes_look_right(home)? {
            self.indexes = IndexTrust::Checked;
            return Ok(());
        }
        self.rebuild_indexes(home)
    }

    fn indexes_look_right(&mut self, home: &Home) -> io::Result<bool> {
        let (disk, base) = (&home.disk, self.base_offset);
        let (offsets_path, times_path) = (home.file(base, INDEX_SUFFIX), home.file(base, TIME_INDEX_SUFFIX));
        let whole = self.offsets.has_whole_entries(disk, &offsets_path)?
            && self.times.has_whole_entries(disk, &times_path)?;
        if !whole {
            return Ok(false);
        }
        if let Some(last) = self.offsets.last(disk, &offsets_path)?
            && !self.fits(home, &last)?
        {
            return Ok(false);
        }
        match self.times.last(disk, &times_path)? {
            Some(last) => self.time_fits(home, &last),
            // A segment of batches without timestamps has an empty time index, and so has a segment that lost
            // the file.
            None => Ok(self.size_bytes == 0),
        }
    }

    /// True if the batch of a time index entry has the entry's timestamp.
    fn time_fits(&mut self, home: &Home, entry: &TimeEntry) -> io::Result<bool> {
        let path = home.file(self.base_offset, INDEX_SUFFIX);
        let nearest = self
            .offsets
            .last_where(&home.disk, &path, |offset| offset.relative_offset <= entry.relative_offset)?;
        let from = match nearest {
            Some(nearest) if self.fits(home, &nearest)? => u64::from(nearest.position),
            Some(_) => return Ok(false),
            None => 0,
        };
        let file = self.file(home)?;
        let mut scan = HeaderScan::new(&file, from, self.size_bytes);
        loop {
            match scan.next() {
                Ok(Some(batch)) if self.relative(batch.header.last_offset()) >= entry.relative_offset => {
                    return Ok(batch.header.max_timestamp == entry.timestamp);
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(ScanError::Corrupt(_)) => return Ok(false),
                Err(ScanError::Io(error)) => return Err(error),
            }
        }
    }

    /// Rebuilds both indexes from the headers of the log.
    pub fn rebuild_indexes(&mut self, home: &Home) -> Result<(), ScanError> {
        tracing::warn!(
            path = %home.file(self.base_offset, INDEX_SUFFIX).display(),
            "Index does not match the log, rebuilding it"
        );
        self.reset_indexes();
        // Remembered batches may be used; damaged ones must not.
        let recent = std::mem::take(&mut self.recent);
        let indexed = self.index_all(home);
        self.recent = recent;
        indexed?;
        self.append_max_timestamp(home);
        let written = self.write_indexes(home);
        home.disk.unless_full(written)?;
        Ok(())
    }

    fn index_all(&mut self, home: &Home) -> Result<(), ScanError> {
        let file = self.file(home)?;
        let mut scan = HeaderScan::new(&file, 0, self.size_bytes);
        while let Some(batch) = scan.next()? {
            self.index_batch(home, batch.position, &batch.header, write::INDEX_INTERVAL_DEFAULT);
        }
        Ok(())
    }

    /// Writes buffered index entries to their files. Entries that do not fit on the disk stay buffered. A
    /// segment that never had a batch gets no index files until the log is closed: there may be thousands of
    /// such partitions.
    fn write_indexes(&mut self, home: &Home) -> io::Result<()> {
        if self.is_empty() && self.offsets.is_missing() && self.times.is_missing() {
            return Ok(());
        }
        self.complete_files(home)
    }

    /// Creates the index files of a segment that never had a batch. Apache Kafka, if it takes over the
    /// directory, logs a warning for each missing file.
    pub fn complete_files(&mut self, home: &Home) -> io::Result<()> {
        self.offsets.write_pending(&home.disk, &home.file(self.base_offset, INDEX_SUFFIX))?;
        self.times.write_pending(&home.disk, &home.file(self.base_offset, TIME_INDEX_SUFFIX))
    }

    /// Empties both indexes before the batches are indexed again.
    pub fn reset_indexes(&mut self) {
        self.offsets.reset();
        self.times.reset();
        self.indexes = IndexTrust::Checked;
        self.indexes_are_new = true;
        self.max_timestamp = Some(NO_TIME);
        self.last_time = Some(NO_TIMESTAMP);
        self.first_timestamp = None;
        self.bytes_since_index_entry = 0;
    }

    /// The largest timestamp and the offset of its batch; -1 if no batch has a timestamp.
    pub fn max_timestamp(&mut self, home: &Home) -> Result<(i64, Offset), ScanError> {
        let entry = self.max_time_entry(home)?;
        Ok((entry.timestamp, self.base_offset + i64::from(entry.relative_offset)))
    }

    fn max_time_entry(&mut self, home: &Home) -> Result<TimeEntry, ScanError> {
        if let Some(known) = self.max_timestamp {
            return Ok(known);
        }
        self.check_indexes(home)?;
        if let Some(known) = self.max_timestamp {
            return Ok(known);
        }
        let path = home.file(self.base_offset, TIME_INDEX_SUFFIX);
        let last = self.times.last(&home.disk, &path)?.unwrap_or(NO_TIME);
        self.last_time = Some(last.timestamp);
        let max = self.newest_after(home, last)?;
        self.max_timestamp = Some(max);
        Ok(max)
    }

    /// The newest timestamp of the segment, given `entry`, the last of its time index. The index may be
    /// incomplete, so the batches after the entry are checked: few, unless timestamps do not increase.
    fn newest_after(&mut self, home: &Home, entry: TimeEntry) -> Result<TimeEntry, ScanError> {
        let mut max = entry;
        let from = self.lookup(home, |offset| offset.relative_offset <= entry.relative_offset)?;
        let file = self.file(home)?;
        let mut scan = HeaderScan::new(&file, from, self.size_bytes);
        while let Some(batch) = scan.next()? {
            if batch.header.max_timestamp > max.timestamp {
                let relative_offset = self.relative(batch.header.last_offset());
                max = TimeEntry { timestamp: batch.header.max_timestamp, relative_offset };
            }
        }
        Ok(max)
    }

    /// Max timestamp of the first batch; `None` if there is no batch.
    pub fn first_timestamp(&mut self, home: &Home) -> Result<Option<i64>, ScanError> {
        if self.first_timestamp.is_none() && !self.is_empty() {
            self.first_timestamp = self.batch_at(home, 0)?.map(|batch| batch.header.max_timestamp);
        }
        Ok(self.first_timestamp)
    }

    /// The time of the last change of the `.log` file, for retention of batches without timestamps.
    pub fn modified_ms(&self, home: &Home) -> io::Result<i64> {
        Ok(home.disk.facts(&home.file(self.base_offset, LOG_SUFFIX))?.modified_ms)
    }

    /// The position to start searching for the first record at or after `timestamp` and not below `from`.
    pub fn position_for_timestamp(
        &mut self,
        home: &Home,
        timestamp: i64,
        from: Offset,
    ) -> Result<u64, ScanError> {
        self.check_indexes(home)?;
        let path = home.file(self.base_offset, TIME_INDEX_SUFFIX);
        // All records up to the entry's offset are at most as new as the entry.
        let mut entry = self.times.last_where(&home.disk, &path, |entry| entry.timestamp < timestamp)?;
        if let Some(found) = entry
            && !self.time_fits(home, &found)?
        {
            self.rebuild_indexes(home)?;
            entry = self.times.last_where(&home.disk, &path, |entry| entry.timestamp < timestamp)?;
        }
        let target = entry.map_or(0, |entry| entry.relative_offset).max(self.relative(from));
        self.lookup(home, |entry| entry.relative_offset <= target)
    }

    /// The offset after the last batch, found by walking from the last index entry on. Also loads state for
    /// later appends: the newest timestamp and the distance of the last index entry.
    pub fn read_next_offset(&mut self, home: &Home) -> Result<Offset, ScanError> {
        if self.is_empty() {
            self.recent = RecentBatches::after(None);
            return Ok(self.base_offset);
        }
        let from = self.lookup(home, |_| true)?;
        let file = self.file(home)?;
        let mut scan = HeaderScan::new(&file, from, self.size_bytes);
        let mut next = self.base_offset;
        while let Some(batch) = scan.next()? {
            check_order(&batch, next)?;
            next = batch.header.next_offset();
        }
        self.bytes_since_index_entry = self.size_bytes - from;
        self.recent = RecentBatches::after(Some(self.relative(next - 1)));
        Ok(next)
    }

    /// True if an index has reached its limit, as far as the number of entries is known.
    pub fn indexes_full(&self, index_bytes_max: u32) -> bool {
        let max = index_bytes_max as usize;
        self.offsets.count_known() >= max / 8 || self.times.count_known() >= (max / 12).saturating_sub(1)
    }

    /// True if an offset can be expressed relative to the base offset.
    pub fn can_hold(&self, offset: Offset) -> bool {
        (0..=i64::from(i32::MAX)).contains(&(offset - self.base_offset))
    }

    /// The paths of the files that a segment at `base_offset` can have.
    pub fn paths(home: &Home, base_offset: Offset) -> [PathBuf; 4] {
        [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX]
            .map(|suffix| home.file(base_offset, suffix))
    }

    fn close_files(&mut self) -> io::Result<()> {
        self.close_indexes();
        match self.file.take() {
            Some(file) => self.ahead.release(&file, self.size_bytes),
            None => Ok(()),
        }
    }

    /// Takes the files of the segment out of the log (see [`take_out`]), and returns the paths that wait for
    /// removal. `.log` is first: after an error it still exists, and the segment is whole. The producer
    /// snapshot at the base offset stays.
    pub fn mark_deleted(&mut self, home: &Home) -> io::Result<Vec<PathBuf>> {
        self.close_indexes();
        self.file = None;
        let mut waiting = Vec::new();
        let paths = Segment::paths(home, self.base_offset);
        for path in &paths {
            match take_out_with(home, path, DELETED_SUFFIX, &paths[1..]) {
                Ok(renamed) => waiting.extend(renamed),
                Err(error) if path.extension().is_some_and(|end| end == &LOG_SUFFIX[1..]) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "Failed to rename the index of a deleted segment, removing it later");
                    waiting.push(path.clone());
                }
            }
        }
        Ok(waiting)
    }

    /// Takes out the files of a segment that is cut off the end of the log. `.log` is last, because its new
    /// name does not explain an index without a log; after an error it still exists, and its indexes are
    /// rebuilt.
    pub fn mark_cut(&mut self, home: &Home) -> io::Result<Vec<PathBuf>> {
        self.close_indexes();
        self.file = None;
        let mut waiting = Vec::new();
        let paths = Segment::paths(home, self.base_offset);
        for path in paths.iter().rev() {
            waiting.extend(take_out_with(home, path, CUT_SUFFIX, &paths[1..])?);
        }
        Ok(waiting)
    }

    /// Moves all files of the segment to another directory, with the producer snapshot at the base offset.
    /// `.log` is first: after an error there, the segment is whole.
    pub fn move_to(&mut self, home: &Home, dir: &Path) -> io::Result<()> {
        let there = Home { dir: dir.to_owned(), ..home.clone() };
        self.close_files()?;
        for suffix in [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX] {
            let (from, to) = (home.file(self.base_offset, suffix), there.file(self.base_offset, suffix));
            match home.disk.rename(&from, &to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // The other files can be rebuilt from the batches. A remaining index would be a sign of
                // missing records.
                Err(error) if suffix != LOG_SUFFIX => {
                    let _allowed = disk::allow_waits("its segment is not there any more");
                    let removed = home.disk.remove(&from);
                    let is_removed = removed.is_ok();
                    tracing::warn!(path = %from.display(), %error, is_removed, "Failed to set aside a file beside its segment");
                }
                moved => moved?,
            }
        }
        Ok(())
    }
}

/// The name of a file that waits for removal.
pub fn deleted_name(path: &Path) -> PathBuf {
    with_suffix(path, DELETED_SUFFIX)
}

/// The base offset of a deleted segment, from the `.deleted` name of its `.log`.
pub fn deleted_base(path: &Path) -> Option<Offset> {
    let name = path.file_name()?.to_str()?.strip_suffix(DELETED_SUFFIX)?;
    split_name(name).filter(|(_, suffix)| *suffix == LOG_SUFFIX).map(|(base, _)| base)
}

/// The name of a file that waits for removal, for a segment that was cut off the end of a log.
pub fn cut_name(path: &Path) -> PathBuf {
    with_suffix(path, CUT_SUFFIX)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Takes a file out of the log: it is renamed to end with `.deleted`, and removed later. Returns the new
/// name. On a disk without room for another name, the file is removed at once. A missing file is not an
/// error.
pub fn take_out(home: &Home, path: &Path) -> io::Result<Option<PathBuf>> {
    take_out_with(home, path, DELETED_SUFFIX, &[])
}

/// Takes out the file of a segment with these indexes. A file that is removed at once goes after the indexes,
/// because an index without its log is a sign of missing records.
fn take_out_with(home: &Home, path: &Path, suffix: &str, indexes: &[PathBuf]) -> io::Result<Option<PathBuf>> {
    let renamed = with_suffix(path, suffix);
    match home.disk.rename(path, &renamed) {
        Ok(()) => Ok(Some(renamed)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if disk::is_disk_full(&error) => {
            let _allowed = disk::allow_waits("nothing can be appended until there is room");
            tracing::warn!(path = %path.display(), %error, "Failed to rename a file to delete it later, removing it at once");
            indexes.iter().try_for_each(|index| home.disk.remove(index))?;
            home.disk.remove(path).map(|()| None)
        }
        Err(error) => Err(error),
    }
}

/// Removes the segments from `index` on, last first and durably: if a power failure restored them, they would
/// follow newer batches. Returns the paths that wait for removal. A segment that cannot be removed stays,
/// with the earlier ones.
pub fn drop_from(segments: &mut Vec<Segment>, index: usize, home: &Home) -> io::Result<Vec<PathBuf>> {
    let mut renamed = Vec::new();
    while segments.len() > index {
        let last = segments.last_mut().expect("there are more than `index`");
        renamed.extend(last.mark_cut(home)?);
        segments.pop();
    }
    if !renamed.is_empty() {
        home.disk.sync_dir(&home.dir)?;
    }
    Ok(renamed)
}

/// Creates the file for the batches of an empty segment. An existing transaction index of that name belongs
/// to another segment.
fn create_file(home: &Home, base_offset: Offset) -> io::Result<LogFile> {
    let file = home.disk.open_or_create(&home.file(base_offset, LOG_SUFFIX))?;
    file.trim(0)?;
    home.disk.remove(&home.file(base_offset, TXN_INDEX_SUFFIX))?;
    Ok(file)
}

/// Refuses a batch whose offsets do not follow.
pub fn check_order(batch: &BatchPlace, expected: Offset) -> Result<(), CorruptBatch> {
    let header: &BatchHeader = &batch.header;
    let rises = header.last_offset_delta >= 0 && header.base_offset >= expected && header.base_offset.0 >= 0;
    if rises && header.last_offset().0 < i64::MAX {
        return Ok(());
    }
    Err(CorruptBatch { position: batch.position, reason: BatchFault::out_of_order(header, expected) })
}
