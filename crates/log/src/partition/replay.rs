//! Updates producers and epochs from batches in the log.
//!
//! Owns: the effect of stored batches on producers, transactions and epochs. Refuses: validation; stored
//! batches were accepted once.

use std::io;

use thalweg_record::{Batch, BatchHeader, ControlRecordType, DecompressBuffer, Offset};

use super::error::LogError;
use crate::disk::LogFile;
use crate::epochs::LeaderEpochs;
use crate::producers::{AppendOrigin, EndMarker, PreparedAppend, Producers};
use crate::scan::{BatchPlace, HeaderScan, ScanError};
use crate::segment::transactions::AbortedTransaction;
use crate::segment::{Home, Segment};

/// Maximum size of a control batch. A control record is a few bytes and never compressed, but a hostile
/// header may claim otherwise.
const CONTROL_BATCH_BYTES_MAX: usize = 64 * 1024;

/// The marker in a control batch, if it ends a transaction.
pub(super) fn end_marker(header: &BatchHeader, bytes: &[u8]) -> Option<EndMarker> {
    // The bytes of a batch damaged to look like a marker were not read.
    if !header.attributes.is_control() || bytes.len() != header.size_bytes() {
        return None;
    }
    let mut buffer = DecompressBuffer::new(CONTROL_BATCH_BYTES_MAX);
    let batch = Batch { header: *header, bytes };
    let record = batch.records(&mut buffer).ok()?.next()?.ok()?;
    let aborts = match ControlRecordType::parse_key(record.key?).ok()?? {
        ControlRecordType::Abort => true,
        ControlRecordType::Commit => false,
        _ => return None,
    };
    // The value: version i16, coordinator epoch i32; later versions may append fields.
    let coordinator_epoch = i32::from_be_bytes(*record.value?.get(2..)?.first_chunk()?);
    Some(EndMarker { aborts, coordinator_epoch, timestamp: record.timestamp })
}

/// Updates `producers` with one stored batch; returns the entry for the transaction index if the batch aborts
/// a transaction.
pub(super) fn replay_producers(
    producers: &mut Producers,
    header: &BatchHeader,
    bytes: &[u8],
) -> Option<AbortedTransaction> {
    let mut prepared = PreparedAppend::default();
    let marker = end_marker(header, bytes);
    if let Err(error) = producers.prepare(&mut prepared, header, marker, AppendOrigin::Replication, 0) {
        tracing::warn!(offset = header.base_offset.0, %error, "Stored batch does not match its producer's state");
        return None;
    }
    let aborted = producers.aborted_by(&prepared).pop();
    producers.apply(prepared.producers);
    prepared.completed.iter().for_each(|transaction| producers.complete(transaction));
    producers.set_map_end(header.next_offset().0);
    aborted
}

/// Records the epochs of stored batches, from the checkpoint if they agree with it.
///
/// In a compacted log, the first batch of an epoch may be missing. So the checkpoint supplies its start, and
/// also the starts of epochs without remaining batches. Without a checkpoint, an epoch begins at the end of
/// the previous batch: a start that is too low lets replicas fetch records again, while one that is too high
/// hides a divergence of their logs.
pub(super) struct EpochReplay {
    checkpoint: LeaderEpochs,
    /// The end of the previous batch.
    behind: Offset,
}

impl EpochReplay {
    /// A replay of the batches from `start` on. Without a checkpoint, `checkpoint` is empty.
    pub(super) fn new(checkpoint: LeaderEpochs, start: Offset) -> EpochReplay {
        EpochReplay { checkpoint, behind: start }
    }

    pub(super) fn checkpoint(&self) -> &LeaderEpochs {
        &self.checkpoint
    }

    /// Notes that all unnoted batches before `offset` are of the latest epoch.
    pub(super) fn skip_to(&mut self, offset: Offset) {
        self.behind = self.behind.max(offset);
    }

    /// Notes the next batch, in order. A batch of an earlier epoch than the previous one changes nothing.
    pub(super) fn note(&mut self, epochs: &mut LeaderEpochs, header: &BatchHeader) {
        let (epoch, base) = (header.leader_epoch, header.base_offset);
        if epochs.latest().is_none_or(|latest| epoch > latest) {
            let began = self.checkpoint.between(self.behind, base);
            let agrees = began.last().is_some_and(|&(known, _)| known == epoch);
            let found = [(epoch, self.behind.min(base))];
            for &(epoch, start) in if agrees { began } else { &found } {
                epochs.assign(epoch, start);
            }
        }
        self.behind = self.behind.max(header.next_offset());
    }
}

/// Updates `producers` with the batches of `segments`, from its own end to `end`. Reads only headers, and the
/// few control batches.
pub(super) fn replay_segments(
    home: &Home,
    segments: &mut [Segment],
    producers: &mut Producers,
    end: Offset,
) -> Result<(), LogError> {
    let start = Offset(producers.map_end());
    if start >= end {
        return Ok(());
    }
    let first = segments.partition_point(|segment| segment.base_offset <= start).saturating_sub(1);
    for segment in segments[first..].iter_mut().take_while(|segment| segment.base_offset < end) {
        match replay_segment(home, segment, producers, start, end) {
            Ok(()) => {}
            Err(ScanError::Io(error)) => return Err(error.into()),
            // An unreadable batch has no effect on producers, and must not block later ones.
            Err(ScanError::Corrupt(fault)) => {
                let (dir, segment) = (home.dir.display(), segment.base_offset.0);
                tracing::error!(%dir, segment, %fault, "Segment is damaged");
            }
        }
    }
    producers.set_map_end(end.0);
    Ok(())
}

fn replay_segment(
    home: &Home,
    segment: &mut Segment,
    producers: &mut Producers,
    start: Offset,
    end: Offset,
) -> Result<(), ScanError> {
    let from = if start <= segment.base_offset {
        Some(0)
    } else {
        segment.locate(home, start)?.map(|at| at.position)
    };
    let Some(from) = from else { return Ok(()) };
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, from, segment.size_bytes());
    while let Some(BatchPlace { position, header }) = scan.next()? {
        if header.base_offset >= end {
            break;
        }
        if !header.producer_id.is_some() {
            continue;
        }
        let bytes = control_bytes(&file, position, &header)?;
        // The transaction index of the segment already has the entry.
        replay_producers(producers, &header, &bytes);
    }
    Ok(())
}

/// The transactions aborted by markers in a segment; `producers` is the state at its base offset.
pub(super) fn aborted_in(
    home: &Home,
    segment: &mut Segment,
    producers: &mut Producers,
) -> Result<Vec<AbortedTransaction>, LogError> {
    let file = segment.file(home)?;
    let mut scan = HeaderScan::new(&file, 0, segment.size_bytes());
    let mut aborted = Vec::new();
    loop {
        let BatchPlace { position, header } = match scan.next() {
            Ok(Some(placed)) => placed,
            Ok(None) => return Ok(aborted),
            Err(ScanError::Io(error)) => return Err(error.into()),
            Err(ScanError::Corrupt(fault)) => {
                let (dir, segment) = (home.dir.display(), segment.base_offset.0);
                tracing::error!(%dir, segment, %fault, "Segment is damaged");
                return Ok(aborted);
            }
        };
        if !header.producer_id.is_some() {
            continue;
        }
        let bytes = control_bytes(&file, position, &header)?;
        aborted.extend(replay_producers(producers, &header, &bytes));
    }
}

/// The bytes of a control batch; empty for any other batch.
fn control_bytes(file: &LogFile, position: u64, header: &BatchHeader) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if header.attributes.is_control() && header.size_bytes() <= CONTROL_BATCH_BYTES_MAX {
        bytes.resize(header.size_bytes(), 0);
        file.read_at(&mut bytes, position)?;
    }
    Ok(bytes)
}
