//! One pass over a log: first the key map is built, then the new segments are written.
//!
//! Owns: reading the old segments and writing the new ones beside them, in steps, so that the caller can
//! pause between them or abandon the pass. Refuses: touching the old segments.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use thalweg_record::{Batch, BatchHeader, Offset};

use super::CLEANED_SUFFIX;
use super::filter::{BatchRetention, EarlierBatches, Round, Scratch};
use super::job::{
    CleanedSegment, CompactionError, CompactionJob, CompactionOutcome, CompactionStats, NAMED_MAX,
    NewlyUnread, SourceSegment, UnreadBatch,
};
use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::config::LogConfig;
use crate::disk::{LogFile, check_may_wait};
use crate::scan::{BatchScan, CorruptBatch, ScanError};
use crate::segment::{Home, LOG_SUFFIX, Piece, Segment, WriteError};

/// Bytes buffered before a write.
const WRITE_CHUNK: usize = 256 * 1024;

/// A step ends after reading this many bytes.
const STEP_BYTES: u64 = 1024 * 1024;

/// The progress of a step.
#[derive(Debug)]
pub enum CompactionStep {
    /// The pass is not finished.
    Moved {
        /// Bytes that were read and written.
        bytes: u64,
    },
    /// The new segments are written and synced.
    Done(CompactionOutcome),
}

/// A compaction in progress. Dropped early, it leaves files that [`CompactionJob::discard`] removes.
#[derive(Debug)]
pub struct CompactionPass {
    scratch: Scratch,
    map: OffsetMap,
    stats: CompactionStats,
    newly_unread: NewlyUnread,
    stage: Stage,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a pass has one, and it does not move")]
enum Stage {
    /// The first walk, over the dirty segments.
    Mapping { left: Range<usize>, reading: Option<SourceScan>, transactions: Transactions },
    /// The second walk, over all segments covered by the map.
    Cleaning {
        groups: VecDeque<Range<usize>>,
        group: Option<Group>,
        passed: EarlierBatches,
        cleaned: Vec<CleanedSegment>,
    },
}

/// A source that is being read.
#[derive(Debug)]
struct SourceScan {
    source: usize,
    scan: BatchScan<Arc<LogFile>>,
}

/// A group of segments that are merged into one.
#[derive(Debug)]
struct Group {
    sources: Range<usize>,
    left: Range<usize>,
    reading: Option<SourceScan>,
    output: SegmentWriter,
}

impl SourceScan {
    fn open(job: &CompactionJob, source: usize) -> io::Result<SourceScan> {
        let SourceSegment { base_offset, size_bytes, .. } = job.sources[source];
        let file = Arc::new(job.home.disk.open(&job.home.file(base_offset, LOG_SUFFIX))?);
        Ok(SourceScan { source, scan: BatchScan::new(file, 0, size_bytes) })
    }
}

impl CompactionPass {
    pub(super) fn new(job: &CompactionJob) -> CompactionPass {
        let first = job.sources.partition_point(|source| source.next_base <= job.first_dirty);
        let mut transactions = Transactions::default();
        if let Some(source) = job.sources.get(first) {
            transactions.expect(job.aborted_from(source.base_offset, job.upper_bound));
        }
        CompactionPass {
            scratch: Scratch::default(),
            map: OffsetMap::new(job.dedupe_buffer_bytes, job.first_dirty),
            stats: CompactionStats::default(),
            newly_unread: NewlyUnread::default(),
            stage: Stage::Mapping { left: first..job.sources.len(), reading: None, transactions },
        }
    }

    /// Continues the pass of `job`. Blocks for the time it takes to read and write about a megabyte; call it
    /// without the partition's lock.
    pub fn step(&mut self, job: &CompactionJob) -> Result<CompactionStep, CompactionError> {
        check_may_wait("A compaction", &job.home.dir);
        let mut bytes = 0;
        let mapped = match &mut self.stage {
            Stage::Mapping { left, reading, transactions } => {
                let mut walk = MapWalk {
                    job,
                    map: &mut self.map,
                    scratch: &mut self.scratch,
                    transactions,
                    bytes: &mut bytes,
                };
                walk.go_on(left, reading)?
            }
            Stage::Cleaning { .. } => false,
        };
        if mapped {
            self.stats.keys = self.map.len();
            let groups = job.groups(self.map.latest() + 1).into();
            let (passed, cleaned) = (EarlierBatches::default(), Vec::new());
            self.stage = Stage::Cleaning { groups, group: None, passed, cleaned };
        } else if self.clean(job, &mut bytes)? {
            return Ok(CompactionStep::Done(self.outcome()));
        }
        self.scratch.shrink();
        Ok(CompactionStep::Moved { bytes })
    }

    fn outcome(&mut self) -> CompactionOutcome {
        let cleaned = match &mut self.stage {
            Stage::Cleaning { cleaned, .. } => std::mem::take(cleaned),
            Stage::Mapping { .. } => Vec::new(),
        };
        let newly_unread = std::mem::take(&mut self.newly_unread);
        CompactionOutcome { cleaned, cleaned_to: self.map.latest() + 1, newly_unread, stats: self.stats }
    }

    /// Continues the second walk, if it has started. Returns true if it has ended.
    fn clean(&mut self, job: &CompactionJob, bytes: &mut u64) -> Result<bool, CompactionError> {
        let CompactionPass { scratch, map, stats, newly_unread, stage } = self;
        let Stage::Cleaning { groups, group, passed, cleaned } = stage else { return Ok(false) };
        let round = Round {
            map,
            producers: &job.producers,
            upper_bound: job.upper_bound,
            now_ms: job.now_ms,
            delete_retention_ms: job.config.delete_retention_ms,
        };
        let mut walk = CleanWalk { job, round, passed, scratch, stats, newly_unread, bytes };
        loop {
            if let Some(under_way) = group {
                if !walk.go_on(under_way)? {
                    return Ok(false);
                }
                let done = group.take().expect("it is under way");
                let sources = &job.sources[done.sources];
                cleaned.push(CleanedSegment {
                    base_offset: sources[0].base_offset,
                    replaces: sources.iter().map(|source| source.base_offset).collect(),
                    has_txn_index: done.output.has_txn_index,
                });
                walk.stats.bytes_after += done.output.finish(&job.config)?;
            }
            let Some(sources) = groups.pop_front() else { return Ok(true) };
            let output = SegmentWriter::create(job, job.sources[sources.start].base_offset)?;
            *group = Some(Group { left: sources.clone(), sources, reading: None, output });
        }
    }
}

/// The first walk: the last offset of each key in the dirty part.
struct MapWalk<'a> {
    job: &'a CompactionJob,
    map: &'a mut OffsetMap,
    scratch: &'a mut Scratch,
    transactions: &'a mut Transactions,
    bytes: &'a mut u64,
}

impl MapWalk<'_> {
    /// Reads for one step. Returns true if the map is complete: all dirty segments were read, or the map has
    /// no room for more keys.
    fn go_on(
        &mut self,
        left: &mut Range<usize>,
        reading: &mut Option<SourceScan>,
    ) -> Result<bool, CompactionError> {
        let job = self.job;
        while *self.bytes < STEP_BYTES {
            let under_way = match reading {
                Some(under_way) => under_way,
                None => match left.next() {
                    Some(source) => reading.insert(SourceScan::open(job, source)?),
                    None => return Ok(true),
                },
            };
            let source = &job.sources[under_way.source];
            match under_way.scan.next().map_err(|error| in_source(source, error))? {
                Some((placed, bytes)) if placed.header.base_offset < job.upper_bound => {
                    *self.bytes += bytes.len() as u64;
                    if !self.note_keys(&Batch { header: placed.header, bytes })? {
                        return Ok(true);
                    }
                }
                _ => {
                    self.map.set_latest(source.next_base.min(job.upper_bound) - 1);
                    *reading = None;
                }
            }
        }
        Ok(false)
    }

    /// Adds the keys of a batch. Returns `false` if the map is full.
    fn note_keys(&mut self, batch: &Batch<'_>) -> Result<bool, CompactionError> {
        let (job, header) = (self.job, &batch.header);
        if header.attributes.is_control() {
            let kind = self.scratch.control_kind(batch);
            self.transactions.end(header, kind);
        } else if !self.transactions.is_aborted(header) && header.last_offset() >= job.first_dirty {
            // In an unreadable batch, no key supersedes another.
            let records = self.scratch.whole_records(batch).into_iter().flatten().flatten();
            for record in records {
                let Some(key) = record.key else { continue };
                if record.offset >= job.first_dirty && !self.map.put(key, record.offset) {
                    if self.map.latest() < job.first_dirty {
                        let (base_offset, keys_max) = (header.base_offset, self.map.keys_max());
                        return Err(CompactionError::TooManyKeys { base_offset, keys_max });
                    }
                    return Ok(false);
                }
            }
        }
        self.map.set_latest(header.last_offset());
        Ok(true)
    }
}

/// The second walk: copies the retained records.
struct CleanWalk<'a> {
    job: &'a CompactionJob,
    round: Round<'a>,
    passed: &'a mut EarlierBatches,
    scratch: &'a mut Scratch,
    stats: &'a mut CompactionStats,
    newly_unread: &'a mut NewlyUnread,
    bytes: &'a mut u64,
}

impl CleanWalk<'_> {
    /// Copies for one step. Returns true if all sources of the group are copied.
    fn go_on(&mut self, group: &mut Group) -> Result<bool, CompactionError> {
        let job = self.job;
        while *self.bytes < STEP_BYTES {
            let reading = match &mut group.reading {
                Some(reading) => reading,
                None => {
                    let Some(index) = group.left.next() else { return Ok(true) };
                    let source = &job.sources[index];
                    self.passed.transactions.expect(job.aborted_from(source.base_offset, source.next_base));
                    self.stats.bytes_before += source.size_bytes;
                    group.reading.insert(SourceScan::open(job, index)?)
                }
            };
            let source = &job.sources[reading.source];
            match reading.scan.next().map_err(|error| in_source(source, error))? {
                Some((placed, bytes)) => {
                    *self.bytes += bytes.len() as u64;
                    let batch = Batch { header: placed.header, bytes };
                    self.copy(&batch, placed.position, source, &mut group.output)?;
                }
                None => group.reading = None,
            }
        }
        Ok(false)
    }

    fn copy(
        &mut self,
        batch: &Batch<'_>,
        position: u64,
        source: &SourceSegment,
        output: &mut SegmentWriter,
    ) -> Result<(), CompactionError> {
        self.stats.batches_before += 1;
        let judgement = self.round.judge(batch, self.passed, self.scratch).map_err(|reason| {
            let fault = CorruptBatch { position, reason };
            CompactionError::Corrupt { segment: source.base_offset, fault }
        })?;
        let staying = match judgement.retention {
            BatchRetention::Keep => batch.bytes.to_vec(),
            BatchRetention::KeepUnread(reason) => {
                self.note_unread(&batch.header, &reason);
                batch.bytes.to_vec()
            }
            BatchRetention::Replace(bytes) => bytes,
            BatchRetention::Drop => return Ok(()),
        };
        self.stats.batches_after += 1;
        *self.bytes += staying.len() as u64;
        output.push(staying, &self.job.config)?;
        if let Some(aborted) = judgement.aborted {
            output.segment.add_aborted(&output.home, &[aborted])?;
            output.has_txn_index = true;
        }
        Ok(())
    }

    fn note_unread(&mut self, header: &BatchHeader, reason: &dyn std::fmt::Display) {
        self.stats.first_unreadable.get_or_insert(header.base_offset);
        self.stats.unreadable_batches += 1;
        let newly = &mut *self.newly_unread;
        if header.base_offset >= self.job.named_to {
            newly.count += 1;
            newly.end = header.next_offset();
            if newly.named.len() < NAMED_MAX {
                let (base_offset, last_offset) = (header.base_offset, header.last_offset());
                newly.named.push(UnreadBatch { base_offset, last_offset, reason: reason.to_string() });
            }
        }
    }
}

/// A segment that is being written.
#[derive(Debug)]
struct SegmentWriter {
    home: Home,
    segment: Segment,
    has_txn_index: bool,
    pending: Vec<(BatchHeader, Vec<u8>)>,
    pending_bytes: usize,
}

impl SegmentWriter {
    fn create(job: &CompactionJob, base_offset: Offset) -> io::Result<SegmentWriter> {
        let home = job.home.with_suffix(CLEANED_SUFFIX);
        let segment = Segment::create(&home, base_offset, job.now_ms)?;
        Ok(SegmentWriter { home, segment, has_txn_index: false, pending: Vec::new(), pending_bytes: 0 })
    }

    fn push(&mut self, bytes: Vec<u8>, config: &LogConfig) -> io::Result<()> {
        let header = BatchHeader::parse(&bytes).expect("the batch was verified or has just been built");
        self.pending_bytes += bytes.len();
        self.pending.push((header, bytes));
        if self.pending_bytes >= WRITE_CHUNK { self.write(config) } else { Ok(()) }
    }

    fn write(&mut self, config: &LogConfig) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pieces: Vec<_> = self.pending.iter().map(|(_, bytes)| Piece::new(bytes)).collect();
        let headers = self.pending.iter().map(|(header, _)| header);
        match self.segment.append(&self.home, config, &mut pieces, headers) {
            Ok(()) => {}
            Err(WriteError::DiskFull(error) | WriteError::Failed(error)) => return Err(error),
            Err(WriteError::Shortened(fault)) => return Err(io::Error::other(fault)),
        }
        self.pending.clear();
        self.pending_bytes = 0;
        Ok(())
    }

    /// Writes the rest, syncs and closes; returns the number of bytes.
    fn finish(mut self, config: &LogConfig) -> io::Result<u64> {
        self.write(config)?;
        self.segment.finish(&self.home)?;
        self.segment.file(&self.home)?.sync_data()?;
        if let Some(path) = self.segment.txn_index(&self.home) {
            self.home.disk.open(&path)?.sync_data()?;
        }
        self.segment.release(&self.home)?;
        Ok(self.segment.size_bytes())
    }
}

fn in_source(source: &SourceSegment, error: ScanError) -> CompactionError {
    match error {
        ScanError::Io(error) => error.into(),
        ScanError::Corrupt(fault) => CompactionError::Corrupt { segment: source.base_offset, fault },
    }
}
