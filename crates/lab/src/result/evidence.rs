//! Proof that what was acknowledged is in the log.

use serde::{Deserialize, Serialize};

/// What was found after a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Records acknowledged to producers, warm-up included.
    pub acknowledged: u64,
    /// Records in the log: the end offsets less the start offsets, of all partitions.
    pub in_log: u64,
    /// Each partition.
    pub partitions: Vec<PartitionEvidence>,
    /// Bytes of the partitions on all disks, as the brokers tell.
    pub bytes_on_disk: u64,
    /// The least number of in-sync replicas seen during the run, of any partition.
    pub in_sync_replicas_min: u32,
    /// The replication factor that was asked for.
    pub replication_factor: u16,
    /// When records are synced to disk, in words.
    pub fsync_policy: String,
    /// What reading back has found; none where nothing was read.
    pub check: Option<Check>,
    /// Why nothing was read back, or not all: for people; none where all was read.
    #[serde(default)]
    pub not_read_back: Option<String>,
    /// What contradicts the claim that nothing was lost: for people; empty when all agrees.
    pub faults: Vec<String>,
}

/// One partition after a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionEvidence {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Its first offset.
    pub start_offset: i64,
    /// One behind its last offset.
    pub end_offset: i64,
    /// Its replicas.
    pub replicas: Vec<ReplicaEvidence>,
}

/// One replica after a repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaEvidence {
    /// The broker.
    pub broker: i32,
    /// One behind its last offset.
    pub end_offset: i64,
    /// Bytes on the broker's disk.
    pub bytes: u64,
    /// Whether it was in sync.
    pub in_sync: bool,
}

/// What reading back has found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Records read: of each partition the first ones, where it is not all.
    pub read: u64,
    /// Whether all were read.
    #[serde(default)]
    pub whole: bool,
    /// Acknowledged, and not there. Where not all were read, by the offsets alone: as many fewer as the log holds.
    pub lost: u64,
    /// There more than once, of those that were read.
    pub duplicated: u64,
    /// Behind a later record of the same producer in one partition, of those that were read.
    pub reordered: u64,
    /// Not what was sent, of those that were read.
    pub damaged: u64,
    /// There although the producer was not told so: no fault. Known only where all were read.
    pub unacknowledged: u64,
}
