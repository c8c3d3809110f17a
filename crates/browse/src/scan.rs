//! The scan of fetched batches on dedicated threads: decode, mask, filter, copy the matches.
//!
//! A thread scans chunks in sequence, and passes matches on in pieces, so that a chunk with millions of
//! matches needs no more memory than one with few. The end of the search is checked at every record.

use std::any::Any;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thalweg_client::{Chunk, ChunkError, TopicPartition};
use thalweg_record::{BatchHeader, DecompressBuffer, DecompressError, Offset, Record, RecordError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::capacity::{LARGE_RULE, OPENED_BYTES, OPENED_BYTES_MAX, PrincipalCapacity, Turns, lower_priority};
use crate::filter::{Candidate, Filter, MaskedHeader, Outcome, Scratch};
use crate::masking::TopicMasks;
use crate::message::{BatchFacts, Content, Message, SchemaNote};
use crate::registry::{DecodeBuffer, Decoder};

/// Number and bytes of matches that complete a piece.
const PIECE_MATCHES: usize = 64;
const PIECE_BYTES: u64 = 256 << 10;

/// The common parameters of all scans of a search.
pub struct Plan {
    pub filter: Filter,
    pub masks: Option<TopicMasks>,
    pub decoder: Option<Decoder>,
    pub control: bool,
    pub message_bytes: usize,
    /// Maximum matches needed from one chunk.
    pub matches: Option<usize>,
    /// True if the last matches of a chunk are needed, instead of the first.
    pub is_newest_first: bool,
    /// Maximum bytes of the last matches of a chunk.
    pub bytes: Option<u64>,
    /// Set at the end of the search.
    pub cancelled: Arc<AtomicBool>,
    /// The runtime for blocking waits of the threads.
    pub runtime: Handle,
    /// The share of the process's capacity; none in a process without other work.
    pub share: Option<PrincipalCapacity>,
    /// Dropped when the last thread has ended.
    pub _held: Box<dyn Any + Send + Sync>,
}

/// A chunk to scan, up to an optional end offset.
pub struct Job {
    pub chunk: Chunk,
    pub end: Option<Offset>,
}

/// A message from a scanning thread.
pub enum ScanEvent {
    /// A piece of matches.
    Matches(Vec<Message>),
    /// The end of a chunk.
    Done(ScannedChunk),
}

/// The results of a scanned chunk.
#[derive(Clone, Debug, Default)]
pub struct ScannedChunk {
    pub records: u64,
    pub bytes: u64,
    /// The number of records without a value of the expression, and the reason for the first one.
    pub without_value: u64,
    pub reason: Option<String>,
    /// The partition of the chunk; `None` if no record was scanned.
    pub at: Option<TopicPartition>,
    /// All records of the partition before this offset were scanned.
    pub next: Offset,
    /// True if the scan ended at the maximum number of matches.
    pub is_full: bool,
    /// True if only the last matches were kept.
    pub has_dropped: bool,
    /// The offset of the last match that was dropped because of the bytes of those after it.
    pub cut: Option<Offset>,
    /// The timestamps of the first and the last record.
    pub timestamps: Option<(i64, i64)>,
    /// The reason why the batches are unreadable.
    pub failed: Option<String>,
}

/// Scans chunks until the job queue closes.
pub fn run(plan: &Plan, mut jobs: mpsc::Receiver<Job>, to: &mpsc::Sender<ScanEvent>) {
    let turns = plan.share.as_ref().map(|share| {
        lower_priority();
        share.turns(plan.runtime.clone())
    });
    let buffer = match plan.share {
        Some(_) => DecompressBuffer::new(OPENED_BYTES),
        None => DecompressBuffer::default(),
    };
    let mut scan = Scan {
        plan,
        to,
        turns,
        buffer,
        scratch: Scratch::default(),
        masked_key: Vec::new(),
        masked: Vec::new(),
        key: DecodeBuffer::default(),
        value: DecodeBuffer::default(),
        matches: VecDeque::new(),
        matches_bytes: 0,
        left: 0,
        is_closed: false,
        figures: ScannedChunk::default(),
    };
    while let Some(job) = jobs.blocking_recv() {
        scan.take_turn();
        let figures = scan.chunk(&job);
        if scan.is_closed || !scan.send(ScanEvent::Done(figures)) {
            return;
        }
        scan.give_up_turn();
    }
}

struct Scan<'a> {
    plan: &'a Plan,
    to: &'a mpsc::Sender<ScanEvent>,
    /// The turns of this thread; none in a process without other work.
    turns: Option<Turns>,
    buffer: DecompressBuffer,
    scratch: Scratch,
    masked_key: Vec<u8>,
    masked: Vec<u8>,
    key: DecodeBuffer,
    value: DecodeBuffer,
    matches: VecDeque<Message>,
    matches_bytes: u64,
    /// The number of further matches allowed in the chunk.
    left: usize,
    is_closed: bool,
    figures: ScannedChunk,
}

impl Scan<'_> {
    fn chunk(&mut self, job: &Job) -> ScannedChunk {
        let chunk = &job.chunk;
        self.left = self.plan.matches.filter(|_| !self.plan.is_newest_first).unwrap_or(usize::MAX);
        self.figures =
            ScannedChunk { at: Some(chunk.at.clone()), next: chunk.next, ..ScannedChunk::default() };
        let mut buffer = std::mem::replace(&mut self.buffer, DecompressBuffer::new(0));
        let mut walked = self.walk(job, &mut buffer, None);
        self.buffer = buffer;
        if let Some(share) = &self.plan.share
            && let Err(error) = &walked
            && let Some(base) = too_large(error)
        {
            self.give_up_turn();
            let place = share.large(&self.plan.runtime);
            self.take_turn();
            if place.is_some() {
                walked = self.walk(job, &mut DecompressBuffer::new(OPENED_BYTES_MAX), Some(base));
            }
        }
        self.pass_on();
        let mut figures = std::mem::take(&mut self.figures);
        figures.failed = walked.err().map(|error| match too_large(&error) {
            Some(_) if self.plan.share.is_some() => format!("{error}: {LARGE_RULE}"),
            _ => error.to_string(),
        });
        figures
    }

    /// Scans the records of a chunk, optionally from an offset on.
    fn walk(
        &mut self,
        job: &Job,
        buffer: &mut DecompressBuffer,
        from: Option<Offset>,
    ) -> Result<(), ChunkError> {
        let chunk = &job.chunk;
        chunk.walk(buffer, self.plan.control, |header, record| {
            if self.left == 0
                || job.end.is_some_and(|end| record.offset >= end)
                || self.plan.cancelled.load(Ordering::Relaxed)
            {
                self.figures.next = record.offset;
                self.figures.is_full = self.left == 0;
                return ControlFlow::Break(());
            }
            if from.is_some_and(|from| record.offset < from) {
                return ControlFlow::Continue(());
            }
            self.take_turn();
            self.record(&chunk.at, header, record);
            if self.is_closed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    fn take_turn(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.take();
        }
    }

    fn give_up_turn(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.give_up();
        }
    }

    /// Sends a result, and gives up the turn while the reader is slow. False if the reader is gone.
    fn send(&mut self, found: ScanEvent) -> bool {
        let found = match self.to.try_send(found) {
            Ok(()) => return true,
            Err(TrySendError::Full(found)) => found,
            Err(TrySendError::Closed(_)) => return false,
        };
        self.give_up_turn();
        self.to.blocking_send(found).is_ok()
    }

    fn record(&mut self, at: &TopicPartition, header: &BatchHeader, record: &Record<'_>) {
        self.figures.records += 1;
        let first = self.figures.timestamps.map_or(record.timestamp, |(first, _)| first);
        self.figures.timestamps = Some((first, record.timestamp));
        self.figures.bytes +=
            (record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len)) as u64;
        if header.attributes.is_control() {
            if !self.plan.filter.takes_marker(record.timestamp) {
                return;
            }
            let candidate = Candidate::of(record);
            let found = self.copy(at, header, record, &candidate, None, None);
            self.push(found);
            return;
        }
        if !self.plan.filter.takes_time(record.timestamp) {
            return;
        }
        self.fetch_schemas(record);
        let mut candidate = Candidate::of(record);
        // Taken out of `self` during this call, because the candidate borrows the buffers.
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let (mut masked_key, mut masked) =
            (std::mem::take(&mut self.masked_key), std::mem::take(&mut self.masked));
        let masked_headers = self.plan.masks.as_ref().and_then(|masks| masked_headers(masks, record));
        candidate.masked_headers = masked_headers.as_deref();
        let (mut key_note, mut value_note) = (None, None);
        if let Some(decoder) = &self.plan.decoder {
            (candidate.key, key_note) = decoded(decoder, record.key, &mut key);
            (candidate.value, value_note) = decoded(decoder, record.value, &mut value);
        }
        if let Some(masks) = &self.plan.masks {
            for note in [&mut key_note, &mut value_note].into_iter().flatten() {
                note.hide();
            }
            if let Some(plain) = candidate.key
                && masks.key(plain, &mut masked_key)
            {
                candidate.key = Some(&masked_key);
            }
            if let Some(plain) = candidate.value
                && masks.value(plain, &mut masked)
            {
                candidate.value = Some(&masked);
            }
        }
        match self.plan.filter.test(&candidate, &mut self.scratch) {
            Outcome::Match => {
                let found = self.copy(at, header, record, &candidate, key_note, value_note);
                self.push(found);
            }
            Outcome::NoMatch => {}
            Outcome::NoValue => {
                self.figures.without_value += 1;
                if self.figures.reason.is_none() {
                    self.figures.reason = self.plan.filter.reason(&candidate, &mut self.scratch);
                }
            }
        }
        (self.key, self.value) = (key, value);
        (self.masked_key, self.masked) = (masked_key, masked);
    }

    /// Fetches the unknown schemas of a record, without a turn.
    fn fetch_schemas(&mut self, record: &Record<'_>) {
        let Some(decoder) = &self.plan.decoder else { return };
        for bytes in [record.key, record.value].into_iter().flatten() {
            if let Some(id) = decoder.unknown(bytes) {
                self.give_up_turn();
                decoder.fetch(id);
                self.take_turn();
            }
        }
    }

    fn copy(
        &self,
        at: &TopicPartition,
        header: &BatchHeader,
        record: &Record<'_>,
        candidate: &Candidate<'_>,
        key: Option<SchemaNote>,
        value: Option<SchemaNote>,
    ) -> Message {
        let bytes_max = self.plan.message_bytes;
        let content =
            |bytes: &[u8], schema: Option<SchemaNote>| Content { schema, ..Content::copy(bytes, bytes_max) };
        let mut message = Message {
            topic: Arc::clone(&at.topic),
            partition: at.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            key: candidate.key.map(|bytes| content(bytes, key)),
            value: candidate.value.map(|bytes| content(bytes, value)),
            headers: Vec::new(),
            headers_omitted: 0,
            is_masked: self.plan.masks.is_some(),
            batch: BatchFacts::of(header, record),
        };
        message.copy_headers(candidate.headers(), bytes_max);
        message
    }

    fn push(&mut self, found: Message) {
        self.left -= 1;
        self.matches_bytes += found.size_bytes();
        self.matches.push_back(found);
        if self.plan.is_newest_first {
            self.keep_last();
        } else if self.matches.len() >= PIECE_MATCHES || self.matches_bytes >= PIECE_BYTES {
            self.pass_on();
        }
    }

    /// Keeps only the last matches of the chunk.
    fn keep_last(&mut self) {
        let is_full = |scan: &Self| scan.plan.matches.is_some_and(|most| scan.matches.len() > most);
        let is_large = |scan: &Self| scan.plan.bytes.is_some_and(|most| scan.matches_bytes > most);
        while is_full(self) || (is_large(self) && self.matches.len() > 1) {
            let is_cut = !is_full(self);
            let Some(dropped) = self.matches.pop_front() else { return };
            self.matches_bytes -= dropped.size_bytes();
            self.figures.has_dropped = true;
            if is_cut {
                self.figures.cut = Some(dropped.offset);
            }
        }
    }

    fn pass_on(&mut self) {
        self.matches_bytes = 0;
        while !self.matches.is_empty() && !self.is_closed {
            let count = self.matches.len().min(PIECE_MATCHES);
            let piece = ScanEvent::Matches(self.matches.drain(..count).collect());
            self.is_closed |= !self.send(piece);
        }
        self.matches.clear();
    }
}

/// The base offset of a batch that exceeds the decompression limit.
fn too_large(error: &ChunkError) -> Option<Offset> {
    match error {
        ChunkError::Records {
            base, source: RecordError::Decompress(DecompressError::TooLarge(_)), ..
        } => Some(*base),
        _ => None,
    }
}

/// The masked headers of a record; none if no header can be hidden.
fn masked_headers<'a>(masks: &TopicMasks, record: &Record<'a>) -> Option<Vec<MaskedHeader<'a>>> {
    if !masks.has_headers() || record.headers.len() == 0 {
        return None;
    }
    let masked = record.headers.map(|header| {
        let value = header.value.map(|plain| match masks.header(header.key, plain) {
            Some(masked) => Cow::Owned(masked),
            None => Cow::Borrowed(plain),
        });
        let name = masks.header_name(header.key).map_or(Cow::Borrowed(header.key), Cow::Owned);
        (name, value)
    });
    Some(masked.collect())
}

/// The decoded key or value, if it has a schema id.
fn decoded<'a>(
    decoder: &Decoder,
    bytes: Option<&'a [u8]>,
    out: &'a mut DecodeBuffer,
) -> (Option<&'a [u8]>, Option<SchemaNote>) {
    match bytes {
        Some(bytes) => {
            let note = decoder.decode(bytes, out);
            let is_decoded = note.as_ref().is_some_and(|note| note.problem.is_none());
            (Some(if is_decoded { &out.json } else { bytes }), note)
        }
        None => (None, None),
    }
}
