//! Checks the fields that no CRC covers: the base offset and the leader epoch of stored batches, by their
//! neighbours.
//!
//! In a log written by a leader, each batch starts at the end of the previous one, and has the epoch in the
//! checkpoint for its offset. Compaction, replication from a compacted log, and other brokers leave gaps, so
//! a jumping offset is not damage in itself: it counts as a gap if the next batch, or the next segment,
//! continues after it. A batch whose offset was damaged upwards is contradicted by its successor, and a batch
//! damaged downwards by its predecessor.
//!
//! If one bit is wrong and the neighbours leave no other possibility, base offset and epoch are repaired: the
//! CRC vouches for the rest of the batch. Any other inconsistency is a fault. An epoch consistent with its
//! neighbours is sound even if it contradicts the checkpoint, which may be outdated; the exception is an
//! epoch that differs from the checkpoint by a single high bit.
//!
//! Owns: that judgement, and the repair. Refuses: reading records, and truncation; see `recover` and `read`.

use std::io;

use thalweg_record::{BatchHeader, LeaderEpoch, Offset, stamped_head, verify};

use crate::disk::LogFile;
use crate::epochs::LeaderEpochs;
use crate::scan::{BatchFault, BatchPlace, CorruptBatch, HeaderScan, ScanError};
use crate::topic_partition::TopicPartition;

/// Maximum number of leader changes assumed between two batches if the checkpoint is outdated: an idle
/// partition has many, and a controller restored from an older copy of its log continues a thousand epochs
/// later.
const EPOCHS_APART_MAX: u32 = 2_000;

/// A region of a segment, with the known parts of the log around it.
#[derive(Clone, Copy)]
pub(super) struct Region<'a> {
    pub name: &'a TopicPartition,
    /// Base offset of the segment.
    pub segment: Offset,
    pub file: &'a LogFile,
    /// Position of a batch.
    pub from: u64,
    /// End position of the batches to check.
    pub to: u64,
    /// End position of the segment's batches.
    pub size_bytes: u64,
    /// End offset of the previous batch.
    pub expected: Offset,
    /// The base offset of the next segment.
    pub next_base: Option<Offset>,
    /// The first batch of the next segment, if readable.
    pub next_first: Option<BatchHeader>,
    /// The batch before the first one, if known.
    pub last_before: Option<BatchHeader>,
    /// True if there are no readable batches beside these.
    pub knows_neighbours: bool,
    /// The epochs of the checkpoint; empty if it is unusable.
    pub epochs: &'a LeaderEpochs,
    /// True if the log is known to have gaps.
    pub has_gaps: bool,
    /// All batches below this offset were synced, and the checkpoint of epochs before them.
    pub synced_to: Offset,
}

/// Offsets without a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub segment: Offset,
    /// Position of the batch after the gap.
    pub position: u64,
    /// End offset of the batch before the gap.
    pub expected: Offset,
    /// Base offset of the batch after the gap.
    pub found: Offset,
}

/// The result of an examination.
#[derive(Debug, Default)]
pub(super) struct Examination {
    /// The first damaged batch that cannot be repaired. Later batches were not checked.
    pub fault: Option<CorruptBatch>,
    /// Number of gaps confirmed by later batches.
    pub gaps: u64,
    /// The first gap that a power failure may have left: the batch after it was not synced.
    pub first_gap: Option<Gap>,
    /// A gap before the very last batch, which no later batch confirms.
    pub doubt: Option<Gap>,
    /// A batch with offsets of the next segment. No batch from there on was checked.
    pub overlap: Option<CorruptBatch>,
    /// True if the epoch of a batch differs from the checkpoint, and a neighbour is unknown.
    pub lacks_neighbours: bool,
    /// True if a batch was repaired.
    pub mended: bool,
    /// End position of the last checked batch.
    pub end: u64,
    /// The offset after the last checked batch.
    pub next_offset: Offset,
}

impl Examination {
    fn note_gap(&mut self, gap: Gap, synced_to: Offset) {
        self.gaps += 1;
        if gap.found >= synced_to {
            self.first_gap.get_or_insert(gap);
        }
    }
}

/// Suspicious gaps found by recovery and not classified, because the topic's cleanup policy was unknown.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    pub gaps: u64,
    pub first_gap: Option<Gap>,
    /// The offset of a single batch at the end, after an unconfirmed gap.
    pub doubt: Option<Gap>,
    /// Base offsets of segments deleted by the previous process.
    pub deleted: Vec<Offset>,
}

impl Oddities {
    pub(super) fn note(&mut self, examined: &Examination) {
        self.gaps += examined.gaps;
        self.first_gap = self.first_gap.or(examined.first_gap);
        self.doubt = examined.doubt;
    }

    /// Discards findings from `end` on, which is no longer part of the log.
    pub(super) fn forget_from(&mut self, end: Offset) {
        self.doubt = self.doubt.filter(|gap| gap.found < end);
        self.deleted.retain(|&deleted| deleted < end);
        if self.first_gap.is_some_and(|gap| gap.found >= end) {
            self.first_gap = None;
            self.gaps = 0;
        }
    }
}

/// True if only a flipped bit explains why a batch lacks the known epoch for its offset, although the epochs
/// increase from batch to batch: the epochs differ by a single high bit, and no neighbour has the batch's
/// epoch. Smaller differences are explained by an outdated checkpoint.
pub(super) fn is_flipped(found: LeaderEpoch, known: LeaderEpoch, beside: [Option<&BatchHeader>; 2]) -> bool {
    let mut beside = beside.into_iter().flatten();
    let is_far = found.0.abs_diff(known.0) > EPOCHS_APART_MAX;
    is_far && (found.0 ^ known.0).count_ones() == 1 && !beside.any(|other| other.leader_epoch == found)
}

enum Judgement {
    Sound,
    Gap,
    Doubt,
    Damaged,
    /// Damaged; the original value.
    Was(Offset),
}

enum EpochJudgement {
    Sound,
    /// Only the checkpoint contradicts this epoch, and a neighbour was not checked.
    Alone,
    /// Damaged; the original value.
    Was(LeaderEpoch),
    Damaged(CorruptBatch),
}

/// Checks the batches of a region against each other, and repairs them where possible.
pub(super) fn examine(region: Region<'_>) -> io::Result<Examination> {
    let mut examined =
        Examination { end: region.from, next_offset: region.expected, ..Examination::default() };
    let mut scan = HeaderScan::new(region.file, region.from, region.size_bytes);
    let mut before: Option<BatchPlace> = None;
    let mut current = next_header(&mut scan)?;
    while let Some(mut batch) = current.filter(|batch| batch.position < region.to) {
        let expected = examined.next_offset;
        examined.overlap = region.overlap(&batch, expected);
        if examined.overlap.is_some() {
            break;
        }
        let next = next_header(&mut scan)?;
        let has_gaps = region.has_gaps || examined.gaps > 0;
        let judgement = region.judge_offset(&batch, expected, next.as_ref(), has_gaps);
        let is_odd = match judgement {
            Judgement::Sound => false,
            // Most batches of a compacted log have a gap before them.
            Judgement::Gap => !has_gaps,
            Judgement::Doubt | Judgement::Damaged | Judgement::Was(_) => true,
        };
        // If its length or record count is wrong, the apparent next batch is not one.
        if is_odd && let Some(fault) = region.damage_in_any(before.as_ref())? {
            examined.fault = Some(fault);
            return Ok(examined);
        }
        let gap = Gap {
            segment: region.segment,
            position: batch.position,
            expected,
            found: batch.header.base_offset,
        };
        match judgement {
            Judgement::Sound => {}
            Judgement::Gap => examined.note_gap(gap, region.synced_to),
            Judgement::Doubt => examined.doubt = Some(gap),
            Judgement::Was(base_offset) if region.damage_in(&batch)?.is_none() => {
                region.put_right(&mut batch, base_offset, None)?;
                examined.mended = true;
            }
            Judgement::Was(_) | Judgement::Damaged => {
                let reason = BatchFault::out_of_order(&batch.header, expected);
                examined.fault = Some(CorruptBatch { position: batch.position, reason });
                return Ok(examined);
            }
        }
        match region.examine_epoch(&batch, before.as_ref(), next.as_ref())? {
            EpochJudgement::Sound => {}
            EpochJudgement::Alone => examined.lacks_neighbours = true,
            EpochJudgement::Was(epoch) => {
                let base_offset = batch.header.base_offset;
                region.put_right(&mut batch, base_offset, Some(epoch))?;
                examined.mended = true;
            }
            EpochJudgement::Damaged(fault) => {
                examined.fault = Some(fault);
                return Ok(examined);
            }
        }
        examined.next_offset = batch.header.next_offset();
        examined.end = batch.end();
        before = Some(batch);
        current = next;
    }
    // If the next bytes are not a batch, the length of the last batch may be wrong.
    if current.is_none() && examined.end < region.to.min(region.size_bytes) {
        examined.fault = region.damage_in_any(before.as_ref())?;
    }
    Ok(examined)
}

/// The next header; `None` if the bytes are not a batch.
fn next_header(scan: &mut HeaderScan<'_>) -> io::Result<Option<BatchPlace>> {
    match scan.next() {
        Ok(batch) => Ok(batch),
        Err(ScanError::Corrupt(_)) => Ok(None),
        Err(ScanError::Io(error)) => Err(error),
    }
}

impl Region<'_> {
    /// The fault of a batch with offsets of the next segment. The batch may have been truncated before an
    /// unclean stop, and restored by it.
    fn overlap(&self, batch: &BatchPlace, expected: Offset) -> Option<CorruptBatch> {
        let next_base = self.next_base?;
        let reaches = batch.header.base_offset == expected && batch.header.next_offset() > next_base;
        (expected >= next_base || reaches).then(|| CorruptBatch::reaching_into(batch, next_base))
    }

    fn judge_offset(
        &self,
        batch: &BatchPlace,
        expected: Offset,
        next: Option<&BatchPlace>,
        has_gaps: bool,
    ) -> Judgement {
        let found = batch.header.base_offset;
        if found == expected {
            return Judgement::Sound;
        }
        let end = batch.header.next_offset();
        let records = i64::from(batch.header.last_offset_delta) + 1;
        let expected_end = Offset(expected.0.saturating_add(records));
        // The next batch, and its smallest possible offset.
        let bound = next.map(|next| next.header.base_offset).or(self.next_base);
        let is_in_reach = end.0 > found.0 && end.0.saturating_sub(self.segment.0) <= i64::from(i32::MAX) + 1;
        let is_of_next = self.next_base.is_some_and(|next_base| next_base < end);
        let is_contradicted =
            found < expected || !is_in_reach || is_of_next || bound.is_some_and(|bound| bound < end);
        if is_contradicted {
            let fits = bound.map_or(!has_gaps, |bound| bound == expected_end);
            let was = fits && (found.0 ^ expected.0).count_ones() == 1;
            return if was { Judgement::Was(expected) } else { Judgement::Damaged };
        }
        if bound.is_some() { Judgement::Gap } else { Judgement::Doubt }
    }

    fn damage_in_any(&self, batch: Option<&BatchPlace>) -> io::Result<Option<CorruptBatch>> {
        batch.map_or(Ok(None), |batch| self.damage_in(batch))
    }

    /// The damage in the bytes of a batch, if any.
    fn damage_in(&self, batch: &BatchPlace) -> io::Result<Option<CorruptBatch>> {
        let mut bytes = vec![0; batch.header.size_bytes()];
        let read = self.file.read_at(&mut bytes, batch.position)?;
        let verified = verify(&bytes[..read]);
        Ok(verified.err().map(|error| CorruptBatch { position: batch.position, reason: error.into() }))
    }

    /// Judges the epoch of a batch with a correct offset.
    fn examine_epoch(
        &self,
        batch: &BatchPlace,
        before: Option<&BatchPlace>,
        next: Option<&BatchPlace>,
    ) -> io::Result<EpochJudgement> {
        let found = batch.header.leader_epoch;
        let Some(known) = self.epochs.at(batch.header.base_offset) else {
            return Ok(EpochJudgement::Sound);
        };
        // If the neighbours' epochs disagree with the checkpoint, the checkpoint is not trusted.
        let agrees = |other: &BatchHeader| self.epochs.at(other.base_offset) == Some(other.leader_epoch);
        let before = before.map(|before| &before.header).or(self.last_before.as_ref());
        let next = next.map(|next| &next.header).or(self.next_first.as_ref());
        if found == known || !before.is_none_or(agrees) || !next.is_none_or(agrees) {
            return Ok(EpochJudgement::Sound);
        }
        if self.damage_in(batch)?.is_none() {
            let falls = before.is_some_and(|before| found < before.leader_epoch);
            let exceeds = next.is_some_and(|next| found > next.leader_epoch);
            // If epochs increase from batch to batch, only the checkpoint contradicts this epoch, and the
            // checkpoint may be outdated.
            if !falls && !exceeds {
                if (before.is_none() || next.is_none()) && !self.knows_neighbours {
                    return Ok(EpochJudgement::Alone);
                }
                if !is_flipped(found, known, [before, next]) {
                    return Ok(EpochJudgement::Sound);
                }
            }
            if (found.0 ^ known.0).count_ones() == 1 {
                return Ok(EpochJudgement::Was(known));
            }
        }
        let reason = BatchFault::LeaderEpoch { found: found.0, expected: known.0 };
        Ok(EpochJudgement::Damaged(CorruptBatch { position: batch.position, reason }))
    }

    fn put_right(
        &self,
        batch: &mut BatchPlace,
        base_offset: Offset,
        epoch: Option<LeaderEpoch>,
    ) -> io::Result<()> {
        let epoch = epoch.unwrap_or(batch.header.leader_epoch);
        tracing::error!(
            partition = %self.name, segment = self.segment.0, position = batch.position,
            found_offset = batch.header.base_offset.0, expected_offset = base_offset.0,
            found_epoch = batch.header.leader_epoch.0, expected_epoch = epoch.0,
            "Repaired a flipped bit outside the batch's CRC"
        );
        batch.header.base_offset = base_offset;
        batch.header.leader_epoch = epoch;
        self.file.write_all_at(&stamped_head(&batch.header, base_offset, epoch), batch.position)
    }
}
