//! A running search: one task that fetches, threads that scan, and a channel of events.
//!
//! Chunks go to the threads in turn, and results are taken in the same order, so that matches of a partition
//! stay in order. Every queue is bounded: a slow reader stops the scan, and the scan stops the fetches.
//!
//! A partition without a leader, or without an answer of its leader, is reported and left out; a live tail
//! retries it.

mod ordered;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use thalweg_client::{
    AnswerBudget, Chunk, Cluster, ConnectionOptions, Consumer, ConsumerConfig, ConsumerError, OffsetReset,
    PollEvent, StartAt, TopicPartition,
};
use thalweg_record::Offset;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::capacity::{FetchedBytes, PrincipalCapacity};
use crate::masking::Masking;
use crate::merge::Merge;
use crate::message::Message;
use crate::query::{End, InvalidQuery, Order, Query};
use crate::ranges::{self, FoundRanges, Range, RangeError};
use crate::registry::{Decoder, Registry};
use crate::scan::{self, Job, Plan, ScanEvent, ScannedChunk};

/// Queued events for a slow reader.
const EVENTS_MAX: usize = 16;
/// Queued chunks per thread, each up to [`FETCH_PARTITION_BYTES`].
const JOBS_AHEAD: usize = 2;
/// Fetches are large, because an unordered search reads all records of its range.
const FETCH_BYTES: i32 = 16 << 20;
const FETCH_PARTITION_BYTES: i32 = 4 << 20;
/// Maximum bytes of a fetch within a share. The first batch comes whole, also if it is larger.
const FETCH_BYTES_SHARING: i32 = 4 << 20;
const FETCH_PARTITION_BYTES_SHARING: i32 = 1 << 20;
/// Time that a broker may hold a fetch without records, Kafka's default.
const FETCH_WAIT: Duration = Duration::from_millis(500);
/// Interval of progress events.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Time without data after which the search reports that it waits.
const SILENCE: Duration = Duration::from_secs(2);
/// Backoff after a retriable error.
const RETRY: Duration = Duration::from_millis(500);
/// Backoff before the first retry. A bounded search retries unreadable partitions only once.
const UNREADABLE_RETRY: Duration = Duration::from_millis(200);
/// Interval at which a live tail retries unreadable partitions.
const UNREADABLE_INTERVAL: Duration = Duration::from_secs(5);

/// An event of a search.
#[derive(Clone, Debug)]
pub enum Event {
    /// Some matches, in order within each partition.
    Matches(Vec<Message>),
    /// Progress, a few times per second. A live tail reports the start of a partition before its matches.
    Progress(Progress),
    /// The reason for a wait.
    Waiting(String),
    /// The last event.
    Ended(SearchEnd),
}

/// The end of a search.
#[derive(Clone, Debug)]
pub struct SearchEnd {
    /// The reason for the end.
    pub why: EndReason,
    /// The final progress.
    pub progress: Progress,
}

/// The reason for the end of a search.
#[derive(Clone, Debug)]
pub enum EndReason {
    /// The whole range was read.
    Complete,
    /// The maximum number of matches was reached.
    Matches,
    /// The maximum bytes of matches were reached.
    Bytes,
    /// The maximum bytes to fetch were reached.
    ReadBytes,
    /// The time limit was reached.
    Time,
    /// The search failed.
    Failed(SearchError),
}

/// An error that ends a search.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SearchError {
    /// The range of the search is unknown.
    #[error(transparent)]
    Range(#[from] RangeError),
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// Fetched batches are unreadable, or a scanning thread has ended.
    #[error("{reason}")]
    Unreadable {
        /// The position and the reason.
        reason: String,
    },
    /// A thread failed to start.
    #[error("No thread could be started to scan: {reason}")]
    NoThread {
        /// The system's error.
        reason: String,
    },
}

/// The counters of a search, and its position in each partition.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Number of records read.
    pub records: u64,
    /// Bytes of the keys and values of those records.
    pub bytes: u64,
    /// Number of matches.
    pub matches: u64,
    /// Bytes kept of the matches.
    pub match_bytes: u64,
    /// Number of records for which the expression has no value.
    pub without_value: u64,
    /// The reason for one record without a value.
    pub without_value_reason: Option<String>,
    /// Time since the start.
    pub elapsed: Duration,
    /// The progress of each partition.
    pub partitions: Vec<PartitionProgress>,
    /// The partitions that cannot be read.
    pub unreadable: Vec<UnreadablePartition>,
    /// Number of offsets behind open transactions, which a search for committed records does not read.
    pub open_offsets: u64,
}

/// A partition of the range that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadablePartition {
    /// The partition index.
    pub partition: i32,
    /// The reason, in words that follow "cannot be read:".
    pub reason: String,
}

/// The progress in one partition: the records from [`PartitionProgress::from`] up to
/// [`PartitionProgress::position`] were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionProgress {
    /// The partition index.
    pub partition: i32,
    /// The start offset of the range.
    pub start: Offset,
    /// The first offset that was read. A search for the newest messages moves it backward.
    pub from: Offset,
    /// The offset after the last one that was read.
    pub position: Offset,
    /// The position at which a further search continues after the end of this one, without a missing or a
    /// repeated message: the exclusive end of a search for older messages, or else the first offset.
    pub resume: Offset,
    /// The end offset, exclusive; none for a live tail.
    pub end: Option<Offset>,
    /// The log start offset at the start of the search.
    pub earliest: Offset,
    /// The end offset of the partition at the start of the search.
    pub latest: Offset,
}

impl PartitionProgress {
    /// True if the whole range was read.
    pub fn is_done(&self) -> bool {
        self.from <= self.start && self.end.is_some_and(|end| self.position >= end)
    }
}

/// A running search, which ends on drop.
#[derive(Debug)]
pub struct Search {
    events: mpsc::Receiver<Event>,
    cancelled: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Search {
    /// Starts a search on the current runtime. `masking` hides parts of messages before any other processing.
    pub fn start(
        cluster: Cluster,
        query: Query,
        masking: &Masking,
        registry: Option<Arc<Registry>>,
    ) -> Result<Search, InvalidQuery> {
        Search::start_in(cluster, query, masking, registry, None, Box::new(()))
    }

    /// Starts a search within a share of the process's capacity. `held`, such as a place for a search, is
    /// kept until the last thread has ended, which may be after the drop of the search, because a thread
    /// finishes its current record.
    pub fn start_sharing(
        cluster: Cluster,
        query: Query,
        masking: &Masking,
        registry: Option<Arc<Registry>>,
        share: PrincipalCapacity,
        held: Box<dyn Any + Send + Sync>,
    ) -> Result<Search, InvalidQuery> {
        Search::start_in(cluster, query, masking, registry, Some(share), held)
    }

    fn start_in(
        cluster: Cluster,
        query: Query,
        masking: &Masking,
        registry: Option<Arc<Registry>>,
        share: Option<PrincipalCapacity>,
        held: Box<dyn Any + Send + Sync>,
    ) -> Result<Search, InvalidQuery> {
        query.check()?;
        let (to, events) = mpsc::channel(EVENTS_MAX);
        let cancelled = Arc::<AtomicBool>::default();
        let fetched_bytes = share.as_ref().map(FetchedBytes::of);
        let principal = share.as_ref().map(|share| Arc::clone(share.principal()));
        let plan = Arc::new(Plan {
            filter: query.filter.clone(),
            masks: masking.of(&query.topic),
            decoder: registry.map(|registry| Decoder::new(registry, Handle::current(), principal)),
            control: query.control,
            message_bytes: query.limits.message_bytes,
            matches: query.limits.matches,
            is_newest_first: query.order == Order::NewestFirst,
            bytes: query.limits.bytes,
            cancelled: Arc::clone(&cancelled),
            runtime: Handle::current(),
            share,
            _held: held,
        });
        let merge = Merge::new(query.order == Order::NewestFirst, &query.limits);
        let driver = Driver {
            cluster,
            query,
            merge,
            plan,
            fetched_bytes,
            to,
            began: Instant::now(),
            progress: Progress::default(),
            partitions: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            heard_at: Instant::now(),
            short_of_memory_at: Instant::now(),
        };
        let task = tokio::spawn(Box::pin(driver.run())).abort_handle();
        Ok(Search { events, cancelled, task })
    }

    /// The next event; none after the last one.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

struct Driver {
    cluster: Cluster,
    query: Query,
    plan: Arc<Plan>,
    /// The budget of the fetched answers; none in a process without other work.
    fetched_bytes: Option<Arc<FetchedBytes>>,
    to: mpsc::Sender<Event>,
    began: Instant,
    progress: Progress,
    partitions: BTreeMap<TopicPartition, PartitionProgress>,
    /// The reasons of unreadable partitions.
    unreadable: BTreeMap<TopicPartition, String>,
    /// The matches of an ordered search, which are reported at its end.
    merge: Merge,
    /// Time of the last data from the cluster.
    heard_at: Instant,
    /// Last time at which an answer waited for memory.
    short_of_memory_at: Instant,
}

/// The reader of the events is gone.
struct ClosedChannel;

/// A scanning thread with its queues.
struct Scanner {
    jobs: mpsc::Sender<Job>,
    found: mpsc::Receiver<ScanEvent>,
}

/// The scanning threads, used in turn.
struct Scanners {
    all: Vec<Scanner>,
    /// Sequence numbers of the next job and of the next result.
    next_job: usize,
    next_result: usize,
}

impl Scanners {
    fn start(plan: &Arc<Plan>, count: usize) -> Result<Scanners, SearchError> {
        let all = (0..count.max(1)).map(|_| {
            let (jobs, of_jobs) = mpsc::channel(JOBS_AHEAD);
            let (to, found) = mpsc::channel(1);
            let plan = Arc::clone(plan);
            // Nested expressions need a large stack.
            let thread = std::thread::Builder::new()
                .name("browse-scan".to_owned())
                .stack_size(thalweg_stream::STACK_BYTES)
                .spawn(move || scan::run(&plan, of_jobs, &to));
            thread.map_err(|error| SearchError::NoThread { reason: error.to_string() })?;
            Ok(Scanner { jobs, found })
        });
        Ok(Scanners { all: all.collect::<Result<_, SearchError>>()?, next_job: 0, next_result: 0 })
    }

    /// True if the queue of the next thread has room.
    fn has_room(&self) -> bool {
        self.all[self.next_job % self.all.len()].jobs.capacity() > 0
    }

    fn is_idle(&self) -> bool {
        self.next_job == self.next_result
    }

    async fn push(&mut self, job: Job) {
        let turn = self.next_job % self.all.len();
        self.next_job += 1;
        // The thread has ended only if its results are no longer needed.
        let _ = self.all[turn].jobs.send(job).await;
    }

    /// The next result, in job order.
    async fn next(&mut self) -> Option<ScanEvent> {
        let turn = self.next_result % self.all.len();
        let found = self.all[turn].found.recv().await;
        if !matches!(found, Some(ScanEvent::Matches(_))) {
            self.next_result += 1;
        }
        found
    }
}

impl Driver {
    async fn run(mut self) {
        let why = match self.query.limits.time {
            Some(time) => match tokio::time::timeout(time, self.drive()).await {
                Ok(why) => why,
                Err(_) => Ok(EndReason::Time),
            },
            None => self.drive().await,
        };
        // Scans in progress are obsolete.
        self.plan.cancelled.store(true, Ordering::Relaxed);
        let Ok(why) = why else { return };
        self.note_resume();
        let merged = self.merge.take();
        self.progress.matches += merged.len() as u64;
        self.progress.match_bytes += merged.iter().map(Message::size_bytes).sum::<u64>();
        if !merged.is_empty() && self.send_event(Event::Matches(merged)).await.is_err() {
            return;
        }
        let progress = self.snapshot();
        let _ = self.to.send(Event::Ended(SearchEnd { why, progress })).await;
    }

    async fn drive(&mut self) -> Result<EndReason, ClosedChannel> {
        let FoundRanges { ranges, unreadable, open_offsets } = match self.find_ranges().await? {
            Ok(found) => found,
            Err(error) => return Ok(EndReason::Failed(error.into())),
        };
        self.heard_at = Instant::now();
        let progress = |(at, range): (TopicPartition, Range)| {
            let progress = progress_of(&at, &range, self.query.order);
            (at, progress)
        };
        self.partitions = ranges.into_iter().map(progress).collect();
        self.unreadable = unreadable;
        self.progress.open_offsets = open_offsets;
        if self.query.order != Order::Unordered {
            return self.read_in_order().await;
        }
        if self.query.end == End::Never {
            // The starts of a live tail precede its matches.
            self.send_event(Event::Progress(self.snapshot())).await?;
        }
        let open = self.partitions.iter().filter(|(_, range)| !range.is_done());
        let starts = open.map(|(at, range)| (at.clone(), StartAt::Offset(range.position))).collect();
        let (mut consumer, mut scanners) = match self.begin(starts, FETCH_PARTITION_BYTES, FETCH_WAIT).await {
            Ok(begun) => begun,
            Err(error) => return Ok(EndReason::Failed(error)),
        };
        self.read(&mut consumer, &mut scanners).await
    }

    /// The ranges of the partitions. A bounded search goes on without unreadable partitions after one retry,
    /// and a live tail if any partition is readable.
    async fn find_ranges(&mut self) -> Result<Result<FoundRanges, RangeError>, ClosedChannel> {
        let mut is_retry = false;
        loop {
            let waiting = match ranges::find(&self.cluster, &self.query).await {
                Ok(found) => {
                    let may_wait = self.query.end == End::Never && found.ranges.is_empty();
                    match found.unreadable.first_key_value() {
                        Some((at, reason)) if !is_retry || may_wait => unreadable_words(at, reason),
                        _ => return Ok(Ok(found)),
                    }
                }
                Err(error) if error.is_retriable() => error.to_string(),
                Err(error) => return Ok(Err(error)),
            };
            let pause = if is_retry { RETRY } else { UNREADABLE_RETRY };
            is_retry = true;
            self.send_event(Event::Waiting(waiting)).await?;
            tokio::time::sleep(pause).await;
        }
    }

    /// A consumer that begins to read at these positions, and the scanners.
    async fn begin(
        &self,
        starts: Vec<(TopicPartition, StartAt)>,
        partition_bytes: i32,
        fetch_wait: Duration,
    ) -> Result<(Consumer, Scanners), SearchError> {
        let consumer = self.consumer(starts, partition_bytes, fetch_wait).await?;
        let scanners = Scanners::start(&self.plan, self.query.limits.threads)?;
        Ok((consumer, scanners))
    }

    /// A consumer that begins to read at these positions.
    async fn consumer(
        &self,
        starts: Vec<(TopicPartition, StartAt)>,
        partition_bytes: i32,
        fetch_wait: Duration,
    ) -> Result<Consumer, ConsumerError> {
        let (most, most_of_partition) = match self.fetched_bytes {
            Some(_) => (FETCH_BYTES_SHARING, FETCH_PARTITION_BYTES_SHARING),
            None => (FETCH_BYTES, i32::MAX),
        };
        let answer_budget = self.fetched_bytes.clone().map(|budget| budget as Arc<dyn AnswerBudget>);
        let config = ConsumerConfig {
            auto_commit: None,
            // Start offsets are within the log. If retention deletes records in the meantime, the search
            // skips them.
            offset_reset: OffsetReset::Earliest,
            fetch_bytes_max: most,
            partition_fetch_bytes_max: partition_bytes.min(most_of_partition),
            fetch_wait_max: fetch_wait,
            read_committed: self.query.read_committed,
            create_topics: false,
            connection: ConnectionOptions { answer_budget, ..self.cluster.options().clone() },
            ..ConsumerConfig::default()
        };
        let mut consumer = Consumer::new(self.cluster.clone(), config);
        consumer.assign(starts).await?;
        Ok(consumer)
    }

    /// Reads and scans until the end of the range.
    async fn read(
        &mut self,
        consumer: &mut Consumer,
        scanners: &mut Scanners,
    ) -> Result<EndReason, ClosedChannel> {
        let mut progress_at = Instant::now() + PROGRESS_INTERVAL;
        // The next offset after those passed to the scanners.
        let mut handed: BTreeMap<TopicPartition, Offset> = BTreeMap::new();
        let mut retry_at = Instant::now() + UNREADABLE_INTERVAL;
        let mut end = None;
        loop {
            if self.query.end == End::Never && !self.unreadable.is_empty() && Instant::now() >= retry_at {
                retry_at = Instant::now() + UNREADABLE_INTERVAL;
                if let Err(error) = self.retry_unreadable(consumer, &handed).await? {
                    return Ok(EndReason::Failed(error));
                }
            }
            let is_idle = scanners.is_idle();
            if is_idle {
                self.skip_deleted(consumer, &mut handed);
            }
            let is_all_handed = self.is_all_handed(&handed);
            if is_all_handed && is_idle {
                return Ok(EndReason::Complete);
            }
            if Instant::now() >= progress_at {
                progress_at = Instant::now() + PROGRESS_INTERVAL;
                self.report_progress(is_idle).await?;
            }
            let may_fetch = !is_all_handed && end.is_none() && scanners.has_room();
            tokio::select! {
                biased;
                found = scanners.next(), if !is_idle => match found {
                    Some(ScanEvent::Matches(_)) if end.is_some() => {}
                    Some(ScanEvent::Matches(matches)) => {
                        end = self.send_matches(matches).await?;
                        if end.is_some() {
                            // The scan of the chunk ends at its next record, and is counted.
                            self.plan.cancelled.store(true, Ordering::Relaxed);
                        }
                    }
                    Some(ScanEvent::Done(scanned)) => {
                        if let Some(why) = end.take() {
                            self.count(&scanned);
                            return Ok(why);
                        }
                        if let Some(error) = self.scanned(scanned) {
                            return Ok(EndReason::Failed(error));
                        }
                    }
                    None => return Ok(EndReason::Failed(ended_thread())),
                },
                polled = consumer.poll(PROGRESS_INTERVAL), if may_fetch => match polled {
                    Ok(PollEvent::Chunk(chunk)) => {
                        handed.insert(chunk.at.clone(), chunk.next);
                        if let Some(job) = self.fetched(consumer, chunk) {
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
        }
    }

    /// Reports a retriable error of the consumer, and waits. Any other error ends the search.
    async fn poll_failed(&self, error: ConsumerError) -> Result<Option<EndReason>, ClosedChannel> {
        if !error.is_retriable() {
            return Ok(Some(EndReason::Failed(error.into())));
        }
        self.send_event(Event::Waiting(error.to_string())).await?;
        tokio::time::sleep(RETRY).await;
        Ok(None)
    }

    /// Ends ranges whose last records were deleted meanwhile: the consumer is behind them.
    fn skip_deleted(&mut self, consumer: &Consumer, handed: &mut BTreeMap<TopicPartition, Offset>) {
        for (at, range) in self.partitions.iter_mut().filter(|(_, range)| !range.is_done()) {
            let Some(end) = range.end else { continue };
            if consumer.position(at).is_some_and(|position| position >= end) {
                range.position = end;
                handed.insert(at.clone(), end);
            }
        }
    }

    /// True if the scanners have had all ranges, up to these offsets.
    fn is_all_handed(&self, handed: &BTreeMap<TopicPartition, Offset>) -> bool {
        self.partitions.iter().all(|(at, range)| {
            range.is_done() || range.end.is_some_and(|end| handed.get(at).is_some_and(|next| *next >= end))
        })
    }

    /// Takes a fetched chunk. Returns the scan to make, if the chunk begins within the range.
    fn fetched(&mut self, consumer: &mut Consumer, chunk: Chunk) -> Option<Job> {
        self.heard_at = Instant::now();
        let end = self.partitions.get(&chunk.at).and_then(|range| range.end);
        if end.is_some_and(|end| chunk.next >= end) {
            // The rest of the partition is not needed.
            consumer.pause(std::slice::from_ref(&chunk.at));
        }
        if end.is_none_or(|end| chunk.start < end) {
            return Some(Job { chunk, end });
        }
        if let Some(range) = self.partitions.get_mut(&chunk.at) {
            range.position = chunk.next;
        }
        None
    }

    /// Sends matches within the limits. Returns the limit that ends the search, if one is reached.
    async fn send_matches(&mut self, matches: Vec<Message>) -> Result<Option<EndReason>, ClosedChannel> {
        let (matches, reached) = self.within_limits(matches);
        self.progress.matches += matches.len() as u64;
        self.progress.match_bytes += matches.iter().map(Message::size_bytes).sum::<u64>();
        if let Some(last) = matches.last().filter(|_| reached.is_some()) {
            let at = TopicPartition::new(Arc::clone(&last.topic), last.partition);
            if let Some(range) = self.partitions.get_mut(&at) {
                range.position = Offset(last.offset.0 + 1);
            }
        }
        if !matches.is_empty() {
            self.send_event(Event::Matches(matches)).await?;
        }
        Ok(reached)
    }

    /// The first matches that the limits allow, and the limit that ends the search, if one is reached.
    fn within_limits(&self, mut matches: Vec<Message>) -> (Vec<Message>, Option<EndReason>) {
        let limits = self.query.limits;
        let mut reached = None;
        if let Some(allowed) = limits.matches {
            let left =
                usize::try_from((allowed as u64).saturating_sub(self.progress.matches)).unwrap_or(usize::MAX);
            if matches.len() >= left {
                matches.truncate(left);
                reached = Some(EndReason::Matches);
            }
        }
        let mut bytes = self.progress.match_bytes;
        let is_last = |message: &Message| {
            bytes += message.size_bytes();
            limits.bytes.is_some_and(|bytes_max| bytes >= bytes_max)
        };
        if let Some(last) = matches.iter().position(is_last) {
            matches.truncate(last + 1);
            reached = Some(EndReason::Bytes);
        }
        (matches, reached)
    }

    /// Retries the unreadable partitions of a live tail, and reports those that remain.
    async fn retry_unreadable(
        &mut self,
        consumer: &mut Consumer,
        handed: &BTreeMap<TopicPartition, Offset>,
    ) -> Result<Result<(), SearchError>, ClosedChannel> {
        let partitions = self.unreadable.keys().map(|at| at.partition).collect();
        let query = Query { partitions, ..self.query.clone() };
        match ranges::find(&self.cluster, &query).await {
            Ok(found) => {
                let is_changed = !found.ranges.is_empty();
                for (at, range) in found.ranges {
                    let progress = progress_of(&at, &range, self.query.order);
                    self.unreadable.remove(&at);
                    self.partitions.insert(at, progress);
                }
                self.unreadable.extend(found.unreadable);
                let position = |(at, range): (&TopicPartition, &PartitionProgress)| {
                    let next = handed.get(at).copied().unwrap_or(range.position);
                    (at.clone(), StartAt::Offset(next))
                };
                if is_changed
                    && let Err(error) = consumer.assign(self.partitions.iter().map(position).collect()).await
                {
                    return Ok(Err(error.into()));
                }
                if is_changed {
                    self.send_event(Event::Progress(self.snapshot())).await?;
                }
            }
            Err(error) if error.is_retriable() => {}
            Err(error) => return Ok(Err(error.into())),
        }
        if let Some((at, reason)) = self.unreadable.iter().next() {
            self.send_event(Event::Waiting(unreadable_words(at, reason))).await?;
        }
        Ok(Ok(()))
    }

    fn count(&mut self, scanned: &ScannedChunk) {
        self.progress.records += scanned.records;
        self.progress.bytes += scanned.bytes;
        self.progress.without_value += scanned.without_value;
        if self.progress.without_value_reason.is_none() {
            self.progress.without_value_reason.clone_from(&scanned.reason);
        }
    }

    fn scanned(&mut self, scanned: ScannedChunk) -> Option<SearchError> {
        self.count(&scanned);
        if let Some(range) = scanned.at.and_then(|at| self.partitions.get_mut(&at)) {
            range.position = scanned.next;
        }
        scanned.failed.map(|reason| SearchError::Unreadable { reason })
    }

    async fn report_progress(&mut self, is_idle: bool) -> Result<(), ClosedChannel> {
        let progress = self.snapshot();
        self.send_event(Event::Progress(progress)).await?;
        // A live tail may have no records to read, unlike a bounded search.
        let behind = self.partitions.iter().find(|(_, range)| range.end.is_some() && !range.is_done());
        if is_idle
            && self.heard_at.elapsed() >= SILENCE
            && let Some((at, range)) = behind
        {
            let cause = self.cluster.trouble().map(|trouble| format!(": {trouble}")).unwrap_or_default();
            let end = range.end.unwrap_or(range.latest);
            let text = format!("records of {at} from offset {} to {end}{cause}", range.position);
            self.heard_at = Instant::now();
            self.send_event(Event::Waiting(text)).await?;
        } else if behind.is_none()
            && let Some(trouble) = self.cluster.trouble()
            && self.heard_at.elapsed() >= SILENCE
        {
            self.heard_at = Instant::now();
            self.send_event(Event::Waiting(trouble)).await?;
        }
        Ok(())
    }

    fn snapshot(&self) -> Progress {
        let partitions = self.partitions.values().copied().collect();
        let unreadable = self
            .unreadable
            .iter()
            .map(|(at, reason)| UnreadablePartition { partition: at.partition, reason: reason.clone() });
        let unreadable = unreadable.collect();
        Progress { elapsed: self.began.elapsed(), partitions, unreadable, ..self.progress.clone() }
    }

    async fn send_event(&self, event: Event) -> Result<(), ClosedChannel> {
        self.to.send(event).await.map_err(|_| ClosedChannel)
    }
}

/// The failure of a search whose scanning thread has panicked.
fn ended_thread() -> SearchError {
    SearchError::Unreadable { reason: "a scanning thread has ended".to_owned() }
}

fn unreadable_words(at: &TopicPartition, reason: &str) -> String {
    format!("partition {} cannot be read: {reason}", at.partition)
}

/// Nothing is read yet: a search for the newest messages begins at the end.
fn progress_of(at: &TopicPartition, range: &Range, order: Order) -> PartitionProgress {
    let begin = match (order, range.end) {
        (Order::NewestFirst, Some(end)) => end.max(range.start),
        _ => range.start,
    };
    PartitionProgress {
        partition: at.partition,
        start: range.start,
        from: begin,
        position: begin,
        resume: begin,
        end: range.end,
        earliest: range.earliest,
        latest: range.latest,
    }
}
