//! Recovery: what a stop that was not clean has left, read and checked batch by batch.
//!
//! Owns: finding where the log ends, and making anew what depends on it. Refuses: keeping anything after the first
//! batch that is not whole and valid; what is cut is told.

use thalweg_record::Offset;

use super::error::LogError;
use super::in_flight::recall_in_flight;
use super::load::{Loading, OpenOptions, unless_full};
use super::replay::{replay_completion, replay_epoch, replay_producers, replay_segments};
use crate::config::LogConfig;
use crate::disk::{Durability, LogFile};
use crate::epochs::LeaderEpochs;
use crate::producers::{Producers, snapshot};
use crate::scan::{BatchFault, BatchScan, CorruptBatch, HeaderScan, Placed, ScanError, is_zeros};
use crate::segment::{Home, SNAPSHOT_SUFFIX, Segment, check_order};
use crate::topic_partition::TopicPartition;

impl Loading {
    /// Reads and checks all batches from the recovery point on and cuts the log where they end.
    pub(super) fn recover(
        &mut self,
        name: &TopicPartition,
        config: &LogConfig,
        options: &OpenOptions,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let recovery_point = options.recovery_point;
        let synced_to = match self.epochs.entries().last() {
            Some(&(_, start)) if options.reaches_latest_epoch => start,
            _ => Offset::ZERO,
        };
        let first = self.segments.partition_point(|segment| segment.base_offset <= recovery_point);
        let first = first.saturating_sub(1);
        let first_base = self.segments[first].base_offset;
        self.load_producers(config, first_base, now_ms)?;
        replay_segments(&self.home, &mut self.segments[..first], &mut self.producers, first_base)?;
        self.epochs.truncate_from_end(first_base);
        self.log_end = first_base;
        let mut index = first;
        while index < self.segments.len() {
            let cut_bytes = self.recover_segment(index, name, config, recovery_point, synced_to)?;
            if cut_bytes > 0 {
                self.drop_segments_after(index, name)?;
            }
            index += 1;
        }
        if self.log_end < synced_to {
            return Err(LogError::EndsEarly { log_end: self.log_end, synced_to });
        }
        if self.log_end < recovery_point {
            tracing::error!(
                partition = %name, log_end = self.log_end.0, recovery_point = recovery_point.0,
                "Records that had been synced are gone"
            );
        }
        recall_in_flight(&self.home, &mut self.segments, &mut self.producers)?;
        let end = self.log_end.0;
        self.producers.set_map_end(end);
        if !self.producers.is_empty() {
            let path = self.home.file(self.log_end, SNAPSHOT_SUFFIX);
            unless_full(snapshot::write(&self.home.disk, &path, &self.producers, Durability::PageCache))?;
            self.producers.set_snapshot_offset(end);
            if self.snapshots.last() != Some(&self.log_end) {
                self.snapshots.push(self.log_end);
            }
        }
        Ok(())
    }

    /// Reads one segment to its end or to the first batch that is not valid; says how many bytes were cut.
    fn recover_segment(
        &mut self,
        index: usize,
        name: &TopicPartition,
        config: &LogConfig,
        recovery_point: Offset,
        synced_to: Offset,
    ) -> Result<u64, LogError> {
        let segment = &mut self.segments[index];
        segment.reset_indexes(&self.home)?;
        segment.reset_transactions(&self.home)?;
        let file = segment.file(&self.home)?;
        let size_bytes = segment.size_bytes();
        let mut recovery = Recovery {
            home: &self.home,
            config,
            expected: segment.base_offset.max(self.log_end),
            segment,
            producers: &mut self.producers,
            epochs: &mut self.epochs,
            valid_bytes: 0,
        };
        let outcome = recovery
            .skim(&file, size_bytes, recovery_point)
            .and_then(|()| recovery.check_rest(&file, size_bytes));
        let (log_end, valid_bytes) = (recovery.expected, recovery.valid_bytes);
        self.log_end = log_end;
        let mut cut_bytes = size_bytes - valid_bytes;
        let follows = self.segments.get(index + 1).is_none_or(|next| next.base_offset == log_end);
        let segment = &mut self.segments[index];
        match outcome {
            Ok(()) => {}
            Err(ScanError::Io(error)) => return Err(error.into()),
            Err(ScanError::Corrupt(fault)) if log_end < synced_to || is_synced(&fault, synced_to) => {
                return Err(LogError::Corrupt { segment: segment.base_offset, fault });
            }
            // What was made ready for appends that did not come: nothing is lost.
            Err(ScanError::Corrupt(_)) if follows && is_zeros(&file, valid_bytes, size_bytes)? => {
                cut_bytes = 0;
            }
            Err(ScanError::Corrupt(fault)) => tracing::warn!(
                partition = %name, segment = segment.base_offset.0, %fault, cut_bytes, log_end = log_end.0,
                "Log ends with bytes that are no valid batch and is cut"
            ),
        }
        // Also when nothing is cut: space that was reserved beyond the end is given back.
        segment.cut(&self.home, valid_bytes)?;
        unless_full(segment.finish(&self.home))?;
        Ok(cut_bytes)
    }

    fn drop_segments_after(&mut self, index: usize, name: &TopicPartition) -> Result<(), LogError> {
        for mut segment in self.segments.split_off(index + 1) {
            tracing::error!(
                partition = %name, segment = segment.base_offset.0, size_bytes = segment.size_bytes(),
                "Segment follows a damaged one and is dropped"
            );
            for path in segment.mark_deleted(&self.home, true)? {
                self.home.disk.remove(&path)?;
            }
        }
        Ok(())
    }
}

/// Whether what does not follow is a batch that was synced: the one before it has a wrong offset, which no CRC covers.
fn is_synced(fault: &CorruptBatch, synced_to: Offset) -> bool {
    matches!(fault.reason, BatchFault::OffsetsOutOfOrder { base_offset, .. } if base_offset < synced_to.0)
}

/// A segment while it is recovered.
struct Recovery<'a> {
    home: &'a Home,
    config: &'a LogConfig,
    segment: &'a mut Segment,
    producers: &'a mut Producers,
    epochs: &'a mut LeaderEpochs,
    /// The smallest base offset that the next batch may have.
    expected: Offset,
    /// Where the last accepted batch ends.
    valid_bytes: u64,
}

impl Recovery<'_> {
    /// Takes what lies wholly below the recovery point, which was synced: only headers are read, for the indexes
    /// and the producers.
    fn skim(&mut self, file: &LogFile, size_bytes: u64, recovery_point: Offset) -> Result<(), ScanError> {
        let mut scan = HeaderScan::new(file, 0, size_bytes);
        while let Some(placed) = scan.next()? {
            if placed.header.last_offset() >= recovery_point {
                break;
            }
            let mut bytes = Vec::new();
            if placed.header.attributes.is_control() && placed.header.producer_id.is_some() {
                bytes.resize(placed.header.size_bytes(), 0);
                file.read_at(&mut bytes, placed.position)?;
            }
            self.accept(&placed, &bytes)?;
        }
        Ok(())
    }

    /// Reads and checks the rest.
    fn check_rest(&mut self, file: &LogFile, size_bytes: u64) -> Result<(), ScanError> {
        let mut scan = BatchScan::new(file, self.valid_bytes, size_bytes);
        while let Some((placed, bytes)) = scan.next()? {
            self.accept(&placed, bytes)?;
        }
        Ok(())
    }

    fn accept(&mut self, placed: &Placed, bytes: &[u8]) -> Result<(), ScanError> {
        check_order(placed, self.expected)?;
        self.segment.index_batch(
            self.home,
            placed.position,
            &placed.header,
            self.config.index_interval_bytes,
        );
        replay_epoch(self.epochs, &placed.header, placed.header.base_offset);
        if let Some(completed) = replay_producers(self.producers, &placed.header, bytes)
            && let Some(aborted) = replay_completion(self.producers, &completed)
        {
            self.segment.add_aborted(self.home, &aborted)?;
        }
        self.expected = placed.header.next_offset();
        self.valid_bytes = placed.end();
        Ok(())
    }
}
