//! Moving partitions between the log directories of this broker (KIP-113, Kafka's
//! `ReplicaAlterLogDirsManager`).
//!
//! Each moving partition has a task. The task copies until nothing is missing, reports the new directory to
//! the controller (KIP-858), and lets the copy replace the log once the image shows that directory: the
//! controller never counts on a directory that has lost the log. At most `num.replica.alter.log.dirs.threads`
//! tasks copy at a time, and all pause while their rate exceeds
//! `replica.alter.log.dirs.io.max.bytes.per.second`. An abandoned move withdraws its report.
//!
//! Owns: the schedule of copying, the controller's consent, and the directories for partitions that are
//! created later. Refuses: the copying itself; see [`crate::partition`].
//!
//! Departure: in Kafka, a start after a crash between the consent and the switch uses the copy, which may
//! lack later records. Thalweg uses the log, as long as its directory exists.

use super::Replication;
use super::answer::backoff;
use crate::partition::{MoveError, Partition, Progress};
use crate::throttle::ReplicationThrottle;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_log::{CreateError, PartitionLog, Uuid};
use thalweg_metadata::{Image, PartitionIndex, TopicIdPartition};
use thalweg_wire::Uuid as TopicId;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Bytes per copy step.
const COPY_BYTES: usize = 1024 * 1024;
/// Pause of a task while the throttle is exceeded.
const HELD_BACK: Duration = Duration::from_millis(100);
/// Maximum pause after a failure.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Interval of checks for the controller's consent.
const CONSENT_CHECK: Duration = Duration::from_millis(20);
/// Maximum wait for consent before newly appended records are copied.
const CONSENT_WAIT: Duration = Duration::from_secs(1);
/// Time after which a report is repeated: an abandoned move may have withdrawn it.
const REPORT_AGAIN: Duration = Duration::from_secs(10);

/// Schedules the moves of partitions to other log directories of this broker.
#[derive(Debug)]
pub struct Moves {
    /// `num.replica.alter.log.dirs.threads`.
    threads: usize,
    /// The throttle of copying, over all directories.
    pub throttle: ReplicationThrottle,
    /// Partitions whose moves have begun and have no task yet, each at most once.
    begun: Mutex<Vec<Arc<Partition>>>,
    news: Notify,
    /// Directories for partitions that are created later.
    preferred: Mutex<HashMap<TopicIdPartition, Uuid>>,
}

impl Moves {
    /// An empty set of moves, with this maximum number of threads and this throttle.
    pub fn new(threads: usize, throttle: ReplicationThrottle) -> Self {
        let (begun, news, preferred) = (Mutex::default(), Notify::new(), Mutex::default());
        Self { threads, throttle, begun, news, preferred }
    }

    /// Starts a task for a partition with a copy.
    fn begin(&self, partition: Arc<Partition>) {
        self.begun.lock().push(partition);
        self.news.notify_one();
    }

    /// Sets the directory for a partition that is created later. Removes entries of deleted topics.
    pub fn prefer(&self, topic: TopicId, partition: PartitionIndex, directory: Uuid, image: &Image) {
        let mut preferred = self.preferred.lock();
        preferred.retain(|(topic, partition), _| image.partition_by_id(*topic, *partition).is_some());
        preferred.insert((topic, partition), directory);
    }

    /// Takes the requested directory for a partition to be created, if any.
    pub fn take_preferred(&self, topic: TopicId, partition: PartitionIndex) -> Option<Uuid> {
        self.preferred.lock().remove(&(topic, partition))
    }

    async fn next(&self) -> Vec<Arc<Partition>> {
        loop {
            let begun = std::mem::take(&mut *self.begun.lock());
            if !begun.is_empty() {
                return begun;
            }
            self.news.notified().await;
        }
    }
}

/// Moves partitions as long as the broker runs.
pub async fn run(replication: Arc<Replication>) {
    let slots = Arc::new(Semaphore::new(replication.moves.threads));
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            begun = replication.moves.next() => {
                for partition in begun {
                    tasks.spawn(move_one(Arc::clone(&replication), partition, Arc::clone(&slots)));
                }
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

impl Replication {
    /// Starts a move of a partition to a directory of this broker, or abandons one if the partition is
    /// already there. Blocks.
    pub fn begin_move(&self, partition: &Arc<Partition>, directory: Uuid) -> Result<(), CreateError> {
        let before = partition.moves_to();
        let begun = partition.begin_move(&self.log_dirs, directory);
        if before.is_some_and(|before| before != directory) {
            self.take_back(partition, before);
        }
        if begun? {
            self.moves.begin(Arc::clone(partition));
        }
        Ok(())
    }

    /// Resumes a move of an earlier process. Blocks.
    pub fn resume_move(&self, partition: &Arc<Partition>, copy: PartitionLog) -> Result<(), MoveError> {
        if partition.resume_move(copy)? {
            self.moves.begin(Arc::clone(partition));
        }
        Ok(())
    }

    /// Withdraws the report of an abandoned move, whether or not it has arrived.
    fn take_back(&self, partition: &Partition, to: Option<Uuid>) {
        self.report_directory(partition, to);
    }

    fn has_consent(&self, partition: &Partition, to: Uuid) -> bool {
        !self.tracks_directories() || self.known_directory(partition) == Some(to)
    }
}

/// The move of a partition.
struct Move {
    replication: Arc<Replication>,
    partition: Arc<Partition>,
    began: Instant,
    failures: u32,
    /// True if the wait for damaged records was logged.
    damage_logged: bool,
    /// The last reported directory, and the time of the report.
    reported: Option<(Uuid, Instant)>,
}

async fn move_one(replication: Arc<Replication>, partition: Arc<Partition>, slots: Arc<Semaphore>) {
    let began = Instant::now();
    let mut this = Move { replication, partition, began, failures: 0, damage_logged: false, reported: None };
    loop {
        if this.replication.moves.throttle.is_exceeded(Instant::now()) {
            tokio::time::sleep(HELD_BACK).await;
            continue;
        }
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        let (worker, moved) = (Arc::clone(&this.replication), Arc::clone(&this.partition));
        let work = this.replication.log_dirs.disk().spawn(move || {
            let outcome = go_on(&worker, &moved);
            drop(slot);
            outcome
        });
        match work.await.expect("copying a log does not panic") {
            Ok(progress) => {
                if this.after(progress).await {
                    return;
                }
            }
            Err(error) => this.failed(error).await,
        }
    }
}

impl Move {
    /// Handles a copy step's outcome. Returns true if the move is over.
    async fn after(&mut self, progress: Progress) -> bool {
        let Move { replication, partition, .. } = self;
        match progress {
            Progress::Copied(bytes) => {
                self.failures = 0;
                replication.moves.throttle.record(bytes, Instant::now());
            }
            Progress::CaughtUp => self.wait_for_consent().await,
            Progress::LogFailed => {
                let known = replication.known_directory(partition);
                replication.report_directory(partition, known);
                tokio::time::sleep(RETRY_MAX).await;
            }
            Progress::LogDamaged => {
                if !self.damage_logged {
                    tracing::warn!(
                        ?partition,
                        "Move to another log directory waits until damaged records were fetched again"
                    );
                }
                self.damage_logged = true;
                tokio::time::sleep(RETRY_MAX).await;
            }
            Progress::Moved => {
                let (path, ms) = (partition.dir(), self.began.elapsed().as_millis());
                tracing::info!(?partition, path = %path.display(), ms, "Moved a partition to another log directory");
                let known = replication.known_directory(partition);
                replication.report_directory(partition, known);
                return true;
            }
            Progress::Over => return true,
        }
        false
    }

    /// Reports the new directory to the controller, and waits briefly. Records appended meanwhile are copied
    /// by the next step.
    async fn wait_for_consent(&mut self) {
        let Some(to) = self.partition.moves_to() else { return };
        let now = Instant::now();
        if self.reported.is_none_or(|(reported, at)| reported != to || now >= at + REPORT_AGAIN) {
            if self.reported.is_none_or(|(reported, _)| reported != to) {
                tracing::info!(partition = ?self.partition, directory = %to, "Copied a partition to another log directory, waiting for the controller");
            }
            self.reported = Some((to, now));
            self.replication.directories.report(self.partition.topic_id, self.partition.index, to);
        }
        while !self.replication.has_consent(&self.partition, to)
            && self.partition.moves_to() == Some(to)
            && now.elapsed() < CONSENT_WAIT
        {
            tokio::time::sleep(CONSENT_CHECK).await;
        }
    }

    async fn failed(&mut self, error: MoveError) {
        let Move { replication, partition, .. } = self;
        if error.is_for_lack_of_room() {
            if self.failures == 0 {
                tracing::warn!(?partition, %error, "Move to another log directory waits for disk space");
            }
            self.failures += 1;
            tokio::time::sleep(backoff(self.failures, RETRY_MAX)).await;
            return;
        }
        tracing::error!(?partition, %error, "Failed to move a partition to another log directory");
        let (worker, given_up) = (Arc::clone(replication), Arc::clone(partition));
        let work = replication.log_dirs.disk().spawn(move || {
            let to = given_up.moves_to();
            given_up.cancel_move(&worker.log_dirs);
            worker.take_back(&given_up, to);
        });
        work.await.expect("giving up a move does not panic");
    }
}

/// Copies once, and switches to the copy if nothing is missing and the controller has consented.
fn go_on(replication: &Replication, partition: &Partition) -> Result<Progress, MoveError> {
    let limit = replication.moves.throttle.limit().and_then(|limit| usize::try_from(limit).ok());
    let bytes_max = limit.map_or(COPY_BYTES, |limit| limit.clamp(1, COPY_BYTES));
    match (partition.copy_next(&replication.log_dirs, bytes_max)?, partition.moves_to()) {
        (Progress::CaughtUp, Some(to)) if replication.has_consent(partition, to) => {
            partition.finish_move(&replication.log_dirs, to)
        }
        (progress, _) => Ok(progress),
    }
}
