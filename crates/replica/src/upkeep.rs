//! Periodic work: retention, flushing by time, checkpoints, expiry of producers, compaction.
//!
//! Each task has its own period, by Kafka's settings, and works partition by partition under the partition's
//! lock, apart from the tasks that serve connections.

mod cleaner;
mod compaction;

use crate::partition::{Partition, Partitions};
pub use cleaner::{Cleaner, CleanerFigures, UncleanableLog};
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::{BrokerConfig, CleanerSettings, LogSettings};
use thalweg_log::{Clock, LogDirs};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Interval of the check for due flushes, unless `log.flush.scheduler.interval.ms` is set. Rounds up a
/// smaller `flush.ms`.
const FLUSH_CHECK: Duration = Duration::from_secs(1);
/// Interval at which deleted files are removed once their delay is over.
const PURGE: Duration = Duration::from_secs(1);
/// Interval at which idle partitions release resources.
const RELEASE_IDLE: Duration = Duration::from_secs(60);
/// Interval of checks of closed segments that were found at the start.
const CHECK_SEGMENTS: Duration = Duration::from_secs(60);
/// Maximum number of segments checked at a time. Each check costs a few small reads, some tens of
/// milliseconds at most on any disk.
const SEGMENTS_AT_A_TIME: usize = 1_000;
/// Delay from the creation or removal of partitions to the checkpoint that lists them: one checkpoint for a
/// burst of changes.
const NOTE_PARTITIONS: Duration = Duration::from_millis(100);
/// Interval at which files longer than their batches are trimmed where appends have stopped.
const TRIM: Duration = Duration::from_millis(250);

/// The upkeep of all partitions of a broker.
#[derive(Debug)]
pub struct Upkeep {
    partitions: Arc<Partitions>,
    log_dirs: Arc<LogDirs>,
    clock: Clock,
    settings: RwLock<Arc<UpkeepSettings>>,
    /// Findings and results of the cleaner.
    pub cleaner: Cleaner,
}

/// Periods of the tasks, and amounts per run.
#[derive(Debug, Clone)]
pub struct UpkeepSettings {
    log: LogSettings,
    cleaner: CleanerSettings,
    high_watermark_checkpoint_interval: Duration,
}

impl UpkeepSettings {
    /// The settings of a broker's configuration that concern upkeep.
    pub fn of(config: &BrokerConfig) -> UpkeepSettings {
        UpkeepSettings {
            log: config.log.clone(),
            cleaner: config.cleaner.clone(),
            high_watermark_checkpoint_interval: config.replication.high_watermark_checkpoint_interval,
        }
    }
}

impl Upkeep {
    /// The upkeep of these partitions, not yet started.
    pub fn new(
        partitions: Arc<Partitions>,
        log_dirs: Arc<LogDirs>,
        clock: Clock,
        settings: UpkeepSettings,
    ) -> Upkeep {
        let settings = RwLock::new(Arc::new(settings));
        Upkeep { partitions, log_dirs, clock, settings, cleaner: Cleaner::default() }
    }

    /// Applies new settings.
    pub fn configure(&self, settings: UpkeepSettings) {
        *self.settings.write() = Arc::new(settings);
    }

    fn settings(&self) -> Arc<UpkeepSettings> {
        Arc::clone(&self.settings.read())
    }

    /// Starts the periodic work; it ends when the set is dropped.
    pub fn start(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let settings = self.settings();
        let log = &settings.log;
        every(tasks, self, log.retention_check_interval, delete_old_segments);
        every(tasks, self, CHECK_SEGMENTS, check_segments);
        every(tasks, self, PURGE, purge);
        every(tasks, self, RELEASE_IDLE, release_idle);
        every(tasks, self, TRIM, |b| b.partitions.trim_files());
        every(tasks, self, log.producer_id_expiration_check_interval, expire_producers);
        every(tasks, self, settings.high_watermark_checkpoint_interval, |b| {
            b.log_dirs.checkpoint_high_watermarks()
        });
        every(tasks, self, log.recovery_point_checkpoint_interval, |b| {
            b.log_dirs.checkpoint_recovery_points()
        });
        every(tasks, self, log.start_offset_checkpoint_interval, |b| {
            b.log_dirs.checkpoint_log_starts();
        });
        let flushed = Arc::clone(self);
        let flush_check = log.flush_check_interval.unwrap_or(FLUSH_CHECK).max(Duration::from_millis(1));
        tasks.spawn(async move {
            let mut ticks = interval(flush_check);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                for partition in flushed.partitions.with_file_work() {
                    Partition::flush_if_due(&partition, flushed.clock.now_ms()).await;
                }
            }
        });
        tasks.spawn(note_partitions(Arc::clone(self)));
        tasks.spawn(compaction::run(Arc::clone(self)));
    }
}

/// Writes the list of partitions soon after it changes, without waiting for the next regular checkpoint of
/// high watermarks. A log missing at the next start is then noticed even if it was created just before the
/// broker was killed.
async fn note_partitions(upkeep: Arc<Upkeep>) {
    loop {
        upkeep.log_dirs.changed().await;
        sleep(NOTE_PARTITIONS).await;
        let noted = Arc::clone(&upkeep);
        let disk = upkeep.log_dirs.disk().clone();
        if disk.spawn(move || noted.log_dirs.checkpoint_high_watermarks()).await.is_err() {
            tracing::error!("Writing a checkpoint panicked, the next regular one follows");
        }
    }
}

/// Runs blocking work periodically, beginning after one period.
fn every(tasks: &mut JoinSet<()>, upkeep: &Arc<Upkeep>, period: Duration, work: fn(&Upkeep)) {
    let upkeep = Arc::clone(upkeep);
    tasks.spawn(async move {
        let mut ticks = interval(period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let upkeep = Arc::clone(&upkeep);
            let disk = upkeep.log_dirs.disk().clone();
            if disk.spawn(move || work(&upkeep)).await.is_err() {
                tracing::error!("Periodic task panicked, retrying later");
            }
        }
    });
}

fn delete_old_segments(upkeep: &Upkeep) {
    let now_ms = upkeep.clock.now_ms();
    for partition in upkeep.partitions.all() {
        delete_old_segments_of(&partition, now_ms);
    }
}

/// Applies retention to one partition. Skips a log that is being compacted, so call this after the
/// compaction.
fn delete_old_segments_of(partition: &Partition, now_ms: i64) {
    match partition.with_log(|log| log.delete_old_segments(now_ms)) {
        Ok(0) => {}
        Ok(segments) => tracing::info!(?partition, segments, "Deleted old segments"),
        Err(error) => tracing::error!(?partition, %error, "Failed to delete old segments"),
    }
}

/// Finds closed segments that another program has removed or overwritten, even without readers.
fn check_segments(upkeep: &Upkeep) {
    let mut left = SEGMENTS_AT_A_TIME;
    for partition in upkeep.partitions.all() {
        left -= check_segments_of(&partition, left);
        if left == 0 {
            break;
        }
    }
}

/// Checks at most this many segments of one partition, taking its lock for each. Returns the number checked.
pub(crate) fn check_segments_of(partition: &Partition, max: usize) -> usize {
    for checked in 0..max {
        match partition.check_next_segment() {
            Ok(true) => {}
            Ok(false) => return checked,
            Err(error) => {
                tracing::warn!(?partition, %error, "Failed to check a closed segment, retrying later");
                return checked;
            }
        }
    }
    max
}

fn purge(upkeep: &Upkeep) {
    let elapsed_ms = upkeep.clock.elapsed_ms();
    for partition in upkeep.partitions.with_file_work() {
        purge_of(&partition, elapsed_ms);
    }
    upkeep.log_dirs.purge_deleted(elapsed_ms);
}

/// Removes the files of one partition whose delay is over, without the partition's lock.
fn purge_of(partition: &Partition, elapsed_ms: i64) {
    if let Some(failed) = partition.with_log(|log| log.take_expired(elapsed_ms)).remove() {
        partition.with_log(|log| log.remove_later(failed));
    }
}

fn release_idle(upkeep: &Upkeep) {
    for partition in upkeep.partitions.all() {
        partition.release_if_idle();
    }
}

fn expire_producers(upkeep: &Upkeep) {
    let expiration = upkeep.settings().log.producer_id_expiration;
    let expiration_ms = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
    let now_ms = upkeep.clock.now_ms();
    for partition in upkeep.partitions.all() {
        partition.with_log(|log| log.remove_expired_producers(now_ms, expiration_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::{self, HangingDisk};
    use std::sync::Arc;
    use thalweg_log::disk::Disk;
    use thalweg_log::{Clock, Home, LogConfig, OpenOptions, PartitionLog, TopicPartition};
    use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch};

    /// The checkpoint is that of another log, apart from the end. A build with assertions panics if a lock is
    /// held.
    #[test]
    fn segments_are_scanned_for_epochs_without_the_lock() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let home = || Home::new(Disk::real(), dir.path().join("t-0"));
        let (name, clock) = (TopicPartition::new("t", 0), Clock::manual(1_700_000_000_000));
        let config = Arc::new(LogConfig { segment_bytes: 500, ..LogConfig::default() });
        let created = PartitionLog::create(home(), name.clone(), None, Arc::clone(&config), clock.clone());
        let mut log = created.expect("creates");
        for epoch in [4, 4, 4, 5, 5, 5, 6, 6, 6, 9, 9, 9, 9] {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(1, Some(b"key"), Some(&[b'v'; 100]), &[]).expect("fits");
            log.append_as_leader(&builder.build(), LeaderEpoch(epoch), Default::default()).expect("accepted");
        }
        log.close().expect("closes");
        let (epochs, end) = (log.leader_epochs().to_vec(), log.log_end_offset());
        assert!(log.segment_count() > 4);
        let file = dir.path().join("t-0").join("leader-epoch-checkpoint");
        std::fs::write(&file, "0\n2\n8 0\n9 9\n").expect("writes");
        let options = OpenOptions { recovery_point: end, ..OpenOptions::new(true) };
        let log = PartitionLog::open(home(), name, config, clock, &options).expect("opens");
        assert_ne!(log.leader_epochs(), epochs);
        let partition = testing::partition(log, 9);
        assert!(check_segments_of(&partition, 100) < 100);
        partition.with_log(|log| assert_eq!(log.leader_epochs()[..epochs.len()], epochs));
    }

    #[test]
    fn appends_go_on_while_deleted_segments_are_removed() {
        let hanging = HangingDisk::new();
        hanging.append(20);
        let partition = Arc::clone(&hanging.partition);
        partition.with_log(|log| log.delete_records(log.high_watermark())).expect("deletes");
        hanging.while_it_hangs(
            ".log.deleted",
            move || purge_of(&partition, i64::MAX),
            |hanging| hanging.append(1),
        );
    }
}
