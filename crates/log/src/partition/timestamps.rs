//! Finding records by their time, and the time of a record by its offset.
//!
//! Owns: the answers to ListOffsets, also within compressed batches. A search alternates: under the
//! partition's lock it finds the segment and the position ([`PartitionLog::search_on`]); without the lock it
//! reads and decompresses batches ([`RecordScan::run`]). Refuses: the client's upper bound; the caller
//! compares the answer with it.

use std::path::Path;
use std::sync::Arc;

use thalweg_record::{
    Batch, BatchHeader, DecompressBuffer, LeaderEpoch, NO_TIMESTAMP, Offset, RecordError, TimestampType,
};

use super::PartitionLog;
use super::error::LogError;
use crate::disk::{LogFile, check_may_wait};
use crate::scan::{BatchFault, BatchPlace, CorruptBatch, HeaderScan};

/// Maximum number of segments checked in one turn under the lock: after a start, each costs reads of its
/// index.
const SEGMENTS_PER_TURN: usize = 32;
/// Maximum number of control batches passed in a search by offset. Bounds its reads in a log with few data
/// records among many markers of transactions.
const CONTROL_BATCHES_MAX: usize = 1000;

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedOffset {
    /// The record's offset.
    pub offset: Offset,
    /// The record's timestamp.
    pub timestamp: i64,
    /// The leader epoch of the record; `None` if the batch has none.
    pub leader_epoch: Option<LeaderEpoch>,
}

/// A search for a record by its time.
#[derive(Debug)]
pub struct TimestampSearch {
    wanted: TimestampTarget,
    /// Segments below this offset are done.
    next: Offset,
    /// The largest timestamp in the finished segments, and its offset.
    newest: Option<(i64, Offset)>,
    /// The log's count of rewrites when the search began.
    rewrites: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum TimestampTarget {
    /// The first record with this time or a later one.
    NotBefore(i64),
    /// The first of the records with the largest timestamp.
    Newest,
    /// The first data record at or after this offset.
    From(Offset),
}

impl TimestampSearch {
    /// The first record, at or after the log start, whose timestamp is not below `timestamp`.
    pub fn not_before(timestamp: i64) -> TimestampSearch {
        TimestampSearch::new(TimestampTarget::NotBefore(timestamp))
    }

    /// The first of the records with the largest timestamp (ListOffsets' -3).
    pub fn newest() -> TimestampSearch {
        TimestampSearch::new(TimestampTarget::Newest)
    }

    /// The first data record at or after `offset` and the log start. Costs the header of its batch, and the
    /// records of the batch only if `offset` is inside it.
    pub fn from_offset(offset: Offset) -> TimestampSearch {
        TimestampSearch::new(TimestampTarget::From(offset))
    }

    fn new(wanted: TimestampTarget) -> TimestampSearch {
        TimestampSearch { wanted, next: Offset::ZERO, newest: None, rewrites: None }
    }

    /// Takes the newest timestamp of more batches, and its offset. Earlier batches come first.
    pub fn take(&mut self, newest: Option<(i64, Offset)>) {
        let newest = newest.filter(|&(timestamp, _)| timestamp >= 0);
        if let Some((timestamp, _)) = newest
            && self.newest.is_none_or(|(known, _)| timestamp > known)
        {
            self.newest = newest;
        }
    }
}

/// The result of a step under the lock.
#[derive(Debug)]
pub enum SearchTurn {
    /// No such record exists.
    Nothing,
    /// The search needs another turn.
    GoOn,
    /// The record is in these batches, or in a later segment.
    Scan(RecordScan),
    /// The search needs the newest timestamp of these batches ([`TimestampSearch::take`]) and another turn.
    Newest(NewestScan),
}

/// Batches of one segment that may hold the record.
#[derive(Debug)]
pub struct RecordScan {
    file: Arc<LogFile>,
    segment: Offset,
    position: u64,
    size_bytes: u64,
    timestamp: i64,
    filter: RecordFilter,
    from: Offset,
}

/// The records that a scan finds, besides their timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordFilter {
    /// Records with the timestamp or a later one.
    NotBefore,
    /// Records with exactly the timestamp.
    Exactly,
    /// Data records with any timestamp.
    Data,
}

/// The batches of the segment with the log start, if its newest record is below the log start.
#[derive(Debug)]
pub struct NewestScan(RecordScan);

impl PartitionLog {
    /// Continues a search, or restarts it if the log was truncated or compacted since the last step.
    pub fn search_on(&mut self, search: &mut TimestampSearch) -> Result<SearchTurn, LogError> {
        if search.rewrites != Some(self.rewrites) {
            *search =
                TimestampSearch { rewrites: Some(self.rewrites), ..TimestampSearch::new(search.wanted) };
        }
        for _ in 0..SEGMENTS_PER_TURN {
            if search.next >= self.log_end {
                return match (search.wanted, search.newest.take()) {
                    (TimestampTarget::Newest, Some((timestamp, offset))) => {
                        self.scan_for_newest(timestamp, offset)
                    }
                    _ => Ok(SearchTurn::Nothing),
                };
            }
            let at = match search.wanted {
                TimestampTarget::From(offset) if offset >= self.log_end => return Ok(SearchTurn::Nothing),
                TimestampTarget::From(offset) => search.next.max(offset).max(self.log_start),
                _ => search.next,
            };
            let index = self.floor_index(at).unwrap_or(0);
            search.next = self.segments.get(index + 1).map_or(self.log_end, |next| next.base_offset);
            if self.segments[index].is_empty() {
                continue;
            }
            match search.wanted {
                TimestampTarget::NotBefore(timestamp) if self.newest_record_ms(index)? >= timestamp => {
                    return self.scan_from(index, timestamp);
                }
                TimestampTarget::NotBefore(_) => {}
                TimestampTarget::Newest => {
                    let (timestamp, offset) = self.newest_in(index)?;
                    if timestamp >= 0 && self.is_below_log_start(index, offset)? {
                        return self.scan_behind_log_start(index);
                    }
                    search.take(Some((timestamp, offset)));
                }
                TimestampTarget::From(_) => {
                    if let Some(turn) = self.scan_from_offset(index, at)? {
                        return Ok(turn);
                    }
                }
            }
        }
        Ok(SearchTurn::GoOn)
    }

    /// The newest timestamp of a segment, and an offset of the batch that has it.
    fn newest_in(&mut self, index: usize) -> Result<(i64, Offset), LogError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        segment.max_timestamp(&self.home).map_err(LogError::in_segment(base))
    }

    /// True if the batch with `offset` begins below the log start.
    fn is_below_log_start(&mut self, index: usize, offset: Offset) -> Result<bool, LogError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        if base >= self.log_start || offset < self.log_start {
            return Ok(base < self.log_start);
        }
        let found = segment.locate(&self.home, offset).map_err(LogError::in_segment(base))?;
        Ok(found.is_none_or(|found| base + i64::from(found.relative_base) < self.log_start))
    }

    fn scan_behind_log_start(&mut self, index: usize) -> Result<SearchTurn, LogError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let found = segment.locate(&self.home, self.log_start).map_err(LogError::in_segment(base))?;
        let position = found.map_or(segment.size_bytes(), |found| found.position);
        let scan = self.scan(index, position, NO_TIMESTAMP, RecordFilter::NotBefore)?;
        Ok(SearchTurn::Newest(NewestScan(scan)))
    }

    /// A scan for the first data record of a segment at or after `offset`; `None` if the segment ends before.
    fn scan_from_offset(&mut self, index: usize, offset: Offset) -> Result<Option<SearchTurn>, LogError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let found = segment.locate(&self.home, offset).map_err(LogError::in_segment(base))?;
        let Some(found) = found else { return Ok(None) };
        let mut scan = self.scan(index, found.position, NO_TIMESTAMP, RecordFilter::Data)?;
        scan.from = offset;
        Ok(Some(SearchTurn::Scan(scan)))
    }

    /// True if a failed scan may have read truncated bytes, so that the search must continue.
    pub fn has_outrun(&self, search: &TimestampSearch) -> bool {
        search.rewrites != Some(self.rewrites)
    }

    fn scan_from(&mut self, index: usize, timestamp: i64) -> Result<SearchTurn, LogError> {
        let from = self.log_start;
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let position = segment
            .position_for_timestamp(&self.home, timestamp, from)
            .map_err(LogError::in_segment(base))?;
        self.scan(index, position, timestamp, RecordFilter::NotBefore).map(SearchTurn::Scan)
    }

    fn scan_for_newest(&mut self, timestamp: i64, offset: Offset) -> Result<SearchTurn, LogError> {
        let index = self.floor_index(offset).unwrap_or(0);
        let base = self.segments[index].base_offset;
        let at = self.segments[index].locate(&self.home, offset).map_err(LogError::in_segment(base))?;
        match at {
            Some(at) => self.scan(index, at.position, timestamp, RecordFilter::Exactly).map(SearchTurn::Scan),
            None => Ok(SearchTurn::Nothing),
        }
    }

    fn scan(
        &mut self,
        index: usize,
        position: u64,
        timestamp: i64,
        filter: RecordFilter,
    ) -> Result<RecordScan, LogError> {
        let from = self.log_start;
        let segment = &mut self.segments[index];
        Ok(RecordScan {
            file: segment.file(&self.home)?,
            segment: segment.base_offset,
            position,
            size_bytes: segment.size_bytes(),
            timestamp,
            filter,
            from,
        })
    }

    /// The outcome of [`TimestampSearch::not_before`], for a log without a lock.
    pub fn offset_for_timestamp(&mut self, timestamp: i64) -> Result<Option<TimestampedOffset>, LogError> {
        self.search(TimestampSearch::not_before(timestamp))
    }

    /// The outcome of [`TimestampSearch::newest`], for a log without a lock.
    pub fn max_timestamp_offset(&mut self) -> Result<Option<TimestampedOffset>, LogError> {
        self.search(TimestampSearch::newest())
    }

    /// The outcome of [`TimestampSearch::from_offset`], for a log without a lock.
    pub fn first_record_from(&mut self, offset: Offset) -> Result<Option<TimestampedOffset>, LogError> {
        self.search(TimestampSearch::from_offset(offset))
    }

    fn search(&mut self, mut search: TimestampSearch) -> Result<Option<TimestampedOffset>, LogError> {
        loop {
            let found = match self.search_on(&mut search)? {
                SearchTurn::Nothing => return Ok(None),
                SearchTurn::GoOn => None,
                SearchTurn::Scan(scan) => scan.run()?,
                SearchTurn::Newest(scan) => {
                    search.take(scan.run()?);
                    None
                }
            };
            if found.is_some() {
                return Ok(found);
            }
        }
    }
}

impl RecordScan {
    /// Reads and decompresses until the record is found; `None` if it is not in the segment. Call it without
    /// the partition's lock.
    pub fn run(&self) -> Result<Option<TimestampedOffset>, LogError> {
        check_may_wait("A search", Path::new("a segment"));
        let mut scan = HeaderScan::new(&self.file, self.position, self.size_bytes);
        let (mut buffer, mut found) = (DecompressBuffer::default(), None);
        let mut passed = 0;
        while let Some(placed) = scan.next().map_err(LogError::in_segment(self.segment))? {
            if !self.may_hold(&placed) {
                continue;
            }
            if self.filter == RecordFilter::Data {
                if placed.header.attributes.is_control() && passed < CONTROL_BATCHES_MAX {
                    passed += 1;
                    continue;
                }
                if let Some(first) = first_by_header(&placed.header).filter(|first| first.offset >= self.from)
                {
                    return Ok(Some(first));
                }
            }
            self.visit(&placed, &mut buffer, |record| {
                found = Some(record).filter(|record| self.fits(record.timestamp));
                found.is_none()
            })?;
            if found.is_some() {
                break;
            }
        }
        Ok(found)
    }

    /// Visits the records of a batch from the log start on, until `visit` stops.
    fn visit(
        &self,
        placed: &BatchPlace,
        buffer: &mut DecompressBuffer,
        mut visit: impl FnMut(TimestampedOffset) -> bool,
    ) -> Result<(), LogError> {
        let mut bytes = vec![0; placed.header.size_bytes()];
        let read = self.file.read_at(&mut bytes, placed.position)?;
        let corrupt = |reason| LogError::Corrupt {
            segment: self.segment,
            fault: CorruptBatch { position: placed.position, reason },
        };
        let batch = Batch::parse(&bytes[..read]).map_err(|error| corrupt(BatchFault::Batch(error)))?;
        // The CRC distinguishes a damaged disk from a producer that sent malformed records.
        let unreadable = |error: RecordError| match thalweg_record::verify(batch.bytes) {
            Err(damage) => corrupt(BatchFault::Batch(damage)),
            Ok(_) => LogError::UnreadableRecords {
                base_offset: placed.header.base_offset,
                reason: error.to_string(),
            },
        };
        let epoch = placed.header.leader_epoch;
        for record in batch.records(buffer).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            if record.offset < self.from {
                continue;
            }
            let wants_more = visit(timestamped(record.offset, record.timestamp, epoch));
            if !wants_more {
                break;
            }
        }
        Ok(())
    }

    fn may_hold(&self, batch: &BatchPlace) -> bool {
        batch.header.max_timestamp >= self.timestamp && batch.header.last_offset() >= self.from
    }

    fn fits(&self, timestamp: i64) -> bool {
        match self.filter {
            RecordFilter::NotBefore => timestamp >= self.timestamp,
            RecordFilter::Exactly => timestamp == self.timestamp,
            RecordFilter::Data => true,
        }
    }
}

fn timestamped(offset: Offset, timestamp: i64, epoch: LeaderEpoch) -> TimestampedOffset {
    let leader_epoch = (epoch != LeaderEpoch::NONE).then_some(epoch);
    TimestampedOffset { offset, timestamp, leader_epoch }
}

/// The first record of a batch, if the header has its offset and time: the cleaner has removed no record,
/// and the base timestamp is not a delete horizon.
fn first_by_header(header: &BatchHeader) -> Option<TimestampedOffset> {
    let is_complete = header.record_count.checked_sub(1) == Some(header.last_offset_delta);
    if !is_complete || header.attributes.has_delete_horizon() {
        return None;
    }
    let timestamp = match header.attributes.timestamp_type() {
        TimestampType::CreateTime => header.base_timestamp,
        TimestampType::LogAppendTime => header.max_timestamp,
    };
    Some(timestamped(header.base_offset, timestamp, header.leader_epoch))
}

impl NewestScan {
    /// The newest timestamp from the log start on, and its offset. Reads headers, and the records of the
    /// batch that contains the log start. Call it without the partition's lock.
    pub fn run(&self) -> Result<Option<(i64, Offset)>, LogError> {
        let NewestScan(batches) = self;
        check_may_wait("A search", Path::new("a segment"));
        let mut scan = HeaderScan::new(&batches.file, batches.position, batches.size_bytes);
        let mut newest: Option<(i64, Offset)> = None;
        let mut take = |timestamp, offset| {
            if newest.is_none_or(|(known, _)| timestamp > known) {
                newest = Some((timestamp, offset));
            }
        };
        while let Some(placed) = scan.next().map_err(LogError::in_segment(batches.segment))? {
            if placed.header.base_offset >= batches.from {
                take(placed.header.max_timestamp, placed.header.last_offset());
            } else if placed.header.last_offset() >= batches.from {
                batches.visit(&placed, &mut DecompressBuffer::default(), |record| {
                    take(record.timestamp, record.offset);
                    true
                })?;
            }
        }
        Ok(newest)
    }
}
