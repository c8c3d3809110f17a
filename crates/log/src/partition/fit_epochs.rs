//! The leader epochs of a log that is being opened: whether the checkpoint fits the batches, and rebuilding it.
//!
//! Owns: that the batches outrank the file. It may be that of another time or of another log, which something has put
//! there while the log was closed, and a leader that believes it tells its followers to cut their logs. A start
//! compares it with the first batch and the last two of the newest segment; the segments before are compared one at a
//! time in the background (see `continuity`). Refuses: judging single batches, whose epoch no CRC covers; see
//! `examine`.

use std::io;

use thalweg_record::{BatchHeader, LeaderEpoch, Offset};

use super::PartitionLog;
use super::error::LogError;
use super::examine::EPOCHS_LOST_MAX;
use super::load::Loading;
use super::replay::EpochReplay;
use crate::disk::Durability;
use crate::epochs::LeaderEpochs;
use crate::scan::{HeaderScan, ScanError};
use crate::segment::{Home, Segment};
use crate::topic_partition::TopicPartition;

/// Whether the epoch of a batch is the one that is known for its offset, if one is. Batches of old formats have none.
fn agrees(epochs: &LeaderEpochs, header: &BatchHeader) -> bool {
    header.leader_epoch.0 < 0
        || epochs.at(header.base_offset).is_none_or(|known| known == header.leader_epoch)
}

/// Whether the last batch of a log shows that the epochs are not its own: the one before does, too, or it is of an
/// epoch that may have begun with it. Otherwise a bit of it was flipped.
fn last_contradicts(epochs: &LeaderEpochs, before: Option<&BatchHeader>, last: &BatchHeader) -> bool {
    if agrees(epochs, last) {
        return false;
    }
    let Some(before) = before.filter(|before| agrees(epochs, before)) else { return true };
    let (found, known) = (last.leader_epoch, epochs.at(last.base_offset).unwrap_or(LeaderEpoch::NONE));
    let is_near = found.0 <= before.leader_epoch.0.saturating_add(EPOCHS_LOST_MAX);
    found >= before.leader_epoch && (is_near || (found.0 ^ known.0).count_ones() > 1)
}

/// Whether the first batches of a segment, one of which may have a flipped bit, contradict the epochs.
fn first_two_contradict(
    home: &Home,
    epochs: &LeaderEpochs,
    segment: &mut Segment,
) -> Result<bool, ScanError> {
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, 0, segment.size_bytes());
    for _ in 0..2 {
        match scan.next()? {
            Some(batch) if agrees(epochs, &batch.header) => return Ok(false),
            Some(_) => {}
            None => break,
        }
    }
    Ok(true)
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
    let (before, behind) = segments.split_at_mut(index);
    let last = before.last_mut().map(|before| last_two(home, before).map(|(_, last)| last));
    let first = behind.get_mut(1).map(|behind| Ok(behind.batch_at(home, 0)?.map(|first| first.header)));
    let readable = |found: Option<Result<Option<BatchHeader>, ScanError>>| match found {
        Some(Err(ScanError::Io(error))) => Err(error),
        found => Ok(found.and_then(Result::ok).flatten()),
    };
    Ok((readable(last)?, readable(first)?))
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
        if last_contradicts(&self.epochs, before.as_ref(), &last) {
            return Ok(true);
        }
        first_two_contradict(&self.home, &self.epochs, &mut self.segments[newest])
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

impl PartitionLog {
    /// Takes over the epochs of a closed segment that was found on disk, if its first batches contradict those that are
    /// known.
    pub(super) fn fit_epochs(&mut self, index: usize) -> Result<(), LogError> {
        let [segment, next, ..] = &mut self.segments[index..] else { return Ok(()) };
        let offsets = segment.base_offset.max(self.log_start)..next.base_offset;
        if segment.is_empty() || offsets.is_empty() {
            return Ok(());
        }
        let found = match first_two_contradict(&self.home, &self.epochs, segment) {
            Ok(true) => epochs_of(&self.home, segment, next),
            Ok(false) => return Ok(()),
            Err(error) => Err(error),
        };
        let found = match found {
            Ok(found) if found.is_empty() => return Ok(()),
            Ok(found) => found,
            Err(ScanError::Io(error)) => return Err(error.into()),
            // Readers come to it.
            Err(ScanError::Corrupt(_)) => return Ok(()),
        };
        tracing::warn!(
            partition = %self.name, segment = segment.base_offset.0,
            "Leader epoch checkpoint does not fit the batches of a segment: took over theirs"
        );
        self.epochs.refit(offsets, &found);
        let written = self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache);
        self.home.disk.unless_full(written)?;
        Ok(())
    }
}

/// The epochs of a segment with their first offsets. One that the next batch contradicts, which may be that of the next
/// segment, is a flipped bit.
fn epochs_of(
    home: &Home,
    segment: &mut Segment,
    following: &mut Segment,
) -> Result<Vec<(LeaderEpoch, Offset)>, ScanError> {
    let was_open = following.is_open();
    let first_behind = following.batch_at(home, 0);
    if !was_open {
        following.release(home)?;
    }
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, 0, segment.size_bytes());
    let mut found: Vec<(LeaderEpoch, Offset)> = Vec::new();
    let mut next = scan.next()?;
    let behind = first_behind.unwrap_or_default();
    while let Some(batch) = next {
        next = scan.next()?;
        let epoch = batch.header.leader_epoch;
        let rises = found.last().is_none_or(|&(latest, _)| epoch > latest);
        if rises && next.or(behind).is_none_or(|next| epoch <= next.header.leader_epoch) {
            let start = if found.is_empty() { segment.base_offset } else { batch.header.base_offset };
            found.push((epoch, start));
        }
    }
    Ok(found)
}
