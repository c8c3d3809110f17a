//! The reading task: finds the partitions, reads them from the start position, and passes on batches until
//! the source is closed or the end is reached. The task owns the consumer, so it also commits offsets, and
//! takes part in rebalances until the source leaves, even while the stream reads nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use thalweg_client::{
    Chunk, ClientError, CommitInFlight, Consumer, ConsumerError, ListedOffset, OffsetSpec, PollEvent,
    StartAt, TopicPartition,
};
use thalweg_record::{DecompressBuffer, Offset};
use thalweg_wire::ErrorCode;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::membership::Membership;
use super::partitions::{self, ReadSettings};
use super::runs::Runs;
use super::skipped::SharedSkippedRecords;
use super::tracking::Tracking;
use crate::clock;
use crate::kafka::{self, Ends};
use crate::message::{Batch, BatchBuilder, Header, Provenance};
use crate::stage::StageError;

/// Maximum wait of a poll, practically unlimited.
const POLL: Duration = Duration::from_secs(3600);
/// Timeout for fetching committed offsets.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause before a retry.
const ASKED_AGAIN: Duration = Duration::from_millis(200);
/// Interval of commits behind records that are no messages.
const COMMIT_SKIPPED_EVERY: Duration = Duration::from_secs(1);
/// Interval at which partitions without records are sought, for stages that track partitions.
const SEEK_EMPTY_EVERY: Duration = Duration::from_secs(1);
/// Timeout of each broker for the ends of its partitions.
const LIST_OFFSETS_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for leaving the group.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// The end of each partition, or the reason why it is not known.
type ListedOffsets = BTreeMap<TopicPartition, Result<ListedOffset, ClientError>>;

/// A batch and the records of its messages.
#[derive(Default)]
pub struct PolledBatch {
    pub batch: Batch,
    /// The records of the messages.
    pub runs: Runs,
}

/// Commands of the stream.
pub enum Command {
    /// Commits acknowledged messages, unless they are void.
    Commit {
        runs: Runs,
        /// Receives the commit.
        started: oneshot::Sender<PendingCommit>,
    },
    /// Releases the partitions that are being revoked.
    HandBack {
        /// Notified when done.
        done: oneshot::Sender<()>,
    },
}

/// A commit in progress.
pub struct PendingCommit {
    /// True if the commit covers everything requested.
    pub is_whole: bool,
    /// The commit, unless it is empty.
    pub commit: Option<CommitInFlight>,
}

/// The reading task.
pub struct Reader {
    consumer: Consumer,
    wanted: ReadSettings,
    membership: Arc<Membership>,
    ends: Ends,
    /// Items read but not passed on: records of one chunk at most, and a final failure.
    ready: VecDeque<Result<PolledBatch, StageError>>,
    has_failed: bool,
    /// The start offset of each partition since it was assigned.
    first: BTreeMap<TopicPartition, Offset>,
    sequence: u64,
    buffer: DecompressBuffer,
    /// True if the cluster was unreachable, and no record has arrived since.
    is_troubled: bool,
    /// The partitions, if some stage tracks them.
    tracking: Option<Tracking>,
    /// The search for the ends of partitions, which are requested in the background.
    seeking: JoinSet<ListedOffsets>,
    /// The end of the last search.
    sought: Option<Instant>,
    /// Records that are no messages, in a group.
    skipped: SharedSkippedRecords,
    /// True if transactions of the sink have the offsets, and the reader commits none.
    is_transacted: bool,
    /// The time of the next commit behind them.
    skip_at: Instant,
}

impl Reader {
    /// A reading task with this consumer.
    pub fn new(
        consumer: Consumer,
        wanted: ReadSettings,
        (membership, skipped): (Arc<Membership>, SharedSkippedRecords),
        tracking: Option<Tracking>,
        is_transacted: bool,
    ) -> Reader {
        Reader {
            consumer,
            wanted,
            membership,
            ends: Ends::default(),
            ready: VecDeque::new(),
            has_failed: false,
            first: BTreeMap::new(),
            sequence: 0,
            buffer: DecompressBuffer::default(),
            is_troubled: false,
            tracking,
            seeking: JoinSet::new(),
            sought: None,
            skipped,
            is_transacted,
            skip_at: Instant::now(),
        }
    }

    /// Passes on records and serves the stream until the stream leaves. An error is the last item.
    pub async fn run(
        mut self,
        batches: mpsc::Sender<Box<Result<PolledBatch, StageError>>>,
        mut commands: mpsc::Receiver<Box<Command>>,
    ) {
        let begun = tokio::select! {
            // Boxed, to keep rare operations out of the task's memory.
            begun = Box::pin(self.begin()) => begun,
            // Before the first read, the only possible command is to leave.
            _ = commands.recv() => return,
        };
        if let Err(error) = begun {
            self.fail(error);
        }
        self.serve(Some(batches), &mut commands).await;
        // Leave explicitly: otherwise the group waits for the session timeout.
        if let Ok(Err(error)) = timeout(LEAVE_MAX, Box::pin(self.consumer.close())).await {
            tracing::debug!(%error, "Failed to leave the group; the session will time out");
        }
    }

    /// Finds the partitions and starts reading.
    async fn begin(&mut self) -> Result<(), StageError> {
        if let Some(pattern) = &self.wanted.pattern {
            let subscribed = self.consumer.subscribe_pattern(pattern);
            return subscribed.map_err(|error| kafka::failed("Subscribing", error));
        }
        let found = partitions::find(self.consumer.cluster(), &self.wanted).await?;
        if self.wanted.group.is_some() {
            let subscribed = self.consumer.subscribe(self.wanted.topics.clone());
            return subscribed.map_err(|error| kafka::failed("Subscribing", error));
        }
        let failed = |error: ConsumerError| kafka::failed("Assigning partitions", error);
        let mut ends = BTreeMap::new();
        if self.wanted.until_end {
            let latest: Vec<_> = found.iter().map(|(at, _)| (at.clone(), OffsetSpec::Latest)).collect();
            ends = self.consumer.list_offsets(&latest).await.map_err(failed)?;
        }
        self.consumer.assign(found).await.map_err(failed)?;
        for (at, end) in ends {
            let from = self.consumer.position(&at).unwrap_or(Offset(0));
            self.ends.add(&at, from, end.offset);
        }
        let all = self.consumer.assignment();
        let read = all.filter(|at| !self.wanted.until_end || self.ends.has(at));
        let read: Vec<TopicPartition> = read.collect();
        self.announce(|tracking| tracking.assign(read));
        Ok(())
    }

    /// Reads and passes on until the stream leaves.
    async fn serve(
        &mut self,
        mut batches: Option<mpsc::Sender<Box<Result<PolledBatch, StageError>>>>,
        commands: &mut mpsc::Receiver<Box<Command>>,
    ) {
        loop {
            let is_read = self.has_failed || (self.wanted.until_end && self.ends.are_reached());
            if self.membership.is_closed() || (is_read && self.ready.is_empty()) {
                // The end follows the records already passed on.
                (batches, self.ready) = (None, VecDeque::new());
            }
            let rewinding =
                batches.is_some() && self.membership.wants_rewind() && !Box::pin(self.rewind()).await;
            let room = batches.is_some() && self.ready.is_empty() && !rewinding;
            let wait = if rewinding {
                ASKED_AGAIN
            } else if self.has_unknown() {
                SEEK_EMPTY_EVERY
            } else {
                POLL
            };
            let happened = tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => {
                        self.obey(*command);
                        continue;
                    }
                    None => return,
                },
                () = self.membership.wanted() => continue,
                found = self.seeking.join_next(), if !self.seeking.is_empty() => {
                    self.found_ends(&found.and_then(Result::ok).unwrap_or_default());
                    continue;
                }
                () = sleep_until(self.skip_at), if !self.is_transacted && self.skipped.lock().is_due() => {
                    self.commit_skipped();
                    continue;
                }
                () = hand_over(batches.as_ref(), &mut self.ready), if !self.ready.is_empty() => continue,
                happened = poll(&mut self.consumer, room, wait), if !self.has_failed => happened,
            };
            let handled = match happened {
                Ok(happened) => self.handle(happened, commands).await,
                Err(error) => self.wait_out(error).await,
            };
            if let Err(error) = handled {
                self.fail(error);
            }
            if room && self.has_unknown() {
                self.seek_empty();
            }
        }
    }

    fn has_unknown(&self) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.unknown().next().is_some())
    }

    /// Tells stages that track partitions about a change.
    fn announce(&mut self, change: impl FnOnce(&mut Tracking) -> Provenance) {
        let Some(tracking) = &mut self.tracking else { return };
        let provenance = Some(change(tracking));
        let mut batch = Batch::new();
        batch.provenance = provenance;
        self.ready.push_back(Ok(PolledBatch { batch, runs: Runs::default() }));
    }

    /// Seeks partitions without records, which are not waited for. A failure delays only the discovery.
    fn seek_empty(&mut self) {
        let is_due = self.sought.is_none_or(|sought| sought.elapsed() >= SEEK_EMPTY_EVERY);
        if !self.seeking.is_empty() || !is_due {
            return;
        }
        let unknown = self.tracking.iter().flat_map(Tracking::unknown);
        let unknown: Vec<_> = unknown.map(|at| (at.clone(), OffsetSpec::Latest)).collect();
        let cluster = self.consumer.cluster().clone();
        self.seeking
            .spawn(async move { cluster.list_offsets_within(&unknown, true, LIST_OFFSETS_TIMEOUT).await });
    }

    /// Takes the result of a search. Partitions with records in the meantime are known.
    fn found_ends(&mut self, ends: &ListedOffsets) {
        self.sought = Some(Instant::now());
        let Some(tracking) = &self.tracking else { return };
        let is_empty = |at: &TopicPartition| {
            let end = ends.get(at).and_then(|end| end.as_ref().ok());
            end.is_some_and(|end| self.consumer.position(at).is_some_and(|position| position >= end.offset))
        };
        let empty: Vec<TopicPartition> = tracking.unknown().filter(|at| is_empty(at)).cloned().collect();
        if !empty.is_empty() {
            self.announce(|tracking| tracking.found_empty(&empty));
        }
    }

    fn fail(&mut self, error: StageError) {
        self.has_failed = true;
        self.ready.push_back(Err(error));
    }

    async fn handle(
        &mut self,
        happened: PollEvent,
        commands: &mut mpsc::Receiver<Box<Command>>,
    ) -> Result<(), StageError> {
        match happened {
            PollEvent::Chunk(chunk) => self.take(&chunk)?,
            PollEvent::Assigned(_) => {
                self.membership.assigned(self.consumer.group_metadata().ok());
                let all = self.consumer.assignment();
                self.announce(|tracking| tracking.assign(all));
            }
            PollEvent::Revoked(partitions) => {
                Box::pin(self.hand_back(partitions.clone(), commands)).await;
                self.skipped.lock().forget(&partitions);
                self.announce(|tracking| tracking.revoke(&partitions));
            }
            PollEvent::Lost(partitions) => {
                self.skipped.lock().forget(&partitions);
                self.first.retain(|at, _| !partitions.contains(at));
                self.announce(|tracking| tracking.revoke(&partitions));
                self.membership.lost(partitions);
            }
            PollEvent::Nothing => {}
        }
        Ok(())
    }

    /// Takes the records of a chunk.
    fn take(&mut self, chunk: &Chunk) -> Result<(), StageError> {
        self.is_troubled = false;
        let Reader { ready, sequence, buffer, wanted, .. } = self;
        if wanted.group.is_some() {
            self.first.entry(chunk.at.clone()).or_insert(chunk.start);
        }
        let generation = self.membership.generation();
        let before = ready.len();
        let (mut gather, mut runs) = (BatchBuilder::default(), Runs::default());
        let mut last = None;
        let walked = chunk.for_each(buffer, |record| {
            last = Some(record.offset.0);
            let time_ms = if record.timestamp < 0 { clock::time_ms() } else { record.timestamp };
            let headers = record.headers.filter(|_| wanted.with_headers);
            let headers: Vec<(Cow<'_, str>, Option<&[u8]>)> =
                headers.map(|header| (String::from_utf8_lossy(header.key), header.value)).collect();
            let headers = headers.iter().map(|(name, value)| Header { name, value: *value });
            gather.push(record.value, record.key, headers, time_ms, *sequence);
            runs.add(&chunk.at, record.offset.0, generation, *sequence);
            *sequence += 1;
            if gather.is_full() {
                let full = PolledBatch { batch: gather.take(), runs: std::mem::take(&mut runs) };
                ready.push_back(Ok(full));
            }
            ControlFlow::Continue(())
        });
        if !gather.is_empty() {
            ready.push_back(Ok(PolledBatch { batch: gather.take(), runs }));
        }
        walked.map_err(|error| kafka::failed("Reading", error))?;
        if self.wanted.group.is_some() {
            let mut skipped = self.skipped.lock();
            skipped.read(&chunk.at, chunk.start, last, chunk.next);
            if self.is_transacted && skipped.is_due() {
                self.membership.passed();
            }
        }
        self.ends.read(&chunk.at, chunk.next);
        self.track(chunk, before);
        Ok(())
    }

    /// Adds the partition to the batches of a chunk, the first of which is at a place of the queue.
    fn track(&mut self, chunk: &Chunk, first: usize) {
        let Some(tracking) = &mut self.tracking else { return };
        let earlier = tracking.read(&chunk.at, false);
        if self.wanted.until_end && !self.ends.has(&chunk.at) {
            tracking.remove(std::slice::from_ref(&chunk.at));
        }
        let last = tracking.read(&chunk.at, chunk.next >= chunk.last_stable_offset);
        if self.ready.len() == first {
            self.ready.push_back(Ok(PolledBatch::default()));
        }
        for polled in self.ready.iter_mut().skip(first).flatten() {
            polled.batch.provenance = Some(earlier.clone());
        }
        if let Some(Ok(polled)) = self.ready.back_mut() {
            polled.batch.provenance = Some(last);
        }
    }

    /// Commits behind markers of transactions and aborted records. The next commit covers one that fails.
    fn commit_skipped(&mut self) {
        self.skip_at = Instant::now() + COMMIT_SKIPPED_EVERY;
        let offsets = self.skipped.lock().take();
        if !offsets.is_empty() {
            drop(self.consumer.commit_async(offsets));
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Commit { mut runs, started } => {
                // Offsets of lost partitions are committed by their new owners.
                let is_whole = runs.split_off(|run| !self.membership.is_void(run)).is_empty();
                let mut offsets = runs.offsets();
                self.skipped.lock().commit(&mut offsets);
                let commit = match offsets.is_empty() {
                    true => None,
                    false => self.consumer.commit_async(offsets).ok(),
                };
                // The receiver was dropped if the stream has failed.
                let _ = started.send(PendingCommit { is_whole, commit });
            }
            Command::HandBack { done } => {
                self.membership.hand_back();
                let _ = done.send(());
            }
        }
    }

    /// Waits until the stream has handed partitions back, which stay assigned until the next poll.
    async fn hand_back(
        &mut self,
        partitions: Vec<TopicPartition>,
        commands: &mut mpsc::Receiver<Box<Command>>,
    ) {
        self.first.retain(|at, _| !partitions.contains(at));
        if partitions.is_empty() {
            return;
        }
        let Some(until) = self.membership.lose(partitions) else { return };
        while self.membership.losing().is_some() {
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(command) => self.obey(*command),
                    None => self.membership.hand_back(),
                },
                () = self.membership.wanted() => {
                    if self.membership.is_over() {
                        self.membership.hand_back();
                    }
                }
                () = sleep_until(until) => {
                    tracing::warn!(
                        "Lost partitions with messages in flight, which may be redelivered"
                    );
                    self.membership.hand_back();
                }
            }
        }
    }

    /// The reason of an error, with the command that grants a missing right to the topics or the group.
    fn with_grant(&self, error: &ConsumerError) -> String {
        let reason = error.to_string();
        let right = match &self.wanted.group {
            Some(group) if reason.contains(ErrorCode::GroupAuthorizationFailed.name()) => {
                format!("--group {group} --allow read")
            }
            _ => {
                let topics: Vec<String> =
                    self.wanted.topics.iter().map(|topic| format!("--topic {topic}")).collect();
                // The error names a topic that a pattern has found.
                let topics = if topics.is_empty() { vec!["--topic NAME".to_owned()] } else { topics };
                format!("{} --allow read", topics.join(" "))
            }
        };
        kafka::with_grant(reason, self.consumer.cluster(), &right)
    }

    /// Continues after a transient error, logged once.
    async fn wait_out(&mut self, error: ConsumerError) -> Result<(), StageError> {
        if !error.is_retriable() {
            return Err(kafka::failed("Reading", self.with_grant(&error)));
        }
        if !std::mem::replace(&mut self.is_troubled, true) {
            tracing::warn!(%error, "Failed to reach the cluster, retrying");
        }
        if self.tracking.as_ref().is_some_and(Tracking::has_known) {
            self.announce(Tracking::doubt);
        }
        sleep(ASKED_AGAIN).await;
        Ok(())
    }

    /// Rewinds to the committed offsets, or to the start of reading in partitions without one. Returns false
    /// if the group does not answer: it may be rebalancing, so a poll must precede the next attempt.
    async fn rewind(&mut self) -> bool {
        self.ready.clear();
        let read: Vec<TopicPartition> =
            self.consumer.assignment().filter(|at| self.first.contains_key(at)).collect();
        if !read.is_empty() {
            let committed = match timeout(COMMITTED_TIMEOUT, self.consumer.committed(&read)).await {
                Ok(Ok(committed)) => committed,
                Ok(Err(error)) => {
                    if let Err(error) = self.wait_out(error).await {
                        self.fail(error);
                    }
                    return false;
                }
                Err(_) => return false,
            };
            for at in read {
                let offset = committed.get(&at).map_or(self.first[&at], |committed| committed.offset);
                self.consumer.seek_to(&at, StartAt::Offset(offset));
            }
        }
        self.skipped.lock().forget_all();
        self.membership.has_rewound();
        true
    }
}

/// The next event; includes records only if there is room.
async fn poll(consumer: &mut Consumer, room: bool, wait: Duration) -> Result<PollEvent, ConsumerError> {
    match room {
        true => consumer.poll(wait).await,
        false => consumer.poll_rebalance(wait).await,
    }
}

/// Passes on the first item when there is room. The membership shows a closed stream.
async fn hand_over(
    batches: Option<&mpsc::Sender<Box<Result<PolledBatch, StageError>>>>,
    ready: &mut VecDeque<Result<PolledBatch, StageError>>,
) {
    match batches {
        Some(batches) => {
            let Ok(permit) = batches.reserve().await else { return ready.clear() };
            if let Some(first) = ready.pop_front() {
                permit.send(Box::new(first));
            }
        }
        None => ready.clear(),
    }
}
