//! State that a follower must sync before a fetch reports it to the leader: records under `flush.messages`,
//! and a log start raised by the leader, as after DeleteRecords.
//!
//! Owns: the partitions that owe a sync, and the sync of records. Refuses: fetching. A partition that owes
//! records is left out of the fetches, or the leader would acknowledge unsynced records. A partition that
//! owes a log start reports the previous one, and `log_starts` syncs in the background.

use crate::partition::Partition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use thalweg_metadata::TopicIdPartition;
use tokio::time::Instant;

/// Minimum wait of a fetch while a log start is being synced. Each wait is as long as all previous ones
/// together.
const LOG_START_WAIT: Duration = Duration::from_millis(10);

/// The partitions of a fetcher that owe a flush.
#[derive(Debug, Default)]
pub(super) struct OwedFlushes {
    partitions: BTreeMap<TopicIdPartition, Arc<Partition>>,
}

impl OwedFlushes {
    /// Notes that a partition owes a flush of its records.
    pub fn add(&mut self, key: TopicIdPartition, partition: &Arc<Partition>) {
        self.partitions.insert(key, Arc::clone(partition));
    }

    /// Forgets a partition that is no longer followed.
    pub fn forget(&mut self, key: &TopicIdPartition) {
        self.partitions.remove(key);
    }

    /// Flushes the partitions accepted by `may_try`. Returns those that still owe a flush.
    pub async fn pay(&mut self, may_try: impl Fn(&TopicIdPartition) -> bool) -> Vec<TopicIdPartition> {
        let tried: Vec<_> = self.partitions.keys().copied().filter(may_try).collect();
        let mut unpaid = Vec::new();
        for key in tried {
            if flush(&self.partitions[&key]).await {
                self.partitions.remove(&key);
            } else {
                unpaid.push(key);
            }
        }
        unpaid
    }
}

/// True if all records of the log are synced.
async fn flush(partition: &Arc<Partition>) -> bool {
    // A closed log has logged its reason, and stays closed.
    let is_closed = partition.with_log(|log| log.poison().is_some());
    !is_closed && Partition::flush_all(partition).await.is_ok()
}

/// The partitions with unsynced log starts, and the time since when there are some.
#[derive(Debug, Default)]
pub(super) struct OwingStarts {
    partitions: BTreeSet<TopicIdPartition>,
    since: Option<Instant>,
}

impl OwingStarts {
    /// Notes that a partition owes its log start.
    pub fn add(&mut self, key: TopicIdPartition) {
        self.partitions.insert(key);
        self.since.get_or_insert_with(Instant::now);
    }

    /// Takes all partitions; the caller adds back those that still owe.
    pub fn take(&mut self) -> BTreeSet<TopicIdPartition> {
        std::mem::take(&mut self.partitions)
    }

    /// True if a partition owes its log start.
    pub fn any(&mut self) -> bool {
        if self.partitions.is_empty() {
            self.since = None;
        }
        self.since.is_some()
    }

    /// Maximum delay of the leader's answer to a fetch, so that the next fetch soon reports synced log
    /// starts.
    pub fn wait_max(&self) -> Option<Duration> {
        self.since.map(|since| since.elapsed().max(LOG_START_WAIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing;
    use thalweg_log::disk::{Disk, Faults};
    use thalweg_log::{LogConfig, LogDirs, LogDirsOptions, TopicPartition};
    use thalweg_metadata::PartitionIndex;
    use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch, Offset};
    use thalweg_wire::Uuid;

    const KEY: TopicIdPartition = (Uuid(70), PartitionIndex(0));

    /// A partition with ten unsynced records.
    fn followed(dir: &std::path::Path, faults: &Arc<Faults>) -> (LogDirs, Arc<Partition>) {
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
        (log_dirs, Arc::new(testing::partition(log, 0)))
    }

    #[tokio::test]
    async fn a_partition_owes_its_records_until_a_flush_succeeds() {
        let (dir, faults) = (tempfile::tempdir().expect("a directory"), Arc::new(Faults::default()));
        let (_log_dirs, partition) = followed(dir.path(), &faults);
        let mut owing = OwedFlushes::default();
        owing.add(KEY, &partition);
        faults.set_lacking_descriptors(true);
        assert_eq!(owing.pay(|_| true).await, [KEY], "nothing was synced");
        assert_eq!(owing.pay(|_| false).await, [], "it rests");
        faults.set_lacking_descriptors(false);
        assert_eq!(owing.pay(|_| true).await, []);
        partition.with_log(|log| assert_eq!(log.recovery_point(), Offset(10)));
        assert!(owing.partitions.is_empty());
    }
}
