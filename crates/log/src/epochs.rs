//! The leader epochs of a partition, each with the offset of its first record (Kafka's
//! `LeaderEpochFileCache`).
//!
//! Owns: the entries, their file `leader-epoch-checkpoint`, and when it is written. Refuses: knowing the
//! leader.
//!
//! The file is written when an epoch gets its first batch, and synced before the recovery point passes the
//! entry. An epoch without a batch stays in memory: if the process ends, no stored batch depends on that
//! epoch. So becoming the leader of a thousand idle partitions costs no write.

use std::io;
use std::ops::Range;
use std::path::Path;

use thalweg_record::{LeaderEpoch, Offset};

use crate::checkpoint::{self, BadCheckpoint, LEADER_EPOCH_FILE};
use crate::disk::{Disk, Durability};

/// An epoch and the offset after its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest known epoch that is not larger than the requested one.
    pub leader_epoch: LeaderEpoch,
    /// The start offset of the next epoch, or the log end.
    pub end_offset: Offset,
}

/// The state of the file, compared with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    Synced,
    Written,
    Stale,
}

/// The epochs of one partition, oldest first; epochs and offsets both increase.
#[derive(Clone, Debug)]
pub struct LeaderEpochs {
    entries: Vec<(LeaderEpoch, Offset)>,
    file: FileState,
    /// Number of times that the file was written.
    writes: u64,
}

impl LeaderEpochs {
    /// No epochs, as in an empty log.
    pub fn empty() -> LeaderEpochs {
        LeaderEpochs { entries: Vec::new(), file: FileState::Synced, writes: 0 }
    }

    /// The epochs in the file; `None` if it is invalid and must be rebuilt from the batches. An unreadable
    /// file is an error, since it may be valid.
    pub fn load(disk: &Disk, dir: &Path) -> io::Result<Option<LeaderEpochs>> {
        let path = dir.join(LEADER_EPOCH_FILE);
        match checkpoint::read_epochs(disk, &path) {
            Ok(read) => {
                let mut epochs = LeaderEpochs::empty();
                for (epoch, start) in read {
                    epochs.assign(epoch, start);
                }
                epochs.file = FileState::Written;
                Ok(Some(epochs))
            }
            Err(BadCheckpoint::Io(error)) => Err(error),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "Ignored an invalid leader epoch checkpoint");
                Ok(None)
            }
        }
    }

    /// Notes that `epoch` begins at `start`, unless the log is in that epoch already. Removes contradicting
    /// entries. Returns true if anything changed.
    pub fn assign(&mut self, epoch: LeaderEpoch, start: Offset) -> bool {
        if epoch.0 < 0 || start.0 < 0 {
            return false;
        }
        if let Some(&(latest, latest_start)) = self.entries.last()
            && latest == epoch
            && start >= latest_start
        {
            return false;
        }
        while self.entries.last().is_some_and(|&(last, last_start)| last >= epoch || last_start >= start) {
            self.entries.pop();
        }
        self.entries.push((epoch, start));
        self.file = FileState::Stale;
        true
    }

    /// The latest epoch.
    pub fn latest(&self) -> Option<LeaderEpoch> {
        self.entries.last().map(|&(epoch, _)| epoch)
    }

    /// The earliest epoch and its first offset.
    pub fn earliest(&self) -> Option<(LeaderEpoch, Offset)> {
        self.entries.first().copied()
    }

    /// All epochs with their first offsets, oldest first.
    pub fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    /// The epoch of the record at `offset`.
    pub fn at(&self, offset: Offset) -> Option<LeaderEpoch> {
        let after = self.entries.partition_point(|&(_, start)| start <= offset);
        after.checked_sub(1).map(|index| self.entries[index].0)
    }

    /// The epochs that begin at `from`, at `to` or between them.
    pub fn between(&self, from: Offset, to: Offset) -> &[(LeaderEpoch, Offset)] {
        let first = self.entries.partition_point(|&(_, start)| start < from);
        let behind = self.entries.partition_point(|&(_, start)| start <= to);
        &self.entries[first..behind.max(first)]
    }

    /// The end of `epoch`, for a follower or a consumer that checks if its log has diverged.
    pub fn end_of(&self, epoch: LeaderEpoch, log_end: Offset) -> Option<EpochEnd> {
        if epoch == LeaderEpoch::NONE {
            return None;
        }
        if self.latest() == Some(epoch) {
            return Some(EpochEnd { leader_epoch: epoch, end_offset: log_end });
        }
        let higher = self.entries.partition_point(|&(known, _)| known <= epoch);
        let &(_, end_offset) = self.entries.get(higher)?;
        let leader_epoch = higher.checked_sub(1).map_or(epoch, |floor| self.entries[floor].0);
        Some(EpochEnd { leader_epoch, end_offset })
    }

    /// Drops the epochs that begin at or after `end`.
    pub fn truncate_from_end(&mut self, end: Offset) {
        let kept = self.entries.partition_point(|&(_, start)| start < end);
        if kept < self.entries.len() {
            self.entries.truncate(kept);
            self.file = FileState::Stale;
        }
    }

    /// Drops entries before `start`; the epoch of `start` now begins there.
    pub fn truncate_from_start(&mut self, start: Offset) {
        let before = self.entries.partition_point(|&(_, first)| first <= start);
        if before == 0 || (before == 1 && self.entries[0].1 == start) {
            return;
        }
        self.entries.drain(..before - 1);
        self.entries[0].1 = start;
        self.file = FileState::Stale;
    }

    /// Replaces the epochs in this offset range by those found in the batches, and drops contradicting
    /// entries.
    pub fn refit(&mut self, offsets: Range<Offset>, found: &[(LeaderEpoch, Offset)]) {
        let Some(&(first, _)) = found.first() else { return };
        let behind = self.at(offsets.end).map(|epoch| (epoch, offsets.end));
        let before = |&&(epoch, start): &&(LeaderEpoch, Offset)| start < offsets.start && epoch <= first;
        let mut fitted: Vec<_> = self.entries.iter().filter(before).copied().collect();
        let later = self.entries.iter().filter(|(_, start)| *start > offsets.end);
        let found = found.iter().map(|&(epoch, start)| (epoch, start.max(offsets.start)));
        for (epoch, start) in found.chain(behind).chain(later.copied()) {
            if fitted.last().is_none_or(|&(latest, latest_start)| latest < epoch && latest_start < start) {
                fitted.push((epoch, start));
            }
        }
        self.replace_by(&fitted);
    }

    /// Takes over the epochs of an identical log.
    pub fn replace_by(&mut self, entries: &[(LeaderEpoch, Offset)]) {
        if self.entries != entries {
            self.entries = entries.to_vec();
            self.file = FileState::Stale;
        }
    }

    /// Drops all epochs.
    pub fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.file = FileState::Stale;
        }
    }

    /// Writes the file with the given durability, unless written already.
    pub fn write(&mut self, disk: &Disk, dir: &Path, durability: Durability) -> io::Result<()> {
        let enough = match durability {
            Durability::PageCache => self.file != FileState::Stale,
            Durability::Synced => self.file == FileState::Synced,
        };
        if enough {
            return Ok(());
        }
        self.writes += 1;
        checkpoint::write_epochs(disk, &dir.join(LEADER_EPOCH_FILE), &self.entries, durability)?;
        self.file = match durability {
            Durability::PageCache => FileState::Written,
            Durability::Synced => FileState::Synced,
        };
        Ok(())
    }

    /// The write count to compare with after a sync of the file; `None` if the file is synced.
    pub fn unsynced(&self) -> Option<u64> {
        (self.file != FileState::Synced).then_some(self.writes)
    }

    /// Records that the file was synced after this many writes.
    pub fn set_synced(&mut self, writes: u64) {
        if self.file == FileState::Written && self.writes == writes {
            self.file = FileState::Synced;
        }
    }

    /// True if a change must be written to the file.
    pub fn is_stale(&self) -> bool {
        self.file == FileState::Stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(entries: &[(i32, i64)]) -> LeaderEpochs {
        let mut epochs = LeaderEpochs::empty();
        for &(epoch, start) in entries {
            epochs.assign(LeaderEpoch(epoch), Offset(start));
        }
        epochs
    }

    fn end(leader_epoch: i32, end_offset: i64) -> Option<EpochEnd> {
        Some(EpochEnd { leader_epoch: LeaderEpoch(leader_epoch), end_offset: Offset(end_offset) })
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let epochs = epochs(&[(2, 10), (5, 20), (9, 30)]);
        let end_of = |epoch| epochs.end_of(LeaderEpoch(epoch), Offset(40));
        assert_eq!(end_of(9), end(9, 40));
        assert_eq!(end_of(10), None);
        assert_eq!(end_of(2), end(2, 20));
        assert_eq!(end_of(4), end(2, 20));
        assert_eq!(end_of(5), end(5, 30));
        assert_eq!(end_of(1), end(1, 10));
        assert_eq!(end_of(-1), None);
        assert_eq!(LeaderEpochs::empty().end_of(LeaderEpoch(0), Offset(0)), None);
    }

    #[test]
    fn a_contradicting_entry_drops_the_later_ones() {
        let mut epochs = epochs(&[(2, 10), (5, 20), (9, 30)]);
        assert!(!epochs.assign(LeaderEpoch(9), Offset(35)));
        assert!(epochs.assign(LeaderEpoch(6), Offset(25)));
        assert_eq!(epochs.entries().len(), 3);
        assert_eq!(epochs.latest(), Some(LeaderEpoch(6)));
        assert!(epochs.assign(LeaderEpoch(7), Offset(15)));
        assert_eq!(epochs.entries(), [(LeaderEpoch(2), Offset(10)), (LeaderEpoch(7), Offset(15))]);
    }

    #[test]
    fn truncation_keeps_the_epoch_in_force_at_the_new_start() {
        let mut epochs = epochs(&[(2, 10), (5, 20), (9, 30)]);
        epochs.truncate_from_start(Offset(25));
        assert_eq!(epochs.entries(), [(LeaderEpoch(5), Offset(25)), (LeaderEpoch(9), Offset(30))]);
        epochs.truncate_from_start(Offset(3));
        assert_eq!(epochs.earliest(), Some((LeaderEpoch(5), Offset(25))));
        epochs.truncate_from_end(Offset(30));
        assert_eq!(epochs.latest(), Some(LeaderEpoch(5)));
        epochs.truncate_from_end(Offset(25));
        assert_eq!(epochs.latest(), None);
    }

    #[test]
    fn batches_outrank_the_epochs_of_their_offsets() {
        let refitted = |known: &[(i32, i64)], found: &[(i32, i64)]| {
            let found: Vec<_> =
                found.iter().map(|&(epoch, start)| (LeaderEpoch(epoch), Offset(start))).collect();
            let mut epochs = epochs(known);
            epochs.refit(Offset(20)..Offset(40), &found);
            epochs.entries().iter().map(|(epoch, start)| (epoch.0, start.0)).collect::<Vec<_>>()
        };
        assert_eq!(refitted(&[(2, 0), (7, 50)], &[(3, 20), (4, 30)]), [(2, 0), (3, 20), (4, 30), (7, 50)]);
        assert_eq!(refitted(&[(9, 0)], &[(4, 20)]), [(4, 20), (9, 40)]);
        assert_eq!(refitted(&[(2, 0), (3, 25), (6, 35)], &[(2, 20)]), [(2, 0), (6, 40)]);
        assert_eq!(refitted(&[(2, 0), (3, 40)], &[(5, 20)]), [(2, 0), (5, 20)]);
        assert_eq!(refitted(&[(2, 10)], &[]), [(2, 10)]);
    }

    #[test]
    fn the_epoch_at_an_offset_is_the_last_that_began() {
        let epochs = epochs(&[(2, 10), (5, 20)]);
        assert_eq!(epochs.at(Offset(9)), None);
        assert_eq!(epochs.at(Offset(10)), Some(LeaderEpoch(2)));
        assert_eq!(epochs.at(Offset(20)), Some(LeaderEpoch(5)));
    }
}
