//! The metadata version: the record types and versions that a cluster writes (Kafka's `MetadataVersion`).

use std::fmt;
use thalweg_wire::{EncodeError, MetadataRecord, encode_metadata_value};

/// The names of Kafka's features.
pub mod feature {
    /// The version of metadata records and of requests between brokers.
    pub const METADATA_VERSION: &str = "metadata.version";
    /// The version of the quorum's control records.
    pub const KRAFT_VERSION: &str = "kraft.version";
    /// The consumer group protocol of KIP-848.
    pub const GROUP_VERSION: &str = "group.version";
    /// The transaction protocol of KIP-890.
    pub const TRANSACTION_VERSION: &str = "transaction.version";
    /// Eligible leader replicas, KIP-966.
    pub const ELIGIBLE_LEADER_REPLICAS_VERSION: &str = "eligible.leader.replicas.version";
    /// Share groups, KIP-932.
    pub const SHARE_VERSION: &str = "share.version";
    /// Streams groups, KIP-1071.
    pub const STREAMS_VERSION: &str = "streams.version";
}

/// A level of the feature `metadata.version`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MetadataVersion(i16);

/// Levels with Kafka's names. True if records changed at that level.
const LEVELS: [(i16, &str, bool); 24] = [
    (7, "3.3-IV3", true),
    (8, "3.4-IV0", true),
    (9, "3.5-IV0", false),
    (10, "3.5-IV1", false),
    (11, "3.5-IV2", true),
    (12, "3.6-IV0", false),
    (13, "3.6-IV1", true),
    (14, "3.6-IV2", true),
    (15, "3.7-IV0", true),
    (16, "3.7-IV1", false),
    (17, "3.7-IV2", true),
    (18, "3.7-IV3", false),
    (19, "3.7-IV4", false),
    (20, "3.8-IV0", false),
    (21, "3.9-IV0", false),
    (22, "4.0-IV0", false),
    (23, "4.0-IV1", true),
    (24, "4.0-IV2", false),
    (25, "4.0-IV3", false),
    (26, "4.1-IV0", false),
    (27, "4.1-IV1", false),
    (28, "4.2-IV0", false),
    (29, "4.2-IV1", false),
    (30, "4.3-IV0", true),
];

impl MetadataVersion {
    /// The first level that a Kafka 4 controller accepts: 3.3-IV3.
    pub const MINIMUM: MetadataVersion = MetadataVersion(7);
    /// The last level released with Kafka 4.3: 4.3-IV0.
    pub const LATEST: MetadataVersion = MetadataVersion(30);
    /// The first level whose records have eligible leader replicas: 4.0-IV1.
    pub const WITH_ELIGIBLE_LEADER_REPLICAS: MetadataVersion = MetadataVersion(23);

    /// The version of a level, if known.
    pub fn from_level(level: i16) -> Option<MetadataVersion> {
        (Self::MINIMUM.0..=Self::LATEST.0).contains(&level).then_some(MetadataVersion(level))
    }

    /// The numeric level.
    pub fn level(self) -> i16 {
        self.0
    }

    /// Kafka's name of the level.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    fn entry(self) -> &'static (i16, &'static str, bool) {
        let index = usize::try_from(self.0 - Self::MINIMUM.0).expect("a version is not below the minimum");
        &LEVELS[index]
    }

    /// True if records differ between two versions, so that a downgrade loses data.
    pub fn metadata_changes_between(low: MetadataVersion, high: MetadataVersion) -> bool {
        LEVELS.iter().any(|(level, _, changed)| *level > low.0 && *level <= high.0 && *changed)
    }

    /// True if SCRAM credentials are in the log (3.5-IV2).
    pub fn has_scram(self) -> bool {
        self.0 >= 11
    }

    /// True if transaction records may bracket changes (3.6-IV1).
    pub fn has_transactions(self) -> bool {
        self.0 >= 13
    }

    /// True if delegation tokens are in the log (3.6-IV2).
    pub fn has_delegation_tokens(self) -> bool {
        self.0 >= 14
    }

    /// True if controllers register (3.7-IV0).
    pub fn has_controller_registrations(self) -> bool {
        self.0 >= 15
    }

    /// True if replicas are assigned to directories (3.7-IV2).
    pub fn has_directories(self) -> bool {
        self.0 >= 17
    }

    /// True if eligible leader replicas are stored (4.0-IV1).
    pub fn has_eligible_leader_replicas(self) -> bool {
        self >= MetadataVersion::WITH_ELIGIBLE_LEADER_REPLICAS
    }

    /// True if log directories can be cordoned (4.3-IV0).
    pub fn has_cordoned_directories(self) -> bool {
        self.0 >= 30
    }

    /// True if a shrinking ISR increases the leader epoch (before 3.6-IV0).
    pub fn bumps_leader_epoch_on_isr_shrink(self) -> bool {
        self.0 < 12
    }

    /// The version of RegisterBrokerRecord.
    pub fn register_broker_record(self) -> i16 {
        match self.0 {
            30.. => 4,
            17.. => 3,
            8.. => 2,
            _ => 1,
        }
    }

    /// The version of PartitionRecord and PartitionChangeRecord.
    pub fn partition_record(self) -> i16 {
        match self.0 {
            23.. => 2,
            17.. => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for MetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// A record with its version.
#[derive(Clone, PartialEq, Debug)]
pub struct VersionedRecord {
    /// The record to write.
    pub record: MetadataRecord,
    /// The record version.
    pub version: i16,
}

impl VersionedRecord {
    /// Creates a versioned record.
    pub fn new(record: MetadataRecord, version: i16) -> VersionedRecord {
        VersionedRecord { record, version }
    }

    /// Encodes the value of a log record.
    pub fn to_value(&self) -> Result<bytes::Bytes, EncodeError> {
        encode_metadata_value(&self.record, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_its_name() {
        for (index, (level, _, _)) in LEVELS.iter().enumerate() {
            assert_eq!(usize::try_from(*level).unwrap(), index + 7);
        }
        assert_eq!(MetadataVersion::LATEST.to_string(), "4.3-IV0");
        assert_eq!(MetadataVersion::from_level(6), None);
        assert_eq!(MetadataVersion::from_level(31), None);
    }

    #[test]
    fn downgrades_across_a_change_of_records_are_known() {
        let level = |level| MetadataVersion::from_level(level).unwrap();
        assert!(!MetadataVersion::metadata_changes_between(level(23), level(29)));
        assert!(MetadataVersion::metadata_changes_between(level(22), level(29)));
        assert!(MetadataVersion::metadata_changes_between(level(29), level(30)));
    }
}
