//! Moving partitions between the log directories of this broker (KIP-113, Kafka's `ReplicaAlterLogDirsManager`).
//!
//! Each partition that moves has a task, which copies until its copy replaces the log, and then reports to the
//! controller (KIP-858). At most `num.replica.alter.log.dirs.threads` of them run at a time, and all pause while they
//! exceed `replica.alter.log.dirs.io.max.bytes.per.second`.
//!
//! Owns: the schedule of copying, and the directories for partitions that are created later. Refuses: the copying
//! itself; see [`crate::partition`].
//!
//! Departure: Kafka reports to the controller before the switch, and a start after a crash in between uses the copy,
//! which may lack later records. Here the controller is notified afterwards, and a start uses the log.

use super::Replication;
use super::answer::backoff;
use crate::isr_changes::PartitionKey;
use crate::partition::{MoveError, Partition, Progress};
use crate::throttle::Throttle;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use thalweg_hash::HashMap;
use thalweg_log::Uuid;
use thalweg_metadata::{Image, PartitionIndex};
use thalweg_wire::Uuid as TopicId;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Bytes per copy step.
const COPY_BYTES: usize = 1024 * 1024;
/// How long a task rests that has copied more than it may.
const HELD_BACK: Duration = Duration::from_millis(100);
/// The longest rest after a failure.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The moves of a broker.
#[derive(Debug)]
pub struct Moves {
    /// `num.replica.alter.log.dirs.threads`.
    threads: usize,
    /// How fast may be copied, over all directories.
    pub throttle: Throttle,
    /// Partitions whose moves have begun and have no task yet: each at most once.
    begun: Mutex<Vec<Arc<Partition>>>,
    news: Notify,
    /// Directories for partitions that are created later.
    preferred: Mutex<HashMap<PartitionKey, Uuid>>,
}

impl Moves {
    /// No moves yet; with this maximum number of threads, and this throttle.
    pub fn new(threads: usize, throttle: Throttle) -> Self {
        let (begun, news, preferred) = (Mutex::default(), Notify::new(), Mutex::default());
        Self { threads, throttle, begun, news, preferred }
    }

    /// Starts a task for a partition with a copy.
    pub fn begin(&self, partition: Arc<Partition>) {
        self.begun.lock().push(partition);
        self.news.notify_one();
    }

    /// Sets the directory for a partition that is created later. Entries of deleted topics are removed.
    pub fn prefer(&self, topic: TopicId, partition: PartitionIndex, directory: Uuid, image: &Image) {
        let mut preferred = self.preferred.lock();
        preferred.retain(|(topic, partition), _| image.partition_by_id(*topic, *partition).is_some());
        preferred.insert((topic, partition), directory);
    }

    /// The requested directory for a partition to be created, if any.
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

/// Moves partitions for as long as the broker lives.
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

async fn move_one(replication: Arc<Replication>, partition: Arc<Partition>, slots: Arc<Semaphore>) {
    let mut failures = 0;
    let began = Instant::now();
    loop {
        if replication.moves.throttle.is_exceeded(Instant::now()) {
            tokio::time::sleep(HELD_BACK).await;
            continue;
        }
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        let (worker, moved) = (Arc::clone(&replication), Arc::clone(&partition));
        let work = replication.log_dirs.disk().spawn(move || {
            let outcome = go_on(&worker, &moved);
            drop(slot);
            outcome
        });
        match work.await.expect("copying a log does not panic") {
            Ok(Progress::Copied(bytes)) => {
                failures = 0;
                replication.moves.throttle.record(bytes, Instant::now());
            }
            Ok(Progress::Moved) => {
                let (path, ms) = (partition.dir(), began.elapsed().as_millis());
                tracing::info!(?partition, path = %path.display(), ms, "Moved a partition to another log directory");
                tell(&replication, &partition);
                return;
            }
            Ok(Progress::Over) => return,
            // All is copied, and the log has failed, or is about to be deleted.
            Ok(Progress::CaughtUp) => tokio::time::sleep(RETRY_MAX).await,
            Err(error) if error.is_for_lack_of_room() => {
                if failures == 0 {
                    tracing::warn!(?partition, %error, "Move to another log directory waits for disk space");
                }
                failures += 1;
                tokio::time::sleep(backoff(failures, RETRY_MAX)).await;
            }
            Err(error) => {
                tracing::error!(?partition, %error, "Failed to move a partition to another log directory");
                let (worker, given_up) = (Arc::clone(&replication), Arc::clone(&partition));
                let work = replication.log_dirs.disk().spawn(move || given_up.cancel_move(&worker.log_dirs));
                work.await.expect("giving up a move does not panic");
            }
        }
    }
}

/// Copies once, and changes the places when nothing is missing.
fn go_on(replication: &Replication, partition: &Partition) -> Result<Progress, MoveError> {
    let limit = replication.moves.throttle.limit().and_then(|limit| usize::try_from(limit).ok());
    let bytes_max = limit.map_or(COPY_BYTES, |limit| limit.clamp(1, COPY_BYTES));
    match partition.copy_next(&replication.log_dirs, bytes_max)? {
        Progress::CaughtUp => partition.finish_move(&replication.log_dirs),
        progress => Ok(progress),
    }
}

/// Reports the partition's current directory to the controller.
fn tell(replication: &Replication, partition: &Partition) {
    let tracked = replication
        .image
        .get()
        .features()
        .metadata_version()
        .is_some_and(|version| version.has_directories());
    if let Some(directory) = partition.with_log(|log| log.directory_id()).filter(|_| tracked) {
        replication.directories.report(partition.topic_id, partition.index, directory);
    }
}
