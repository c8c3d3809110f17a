//! Reading: finds the bytes that answer a fetch.
//!
//! Owns: finding whole batches between an offset and a bound, and checking them before they are served.
//! Refuses: reading the records; the caller sends the slice from the file to the socket.

use std::sync::Arc;

use thalweg_record::Offset;

use super::PartitionLog;
use super::error::{LogError, OffsetOutOfRange, ReadError};
use super::examine::{Examination, Region, examine};
use super::fit_epochs::neighbours_of;
use crate::disk::LogFile;
use crate::scan::{BatchPlace, HeaderScan, ScanError};
use crate::segment::transactions::AbortedTransaction;

/// Maximum number of remembered positions: ends of recent reads, where the next reads start.
const HINTS_MAX: usize = 8;

/// Maximum number of segments besides the active one that reads keep open.
const OPEN_FOR_READ_MAX: usize = 8;

/// Whole batches in a file, ready to be sent.
///
/// The file may be truncated or deleted meanwhile: the descriptor stays valid, but bytes at the end may be
/// missing, so a sender must be ready for fewer bytes than `len`.
#[derive(Clone, Debug)]
pub struct LogSlice {
    /// The segment's file; serves `sendfile` and positioned reads.
    pub file: Arc<LogFile>,
    /// Position of the first byte.
    pub position: u64,
    /// Number of bytes; never 0.
    pub len: usize,
    /// All records in the slice have offsets below this one.
    pub end_offset: Offset,
}

impl LogSlice {
    /// The batches in the slice, by their headers, which are read on demand.
    pub fn batches(&self) -> impl Iterator<Item = Result<BatchPlace, ScanError>> {
        let mut scan = HeaderScan::new(&self.file, self.position, self.position + self.len as u64);
        std::iter::from_fn(move || scan.next().transpose())
    }
}

#[derive(Clone, Copy, Debug)]
struct Hint {
    segment: Offset,
    offset: Offset,
    position: u64,
}

/// Known batch positions from earlier reads.
#[derive(Debug, Default)]
pub(super) struct ReadHints {
    hints: Vec<Hint>,
    next: usize,
    /// The position of the upper bound of the last read.
    bound: Option<Hint>,
}

impl ReadHints {
    fn find(&self, segment: Offset, offset: Offset) -> Option<u64> {
        self.hints
            .iter()
            .find(|hint| hint.segment == segment && hint.offset == offset)
            .map(|hint| hint.position)
    }

    fn note(&mut self, segment: Offset, offset: Offset, position: u64) {
        if self.find(segment, offset).is_some() {
            return;
        }
        let hint = Hint { segment, offset, position };
        if self.hints.len() < HINTS_MAX {
            self.hints.push(hint);
        } else {
            self.hints[self.next] = hint;
            self.next = (self.next + 1) % HINTS_MAX;
        }
    }
}

/// Maximum bytes of batches found on disk that are compared with each other for one read.
const COMPARED_BYTES_MAX: u64 = 1 << 20;

/// Batches that can be served.
struct ServableBatches {
    start: u64,
    /// End position of these batches, and the offset after them, if later batches cannot be served with them.
    end: Option<(u64, Offset)>,
}

impl PartitionLog {
    /// Finds whole batches, starting with the one that contains `from`, below `upper_bound` (the high
    /// watermark, the last stable offset, or the log end for a follower), of at most `max_bytes`. A larger
    /// first batch is returned alone if `min_one_message` is set. `None` if there is nothing to send.
    pub fn read(
        &mut self,
        from: Offset,
        max_bytes: usize,
        upper_bound: Offset,
        min_one_message: bool,
    ) -> Result<Option<LogSlice>, ReadError> {
        if from < self.log_start || from > self.log_end {
            let (first, last) = (self.log_start, self.log_end);
            return Err(OffsetOutOfRange { offset: from, first, last }.into());
        }
        let upper_bound = upper_bound.min(self.log_end);
        if from >= upper_bound {
            return Ok(None);
        }
        let mut index = self.floor_index(from).unwrap_or(0);
        while index < self.segments.len() && self.segments[index].base_offset < upper_bound {
            if let Some(slice) = self.read_segment(index, from, max_bytes, upper_bound, min_one_message)? {
                return Ok(slice);
            }
            // No batch of the segment is at or above `from`, and the next segment begins above it.
            self.check_end(index).inspect_err(|error| self.note_error(error))?;
            index += 1;
        }
        Ok(None)
    }

    /// The slice of one segment; the outer `None` if the whole segment is below `from`.
    fn read_segment(
        &mut self,
        index: usize,
        from: Offset,
        max_bytes: usize,
        upper_bound: Offset,
        min_one_message: bool,
    ) -> Result<Option<Option<LogSlice>>, LogError> {
        let base = self.segments[index].base_offset;
        if self.segments[index].is_suspect() {
            self.check_length(index)?;
        }
        if self.health.overlapped.contains(&base) {
            self.check_overlap(index - 1)?;
        }
        let read = match self.sound_position_of(index, from, max_bytes) {
            Ok(None) => return Ok(None),
            Ok(Some(sound)) => self
                .slice(index, sound, max_bytes, upper_bound, min_one_message)
                .map_err(LogError::in_segment(base)),
            Err(error) => Err(error),
        };
        if let Err(LogError::Corrupt { segment, fault }) = &read {
            self.note_damage(*segment, fault);
        }
        read.map(Some)
    }

    /// The position of the first batch whose last offset is not below `from`, and the servable range there.
    /// Batches found on disk are first checked against each other, because no CRC covers their offsets and
    /// epochs.
    fn sound_position_of(
        &mut self,
        index: usize,
        from: Offset,
        max_bytes: usize,
    ) -> Result<Option<ServableBatches>, LogError> {
        let Some(start) = self.position_or_damage(index, from)? else { return Ok(None) };
        let wanted = start.saturating_add(max_bytes.max(1) as u64);
        if self.segments[index].is_judged(start, wanted) {
            self.check_header(index, start, from)?;
            return Ok(Some(ServableBatches { start, end: None }));
        }
        self.check_before_first_read(index)?;
        let end = wanted.min(start.saturating_add(COMPARED_BYTES_MAX));
        let (near, examined) = self.examine_around(index, from, start, end)?;
        let start = if examined.mended {
            self.hints = ReadHints::default();
            let Some(start) = self.position_of(index, from)? else { return Ok(None) };
            start
        } else {
            start
        };
        let (base, size_bytes) = (self.segments[index].base_offset, self.segments[index].size_bytes());
        let is_closed = index + 1 < self.segments.len();
        let Some(fault) = examined.fault.or(examined.overlap.filter(|_| is_closed)) else {
            self.segments[index].note_judged(near, examined.end, examined.next_offset);
            let ends_early = examined.end < end.min(size_bytes);
            if ends_early && examined.end <= start {
                // The walk stopped at bytes that are not a batch.
                self.segments[index].batch_at(&self.home, start).map_err(LogError::in_segment(base))?;
            }
            let is_limited = (ends_early && examined.end > start) || end < wanted;
            let end = is_limited.then_some((examined.end, examined.next_offset));
            return Ok(Some(ServableBatches { start, end }));
        };
        let first = self.segments[index].batch_at(&self.home, start).map_err(LogError::in_segment(base))?;
        let contains = first.is_some_and(|first| first.header.base_offset <= from);
        if fault.position > start {
            Ok(Some(ServableBatches { start, end: Some((fault.position, examined.next_offset)) }))
        } else if let Some(first) = first.filter(|_| fault.position < start && contains) {
            // The damage is before the requested offset.
            Ok(Some(ServableBatches { start, end: Some((first.end(), first.header.next_offset())) }))
        } else {
            Err(LogError::Corrupt { segment: base, fault })
        }
    }

    /// Checks the header at the beginning of an answer, because another program may have written to the file
    /// since this process wrote or compared the batch. The newest batches are not checked: most readers get
    /// them, and they were just written.
    fn check_header(&mut self, index: usize, position: u64, from: Offset) -> Result<(), LogError> {
        let limit = self.segments.get(index + 1).map_or(self.log_end, |next| next.base_offset);
        let is_closed = index + 1 < self.segments.len();
        let segment = &mut self.segments[index];
        if !is_closed && !segment.is_aged(position) {
            return Ok(());
        }
        let base = segment.base_offset;
        let checked = segment.check_header(&self.home, position, from, limit);
        if matches!(checked, Err(ScanError::Corrupt(_))) {
            segment.distrust();
            self.hints = ReadHints::default();
        }
        checked.map_err(LogError::in_segment(base))
    }

    /// Finds a position like [`PartitionLog::position_of`], for a segment that seems to be below `offset`: a
    /// batch with a damaged offset must not be skipped.
    fn position_or_damage(&mut self, index: usize, offset: Offset) -> Result<Option<u64>, LogError> {
        let found = self.position_of(index, offset)?;
        let (base, size_bytes) = (self.segments[index].base_offset, self.segments[index].size_bytes());
        if found.is_some() || self.segments[index].is_judged(0, size_bytes) {
            return Ok(found);
        }
        let (near, examined) = self.examine_around(index, offset, size_bytes, size_bytes)?;
        if let Some(fault) = examined.fault {
            return Err(LogError::Corrupt { segment: base, fault });
        }
        self.segments[index].note_judged(near, examined.end, examined.next_offset);
        if examined.mended { self.position_of(index, offset) } else { Ok(None) }
    }

    /// Checks the batches up to `end` against each other, starting before the one with `from`; returns the
    /// position of that batch.
    fn examine_around(
        &mut self,
        index: usize,
        from: Offset,
        start: u64,
        end: u64,
    ) -> Result<(u64, Examination), LogError> {
        let next_base = self.segments.get(index + 1).map_or(self.log_end, |next| next.base_offset);
        let has_gaps = self.may_have_gaps();
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        let in_segment = LogError::in_segment(base);
        let mut near = segment.position_not_behind(&self.home, from).map_err(&in_segment)?.min(start);
        let mut expected = base;
        if let Some(judged) = segment.judged_up_to(near, start) {
            (near, expected) = (judged.to, judged.next_offset);
        } else if near > 0
            && let Some(BatchPlace { header, .. }) =
                segment.batch_at(&self.home, near).map_err(&in_segment)?
        {
            expected = header.base_offset;
            if self.epochs.at(expected) != Some(header.leader_epoch) {
                // The previous batch decides which of the two is right.
                near = segment.position_not_behind(&self.home, expected - 1).map_err(&in_segment)?.min(near);
                let first = segment.batch_at(&self.home, near).map_err(&in_segment)?;
                expected = first.filter(|_| near > 0).map_or(base, |first| first.header.base_offset);
            }
        }
        let file = segment.file(&self.home)?;
        let region = Region {
            name: &self.name,
            segment: base,
            file: &file,
            from: near,
            to: end,
            size_bytes: segment.size_bytes(),
            expected,
            next_base: Some(next_base),
            next_first: None,
            last_before: None,
            knows_neighbours: false,
            epochs: &self.epochs,
            has_gaps,
            synced_to: self.log_end,
        };
        let mut examined = examine(region)?;
        if examined.lacks_neighbours {
            let (mut last_before, next_first) = neighbours_of(&self.home, &mut self.segments, index)?;
            if near > 0 {
                last_before = self.segments[index]
                    .batch_with(&self.home, expected - 1)
                    .map_err(in_segment)?
                    .filter(|before| before.next_offset() <= expected);
            }
            examined = examine(Region { last_before, next_first, knows_neighbours: true, ..region })?;
        }
        Ok((near, examined))
    }

    /// The position of the first batch in one segment whose last offset is not below `offset`.
    fn position_of(&mut self, index: usize, offset: Offset) -> Result<Option<u64>, LogError> {
        let base = self.segments[index].base_offset;
        if offset <= base {
            return Ok((!self.segments[index].is_empty()).then_some(0));
        }
        if let Some(position) = self.hints.find(base, offset) {
            return Ok(Some(position));
        }
        self.limit_files_open_for_read(index);
        let found = self.segments[index].locate(&self.home, offset).map_err(LogError::in_segment(base))?;
        Ok(found.map(|boundary| boundary.position))
    }

    fn slice(
        &mut self,
        index: usize,
        ServableBatches { start, end: sound_end }: ServableBatches,
        max_bytes: usize,
        upper_bound: Offset,
        min_one_message: bool,
    ) -> Result<Option<LogSlice>, ScanError> {
        let base = self.segments[index].base_offset;
        let segment_end = self.segments.get(index + 1).map_or(self.log_end, |next| next.base_offset);
        let size_bytes = self.segments[index].size_bytes();
        // The bound as a position: the end of the segment, or the first batch that is not completely below
        // the bound.
        let (bound, bound_offset) = if upper_bound >= segment_end {
            (size_bytes, segment_end)
        } else {
            (self.position_of_bound(index, upper_bound)?, upper_bound)
        };
        let (bound, bound_offset) = match sound_end {
            Some((position, offset)) if position < bound => (position, offset),
            _ => (bound, bound_offset),
        };
        if start >= bound {
            return Ok(None);
        }
        let (end, end_offset) = if bound - start <= max_bytes as u64 {
            (bound, bound_offset)
        } else {
            let limit = start + max_bytes as u64;
            let boundary = self.segments[index].boundary_before(&self.home, start, limit)?;
            let boundary_offset = base + i64::from(boundary.relative_base);
            if boundary.position > start {
                self.hints.note(base, boundary_offset, boundary.position);
                (boundary.position, boundary_offset)
            } else if min_one_message {
                match self.segments[index].batch_at(&self.home, start)? {
                    Some(first) => (first.end(), first.header.next_offset()),
                    None => return Ok(None),
                }
            } else {
                return Ok(None);
            }
        };
        let file = self.segments[index].file(&self.home)?;
        let len = usize::try_from(end - start).expect("a segment is smaller than 4 GiB");
        Ok(Some(LogSlice { file, position: start, len, end_offset }))
    }

    /// The position of the first batch that is not completely below `upper_bound`, or the end of the segment.
    fn position_of_bound(&mut self, index: usize, upper_bound: Offset) -> Result<u64, ScanError> {
        let segment = &mut self.segments[index];
        let base = segment.base_offset;
        if let Some(hint) = self.hints.bound
            && hint.segment == base
            && hint.offset == upper_bound
        {
            return Ok(hint.position);
        }
        let found = segment.locate(&self.home, upper_bound)?;
        let position = found.map_or(segment.size_bytes(), |boundary| boundary.position);
        self.hints.bound = Some(Hint { segment: base, offset: upper_bound, position });
        Ok(position)
    }

    fn limit_files_open_for_read(&mut self, wanted: usize) {
        let active = self.segments.len() - 1;
        if wanted == active || self.segments[wanted].is_open() {
            return;
        }
        let open = self.segments[..active].iter().filter(|segment| segment.is_open()).count();
        if open >= OPEN_FOR_READ_MAX
            && let Some(oldest) = self.segments[..active].iter_mut().find(|segment| segment.is_open())
            && let Err(error) = oldest.release(&self.home)
        {
            tracing::warn!(partition = %self.name, %error, "Failed to close a segment");
        }
    }

    /// The aborted transactions with records between `from` and `upper`, which a consumer of committed data
    /// must skip.
    pub fn aborted_transactions(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Vec<AbortedTransaction>, LogError> {
        let mut found = Vec::new();
        for segment in &self.segments[self.floor_index(from).unwrap_or(0)..] {
            for aborted in segment.aborted_transactions(&self.home)? {
                if aborted.last_offset >= from && aborted.first_offset < upper {
                    found.push(aborted);
                }
                if aborted.last_stable_offset >= upper {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}
