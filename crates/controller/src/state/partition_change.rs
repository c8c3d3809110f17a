//! The record that changes a partition: who is in sync, who leads, how a reassignment ends (Kafka's
//! `PartitionChangeBuilder`).
//!
//! Eligible leader replicas are not served, so the ISR never becomes empty and what a log of another controller says
//! of them is cleared by the first change.

use thalweg_metadata::{
    DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Image, LeaderRecoveryState, MetadataVersion, NO_LEADER,
    NO_LEADER_CHANGE, PartitionRegistration, VersionedRecord,
};
use thalweg_wire::metadata::PartitionChangeRecord;
use thalweg_wire::{MetadataRecord, Uuid};

/// How a leader is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Election {
    /// The preferred replica if it is in sync, else the present leader, else another in sync.
    Preferred,
    /// The present leader if it may go on, else the first in sync.
    Online,
    /// As `Online`, and if none is in sync, any replica that lives.
    Unclean,
}

/// A change of a partition in the making.
pub(super) struct PartitionChange<'a> {
    partition: &'a PartitionRegistration,
    topic_id: Uuid,
    index: i32,
    version: MetadataVersion,
    image: &'a Image,
    may_lead: &'a dyn Fn(i32) -> bool,
    pub election: Election,
    pub isr: Vec<i32>,
    pub replicas: Vec<i32>,
    pub removing: Vec<i32>,
    pub adding: Vec<i32>,
    pub recovery: LeaderRecoveryState,
    directories: Vec<(i32, Uuid)>,
}

struct Elected {
    leader: i32,
    unclean: bool,
}

impl<'a> PartitionChange<'a> {
    /// No change yet. `may_lead` says which brokers are up; the directory of the replica is looked at too.
    pub fn new(
        image: &'a Image,
        version: MetadataVersion,
        topic_id: Uuid,
        index: i32,
        partition: &'a PartitionRegistration,
        may_lead: &'a dyn Fn(i32) -> bool,
    ) -> PartitionChange<'a> {
        PartitionChange {
            partition,
            topic_id,
            index,
            version,
            image,
            may_lead,
            election: Election::Online,
            isr: partition.isr.clone(),
            replicas: partition.replicas.clone(),
            removing: partition.removing_replicas.clone(),
            adding: partition.adding_replicas.clone(),
            recovery: partition.leader_recovery_state,
            directories: partition
                .replicas
                .iter()
                .copied()
                .zip(partition.directories.iter().copied())
                .collect(),
        }
    }

    /// Puts the replica of a broker into a directory.
    pub fn set_directory(&mut self, broker: i32, directory: Uuid) {
        self.directories.retain(|(id, _)| *id != broker);
        self.directories.push((broker, directory));
    }

    /// The record; none when nothing changes.
    pub fn build(mut self) -> Option<VersionedRecord> {
        self.complete_reassignment();
        let mut record =
            PartitionChangeRecord { partition_id: self.index, topic_id: self.topic_id, ..Default::default() };
        self.elect(&mut record);
        let lost_replicas = self.partition.replicas.iter().any(|id| !self.replicas.contains(id));
        if record.leader == NO_LEADER_CHANGE && lost_replicas {
            record.leader = self.partition.leader;
        }
        self.clear_elr(&mut record);
        if record.isr.is_none() && !self.isr.is_empty() && self.isr != self.partition.isr {
            record.isr = Some(self.isr.clone());
        }
        let shrunk =
            record.isr.as_ref().is_some_and(|isr| self.partition.isr.iter().any(|id| !isr.contains(id)));
        if record.leader == NO_LEADER_CHANGE && shrunk && self.version.bumps_leader_epoch_on_isr_shrink() {
            record.leader = self.partition.leader;
        }
        self.set_assignment(&mut record);
        if self.recovery != self.partition.leader_recovery_state {
            record.leader_recovery_state = self.recovery.id();
        }
        let nothing =
            PartitionChangeRecord { partition_id: self.index, topic_id: self.topic_id, ..Default::default() };
        (record != nothing).then(|| {
            VersionedRecord::new(MetadataRecord::PartitionChange(record), self.version.partition_record())
        })
    }

    fn is_up(&self, replica: i32) -> bool {
        if !(self.may_lead)(replica) {
            return false;
        }
        let directory =
            self.directories.iter().find(|(id, _)| *id == replica).map(|(_, directory)| *directory);
        match (self.image.broker(replica), directory) {
            (Some(broker), Some(directory)) => broker.has_online_directory(directory),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    fn can_lead(&self, replica: i32) -> bool {
        self.isr.contains(&replica) && self.is_up(replica)
    }

    fn find_leader(&self) -> Elected {
        let clean = |leader| Elected { leader, unclean: false };
        let preferred = self.replicas.first().copied().filter(|_| self.election == Election::Preferred);
        if let Some(preferred) = preferred.filter(|id| self.can_lead(*id)) {
            return clean(preferred);
        }
        if self.can_lead(self.partition.leader) {
            return clean(self.partition.leader);
        }
        if let Some(online) = self.replicas.iter().find(|id| self.can_lead(**id)) {
            return clean(*online);
        }
        if self.election == Election::Unclean
            && let Some(any) = self.replicas.iter().find(|id| self.is_up(**id))
        {
            return Elected { leader: *any, unclean: true };
        }
        clean(NO_LEADER)
    }

    fn elect(&mut self, record: &mut PartitionChangeRecord) {
        let elected = self.find_leader();
        if elected.leader == self.partition.leader {
            return;
        }
        record.leader = elected.leader;
        if elected.unclean {
            // Records that only the others have are lost: the new leader alone is in sync now.
            record.isr = Some(vec![elected.leader]);
            if self.partition.leader_recovery_state != LeaderRecoveryState::Recovering {
                self.recovery = LeaderRecoveryState::Recovering;
            }
        }
    }

    /// Ends a reassignment when all that are to be added are in sync.
    fn complete_reassignment(&mut self) {
        if self.removing.is_empty() && self.adding.is_empty() {
            return;
        }
        let without = |list: &[i32], gone: &[i32]| -> Vec<i32> {
            list.iter().copied().filter(|id| !gone.contains(id)).collect()
        };
        let isr = without(&self.isr, &self.removing);
        let replicas = without(&self.replicas, &self.removing);
        if isr.is_empty() || replicas.is_empty() || self.adding.iter().any(|id| !isr.contains(id)) {
            return;
        }
        if self.adding.len() < self.removing.len() && replicas.iter().any(|id| !isr.contains(id)) {
            return;
        }
        (self.isr, self.replicas) = (isr, replicas);
        self.removing.clear();
        self.adding.clear();
    }

    fn clear_elr(&self, record: &mut PartitionChangeRecord) {
        if !self.version.has_eligible_leader_replicas() {
            return;
        }
        if !self.partition.eligible_leader_replicas.is_empty() {
            record.eligible_leader_replicas = Some(Vec::new());
        }
        if !self.partition.last_known_elr.is_empty() && (record.leader >= 0 || self.partition.has_leader()) {
            record.last_known_elr = Some(Vec::new());
        }
    }

    fn set_assignment(&self, record: &mut PartitionChangeRecord) {
        if !self.replicas.is_empty() {
            if self.version.has_directories() {
                let directories: Vec<Uuid> = self.replicas.iter().map(|id| self.directory(*id)).collect();
                if directories != self.partition.directories {
                    record.directories = Some(directories);
                }
            }
            if self.replicas != self.partition.replicas {
                record.replicas = Some(self.replicas.clone());
            }
        }
        if self.removing != self.partition.removing_replicas {
            record.removing_replicas = Some(self.removing.clone());
        }
        if self.adding != self.partition.adding_replicas {
            record.adding_replicas = Some(self.adding.clone());
        }
    }

    fn directory(&self, replica: i32) -> Uuid {
        let known = self.directories.iter().find(|(id, _)| *id == replica);
        known.map_or_else(|| default_directory(self.image, replica), |(_, directory)| *directory)
    }
}

/// Where a new replica of a broker lies: its only directory, or what the broker will tell.
pub(super) fn default_directory(image: &Image, broker: i32) -> Uuid {
    match image.broker(broker).map(|broker| broker.directories.as_slice()) {
        None => DIRECTORY_UNASSIGNED,
        Some([]) => DIRECTORY_MIGRATING,
        Some([only]) => *only,
        Some(_) => DIRECTORY_UNASSIGNED,
    }
}
