//! Reading past damage: the batches of a segment that can still be read although reads of the log fail in it.
//!
//! A read stops at damage, because a consumer must not skip records unknowingly. Without another replica, a
//! coordinator would then serve no request forever; the remaining records are of more use.
//!
//! A batch is sound if its CRC is right and its offsets, which no CRC covers, fit between its neighbours; a
//! single flipped bit in its base offset is repaired in the returned bytes. After a damaged batch, the next
//! batch is at the end according to its header, if batches follow there; otherwise it is searched in the
//! bytes (see `chains`). Records of internal topics also contain bytes chosen by clients, such as metadata of
//! members.
//!
//! Owns: finding the segment, under the partition's lock ([`PartitionLog::salvage`]), and its sound batches,
//! without it ([`Salvage::step`]). Refuses: repair of the log, and accepting a loss.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;

use thalweg_record::{BatchHeader, LeaderEpoch, Offset, stamp_head};

use super::PartitionLog;
use super::error::LogError;
use crate::disk::{LogFile, check_may_wait};
use crate::scan::{BatchPlace, BatchScan, ScanError, whole_header};

mod chains;

use chains::{Chain, ChainSearch};

/// The sound batches of one segment, and the damage between them.
#[derive(Debug)]
pub struct Salvage {
    file: Arc<LogFile>,
    scan: BatchScan<Arc<LogFile>>,
    /// Position of the next batch.
    position: u64,
    /// End position of the segment's bytes.
    end: u64,
    /// Offset below which no record is returned.
    from: Offset,
    /// End offset of the last sound batch.
    expected: Offset,
    /// The base offset of the next segment, or the log end.
    limit: Offset,
    /// True if bytes were skipped since the last sound batch.
    is_damaged_here: bool,
    /// True if batches are known to be missing after the last one.
    lacks_end: bool,
    /// The leader epochs of the segment.
    epochs: RangeInclusive<LeaderEpoch>,
    /// The size of the largest batch.
    batch_bytes_max: u64,
    /// The position up to which headers lead from batch to batch.
    chained_to: u64,
    /// Batches from the first damage on that no header leads to.
    chains: Option<Vec<Chain>>,
    /// The batch after the damage that was just returned.
    behind: Option<SalvageStep>,
}

/// One step of a [`Salvage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SalvageStep {
    /// The bytes of one sound batch.
    Batch(Vec<u8>),
    /// Offsets whose records are unreadable. In a compacted log, some of these offsets had no record.
    Damage(Range<Offset>),
}

impl PartitionLog {
    /// The sound batches of the damaged segment that contains `from`, from that offset on. No batch has more
    /// than `batch_bytes_max` bytes.
    pub fn salvage(&mut self, from: Offset, batch_bytes_max: usize) -> Result<Salvage, LogError> {
        let index = self.floor_index(from).unwrap_or(0);
        let limit = self.segments.get(index + 1).map_or(self.log_end, |next| next.base_offset);
        let segment = &mut self.segments[index];
        let was_open = segment.is_open();
        let file = segment.file(&self.home)?;
        let (base, end) = (segment.base_offset, segment.size_bytes());
        let is_empty = segment.is_empty();
        if !was_open && index + 1 < self.segments.len() {
            self.segments[index].release(&self.home)?;
        }
        let oldest = self.epochs.at(base).unwrap_or(LeaderEpoch(i32::MIN));
        Ok(Salvage {
            scan: BatchScan::new(Arc::clone(&file), 0, end),
            file,
            position: 0,
            end,
            from,
            expected: base,
            limit,
            is_damaged_here: false,
            lacks_end: self.health.missing_behind(base..limit, is_empty).is_some(),
            epochs: oldest..=self.epochs.latest().unwrap_or(LeaderEpoch(i32::MAX)),
            batch_bytes_max: batch_bytes_max as u64,
            chained_to: 0,
            chains: None,
            behind: None,
        })
    }
}

impl Salvage {
    /// The offset after the segment, where reads of the log continue.
    pub fn end_offset(&self) -> Offset {
        self.limit
    }

    /// The next batch, or the damage before it; `None` at the end of the segment. Call it without the
    /// partition's lock.
    pub fn step(&mut self) -> io::Result<Option<SalvageStep>> {
        check_may_wait("A read past damage", Path::new("a segment"));
        if let Some(batch) = self.behind.take() {
            return Ok(Some(batch));
        }
        // Bytes after the last offset of the segment were truncated before, and restored by a power failure.
        while self.expected < self.limit && self.position < self.end {
            let Some((batch, bytes)) = self.sound_batch()? else { continue };
            let (before, header) = (self.expected, batch.header);
            self.position = batch.end();
            self.expected = header.next_offset();
            let damage = self.damage(before..header.base_offset);
            self.is_damaged_here = false;
            if header.last_offset() < self.from {
                continue;
            }
            let batch = SalvageStep::Batch(bytes);
            return match damage {
                Some(damage) => {
                    self.behind = Some(batch);
                    Ok(Some(damage))
                }
                None => Ok(Some(batch)),
            };
        }
        // Compaction leaves a gap there, too.
        self.is_damaged_here |= self.lacks_end;
        let rest = self.damage(self.expected..self.limit);
        self.expected = self.limit;
        Ok(rest)
    }

    /// The batch at the position, if it is sound; otherwise the position moves on.
    fn sound_batch(&mut self) -> io::Result<Option<(BatchPlace, Vec<u8>)>> {
        let position = self.position;
        let found = match self.scan.next() {
            Ok(Some((batch, bytes))) => Some((batch, bytes.to_vec())),
            Ok(None) | Err(ScanError::Corrupt(_)) => None,
            Err(ScanError::Io(error)) => return Err(error),
        };
        if let Some((mut batch, mut bytes)) = found
            && let Some(base_offset) = self.base_offset_of(&batch)?
        {
            if base_offset != batch.header.base_offset {
                stamp_head(&mut bytes, base_offset, batch.header.leader_epoch);
                batch.header.base_offset = base_offset;
            }
            return Ok(Some((batch, bytes)));
        }
        self.is_damaged_here = true;
        self.position = self.next_position(position)?;
        self.scan = BatchScan::new(Arc::clone(&self.file), self.position, self.end);
        Ok(None)
    }

    /// The base offset of a batch with a valid CRC; `None` if it cannot be determined.
    fn base_offset_of(&self, batch: &BatchPlace) -> io::Result<Option<Offset>> {
        let (header, expected) = (&batch.header, self.expected);
        if header.last_offset_delta < 0 {
            return Ok(None);
        }
        let found = header.base_offset;
        // Compaction leaves gaps. A batch whose offset was damaged upwards is contradicted by the next.
        if found == expected || found > expected && !self.is_contradicted(batch)? {
            return Ok((header.next_offset() <= self.limit).then_some(found));
        }
        let end = expected.0.saturating_add(i64::from(header.last_offset_delta)).saturating_add(1);
        let was_expected = (found.0 ^ expected.0).count_ones() == 1 && end <= self.limit.0;
        Ok(was_expected.then_some(expected))
    }

    fn is_contradicted(&self, batch: &BatchPlace) -> io::Result<bool> {
        let next_offset = batch.header.next_offset();
        if next_offset > self.limit {
            return Ok(true);
        }
        let next = self.header_at(batch.end())?;
        Ok(next.is_some_and(|next| (self.expected..next_offset).contains(&next.base_offset)))
    }

    /// The position where a batch may begin after the damaged one at `position`.
    fn next_position(&mut self, position: u64) -> io::Result<u64> {
        let search = ChainSearch {
            file: &self.file,
            bytes: position + 1..self.end,
            offsets: self.expected..self.limit,
            epochs: &self.epochs,
            batch_bytes_max: self.batch_bytes_max,
        };
        if let Some(header) = self.header_at(position)? {
            let end = position + header.size_bytes() as u64;
            let is_last = end == self.end && header.next_offset() == self.limit;
            if position < self.chained_to || is_last {
                return Ok(end);
            }
            if let Some(chain) = search.follow(end, self.expected + 1)? {
                self.chained_to = chain.end;
                return Ok(end);
            }
        }
        let chains = match self.chains.take() {
            Some(chains) => chains,
            None => search.run()?,
        };
        let next = chains.iter().find(|chain| chain.start > position && chain.first >= self.expected);
        if let Some(chain) = next {
            self.chained_to = chain.end;
        }
        let next_position = next.map_or(self.end, |chain| chain.start);
        self.chains = Some(chains);
        Ok(next_position)
    }

    /// The header at a position; `None` if there is none, or if its batch does not fit into the segment.
    fn header_at(&self, position: u64) -> io::Result<Option<BatchHeader>> {
        let mut bytes = [0; BatchHeader::LEN];
        let read = self.file.read_at(&mut bytes, position)?;
        let available = self.end.saturating_sub(position);
        Ok(whole_header(&bytes[..read], available).ok().filter(|header| header.last_offset_delta >= 0))
    }

    /// The damage between two sound batches, if relevant.
    fn damage(&self, offsets: Range<Offset>) -> Option<SalvageStep> {
        let lost = offsets.start.max(self.from)..offsets.end;
        (self.is_damaged_here && lost.start < lost.end).then_some(SalvageStep::Damage(lost))
    }
}
