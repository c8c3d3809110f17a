//! Compares the leader epochs of a log found on disk, from its checkpoint, with the batches.
//!
//! Owns: the precedence of batches over the file. Another program may have put an older file, or that of
//! another log, there while the log was closed. A leader that trusts such a file makes its followers truncate
//! their logs, or keep records that others have replaced. A start compares the file with the ends of one
//! segment, which reveals an older copy: the newest segment after a clean stop, and otherwise the one before
//! those that recovery reads. The segments are compared one at a time in the background (see `continuity`),
//! at their ends and at the starts of epochs. No CRC covers the epoch of a batch, and a leader may refuse a
//! follower with a wrong epoch forever: so a single batch does not override the file if only a flipped bit
//! explains the difference. Readers repair that bit. Refuses: judging single batches; see `examine`.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use thalweg_record::{BatchHeader, LeaderEpoch, Offset};

use super::PartitionLog;
use super::error::LogError;
use super::examine::is_flipped;
use super::loading::LoadingPartition;
use super::replay::EpochReplay;
use crate::disk::{Durability, LogFile, check_may_wait};
use crate::epochs::LeaderEpochs;
use crate::scan::{HeaderScan, ScanError};
use crate::segment::{Home, Segment};
use crate::topic_partition::TopicPartition;

/// Maximum number of epoch starts checked in a segment, under the partition's lock.
const STARTS_MAX: usize = 16;

/// True if the epoch of a batch is the known epoch for its offset, if there is one. Batches of old formats
/// have no epoch.
fn agrees(epochs: &LeaderEpochs, header: &BatchHeader) -> bool {
    header.leader_epoch.0 < 0
        || epochs.at(header.base_offset).is_none_or(|known| known == header.leader_epoch)
}

/// True if a batch shows that the epochs belong to another log: it fits its neighbours, and a neighbour shows
/// the same, or no flipped bit explains its epoch.
fn one_contradicts(
    epochs: &LeaderEpochs,
    before: Option<&BatchHeader>,
    batch: &BatchHeader,
    behind: Option<&BatchHeader>,
) -> bool {
    let (found, known) = (batch.leader_epoch, epochs.at(batch.base_offset).unwrap_or(LeaderEpoch::NONE));
    let rises = before.is_none_or(|before| before.leader_epoch <= found)
        && behind.is_none_or(|behind| found <= behind.leader_epoch);
    let is_alone = [before, behind].into_iter().flatten().all(|other| agrees(epochs, other));
    !agrees(epochs, batch) && rises && !(is_alone && is_flipped(found, known, [before, behind]))
}

/// The first two batches of a segment.
fn first_two(home: &Home, segment: &mut Segment) -> Result<Vec<BatchHeader>, ScanError> {
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, 0, segment.size_bytes());
    let first = [scan.next()?, scan.next()?];
    Ok(first.into_iter().flatten().map(|batch| batch.header).collect())
}

/// The last two batches of a segment.
fn last_two(home: &Home, segment: &mut Segment) -> Result<Vec<BatchHeader>, ScanError> {
    let end = segment.read_next_offset(home)?;
    let Some(last) = segment.locate(home, end - 1)? else { return Ok(Vec::new()) };
    let first_of_last = segment.base_offset + i64::from(last.relative_base);
    let from = segment.position_not_behind(home, first_of_last - 1)?;
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, from, segment.size_bytes());
    let (mut before, mut last) = (None, None);
    while let Some(batch) = scan.next()? {
        before = last.replace(batch.header);
    }
    Ok(before.into_iter().chain(last).collect())
}

/// The two batches before an offset within a segment, if nearby, and the two from that offset on.
fn around(
    home: &Home,
    segment: &mut Segment,
    offset: Offset,
) -> Result<(Vec<BatchHeader>, Vec<BatchHeader>), ScanError> {
    let from = segment.position_not_behind(home, offset - 1)?;
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, from, segment.size_bytes());
    let (mut before, mut behind) = (Vec::new(), Vec::new());
    while behind.len() < 2
        && let Some(batch) = scan.next()?
    {
        let is_before = batch.header.base_offset < offset;
        if is_before { &mut before } else { &mut behind }.push(batch.header);
    }
    Ok((before.split_off(before.len().saturating_sub(2)), behind))
}

/// True if the first two or the last two batches of a segment contradict the epochs.
fn ends_contradict(
    home: &Home,
    segments: &mut [Segment],
    index: usize,
    epochs: &LeaderEpochs,
) -> Result<bool, ScanError> {
    let mut first = first_two(home, &mut segments[index])?;
    let mut last = last_two(home, &mut segments[index])?;
    if first.iter().chain(&last).all(|batch| agrees(epochs, batch)) {
        return Ok(false);
    }
    let (before, behind) = neighbours_of(home, segments, index)?;
    let both_contradict = |two: &[BatchHeader]| two.len() == 2 && !two.iter().any(|one| agrees(epochs, one));
    if both_contradict(&first) || both_contradict(&last) {
        return Ok(true);
    }
    if first.len() < 2 {
        first.extend(behind);
        last.splice(0..0, before);
    }
    Ok(first.first().is_some_and(|batch| one_contradicts(epochs, before.as_ref(), batch, first.get(1)))
        || last
            .split_last()
            .is_some_and(|(batch, others)| one_contradicts(epochs, others.last(), batch, behind.as_ref())))
}

/// True if the batches beside the starts of known epochs within a segment contradict them.
fn starts_contradict(
    home: &Home,
    segments: &mut [Segment],
    index: usize,
    offsets: Range<Offset>,
    epochs: &LeaderEpochs,
) -> Result<bool, ScanError> {
    let starts = epochs.between(offsets.start + 1, offsets.end - 1);
    for &(_, start) in starts.iter().step_by(starts.len() / STARTS_MAX + 1) {
        let (before, mut behind) = around(home, &mut segments[index], start)?;
        if before.last().into_iter().chain(behind.first()).all(|batch| agrees(epochs, batch)) {
            continue;
        }
        if behind.len() < 2 {
            behind.extend(neighbours_of(home, segments, index)?.1);
        }
        let (last, first) = (before.last(), behind.first());
        let is_last_wrong =
            last.is_some_and(|last| one_contradicts(epochs, before.iter().nth_back(1), last, first));
        if is_last_wrong || first.is_some_and(|first| one_contradicts(epochs, last, first, behind.get(1))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The last batch before a segment and the first after it, if readable.
pub(super) fn neighbours_of(
    home: &Home,
    segments: &mut [Segment],
    index: usize,
) -> io::Result<(Option<BatchHeader>, Option<BatchHeader>)> {
    let (before, rest) = segments.split_at_mut(index);
    let before = before.iter_mut().rfind(|segment| !segment.is_empty());
    let behind = rest.iter_mut().skip(1).find(|segment| !segment.is_empty());
    let last = header_of(home, before, |segment| Ok(last_two(home, segment)?.pop()))?;
    let first = header_of(home, behind, |segment| Ok(segment.batch_at(home, 0)?.map(|first| first.header)))?;
    Ok((last, first))
}

/// The header that `read` finds in a segment, which is closed again; `None` also for a damaged segment.
fn header_of(
    home: &Home,
    segment: Option<&mut Segment>,
    read: impl FnOnce(&mut Segment) -> Result<Option<BatchHeader>, ScanError>,
) -> io::Result<Option<BatchHeader>> {
    let Some(segment) = segment else { return Ok(None) };
    let was_open = segment.is_open();
    let found = match read(segment) {
        Err(ScanError::Io(error)) => Err(error),
        found => Ok(found.unwrap_or_default()),
    };
    if !was_open {
        home.disk.unless_full(segment.release(home))?;
    }
    found
}

impl LoadingPartition {
    /// True if the first readable batches belong to no known epoch.
    pub(super) fn epochs_are_short(&mut self, log_start: Offset) -> bool {
        // If all records are deleted, no epoch is left to know.
        if log_start >= self.log_end {
            return false;
        }
        let earliest = self.epochs.earliest();
        let begins_by = |offset| earliest.is_some_and(|(_, start)| start <= offset);
        if begins_by(log_start) {
            return false;
        }
        let Some(first) = self.segments.iter_mut().find(|segment| !segment.is_empty()) else { return false };
        // Records before the first batch were compacted away, in this log or its source.
        match first.batch_at(&self.home, 0) {
            Ok(Some(batch)) => batch.header.leader_epoch.0 >= 0 && !begins_by(batch.header.base_offset),
            _ => false,
        }
    }

    /// True if the end of a cleanly closed log contradicts the epochs.
    pub(super) fn epochs_contradict_end(&mut self, log_start: Offset) -> Result<bool, LogError> {
        let Some(newest) = self.segments.iter().rposition(|segment| !segment.is_empty()) else {
            return Ok(false);
        };
        if log_start >= self.log_end {
            return Ok(false);
        }
        self.epochs_contradict(newest)
    }

    /// True if the ends of a segment contradict the epochs.
    fn epochs_contradict(&mut self, index: usize) -> Result<bool, LogError> {
        match ends_contradict(&self.home, &mut self.segments, index, &self.epochs) {
            Ok(contradict) => Ok(contradict),
            Err(ScanError::Io(error)) => Err(error.into()),
            // Readers will find the damage.
            Err(ScanError::Corrupt(_)) => Ok(false),
        }
    }

    /// Rebuilds the epochs below a segment, where recovery begins, if the end of the previous segment
    /// contradicts them, because the checkpoint is an older copy.
    pub(super) fn fit_epochs_before(
        &mut self,
        index: usize,
        name: &TopicPartition,
        log_start: Offset,
    ) -> Result<(), LogError> {
        let end = self.segments[index].base_offset;
        let log_start = log_start.max(self.segments[0].base_offset);
        let Some(newest) = self.segments[..index].iter().rposition(|segment| !segment.is_empty()) else {
            return Ok(());
        };
        if log_start < end && self.epochs_contradict(newest)? {
            self.rebuild_epochs(name, log_start, end)?;
            self.epoch_replay = EpochReplay::new(self.epochs.clone(), end);
        }
        Ok(())
    }
}

/// A segment whose epochs must be read, because its batches contradict the known epochs.
#[derive(Debug)]
pub struct EpochScan {
    file: Arc<LogFile>,
    segment: Offset,
    /// The offsets of the segment's records.
    offsets: Range<Offset>,
    size_bytes: u64,
    /// The epoch of the last batch before the segment.
    before: LeaderEpoch,
    /// The epoch of the first batch after the segment, if known.
    behind: Option<LeaderEpoch>,
    rewrites: u64,
}

impl EpochScan {
    /// The epochs of the segment with their first offsets; empty for a damaged segment, whose damage readers
    /// will find. An epoch contradicted by a neighbouring batch is a flipped bit. Call it without the
    /// partition's lock.
    pub fn run(&self) -> io::Result<Vec<(LeaderEpoch, Offset)>> {
        check_may_wait("A scan for leader epochs", Path::new("a segment"));
        match self.scan() {
            Ok(found) => Ok(found),
            Err(ScanError::Io(error)) => Err(error),
            Err(ScanError::Corrupt(_)) => Ok(Vec::new()),
        }
    }

    fn scan(&self) -> Result<Vec<(LeaderEpoch, Offset)>, ScanError> {
        let mut scan = HeaderScan::new(&self.file, 0, self.size_bytes);
        let mut found: Vec<(LeaderEpoch, Offset)> = Vec::new();
        let mut next = scan.next()?;
        // If the first batches of an epoch may have been compacted away, a start that is too low is safe.
        let mut behind = self.segment;
        while let Some(batch) = next {
            next = scan.next()?;
            let start = std::mem::replace(&mut behind, batch.header.next_offset());
            let epoch = batch.header.leader_epoch;
            let rises = found.last().map_or(epoch >= self.before, |&(latest, _)| epoch > latest);
            let bound = next.as_ref().map(|next| next.header.leader_epoch).or(self.behind);
            if rises && bound.is_none_or(|bound| epoch <= bound) {
                found.push((epoch, start));
            }
        }
        Ok(found)
    }
}

impl PartitionLog {
    /// The scan of a segment found on disk, if batches at its ends, or at the start of an epoch, contradict
    /// the known epochs.
    pub(super) fn misfit(&mut self, index: usize) -> Result<Option<EpochScan>, LogError> {
        if self.segments[index].is_empty() {
            return Ok(None);
        }
        match self.find_misfit(index) {
            Ok(misfit) => Ok(misfit),
            Err(ScanError::Io(error)) => Err(error.into()),
            // Readers will find the damage.
            Err(ScanError::Corrupt(_)) => Ok(None),
        }
    }

    fn find_misfit(&mut self, index: usize) -> Result<Option<EpochScan>, ScanError> {
        let Some(offsets) = self.offsets_to_fit(index) else { return Ok(None) };
        let segments = &mut self.segments;
        // The start has checked the end of the newest segment; records were appended to it since.
        let is_closed = index + 1 < segments.len();
        let contradict = (is_closed && ends_contradict(&self.home, segments, index, &self.epochs)?)
            || starts_contradict(&self.home, segments, index, offsets.clone(), &self.epochs)?;
        if !contradict {
            return Ok(None);
        }
        let (before, behind) = neighbours_of(&self.home, segments, index)?;
        let segment = &mut self.segments[index];
        Ok(Some(EpochScan {
            file: segment.file(&self.home)?,
            segment: segment.base_offset,
            offsets,
            size_bytes: segment.size_bytes(),
            before: before.map_or(LeaderEpoch::NONE, |before| before.leader_epoch),
            behind: behind.map(|behind| behind.leader_epoch),
            rewrites: self.rewrites,
        }))
    }

    /// Finishes the check of a segment by taking over the epochs found in it. If the log was rewritten
    /// meanwhile, the segment is checked again.
    pub fn finish_segment_check(
        &mut self,
        scan: &EpochScan,
        found: &[(LeaderEpoch, Offset)],
    ) -> Result<(), LogError> {
        let index = self.segments.partition_point(|segment| segment.base_offset < scan.segment);
        let is_there = self.segments.get(index).is_some_and(|segment| segment.base_offset == scan.segment);
        if !is_there || scan.rewrites != self.rewrites {
            return Ok(());
        }
        let offsets = scan.offsets.start.max(self.log_start)..scan.offsets.end;
        if !offsets.is_empty() && !found.is_empty() {
            let known = self.epochs.entries().to_vec();
            self.epochs.refit(offsets, found);
            if self.epochs.entries() != known {
                tracing::warn!(
                    partition = %self.name, segment = scan.segment.0,
                    "Leader epoch checkpoint does not fit the batches of a segment: took over theirs"
                );
            }
            let written = self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache);
            self.home.disk.unless_full(written)?;
        }
        self.checked_to(index);
        Ok(())
    }

    /// True if a known epoch begins within a segment.
    pub(super) fn has_starts_of_epochs(&self, index: usize) -> bool {
        self.offsets_to_fit(index)
            .is_some_and(|offsets| !self.epochs.between(offsets.start + 1, offsets.end - 1).is_empty())
    }

    /// The offsets of a segment that are not deleted, if any.
    fn offsets_to_fit(&self, index: usize) -> Option<Range<Offset>> {
        let end = self.segments.get(index + 1).map_or(self.log_end, |next| next.base_offset);
        let offsets = self.segments[index].base_offset.max(self.log_start)..end;
        (!offsets.is_empty()).then_some(offsets)
    }
}
