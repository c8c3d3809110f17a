//! Builds the record that changes a partition: in-sync replicas, leader, end of a reassignment (Kafka's
//! `PartitionChangeBuilder`).
//!
//! Without the feature `eligible.leader.replicas.version` the ISR never becomes empty, and the first change
//! clears eligible leader replicas recorded in the log. With it (KIP-966), a replica that leaves an ISR below
//! `min.insync.replicas` becomes eligible: the replica has all committed records, because nothing more is
//! committed. The ISR may then become empty, an eligible replica leads when it returns, and if no replica is
//! left, the last leader is remembered.

use std::collections::BTreeSet;

use thalweg_metadata::{
    BrokerId, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Image, LeaderRecoveryState, MetadataVersion,
    NO_LEADER_CHANGE, PartitionIndex, PartitionRegistration, Topic, VersionedRecord,
};
use thalweg_wire::metadata::PartitionChangeRecord;
use thalweg_wire::{MetadataRecord, Uuid};

use super::State;

/// The kind of election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Election {
    /// The preferred replica if it is in sync, otherwise the current leader, otherwise another in-sync
    /// replica.
    Preferred,
    /// The current leader if it may continue, otherwise the first in-sync replica.
    Online,
    /// As `Online`, and if no replica is in sync, any live replica.
    Unclean,
    /// The replica with the best log.
    Compared(BrokerId),
}

/// The state of a replica's log when its broker returns, from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ReplicaLog {
    /// The log is complete.
    Kept,
    /// The broker did not stop cleanly, and the end of the log may be missing.
    Suspect,
    /// The broker has reported missing or unreadable records.
    Damaged,
    /// The log is in a directory that the broker currently lacks. If no other replica is known to be
    /// complete, the replica is remembered, because the directory may return.
    Away,
    /// The log is lost.
    Gone,
}

/// A builder of a partition change.
pub(super) struct PartitionChange<'a> {
    partition: &'a PartitionRegistration,
    topic_id: Uuid,
    index: PartitionIndex,
    version: MetadataVersion,
    state: &'a State,
    image: &'a Image,
    may_lead: &'a dyn Fn(BrokerId) -> bool,
    /// The effective `min.insync.replicas`, if eligible leader replicas are enabled.
    elr_below: Option<usize>,
    elr: Vec<BrokerId>,
    last_known: Vec<BrokerId>,
    /// A replica that may have lost acknowledged records, and is not eligible.
    pub lost: Option<(BrokerId, ReplicaLog)>,
    pub election: Election,
    pub isr: Vec<BrokerId>,
    pub replicas: Vec<BrokerId>,
    pub removing: Vec<BrokerId>,
    pub adding: Vec<BrokerId>,
    pub recovery: LeaderRecoveryState,
    directories: Vec<(BrokerId, Uuid)>,
}

struct ElectionResult {
    leader: BrokerId,
    unclean: bool,
}

impl<'a> PartitionChange<'a> {
    /// A builder without changes. `may_lead` returns true for available brokers; the replica's directory is
    /// checked as well.
    pub fn new(
        state: &'a State,
        topic: &Topic,
        index: PartitionIndex,
        partition: &'a PartitionRegistration,
        may_lead: &'a dyn Fn(BrokerId) -> bool,
    ) -> PartitionChange<'a> {
        PartitionChange {
            partition,
            topic_id: topic.id,
            index,
            version: state.metadata_version(),
            state,
            image: state.image(),
            may_lead,
            elr_below: state.has_elr().then(|| state.effective_min_isr(topic)),
            elr: partition.eligible_leader_replicas.clone(),
            last_known: partition.last_known_elr.clone(),
            lost: None,
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

    /// Sets the directory of a broker's replica.
    pub fn set_directory(&mut self, broker: BrokerId, directory: Uuid) {
        self.directories.retain(|(id, _)| *id != broker);
        self.directories.push((broker, directory));
    }

    /// The record; `None` without a change.
    pub fn build(mut self) -> Option<VersionedRecord> {
        self.complete_reassignment();
        if let Some((lost, ReplicaLog::Gone)) = self.lost {
            self.isr.retain(|id| *id != lost);
        }
        self.note_eligible();
        self.note_last_known();
        let mut record = PartitionChangeRecord {
            partition_id: self.index.0,
            topic_id: self.topic_id,
            ..Default::default()
        };
        self.elect(&mut record);
        let lost_replicas = self.partition.replicas.iter().any(|id| !self.replicas.contains(id));
        if record.leader == NO_LEADER_CHANGE && lost_replicas {
            record.leader = self.partition.leader.0;
        }
        self.keep_isr_without_leader(&record);
        self.set_eligible(&mut record);
        // A replica with a lost log does not stay as the last member.
        let may_be_empty = self.elr_below.is_some() || self.lost_log() == Some(ReplicaLog::Gone);
        if record.isr.is_none() && (may_be_empty || !self.isr.is_empty()) && self.isr != self.partition.isr {
            record.isr = Some(BrokerId::numbers(&self.isr));
        }
        let shrunk =
            record.isr.as_ref().is_some_and(|isr| self.partition.isr.iter().any(|id| !isr.contains(&id.0)));
        if record.leader == NO_LEADER_CHANGE && shrunk && self.version.bumps_leader_epoch_on_isr_shrink() {
            record.leader = self.partition.leader.0;
        }
        self.remember_leader(&mut record);
        self.set_assignment(&mut record);
        if self.recovery != self.partition.leader_recovery_state {
            record.leader_recovery_state = self.recovery.id();
        }
        let nothing = PartitionChangeRecord {
            partition_id: self.index.0,
            topic_id: self.topic_id,
            ..Default::default()
        };
        (record != nothing).then(|| {
            VersionedRecord::new(MetadataRecord::PartitionChange(record), self.version.partition_record())
        })
    }

    fn lost_replica(&self) -> Option<BrokerId> {
        self.lost.map(|(replica, _)| replica)
    }

    fn lost_log(&self) -> Option<ReplicaLog> {
        self.lost.map(|(_, log)| log)
    }

    pub(super) fn is_up(&self, replica: BrokerId) -> bool {
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

    fn can_lead(&self, replica: BrokerId) -> bool {
        let is_eligible = self.isr.is_empty() && self.elr.contains(&replica);
        let waits =
            self.election != Election::Unclean && self.state.waits_for_others(replica, self.partition);
        (self.isr.contains(&replica) || is_eligible) && self.is_up(replica) && !waits
    }

    /// The last leader, if there is no other candidate. Its log may lack acknowledged records.
    fn last_leader(&self) -> Option<BrokerId> {
        if self.election != Election::Unclean && self.state.compares_log_ends(self.partition) {
            return None;
        }
        let nobody_left = self.isr.is_empty() && self.elr.is_empty();
        let last = self.last_known.first().filter(|_| self.elr_below.is_some() && nobody_left);
        // A reassignment may have removed the replica since.
        last.copied().filter(|last| self.replicas.contains(last) && self.is_up(*last))
    }

    fn find_leader(&self) -> ElectionResult {
        let clean = |leader| ElectionResult { leader, unclean: false };
        if let Election::Compared(best) = self.election {
            let leader = if self.is_up(best) { best } else { BrokerId::NONE };
            return ElectionResult { leader, unclean: leader != BrokerId::NONE };
        }
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
        if let Some(last) = self.last_leader() {
            return ElectionResult { leader: last, unclean: true };
        }
        if self.election == Election::Unclean
            && let Some(any) = self.replicas.iter().find(|id| self.is_up(**id))
        {
            return ElectionResult { leader: *any, unclean: true };
        }
        clean(BrokerId::NONE)
    }

    fn elect(&mut self, record: &mut PartitionChangeRecord) {
        let elected = self.find_leader();
        if elected.leader == self.partition.leader {
            return;
        }
        record.leader = elected.leader.0;
        if self.elr.contains(&elected.leader) {
            self.isr = vec![elected.leader];
            self.elr.retain(|id| *id != elected.leader);
        }
        if elected.unclean {
            // Only the new leader is in sync now; records that only other replicas have are lost.
            record.isr = Some(vec![elected.leader.0]);
            self.last_known.clear();
            if self.partition.leader_recovery_state != LeaderRecoveryState::Recovering {
                self.recovery = LeaderRecoveryState::Recovering;
            }
        }
    }

    /// Ends a reassignment when all added replicas are in sync. A second reassignment may remove a replica
    /// that the first was still adding; the end does not wait for such a replica. Kafka 4.3 waits (since
    /// KAFKA-19975), and the reassignment never ends.
    fn complete_reassignment(&mut self) {
        if self.removing.is_empty() && self.adding.is_empty() {
            return;
        }
        let without = |list: &[BrokerId], gone: &[BrokerId]| -> Vec<BrokerId> {
            list.iter().copied().filter(|id| !gone.contains(id)).collect()
        };
        let isr = without(&self.isr, &self.removing);
        let replicas = without(&self.replicas, &self.removing);
        let adding = without(&self.adding, &self.removing);
        if isr.is_empty() || replicas.is_empty() || adding.iter().any(|id| !isr.contains(id)) {
            return;
        }
        if adding.len() < self.removing.len() && replicas.iter().any(|id| !isr.contains(id)) {
            return;
        }
        (self.isr, self.replicas) = (isr, replicas);
        self.removing.clear();
        self.adding.clear();
    }

    /// Computes the eligible replicas for the new ISR.
    fn note_eligible(&mut self) {
        let Some(min_isr) = self.elr_below else { return };
        if self.isr.len() >= min_isr {
            self.elr.clear();
            return;
        }
        let candidates: BTreeSet<BrokerId> = self.elr.iter().chain(&self.partition.isr).copied().collect();
        let may_be = |id: &BrokerId| {
            // A replica removed by a reassignment has deleted its log.
            self.replicas.contains(id) && !self.isr.contains(id) && Some(*id) != self.lost_replica()
        };
        self.elr = candidates.into_iter().filter(may_be).collect();
    }

    /// Computes the candidates if no replica is in sync or eligible: the last leader first, as in Kafka, then
    /// replicas that were eligible until an unclean stop, as long as nothing is committed without them. The
    /// leader may have failed together with them, and the loss of its log may become known only later. A
    /// replica with a lost log is the last candidate or no candidate. If the last candidate is damaged, all
    /// other replicas are candidates, too.
    fn note_last_known(&mut self) {
        let Some(min_isr) = self.elr_below else { return };
        let Some((lost, log)) = self.lost else { return };
        if log <= ReplicaLog::Damaged {
            let was_complete = self.partition.may_lead_cleanly(lost);
            if was_complete && self.isr.len() < min_isr && !self.last_known.contains(&lost) {
                self.last_known.push(lost);
            }
            if log == ReplicaLog::Damaged && self.isr.is_empty() && self.elr.is_empty() {
                // Any other replica may have more records.
                let others = self.replicas.iter().filter(|id| !self.last_known.contains(id));
                self.last_known.extend(others.copied().collect::<Vec<_>>());
            }
            return;
        }
        let others = self.last_known.iter().any(|id| *id != lost);
        if others || log == ReplicaLog::Gone || !self.isr.is_empty() || !self.elr.is_empty() {
            self.last_known.retain(|id| *id != lost);
        }
    }

    /// Without eligible leader replicas, only the ISR shows complete replicas. While there is no leader,
    /// nothing is acknowledged, and the members are kept. The first member that returns leads, unless it may
    /// lack records.
    fn keep_isr_without_leader(&mut self, record: &PartitionChangeRecord) {
        if self.elr_below.is_some() || record.isr.is_some() {
            return;
        }
        let leader = match record.leader {
            NO_LEADER_CHANGE => self.partition.leader,
            leader => BrokerId(leader),
        };
        if leader == BrokerId::NONE {
            let is_gone =
                |id: &BrokerId| self.lost.is_some_and(|(lost, log)| lost == *id && log > ReplicaLog::Damaged);
            let stay = self.partition.isr.iter().filter(|id| self.replicas.contains(id) && !is_gone(id));
            let stay: Vec<BrokerId> = stay.copied().collect();
            if !stay.is_empty() {
                self.isr = stay;
            }
        } else if !self.partition.has_leader() {
            let complete = |id: &BrokerId| *id == leader || (self.is_up(*id) && !self.state.is_suspect(*id));
            self.isr = self.isr.iter().copied().filter(complete).collect();
        }
    }

    fn set_eligible(&mut self, record: &mut PartitionChangeRecord) {
        // After an unclean election the other logs differ from the leader's. If the leader alone suffices,
        // because min.insync.replicas was lowered while there was no leader, the leader commits records that
        // other replicas lack.
        let is_unclean = record.isr.is_some();
        if is_unclean || self.elr_below.is_none_or(|min_isr| self.isr.len() >= min_isr) {
            self.elr.clear();
        }
        if self.elr != self.partition.eligible_leader_replicas {
            record.eligible_leader_replicas = Some(BrokerId::numbers(&self.elr));
        }
    }

    fn remember_leader(&mut self, record: &mut PartitionChangeRecord) {
        let last = self.partition.leader;
        let has_leader = record.leader >= 0 || (record.leader == NO_LEADER_CHANGE && last != BrokerId::NONE);
        let isr = record.isr.as_deref().map_or_else(|| self.isr.clone(), BrokerId::list);
        // With enough in-sync replicas, records are committed that other replicas lack.
        if self.elr_below.is_none_or(|min_isr| has_leader && isr.len() >= min_isr) {
            self.last_known.clear();
        } else if has_leader {
            self.last_known.retain(|id| !isr.contains(id) && !self.elr.contains(id));
        } else if record.leader == BrokerId::NONE.0 && !self.is_lost_for_good(last) {
            self.last_known.retain(|id| *id != last);
            self.last_known.insert(0, last);
        }
        if self.last_known != self.partition.last_known_elr {
            record.last_known_elr = Some(BrokerId::numbers(&self.last_known));
        }
    }

    /// True if a replica's log is lost, or other replicas have all of its records.
    fn is_lost_for_good(&self, replica: BrokerId) -> bool {
        self.lost.is_some_and(|(lost, log)| {
            let others_know = !self.elr.is_empty() || self.last_known.iter().any(|id| *id != replica);
            lost == replica && (log == ReplicaLog::Gone || (log == ReplicaLog::Away && others_know))
        })
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
                record.replicas = Some(BrokerId::numbers(&self.replicas));
            }
        }
        if self.removing != self.partition.removing_replicas {
            record.removing_replicas = Some(BrokerId::numbers(&self.removing));
        }
        if self.adding != self.partition.adding_replicas {
            record.adding_replicas = Some(BrokerId::numbers(&self.adding));
        }
    }

    fn directory(&self, replica: BrokerId) -> Uuid {
        let known = self.directories.iter().find(|(id, _)| *id == replica);
        known.map_or_else(|| default_directory(self.image, replica), |(_, directory)| *directory)
    }
}

/// The directory of a broker's new replica: the broker's only directory, otherwise a reserved id until the
/// broker reports the directory.
pub(super) fn default_directory(image: &Image, broker: BrokerId) -> Uuid {
    match image.broker(broker).map(|broker| broker.directories.as_slice()) {
        None => DIRECTORY_UNASSIGNED,
        Some([]) => DIRECTORY_MIGRATING,
        Some([only]) => *only,
        Some(_) => DIRECTORY_UNASSIGNED,
    }
}
