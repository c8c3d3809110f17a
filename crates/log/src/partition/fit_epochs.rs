//! The leader epochs of a log that is being opened: whether the checkpoint fits the batches, and rebuilding it.
//!
//! Owns: that the batches outrank the file. It may be that of another time or of another log, which something has put
//! there while the log was closed, and a leader that believes it tells its followers to cut their logs. A start
//! compares it with the first two batches and the last two of the newest segment; the segments before are compared one
//! at a time in the background (see `continuity`). No CRC covers the epoch of a batch, and a follower with a wrong epoch
//! may be refused by its leader for ever: one batch alone does not outrank the file if a flipped bit explains the
//! difference. Readers put that bit right. Refuses: judging single batches; see `examine`.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use thalweg_record::{BatchHeader, LeaderEpoch, Offset};

use super::PartitionLog;
use super::error::LogError;
use super::examine::is_flipped;
use super::load::Loading;
use super::replay::EpochReplay;
use crate::disk::{Durability, LogFile, check_may_wait};
use crate::epochs::LeaderEpochs;
use crate::scan::{HeaderScan, ScanError};
use crate::segment::{Home, Segment};
use crate::topic_partition::TopicPartition;

/// Whether the epoch of a batch is the one that is known for its offset, if one is. Batches of old formats have none.
fn agrees(epochs: &LeaderEpochs, header: &BatchHeader) -> bool {
    header.leader_epoch.0 < 0
        || epochs.at(header.base_offset).is_none_or(|known| known == header.leader_epoch)
}

/// Whether a batch shows, with no other of its segment, that the epochs are not its own: it fits the batches beside it,
/// and one of them shows that, too, or no flipped bit explains its epoch.
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
fn first_two(
    home: &Home,
    segment: &mut Segment,
) -> Result<(Option<BatchHeader>, Option<BatchHeader>), ScanError> {
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, 0, segment.size_bytes());
    let first = scan.next()?;
    let second = scan.next()?;
    Ok((first.map(|first| first.header), second.map(|second| second.header)))
}

/// The last two batches of a segment.
fn last_two(
    home: &Home,
    segment: &mut Segment,
) -> Result<(Option<BatchHeader>, Option<BatchHeader>), ScanError> {
    let end = segment.read_next_offset(home)?;
    let Some(last) = segment.locate(home, end - 1)? else { return Ok((None, None)) };
    let first_of_last = segment.base_offset + i64::from(last.relative_base);
    let from = segment.position_not_behind(home, first_of_last - 1)?;
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, from, segment.size_bytes());
    let (mut before, mut last) = (None, None);
    while let Some(batch) = scan.next()? {
        before = last.replace(batch.header);
    }
    Ok((before, last))
}

/// The last batch before a segment and the first one behind it, if they can be read.
pub(super) fn neighbours_of(
    home: &Home,
    segments: &mut [Segment],
    index: usize,
) -> io::Result<(Option<BatchHeader>, Option<BatchHeader>)> {
    let (before, rest) = segments.split_at_mut(index);
    let before = before.iter_mut().rfind(|segment| !segment.is_empty());
    let behind = rest.iter_mut().skip(1).find(|segment| !segment.is_empty());
    let last = header_of(home, before, |segment| last_two(home, segment).map(|(_, last)| last))?;
    let first = header_of(home, behind, |segment| Ok(segment.batch_at(home, 0)?.map(|first| first.header)))?;
    Ok((last, first))
}

/// The header that `read` finds in a segment, which is closed again; `None` also where it is damaged.
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

impl Loading {
    /// Whether the first batches that may be read belong to no known epoch.
    pub(super) fn epochs_are_short(&mut self, log_start: Offset) -> bool {
        // Where all records are deleted, there is no epoch left to know.
        if log_start >= self.log_end {
            return false;
        }
        let earliest = self.epochs.earliest();
        let begins_by = |offset| earliest.is_some_and(|(_, start)| start <= offset);
        if begins_by(log_start) {
            return false;
        }
        let Some(first) = self.segments.iter_mut().find(|segment| !segment.is_empty()) else { return false };
        // The records before the first batch were compacted away, here or where it was copied from.
        match first.batch_at(&self.home, 0) {
            Ok(Some(batch)) => batch.header.leader_epoch.0 >= 0 && !begins_by(batch.header.base_offset),
            _ => false,
        }
    }

    /// Whether the end of a log that was cleanly closed contradicts the epochs.
    pub(super) fn epochs_contradict_end(&mut self, log_start: Offset) -> Result<bool, LogError> {
        let Some(newest) = self.segments.iter().rposition(|segment| !segment.is_empty()) else {
            return Ok(false);
        };
        if log_start >= self.log_end {
            return Ok(false);
        }
        match self.compare_epochs(newest) {
            Ok(contradicts) => Ok(contradicts),
            Err(ScanError::Io(error)) => Err(error.into()),
            // Readers come to it.
            Err(ScanError::Corrupt(_)) => Ok(false),
        }
    }

    fn compare_epochs(&mut self, newest: usize) -> Result<bool, ScanError> {
        let (mut before, last) = last_two(&self.home, &mut self.segments[newest])?;
        let Some(last) = last else { return Ok(false) };
        if before.is_none() && !agrees(&self.epochs, &last) {
            let older = self.segments[..newest].iter_mut().rfind(|segment| !segment.is_empty());
            before = older.map_or(Ok(None), |older| last_two(&self.home, older).map(|(_, last)| last))?;
        }
        if one_contradicts(&self.epochs, before.as_ref(), &last, None) {
            return Ok(true);
        }
        let (first, second) = first_two(&self.home, &mut self.segments[newest])?;
        Ok(first
            .zip(second)
            .is_some_and(|(first, second)| !agrees(&self.epochs, &first) && !agrees(&self.epochs, &second)))
    }

    /// Rebuilds the leader epochs from all batches, and from what is known of them. The first epoch is assumed to start
    /// with the log: its first batches may have been compacted away.
    pub(super) fn rebuild_epochs(
        &mut self,
        name: &TopicPartition,
        log_start: Offset,
    ) -> Result<(), LogError> {
        tracing::warn!(partition = %name, "Rebuilt leader epochs from the batches");
        let mut replay = EpochReplay::new(self.epochs.clone(), log_start);
        self.epochs.clear();
        for segment in &mut self.segments {
            let file = segment.file(&self.home)?;
            let mut scan = HeaderScan::new(&file, 0, segment.size_bytes());
            loop {
                match scan.next() {
                    Ok(Some(batch)) => replay.note(&mut self.epochs, &batch.header),
                    Ok(None) => break,
                    Err(ScanError::Io(error)) => return Err(error.into()),
                    Err(ScanError::Corrupt(fault)) => {
                        tracing::error!(partition = %name, segment = segment.base_offset.0, %fault, "Segment is damaged");
                        break;
                    }
                }
            }
            self.home.disk.unless_full(segment.release(&self.home))?;
        }
        self.home.disk.unless_full(self.epochs.write(
            &self.home.disk,
            &self.home.dir,
            Durability::PageCache,
        ))?;
        Ok(())
    }
}

/// A closed segment whose epochs are to be read, because its first batches contradict those that are known.
#[derive(Debug)]
pub struct EpochScan {
    file: Arc<LogFile>,
    segment: Offset,
    size_bytes: u64,
    /// That of the last batch before the segment.
    before: LeaderEpoch,
    /// That of the first batch behind it, if it is known.
    behind: Option<LeaderEpoch>,
    rewrites: u64,
}

impl EpochScan {
    /// The epochs of the segment with their first offsets; none where it is damaged: readers come to that. One that a batch
    /// beside it contradicts is a flipped bit. Call it without the partition's lock.
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
        while let Some(batch) = next {
            next = scan.next()?;
            let epoch = batch.header.leader_epoch;
            let rises = found.last().map_or(epoch >= self.before, |&(latest, _)| epoch > latest);
            let bound = next.as_ref().map(|next| next.header.leader_epoch).or(self.behind);
            if rises && bound.is_none_or(|bound| epoch <= bound) {
                let start = if found.is_empty() { self.segment } else { batch.header.base_offset };
                found.push((epoch, start));
            }
        }
        Ok(found)
    }
}

impl PartitionLog {
    /// The scan of a closed segment that was found on disk, if its first batches contradict the known epochs.
    pub(super) fn misfit(&mut self, index: usize) -> Result<Option<EpochScan>, LogError> {
        if self.segments[index].is_empty() || self.offsets_to_fit(index).is_none() {
            return Ok(None);
        }
        match self.find_misfit(index) {
            Ok(misfit) => Ok(misfit),
            Err(ScanError::Io(error)) => Err(error.into()),
            // Readers come to it.
            Err(ScanError::Corrupt(_)) => Ok(None),
        }
    }

    fn find_misfit(&mut self, index: usize) -> Result<Option<EpochScan>, ScanError> {
        let (first, second) = first_two(&self.home, &mut self.segments[index])?;
        let Some(first) = first.filter(|first| !agrees(&self.epochs, first)) else { return Ok(None) };
        let (before, behind) = neighbours_of(&self.home, &mut self.segments, index)?;
        let two_contradict = second.as_ref().is_some_and(|second| !agrees(&self.epochs, second));
        let next = second.or(behind);
        if !two_contradict && !one_contradicts(&self.epochs, before.as_ref(), &first, next.as_ref()) {
            return Ok(None);
        }
        let segment = &mut self.segments[index];
        Ok(Some(EpochScan {
            file: segment.file(&self.home)?,
            segment: segment.base_offset,
            size_bytes: segment.size_bytes(),
            before: before.map_or(LeaderEpoch::NONE, |before| before.leader_epoch),
            behind: behind.map(|behind| behind.leader_epoch),
            rewrites: self.rewrites,
        }))
    }

    /// Ends the check of a closed segment: takes over the epochs that were found in it. If the log was rewritten meanwhile,
    /// the segment is looked at again.
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
        if let Some(offsets) = self.offsets_to_fit(index)
            && !found.is_empty()
        {
            tracing::warn!(
                partition = %self.name, segment = scan.segment.0,
                "Leader epoch checkpoint does not fit the batches of a segment: took over theirs"
            );
            self.epochs.refit(offsets, found);
            let written = self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache);
            self.home.disk.unless_full(written)?;
        }
        self.checked_to(index);
        Ok(())
    }

    /// The offsets of a closed segment that are not deleted, if there are any.
    fn offsets_to_fit(&self, index: usize) -> Option<Range<Offset>> {
        let [segment, next, ..] = &self.segments[index..] else { return None };
        let offsets = segment.base_offset.max(self.log_start)..next.base_offset;
        (!offsets.is_empty()).then_some(offsets)
    }
}
