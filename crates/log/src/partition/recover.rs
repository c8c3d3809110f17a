//! Recovery after an unclean stop: reads and checks the log batch by batch.
//!
//! Owns: finding the log end, and rebuilding dependent state. Refuses: keeping anything after the first
//! incomplete or invalid batch. Truncated bytes are logged, and kept beside the log if they contain batches.

use std::io;

use thalweg_record::{BatchHeader, Offset};

use super::error::LogError;
use super::examine::{Examination, Region, examine};
use super::fit_epochs::neighbours_of;
use super::in_flight::recall_in_flight;
use super::loading::{LoadingPartition, OpenOptions};
use super::replay::{EpochReplay, replay_producers, replay_segments};
use crate::config::LogConfig;
use crate::disk::{Durability, LogFile};
use crate::epochs::LeaderEpochs;
use crate::producers::{Producers, snapshot};
use crate::scan::{
    BatchFault, BatchPlace, BatchScan, CorruptBatch, HeaderScan, ScanError, find_batch, is_zeros, lacks_page,
};
use crate::segment::transactions::AbortedTransaction;
use crate::segment::{Home, SNAPSHOT_SUFFIX, Segment, check_order};
use crate::set_aside::SetAside;
use crate::topic_partition::TopicPartition;

impl LoadingPartition {
    /// Reads and checks all batches from the recovery point on, and truncates the log at their end.
    pub(super) fn recover(
        &mut self,
        name: &TopicPartition,
        config: &LogConfig,
        options: &OpenOptions,
        now_ms: i64,
    ) -> Result<(), LogError> {
        let latest_epoch = self.epochs.entries().last().map_or(Offset::ZERO, |(_, start)| *start);
        let synced_to = options.synced_to.map_or(Offset::ZERO, |synced_to| synced_to.max(latest_epoch));
        let first = self.first_to_recover(name, options)?;
        let first_base = self.segments[first].base_offset;
        self.check_txn_indexes(first, name, config, now_ms)?;
        self.load_producers(config, first_base, now_ms)?;
        replay_segments(&self.home, &mut self.segments[..first], &mut self.producers, first_base)?;
        self.epochs.truncate_from_end(first_base);
        self.fit_epochs_before(first, name, options.log_start)?;
        self.log_end = first_base;
        let mut index = first;
        while index < self.segments.len() {
            let examined = self.examine_and_set_aside(index, name, options)?;
            let cut_bytes = self.recover_segment(index, name, config, options, synced_to, examined.fault)?;
            index += 1;
            self.drop_unused(index, name)?;
            let next = self.segments.get(index).map(|segment| segment.base_offset);
            // A segment that starts below the end of the previous one was deleted, and restored by a power
            // failure.
            let is_left_behind = next.is_some_and(|next| next < self.log_end);
            // A log with a single writer has no gaps.
            let is_behind_gap = options.synced_to.is_some() && next.is_some_and(|next| next > self.log_end);
            if is_behind_gap && self.log_end < synced_to {
                break;
            }
            if cut_bytes > 0 || is_left_behind || is_behind_gap {
                self.set_segments_aside(index, name)?;
            }
        }
        if self.log_end < synced_to {
            return Err(LogError::EndsEarly { log_end: self.log_end, synced_to });
        }
        self.note_missing(name, options);
        recall_in_flight(&self.home, &mut self.segments, &mut self.producers)?;
        self.keep_producers()
    }

    /// Logs records that the checkpoints include and the log lacks.
    fn note_missing(&mut self, name: &TopicPartition, options: &OpenOptions) {
        self.missing = self.contradicted.and_then(|contradicted| contradicted.missing(self.log_end));
        let (log_end, recovery_point) = (self.log_end.0, options.recovery_point);
        if self.log_end < recovery_point {
            self.missing = self.missing.max(Some(recovery_point));
            tracing::error!(
                partition = %name, log_end, recovery_point = recovery_point.0, "Synced records are missing"
            );
        } else if self.log_end.max(options.log_start) < options.high_watermark {
            // A power failure is not the cause: a clean stop syncs all records.
            self.missing = self.missing.or(options.clean.then_some(options.high_watermark));
            tracing::error!(
                partition = %name, log_end, high_watermark = options.high_watermark.0,
                "Committed records are missing: the log ends below its high watermark"
            );
        }
    }

    /// Writes a snapshot of the producers at the log end.
    fn keep_producers(&mut self) -> Result<(), LogError> {
        let end = self.log_end.0;
        self.producers.set_map_end(end);
        if !self.producers.is_empty() {
            let path = self.home.file(self.log_end, SNAPSHOT_SUFFIX);
            let written = snapshot::write(&self.home.disk, &path, &self.producers, Durability::PageCache);
            let is_written = written.is_ok();
            self.home.disk.unless_full(written)?;
            // Without a new snapshot, earlier ones are still needed.
            if is_written {
                self.producers.set_snapshot_offset(end);
                if self.snapshots.last() != Some(&self.log_end) {
                    self.snapshots.push(self.log_end);
                }
            }
        }
        Ok(())
    }

    /// The base offset of the next segment, if it has a batch: bytes from there on do not belong to this
    /// segment.
    pub(super) fn next_begins_at(&mut self, index: usize) -> Option<Offset> {
        let first = self.first_of_next(index)?;
        let next_base = self.segments[index + 1].base_offset;
        (first.base_offset >= next_base).then_some(next_base)
    }

    /// The first batch of the next segment, if readable.
    pub(super) fn first_of_next(&mut self, index: usize) -> Option<BatchHeader> {
        let next = self.segments.get_mut(index + 1)?;
        Some(next.batch_at(&self.home, 0).ok()??.header)
    }

    /// Compares offsets and epochs of a segment's batches with each other. Later segments that these
    /// contradict are set aside.
    fn examine_and_set_aside(
        &mut self,
        index: usize,
        name: &TopicPartition,
        options: &OpenOptions,
    ) -> Result<Examination, LogError> {
        let expected = self.segments[index].base_offset.max(self.log_end);
        loop {
            let examined = self.examine_from(index, name, options, 0, expected)?;
            if examined.overlap.is_some()
                && let Some(batch) = self.batch_behind(index, examined.end)?
                && self.contradicts_next(index, &batch)?
                && self.begins_at_base(index)?
            {
                self.set_next_aside(index, name, options, &batch)?;
                continue;
            }
            self.oddities.note(&examined);
            return Ok(examined);
        }
    }

    pub(super) fn examine_from(
        &mut self,
        index: usize,
        name: &TopicPartition,
        options: &OpenOptions,
        from: u64,
        expected: Offset,
    ) -> Result<Examination, LogError> {
        let next_base = self.segments.get(index + 1).map(|next| next.base_offset);
        let next_first = self.first_of_next(index);
        let last_before =
            if from == 0 { neighbours_of(&self.home, &mut self.segments, index)?.0 } else { None };
        let segment = &mut self.segments[index];
        let file = segment.file(&self.home)?;
        let region = Region {
            name,
            segment: segment.base_offset,
            file: &file,
            from,
            to: segment.size_bytes(),
            size_bytes: segment.size_bytes(),
            expected,
            next_base,
            next_first,
            last_before,
            knows_neighbours: from == 0,
            epochs: self.epoch_replay.checkpoint(),
            has_gaps: options.cleaned_to > Offset::ZERO || self.oddities.gaps > 0,
            synced_to: options.recovery_point,
        };
        Ok(examine(region)?)
    }

    /// Reads one segment to its end, to the first invalid batch, or to `fault`. Returns the number of
    /// truncated bytes.
    fn recover_segment(
        &mut self,
        index: usize,
        name: &TopicPartition,
        config: &LogConfig,
        options: &OpenOptions,
        synced_to: Offset,
        fault: Option<CorruptBatch>,
    ) -> Result<u64, LogError> {
        let limit = self.next_begins_at(index);
        let segment = &mut self.segments[index];
        segment.reset_indexes();
        let file = segment.file(&self.home)?;
        let size_bytes = segment.size_bytes();
        let mut recovery = Recovery {
            home: &self.home,
            config,
            expected: segment.base_offset.max(self.log_end),
            segment,
            producers: &mut self.producers,
            epochs: &mut self.epochs,
            epoch_replay: &mut self.epoch_replay,
            aborted: Vec::new(),
            limit,
            overlaps: false,
            valid_bytes: 0,
        };
        let readable_bytes = fault.as_ref().map_or(size_bytes, |fault| fault.position);
        let outcome = recovery.read(&file, readable_bytes, options.recovery_point, fault);
        let (log_end, valid_bytes, aborted) = (recovery.expected, recovery.valid_bytes, recovery.aborted);
        // Bytes after the end were truncated before: no record is lost, and the next segment continues here.
        let is_leftover = recovery.overlaps || limit == Some(log_end);
        self.log_end = log_end;
        let mut cut_bytes = size_bytes - valid_bytes;
        let follows = self.segments.get(index + 1).is_none_or(|next| next.base_offset == log_end);
        let base = self.segments[index].base_offset;
        match outcome {
            Ok(()) => {}
            Err(ScanError::Io(error)) => return Err(error.into()),
            Err(ScanError::Corrupt(fault)) if log_end < synced_to || is_synced(&fault, synced_to) => {
                return Err(LogError::Damaged { segment: base, offset: log_end, fault });
            }
            // Space prepared for later appends: no record is lost.
            Err(ScanError::Corrupt(_)) if follows && is_zeros(&file, valid_bytes, size_bytes)? => {
                cut_bytes = 0;
            }
            Err(ScanError::Corrupt(_)) if is_leftover => {
                self.keep_before_cut(index, name, valid_bytes, log_end)?;
                cut_bytes = 0;
            }
            Err(ScanError::Corrupt(fault))
                if options.synced_to.is_some()
                    && is_no_tail(&file, &fault, valid_bytes, size_bytes, log_end, limit)? =>
            {
                return Err(LogError::Damaged { segment: base, offset: log_end, fault });
            }
            Err(ScanError::Corrupt(fault)) => {
                // Before the cut: segments after a truncated log would be part of it if the start ended here.
                self.drop_unused(index + 1, name)?;
                self.set_segments_aside(index + 1, name)?;
                let segment = &mut self.segments[index];
                before_cut(&self.home, name, segment, &file, &fault, valid_bytes, log_end)?;
            }
        }
        self.end_segment(index, valid_bytes, aborted)?;
        Ok(cut_bytes)
    }

    /// Truncates a segment at the log end, and completes its indexes.
    fn end_segment(
        &mut self,
        index: usize,
        valid_bytes: u64,
        mut aborted: Vec<AbortedTransaction>,
    ) -> io::Result<()> {
        let next_base = self.segments.get(index + 1).map(|next| next.base_offset);
        let segment = &mut self.segments[index];
        // Also without a truncation: this releases space reserved beyond the end.
        segment.cut(&self.home, valid_bytes)?;
        if let Some(next_base) = next_base {
            // The entries of a missing segment (see `txn_index`).
            let known = segment.aborted_transactions(&self.home)?.into_iter();
            aborted.extend(known.filter(|known| (self.log_end..next_base).contains(&known.last_offset)));
        }
        segment.replace_aborted(&self.home, &aborted)?;
        self.home.disk.unless_full(segment.finish(&self.home))?;
        segment.set_judged();
        Ok(())
    }

    /// Removes empty segments from `index` on that start below the log end: a roll created them and failed.
    fn drop_unused(&mut self, index: usize, name: &TopicPartition) -> Result<(), LogError> {
        while let Some(next) = self.segments.get(index)
            && next.is_empty()
            && next.base_offset < self.log_end
        {
            tracing::warn!(partition = %name, segment = next.base_offset.0, "Removed an empty segment within another");
            for path in Segment::paths(&self.home, next.base_offset) {
                self.home.disk.remove(&path)?;
            }
            self.segments.remove(index);
        }
        Ok(())
    }

    /// Sets aside segments that do not follow the previous one.
    fn set_segments_aside(&mut self, index: usize, name: &TopicPartition) -> Result<(), LogError> {
        if index == self.segments.len() {
            return Ok(());
        }
        let aside = SetAside::create(&self.home, name)?;
        for segment in &self.segments[index..] {
            tracing::error!(
                partition = %name, segment = segment.base_offset.0, size_bytes = segment.size_bytes(),
                log_end = self.log_end.0, kept_in = %aside.dir().display(),
                "Set aside a segment that does not follow the one before, whose end was truncated or lost"
            );
        }
        aside.take_from(&mut self.segments, index).inspect_err(|_| {
            aside.discard_if_empty();
        })?;
        Ok(())
    }
}

/// True if the mismatching batch was synced: then the previous batch has a wrong offset, which no CRC covers.
fn is_synced(fault: &CorruptBatch, synced_to: Offset) -> bool {
    synced_to > Offset::ZERO
        && matches!(fault.reason, BatchFault::OffsetsOutOfOrder { base_offset, .. } if base_offset < synced_to.0)
}

/// Keeps a copy of the bytes to be cut, if they contain batches, and logs the cut.
pub(super) fn before_cut(
    home: &Home,
    name: &TopicPartition,
    segment: &mut Segment,
    file: &LogFile,
    fault: &CorruptBatch,
    valid_bytes: u64,
    log_end: Offset,
) -> Result<(), LogError> {
    let (base, size_bytes) = (segment.base_offset.0, segment.size_bytes());
    let cut_bytes = size_bytes - valid_bytes;
    // The batch at the fault itself may have a wrong offset or epoch.
    if find_batch(file, valid_bytes, size_bytes, log_end)?.is_none() {
        tracing::warn!(
            partition = %name, segment = base, %fault, cut_bytes, log_end = log_end.0,
            "Truncated invalid bytes at the end of a log"
        );
        return Ok(());
    }
    let aside = SetAside::keep_end(home, name, segment, valid_bytes, log_end)?;
    tracing::error!(
        partition = %name, segment = base, %fault, cut_bytes, log_end = log_end.0,
        kept_in = %aside.dir().display(), "Truncated a damaged log; set aside what followed the damage"
    );
    Ok(())
}

/// True if damage in a log with a single writer is not the tail that a crash left: sound batches follow, in
/// the segment or the next one, and no missing page explains the damage.
fn is_no_tail(
    file: &LogFile,
    fault: &CorruptBatch,
    from: u64,
    size_bytes: u64,
    log_end: Offset,
    next_segment: Option<Offset>,
) -> io::Result<bool> {
    let is_torn = matches!(fault.reason, BatchFault::Torn { .. });
    let next = match find_batch(file, from + 1, size_bytes, log_end)? {
        Some(next) => next,
        None if next_segment.is_some() && !is_torn => size_bytes,
        None => return Ok(false),
    };
    Ok(!lacks_page(file, from, next, log_end)?)
}

/// A segment during its recovery.
struct Recovery<'a> {
    home: &'a Home,
    config: &'a LogConfig,
    segment: &'a mut Segment,
    producers: &'a mut Producers,
    epochs: &'a mut LeaderEpochs,
    epoch_replay: &'a mut EpochReplay,
    /// The aborted transactions of the segment.
    aborted: Vec<AbortedTransaction>,
    /// The smallest valid base offset of the next batch.
    expected: Offset,
    /// The base offset of the next segment.
    limit: Option<Offset>,
    /// True if a batch reaches beyond `limit`.
    overlaps: bool,
    /// End position of the last accepted batch.
    valid_bytes: u64,
}

impl Recovery<'_> {
    /// Reads to the end, to the first invalid batch, or to `fault`, where the readable bytes end.
    fn read(
        &mut self,
        file: &LogFile,
        size_bytes: u64,
        recovery_point: Offset,
        fault: Option<CorruptBatch>,
    ) -> Result<(), ScanError> {
        self.skim(file, size_bytes, recovery_point)?;
        self.check_rest(file, size_bytes)?;
        fault.map_or(Ok(()), |fault| Err(fault.into()))
    }

    /// Accepts the synced part below the recovery point by its headers only, for the indexes and the
    /// producers. A batch counts once another batch follows; otherwise its length may be damaged.
    fn skim(&mut self, file: &LogFile, size_bytes: u64, recovery_point: Offset) -> Result<(), ScanError> {
        let mut scan = HeaderScan::new(file, 0, size_bytes);
        let mut before = None;
        loop {
            let next = match scan.next() {
                Ok(Some(next)) => next,
                Ok(None) | Err(ScanError::Corrupt(_)) => break,
                Err(error) => return Err(error),
            };
            let Some(placed) = before.replace(next) else { continue };
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

    /// Reads and checks the remaining bytes.
    fn check_rest(&mut self, file: &LogFile, size_bytes: u64) -> Result<(), ScanError> {
        let mut scan = BatchScan::new(file, self.valid_bytes, size_bytes);
        while let Some((placed, bytes)) = scan.next()? {
            self.accept(&placed, bytes)?;
        }
        Ok(())
    }

    fn accept(&mut self, placed: &BatchPlace, bytes: &[u8]) -> Result<(), ScanError> {
        check_order(placed, self.expected)?;
        if self.limit.is_some_and(|limit| placed.header.next_offset() > limit) {
            self.overlaps = true;
            let reason = BatchFault::out_of_order(&placed.header, self.expected);
            return Err(CorruptBatch { position: placed.position, reason }.into());
        }
        self.segment.index_batch(
            self.home,
            placed.position,
            &placed.header,
            self.config.index_interval_bytes,
        );
        self.epoch_replay.note(self.epochs, &placed.header);
        self.aborted.extend(replay_producers(self.producers, &placed.header, bytes));
        self.expected = placed.header.next_offset();
        self.valid_bytes = placed.end();
        Ok(())
    }
}
