//! A replica whose records are known to be missing or unreadable ([`thalweg_log::Damage`]).
//!
//! Owns: the next step of such a replica, and salvage of readable records from an only replica. A damaged
//! replica first leaves the in-sync and the eligible replicas, so that it cannot lead, and then fetches the
//! damaged range again. Refuses: giving up a replica without which records may be lost: the replica keeps its
//! place while no other is in sync.

use super::{FetchError, Partition, State};
use std::ops::Range;
use thalweg_log::{CorruptBatch, Damage, LogError, ReadError, Salvage, SegmentCheck};
use thalweg_metadata::topic_name::{TRANSACTIONS, is_of_coordinators};
use thalweg_metadata::{BrokerId, Image};
use thalweg_record::{LeaderEpoch, Offset};

/// The next step of a damaged replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamageStep {
    /// The partition has no other replica.
    OnlyReplica,
    /// This replica leads, and no other replica is in sync.
    OnlyInSync,
    /// Other replicas have the records: this replica leaves the in-sync and the eligible replicas, and stops
    /// leading.
    Leave,
    /// This replica follows and is not in sync: the damaged range can be fetched again, once the leader
    /// cannot count this replica either.
    FetchAgain,
    /// The partition has no leader.
    Wait,
}

impl Partition {
    /// True if records are known to be missing or unreadable. Takes no lock.
    pub fn is_damaged(&self) -> bool {
        self.published.is_damaged()
    }

    /// The known damage and the next step; `None` without damage.
    pub fn damage_step(&self, image: &Image) -> Option<(Damage, DamageStep)> {
        let state = self.state.lock();
        let damage = state.log.damage()?;
        let registration = &state.registration;
        let is_up = |id: BrokerId| image.broker(id).is_some_and(|broker| broker.is_active());
        let step = match registration.leader {
            _ if registration.replicas.len() == 1 => DamageStep::OnlyReplica,
            BrokerId::NONE => DamageStep::Wait,
            leader if leader == self.node_id => {
                let others = || registration.isr.iter().filter(|id| **id != self.node_id);
                if others().any(|id| is_up(*id)) { DamageStep::Leave } else { DamageStep::OnlyInSync }
            }
            _ if registration.may_lead_cleanly(self.node_id) => DamageStep::Leave,
            _ => DamageStep::FetchAgain,
        };
        Some((damage, step))
    }

    /// True if the log is cut when the damage is dropped; false if only records at its end are missing.
    pub fn cuts_to_fetch_again(&self, damage: Damage) -> bool {
        matches!(damage, Damage::Unreadable(_)) || self.state.lock().log.may_start_too_late()
    }

    /// Drops the damaged range, if another broker leads and this replica is not counted. Blocks on file I/O.
    pub fn fetch_damage_again(&self) {
        self.state.lock().drop_damage(self);
    }

    /// Accepts that missing records are lost. A coordinator's log remembers the gaps between its segments,
    /// because they change the meaning of the records on both sides.
    pub fn accept_loss(&self) {
        let mut state = self.state.lock();
        state.note_lost_ends(self);
        let accepted = match is_of_coordinators(&self.topic) {
            true => state.log.accept_loss_at_ends(),
            false => state.log.accept_loss(),
        };
        if let Err(error) = accepted {
            tracing::error!(partition = ?self, %error, "Failed to forget the missing records of a log");
        }
    }

    /// The offsets of missing records, in order, if the partition has no other replica. `epoch` is the epoch
    /// in which this replica leads.
    pub fn lost_ranges(&self, epoch: LeaderEpoch) -> Result<Vec<Range<Offset>>, FetchError> {
        let state = self.state.lock();
        state.check_leader(Some(epoch))?;
        if state.registration.replicas.len() > 1 {
            return Ok(Vec::new());
        }
        let mut lost = state.log.missing_ranges();
        lost.extend(state.lost_ends.iter().cloned());
        lost.sort_unstable_by_key(|lost| lost.start);
        lost.dedup();
        Ok(lost)
    }

    /// Checks the next closed segment found at the start: that the file exists and is whole at both ends.
    /// Returns false if none was left to check. Damage is handled at once.
    pub fn check_next_segment(&self) -> Result<bool, LogError> {
        let was_damaged = self.is_damaged();
        let checked = self.state.lock().log.begin_segment_check();
        if !was_damaged && self.is_damaged() {
            self.context.damage_found.notify_one();
        }
        match checked? {
            SegmentCheck::NoneLeft => return Ok(false),
            SegmentCheck::Done => {}
            SegmentCheck::Epochs(scan) => {
                let found = scan.run()?;
                self.state.lock().log.finish_segment_check(&scan, &found)?;
            }
        }
        Ok(true)
    }

    /// Notes an error of a reader without the lock, which may be damage.
    pub fn note_error(&self, error: &LogError) {
        self.state.lock().log.note_error(error);
        self.report_damage();
    }

    /// Notes a fault that a reader without the lock has found in the segment that contains `offset`, while
    /// this replica led in `epoch`. Nothing is truncated during that leadership, so the bytes are still those
    /// of the log.
    pub fn note_fault(&self, epoch: LeaderEpoch, offset: Offset, fault: CorruptBatch) {
        let mut state = self.state.lock();
        if state.check_leader(Some(epoch)).is_err() {
            return;
        }
        let segment = state.log.segment_offsets().into_iter().rfind(|base| *base <= offset);
        if let Some(segment) = segment {
            state.log.note_error(&LogError::Corrupt { segment, fault });
        }
        drop(state);
        self.report_damage();
    }

    /// The readable records from `from` to the end of the segment, if the log is known to be damaged and the
    /// partition has no other replica. `epoch` is the epoch in which this replica leads.
    pub fn salvage(&self, epoch: LeaderEpoch, from: Offset) -> Result<Option<Salvage>, FetchError> {
        let mut state = self.state.lock();
        state.check_leader(Some(epoch))?;
        let is_only_replica = state.registration.replicas.len() == 1;
        if !is_only_replica || state.log.damage().is_none() {
            return Ok(None);
        }
        let batch_bytes_max = state.settings.max_message_bytes as usize;
        Ok(Some(state.log.salvage(from, batch_bytes_max).map_err(ReadError::Log)?))
    }

    /// Notifies the broker of damage that was found under the lock of the log.
    pub(crate) fn report_damage(&self) {
        if self.is_damaged() {
            self.context.damage_found.notify_one();
        }
    }
}

impl State {
    /// Implements [`Partition::fetch_damage_again`].
    fn drop_damage(&mut self, partition: &Partition) {
        let Some(damage) = self.log.damage() else { return };
        let leader = self.registration.leader;
        let follows = leader != BrokerId::NONE && leader != partition.node_id && !self.is_retired();
        if !follows || self.registration.may_lead_cleanly(partition.node_id) {
            return;
        }
        tracing::warn!(
            ?partition, %leader, ?damage, log_end = self.log.log_end_offset().0,
            "Fetching damaged or missing records again from the leader"
        );
        match damage {
            _ if self.log.may_start_too_late() => self.note_cut(Offset::ZERO),
            Damage::Unreadable(from) => self.note_cut(from),
            Damage::Missing(_) => {}
        }
        if let Err(error) = self.log.drop_damage() {
            tracing::error!(?partition, %error, "Failed to truncate a damaged log");
        }
    }

    /// Accepts the loss after this replica was elected leader: the controller knows of no replica with more
    /// records.
    pub(super) fn lead_despite_loss(&mut self, partition: &Partition) {
        if let Some(recovery_point) = self.log.missing_below() {
            tracing::error!(
                ?partition,
                log_end = self.log.log_end_offset().0,
                recovery_point = recovery_point.0,
                epoch = self.leader_epoch().0,
                "Became leader although synced records are missing here: they are lost if no other replica has them"
            );
            self.note_lost_ends(partition);
            self.forget_missing(partition);
        }
    }

    /// Remembers the gaps at the ends of a coordinator's log until this process ends. Transactions are
    /// decided from the remaining records, as before.
    fn note_lost_ends(&mut self, partition: &Partition) {
        if is_of_coordinators(&partition.topic) && *partition.topic != *TRANSACTIONS {
            let records = self.log.log_start_offset()..self.log.log_end_offset();
            let is_end = |lost: &Range<Offset>| lost.end <= records.start || lost.start >= records.end;
            self.lost_ends.extend(self.log.missing_ranges().into_iter().filter(is_end));
        }
    }

    fn forget_missing(&mut self, partition: &Partition) {
        if let Err(error) = self.log.forget_missing() {
            tracing::error!(?partition, %error, "Failed to lower the recovery point of a log whose end is missing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{FetchParameters, Isolation, Reader, testing};
    use std::sync::Arc;
    use thalweg_log::{
        BatchFault, Clock, Home, LogConfig, OpenOptions, PartitionLog, SalvageStep, TopicPartition,
        disk::Disk,
    };
    use thalweg_metadata::{Delta, PartitionEpoch, PartitionRegistration, Provenance};
    use thalweg_record::{BatchBuilder, BatchOptions, CrcMismatch};
    use thalweg_wire::MetadataRecord;
    use thalweg_wire::metadata::RegisterBrokerRecord;

    const OTHER: BrokerId = BrokerId(2);
    const EPOCH: i32 = 3;

    /// An image in which the other broker is up or fenced.
    fn image(is_up: bool) -> Arc<Image> {
        let mut delta = Delta::new(Arc::new(Image::empty()));
        let record = RegisterBrokerRecord { broker_id: OTHER.0, fenced: !is_up, ..Default::default() };
        delta.replay(&MetadataRecord::RegisterBroker(record)).expect("it fits");
        delta.apply(Provenance::EMPTY)
    }

    /// A cleanly closed log of several segments: the second is garbage, or the end of the log is missing.
    fn log(dir: &std::path::Path, is_cut: bool) -> PartitionLog {
        let segments = closed(dir);
        let damaged = if is_cut { segments[segments.len() - 1] } else { segments[1] };
        let path = dir.join(format!("t-0/{:020}.log", damaged.0));
        let mut bytes = std::fs::read(&path).expect("the segment is there");
        if is_cut {
            bytes.clear();
        } else {
            bytes.fill(0xA5);
        }
        std::fs::write(path, bytes).expect("writes");
        let mut log = open(dir);
        let read = log.read(damaged, 1 << 20, Offset(20), true);
        assert_eq!(read.is_err(), !is_cut || log.log_end_offset() < damaged, "{read:?}");
        log
    }

    /// Writes a log of several segments, and closes it. Returns the base offsets.
    fn closed(dir: &std::path::Path) -> Vec<Offset> {
        let config = Arc::new(LogConfig { segment_bytes: 500, ..LogConfig::default() });
        let (name, clock) = (TopicPartition::new("t", 0), Clock::manual(1_700_000_000_000));
        let home = Home::new(Disk::real(), dir.join("t-0"));
        let mut log = PartitionLog::create(home, name, None, config, clock).expect("creates");
        for _ in 0..20 {
            let mut builder = BatchBuilder::new(BatchOptions::default());
            builder.append(1, None, Some(&[b'v'; 100]), &[]).expect("fits");
            log.append_as_leader(&builder.build(), LeaderEpoch(EPOCH), Default::default()).expect("accepted");
        }
        log.set_high_watermark(Offset(20));
        log.close().expect("closes");
        log.segment_offsets()
    }

    fn open(dir: &std::path::Path) -> PartitionLog {
        let config = Arc::new(LogConfig { segment_bytes: 500, ..LogConfig::default() });
        let (name, clock) = (TopicPartition::new("t", 0), Clock::manual(1_700_000_000_000));
        let options =
            OpenOptions { recovery_point: Offset(20), high_watermark: Offset(20), ..OpenOptions::new(true) };
        PartitionLog::open(Home::new(Disk::real(), dir.join("t-0")), name, config, clock, &options)
            .expect("opens")
    }

    fn registration(leader: BrokerId, isr: &[i32], epoch: i32) -> PartitionRegistration {
        let replicas = vec![testing::NODE, OTHER];
        let isr = BrokerId::list(isr);
        let partition_epoch = PartitionEpoch(epoch);
        PartitionRegistration { replicas, isr, partition_epoch, ..testing::registration(leader, epoch) }
    }

    #[tokio::test]
    async fn leader_stays_until_another_is_in_sync_and_then_fetches_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let partition = testing::partition(log(dir.path(), false), EPOCH);
        let step = |is_up| partition.damage_step(&image(is_up)).expect("it is damaged").1;
        assert_eq!(step(true), DamageStep::OnlyReplica);
        partition.apply(&registration(testing::NODE, &[1], 4));
        assert_eq!(step(true), DamageStep::OnlyInSync);
        partition.apply(&registration(testing::NODE, &[1, 2], 5));
        assert_eq!((step(false), step(true)), (DamageStep::OnlyInSync, DamageStep::Leave));
        partition.apply(&registration(BrokerId::NONE, &[1], 6));
        assert_eq!(step(true), DamageStep::Wait);
        partition.apply(&registration(OTHER, &[2, 1], 7));
        assert_eq!(step(true), DamageStep::Leave, "it could be elected");
        let eligible = PartitionRegistration {
            eligible_leader_replicas: vec![testing::NODE],
            ..registration(OTHER, &[2], 8)
        };
        partition.apply(&eligible);
        assert_eq!(step(true), DamageStep::Leave, "it could still be elected");
        assert_eq!(partition.published.log_end_offset(), Offset(20), "until then nothing is cut");
        partition.fetch_damage_again();
        partition.apply(&registration(OTHER, &[2], 9));
        assert_eq!(step(true), DamageStep::FetchAgain);
        assert_eq!(partition.published.log_end_offset(), Offset(20), "its leader may still count on its log");
        partition.fetch_damage_again();
        assert_eq!(partition.damage_step(&image(true)), None);
        let position = partition.fetch_position(LeaderEpoch(9)).expect("it follows");
        assert!(position.offset > Offset::ZERO && position.offset < Offset(20), "{position:?}");
    }

    #[tokio::test]
    async fn followers_of_a_leader_that_lacks_its_beginning_keep_theirs() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let segments = closed(dir.path());
        std::fs::remove_file(dir.path().join(format!("t-0/{:020}.log", 0))).expect("removes");
        let partition = testing::partition_as(open(dir.path()), &registration(testing::NODE, &[1, 2], 4));
        let read = |reader| {
            let from = FetchParameters {
                offset: Offset(20),
                max_bytes: 1000,
                at_least_one: true,
                current_leader_epoch: None,
                last_fetched_epoch: None,
                reader,
                isolation: Isolation::ReadUncommitted,
                from_any_replica: false,
                reader_start: Offset::ZERO,
                first_pass: true,
            };
            partition.fetch(&from).expect("it leads").log_start_offset
        };
        assert_eq!(read(Reader::Client), segments[1]);
        assert_eq!(read(Reader::Follower { id: OTHER, broker_epoch: -1 }), Offset::ZERO);
        assert_eq!(partition.damage_step(&image(true)).expect("it is damaged").1, DamageStep::Leave);
    }

    #[tokio::test]
    async fn fault_that_a_reader_has_found_counts_while_its_epoch_lasts() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let segments = closed(dir.path());
        let partition = testing::partition_as(open(dir.path()), &registration(testing::NODE, &[1, 2], 4));
        let reason = BatchFault::Batch(CrcMismatch { stored: 1, computed: 2 }.into());
        let fault = || CorruptBatch { position: 0, reason: reason.clone() };
        let (_, epoch) = partition.leader();
        let epoch = LeaderEpoch(epoch);
        partition.note_fault(LeaderEpoch(epoch.0 - 1), segments[2] + 1, fault());
        partition.note_fault(epoch, Offset(-1), fault());
        assert_eq!(partition.damage_step(&image(true)), None, "the log may have been cut since");
        partition.note_fault(epoch, segments[2] + 1, fault());
        let known = partition.damage_step(&image(true));
        assert_eq!(known, Some((Damage::Unreadable(segments[2]), DamageStep::Leave)));
    }

    #[tokio::test]
    async fn only_replica_is_read_past_its_damage_and_no_other() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let log = log(dir.path(), false);
        let (damaged, epoch) = (log.segment_offsets()[1], LeaderEpoch(EPOCH));
        let partition = testing::partition(log, EPOCH);
        let salvage = |epoch, from| partition.salvage(epoch, from);
        let mut salvaged = salvage(epoch, damaged).expect("it leads").expect("it is the only replica");
        let behind = salvaged.end_offset();
        assert_eq!(salvaged.step().expect("reads"), Some(SalvageStep::Damage(damaged..behind)));
        assert_eq!(salvaged.step().expect("reads"), None);
        let mut salvaged = salvage(epoch, behind).expect("it leads").expect("it is the only replica");
        assert!(matches!(salvaged.step(), Ok(Some(SalvageStep::Batch(_)))), "the next segment is sound");
        assert!(matches!(salvage(LeaderEpoch(EPOCH - 1), damaged), Err(FetchError::Role(_))));
        partition.apply(&registration(testing::NODE, &[1], 4));
        assert!(salvage(LeaderEpoch(4), damaged).expect("it leads").is_none(), "the other may come back");
    }

    #[tokio::test]
    async fn log_that_is_not_known_to_be_damaged_is_read_as_usual() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        closed(dir.path());
        let partition = testing::partition(open(dir.path()), EPOCH);
        assert!(partition.salvage(LeaderEpoch(EPOCH), Offset(3)).expect("it leads").is_none());
    }

    #[tokio::test]
    async fn lost_segment_that_nobody_reads_is_found_and_the_leader_leaves() {
        for is_overwritten in [true, false] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let segments = closed(dir.path());
            let (lost, other) = (segments[segments.len() - 2], segments[1]);
            let file = |base: Offset, suffix| dir.path().join(format!("t-0/{:020}.{suffix}", base.0));
            for suffix in ["log", "index", "timeindex", "snapshot"] {
                match is_overwritten {
                    true if suffix != "snapshot" => {
                        std::fs::copy(file(other, suffix), file(lost, suffix)).map(drop).expect("overwrites")
                    }
                    true => {}
                    false => std::fs::remove_file(file(lost, suffix)).expect("removes"),
                }
            }
            let partition = testing::partition_as(open(dir.path()), &registration(testing::NODE, &[1, 2], 4));
            assert_eq!(partition.damage_step(&image(true)), None, "nobody has looked");
            let closed = segments.len() - 1 - usize::from(!is_overwritten);
            let mut checked = 0;
            while checked < closed {
                let now = crate::upkeep::check_segments_of(&partition, 2);
                assert!((1..=2).contains(&now), "{now} after {checked}");
                checked += now;
            }
            assert_eq!(crate::upkeep::check_segments_of(&partition, 2), 0, "each once");
            let known = partition.damage_step(&image(true));
            assert_eq!(known, Some((Damage::Unreadable(lost), DamageStep::Leave)), "{is_overwritten}");
            let within = std::time::Duration::from_secs(5);
            let notified = tokio::time::timeout(within, partition.context.damage_found.notified()).await;
            assert!(notified.is_ok(), "the broker is to deal with it at once");
        }
    }

    #[tokio::test]
    async fn missing_end_is_forgotten_when_another_leads_or_this_one_is_elected() {
        for leader in [OTHER, testing::NODE] {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let log = log(dir.path(), true);
            let end = log.log_end_offset();
            assert!(end < Offset(20));
            let partition = testing::partition_as(log, &registration(BrokerId::NONE, &[1], 4));
            assert_eq!(partition.damage_step(&image(true)).expect("known").1, DamageStep::Wait);
            assert!(partition.is_damaged());
            partition.apply(&registration(leader, &[leader.0], 5));
            partition.fetch_damage_again();
            assert!(!partition.is_damaged(), "{leader}");
            assert_eq!(partition.published.log_end_offset(), end);
            assert_eq!(partition.published.recovery_point(), end);
        }
    }
}
