//! Evidence that acknowledged records are in the log.

use serde::{Deserialize, Serialize};

/// The evidence of a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Records acknowledged to producers, warm-up included.
    pub acknowledged: u64,
    /// Records in the log: end offsets minus start offsets, over all partitions.
    pub in_log: u64,
    /// The partitions; none in a condensed result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PartitionEvidence>,
    /// The replicas of all partitions, where these were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaCount>,
    /// Size of the partitions on all disks, as reported by the brokers.
    pub bytes_on_disk: u64,
    /// The smallest number of in-sync replicas of any partition during the run.
    pub in_sync_replicas_min: u32,
    /// The requested replication factor.
    pub replication_factor: u16,
    /// The broker's fsync policy, as text.
    pub fsync_policy: String,
    /// The result of reading back; `None` if nothing was read.
    pub check: Option<Check>,
    /// Why records were not or only partly read back, as text; `None` if all were.
    #[serde(default)]
    pub not_read_back: Option<String>,
    /// Contradictions to the claim that nothing was lost, as text; empty if there are none.
    pub faults: Vec<String>,
}

/// A count of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaCount {
    /// All replicas, complete or not.
    pub all: usize,
    /// Replicas whose log ends where their partition's log ends.
    pub complete: usize,
}

impl Evidence {
    /// The replicas of all partitions.
    pub fn replicas(&self) -> ReplicaCount {
        let mut count = self.replicas.unwrap_or_default();
        for partition in &self.partitions {
            let complete = |replica: &&ReplicaEvidence| replica.end_offset == partition.end_offset;
            count.all += partition.replicas.len();
            count.complete += partition.replicas.iter().filter(complete).count();
        }
        count
    }
}

/// A partition after a repetition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionEvidence {
    pub topic: String,
    pub partition: i32,
    /// The partition's log start offset.
    pub start_offset: i64,
    /// The partition's log end offset.
    pub end_offset: i64,
    /// The partition's replicas.
    pub replicas: Vec<ReplicaEvidence>,
    /// The partition's ledgers, in a cluster of Apache Pulsar. There the end offset is the broker's count of
    /// messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ledgers: Vec<LedgerEvidence>,
}

/// A ledger after a repetition. An entry is a batch, or a single record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEvidence {
    pub ledger: i64,
    /// Number of entries that the broker has.
    pub entries: i64,
    /// Number of entries acknowledged to producers.
    pub acknowledged_entries: u64,
    /// Number of records in these.
    pub acknowledged_records: u64,
    /// The last acknowledged entry; -1 if there is none.
    pub last_acknowledged_entry: i64,
}

/// A replica after a repetition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplicaEvidence {
    /// The broker's id.
    pub broker: i32,
    /// The replica's log end offset.
    pub end_offset: i64,
    /// Size on the broker's disk in bytes.
    pub bytes: u64,
    /// Total size of the log files in the broker's data directory, as an agent there sees it; `None` without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// True if the replica was in sync.
    pub in_sync: bool,
}

/// The result of reading back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Records read: the first records of each partition, if not all.
    pub read: u64,
    /// True if all records were read.
    #[serde(default)]
    pub whole: bool,
    /// Records acknowledged but missing. If not all were read, as many as the offsets show.
    pub lost: u64,
    /// Duplicates among the records read.
    pub duplicated: u64,
    /// Records read after a later one of the same producer in the partition.
    pub reordered: u64,
    /// Records read that differ from the sent ones.
    pub damaged: u64,
    /// Records present but not acknowledged, which is no fault. Known only if all were read.
    pub unacknowledged: u64,
}
