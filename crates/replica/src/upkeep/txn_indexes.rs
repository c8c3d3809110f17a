//! Rebuilds transaction indexes that a compaction by Apache Kafka or an earlier version may have left without entries,
//! in the background: one log at a time, a segment at a time, within `log.cleaner.io.max.bytes.per.second`. Logs that a
//! reader of committed records waits for come first. It runs without the cleaner, too.

use super::Upkeep;
use super::compaction::{IoThrottle, wait_for_turn};
use crate::partition::Partition;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use thalweg_log::{LogError, TxnIndexRebuild};
use tokio::time::{Instant, sleep};

/// Interval of the search for such logs: those found at the start, and copies that were and take the place of one later.
const SURVEY: Duration = Duration::from_secs(15);
/// Pause after a failure, or of a log that is busy.
const RETRY: Duration = Duration::from_secs(1);
/// Logs that are rebuilt before another search, which may find that a reader waits for another.
const LOGS_PER_SURVEY: usize = 16;

/// Rebuilds continuously, as long as it is polled.
pub async fn run(upkeep: Arc<Upkeep>) {
    let throttle = IoThrottle::new(Instant::now());
    let mut known = 0;
    loop {
        let found = survey(&upkeep).await;
        if found.len() > known {
            tracing::warn!(
                partitions = found.len(),
                "Rebuilding transaction indexes of compacted logs; consumers with read_committed wait for them"
            );
        } else if found.is_empty() && known > 0 {
            tracing::info!("Rebuilt the transaction indexes of all compacted logs");
        }
        known = found.len();
        if found.is_empty() {
            sleep(SURVEY).await;
            continue;
        }
        let mut rebuilt = 0;
        for partition in found.into_iter().take(LOGS_PER_SURVEY) {
            match rebuild(&upkeep, &throttle, &partition).await {
                Ok(is_done) => rebuilt += usize::from(is_done),
                Err(error) => {
                    tracing::error!(?partition, %error, "Failed to rebuild transaction indexes, retrying")
                }
            }
        }
        if rebuilt == 0 {
            sleep(RETRY).await;
        }
    }
}

/// The partitions whose transaction indexes are to be rebuilt, those first that a reader waits for.
async fn survey(upkeep: &Arc<Upkeep>) -> VecDeque<Arc<Partition>> {
    let surveyed = Arc::clone(upkeep);
    let found = upkeep.log_dirs.disk().spawn(move || {
        let mut found = VecDeque::new();
        for partition in surveyed.partitions.all() {
            match partition.with_log(|log| log.unverified_txn_indexes()) {
                Some(unverified) if unverified.is_awaited => found.push_front(partition),
                Some(_) => found.push_back(partition),
                None => {}
            }
        }
        found
    });
    found.await.expect("a survey does not panic")
}

/// Rebuilds the indexes of one log. Returns whether they are complete now.
async fn rebuild(
    upkeep: &Upkeep,
    throttle: &IoThrottle,
    partition: &Arc<Partition>,
) -> Result<bool, LogError> {
    const NO_PANIC: &str = "a rebuild does not panic";
    let (disk, now_ms) = (upkeep.log_dirs.disk(), upkeep.clock.now_ms());
    let Some(mut rebuild) = partition.with_log(|log| log.plan_txn_index_rebuild(now_ms)) else {
        return Ok(false);
    };
    loop {
        let step = move || {
            let read = rebuild.step();
            (rebuild, read)
        };
        let (back, read): (TxnIndexRebuild, _) = disk.spawn(step).await.expect(NO_PANIC);
        rebuild = back;
        let Some(bytes) = read? else { break };
        throttle.record(bytes);
        wait_for_turn(upkeep, throttle).await;
    }
    let finished = Arc::clone(partition);
    let finish = move || finished.with_log(|log| log.finish_txn_index_rebuild(rebuild));
    disk.spawn(finish).await.expect(NO_PANIC)
}
