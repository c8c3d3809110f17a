//! The leader epochs of a log by its batches, for a log whose checkpoint is missing or contradicts them.
//!
//! Epochs increase from batch to batch, so the first batch of each epoch is found by binary search: the cost
//! grows with the number of epochs, and hardly with the size of the log. An epoch contradicted by the next
//! batch is a flipped bit, which readers repair.
//!
//! Owns: that search. Refuses: judging the checkpoint; see `fit_epochs`.

use std::io;

use thalweg_record::{BatchHeader, LeaderEpoch, Offset};

use super::loading::LoadingPartition;
use super::replay::EpochReplay;
use crate::disk::Durability;
use crate::epochs::LeaderEpochs;
use crate::scan::ScanError;
use crate::segment::{Home, Segment};
use crate::topic_partition::TopicPartition;

/// The batches of a log.
struct Search<'a> {
    home: &'a Home,
    segments: &'a mut [Segment],
    /// Batches from here on are not searched.
    end: Offset,
}

impl Search<'_> {
    /// The first batch whose last offset is not below `offset`, with the epoch that the next batch allows.
    /// Segments damaged there are skipped: readers will find the damage.
    fn batch_with(&mut self, offset: Offset, floor: LeaderEpoch) -> io::Result<Option<BatchHeader>> {
        let Some(mut batch) = self.read(offset)?.filter(|batch| batch.base_offset < self.end) else {
            return Ok(None);
        };
        if batch.leader_epoch != floor
            && let Some(behind) = self.read(batch.next_offset())?
            && (batch.leader_epoch > behind.leader_epoch || batch.leader_epoch < floor)
        {
            batch.leader_epoch = behind.leader_epoch;
        }
        Ok(Some(batch))
    }

    fn read(&mut self, offset: Offset) -> io::Result<Option<BatchHeader>> {
        let index = self.segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1);
        for segment in &mut self.segments[index..] {
            let was_open = segment.is_open();
            let found = if segment.base_offset < offset {
                segment.batch_with(self.home, offset)
            } else {
                // After the end of the search, no index is usable yet.
                segment.batch_at(self.home, 0).map(|first| first.map(|first| first.header))
            };
            if !was_open {
                self.home.disk.unless_full(segment.release(self.home))?;
            }
            match found {
                Ok(Some(found)) => return Ok(Some(found)),
                Err(ScanError::Io(error)) => return Err(error),
                Ok(None) | Err(ScanError::Corrupt(_)) => {}
            }
        }
        Ok(None)
    }

    /// The first batch from `from` on with an epoch above `epoch`, and the end of the batch before.
    fn first_above(&mut self, epoch: LeaderEpoch, from: Offset) -> io::Result<Option<(BatchHeader, Offset)>> {
        // If the last records were compacted away, there is no batch at the end.
        let mut first = self.batch_with(self.end - 1, epoch)?;
        if first.is_some_and(|last| last.leader_epoch <= epoch) {
            return Ok(None);
        }
        let (mut low, mut high) = (from, first.map_or(self.end, |last| last.base_offset));
        while low < high {
            let middle = Offset(low.0 + (high.0 - low.0) / 2);
            match self.batch_with(middle, epoch)?.filter(|batch| batch.base_offset < high) {
                Some(batch) if batch.leader_epoch > epoch => {
                    high = batch.base_offset.min(middle);
                    first = Some(batch);
                }
                Some(batch) => low = batch.next_offset().max(middle + 1),
                None => high = middle,
            }
        }
        Ok(first.map(|first| (first, low)))
    }
}

impl LoadingPartition {
    /// Takes the leader epochs below `end` from the batches, and known starts for epochs that may have lost
    /// their first batch to compaction. The first epoch is assumed to start with the log for the same reason.
    pub(super) fn rebuild_epochs(
        &mut self,
        name: &TopicPartition,
        log_start: Offset,
        end: Offset,
    ) -> io::Result<()> {
        let mut replay = EpochReplay::new(self.epochs.clone(), log_start);
        let mut rebuilt = LeaderEpochs::empty();
        let mut search = Search { home: &self.home, segments: &mut self.segments, end };
        let mut next = search.batch_with(log_start, LeaderEpoch::NONE)?.map(|first| (first, log_start));
        while let Some((first, behind)) = next {
            replay.skip_to(behind);
            replay.note(&mut rebuilt, &first);
            next = search.first_above(first.leader_epoch, first.next_offset())?;
        }
        self.epochs.truncate_from_end(end);
        if self.epochs.entries() != rebuilt.entries() {
            tracing::warn!(partition = %name, "Rebuilt leader epochs from the batches");
            self.epochs.replace_by(rebuilt.entries());
        }
        let written = self.epochs.write(&self.home.disk, &self.home.dir, Durability::PageCache);
        self.home.disk.unless_full(written)
    }
}
