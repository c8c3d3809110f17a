//! The registration of a partition: replicas, leader, in-sync replicas (Kafka's `PartitionRegistration`).

use crate::{BrokerId, MetadataVersion, PartitionEpoch, PartitionIndex, ReplayError, VersionedRecord};
use thalweg_wire::metadata::{PartitionChangeRecord, PartitionRecord};
use thalweg_wire::{MetadataRecord, Uuid};

/// In a PartitionChangeRecord: leader and leader epoch stay the same.
pub const NO_LEADER_CHANGE: i32 = -2;

/// The directory of a replica from before directories were tracked.
pub const DIRECTORY_MIGRATING: Uuid = Uuid(0);
/// A directory that the broker has not reported yet.
pub const DIRECTORY_UNASSIGNED: Uuid = Uuid(1);
/// An offline directory.
pub const DIRECTORY_LOST: Uuid = Uuid(2);

/// The directory id of a replica that its broker has given up because the directory is full. Kafka reserves
/// the id, and its controllers treat the directory as offline. Unlike in a lost directory, the log is intact.
pub const DIRECTORY_FULL: Uuid = Uuid(99);

/// The recovery state of a leader elected outside the in-sync replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeaderRecoveryState {
    /// The normal state.
    #[default]
    Recovered,
    /// After an unclean election. The ISR is the leader alone until the leader has recovered.
    Recovering,
}

impl LeaderRecoveryState {
    /// Kafka's code in records and requests.
    pub fn id(self) -> i8 {
        match self {
            LeaderRecoveryState::Recovered => 0,
            LeaderRecoveryState::Recovering => 1,
        }
    }

    /// The state of a code.
    pub fn from_id(id: i8) -> Option<LeaderRecoveryState> {
        match id {
            0 => Some(LeaderRecoveryState::Recovered),
            1 => Some(LeaderRecoveryState::Recovering),
            _ => None,
        }
    }
}

/// A partition in the controller's state.
///
/// The leader epoch is a plain integer here, because `thalweg_record::LeaderEpoch` belongs to a crate that
/// this one does not depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRegistration {
    /// The replicas; the first one is the preferred leader.
    pub replicas: Vec<BrokerId>,
    /// The directory of each replica, in the order of `replicas`.
    pub directories: Vec<Uuid>,
    /// The in-sync replicas.
    pub isr: Vec<BrokerId>,
    /// Replicas that a reassignment removes.
    pub removing_replicas: Vec<BrokerId>,
    /// Replicas that a reassignment adds.
    pub adding_replicas: Vec<BrokerId>,
    /// Replicas outside the ISR with all committed records (KIP-966).
    pub eligible_leader_replicas: Vec<BrokerId>,
    /// The last leader, while the partition has none (KIP-966).
    pub last_known_elr: Vec<BrokerId>,
    /// The leader, or [`BrokerId::NONE`].
    pub leader: BrokerId,
    /// The recovery state of the leader.
    pub leader_recovery_state: LeaderRecoveryState,
    /// The leader epoch.
    pub leader_epoch: i32,
    /// The partition epoch.
    pub partition_epoch: PartitionEpoch,
}

impl PartitionRegistration {
    /// The registration that a record creates.
    pub fn from_record(record: &PartitionRecord) -> Result<PartitionRegistration, ReplayError> {
        let count = record.replicas.len();
        if !record.directories.is_empty() && record.directories.len() != count {
            let directories = record.directories.len();
            return Err(ReplayError::Directories { replicas: count, directories });
        }
        Ok(PartitionRegistration {
            directories: or_migrating(record.directories.clone(), count),
            replicas: BrokerId::list(&record.replicas),
            isr: BrokerId::list(&record.isr),
            removing_replicas: BrokerId::list(&record.removing_replicas),
            adding_replicas: BrokerId::list(&record.adding_replicas),
            eligible_leader_replicas: or_none(&record.eligible_leader_replicas),
            last_known_elr: or_none(&record.last_known_elr),
            leader: BrokerId(record.leader),
            leader_recovery_state: recovery_state(record.leader_recovery_state)?,
            leader_epoch: record.leader_epoch,
            partition_epoch: PartitionEpoch(record.partition_epoch),
        })
    }

    /// Number of replicas without those that a reassignment adds, which are not missed yet.
    pub fn replication_factor(&self) -> usize {
        self.replicas.iter().filter(|id| !self.adding_replicas.contains(id)).count()
    }

    /// True if a replica may be elected without data loss: in sync, or eligible (KIP-966).
    pub fn may_lead_cleanly(&self, replica: BrokerId) -> bool {
        self.isr.contains(&replica) || self.eligible_leader_replicas.contains(&replica)
    }

    /// The registration after a change record. The partition epoch always increases by one; the leader epoch
    /// increases if the record names a leader, even the same one.
    pub fn merge(&self, record: &PartitionChangeRecord) -> Result<PartitionRegistration, ReplayError> {
        let or = |new: &Option<Vec<i32>>, old: &Vec<BrokerId>| match new {
            Some(new) => BrokerId::list(new),
            None => old.clone(),
        };
        let replicas = or(&record.replicas, &self.replicas);
        let directories = match &record.directories {
            None => self.directories.clone(),
            Some(directories) => directories.clone(),
        };
        let directories = or_migrating(directories, replicas.len());
        if directories.len() != replicas.len() {
            let directories = directories.len();
            return Err(ReplayError::Directories { replicas: replicas.len(), directories });
        }
        let leader_changes = record.leader != NO_LEADER_CHANGE;
        Ok(PartitionRegistration {
            replicas,
            directories,
            isr: or(&record.isr, &self.isr),
            removing_replicas: or(&record.removing_replicas, &self.removing_replicas),
            adding_replicas: or(&record.adding_replicas, &self.adding_replicas),
            eligible_leader_replicas: or(&record.eligible_leader_replicas, &self.eligible_leader_replicas),
            last_known_elr: or(&record.last_known_elr, &self.last_known_elr),
            leader: if leader_changes { BrokerId(record.leader) } else { self.leader },
            leader_recovery_state: match record.leader_recovery_state {
                -1 => self.leader_recovery_state,
                id => recovery_state(id)?,
            },
            leader_epoch: self.leader_epoch.wrapping_add(i32::from(leader_changes)),
            partition_epoch: PartitionEpoch(self.partition_epoch.0.wrapping_add(1)),
        })
    }

    /// The record that creates this registration.
    pub fn to_record(
        &self,
        topic_id: Uuid,
        partition: PartitionIndex,
        version: MetadataVersion,
    ) -> VersionedRecord {
        let elr = version.has_eligible_leader_replicas();
        let some = |list: &[BrokerId]| (elr && !list.is_empty()).then(|| BrokerId::numbers(list));
        let record = PartitionRecord {
            partition_id: partition.0,
            topic_id,
            replicas: BrokerId::numbers(&self.replicas),
            isr: BrokerId::numbers(&self.isr),
            removing_replicas: BrokerId::numbers(&self.removing_replicas),
            adding_replicas: BrokerId::numbers(&self.adding_replicas),
            leader: self.leader.0,
            leader_recovery_state: self.leader_recovery_state.id(),
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch.0,
            directories: if version.has_directories() { self.directories.clone() } else { Vec::new() },
            eligible_leader_replicas: some(&self.eligible_leader_replicas),
            last_known_elr: some(&self.last_known_elr),
        };
        VersionedRecord::new(MetadataRecord::Partition(record), version.partition_record())
    }

    /// True if the partition has a leader.
    pub fn has_leader(&self) -> bool {
        self.leader != BrokerId::NONE
    }

    /// The preferred leader, or [`BrokerId::NONE`] without replicas.
    pub fn preferred_replica(&self) -> BrokerId {
        self.replicas.first().copied().unwrap_or(BrokerId::NONE)
    }

    /// True if the preferred replica leads.
    pub fn has_preferred_leader(&self) -> bool {
        self.leader == self.preferred_replica()
    }

    /// The directory of the broker's replica, if any.
    pub fn directory(&self, broker: BrokerId) -> Option<Uuid> {
        let index = self.replicas.iter().position(|replica| *replica == broker)?;
        self.directories.get(index).copied()
    }

    /// True if a broker holds a replica.
    pub fn is_replica(&self, broker: BrokerId) -> bool {
        self.replicas.contains(&broker)
    }

    /// True if a broker's replica is out of sync with a leader. Replicas that a reassignment adds are not
    /// expected to be in sync.
    pub fn is_behind(&self, broker: BrokerId) -> bool {
        let is_expected = self.is_replica(broker) && !self.adding_replicas.contains(&broker);
        is_expected && self.has_leader() && !self.isr.contains(&broker)
    }

    /// True while replicas are being added or removed.
    pub fn is_reassigning(&self) -> bool {
        !self.removing_replicas.is_empty() || !self.adding_replicas.is_empty()
    }
}

fn or_none(list: &Option<Vec<i32>>) -> Vec<BrokerId> {
    list.as_deref().map(BrokerId::list).unwrap_or_default()
}

fn recovery_state(id: i8) -> Result<LeaderRecoveryState, ReplayError> {
    LeaderRecoveryState::from_id(id).ok_or(ReplayError::RecoveryState { id })
}

/// An empty list, or a list of "migrating" only, means "migrating" for each replica.
fn or_migrating(directories: Vec<Uuid>, replicas: usize) -> Vec<Uuid> {
    if directories.iter().all(|directory| *directory == DIRECTORY_MIGRATING) {
        vec![DIRECTORY_MIGRATING; replicas]
    } else {
        directories
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration() -> PartitionRegistration {
        PartitionRegistration {
            replicas: BrokerId::list(&[1, 2]),
            directories: vec![Uuid(100), Uuid(200)],
            isr: BrokerId::list(&[1, 2]),
            removing_replicas: vec![],
            adding_replicas: vec![],
            eligible_leader_replicas: vec![],
            last_known_elr: vec![],
            leader: BrokerId(1),
            leader_recovery_state: LeaderRecoveryState::Recovered,
            leader_epoch: 4,
            partition_epoch: PartitionEpoch(9),
        }
    }

    #[test]
    fn replicas_that_a_reassignment_adds_do_not_count() {
        let replicas = BrokerId::list(&[1, 2, 3]);
        let registration = PartitionRegistration { replicas, ..registration() };
        assert_eq!(registration.replication_factor(), 3);
        let adding_replicas = BrokerId::list(&[3]);
        assert_eq!(PartitionRegistration { adding_replicas, ..registration }.replication_factor(), 2);
    }

    #[test]
    fn a_replica_is_behind_until_it_is_in_sync_with_a_leader() {
        let with = |isr: &[i32], adding: &[i32], leader| {
            let (isr, adding_replicas) = (BrokerId::list(isr), BrokerId::list(adding));
            PartitionRegistration { isr, adding_replicas, leader, ..registration() }.is_behind(BrokerId(2))
        };
        assert!(with(&[1], &[], BrokerId(1)));
        assert!(!with(&[1, 2], &[], BrokerId(1)));
        assert!(!with(&[1], &[2], BrokerId(1)), "a reassignment adds it");
        assert!(!with(&[1], &[], BrokerId::NONE), "there is no leader to catch up with");
        assert!(!registration().is_behind(BrokerId(3)), "it has no replica");
    }

    #[test]
    fn a_change_without_a_leader_keeps_the_leader_epoch() {
        let change = PartitionChangeRecord { isr: Some(vec![1]), ..Default::default() };
        let merged = registration().merge(&change).unwrap();
        assert_eq!(
            (merged.leader, merged.leader_epoch, merged.partition_epoch),
            (BrokerId(1), 4, PartitionEpoch(10))
        );
        assert_eq!(merged.isr, [BrokerId(1)]);
    }

    #[test]
    fn naming_the_same_leader_bumps_its_epoch() {
        let change = PartitionChangeRecord { leader: 1, ..Default::default() };
        let merged = registration().merge(&change).unwrap();
        assert_eq!(
            (merged.leader, merged.leader_epoch, merged.partition_epoch),
            (BrokerId(1), 5, PartitionEpoch(10))
        );
    }

    #[test]
    fn a_change_of_replicas_must_bring_their_directories() {
        let change = PartitionChangeRecord { replicas: Some(vec![1, 2, 3]), ..Default::default() };
        assert!(registration().merge(&change).is_err());
        let change = PartitionChangeRecord {
            replicas: Some(vec![3]),
            directories: Some(vec![Uuid(300)]),
            ..Default::default()
        };
        assert_eq!(registration().merge(&change).unwrap().directory(BrokerId(3)), Some(Uuid(300)));
    }

    #[test]
    fn a_registration_survives_its_record() {
        let MetadataRecord::Partition(record) =
            registration().to_record(Uuid(7), PartitionIndex(3), MetadataVersion::LATEST).record
        else {
            panic!("a partition is written as a PartitionRecord")
        };
        assert_eq!(PartitionRegistration::from_record(&record).unwrap(), registration());
    }
}
