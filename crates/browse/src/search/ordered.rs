//! Ordered searches: partitions are read in windows of offsets, away from the end (newest first) or from the
//! start (oldest first), until the merge has its matches.
//!
//! In each round, the partitions whose next records come first in time get a window. The first windows have
//! about as many offsets as the search needs messages; later ones are as large as a few fetches, and grow
//! over offsets without records (compacted records, control records, aborted transactions).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::{Chunk, Consumer, NO_LEADER, PollEvent, StartAt, TopicPartition};
use thalweg_record::Offset;
use tokio::time::Instant;

use super::{
    ClosedChannel, Driver, EndReason, Event, PROGRESS_INTERVAL, PartitionProgress, SearchError, ended_thread,
};
use crate::capacity::FETCHED_RULE;
use crate::merge::AnswerEnd;
use crate::message::Message;
use crate::query::Order;
use crate::scan::{Job, ScanEvent, ScannedChunk};

/// Maximum bytes of a partition per fetch. The broker fills a fetch beyond the window, so that it is small
/// where a window of a few messages suffices.
const ORDERED_FETCH_BYTES: i32 = 1 << 20;
const ORDERED_FETCH_BYTES_OLDEST: i32 = 256 << 10;
/// Time that a broker may hold a fetch: the next window waits for the end of a held fetch.
const ORDERED_FETCH_WAIT: Duration = Duration::from_millis(10);
/// Intended bytes of a window, after the first.
const WINDOW_BYTES: u64 = 4 << 20;
/// Offsets of the first window with a filter, and at least without a filter.
const WINDOW_FILTERED: u64 = 500;
const WINDOW_MIN: u64 = 10;
/// Maximum factor from a window to the next window.
const WINDOW_GROWTH: u64 = 16;
/// Windows are opened for at least this number of partitions at a time, if so many are needed.
const PARTITIONS_MIN: usize = 4;
/// Time without any data after which partitions with an open window are unreadable.
const STALLED: Duration = Duration::from_secs(3);
/// The same time if an answer waits for memory that other searches hold.
const STALLED_FOR_MEMORY: Duration = Duration::from_secs(8);

/// A range of offsets that is being read in a partition.
#[derive(Debug)]
struct Window {
    low: Offset,
    high: Offset,
    /// True if all chunks of the window were passed to the scanners.
    is_fetched: bool,
    /// Number of chunks at the scanners.
    jobs: usize,
    /// Matches in the order of their offsets, which are not merged yet.
    pending: Vec<Message>,
    /// True if the scan has ended within the window, because it has enough matches.
    is_full: bool,
    /// True if matches were dropped, because those after them suffice.
    has_dropped: bool,
    /// True if bytes dropped pending matches before the first one.
    is_cut: bool,
    /// The scanned chunks of a window that is read backward: it counts as a whole.
    scanned: Vec<ScannedChunk>,
}

impl Window {
    fn new(low: Offset, high: Offset) -> Window {
        Window {
            low,
            high,
            is_fetched: false,
            jobs: 0,
            pending: Vec::new(),
            is_full: false,
            has_dropped: false,
            is_cut: false,
            scanned: Vec::new(),
        }
    }
}

/// The size of the next window of a partition.
#[derive(Clone, Copy, Debug)]
struct WindowSize {
    offsets: u64,
    /// Bytes and offsets of the fetched chunks.
    bytes: u64,
    span: u64,
}

impl WindowSize {
    fn first(offsets: u64) -> WindowSize {
        WindowSize { offsets, bytes: 0, span: 0 }
    }

    fn note(&mut self, chunk: &Chunk) {
        self.bytes += chunk.bytes.len() as u64;
        self.span += u64::try_from(chunk.next.0 - chunk.start.0).unwrap_or(0);
    }

    /// Adapts the size to the bytes of an offset, as the last chunks had them.
    fn advance(&mut self) {
        let most = self.offsets.saturating_mul(WINDOW_GROWTH);
        self.offsets = match self.bytes {
            0 => most,
            bytes => (WINDOW_BYTES.saturating_mul(self.span.max(1)) / bytes).clamp(1, most),
        };
        (self.bytes, self.span) = (0, 0);
    }
}

/// The windows of an ordered search.
struct Windows {
    open: BTreeMap<TopicPartition, Window>,
    sizes: BTreeMap<TopicPartition, WindowSize>,
    first: u64,
    /// Bytes that were fetched.
    read_bytes: u64,
}

impl Windows {
    /// Marks windows as fetched whose records were deleted meanwhile: the consumer is behind them.
    fn skip_deleted(&mut self, position: impl Fn(&TopicPartition) -> Option<Offset>) {
        for (at, window) in &mut self.open {
            window.is_fetched |= position(at).is_some_and(|position| position >= window.high);
        }
    }
}

impl Driver {
    /// Reads and scans windows until the merge is complete.
    pub(super) async fn read_in_order(&mut self) -> Result<EndReason, ClosedChannel> {
        let has_filter = !self.query.filter.is_empty();
        let limit = self.query.limits.matches.map_or(WINDOW_FILTERED, |limit| limit as u64);
        let share = limit.saturating_mul(2) / (self.partitions.len().max(1) as u64);
        let first = if has_filter { WINDOW_FILTERED } else { share.clamp(WINDOW_MIN, limit.max(WINDOW_MIN)) };
        let sizes = BTreeMap::new();
        let mut windows = Windows { open: BTreeMap::new(), sizes, first, read_bytes: 0 };
        let partition_bytes = match self.query.order {
            Order::OldestFirst if !has_filter => ORDERED_FETCH_BYTES_OLDEST,
            _ => ORDERED_FETCH_BYTES,
        };
        if let Some(why) = self.end_of_round(&windows) {
            return Ok(why);
        }
        let starts = self.open_windows(&mut windows).into_iter();
        let starts = starts.map(|(at, low)| (at, StartAt::Offset(low))).collect();
        let (mut consumer, mut scanners) = match self.begin(starts, partition_bytes, ORDERED_FETCH_WAIT).await
        {
            Ok(begun) => begun,
            Err(error) => return Ok(EndReason::Failed(error)),
        };
        let mut progress_at = Instant::now() + PROGRESS_INTERVAL;
        loop {
            if windows.open.is_empty() {
                if let Some(why) = self.end_of_round(&windows) {
                    return Ok(why);
                }
                for (at, low) in self.open_windows(&mut windows) {
                    consumer.seek(&at, low);
                    consumer.resume(std::slice::from_ref(&at));
                }
            }
            if Instant::now() >= progress_at {
                progress_at = Instant::now() + PROGRESS_INTERVAL;
                self.send_event(Event::Progress(self.snapshot())).await?;
            }
            let (is_idle, has_room) = (scanners.is_idle(), scanners.has_room());
            if is_idle && self.is_idle_round_over(&mut windows, &consumer) {
                continue;
            }
            tokio::select! {
                biased;
                found = scanners.next(), if !is_idle => {
                    if let Some(error) = self.take(&mut windows, &mut consumer, found) {
                        return Ok(EndReason::Failed(error));
                    }
                }
                polled = consumer.poll(PROGRESS_INTERVAL), if has_room => match polled {
                    Ok(PollEvent::Chunk(chunk)) => {
                        if let Some(job) = self.chunk(&mut windows, &mut consumer, chunk) {
                            scanners.push(job).await;
                        }
                    }
                    Ok(_) => {}
                    Err(error) => {
                        if let Some(why) = self.poll_failed(error).await? {
                            return Ok(why);
                        }
                    }
                },
                () = tokio::time::sleep_until(progress_at) => {}
            }
            self.close_windows(&mut windows);
        }
    }

    /// True if no open window gets more data, also because its records were deleted or cannot be read. No
    /// chunk is at the scanners.
    fn is_idle_round_over(&mut self, windows: &mut Windows, consumer: &Consumer) -> bool {
        windows.skip_deleted(|at| consumer.position(at));
        self.close_windows(windows);
        if self.fetched_bytes.as_ref().is_some_and(|bytes| bytes.is_awaited()) {
            self.short_of_memory_at = Instant::now();
        }
        let silent = self.heard_at.max(self.short_of_memory_at).elapsed();
        if silent >= STALLED || self.heard_at.elapsed() >= STALLED_FOR_MEMORY {
            self.give_up(windows);
        }
        windows.open.is_empty()
    }

    /// The partitions to read on, with the rank that each has reached.
    fn wanted(&self) -> Vec<(i64, TopicPartition)> {
        let open = self
            .partitions
            .iter()
            .filter(|(at, range)| !range.is_done() && !self.unreadable.contains_key(at));
        let wanted = open.filter_map(|(at, range)| Some((self.merge.wanted(range.partition)?, at.clone())));
        let mut wanted: Vec<_> = wanted.collect();
        wanted.sort_unstable();
        wanted
    }

    /// The reason to end the search between two rounds.
    fn end_of_round(&self, windows: &Windows) -> Option<EndReason> {
        if !self.wanted().is_empty() {
            let is_over = self.query.limits.read_bytes.is_some_and(|most| windows.read_bytes >= most);
            return is_over.then_some(EndReason::ReadBytes);
        }
        let is_read = |(at, range): (&TopicPartition, &PartitionProgress)| {
            range.is_done() || self.unreadable.contains_key(at)
        };
        let is_complete = !self.merge.has_dropped() && self.partitions.iter().all(is_read);
        Some(match (self.merge.is_cut(), is_complete) {
            (true, _) => EndReason::Bytes,
            (false, true) => EndReason::Complete,
            (false, false) => EndReason::Matches,
        })
    }

    /// Opens the windows of the next round. Returns the start offset of each.
    fn open_windows(&mut self, windows: &mut Windows) -> Vec<(TopicPartition, Offset)> {
        self.heard_at = Instant::now();
        let mut wanted = self.wanted();
        let count = wanted.len().div_ceil(2).max(PARTITIONS_MIN).min(wanted.len());
        let last = count.checked_sub(1).and_then(|last| wanted.get(last)).map(|(rank, _)| *rank);
        wanted.retain(|(rank, _)| last.is_some_and(|last| *rank <= last));
        let mut starts = Vec::new();
        for (_, at) in wanted {
            let Some(range) = self.partitions.get(&at) else { continue };
            let size = windows.sizes.entry(at.clone()).or_insert(WindowSize::first(windows.first));
            let size = i64::try_from(size.offsets).unwrap_or(i64::MAX);
            let end = range.end.unwrap_or(range.latest);
            let window = match self.query.order {
                Order::NewestFirst => {
                    Window::new(Offset(range.from.0.saturating_sub(size)).max(range.start), range.from)
                }
                _ => Window::new(range.position, Offset(range.position.0.saturating_add(size)).min(end)),
            };
            starts.push((at.clone(), window.low));
            windows.open.insert(at, window);
        }
        starts
    }

    /// Takes a fetched chunk. Returns the scan to make, if the chunk reaches into its window.
    fn chunk(&mut self, windows: &mut Windows, consumer: &mut Consumer, chunk: Chunk) -> Option<Job> {
        let window = windows.open.get_mut(&chunk.at)?;
        let range = self.partitions.get(&chunk.at)?;
        self.heard_at = Instant::now();
        windows.read_bytes += chunk.bytes.len() as u64;
        if let Some(size) = windows.sizes.get_mut(&chunk.at) {
            size.note(&chunk);
        }
        if chunk.next >= window.high {
            window.is_fetched = true;
            consumer.pause(std::slice::from_ref(&chunk.at));
        }
        // In the order of offsets, the whole chunk is of use.
        let end = match self.query.order {
            Order::NewestFirst => window.high,
            _ => range.end.unwrap_or(range.latest),
        };
        let is_needed = chunk.start < end && !window.is_full;
        is_needed.then(|| {
            window.jobs += 1;
            Job { chunk, end: Some(end) }
        })
    }

    /// Takes a result of the scanners.
    fn take(
        &mut self,
        windows: &mut Windows,
        consumer: &mut Consumer,
        found: Option<ScanEvent>,
    ) -> Option<SearchError> {
        match found {
            Some(ScanEvent::Matches(matches)) => {
                let first = matches.first()?;
                let at = TopicPartition::new(Arc::clone(&first.topic), first.partition);
                let window = windows.open.get_mut(&at)?;
                if !window.is_full {
                    window.pending.extend(matches);
                    self.bound_pending(windows, &at);
                }
                None
            }
            Some(ScanEvent::Done(scanned)) => self.done(windows, consumer, scanned),
            None => Some(ended_thread()),
        }
    }

    /// Drops pending matches of a window that cannot be in the answer.
    fn bound_pending(&self, windows: &mut Windows, at: &TopicPartition) {
        // Oldest first, the matches of a chunk are few, and merged at its end.
        if self.query.order != Order::NewestFirst {
            return;
        }
        let size = |window: &Window| window.pending.iter().map(Message::size_bytes).sum::<u64>();
        let all: u64 = windows.open.values().map(size).sum();
        let Some(window) = windows.open.get_mut(at) else { return };
        let matches_max = self.query.limits.matches.unwrap_or(usize::MAX);
        let excess = window.pending.len().saturating_sub(matches_max);
        window.has_dropped |= excess > 0;
        let dropped: u64 = window.pending.drain(..excess).map(|message| message.size_bytes()).sum();
        // Windows that are read at the same time have twice the bytes of the answer together.
        let bytes_max = self.query.limits.bytes.map_or(u64::MAX, |bytes| bytes.saturating_mul(2));
        let (mut bytes, mut cut) = (all - dropped, 0);
        while bytes > bytes_max && cut + 1 < window.pending.len() {
            bytes -= window.pending[cut].size_bytes();
            cut += 1;
        }
        window.pending.drain(..cut);
        window.is_cut |= cut > 0;
    }

    /// Takes the end of a chunk's scan.
    fn done(
        &mut self,
        windows: &mut Windows,
        consumer: &mut Consumer,
        scanned: ScannedChunk,
    ) -> Option<SearchError> {
        let at = scanned.at.clone()?;
        let window = windows.open.get_mut(&at)?;
        window.jobs -= 1;
        if window.is_full {
            return None;
        }
        self.heard_at = Instant::now();
        if let Some(reason) = scanned.failed.clone() {
            return Some(SearchError::Unreadable { reason });
        }
        if self.query.order == Order::NewestFirst {
            if let Some(cut) = scanned.cut {
                window.pending.retain(|message| message.offset > cut);
                window.is_cut = true;
            }
            window.has_dropped |= scanned.has_dropped;
            window.scanned.push(scanned);
            return None;
        }
        let pending = std::mem::take(&mut window.pending);
        self.merge.add(at.partition, pending, scanned.timestamps.map(|(_, last)| last), false);
        if let Some(range) = self.partitions.get_mut(&at) {
            range.position = scanned.next.min(range.end.unwrap_or(scanned.next)).max(range.position);
        }
        self.count(&scanned);
        if let Some(window) = windows.open.get_mut(&at).filter(|_| scanned.is_full) {
            (window.is_full, window.is_fetched) = (true, true);
            consumer.pause(std::slice::from_ref(&at));
        }
        None
    }

    /// Closes the windows that were read, and merges their matches.
    fn close_windows(&mut self, windows: &mut Windows) {
        let read = windows.open.extract_if(.., |_, window| window.is_fetched && window.jobs == 0);
        for (at, window) in read.collect::<Vec<_>>() {
            window.scanned.iter().for_each(|scanned| self.count(scanned));
            let Some(range) = self.partitions.get_mut(&at) else { continue };
            if self.query.order == Order::NewestFirst {
                range.from = window.low;
                let first = window.scanned.iter().find_map(|scanned| scanned.timestamps);
                let matches = window.pending.into_iter().rev();
                self.merge.add(at.partition, matches, first.map(|(first, _)| first), window.is_cut);
                if window.has_dropped {
                    self.merge.note_dropped(at.partition);
                }
            } else if !window.is_full {
                range.position = range.position.max(window.high);
            }
            if let Some(size) = windows.sizes.get_mut(&at) {
                size.advance();
            }
        }
    }

    /// Sets the position of each partition at which a further search continues.
    pub(super) fn note_resume(&mut self) {
        let is_newest_first = self.query.order == Order::NewestFirst;
        for range in self.partitions.values_mut() {
            range.resume = match (self.merge.end(range.partition), is_newest_first) {
                (Some(AnswerEnd::FirstBehind(offset)), true) => Offset(offset.0 + 1),
                (Some(AnswerEnd::FirstBehind(offset)), false) => offset,
                (Some(AnswerEnd::LastWithin(offset)), true) => offset,
                (Some(AnswerEnd::LastWithin(offset)), false) => Offset(offset.0 + 1),
                (None, true) | (Some(AnswerEnd::Nothing), false) => range.from,
                (None, false) | (Some(AnswerEnd::Nothing), true) => range.position,
            };
        }
    }

    /// Gives up the partitions whose windows get no data.
    fn give_up(&mut self, windows: &mut Windows) {
        let metadata = self.cluster.metadata();
        let was_short_of_memory = self.short_of_memory_at > self.heard_at;
        for (at, _) in std::mem::take(&mut windows.open) {
            let reason = match metadata.leader(&at.topic, at.partition) {
                Some(_) if was_short_of_memory => FETCHED_RULE.to_owned(),
                None => NO_LEADER.to_owned(),
                Some(leader) => {
                    let cause = self.cluster.trouble().map(|trouble| format!(": {trouble}"));
                    format!("its leader, broker {leader}, sends no records{}", cause.unwrap_or_default())
                }
            };
            self.unreadable.insert(at, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_over_gaps_and_fit_a_few_fetches() {
        let mut size = WindowSize::first(50);
        // Nothing was there.
        size.advance();
        assert_eq!(size.offsets, 800);
        // Records of 1 KiB: 4 MiB are wanted.
        (size.bytes, size.span) = (1 << 20, 1 << 10);
        size.advance();
        assert_eq!(size.offsets, 4096);
        // Records of 8 MiB.
        (size.bytes, size.span) = (16 << 20, 2);
        size.advance();
        assert_eq!(size.offsets, 1);
        // A few records within many offsets.
        (size.bytes, size.span) = (100, 1_000_000);
        size.advance();
        assert_eq!(size.offsets, 16);
    }

    #[test]
    fn windows_of_deleted_records_are_read() {
        let at = |index| TopicPartition::new("t", index);
        let open = (0..3).map(|index| (at(index), Window::new(Offset(10), Offset(20)))).collect();
        let mut windows = Windows { open, sizes: BTreeMap::new(), first: 10, read_bytes: 0 };
        windows.skip_deleted(|at| [Some(Offset(20)), Some(Offset(19)), None][at.partition as usize]);
        assert_eq!(windows.open.values().map(|one| one.is_fetched).collect::<Vec<_>>(), [true, false, false]);
    }
}
