//! A compaction, from the plan to the new segments.
//!
//! Owns: reading the old segments and writing the new ones beside them. Refuses: touching the old ones; the
//! partition replaces them when it takes the outcome over.

use std::io;
use std::sync::Arc;

use thalweg_hash::HashMap;
use thalweg_record::{
    Batch, BatchHeader, DECOMPRESSED_BYTES_MAX_DEFAULT, DecompressBuffer, Offset, ProducerId,
};

use super::CLEANED_SUFFIX;
use super::filter::{LastRecord, Round, Verdict, all_records, control_kind};
use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::config::LogConfig;
use crate::scan::{BatchScan, CorruptBatch, HeaderScan, ScanError};
use crate::segment::transactions::AbortedTransaction;
use crate::segment::{Home, LOG_SUFFIX, Piece, Segment, WriteError};

/// Bytes that gather before they are written.
const WRITE_CHUNK: usize = 256 * 1024;

/// Why a compaction came to nothing; the log is as it was.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A batch is damaged, and its segment is left alone.
    #[error("the segment {segment} is damaged: {fault}")]
    Corrupt {
        /// Base offset of the segment.
        segment: Offset,
        /// Where, and how.
        fault: CorruptBatch,
    },
}

/// What a compaction has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionStats {
    /// Keys in the dirty part.
    pub keys: usize,
    /// Bytes of the segments before.
    pub bytes_before: u64,
    /// Bytes of the segments after.
    pub bytes_after: u64,
    /// Batches before.
    pub batches_before: u64,
    /// Batches after.
    pub batches_after: u64,
    /// Batches whose records cannot be read though their CRCs are right. They are kept as they are.
    pub unreadable_batches: u64,
    /// Base offset of the first of them.
    pub first_unreadable: Option<Offset>,
}

/// A segment as it was when the compaction was planned.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) base_offset: Offset,
    pub(crate) next_base: Offset,
    pub(crate) size_bytes: u64,
}

/// A compaction that was planned. It can be run on any thread.
#[derive(Debug)]
pub struct CompactionJob {
    pub(crate) home: Home,
    pub(crate) config: Arc<LogConfig>,
    /// The segments below the active one, from the first on.
    pub(crate) sources: Vec<Source>,
    /// The transaction indexes of all segments, by their base offsets.
    pub(crate) aborted: Vec<(Offset, Vec<AbortedTransaction>)>,
    pub(crate) producers: HashMap<ProducerId, LastRecord>,
    pub(crate) first_dirty: Offset,
    pub(crate) upper_bound: Offset,
    pub(crate) truncations: u64,
    pub(crate) now_ms: i64,
    /// Bytes that the map of keys may take (`log.cleaner.dedupe.buffer.size`).
    pub dedupe_buffer_bytes: usize,
}

/// A new segment and those that it replaces.
#[derive(Debug)]
pub(crate) struct Cleaned {
    pub(crate) base_offset: Offset,
    pub(crate) replaces: Vec<Offset>,
    pub(crate) has_txn_index: bool,
}

/// New segments, written and synced under `.cleaned` names.
#[derive(Debug)]
pub struct CompactionOutcome {
    pub(crate) cleaned: Vec<Cleaned>,
    /// The log is compacted up to here.
    pub(crate) cleaned_to: Offset,
    /// What was done.
    pub stats: CompactionStats,
}

impl CompactionJob {
    /// Compacts. Blocks for as long as it takes to read the log and write it anew; call it without the
    /// partition's lock.
    pub fn run(&self) -> Result<CompactionOutcome, CompactionError> {
        let mut stats = CompactionStats::default();
        let map = self.build_map()?;
        stats.keys = map.len();
        let end = map.latest() + 1;
        let round = Round {
            map: &map,
            producers: &self.producers,
            upper_bound: self.upper_bound,
            now_ms: self.now_ms,
            delete_retention_ms: self.config.delete_retention_ms,
        };
        let mut transactions = Transactions::default();
        let mut cleaned = Vec::new();
        let sources: Vec<_> = self.sources.iter().filter(|source| source.base_offset < end).collect();
        for group in group(&sources, &self.config) {
            match self.clean_group(group, &round, &mut transactions, &mut stats) {
                Ok(segment) => cleaned.push(segment),
                Err(error) => {
                    self.discard();
                    return Err(error);
                }
            }
        }
        Ok(CompactionOutcome { cleaned, cleaned_to: end, stats })
    }

    /// Removes what the job has written.
    pub fn discard(&self) {
        for source in &self.sources {
            let home = self.home.with_suffix(CLEANED_SUFFIX);
            for path in Segment::paths(&home, source.base_offset) {
                if let Err(error) = home.disk.remove(&path) {
                    tracing::warn!(path = %path.display(), %error, "Half of a compaction cannot be removed");
                }
            }
        }
    }

    /// The aborted transactions with records below `upper` whose marker lies in the segment at `base` or later.
    fn aborted_from(&self, base: Offset, upper: Offset) -> Vec<AbortedTransaction> {
        let mut found = Vec::new();
        for (_, entries) in self.aborted.iter().filter(|(segment, _)| *segment >= base) {
            for aborted in entries {
                if aborted.first_offset < upper {
                    found.push(*aborted);
                }
                if aborted.last_stable_offset >= upper {
                    return found;
                }
            }
        }
        found
    }

    /// The first pass: the last offset of each key in the dirty part.
    fn build_map(&self) -> Result<OffsetMap, CompactionError> {
        let mut map = OffsetMap::new(self.dedupe_buffer_bytes, self.first_dirty);
        let mut transactions = Transactions::default();
        let dirty = self
            .sources
            .iter()
            .filter(|source| source.next_base > self.first_dirty && source.base_offset < self.upper_bound);
        let mut first = true;
        for source in dirty {
            if std::mem::take(&mut first) {
                transactions.expect(self.aborted_from(source.base_offset, self.upper_bound));
            }
            if !self.map_segment(source, &mut map, &mut transactions)? {
                return Ok(map);
            }
            map.set_latest(source.next_base.min(self.upper_bound) - 1);
        }
        Ok(map)
    }

    /// Notes the keys of one segment. Says `false` when the map is full.
    fn map_segment(
        &self,
        source: &Source,
        map: &mut OffsetMap,
        transactions: &mut Transactions,
    ) -> Result<bool, CompactionError> {
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
        let file = self.home.disk.open(&self.home.file(source.base_offset, LOG_SUFFIX))?;
        let mut scan = BatchScan::new(&file, 0, source.size_bytes);
        while let Some((placed, bytes)) = scan.next().map_err(|error| in_source(source, error))? {
            let header = &placed.header;
            if header.base_offset >= self.upper_bound {
                break;
            }
            let batch = Batch { header: *header, bytes };
            if header.attributes.is_control() {
                let kind = control_kind(&batch, &mut buffer);
                transactions.end(header, kind);
            } else if !transactions.is_aborted(header) && header.last_offset() >= self.first_dirty {
                // Of a batch that cannot be read as a whole, no key supersedes another.
                for record in all_records(&batch, &mut buffer).unwrap_or_default() {
                    let Some(key) = record.key else { continue };
                    if record.offset >= self.first_dirty && !map.put(key, record.offset) {
                        return Ok(false);
                    }
                }
            }
            map.set_latest(header.last_offset());
        }
        Ok(true)
    }

    /// The second pass, for the segments that become one.
    fn clean_group(
        &self,
        group: &[&Source],
        round: &Round<'_>,
        transactions: &mut Transactions,
        stats: &mut CompactionStats,
    ) -> Result<Cleaned, CompactionError> {
        let base_offset = group[0].base_offset;
        let home = self.home.with_suffix(CLEANED_SUFFIX);
        let segment = Segment::create(&home, base_offset, self.now_ms)?;
        let mut out =
            Output { home: &home, config: &self.config, segment, pending: Vec::new(), pending_bytes: 0 };
        let mut has_txn_index = false;
        let mut buffer = DecompressBuffer::new(DECOMPRESSED_BYTES_MAX_DEFAULT);
        for source in group {
            transactions.expect(self.aborted_from(source.base_offset, source.next_base));
            stats.bytes_before += source.size_bytes;
            let file = self.home.disk.open(&self.home.file(source.base_offset, LOG_SUFFIX))?;
            let mut scan = BatchScan::new(&file, 0, source.size_bytes);
            while let Some((placed, bytes)) = scan.next().map_err(|error| in_source(source, error))? {
                stats.batches_before += 1;
                let batch = Batch { header: placed.header, bytes };
                let judgement = round.judge(&batch, transactions, &mut buffer).map_err(|reason| {
                    let fault = CorruptBatch { position: placed.position, reason };
                    CompactionError::Corrupt { segment: source.base_offset, fault }
                })?;
                match judgement.verdict {
                    Verdict::Keep => out.push(bytes.to_vec())?,
                    Verdict::KeepUnread => {
                        stats.first_unreadable.get_or_insert(placed.header.base_offset);
                        stats.unreadable_batches += 1;
                        out.push(bytes.to_vec())?
                    }
                    Verdict::Replace(bytes) => out.push(bytes)?,
                    Verdict::Drop => continue,
                }
                stats.batches_after += 1;
                if let Some(aborted) = judgement.aborted {
                    out.segment.add_aborted(&home, &[aborted])?;
                    has_txn_index = true;
                }
            }
        }
        stats.bytes_after += out.finish()?;
        let replaces = group.iter().map(|source| source.base_offset).collect();
        Ok(Cleaned { base_offset, replaces, has_txn_index })
    }
}

/// A segment that is being written.
struct Output<'a> {
    home: &'a Home,
    config: &'a LogConfig,
    segment: Segment,
    pending: Vec<(BatchHeader, Vec<u8>)>,
    pending_bytes: usize,
}

impl Output<'_> {
    fn push(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let header = BatchHeader::parse(&bytes).expect("the batch was verified or has just been built");
        self.pending_bytes += bytes.len();
        self.pending.push((header, bytes));
        if self.pending_bytes >= WRITE_CHUNK { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pieces: Vec<_> = self.pending.iter().map(|(_, bytes)| Piece::new(bytes)).collect();
        let headers = self.pending.iter().map(|(header, _)| header);
        match self.segment.append(self.home, self.config, &mut pieces, headers) {
            Ok(()) => {}
            Err(WriteError::DiskFull(error) | WriteError::Failed(error)) => return Err(error),
        }
        self.pending.clear();
        self.pending_bytes = 0;
        Ok(())
    }

    /// Writes the rest, syncs, and closes; says how many bytes there are.
    fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        self.segment.finish(self.home)?;
        self.segment.file(self.home)?.sync_data()?;
        if let Some(path) = self.segment.txn_index(self.home) {
            self.home.disk.open(&path)?.sync_data()?;
        }
        self.segment.release(self.home)?;
        Ok(self.segment.size_bytes())
    }
}

fn in_source(source: &Source, error: ScanError) -> CompactionError {
    match error {
        ScanError::Io(error) => error.into(),
        ScanError::Corrupt(fault) => CompactionError::Corrupt { segment: source.base_offset, fault },
    }
}

/// Puts neighbours together that fit into one segment.
fn group<'a, 's>(sources: &'a [&'s Source], config: &LogConfig) -> Vec<&'a [&'s Source]> {
    let mut groups = Vec::new();
    let mut rest = sources;
    while let Some(first) = rest.first() {
        let (mut count, mut size_bytes) = (1, first.size_bytes);
        while let Some(next) = rest.get(count)
            && size_bytes + next.size_bytes <= u64::from(config.segment_bytes)
            && next.next_base - first.base_offset <= i64::from(i32::MAX)
        {
            size_bytes += next.size_bytes;
            count += 1;
        }
        let (group, later) = rest.split_at(count);
        groups.push(group);
        rest = later;
    }
    groups
}

/// The offset after the last batch of a segment file, which replaces all up to there.
pub(super) fn next_offset_of(home: &Home, base: Offset, name: &str) -> io::Result<Offset> {
    let file = home.disk.open(&home.dir.join(name))?;
    let mut scan = HeaderScan::new(&file, 0, file.len()?);
    // Without a batch it replaces its own offset at the least.
    let mut next = base + 1;
    loop {
        match scan.next() {
            Ok(Some(batch)) => next = next.max(batch.header.next_offset()),
            Ok(None) | Err(ScanError::Corrupt(_)) => return Ok(next),
            Err(ScanError::Io(error)) => return Err(error),
        }
    }
}
