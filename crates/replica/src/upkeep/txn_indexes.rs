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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{FetchFrom, Isolation, Partitions, Reader, testing};
    use crate::upkeep::UpkeepSettings;
    use thalweg_config::{BrokerConfig, ServerProperties};
    use thalweg_log::disk::Disk;
    use thalweg_log::{
        AppendOptions, AppendOrigin, Clock, Home, LogConfig, LogDirs, LogDirsOptions, OpenOptions,
        PartitionLog, TopicPartition,
    };
    use thalweg_record::{
        BatchBuilder, BatchOptions, ControlRecordType, LeaderEpoch, Offset, ProducerEpoch, ProducerId,
    };

    /// An aborted record in the first segment, and a plain one in the second. Another version has compacted the first.
    fn compacted_elsewhere(dir: &std::path::Path) -> PartitionLog {
        let (name, clock) = (TopicPartition::new("t", 0), Clock::manual(1_700_000_000_000));
        let home = || Home::new(Disk::real(), dir.join("t-0"));
        let config = Arc::new(LogConfig { segment_bytes: 200, ..LogConfig::default() });
        let log = PartitionLog::create(home(), name.clone(), None, Arc::clone(&config), clock.clone());
        let mut log = log.expect("creates");
        let of_producer = BatchOptions {
            producer_id: ProducerId(7),
            producer_epoch: ProducerEpoch(0),
            base_sequence: 0,
            transactional: true,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(of_producer);
        builder.append(1, None, Some(b"aborted"), &[]).expect("fits");
        log.append_as_leader(&builder.build(), LeaderEpoch(0), AppendOptions::default()).expect("accepted");
        let mut builder = BatchBuilder::new(BatchOptions { control: true, base_sequence: -1, ..of_producer });
        builder.append_control(1, ControlRecordType::Abort, &[0; 6]).expect("fits");
        let options = AppendOptions { origin: AppendOrigin::Coordinator, ..AppendOptions::default() };
        log.append_as_leader(&builder.build(), LeaderEpoch(0), options).expect("accepted");
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.append(1, None, Some(&[b'v'; 100]), &[]).expect("fits");
        log.append_as_leader(&builder.build(), LeaderEpoch(0), AppendOptions::default()).expect("accepted");
        assert_eq!(log.segment_offsets(), [Offset(0), Offset(2)]);
        log.close().expect("closes");
        Disk::real().remove(&dir.join("t-0/transaction-index-checkpoint")).expect("is removed");
        Disk::real().remove(&dir.join("t-0/00000000000000000000.txnindex")).expect("is removed");
        let options = OpenOptions { cleaned_to: Offset(2), ..OpenOptions::new(true) };
        let mut log = PartitionLog::open(home(), name, config, clock, &options).expect("opens");
        log.set_high_watermark(log.log_end_offset());
        log
    }

    fn fetch(partition: &Partition, isolation: Isolation) -> (Option<Offset>, bool, usize) {
        let from = FetchFrom {
            offset: Offset(0),
            max_bytes: 10_000,
            at_least_one: true,
            current_leader_epoch: None,
            last_fetched_epoch: None,
            reader: Reader::Client,
            isolation,
            from_any_replica: false,
            reader_start: Offset::NONE,
            first_pass: true,
        };
        let read = partition.fetch(&from).expect("is led here");
        (read.slice.map(|slice| slice.end_offset), read.behind, read.aborted.len())
    }

    #[tokio::test]
    async fn readers_of_committed_records_wait_for_indexes_of_another_version() {
        let dir = tempfile::tempdir().expect("a directory");
        let partition = Arc::new(testing::partition(compacted_elsewhere(dir.path()), 0));
        let waits = (None, false, 0);
        assert_eq!(fetch(&partition, Isolation::ReadCommitted), waits);
        assert_eq!(fetch(&partition, Isolation::ReadUncommitted), (Some(Offset(2)), true, 0));
        let options = LogDirsOptions::new(vec![dir.path().join("dirs")], 1);
        let (log_dirs, _) = LogDirs::open(options, |_| Arc::default()).expect("opens");
        let config = BrokerConfig::new(&ServerProperties::default()).expect("the defaults are valid");
        let (partitions, clock) = (Arc::new(Partitions::default()), Clock::system());
        let upkeep = Upkeep::new(partitions, Arc::new(log_dirs), clock, UpkeepSettings::of(&config));
        let throttle = IoThrottle::new(Instant::now());
        assert!(rebuild(&upkeep, &throttle, &partition).await.expect("rebuilds"));
        assert_eq!(fetch(&partition, Isolation::ReadCommitted), (Some(Offset(2)), true, 1));
    }
}
