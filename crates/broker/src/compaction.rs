//! Compaction in the background (Kafka's `LogCleaner`): plans under the partition's lock, works without it, and puts the
//! result in place under the lock again. At most `log.cleaner.threads` logs are compacted at once, and what they need
//! for the offsets of keys together stays within `log.cleaner.dedupe.buffer.size`.

use crate::broker::Broker;
use crate::config::CleanerSettings;
use crate::partition::Partition;
use std::sync::Arc;
use thalweg_hash::HashSet;
use thalweg_log::{CompactionError, CompactionJob, LogError};
use thalweg_wire::Uuid;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Compacts what needs it, again and again, for as long as it is polled.
pub async fn run(broker: Arc<Broker>) {
    let settings = broker.config().log.cleaner.clone();
    if !settings.enable {
        return;
    }
    let mut uncleanable = Uncleanable::default();
    loop {
        tokio::time::sleep(settings.backoff).await;
        round(&broker, &settings, &mut uncleanable).await;
    }
}

/// Partitions with damage that compaction has met (Kafka's uncleanable partitions): they are left alone, after one
/// line that says so, until the broker starts again.
type Uncleanable = HashSet<(Uuid, i32)>;

async fn round(broker: &Broker, settings: &CleanerSettings, uncleanable: &mut Uncleanable) {
    let turns = Arc::new(Semaphore::new(settings.threads.max(1)));
    let mut jobs = JoinSet::new();
    for partition in broker.partitions.all() {
        let id = (partition.topic_id, partition.index);
        if uncleanable.contains(&id) {
            continue;
        }
        let now_ms = broker.clock.now_ms();
        if partition.is_moving() {
            continue;
        }
        let mut job = match partition.with_log(|log| log.plan_compaction(now_ms)) {
            Ok(Some(job)) => job,
            Ok(None) => continue,
            Err(error) => {
                if matches!(error, LogError::Corrupt { .. }) {
                    uncleanable.insert(id);
                }
                tracing::error!(?partition, %error, "A compaction could not be planned");
                continue;
            }
        };
        job.dedupe_buffer_bytes = settings.dedupe_buffer_bytes / settings.threads.max(1);
        let turn = Arc::clone(&turns).acquire_owned().await.expect("the semaphore is never closed");
        let compacting = broker.log_dirs.disk().spawn(move || {
            let cleanable = compact(&partition, &job);
            drop(turn);
            (!cleanable).then_some(id)
        });
        jobs.spawn(compacting);
    }
    while let Some(done) = jobs.join_next().await {
        uncleanable.extend(done.and_then(|done| done).ok().flatten());
    }
}

/// Compacts one log; whether it is worth another try.
fn compact(partition: &Partition, job: &CompactionJob) -> bool {
    let outcome = match job.run() {
        Ok(outcome) => outcome,
        Err(error @ CompactionError::Corrupt { .. }) => {
            tracing::error!(?partition, %error, "A log is damaged, and is not compacted until the next start");
            job.discard();
            return false;
        }
        Err(error) => {
            tracing::error!(?partition, %error, "A compaction failed, and the log stays as it is");
            job.discard();
            return true;
        }
    };
    let finished = partition.with_log(|log| {
        // A copy that has begun meanwhile would miss the tombstones that went.
        if partition.is_moving() {
            job.discard();
            return Ok(None);
        }
        log.finish_compaction(job, outcome)
    });
    match finished {
        Ok(Some(stats)) => {
            let (before, after) = (stats.bytes_before, stats.bytes_after);
            tracing::info!(?partition, bytes_before = before, bytes_after = after, "Compacted a log");
        }
        Ok(None) => {}
        Err(error) => {
            tracing::error!(?partition, %error, "The result of a compaction could not be put in place")
        }
    }
    true
}
