//! Trimming: visits the partitions with pending file work (see `file_work`), and takes those off the list
//! whose files are at rest.

use super::Partition;
use super::lock::StateGuard;
use super::table::Partitions;
use std::sync::Arc;
use thalweg_metadata::TopicIdPartition;

impl Partition {
    /// Trims the newest file to its batches, if nothing was appended since the last call. Returns true if
    /// file work is left; otherwise the next change puts the partition on the list again.
    fn trim_files(&self) -> bool {
        let mut state = self.state.lock();
        if let Err(error) = state.log.trim_if_quiet() {
            tracing::warn!(partition = ?self, %error, "Failed to trim a log");
        }
        if !state.log.is_at_rest() {
            return true;
        }
        StateGuard::end_at_rest(state);
        false
    }
}

impl Partitions {
    /// The partitions with file work.
    pub fn with_file_work(&self) -> Vec<Arc<Partition>> {
        let keys = self.file_work_list().keys.lock().clone();
        keys.into_iter().filter_map(|key| self.at(key)).collect()
    }

    /// Trims files to their batches where appends have stopped, and removes partitions from the list whose
    /// files are at rest. The first call notes the log end; the second finds it unchanged.
    pub fn trim_files(&self) {
        let list = self.file_work_list();
        let _turn = list.removal.lock();
        let mut known = list.keys.lock().clone();
        let count = known.len();
        known.sort_unstable();
        known.dedup();
        known.retain(|key| self.at(*key).is_some_and(|partition| partition.trim_files()));
        // Partitions that changed meanwhile are behind these.
        list.keys.lock().splice(..count, known);
    }

    fn at(&self, (topic_id, index): TopicIdPartition) -> Option<Arc<Partition>> {
        self.topic_by_id(topic_id)?.partition(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::testing::partition;
    use thalweg_log::disk::Disk;
    use thalweg_log::{Clock, Home, LogConfig, PartitionLog, TopicPartition};
    use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch};

    const NOW_MS: i64 = 1_700_000_000_000;

    struct Bench {
        partitions: Partitions,
        partition: Arc<Partition>,
        _dir: tempfile::TempDir,
    }

    impl Bench {
        fn with(config: LogConfig) -> Bench {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let home = Home::new(Disk::real(), dir.path().join("t-0"));
            let (name, clock) = (TopicPartition::new("t", 0), Clock::manual(NOW_MS));
            let log = PartitionLog::create(home, name, None, Arc::new(config), clock).expect("creates");
            let (partitions, partition) = (Partitions::default(), Arc::new(partition(log, 0)));
            partitions.insert(Arc::clone(&partition));
            Bench { partitions, partition, _dir: dir }
        }

        fn append(&self, batches: usize) {
            for _ in 0..batches {
                let mut builder = BatchBuilder::new(BatchOptions::default());
                builder.append(NOW_MS, None, Some(&[b'v'; 100]), &[]).expect("fits");
                self.partition.with_log(|log| {
                    log.append_as_leader(&builder.build(), LeaderEpoch(0), Default::default())
                        .expect("accepted");
                    log.set_high_watermark(log.log_end_offset());
                });
            }
        }

        fn is_listed(&self) -> bool {
            !self.partitions.with_file_work().is_empty()
        }

        fn comes_to_rest(&self) -> bool {
            self.partitions.trim_files();
            !self.is_listed()
        }
    }

    #[test]
    fn a_partition_is_listed_from_a_change_until_its_files_are_at_rest() {
        let bench = Bench::with(LogConfig::default());
        assert!(bench.is_listed(), "a new one may have files to remove");
        assert!(bench.comes_to_rest());
        let _ = (bench.partition.leader(), bench.partition.size_bytes());
        assert!(!bench.is_listed(), "nothing was changed");
        while !bench.partition.state.lock().log.has_zeros() {
            bench.append(100);
        }
        assert!(!bench.comes_to_rest(), "something was appended since the last time");
        assert!(bench.comes_to_rest() && !bench.partition.state.lock().log.has_zeros());
        bench.append(1);
        bench.partitions.remove(bench.partition.topic_id, bench.partition.index);
        assert!(!bench.is_listed());
        bench.partitions.insert(Arc::clone(&bench.partition));
        assert!(bench.is_listed(), "it came again");
        bench.partitions.trim_files();
        assert!(bench.comes_to_rest());
    }

    #[tokio::test]
    async fn files_that_are_removed_after_a_delay_keep_it_on_the_list() {
        let config = LogConfig { segment_bytes: 500, file_delete_delay_ms: 1000, ..LogConfig::default() };
        let bench = Bench::with(config);
        bench.append(20);
        bench.partition.with_log(|log| log.delete_records(log.high_watermark())).expect("deletes");
        Partition::flush_if_due(&bench.partition, NOW_MS).await;
        (0..3).for_each(|_| bench.partitions.trim_files());
        assert!(bench.is_listed());
        bench.partition.with_log(|log| log.take_expired(NOW_MS + 1000)).remove();
        (0..2).for_each(|_| bench.partitions.trim_files());
        assert!(!bench.is_listed());
    }

    #[tokio::test]
    async fn what_must_be_flushed_by_some_time_keeps_it_on_the_list() {
        let bench = Bench::with(LogConfig { flush_ms: 1000, ..LogConfig::default() });
        bench.append(1);
        (0..3).for_each(|_| bench.partitions.trim_files());
        assert!(bench.is_listed());
        Partition::flush_if_due(&bench.partition, NOW_MS + 1000).await;
        assert_eq!(bench.partition.state.lock().log.unflushed_records(), 0);
        (0..2).for_each(|_| bench.partitions.trim_files());
        assert!(!bench.is_listed());
    }

    #[tokio::test]
    async fn segments_that_a_roll_has_left_keep_it_on_the_list() {
        let bench = Bench::with(LogConfig { segment_bytes: 500, ..LogConfig::default() });
        bench.append(20);
        (0..3).for_each(|_| bench.partitions.trim_files());
        assert!(bench.is_listed());
        Partition::flush_if_due(&bench.partition, NOW_MS).await;
        (0..2).for_each(|_| bench.partitions.trim_files());
        assert!(!bench.is_listed());
    }
}
