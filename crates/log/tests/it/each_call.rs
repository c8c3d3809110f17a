//! Every call to the disk fails once, in a life of a log directory with retention, deletion of records,
//! compaction, truncation and a restart; then the process is killed. Acknowledged records that were neither
//! truncated nor deleted are there afterwards, unchanged and at their offsets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use thalweg_log::disk::{CallError, Disk, Faults, MemoryDisk};
use thalweg_log::{
    AppendOptions, CleanupPolicy, Clock, LogConfig, LogDirs, LogDirsOptions, PartitionLog, TopicPartition,
    Uuid,
};
use thalweg_record::{BatchHeader, LeaderEpoch, Offset, batches};

use crate::support::*;

/// The records of the largest batch.
const RECORDS_MAX: i64 = 3;

const POLICIES: [CleanupPolicy; 2] = [CleanupPolicy::DELETE, CleanupPolicy::COMPACT];

/// A log, and what must be in it.
struct ExpectedLog {
    log: PartitionLog,
    /// Acknowledged batches, by their base offsets, with their CRCs.
    acknowledged: BTreeMap<i64, u32>,
    appended: i64,
}

impl ExpectedLog {
    fn append(&mut self, records: usize) {
        let timestamp = NOW_MS + self.appended * 1000;
        let batch = Spec::new(records).value_bytes(60).timestamp(timestamp).build();
        if let Ok(info) = self.log.append_as_leader(&batch, LeaderEpoch(0), AppendOptions::default()) {
            self.appended += 1;
            let crc = BatchHeader::parse(&batch).expect("a batch").crc;
            let before = self.acknowledged.insert(info.first_offset.0, crc);
            assert_eq!(before, None, "an offset is given once");
        }
        self.log.set_high_watermark(self.log.log_end_offset());
    }

    /// Batches from this offset on need not be there any more.
    fn forget_from(&mut self, offset: Offset) {
        self.acknowledged.retain(|base, _| *base + RECORDS_MAX <= offset.0);
    }

    fn forget_below(&mut self, offset: Offset) {
        self.acknowledged.retain(|base, _| *base >= offset.0);
    }
}

struct World {
    disk: Arc<MemoryDisk>,
    faults: Arc<Faults>,
    clock: Clock,
}

impl World {
    fn config(&self, compact: bool) -> LogConfig {
        LogConfig {
            segment_bytes: 700,
            index_interval_bytes: 100,
            retention_ms: 12_000,
            cleanup_policy: POLICIES[usize::from(compact)],
            min_cleanable_dirty_ratio: 0.0,
            file_delete_delay_ms: 0,
            ..LogConfig::default()
        }
    }

    fn open(&self) -> Option<(LogDirs, Vec<PartitionLog>)> {
        let options = LogDirsOptions {
            disk: Disk::in_memory(Arc::clone(&self.disk)).and_faults(Arc::clone(&self.faults)),
            clock: self.clock.clone(),
            threads: 1,
            cluster_id: Some("c".to_owned()),
            ..LogDirsOptions::new(vec![Path::new("/data").to_path_buf()], 1)
        };
        let config_of = |name: &TopicPartition| Arc::new(self.config(&*name.topic == "compacted"));
        let (dirs, mut logs) = LogDirs::open(options, config_of).ok()?;
        for log in &mut logs {
            let _ = log.end_at_gap();
        }
        Some((dirs, logs))
    }

    /// Goes through a life up to its end, or to the moment when the directory goes offline.
    fn live(&self, dirs: &LogDirs, kept: &mut Vec<ExpectedLog>) {
        for (compact, topic) in [(false, "deleted"), (true, "compacted")] {
            let (name, config) = (TopicPartition::new(topic, 0), Arc::new(self.config(compact)));
            let Ok(log) = dirs.create(&name, Some(Uuid::random()), config, None) else { return };
            kept.push(ExpectedLog { log, acknowledged: BTreeMap::new(), appended: 0 });
        }
        for kept in kept.iter_mut() {
            (0..14).for_each(|_| kept.append(3));
        }
        let _ = kept[1].log.flush();
        dirs.checkpoint_recovery_points();
        dirs.checkpoint_high_watermarks();
        let [deleted, compacted] = &mut kept[..] else { unreachable!("both were created") };
        let _ = deleted.log.delete_records(Offset(13));
        deleted.forget_below(Offset(13));
        dirs.checkpoint_log_starts();
        let now_ms = NOW_MS + 13_000 + 8_500;
        let _ = deleted.log.delete_old_segments(now_ms);
        deleted.forget_below(Offset(30));
        compact_once(&mut compacted.log);
        deleted.log.purge_deleted(i64::MAX);
        let cut = deleted.log.log_end_offset() - 5;
        let _ = deleted.log.truncate_to(cut);
        deleted.forget_from(cut);
        for kept in kept.iter_mut() {
            (0..4).for_each(|_| kept.append(2));
            let _ = kept.log.release_idle_resources();
        }
        dirs.checkpoint_recovery_points();
        let compacted = &mut kept[1];
        compact_once(&mut compacted.log);
        compacted.log.purge_deleted(i64::MAX);
    }

    fn check(&self, kept: &[ExpectedLog], what: &str) {
        let Some((_dirs, mut logs)) = self.open() else { panic!("{what}: the directory opens again") };
        for kept in kept {
            let Some(log) = logs.iter_mut().find(|log| log.name() == kept.log.name()) else {
                assert!(kept.acknowledged.is_empty(), "{what}: the log of {:?} is gone", kept.log.name());
                continue;
            };
            let bytes = read_all(log, log.log_start_offset(), 1 << 20);
            let found: BTreeMap<i64, u32> = batches(&bytes)
                .map(|batch| batch.expect("whole batches").header)
                .map(|header| (header.base_offset.0, header.crc))
                .collect();
            if log.config().cleanup_policy.compact {
                // Keys are the numbers of records in their batches: the last batch of three has all of them.
                let last = kept.acknowledged.keys().last().copied();
                assert!(last.is_none_or(|last| found.contains_key(&last)), "{what}: {found:?}");
                let end = last.map_or(0, |last| last + 1);
                assert!(log.log_end_offset().0 >= end, "{what}");
                continue;
            }
            for (base, crc) in &kept.acknowledged {
                let names = || self.disk.files().into_iter().map(|(path, _)| path.display().to_string());
                assert_eq!(
                    found.get(base),
                    Some(crc),
                    "{what}: {base} of {:?}, {:?}",
                    kept.acknowledged.keys(),
                    names().collect::<Vec<_>>()
                );
            }
            let end = kept.acknowledged.keys().last().map_or(0, |last| last + 1);
            let next = append(log, &Spec::new(1).build()).first_offset;
            assert!(next.0 >= end, "{what}: offset {next} is given again");
        }
    }
}

fn compact_once(log: &mut PartitionLog) {
    let Ok(Some(job)) = log.plan_compaction(NOW_MS) else { return };
    let Ok(outcome) = job.run() else { return };
    match log.finish_compaction(&job, outcome) {
        Ok(Some(mut swap)) => {
            let synced = swap.sync();
            let _ = log.complete_compaction(&mut swap, synced);
            swap.write_checkpoint();
        }
        Ok(None) => job.discard(),
        Err(_) => {}
    }
}

/// Lives with the failure, is killed, starts again with what is left of the failure, is killed, and is
/// checked. Returns whether the failure has struck.
fn run(calls: u64, failure: CallError) -> bool {
    let clock = Clock::manual(NOW_MS);
    let disk = MemoryDisk::new(clock.clone());
    let world = World { disk, faults: Arc::default(), clock };
    world.faults.fail_once_after(calls, failure);
    let mut kept = Vec::new();
    if let Some((dirs, _)) = world.open() {
        world.live(&dirs, &mut kept);
        world.disk.end_process();
    }
    world.disk.end_process();
    if let Some((dirs, logs)) = world.open() {
        for log in logs {
            if let Some(kept) = kept.iter_mut().find(|kept| kept.log.name() == log.name()) {
                kept.log = log;
                kept.append(3);
                let _ = kept.log.close();
            }
        }
        dirs.close(1);
    }
    world.disk.end_process();
    let has_struck = !world.faults.is_pending();
    world.faults.heal();
    world.check(&kept, &format!("{failure:?} after {calls} calls"));
    has_struck
}

fn run_all(failure: CallError) {
    let _allowed = thalweg_log::disk::allow_waits("nobody waits for a lock");
    let mut calls = 0;
    while run(calls, failure) {
        calls += 1;
    }
    assert!(calls > 300, "{calls} calls");
}

#[test]
fn acknowledged_records_outlive_any_call_without_room() {
    run_all(CallError::NoSpace);
}

#[test]
fn acknowledged_records_outlive_an_error_of_any_call() {
    run_all(CallError::InputOutput);
}

#[test]
fn acknowledged_records_outlive_any_call_without_access() {
    run_all(CallError::Denied);
}

#[test]
fn acknowledged_records_outlive_any_call_without_descriptors() {
    run_all(CallError::TooManyOpen);
}
