//! What a follower must have on the medium before its next fetch, which tells the leader that it has it: records that
//! `flush.messages` wants there, and a log start that the leader has raised, as for DeleteRecords.
//!
//! Owns: the partitions that owe it, and paying. Refuses: fetching; a partition that still owes is left out of the fetches,
//! or the leader would answer its clients for nothing.

use crate::isr_changes::PartitionKey;
use crate::partition::Partition;
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_log::LogDirs;

/// The state of a follower that is not on the medium yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unsynced {
    pub records: bool,
    pub log_start: bool,
}

/// The partitions of a fetcher that owe something.
#[derive(Debug, Default)]
pub(super) struct Owing {
    partitions: BTreeMap<PartitionKey, (Arc<Partition>, Unsynced)>,
}

impl Owing {
    /// Notes what a partition owes, with what it owed before.
    pub fn add(&mut self, key: PartitionKey, partition: &Arc<Partition>, owed: Unsynced) {
        if owed != Unsynced::default() {
            let known = self.partitions.entry(key).or_insert_with(|| (Arc::clone(partition), owed));
            known.0 = Arc::clone(partition);
            known.1 = Unsynced {
                records: known.1.records || owed.records,
                log_start: known.1.log_start || owed.log_start,
            };
        }
    }

    /// The partition is not followed any more.
    pub fn forget(&mut self, key: &PartitionKey) {
        self.partitions.remove(key);
    }

    /// Flushes, and writes the checkpoint of log starts, for those partitions that `may_try` holds for. Returns those that
    /// still owe.
    pub async fn pay(
        &mut self,
        log_dirs: &Arc<LogDirs>,
        may_try: impl Fn(&PartitionKey) -> bool,
    ) -> Vec<PartitionKey> {
        let tried: Vec<_> = self.partitions.keys().copied().filter(may_try).collect();
        let raised = tried.iter().filter_map(|key| {
            let (partition, owed) = &self.partitions[key];
            owed.log_start.then(|| (*key, Arc::clone(partition)))
        });
        let unwritten = write_log_starts(log_dirs, raised.collect()).await;
        let mut unpaid = Vec::new();
        for key in tried {
            let (partition, owed) = &self.partitions[&key];
            let records = owed.records && !flush(partition).await;
            let left = Unsynced { records, log_start: unwritten.contains(&key) };
            if left == Unsynced::default() {
                self.partitions.remove(&key);
            } else {
                self.partitions.entry(key).and_modify(|(_, owed)| *owed = left);
                unpaid.push(key);
            }
        }
        unpaid
    }
}

/// Writes the checkpoint of log starts, if these partitions need it. Returns those whose log start is not in it yet.
async fn write_log_starts(
    log_dirs: &Arc<LogDirs>,
    raised: Vec<(PartitionKey, Arc<Partition>)>,
) -> Vec<PartitionKey> {
    if raised.is_empty() {
        return Vec::new();
    }
    let dirs = Arc::clone(log_dirs);
    let written = log_dirs.disk().spawn(move || {
        let written = dirs.checkpoint_log_starts();
        raised.iter().filter(|(_, partition)| !partition.lies_in(&written)).map(|(key, _)| *key).collect()
    });
    written.await.expect("writing a checkpoint does not panic")
}

/// Whether all records of the log are on the medium.
async fn flush(partition: &Arc<Partition>) -> bool {
    // A closed log has said why, and stays so.
    let is_closed = partition.with_log(|log| log.poison().is_some());
    !is_closed && Partition::flush_all(partition).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing;
    use thalweg_log::disk::{Disk, Faults};
    use thalweg_log::{LogConfig, LogDirsOptions, TopicPartition};
    use thalweg_metadata::PartitionIndex;
    use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch, Offset};
    use thalweg_wire::Uuid;

    const KEY: PartitionKey = (Uuid(70), PartitionIndex(0));

    /// A partition with ten records, none of which is on the medium.
    fn followed(dir: &std::path::Path, faults: &Arc<Faults>) -> (Arc<LogDirs>, Arc<Partition>) {
        let disk = Disk::with_faults(Arc::clone(faults));
        let options = LogDirsOptions { disk, ..LogDirsOptions::new(vec![dir.to_owned()], 1) };
        let config = Arc::new(LogConfig { flush_messages: 1, ..LogConfig::default() });
        let (log_dirs, _) = LogDirs::open(options, |_| Arc::clone(&config)).expect("opens");
        let name = TopicPartition::new("t", 0);
        let mut log = log_dirs.create(&name, None, Arc::clone(&config), None).expect("creates");
        for _ in 0..10 {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(1, None, Some(b"value"), &[]).expect("fits");
            log.append_as_leader(&builder.build(), LeaderEpoch(0), Default::default()).expect("accepted");
        }
        log.set_high_watermark(log.log_end_offset());
        (Arc::new(log_dirs), Arc::new(testing::partition(log, 0)))
    }

    #[tokio::test]
    async fn a_partition_owes_its_records_until_a_flush_succeeds() {
        let (dir, faults) = (tempfile::tempdir().expect("a directory"), Arc::new(Faults::default()));
        let (log_dirs, partition) = followed(dir.path(), &faults);
        let mut owing = Owing::default();
        owing.add(KEY, &partition, Unsynced { records: true, log_start: false });
        faults.set_lacking_descriptors(true);
        assert_eq!(owing.pay(&log_dirs, |_| true).await, [KEY], "nothing was synced");
        assert_eq!(owing.pay(&log_dirs, |_| false).await, [], "it rests");
        faults.set_lacking_descriptors(false);
        assert_eq!(owing.pay(&log_dirs, |_| true).await, []);
        partition.with_log(|log| assert_eq!(log.recovery_point(), Offset(10)));
        assert!(owing.partitions.is_empty());
    }

    #[tokio::test]
    async fn a_partition_owes_its_log_start_until_the_checkpoint_is_written() {
        let (dir, faults) = (tempfile::tempdir().expect("a directory"), Arc::new(Faults::default()));
        let (log_dirs, partition) = followed(dir.path(), &faults);
        partition.with_log(|log| log.delete_records(Offset(4))).expect("deletes");
        let mut owing = Owing::default();
        owing.add(KEY, &partition, Unsynced { records: false, log_start: true });
        faults.set_free_bytes(Some(0));
        assert_eq!(owing.pay(&log_dirs, |_| true).await, [KEY], "the disk is full");
        faults.set_free_bytes(None);
        assert_eq!(owing.pay(&log_dirs, |_| true).await, []);
        let checkpoint = std::path::Path::new("log-start-offset-checkpoint");
        let written = log_dirs.disk().read(&dir.path().join(checkpoint)).expect("it is there");
        assert_eq!(String::from_utf8_lossy(&written), "0\n1\nt 0 4\n");
    }
}
