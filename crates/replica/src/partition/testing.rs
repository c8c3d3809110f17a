//! A partition for unit tests: led here, with one replica, and the default settings of a topic.

use super::Partition;
use crate::context::ReplicaContext;
use crate::isr_changes::IsrChanges;
use crate::reports::PartitionReports;
use crate::throttle::ReplicationThrottle;
use std::sync::Arc;
use std::time::Duration;
use thalweg_config::{BrokerConfig, ServerProperties};
use thalweg_log::disk::{Disk, Faults};
use thalweg_log::{CleanupPolicy, Clock, Home, LogConfig, PartitionLog, TopicPartition};
use thalweg_metadata::ImageCell;
use thalweg_metadata::{
    BrokerId, LeaderRecoveryState, PartitionEpoch, PartitionIndex, PartitionRegistration,
};
use thalweg_record::{BatchBuilder, BatchOptions, LeaderEpoch};
use thalweg_wire::Uuid;

pub(crate) const NODE: BrokerId = BrokerId(1);
const TOPIC: Uuid = Uuid(70);

/// A partition for a log, led by this node.
pub(crate) fn partition(log: PartitionLog, leader_epoch: i32) -> Partition {
    partition_as(log, &registration(NODE, leader_epoch))
}

/// A partition for a log, with this registration.
pub(crate) fn partition_as(log: PartitionLog, registration: &PartitionRegistration) -> Partition {
    let config = BrokerConfig::new(&ServerProperties::default()).expect("the defaults are valid");
    let (settings, _) = config.topic_defaults.apply(&Default::default());
    let unlimited = || ReplicationThrottle::new(u64::MAX, 1, Duration::from_secs(1));
    let context = Arc::new(ReplicaContext {
        node_id: NODE,
        lag_time_max: Duration::from_secs(30),
        image: ImageCell::new(),
        isr_changes: IsrChanges::default(),
        leader_throttle: unlimited(),
        follower_throttle: unlimited(),
        flushes: thalweg_histogram::Histogram::of_times(),
        lock_waits: thalweg_histogram::Histogram::of_times(),
        stale_epochs: PartitionReports::default(),
        stuck_readers: PartitionReports::default(),
        damage_found: tokio::sync::Notify::new(),
    });
    Partition::new("t".into(), TOPIC, PartitionIndex(0), context, log, Arc::new(settings), registration)
}

/// A registration with this node or another as the leader.
pub(crate) fn registration(leader: BrokerId, leader_epoch: i32) -> PartitionRegistration {
    PartitionRegistration {
        replicas: vec![NODE],
        directories: Vec::new(),
        isr: vec![NODE],
        removing_replicas: Vec::new(),
        adding_replicas: Vec::new(),
        eligible_leader_replicas: Vec::new(),
        last_known_elr: Vec::new(),
        leader,
        leader_recovery_state: LeaderRecoveryState::Recovered,
        leader_epoch,
        partition_epoch: PartitionEpoch(leader_epoch),
    }
}

/// A compacted partition on a disk whose syncs and removals can be made to hang.
pub(crate) struct HangingDisk {
    pub(crate) partition: Arc<Partition>,
    faults: Arc<Faults>,
    _dir: tempfile::TempDir,
}

impl HangingDisk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let faults = Arc::new(Faults::default());
        let config = LogConfig {
            segment_bytes: 500,
            cleanup_policy: CleanupPolicy { compact: true, delete: true },
            file_delete_delay_ms: 0,
            ..LogConfig::default()
        };
        let home = Home::new(Disk::with_faults(Arc::clone(&faults)), dir.path().join("t-0"));
        let clock = Clock::manual(1_700_000_000_000);
        let log = PartitionLog::create(home, TopicPartition::new("t", 0), None, Arc::new(config), clock);
        Self { partition: Arc::new(partition(log.expect("creates"), 0)), faults, _dir: dir }
    }

    /// Appends this many batches of one key.
    pub(crate) fn append(&self, batches: usize) {
        for _ in 0..batches {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(1, Some(b"key"), Some(&[b'v'; 100]), &[]).expect("fits");
            self.partition.with_log(|log| {
                log.append_as_leader(&builder.build(), LeaderEpoch(0), Default::default()).expect("accepted");
                log.set_high_watermark(log.log_end_offset());
            });
        }
    }

    /// Runs `work` on another thread, where files with this suffix hang, and `meanwhile` before they are
    /// released.
    pub(crate) fn while_it_hangs<T: Send + 'static>(
        &self,
        suffix: &str,
        work: impl FnOnce() -> T + Send + 'static,
        meanwhile: impl FnOnce(&Self),
    ) -> T {
        self.faults.only(suffix);
        self.faults.set_hanging(true);
        let working = std::thread::spawn(work);
        self.faults.wait_until_hung();
        meanwhile(self);
        assert!(!working.is_finished(), "the disk still hangs");
        self.faults.set_hanging(false);
        working.join().expect("does not panic")
    }
}
